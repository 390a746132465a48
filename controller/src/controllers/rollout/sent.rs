//! Writes that are not answered yet.

use std::sync::Arc;

use crate::api::MachineConfigPool;
use crate::controllers::client::RequestError;
use crate::controllers::events::About;
use crate::rollout::{Node, NodePatch, Pair};

/// A write to a node, with what it was decided for.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) patch: NodePatch,
    pub(super) pool: MachineConfigPool,
    pub(super) purpose: Purpose,
    pub(super) written: Result<bool, RequestError>,
}

/// Purpose of a write to a node.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The target of its pool, and all that belongs to it.
    Rollout(Option<Pair>),
    /// The labels of the pool that it was provisioned for.
    Labels(Arc<Node>),
}

/// A write of a status that is not answered yet.
#[derive(Debug)]
pub(super) struct StatusFor {
    pub(super) about: About,
    /// The pool that is decided again.
    pub(super) pool: String,
    /// The version that it was written onto.
    pub(super) version: Option<String>,
    /// The content of the status.
    pub(super) status: String,
}
