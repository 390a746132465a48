//! The Node, as much of it as the agent reads: its metadata.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::response::reason::EXPIRED;
use kube::core::{ApiResource, NotUsed, Object, ObjectMeta, PartialObjectMeta, Status, WatchEvent};
use serde::{Deserialize, Serialize};

use super::error::{Details, KubeError};
use crate::model::annotations::{DRAIN_BLOCKED, PINNED_IMAGE_SETS, PREFETCH_IMAGE, PREFETCH_STATUS};

/// The prefix of the annotations that the agent reads or writes, but for its own.
pub(super) const PREFIX: &str = "machineconfiguration.openshift.io/";

/// The part of the Node that is read: from one version of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeView {
    /// Its name.
    pub(super) name: String,
    /// Its uid: another one is another Node.
    pub(super) uid: String,
    /// Those annotations that are the agent's or its controllers'. A kubelet's heartbeat changes none of them.
    pub(super) annotations: BTreeMap<String, String>,
    /// Its labels.
    pub(super) labels: BTreeMap<String, String>,
    /// It is being deleted.
    pub(super) deleting: bool,
    /// Its version.
    pub(super) resource_version: String,
}

/// The part of the Node that is watched and answered.
pub(super) type NodeMetadata = PartialObjectMeta<Node>;

/// A Node with the read part of its spec.
pub(super) type CordonedNode = Object<Schedulable, NotUsed>;

/// Set if a Node is cordoned.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Schedulable {
    /// It takes none.
    #[serde(default)]
    pub(super) unschedulable: bool,
}

/// Returns the API of Nodes.
pub(super) fn nodes(client: kube::Client) -> Api<CordonedNode> {
    Api::all_with(client, &ApiResource::erase::<Node>(&()))
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeEvent {
    /// The Node as it is now.
    Now(NodeView),
    /// It was deleted; the version at which.
    Gone(String),
    /// Nothing happened up to this version.
    Bookmark(String),
    /// The watch ends: its beginning is too old by now.
    Expired,
    /// The watch ends.
    Failed(KubeError),
}

impl From<ObjectMeta> for NodeView {
    fn from(metadata: ObjectMeta) -> Self {
        let mut annotations = metadata.annotations.unwrap_or_default();
        let own = [PREFETCH_IMAGE, PREFETCH_STATUS, PINNED_IMAGE_SETS, DRAIN_BLOCKED];
        annotations.retain(|key, _| key.starts_with(PREFIX) || own.contains(&key.as_str()));
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            annotations,
            labels: metadata.labels.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            resource_version: metadata.resource_version.unwrap_or_default(),
        }
    }
}

/// The labels of nodes of the control plane.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

impl NodeView {
    /// Returns true if the node is of the control plane.
    pub(super) fn is_control_plane(&self) -> bool {
        CONTROL_PLANE.iter().any(|label| self.labels.contains_key(*label))
    }

    /// Reads one Node.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn parse(bytes: &[u8], object: &str) -> Result<Self, KubeError> {
        let read: NodeMetadata = serde_json::from_slice(bytes).map_err(|error| unreadable(object, &error))?;
        Ok(read.metadata.into())
    }

    /// Returns true if this is an older version than another one of the same object.
    pub(super) fn is_older(&self, other: &Self) -> bool {
        let number = |view: &Self| view.resource_version.parse::<u64>().ok();
        match (number(self), number(other)) {
            (Some(own), Some(other)) => own < other,
            (None, _) | (_, None) => false,
        }
    }
}

impl NodeEvent {
    /// Reads one event of a watch.
    pub(super) fn new(event: WatchEvent<NodeMetadata>, object: &str) -> Self {
        match event {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => Self::Now(node.metadata.into()),
            WatchEvent::Deleted(node) => Self::Gone(node.metadata.resource_version.unwrap_or_default()),
            WatchEvent::Bookmark(bookmark) => Self::Bookmark(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => broken(object, *status).map_or(Self::Expired, Self::Failed),
        }
    }
}

/// Returns why the API server ends a watch; `None` if it only began too long ago.
pub(super) fn broken(object: &str, status: Status) -> Option<KubeError> {
    let expired = status.code == 410 || status.reason == EXPIRED;
    let Status { code: status, reason, message, .. } = status;
    (!expired).then(|| KubeError::Refused {
        object: object.to_owned(),
        status,
        reason,
        message,
        details: Details::default(),
    })
}

/// Makes the error of an answer that is something else.
pub(super) fn unreadable(object: &str, error: &serde_json::Error) -> KubeError {
    // Without the parser's quotation: the position is enough, and an object may hold secrets.
    let cause =
        format!("the answer is not the expected object (line {}, column {})", error.line(), error.column());
    KubeError::Invalid { object: object.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;

    use super::*;

    fn event(kind: &str, object: &str) -> NodeEvent {
        let line = format!(r#"{{"type":"{kind}","object":{object}}}"#);
        NodeEvent::new(serde_json::from_str(&line).unwrap(), "Node a")
    }

    /// ANN-001: only the agent's and the controllers' annotations are read.
    #[test]
    fn reads_lines_of_watch() {
        let object = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7","annotations":
            {"machineconfiguration.openshift.io/state":"Done","node.alpha/ttl":"0"},"labels":{"x":"y"}}}"#;
        let NodeEvent::Now(view) = event("MODIFIED", object) else { panic!("no view") };
        assert_eq!(view.annotations.len(), 1);
        assert_eq!(view.labels.len(), 1);
        assert!(!view.is_control_plane());
        let master = r#"{"metadata":{"name":"a","labels":{"node-role.kubernetes.io/master":""}}}"#;
        assert!(NodeView::parse(master.as_bytes(), "Node a").unwrap().is_control_plane());
        assert!(!view.deleting);
        assert_eq!(event("DELETED", object), NodeEvent::Gone("7".into()));
        let bookmark = r#"{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"9","creationTimestamp":null}}"#;
        assert_eq!(event("BOOKMARK", bookmark), NodeEvent::Bookmark("9".into()));
        assert_eq!(event("ERROR", r#"{"code":410,"reason":"Expired"}"#), NodeEvent::Expired);
        assert!(matches!(event("ERROR", r#"{"code":500,"message":"x"}"#), NodeEvent::Failed(_)));
    }

    #[test]
    fn versions_compare_by_number() {
        let at = |version: &str| {
            let text = format!(r#"{{"metadata":{{"name":"a","resourceVersion":"{version}"}}}}"#);
            NodeView::parse(text.as_bytes(), "Node a").unwrap()
        };
        assert!(at("9").is_older(&at("10")));
        assert!(!at("10").is_older(&at("9")));
        assert!(!at("x").is_older(&at("9")));
    }

    #[test]
    fn list_may_be_empty() {
        for items in ["[]", "null"] {
            let list = format!(r#"{{"metadata":{{"resourceVersion":"3"}},"items":{items}}}"#);
            let list: ObjectList<NodeMetadata> = serde_json::from_str(&list).unwrap();
            assert!(list.items.is_empty());
        }
    }
}
