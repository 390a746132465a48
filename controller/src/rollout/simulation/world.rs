//! The made cluster: an API server's objects, agents, people, and a clock.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::*;
use super::dice::Dice;

/// An image of the simulation.
pub(super) fn image(number: u64) -> String {
    format!("reg.test/os@sha256:{number:064x}")
}

/// A node, with the state that only its machine knows.
pub(super) struct Machine {
    pub(super) node: Node,
    /// The update that its agent works on, and how long it takes.
    job: Option<(Pair, i64)>,
    /// It has no network for so long.
    away: i64,
    /// Its drain never ends.
    pub(super) is_stuck: bool,
    /// A person cordoned it for so long.
    cordoned: i64,
    download: i64,
}

/// The objects as the API server has them, and time.
pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) pool: Pool,
    /// All targets that there ever were.
    pub(super) targets: Vec<Pair>,
    /// Seconds that really passed.
    pub(super) time: i64,
    /// Error of the wall clock.
    offset: i64,
    pub(super) jumps: u64,
    /// Things go wrong.
    pub(super) is_chaos: bool,
    /// Updates of these targets fail on one node in so many.
    pub(super) fails_one_in: u64,
    is_layered: bool,
    version: u64,
    joined: u64,
}

impl World {
    pub(super) fn new(mut dice: Dice, count: usize, pool: Pool) -> Self {
        let is_layered = dice.one_in(3);
        let fails_one_in = [3, 10, 40, 1_000_000][dice.count(0, 3)];
        let mut world = Self {
            dice,
            machines: BTreeMap::new(),
            pool,
            targets: Vec::new(),
            time: 0,
            offset: 0,
            jumps: 0,
            is_chaos: true,
            fails_one_in,
            is_layered,
            version: 1,
            joined: 0,
        };
        world.retarget();
        for _ in 0..count {
            world.join();
        }
        world.pool.status.configuration = Some(world.pool.configuration.clone());
        world.retarget();
        world
    }

    pub(super) fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-11-23T00:00:00Z".parse().unwrap();
        start + SignedDuration::from_secs(self.time + self.offset)
    }

    /// The clock that nobody sets.
    pub(super) fn uptime(&self) -> std::time::Duration {
        std::time::Duration::from_secs(u64::try_from(self.time).unwrap())
    }

    pub(super) fn version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// A new target, or, now and then, an old one again.
    pub(super) fn retarget(&mut self) {
        let number = u64::try_from(self.targets.len()).unwrap();
        let old = (number > 2 && self.dice.one_in(4)).then(|| self.dice.from(0, number - 1));
        let place = old.unwrap_or(number);
        let pair = if let Some(pair) = old.and_then(|old| self.targets.get(usize::try_from(old).unwrap())) {
            pair.clone()
        } else {
            // Now and then a new config has the image of the one before.
            let same =
                self.targets.last().and_then(|pair| pair.image.clone()).filter(|_| self.dice.one_in(3));
            let image = self.is_layered.then(|| same.unwrap_or_else(|| image(number)));
            Pair::new(format!("rendered-{number}"), image)
        };
        self.targets.push(pair.clone());
        self.pool.configuration.name.clone_from(&pair.config);
        self.pool.os_image = (!self.is_layered).then(|| image(place));
        self.pool.layering = match pair.image {
            None => Layering::None,
            Some(image) => {
                Layering::Build { machine_os_build: "build".to_owned(), state: BuildState::Built(image) }
            }
        };
        self.version();
    }

    pub(super) fn target(&self) -> Pair {
        self.pool.target().unwrap()
    }

    /// A node joins: most with an old config, as its template has it.
    pub(super) fn join(&mut self) {
        self.joined += 1;
        let name = format!("n{:05}", self.joined);
        let pair = if self.dice.one_in(4) { self.target() } else { self.targets[0].clone() };
        let zone = self.dice.from(0, 3);
        let node = Node {
            name: name.clone(),
            uid: format!("uid-{}", self.joined),
            resource_version: self.version(),
            zone: (zone > 0).then(|| format!("z{zone}")),
            created: self.now(),
            ready: true,
            control_plane: self.pool.name == MASTER,
            runs_controller: self.dice.one_in(10),
            current: pair.clone(),
            desired: pair,
            state: AgentState::Done,
            ..Node::default()
        };
        let machine = Machine { node, job: None, away: 0, is_stuck: false, cordoned: 0, download: 0 };
        self.machines.insert(name, machine);
    }

    /// One random thing happens.
    pub(super) fn happen(&mut self) {
        let names: Vec<String> = self.machines.keys().cloned().collect();
        let last = u64::try_from(names.len().saturating_sub(1)).unwrap();
        let pick = self.dice.count(0, last);
        let picked = names.get(pick);
        match self.dice.from(0, 99) {
            0..=1 => self.retarget(),
            2..=3 => self.pool.paused = !self.pool.paused,
            4..=6 => self.join(),
            7..=9 if names.len() > 1 => {
                self.machines.remove(picked.unwrap());
            }
            10..=11 => self.jump(),
            12 => {
                for policy in &mut self.pool.policies {
                    policy.resume = Some(self.time.to_string());
                }
            }
            13 => {
                self.pool.max_unavailable =
                    Some(IntOrString::Int(i32::try_from(self.dice.from(1, 5)).unwrap()));
            }
            14..=29 => {
                let (kind, length) = (self.dice.from(0, 3), self.dice.seconds(60, 20_000));
                let Some(machine) = picked.and_then(|name| self.machines.get_mut(name)) else { return };
                match kind {
                    0 | 1 => machine.away = length,
                    2 => machine.cordoned = length,
                    _ => machine.is_stuck = true,
                }
            }
            _ => return,
        }
        self.version();
    }

    fn jump(&mut self) {
        let far = [60, 3600, 86_400 * 400][self.dice.count(0, 2)];
        self.offset += if self.dice.one_in(2) { far } else { -far };
        self.jumps += 1;
    }

    /// Nothing goes wrong from now on, and all that went wrong is mended.
    pub(super) fn calm(&mut self) {
        self.is_chaos = false;
        self.pool.paused = false;
        for machine in self.machines.values_mut() {
            (machine.away, machine.cordoned, machine.is_stuck) = (0, 0, false);
        }
    }

    /// Time passes, and agents work.
    pub(super) fn pass(&mut self, seconds: i64) {
        self.time += seconds;
        let mut version = self.version;
        let fails_one_in = if self.is_chaos { self.fails_one_in } else { u64::MAX };
        for machine in self.machines.values_mut() {
            let before = machine.node.clone();
            machine.work(seconds, &mut self.dice, fails_one_in);
            if machine.node != before {
                version += 1;
                machine.node.resource_version = version.to_string();
            }
        }
        self.version = version;
    }
}

impl Machine {
    fn work(&mut self, seconds: i64, dice: &mut Dice, fails_one_in: u64) {
        self.away = (self.away - seconds).max(0);
        self.cordoned = (self.cordoned - seconds).max(0);
        if self.away > 0 {
            self.node.ready = false;
            return;
        }
        self.prefetch(seconds, dice);
        let is_superseded = self.job.as_ref().is_some_and(|(pair, _)| *pair != self.node.desired);
        if is_superseded {
            self.job = None;
        }
        if self.node.desired == self.node.current {
            self.job = None;
            self.end(AgentState::Done);
            return;
        }
        match &mut self.job {
            None => {
                self.job = Some((self.node.desired.clone(), dice.seconds(30, 2000)));
                self.node.state = AgentState::Working;
                self.node.ready = true;
            }
            // It failed, and tries again when things are calm.
            Some((_, left)) if self.node.is_degraded() => {
                if fails_one_in == u64::MAX || dice.one_in(200) {
                    *left = 30;
                    self.node.state = AgentState::Working;
                }
            }
            Some((_, left)) => {
                *left -= if self.is_stuck { 0 } else { seconds };
                let left = *left;
                self.node.unschedulable = true;
                self.node.ready = left > 200 || self.is_stuck;
                if left <= 0 && fails_one_in != u64::MAX && dice.one_in(fails_one_in) {
                    self.node.reason = Some("made to fail".to_owned());
                    let state =
                        if dice.one_in(5) { AgentState::Unreconcilable } else { AgentState::Degraded };
                    self.end(state);
                } else if left <= 0 {
                    self.node.current = self.node.desired.clone();
                    self.job = None;
                    self.end(AgentState::Done);
                }
            }
        }
    }

    fn end(&mut self, state: AgentState) {
        self.node.state = state;
        self.node.ready = true;
        self.node.unschedulable = self.cordoned > 0;
        if state == AgentState::Done {
            self.node.reason = None;
        }
    }

    fn prefetch(&mut self, seconds: i64, dice: &mut Dice) {
        if self.node.prefetch_image.is_none() {
            (self.node.prefetch, self.download) = (None, 0);
            return;
        }
        if self.node.prefetch.is_none() {
            self.node.prefetch = Some(PrefetchProgress::Running);
            // Some agents never answer.
            self.download = if dice.one_in(8) { i64::MAX } else { dice.seconds(10, 3000) };
        }
        if self.node.prefetch == Some(PrefetchProgress::Running) {
            self.download -= seconds.min(self.download);
            if self.download == 0 {
                let failed = dice.one_in(10);
                self.node.prefetch =
                    Some(if failed { PrefetchProgress::Failed } else { PrefetchProgress::Done });
            }
        }
    }
}
