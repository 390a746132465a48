//! The rollout against made clusters, with everything that goes wrong.
//!
//! Each seed is a cluster, a policy and a series of accidents. The controller sees some changes late; it is killed before
//! and after writes, and then lists everything again. Each write is checked, and in the end all nodes have the target.
//!
//! `ROLLOUT_SEEDS` is the number of seeds, `ROLLOUT_SEED` a single one, to debug a failure.

mod check;
mod counts;
mod dice;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::*;
use check::{Checks, Rules};
use counts::Counts;
pub(super) use dice::Dice;
use world::World;

/// Seeds of a run in CI.
const SEEDS: u64 = 200;

/// Threads that play the seeds.
const THREADS: usize = 2;

/// The controller's cache.
struct Controller {
    nodes: BTreeMap<String, Node>,
    /// The same nodes, counted once.
    census: Census,
    pool: Pool,
    clock: Clock,
}

/// Input of a decision, with the nodes that it is about.
struct Seen<'a> {
    input: &'a RolloutInput<'a>,
    nodes: &'a [&'a Node],
}

impl<'a> std::ops::Deref for Seen<'a> {
    type Target = RolloutInput<'a>;

    fn deref(&self) -> &RolloutInput<'a> {
        self.input
    }
}

struct Simulation {
    world: World,
    controller: Controller,
    rules: Rules,
    checks: Checks,
    counts: Counts,
    wake: Option<Timestamp>,
}

/// Result of a write.
#[derive(PartialEq)]
enum Write {
    Done,
    Killed,
}

fn size(dice: &mut Dice) -> (u64, bool, Value) {
    if dice.one_in(2) {
        let nodes = dice.from(1, 5);
        (nodes, false, json!(nodes))
    } else {
        let share = dice.from(5, 40);
        (share, true, json!(format!("{share}%")))
    }
}

/// A policy, as the API server has it and as the checks know it.
///
/// A large pool prefetches on more nodes at once and has long windows, so that the seed ends in time.
fn policy(dice: &mut Dice, is_large: bool) -> (Value, Rules) {
    let (more, shortest) = if is_large { (50, 12) } else { (1, 1) };
    let mut rules = Rules { has_policy: true, ..Rules::default() };
    let mut waves = Vec::new();
    for _ in 0..dice.from(0, 3) {
        let (nodes, is_percent, value) = size(dice);
        let soak = [0, 1800, 36_000][dice.count(0, 2)];
        rules.waves.push((nodes, is_percent, soak));
        waves.push(json!({"nodes": value, "soak": format!("{soak}s")}));
    }
    let mut spec = json!({});
    if !waves.is_empty() {
        spec["canary"] = waves.remove(0);
        spec["waves"] = json!(waves);
    }
    rules.allowed = dice.count(0, 2);
    spec["allowedFailures"] = json!(rules.allowed);
    if dice.one_in(3) {
        spec["onFailure"] = json!("RollBack");
    }
    if dice.one_in(2) {
        rules.node_timeout = Some(4 * 3600);
        spec["nodeTimeout"] = json!("4h");
    }
    if dice.one_in(3) {
        let (at_once, timeout) = (more * dice.from(1, 8), dice.seconds(600, 7200));
        rules.prefetch = Some((usize::try_from(at_once).unwrap(), timeout));
        spec["prefetch"] = json!({"concurrency": at_once, "timeout": format!("{timeout}s")});
    }
    if dice.one_in(3) {
        let (hour, length) = (dice.seconds(0, 23), dice.seconds(shortest, 23));
        rules.window = Some((hour * 3600, length * 3600));
        spec["windows"] = json!([{"start": format!("{hour:02}:00"), "length": format!("{length}h")}]);
    }
    (spec, rules)
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let count = match seed % 500 {
            499 => dice.count(4000, 5000),
            number if number % 50 == 49 => dice.count(60, 120),
            _ => dice.count(1, 30),
        };
        let is_large = count > 1000;
        let max_unavailable = match dice.from(0, 3) {
            // A large pool is updated in few steps, so that the seed ends in time.
            _ if is_large => Some(IntOrString::String("30%".to_owned())),
            0 => None,
            1 => Some(IntOrString::Int(i32::try_from(dice.from(1, 5)).unwrap())),
            _ => Some(IntOrString::String(format!("{}%", dice.from(1, 60)))),
        };
        // Its nodes are updated one at a time.
        let is_master = dice.one_in(8) && !is_large;
        let (spec, rules) = if dice.one_in(4) {
            (None, Rules::default())
        } else {
            let (spec, rules) = policy(&mut dice, is_large);
            (Some(spec), rules)
        };
        let policy = |spec| Policy {
            name: "policy".to_owned(),
            spec: serde_json::from_value(spec).unwrap(),
            ..Policy::default()
        };
        let policies = spec.map(policy).into_iter().collect();
        let name = if is_master { MASTER } else { WORKER }.to_owned();
        let world = World::new(dice, count, Pool { name, max_unavailable, policies, ..Pool::default() });
        let controller = Controller {
            nodes: BTreeMap::new(),
            census: Census::default(),
            pool: world.pool.clone(),
            clock: Clock::default(),
        };
        let counts = Counts { seeds: 1, nodes: count, ..Counts::default() };
        let mut simulation = Self { world, controller, rules, checks: Checks::default(), counts, wake: None };
        simulation.restart();
        simulation
    }

    /// The controller lists everything.
    fn restart(&mut self) {
        self.controller.pool = self.world.pool.clone();
        self.controller.clock = Clock::default();
        let node = |(name, machine): (&String, &world::Machine)| (name.clone(), machine.node.clone());
        self.controller.nodes = self.world.machines.iter().map(node).collect();
        self.controller.census = Census::new(self.controller.nodes.values());
    }

    /// The watches deliver some changes, in calm times all of them.
    fn watch(&mut self) {
        let late = if self.world.is_chaos { 4 } else { u64::MAX };
        if !self.world.dice.one_in(late) {
            self.controller.pool = self.world.pool.clone();
        }
        let (world, nodes) = (&mut self.world, &mut self.controller.nodes);
        let census = &mut self.controller.census;
        nodes.retain(|name, _| {
            let is_kept = world.machines.contains_key(name) || world.dice.one_in(late);
            if !is_kept {
                census.remove(name);
            }
            is_kept
        });
        for (name, machine) in &world.machines {
            let known = nodes.get(name).map(|node| &node.resource_version);
            if known != Some(&machine.node.resource_version) && !world.dice.one_in(late) {
                nodes.insert(name.clone(), machine.node.clone());
                census.put(machine.node.clone().into());
            }
        }
    }

    /// Time passes, to the next wake or short of it, and things happen.
    fn step(&mut self) {
        let until_wake =
            self.wake.map_or(900, |wake| wake.duration_since(self.world.now()).as_secs().clamp(1, 900));
        let seconds = self.world.dice.seconds(1, 900).min(until_wake + 1);
        self.world.pass(seconds);
        if self.world.is_chaos && self.world.dice.one_in(3) {
            self.world.happen();
        }
        let slips = self.world.jumps + self.counts.kills + self.counts.conflicts;
        self.checks.observe(&self.world, &self.controller.nodes, &self.rules, seconds, slips);
        self.watch();
        // A decision may request the next one at once.
        for _ in 0..self.world.dice.from(1, 3) {
            if self.decide() == Write::Killed {
                self.counts.kills += 1;
                self.restart();
            }
        }
    }

    fn decide(&mut self) -> Write {
        self.counts.decisions += 1;
        let pool = self.controller.pool.clone();
        let known = std::mem::take(&mut self.controller.nodes);
        let nodes: Vec<&Node> = known.values().collect();
        let costs = BTreeMap::new();
        let now = self.world.now();
        self.controller.clock.observe(now, self.world.uptime());
        let clock = self.controller.clock.clone();
        let input = RolloutInput {
            pool: &pool,
            conflicts: &[],
            costs: &costs,
            now,
            clock: &clock,
            writes: &NodeWrites::default(),
        };
        let rollout = rollout(&input, &mut self.controller.census);
        assert_eq!(
            rollout,
            super::rollout(&input, &mut Census::new(nodes.iter().copied())),
            "a census is stale"
        );
        let input = Seen { input: &input, nodes: &nodes };
        self.wake = rollout.wake;
        self.count(&rollout);
        self.checks.decided(&input, &rollout, &self.rules);
        if self.write_policy(&rollout) == Write::Killed {
            return Write::Killed;
        }
        let mut written = Vec::new();
        for patch in &rollout.patches {
            if self.write(&input, patch, &mut written) == Write::Killed {
                return Write::Killed;
            }
        }
        self.controller.nodes = known;
        for node in written {
            self.controller.census.put(node.clone().into());
            self.controller.nodes.insert(node.name.clone(), node);
        }
        if self.controller.pool.status != rollout.status && !self.is_killed() {
            self.world.pool.status = rollout.status.clone();
            self.controller.pool.status = rollout.status;
        }
        Write::Done
    }

    fn is_killed(&mut self) -> bool {
        self.world.is_chaos && self.world.dice.one_in(40)
    }

    fn write_policy(&mut self, rollout: &Rollout) -> Write {
        let Some(status) = &rollout.policy_status else { return Write::Done };
        if self.controller.pool.policies[0].status == *status {
            return Write::Done;
        }
        if self.is_killed() {
            return Write::Killed;
        }
        // The version of the policy is that of all that people and this controller write of it.
        if self.world.pool.policies == self.controller.pool.policies {
            self.checks.remembered(&self.world.pool.policies[0].status, status);
            self.world.pool.policies[0].status = status.clone();
            self.controller.pool.policies[0].status = status.clone();
        } else {
            self.counts.conflicts += 1;
        }
        if self.is_killed() { Write::Killed } else { Write::Done }
    }

    fn write(&mut self, input: &Seen<'_>, patch: &NodePatch, written: &mut Vec<Node>) -> Write {
        if self.is_killed() {
            return Write::Killed;
        }
        let version = self.world.version();
        let Some(machine) = self.world.machines.get_mut(&patch.node) else { return Write::Done };
        if machine.node.resource_version == patch.resource_version && machine.node.uid == patch.uid {
            patch.apply(&mut machine.node);
            machine.node.resource_version = version;
            let node = machine.node.clone();
            self.checks.written(&self.world, input, patch, &self.rules, &mut self.counts);
            if self.is_killed() {
                return Write::Killed;
            }
            written.push(node);
        } else {
            self.counts.conflicts += 1;
        }
        Write::Done
    }

    fn count(&mut self, rollout: &Rollout) {
        let Some(status) = &rollout.policy_status else { return };
        let is = |phase: &str| u64::from(status.phase.as_deref() == Some(phase));
        self.counts.halts += is("Halted");
        self.counts.soaks += is("Soaking");
        self.counts.closed += is("Closed");
        self.counts.prefetches += is("Prefetching");
        let last_good = status.last_good.as_ref().map(|good| Some(good.config.clone()));
        let returned = rollout
            .patches
            .iter()
            .filter_map(|patch| patch.pair.as_ref())
            .any(|pair| Some(&pair.config) == last_good.as_ref());
        self.counts.returned += u64::from(returned && is("Halted") == 1);
    }

    /// In the end all nodes have the target; where it is halted, a person resumes it, and its cause was named.
    fn end(&mut self) {
        self.world.calm();
        for round in 0..20_000_u64 {
            self.step();
            if let Some(halt) = self.world.pool.policies.first().and_then(|policy| policy.status.halt.clone())
            {
                assert!(!halt.node.is_empty() && !halt.cause.is_empty(), "{halt:?}");
                self.world.pool.policies[0].resume = Some(format!("{}-{round}", self.world.time));
            }
            let target = self.world.target();
            let is_done = |machine: &world::Machine| machine.node.is_done() && machine.node.desired == target;
            if self.world.machines.values().all(is_done) && round > 50 {
                break;
            }
        }
        // The last patches: taints and requests that are over.
        for _ in 0..50 {
            self.step();
        }
        Checks::ended(&self.world);
        self.counts.jumps = self.world.jumps;
    }
}

fn run(seed: u64) -> Counts {
    let mut simulation = Simulation::new(seed);
    let steps = if simulation.counts.nodes > 1000 { 60 } else { 150 };
    for _ in 0..steps {
        simulation.step();
    }
    simulation.end();
    simulation.counts
}

fn number(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test that is asked for more seeds")]
    std::env::var(name).ok()?.parse().ok()
}

fn play(seeds: impl Iterator<Item = u64>) -> Counts {
    let mut sum = Counts::default();
    for seed in seeds {
        let counts = std::panic::catch_unwind(|| run(seed));
        sum.add(&counts.unwrap_or_else(|_| panic!("look at it with ROLLOUT_SEED={seed}")));
    }
    sum
}

#[test]
#[expect(clippy::print_stdout, reason = "what the seeds did")]
fn rollout_survives_random_faults() {
    let seeds: Vec<u64> = match number("ROLLOUT_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("ROLLOUT_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let mut sum = Counts::default();
    // Each thread takes the next one: a large one takes as long as a thousand small ones.
    let next = AtomicUsize::new(0);
    let part = || std::iter::from_fn(|| seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| play(part()))).collect();
        for thread in threads {
            sum.add(&thread.join().unwrap());
        }
    });
    println!("{sum:?}");
    if sum.seeds >= SEEDS {
        let all = [
            sum.kills,
            sum.conflicts,
            sum.jumps,
            sum.halts,
            sum.soaks,
            sum.closed,
            sum.prefetches,
            sum.returned,
        ];
        assert!(all.iter().all(|count| *count > 0), "some accident never happened: {sum:?}");
    }
}
