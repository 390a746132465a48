//! State of each node of the pool. It is kept from one decision to the next: a node that changes is counted anew, and no other one.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use jiff::SignedDuration;

use super::writes::{Obstacle, Unwritten};
use super::{Node, NodeWrites, Pair, RolloutInput, Topology};

/// Nodes by name.
pub(super) type Nodes = BTreeSet<ByName>;

/// A node, in the order of names.
#[derive(Debug, Clone)]
pub(super) struct ByName(Arc<Node>);

/// A node, in the order in which they are given a target.
#[derive(Debug, Clone)]
pub(super) struct InOrder(Arc<Node>);

/// Nodes by state, each in one of the lists or `updated`.
#[derive(Debug, Default)]
pub struct Census {
    /// The nodes' target.
    pub(super) target: Option<Pair>,
    /// The topology that they are told.
    topology: Topology,
    /// All of them.
    pub(super) nodes: Nodes,
    /// Without the target, and it may be given to them.
    pub(super) waiting: BTreeSet<InOrder>,
    /// Those of them that are out of service already.
    pub(super) waiting_unavailable: usize,
    /// Without the target, and out of service by themselves or by a person: hands off.
    pub(super) blocked: Nodes,
    /// Given the target, at work.
    pub(super) at_work: Nodes,
    /// Have the target since it was given to them, and are not Ready.
    pub(super) down: Nodes,
    /// Were given the target by this controller, whatever came of it.
    pub(super) stamped: usize,
    /// Perhaps given the target: the write was not answered.
    pub(super) unsettled: Nodes,
    /// Given the target, failing.
    pub(super) failing: Nodes,
    /// Have the target.
    pub(super) updated: usize,
    /// Have the target and take pods.
    pub(super) ready: usize,
    /// Are out of service, or may go so at any time.
    pub(super) unavailable: usize,
    /// Their drains wait for a pod that may not leave.
    pub(super) drain_blocked: Nodes,
    /// Report Degraded or Unreconcilable, whatever they were given.
    pub(super) degraded: Nodes,
    /// Use up capacity: unavailable, failing the target, or perhaps given it.
    pub(super) occupied: usize,
    /// Of the control plane.
    control_plane: usize,
    /// Configs of the nodes that do not have the target.
    pub(super) behind: BTreeMap<String, usize>,
    /// Have, or lack, the taint of nodes that wait for an update, unlike what the target says.
    pub(super) tainted: Nodes,
    pub(super) untainted: Nodes,
    /// Have the target, and a request to prefetch.
    pub(super) prefetched: Nodes,
    /// Have the annotation with the pool that they left at work.
    pub(super) marked: Nodes,
    /// Are to be told another topology.
    pub(super) astray: Nodes,
}

/// A census at a time, with what became of the last writes.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    census: &'a Census,
    /// Nodes at work that were given the target too long ago.
    pub(super) late: Vec<&'a Node>,
    /// Obstacles to writes, by node.
    pub(super) obstacles: BTreeMap<&'a str, Obstacle<'a>>,
}

/// List of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Unsettled,
    Waiting,
    Blocked,
    Failing,
    Updated,
    AtWork,
}

impl Census {
    /// Counts nodes.
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut census = Self::default();
        nodes.into_iter().for_each(|node| census.put(Arc::new(node.clone())));
        census
    }

    /// Counts a node, in place of an earlier version of it.
    pub fn put(&mut self, node: Arc<Node>) {
        let is_unsettled = self.unsettled.contains(&*node.name);
        self.remove(&node.name);
        self.count(&node, is_unsettled, true);
        self.nodes.insert(ByName(node));
    }

    /// Removes a node.
    pub fn remove(&mut self, name: &str) {
        if let Some(ByName(old)) = self.nodes.take(name) {
            self.count(&old, self.unsettled.contains(name), false);
        }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if a node of this name is counted.
    pub fn contains(&self, name: &str) -> bool {
        self.nodes.contains(name)
    }

    /// Returns true if there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns true if some nodes are of the control plane.
    pub fn is_control_plane(&self) -> bool {
        self.control_plane > 0
    }

    /// Returns true if a node is in the list of those that may be given the target.
    pub(super) fn is_waiting(&self, node: &Node) -> bool {
        let is_given = self.target.as_ref() == Some(&node.desired);
        list(node, is_given, self.unsettled.contains(&*node.name)) == List::Waiting
    }

    /// Counts for another target, and by the fates of the last writes. All nodes are counted anew only if the target changed.
    pub(super) fn refresh(&mut self, target: Option<Pair>, topology: &Topology, writes: &NodeWrites) {
        if self.target != target || self.topology != *topology {
            let nodes = std::mem::take(&mut self.nodes);
            *self = Self { target, topology: topology.clone(), ..Self::default() };
            for ByName(node) in nodes {
                self.put(node);
            }
        }
        let known = self.unsettled.iter().map(|node| node.name.clone());
        let names: BTreeSet<String> = known.chain(writes.troubled().map(str::to_owned)).collect();
        for name in names {
            let Some(ByName(node)) = self.nodes.get(&*name).cloned() else { continue };
            let obstacle = writes.obstacle(&node, self.target.as_ref());
            let is_unsettled = obstacle.is_some_and(|obstacle| obstacle.takes_place);
            let was_unsettled = self.unsettled.contains(&*name);
            if is_unsettled != was_unsettled {
                self.count(&node, was_unsettled, false);
                self.count(&node, is_unsettled, true);
            }
        }
    }

    /// Returns the census at a time.
    pub(super) fn tally<'a>(
        &'a self,
        input: &RolloutInput<'a>,
        node_timeout: Option<SignedDuration>,
    ) -> Tally<'a> {
        let is_late = |node: &&Node| {
            let passed = node.desired_since.map(|since| input.clock.passed(since, input.now));
            node_timeout.is_some_and(|timeout| passed.is_some_and(|passed| passed >= timeout))
        };
        let late = self.at_work.iter().map(|node| &**node).filter(is_late).collect();
        let obstacles = input.writes.troubled().filter_map(|name| {
            let node: &Node = self.nodes.get(name)?;
            Some((&*node.name, input.writes.obstacle(node, self.target.as_ref())?))
        });
        // They are named, and count for nothing.
        let unlabeled = input.pool.unlabeled.iter();
        let unlabeled = unlabeled.filter_map(|node| Some((&*node.name, input.writes.obstacle(node, None)?)));
        Tally { census: self, late, obstacles: obstacles.chain(unlabeled).collect() }
    }

    /// Adds a node to its lists and counts, or takes it from them.
    fn count(&mut self, node: &Arc<Node>, is_unsettled: bool, is_added: bool) {
        let is_given = self.target.as_ref() == Some(&node.desired);
        let list = list(node, is_given, is_unsettled);
        let is_unavailable = node.is_unavailable();
        let is_failing = is_given && node.is_failing();
        let is_stamped = is_given && node.desired_since.is_some();
        let is_updated = list == List::Updated;
        let counts = [
            (&mut self.control_plane, node.control_plane),
            (&mut self.unavailable, is_unavailable),
            (&mut self.stamped, is_stamped || is_unsettled),
            (&mut self.occupied, is_unavailable || is_failing || is_unsettled),
            (&mut self.updated, is_updated),
            (&mut self.ready, is_updated && node.is_schedulable()),
            (&mut self.waiting_unavailable, list == List::Waiting && is_unavailable),
        ];
        for (count, _) in counts.into_iter().filter(|(_, is_counted)| *is_counted) {
            *count = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
        let is_tainted = node.is_tainted();
        let lists = [
            (&mut self.unsettled, list == List::Unsettled),
            (&mut self.blocked, list == List::Blocked),
            (&mut self.failing, list == List::Failing),
            (&mut self.at_work, list == List::AtWork),
            (&mut self.down, is_updated && is_stamped && !node.ready),
            (&mut self.degraded, node.is_degraded()),
            (&mut self.drain_blocked, node.drain_blocked.is_some()),
            (&mut self.tainted, is_given && is_tainted),
            (&mut self.untainted, self.target.is_some() && !is_given && !is_tainted),
            (&mut self.prefetched, is_given && node.is_done() && node.prefetch_since.is_some()),
            (&mut self.marked, node.left.is_some()),
            (&mut self.astray, self.topology.change(node).is_some()),
        ];
        for (list, _) in lists.into_iter().filter(|(_, is_in_list)| *is_in_list) {
            if is_added {
                list.insert(ByName(Arc::clone(node)));
            } else {
                list.remove(&*node.name);
            }
        }
        if list == List::Waiting {
            let node = InOrder(Arc::clone(node));
            if is_added {
                self.waiting.insert(node)
            } else {
                self.waiting.remove(&node)
            };
        }
        if !is_updated {
            self.count_behind(node.current.config.as_deref().unwrap_or_default(), is_added);
        }
    }

    fn count_behind(&mut self, config: &str, is_added: bool) {
        match self.behind.get_mut(config) {
            Some(count) if is_added => *count = count.saturating_add(1),
            Some(count) if *count > 1 => *count = count.saturating_sub(1),
            Some(_) => drop(self.behind.remove(config)),
            None if is_added => drop(self.behind.insert(config.to_owned(), 1)),
            None => {}
        }
    }
}

fn list(node: &Node, is_given: bool, is_unsettled: bool) -> List {
    if is_unsettled {
        List::Unsettled
    } else if !is_given {
        // One that is at work or failing is out of service already: a new target costs nothing.
        if node.is_schedulable() || node.is_in_flight() { List::Waiting } else { List::Blocked }
    } else if node.is_failing() {
        List::Failing
    } else if node.is_done() {
        List::Updated
    } else {
        List::AtWork
    }
}

impl<'a> Tally<'a> {
    /// Returns the census that it is of.
    pub(super) fn census(&self) -> &'a Census {
        self.census
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

    /// Counts those of them that take a place, since they may have the target.
    pub(super) fn unsure(&self) -> usize {
        let obstacles = self.obstacles.values();
        obstacles.filter(|obstacle| obstacle.named.is_some() && obstacle.takes_place).count()
    }

    /// Returns the nodes that failed the target, or have not finished it in time.
    pub(super) fn failed(&self) -> impl Iterator<Item = &'a Node> {
        let census = self.census;
        census.failing.iter().map(|node| &**node).chain(self.late.iter().copied())
    }
}

impl Deref for Tally<'_> {
    type Target = Census;

    fn deref(&self) -> &Census {
        self.census
    }
}

/// Failed nodes first, then those at work: both are out of service already. Then by zone and age, as the operator does;
/// the controller's own node last.
fn order(one: &Node, other: &Node) -> Ordering {
    let class = |node: &Node| match (node.is_in_flight(), node.is_degraded()) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => 2,
    };
    class(one)
        .cmp(&class(other))
        .then_with(|| one.runs_controller.cmp(&other.runs_controller))
        .then_with(|| one.zone.is_none().cmp(&other.zone.is_none()))
        .then_with(|| one.zone.cmp(&other.zone))
        .then_with(|| one.created.cmp(&other.created))
        .then_with(|| one.name.cmp(&other.name))
}

/// Two orders of nodes, as keys of sets.
macro_rules! ordered {
    ($name:ident, $order:expr) => {
        impl Deref for $name {
            type Target = Node;

            fn deref(&self) -> &Node {
                &self.0
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                $order(&self.0, &other.0)
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other) == Ordering::Equal
            }
        }

        impl Eq for $name {}
    };
}

ordered!(ByName, |one: &Node, other: &Node| one.name.cmp(&other.name));
ordered!(InOrder, order);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}
