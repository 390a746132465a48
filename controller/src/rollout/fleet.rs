//! The nodes of all pools, kept from one decision to the next: a node that changes concerns its own pools, and no other ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::capacity::obstacle;
use super::course::MAX_NAMED;
use super::pools::{Conflict, Membership, SelectorError, Selectors};
use super::{Census, LeftNodes, Node, NodePatch};
use crate::api::MachineConfigPool;

/// All nodes of a cluster, by pool.
#[derive(Debug, Default)]
pub struct Fleet {
    /// The node that this controller runs on.
    own_node: Option<String>,
    selectors: Selectors,
    pools: BTreeMap<Arc<str>, PoolNodes>,
    nodes: BTreeMap<String, Home>,
    /// Nodes of the control plane.
    control_plane: usize,
    /// Those of them that are out of service.
    control_plane_out: usize,
    /// Current configs, each with the number of nodes that have it.
    configs: BTreeMap<String, usize>,
    /// Nodes that no pool takes before they have the labels of the one that they were provisioned for.
    unlabeled: BTreeSet<String>,
    /// Pools that are to be decided again.
    concerned: BTreeSet<Arc<str>>,
}

/// The nodes of a pool.
#[derive(Debug, Default)]
struct PoolNodes {
    census: Census,
    /// The nodes that another custom pool selects as well, with the pools.
    conflicts: BTreeMap<String, Arc<[String]>>,
    /// Nodes of the control plane among them all that are out of service.
    control_plane_out: usize,
    /// Nodes that are not its own and take a place of its `maxUnavailable`.
    held: BTreeSet<String>,
}

/// A node, and the pools that it concerns.
#[derive(Debug)]
struct Home {
    node: Arc<Node>,
    pool: Option<Arc<str>>,
    conflict: Option<Arc<[String]>>,
    /// The pool whose config it was given.
    works_for: Option<Arc<str>>,
    is_unlabeled: bool,
}

impl Fleet {
    /// Creates one without pools and nodes.
    pub fn new(own_node: Option<String>) -> Self {
        Self { own_node, ..Self::default() }
    }

    /// Begins anew with these pools. The caller adds all nodes again.
    pub fn begin<'a>(&mut self, pools: impl IntoIterator<Item = &'a MachineConfigPool>) {
        *self = Self { selectors: Selectors::new(pools), ..Self::new(self.own_node.take()) };
        self.pools = self.selectors.names().map(|name| (Arc::from(name), PoolNodes::default())).collect();
        self.concern_all();
    }

    /// Adds a node, or another version of it. `works_for` is the pool that the config was rendered for that it was given; an
    /// unlabeled one waits for the labels of its pool.
    pub fn put(&mut self, node: Arc<Node>, works_for: Option<&str>, is_unlabeled: bool) {
        let membership = if is_unlabeled { Membership::None } else { self.selectors.membership(&node) };
        let (pool, conflict): (Option<&str>, Option<Arc<[String]>>) = match membership {
            Membership::None => (None, None),
            Membership::Pool(pool) => (Some(pool), None),
            Membership::Conflict(pools) => (None, Some(pools.into_iter().map(str::to_owned).collect())),
        };
        let known = |name: Option<&str>| Some(Arc::clone(self.pools.get_key_value(name?)?.0));
        let new = Home { pool: known(pool), conflict, works_for: known(works_for), is_unlabeled, node };
        let before = self.control_plane_out;
        let old = self.take(&new.node.name);
        let is_same = old.as_ref().is_some_and(|old| {
            old.node.is_same(&new.node)
                && (&old.pool, &old.conflict, &old.works_for) == (&new.pool, &new.conflict, &new.works_for)
        });
        if old.as_ref().is_some_and(|old| old.pool != new.pool)
            && let Some(pool) = old.as_ref().and_then(|old| self.pools.get_mut(old.pool.as_deref()?))
        {
            pool.census.remove(&new.node.name);
        }
        self.count(&new, true);
        if let Some(pool) = new.pool.as_deref().and_then(|pool| self.pools.get_mut(pool)) {
            let is_own = self.own_node.as_ref() == Some(&new.node.name);
            let own = || Arc::new(Node { runs_controller: true, ..Node::clone(&new.node) });
            pool.census.put(if is_own { own() } else { Arc::clone(&new.node) });
        }
        if !is_same {
            if let Some(old) = &old {
                self.concern(old);
            }
            self.concern(&new);
        }
        self.concern_control_plane(before);
        self.nodes.insert(new.node.name.clone(), new);
    }

    /// Removes a node.
    pub fn remove(&mut self, name: &str) {
        let before = self.control_plane_out;
        let Some(old) = self.take(name) else { return };
        if let Some(pool) = old.pool.as_deref().and_then(|pool| self.pools.get_mut(pool)) {
            pool.census.remove(name);
        }
        self.concern(&old);
        self.concern_control_plane(before);
    }

    /// Takes a node from all counts but the census of its pool.
    fn take(&mut self, name: &str) -> Option<Home> {
        let old = self.nodes.remove(name)?;
        self.count(&old, false);
        Some(old)
    }

    fn count(&mut self, home: &Home, is_added: bool) {
        let change = |count: &mut usize| {
            *count = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
        };
        let (node, name) = (&home.node, &home.node.name);
        if let Some(config) = &node.current.config {
            match self.configs.get_mut(config) {
                Some(count) => change(count),
                None => drop(self.configs.insert(config.clone(), usize::from(is_added))),
            }
            if self.configs.get(config) == Some(&0) {
                self.configs.remove(config);
            }
        }
        if home.is_unlabeled && is_added {
            self.unlabeled.insert(name.clone());
        } else {
            self.unlabeled.remove(name);
        }
        if node.control_plane {
            change(&mut self.control_plane);
        }
        let is_control_plane_out = node.control_plane && node.is_unavailable();
        if is_control_plane_out {
            change(&mut self.control_plane_out);
        }
        let conflicts: &[String] = home.conflict.as_deref().unwrap_or_default();
        for pool in conflicts.iter().map(String::as_str).chain(home.pool.as_deref()) {
            let Some(pool) = self.pools.get_mut(pool) else { continue };
            if is_control_plane_out {
                change(&mut pool.control_plane_out);
            }
            match &home.conflict {
                Some(pools) if is_added => drop(pool.conflicts.insert(name.clone(), Arc::clone(pools))),
                Some(_) => drop(pool.conflicts.remove(name)),
                None => {}
            }
        }
        for pool in home.holding() {
            if let Some(pool) = self.pools.get_mut(pool) {
                if is_added {
                    pool.held.insert(name.clone());
                } else {
                    pool.held.remove(name);
                }
            }
        }
    }

    fn concern(&mut self, home: &Home) {
        let conflicts = home.conflict.iter().flat_map(|pools| pools.iter().map(String::as_str));
        let named = conflicts.chain(home.holding()).chain(home.pool.as_deref());
        let pools: Vec<Arc<str>> =
            named.filter_map(|name| Some(Arc::clone(self.pools.get_key_value(name)?.0))).collect();
        self.concerned.extend(pools);
    }

    /// Pools of the control plane share one limit.
    fn concern_control_plane(&mut self, before: usize) {
        if before != self.control_plane_out {
            let pools = self.pools.iter().filter(|(_, pool)| pool.census.is_control_plane());
            self.concerned.extend(pools.map(|(name, _)| Arc::clone(name)));
        }
    }

    /// Has a pool decided again.
    pub fn concern_pool(&mut self, name: &str) {
        self.concerned.extend(self.pools.get_key_value(name).map(|(name, _)| Arc::clone(name)));
    }

    /// Has all pools decided again.
    pub fn concern_all(&mut self) {
        self.concerned = self.pools.keys().cloned().collect();
    }

    /// Returns the pools that are to be decided again.
    pub fn take_concerned(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.concerned)
    }

    /// Returns the number of nodes of the control plane, whichever pool they are in.
    pub fn control_plane(&self) -> usize {
        self.control_plane
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the configs that nodes have now.
    pub fn configs(&self) -> impl Iterator<Item = &String> {
        self.configs.keys()
    }

    /// Returns the nodes that wait for the labels of their pool.
    pub fn unlabeled(&self) -> impl Iterator<Item = &String> {
        self.unlabeled.iter()
    }

    /// Returns the nodes of a pool, if there is such a pool.
    pub fn census(&mut self, pool: &str) -> Option<&mut Census> {
        Some(&mut self.pools.get_mut(pool)?.census)
    }

    /// Returns why a pool can't select nodes.
    pub fn error(&self, pool: &str) -> Option<&SelectorError> {
        self.selectors.error(pool)
    }

    /// Returns the first nodes that another custom pool selects as well.
    pub fn conflicts(&self, pool: &str) -> Vec<Conflict> {
        let conflicts = self.pools.get(pool).into_iter().flat_map(|pool| &pool.conflicts);
        let conflict =
            |(node, pools): (&String, &Arc<[String]>)| Conflict { node: node.clone(), pools: pools.to_vec() };
        conflicts.take(MAX_NAMED).map(conflict).collect()
    }

    /// Counts the nodes of the control plane that are out of service and not in this pool.
    pub fn unavailable_elsewhere(&self, pool: &str) -> usize {
        let own = self.pools.get(pool).map_or(0, |pool| pool.control_plane_out);
        self.control_plane_out.saturating_sub(own)
    }

    /// Adds to the patches of a pool which of its nodes were at work for another one. That one counts them until they are done.
    pub fn mark_left(&self, pool: &str, patches: &mut [NodePatch]) {
        for patch in patches.iter_mut().filter(|patch| patch.pair.is_some()) {
            let Some(home) = self.nodes.get(&patch.node) else { continue };
            let mut left: Vec<_> = home.node.left_pools().chain(home.works_for.as_deref()).collect();
            left.retain(|left| home.node.is_at_work() && *left != pool);
            // Whose place it takes longest stands first; one pool stands once.
            let mut seen = BTreeSet::new();
            left.retain(|left| seen.insert(*left));
            let left = (!left.is_empty()).then(|| left.join(","));
            patch.left = (left != home.node.left).then_some(left);
        }
    }

    /// Counts the nodes that are not a pool's own and take a place of its `maxUnavailable`.
    pub fn held_elsewhere(&self, pool: &str) -> usize {
        self.pools.get(pool).map_or(0, |pool| pool.held.len())
    }

    /// Returns those of them that left the pool while they were at work for it, and the ones that it claims itself.
    pub fn left(&self, pool: &str) -> LeftNodes {
        let held = self.pools.get(pool).into_iter().flat_map(|pool| &pool.held);
        let mut left = LeftNodes::default();
        for home in held.filter_map(|name| self.nodes.get(name)) {
            let (count, first) = if home.is_claimed_by(pool) {
                (&mut left.claimed, &mut left.first_claimed)
            } else {
                (&mut left.count, &mut left.first)
            };
            if first.len() < MAX_NAMED {
                first.push((home.node.name.clone(), home.now()));
            }
            *count = count.saturating_add(1);
        }
        left
    }
}

impl Home {
    /// Returns the pools of which it takes a place without being their own: a node out of service that a second custom pool claims,
    /// which no pool updates, and one that another pool has now while it is at work for this one. Until it is done, both pools count it:
    /// the target of the other pool names the pool that it left.
    fn holding(&self) -> impl Iterator<Item = &str> {
        let is_out = self.node.is_unavailable() || self.node.is_in_flight();
        let conflicts: &[String] = self.conflict.as_deref().unwrap_or_default();
        let works_for = self.works_for.as_deref().filter(|_| self.node.is_at_work());
        let works_for = works_for.filter(|pool| !conflicts.iter().any(|other| other == pool));
        let left = self.node.left_pools().filter(|_| self.node.is_at_work());
        let left =
            left.filter(move |pool| works_for != Some(pool) && !conflicts.iter().any(|other| other == pool));
        let all = conflicts.iter().map(String::as_str).chain(works_for).chain(left);
        all.filter(move |pool| is_out && self.pool.as_deref() != Some(*pool))
    }

    fn is_claimed_by(&self, pool: &str) -> bool {
        self.conflict.iter().any(|pools| pools.iter().any(|other| other == pool))
    }

    /// Returns its state and its pool, for people.
    fn now(&self) -> String {
        let state = match (self.node.is_degraded(), self.node.is_at_work() || self.node.is_in_flight()) {
            (true, _) => "failing",
            (false, true) => "at work",
            (false, false) => obstacle(&self.node),
        };
        match (&self.pool, &self.conflict) {
            (Some(pool), _) => format!("{state}, in pool {pool}"),
            (None, Some(pools)) => format!("{state}, in pools {}", pools.join(" and ")),
            (None, None) => format!("{state}, in no pool"),
        }
    }
}
