//! State of each node of the pool.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::writes::{Obstacle, Unwritten};
use super::{Node, NodeWrites, Pair, RolloutInput};

/// Nodes by state, each in one of the lists or `updated`.
#[derive(Debug, Default)]
pub(super) struct Census<'a> {
    /// The nodes' target.
    pub(super) target: Option<Pair>,
    /// Without the target, and it may be given to them.
    pub(super) waiting: Vec<&'a Node>,
    /// Without the target, and out of service by themselves or by a person: hands off.
    pub(super) blocked: Vec<&'a Node>,
    /// Given the target, at work.
    pub(super) at_work: Vec<&'a Node>,
    /// Those of them that were given it too long ago.
    pub(super) late: Vec<&'a Node>,
    /// Have the target since it was given to them, and are not Ready.
    pub(super) down: Vec<&'a Node>,
    /// Were given the target by this controller, whatever came of it.
    pub(super) stamped: usize,
    /// Perhaps given the target: the write was not answered.
    pub(super) unsettled: Vec<&'a Node>,
    /// Given the target, failing.
    pub(super) failing: Vec<&'a Node>,
    /// Have the target.
    pub(super) updated: usize,
    /// Have the target and take pods.
    pub(super) ready: usize,
    /// Are out of service, or may go so at any time.
    pub(super) unavailable: usize,
    /// Their drains wait for a pod that may not leave.
    pub(super) drain_blocked: Vec<&'a Node>,
    /// Report Degraded or Unreconcilable, whatever they were given.
    pub(super) degraded: Vec<&'a Node>,
    /// Use up capacity: unavailable, failing the target, or perhaps given it.
    pub(super) occupied: usize,
    /// Obstacles to writes, by node.
    pub(super) obstacles: BTreeMap<&'a str, Obstacle<'a>>,
    /// Some of them are of the control plane.
    pub(super) is_control_plane: bool,
}

impl<'a> Census<'a> {
    /// Counts.
    pub(super) fn new(input: &RolloutInput<'a>, node_timeout: Option<SignedDuration>) -> Self {
        let mut census = Self { target: input.pool.target(), ..Self::default() };
        for node in input.nodes {
            census.add(node, input.writes);
        }
        // They are named, and count for nothing.
        for node in &input.pool.unlabeled {
            let obstacle = input.writes.obstacle(node, None);
            census.obstacles.extend(obstacle.map(|obstacle| (&*node.name, obstacle)));
        }
        let is_late = |node: &&&Node| {
            let passed = node.desired_since.map(|since| input.clock.passed(since, input.now));
            node_timeout.is_some_and(|timeout| passed.is_some_and(|passed| passed >= timeout))
        };
        census.late = census.at_work.iter().filter(is_late).copied().collect();
        census
    }

    /// Returns true if a node is left alone for now.
    pub(super) fn is_held(&self, node: &Node, writes: &NodeWrites) -> bool {
        self.obstacles.get(&*node.name).is_some_and(|obstacle| obstacle.next > writes.now())
    }

    /// Returns the nodes that are not written to, with the cause.
    pub(super) fn unwritten(&self) -> Vec<(&'a str, Unwritten, &'a str)> {
        let named = |(name, obstacle): (&&'a str, &Obstacle<'a>)| {
            let (why, cause) = obstacle.named?;
            Some((*name, why, cause))
        };
        self.obstacles.iter().filter_map(named).collect()
    }

    fn add(&mut self, node: &'a Node, writes: &'a NodeWrites) {
        let obstacle = writes.obstacle(node, self.target.as_ref());
        let is_unsettled = obstacle.is_some_and(|obstacle| obstacle.takes_place);
        self.obstacles.extend(obstacle.map(|obstacle| (&*node.name, obstacle)));
        let is_unavailable = node.is_unavailable();
        self.is_control_plane |= node.control_plane;
        self.unavailable += usize::from(is_unavailable);
        if node.is_degraded() {
            self.degraded.push(node);
        }
        if node.drain_blocked.is_some() {
            self.drain_blocked.push(node);
        }
        let is_given = self.target.as_ref() == Some(&node.desired);
        let is_failing = is_given && node.is_failing();
        let is_stamped = is_given && node.desired_since.is_some();
        self.stamped += usize::from(is_stamped || is_unsettled);
        self.occupied += usize::from(is_unavailable || is_failing || is_unsettled);
        if is_unsettled {
            self.unsettled.push(node);
        } else if !is_given {
            // One that is at work or failing is out of service already: a new target costs nothing.
            let can_be_given = node.is_schedulable() || node.is_in_flight();
            if can_be_given { &mut self.waiting } else { &mut self.blocked }.push(node);
        } else if is_failing {
            self.failing.push(node);
        } else if node.is_done() {
            self.updated += 1;
            self.ready += usize::from(node.is_schedulable());
            if is_stamped && !node.ready {
                self.down.push(node);
            }
        } else {
            self.at_work.push(node);
        }
    }
}
