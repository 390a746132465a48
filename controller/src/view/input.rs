//! Observed objects.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::build::ObservedBuild;
use super::step::Progress;
use crate::drain::NodeView;
use crate::rollout::{Node, Pool, Selectors};

/// Observed objects.
#[derive(Debug)]
pub struct ViewInput<'a> {
    /// The pools by name; one that can't be read with the cause.
    pub pools: BTreeMap<&'a str, Result<Pool, String>>,
    /// Their selectors.
    pub selectors: Selectors,
    /// All nodes.
    pub nodes: Vec<ObservedNode<'a>>,
    /// All builds.
    pub builds: Vec<ObservedBuild>,
    /// Kinds that can't be read now: shown as last read.
    pub stale: Vec<String>,
    /// The most nodes that are shown.
    pub limit: usize,
    /// The wall clock.
    pub now: Timestamp,
}

/// A node as it was read.
#[derive(Debug, Clone, Copy)]
pub struct ObservedNode<'a> {
    /// As the rollout reads it.
    pub node: &'a Node,
    /// Its drain.
    pub drain: NodeView<'a>,
    /// Its MachineConfigNode.
    pub progress: Option<&'a Progress>,
}
