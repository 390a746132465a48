//! The topology of the cluster, as the agents are told it: on a cluster of one node pods have no other node to go to, so nothing is
//! drained.
//!
//! # Decisions
//!
//! - The cluster's own word goes to every node, as from the Machine Config Operator, which reads no other field than
//!   `controlPlaneTopology`: beside a single node of the control plane it drains no worker either.
//! - Without that word the number of control plane nodes counts. Pods of a single one have no other to go to. Its workers are drained:
//!   their pods do, and their budgets hold. A cluster that labels no control plane has one node or several.

use super::node::Node;

/// Its value for a cluster of one node.
const SINGLE_REPLICA: &str = "SingleReplica";

/// Source of the topology.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Topology {
    /// It is not known: nodes keep what they were told.
    #[default]
    Unknown,
    /// The cluster's own word, from the `ControllerConfig`.
    Named(String),
    /// The cluster says nothing, and has one node.
    OneNode,
    /// The cluster says nothing, and has several nodes, one of them of the control plane.
    OneControlPlane,
    /// The cluster says nothing, and has several.
    SeveralNodes,
}

impl Topology {
    /// Takes the cluster's own word, else the number of nodes, and of those of the control plane among them.
    pub fn new(named: Option<&str>, nodes: usize, control_plane: usize) -> Self {
        match (named.filter(|named| !named.is_empty()), nodes, control_plane) {
            (Some(named), ..) => Self::Named(named.to_owned()),
            (None, 0, _) => Self::Unknown,
            (None, 1, _) => Self::OneNode,
            (None, _, 1) => Self::OneControlPlane,
            (None, ..) => Self::SeveralNodes,
        }
    }

    /// Returns the change of a node's annotation; `Some(None)` removes it.
    #[expect(clippy::option_option, reason = "as the field of the patch")]
    pub(super) fn change(&self, node: &Node) -> Option<Option<String>> {
        let old = node.topology.as_deref();
        let new = match self {
            Self::Unknown => return None,
            Self::Named(named) => Some(named.as_str()),
            Self::OneNode => Some(SINGLE_REPLICA),
            Self::OneControlPlane if node.control_plane => Some(SINGLE_REPLICA),
            // Another word is somebody else's.
            Self::OneControlPlane | Self::SeveralNodes => old.filter(|old| *old != SINGLE_REPLICA),
        };
        (old != new).then(|| new.map(str::to_owned))
    }
}
