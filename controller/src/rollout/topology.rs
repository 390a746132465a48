//! The topology of the cluster, as the agents are told it: on a cluster of one node pods have no other node to go to, so nothing is
//! drained.

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
    /// The cluster says nothing, and has several.
    SeveralNodes,
}

impl Topology {
    /// Takes the cluster's own word, else the number of nodes.
    pub fn new(named: Option<&str>, nodes: usize) -> Self {
        match (named.filter(|named| !named.is_empty()), nodes) {
            (Some(named), _) => Self::Named(named.to_owned()),
            (None, 0) => Self::Unknown,
            (None, 1) => Self::OneNode,
            (None, _) => Self::SeveralNodes,
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
            // Another word is somebody else's.
            Self::SeveralNodes => old.filter(|old| *old != SINGLE_REPLICA),
        };
        (old != new).then(|| new.map(str::to_owned))
    }
}
