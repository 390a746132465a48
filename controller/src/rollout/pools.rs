//! Which pool a node belongs to.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

use super::node::Node;
use crate::api::MachineConfigPool;

/// The pool of control plane nodes.
pub const MASTER: &str = "master";
/// The pool of all other nodes.
pub const WORKER: &str = "worker";

/// The node selectors of all pools, read once.
#[derive(Debug, Default)]
pub struct Selectors {
    pools: Vec<(String, Result<Selector, SelectorError>)>,
}

/// Errors of a pool's node selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It would select all of them.
    #[error("nodeSelector is empty, so it selects no node; name the labels of the pool's nodes")]
    Empty,
    /// It can't be read.
    #[error("nodeSelector: {0}; correct it")]
    Invalid(String),
}

/// Pool of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership<'a> {
    /// No pool selects it, or it runs Windows.
    None,
    /// This pool.
    Pool(&'a str),
    /// Several custom pools: none of them updates it.
    Conflict(Vec<&'a str>),
}

impl Selectors {
    /// Reads the selectors.
    pub fn new<'a>(pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> Self {
        let read = |pool: &MachineConfigPool| {
            (pool.metadata.name.clone().unwrap_or_default(), selector(pool.spec.node_selector.clone()))
        };
        let mut pools: Vec<_> = pools.into_iter().map(read).collect();
        pools.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self { pools }
    }

    /// Returns why a pool can't select nodes.
    pub fn error(&self, pool: &str) -> Option<&SelectorError> {
        self.pools.iter().find(|(name, _)| name == pool)?.1.as_ref().err()
    }

    /// Returns the names of all pools.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().map(|(name, _)| &**name)
    }

    /// Returns where a node belongs: a custom pool beats `worker`, and `master` beats both.
    pub fn membership(&self, node: &Node) -> Membership<'_> {
        if node.windows {
            return Membership::None;
        }
        let selects = |selector: &Result<Selector, SelectorError>| {
            selector.as_ref().is_ok_and(|selector| selector.matches(&node.labels))
        };
        let selecting = self.pools.iter().filter(|(_, selector)| selects(selector));
        let names: Vec<&str> = selecting.map(|(name, _)| &**name).collect();
        if names.contains(&MASTER) {
            return Membership::Pool(MASTER);
        }
        let custom: Vec<&str> = names.iter().copied().filter(|name| *name != WORKER).collect();
        match (&*custom, &*names) {
            ([pool], _) | ([], [pool]) => Membership::Pool(pool),
            ([], _) => Membership::None,
            _ => Membership::Conflict(custom),
        }
    }
}

/// The nodes of each pool. All selectors are evaluated once for each node, however many pools there are.
#[derive(Debug, Default)]
pub struct Members {
    selectors: Selectors,
    pools: BTreeMap<String, PoolMembers>,
}

/// The nodes of one pool.
#[derive(Debug, Default)]
pub struct PoolMembers {
    /// Names of the nodes that belong to it.
    pub nodes: Vec<String>,
    /// The nodes that another custom pool selects as well.
    pub conflicts: Vec<Conflict>,
}

impl Members {
    /// Finds the pool of each node.
    pub fn new<'a>(
        pools: impl IntoIterator<Item = &'a MachineConfigPool>,
        nodes: impl IntoIterator<Item = &'a Node>,
    ) -> Self {
        let selectors = Selectors::new(pools);
        let mut members: BTreeMap<String, PoolMembers> =
            selectors.pools.iter().map(|(name, _)| (name.clone(), PoolMembers::default())).collect();
        for node in nodes {
            match selectors.membership(node) {
                Membership::None => {}
                Membership::Pool(pool) => {
                    members.entry(pool.to_owned()).or_default().nodes.push(node.name.clone());
                }
                Membership::Conflict(pools) => {
                    let names: Vec<String> = pools.iter().map(|pool| (*pool).to_owned()).collect();
                    for pool in pools {
                        let conflict = Conflict { node: node.name.clone(), pools: names.clone() };
                        members.entry(pool.to_owned()).or_default().conflicts.push(conflict);
                    }
                }
            }
        }
        Self { selectors, pools: members }
    }

    /// Returns the nodes of a pool, if there is such a pool.
    pub fn of(&self, pool: &str) -> Option<&PoolMembers> {
        self.pools.get(pool)
    }

    /// Returns why a pool can't select nodes.
    pub fn error(&self, pool: &str) -> Option<&SelectorError> {
        self.selectors.error(pool)
    }
}

fn selector(selector: Option<LabelSelector>) -> Result<Selector, SelectorError> {
    let selector = selector.unwrap_or_default();
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        return Err(SelectorError::Empty);
    }
    Selector::try_from(selector).map_err(|error| SelectorError::Invalid(error.to_string()))
}

/// A node that several custom pools select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The node.
    pub node: String,
    /// The pools.
    pub pools: Vec<String>,
}

impl Conflict {
    /// Returns what is wrong, with the next step.
    pub(super) fn text(&self) -> String {
        format!(
            "node {} belongs to the custom pools {}, so none of them updates it; remove the label of all but one",
            self.node,
            self.pools.join(" and ")
        )
    }
}
