//! Invariants after each write. The checks count for themselves and ask the rollout nothing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::*;
use super::Seen;
use super::counts::Counts;
use super::world::World;
use crate::api::rollout_policy::PolicyTarget;

/// State of the checks.
#[derive(Default)]
pub(super) struct Checks {
    /// Nodes that the rollout took out of service, until they are done.
    ours: BTreeSet<String>,
    /// The target that the following is about.
    target: Pair,
    /// Nodes that were given it.
    given: BTreeSet<String>,
    /// Waves that were watched long enough, and how long the present one was.
    passed: usize,
    watched: i64,
    slips: u64,
    since: u64,
    /// All nodes that were to download the image had done so, as far as they were waited for.
    is_prefetched: bool,
    /// State of the target before, until the policy's status is about the present one; a target that returns earlier
    /// continues. The seconds that passed since.
    before: Option<Box<Self>>,
    away: i64,
}

/// The policy, as the simulation wrote it.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    /// Nodes of each wave (a number, or a share in percent), and its soak in seconds.
    pub(super) waves: Vec<(u64, bool, i64)>,
    /// A window each day: start and length in seconds.
    pub(super) window: Option<(i64, i64)>,
    pub(super) allowed: usize,
    pub(super) prefetch: Option<(usize, i64)>,
    pub(super) node_timeout: Option<i64>,
    pub(super) has_policy: bool,
}

impl Checks {
    /// Checks the world after time passed.
    ///
    /// `known` is the controller's cache meanwhile; `slips` counts jumps of the clock and writes that were lost, each of
    /// which may count two steps of a soak too much.
    pub(super) fn observe(
        &mut self,
        world: &World,
        known: &BTreeMap<String, Node>,
        rules: &Rules,
        seconds: i64,
        slips: u64,
    ) {
        self.slips = slips;
        self.ours.retain(|name| world.machines.get(name).is_some_and(|machine| !machine.node.is_done()));
        if self.target != world.target() {
            let ours = std::mem::take(&mut self.ours);
            let target = world.target();
            // Nodes that were given it when it was the target before prove it as well.
            let before = |node: &Node| node.desired == target && node.desired_since.is_some();
            let given = world.machines.values().filter(|machine| before(&machine.node));
            let given = given.map(|machine| machine.node.name.clone()).collect();
            let mut old = std::mem::take(self);
            let (before, away, is_prefetched) = (old.before.take(), old.away, old.is_prefetched);
            *self = match before {
                Some(before) if before.target == target => {
                    Self { ours, slips, is_prefetched, watched: before.watched + away, ..*before }
                }
                before => {
                    let new =
                        Self { target, given, ours, since: slips, slips, is_prefetched, ..Self::default() };
                    // The one before that is what the status is about.
                    let before = before.unwrap_or_else(|| Box::new(old));
                    Self { before: Some(before), away, ..new }
                }
            };
        }
        if self.before.is_some() {
            self.away += seconds;
        }
        self.given.retain(|name| {
            world.machines.get(name).is_some_and(|machine| machine.node.desired == self.target)
        });
        let until = self.until(rules, world.machines.len()).min(self.until(rules, known.len()));
        let nodes = || known.values();
        let is_full = self.given.len() >= until || nodes().all(|node| node.desired == self.target);
        let now = world.now();
        let is_late = |node: &Node| {
            let passed = node.desired_since.map(|since| now.duration_since(since).as_secs());
            rules.node_timeout.is_some_and(|timeout| passed.is_some_and(|passed| passed >= timeout))
        };
        let at_work = |node: &Node| {
            node.desired == self.target && !node.is_done() && !node.is_failing() && !is_late(node)
        };
        if is_full && !nodes().any(at_work) {
            self.watched += seconds;
        }
    }

    fn until(&self, rules: &Rules, machines: usize) -> usize {
        let size = |(nodes, is_percent, _): &(u64, bool, i64)| {
            let nodes = usize::try_from(*nodes).unwrap();
            if *is_percent { (machines * nodes).div_ceil(100).max(1) } else { nodes }
        };
        rules.waves.iter().take(self.passed + 1).map(size).sum()
    }

    /// Checks a decision, by the controller's observations.
    pub(super) fn decided(&mut self, input: &Seen<'_>, rollout: &Rollout, rules: &Rules) {
        let Some(target) = input.pool.target() else { return };
        let given = rollout.patches.iter().any(|patch| patch.pair.as_ref() == Some(&target));
        // Once all nodes have it, those that join get it without waves.
        if target == self.target && input.nodes.iter().all(|node| node.desired == target && node.is_done()) {
            self.passed = rules.waves.len();
        }
        let memory = input.pool.policies.first().map(|policy| &policy.status);
        let is_quiet = rollout.patches.is_empty() && rollout.policy_status.as_ref() == memory;
        assert!(
            !is_quiet || rollout.wake.is_none_or(|wake| wake > input.now),
            "it spins: {:?}",
            rollout.wake
        );
        if input.pool.paused {
            assert!(rollout.patches.is_empty(), "a paused pool is patched");
        }
        if let Some((start, length)) = rules.window.filter(|_| given) {
            let second = input.now.as_second().rem_euclid(86_400);
            let passed = (second - start).rem_euclid(86_400);
            assert!(passed < length, "a target was given outside of the window");
        }
        let is_failed =
            |node: &&&Node| node.desired == target && node.current != target && node.is_degraded();
        let failed = input.nodes.iter().filter(is_failed).count();
        if rules.has_policy && given {
            let memory = &input.pool.policies[0].status;
            let accepted = usize::try_from(memory.accepted_failures.unwrap_or(0)).unwrap();
            assert!(failed <= rules.allowed + accepted, "{failed} nodes failed, and it goes on");
            let is_about =
                memory.target.as_ref().is_some_and(|about| Some(&about.config) == target.config.as_ref());
            assert!(!is_about || memory.halt.is_none(), "it was halted, and goes on");
        }
        if let Some((at_once, timeout)) = rules.prefetch {
            self.prefetches(input, rollout, at_once, timeout, given);
        }
    }

    fn prefetches(&mut self, input: &Seen<'_>, rollout: &Rollout, at_once: usize, timeout: i64, given: bool) {
        let target = input.pool.target().unwrap();
        let image = target.image.clone().or_else(|| input.pool.os_image.clone());
        let is_running = |node: &Node| {
            let since = node.prefetch_since.map_or(0, |since| input.now.duration_since(since).as_secs());
            node.prefetch_image == image
                && matches!(node.prefetch, None | Some(PrefetchProgress::Running))
                && since < timeout
        };
        let waiting = || input.nodes.iter().filter(|node| node.ready && node.desired != target);
        // A person's node is not requested to begin.
        let is_cordoned = |node: &Node| node.unschedulable && node.desired.config.is_some() && node.is_done();
        let requested = rollout.patches.iter().filter(|patch| matches!(patch.prefetch, Some(Some(_))));
        let is_new =
            |patch: &&NodePatch| input.nodes.iter().any(|node| node.name == patch.node && !is_running(node));
        let (requested, running) =
            (requested.filter(is_new).count(), waiting().filter(|node| is_running(node)).count());
        assert!(
            requested == 0 || requested + running <= at_once,
            "{requested} + {running} download at a time"
        );
        let pending =
            |node: &&&Node| node.current.image != image && (node.prefetch_image != image || is_running(node));
        let pending = waiting().filter(|node| !is_cordoned(node)).filter(pending);
        self.is_prefetched |= pending.count() == 0;
        assert!(!given || self.is_prefetched, "given before the image was there");
    }

    /// Checks the stored status of a policy.
    pub(super) fn remembered(&mut self, old: &RolloutPolicyStatus, new: &RolloutPolicyStatus) {
        // The next target starts over.
        self.is_prefetched &= old.target == new.target;
        let is_about = |about: &PolicyTarget| {
            Some(&about.config) == self.target.config.as_ref() && about.image == self.target.image
        };
        if new.target.as_ref().is_some_and(is_about) {
            (self.before, self.away) = (None, 0);
        }
    }

    /// Checks a patch that the API server took.
    pub(super) fn written(
        &mut self,
        world: &World,
        input: &Seen<'_>,
        patch: &NodePatch,
        rules: &Rules,
        counts: &mut Counts,
    ) {
        let Some(pair) = &patch.pair else { return };
        counts.given += 1;
        let body = patch.body();
        let annotations = &body["metadata"]["annotations"];
        let keys = ["desiredConfig", "desiredImage"]
            .map(|key| annotations.get(format!("machineconfiguration.openshift.io/{key}")).is_some());
        assert_eq!(keys, [true, true], "half a pair: {body}");
        let node = &world.machines[&patch.node].node;
        assert!(world.targets.contains(&node.desired), "no target ever: {:?}", node.desired);
        // It is done already if it was given the pair that it has.
        let is_new = self.ours.insert(patch.node.clone());
        let max = match &input.pool.max_unavailable {
            None => 1,
            Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap(),
            Some(IntOrString::String(text)) => {
                input.nodes.len() * text.trim_end_matches('%').parse::<usize>().unwrap() / 100
            }
        };
        let max = if input.pool.name == MASTER { 1 } else { max.max(1) };
        assert!(
            !is_new || self.ours.len() <= max,
            "{} nodes out of service, {max} may: {:?}",
            self.ours.len(),
            self.ours
        );
        counts.most = counts.most.max(self.ours.len());
        if *pair == self.target && input.pool.target().as_ref() == Some(pair) {
            self.wave(world, input, patch, rules);
        }
    }

    fn wave(&mut self, world: &World, input: &Seen<'_>, patch: &NodePatch, rules: &Rules) {
        if !self.given.insert(patch.node.clone()) {
            return;
        }
        let passed = self.passed;
        while self.passed < rules.waves.len()
            && self.given.len() > self.until(rules, input.nodes.len().max(world.machines.len()))
        {
            let soak = rules.waves[self.passed].2;
            let step = (soak / 20).clamp(1, 300);
            let slips = i64::try_from(self.slips - self.since).unwrap();
            let least = soak - (slips * 2 + 2) * step;
            assert!(
                self.watched >= least,
                "wave {} was watched for {} of {soak} s",
                self.passed + 1,
                self.watched
            );
            self.passed += 1;
        }
        // A wave that was full already, because the pool shrank, was watched with the one before.
        if self.passed > passed {
            (self.watched, self.since) = (0, self.slips);
        }
    }

    /// Checks the end: nothing goes wrong any longer.
    pub(super) fn ended(world: &World) {
        let target = world.target();
        let forgotten: BTreeMap<_, _> = world
            .machines
            .iter()
            .filter(|(_, machine)| {
                let node = &machine.node;
                !node.is_done()
                    || node.desired != target
                    || node.is_tainted()
                    || node.prefetch_since.is_some()
            })
            .map(|(name, machine)| (name, &machine.node))
            .collect();
        assert!(forgotten.is_empty(), "forgotten: {forgotten:#?}\n{:#?}", world.pool.status.conditions);
    }
}
