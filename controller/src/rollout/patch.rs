//! Changes of a node: one merge patch with everything.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value, json};

use super::node::{
    DESIRED_SINCE, LABELS_APPLIED, LEFT_POOL, Node, PREFETCH_SINCE, Pair, TOPOLOGY, UPDATE_IN_PROGRESS,
};
use crate::model::annotations::{DESIRED_CONFIG, DESIRED_IMAGE, PREFETCH_IMAGE, PREFETCH_STATUS};

/// Changes of one node. Both halves of the pair are in one patch, or none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodePatch {
    /// The node.
    pub node: String,
    /// Its uid: another node of that name is refused.
    pub uid: String,
    /// The version that the decision was made by: the API server refuses the patch when the node changed since.
    pub resource_version: String,
    /// The target.
    pub pair: Option<Pair>,
    /// When the target was given.
    pub since: Option<Since>,
    /// The pool that the node was at work for until now; `Some(None)` takes it back.
    pub left: Option<Option<String>>,
    /// The image to prefetch; `Some(None)` takes the request back.
    pub prefetch: Option<Option<Prefetch>>,
    /// The taints, all of them.
    pub taints: Option<Vec<Taint>>,
    /// The topology that its agent is told; `Some(None)` takes it back.
    pub topology: Option<Option<String>>,
    /// Labels of the custom pool that it was provisioned for.
    pub labels: Option<BTreeMap<String, String>>,
}

/// When a node was given a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    /// The config of the target.
    pub config: String,
    /// The time.
    pub at: Timestamp,
}

impl Since {
    pub(super) fn new(target: &Pair, at: Timestamp) -> Self {
        Self { config: target.config.clone().unwrap_or_default(), at }
    }
}

/// A request to prefetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefetch {
    /// The image.
    pub image: String,
    /// When it is requested.
    pub since: Timestamp,
}

impl NodePatch {
    /// Creates a patch that changes nothing.
    pub(super) fn new(node: &Node) -> Self {
        Self {
            node: node.name.clone(),
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
            ..Self::default()
        }
    }

    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let Self { pair, since, left, prefetch, taints, topology, labels, .. } = self;
        pair.is_none()
            && since.is_none()
            && left.is_none()
            && prefetch.is_none()
            && taints.is_none()
            && topology.is_none()
            && labels.is_none()
    }

    /// Returns what it writes beside a target, and its name for people. How often a target is given is counted in `writes.rs`.
    /// Another target is a reason of ours to write the same again.
    pub fn content(&self, target: Option<&Pair>) -> Option<(String, String)> {
        let value = match self {
            Self { pair: Some(_), .. } => return None,
            Self { taints: Some(taints), topology: None, .. } => ("taints", format!("{target:?} {taints:?}")),
            Self { topology: Some(topology), .. } => (TOPOLOGY, format!("{topology:?}")),
            Self { prefetch: Some(prefetch), .. } => {
                let image = prefetch.as_ref().map(|prefetch| &prefetch.image);
                (PREFETCH_IMAGE, format!("{target:?} {image:?}"))
            }
            Self { left: Some(left), .. } => (LEFT_POOL, format!("{target:?} {left:?}")),
            _ => return None,
        };
        Some((self.field(value.0), value.1))
    }

    /// Returns the fields that it changes on the way, beside the one that [`NodePatch::content`] names.
    pub fn changed_beside(&self) -> Vec<String> {
        let named = self.content(None).map(|(field, _)| field);
        let all = [
            self.taints.as_ref().map(|_| "taints"),
            self.topology.as_ref().map(|_| TOPOLOGY),
            self.prefetch.as_ref().map(|_| PREFETCH_IMAGE),
            self.left.as_ref().map(|_| LEFT_POOL),
        ];
        let all = all.into_iter().flatten().map(|field| self.field(field));
        all.filter(|field| named.as_ref() != Some(field)).collect()
    }

    fn field(&self, field: &str) -> String {
        format!("{field} of Node {}", self.node)
    }

    /// Adds or removes the taint of nodes that wait for an update.
    pub(super) fn taint(&mut self, node: &Node, tainted: bool) {
        if tainted == node.is_tainted() {
            return;
        }
        let mut taints = node.taints.clone();
        if tainted {
            let taint = Taint {
                key: UPDATE_IN_PROGRESS.to_owned(),
                effect: "PreferNoSchedule".to_owned(),
                ..Taint::default()
            };
            taints.push(taint);
        } else {
            taints.retain(|taint| !(taint.key == UPDATE_IN_PROGRESS && taint.effect == "PreferNoSchedule"));
        }
        self.taints = Some(taints);
    }

    /// Returns the JSON merge patch (`application/merge-patch+json`), with its preconditions.
    pub fn body(&self) -> Value {
        let mut annotations = Map::new();
        if let Some(pair) = &self.pair {
            annotations.insert(DESIRED_CONFIG.to_owned(), json!(pair.config));
            let [image, aliases @ ..] = DESIRED_IMAGE;
            annotations.insert(image.to_owned(), json!(pair.image));
            // A different alias would degrade the node.
            annotations.extend(aliases.map(|alias| (alias.to_owned(), Value::Null)));
        }
        if let Some(since) = &self.since {
            let stamp = format!("{} {}", since.config, text(since.at));
            annotations.insert(DESIRED_SINCE.to_owned(), json!(stamp));
        }
        if let Some(left) = &self.left {
            annotations.insert(LEFT_POOL.to_owned(), json!(left));
        }
        if let Some(prefetch) = &self.prefetch {
            let image = prefetch.as_ref().map(|prefetch| &prefetch.image);
            let since = prefetch.as_ref().map(|prefetch| text(prefetch.since));
            annotations.insert(PREFETCH_IMAGE.to_owned(), json!(image));
            annotations.insert(PREFETCH_SINCE.to_owned(), json!(since));
            if image.is_none() {
                annotations.insert(PREFETCH_STATUS.to_owned(), Value::Null);
            }
        }
        if let Some(topology) = &self.topology {
            annotations.insert(TOPOLOGY.to_owned(), json!(topology));
        }
        let mut metadata = json!({ "uid": self.uid, "resourceVersion": self.resource_version });
        let mut add = |field: &str, value: Value| {
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert(field.to_owned(), value);
            }
        };
        if let Some(labels) = &self.labels {
            annotations.insert(LABELS_APPLIED.to_owned(), json!(""));
            add("labels", json!(labels));
        }
        if !annotations.is_empty() {
            add("annotations", Value::Object(annotations));
        }
        match &self.taints {
            Some(taints) => json!({ "metadata": metadata, "spec": { "taints": taints } }),
            None => json!({ "metadata": metadata }),
        }
    }

    /// Changes the reduced node as the patch changes the object. The caller does so after each write, unless it reads the
    /// answer of the API server: the next decision must know the writes of the last one.
    pub fn apply(&self, node: &mut Node) {
        if let Some(pair) = &self.pair {
            node.desired = pair.clone();
        }
        if let Some(since) = &self.since {
            node.desired_since = Some(since.at);
        }
        if let Some(left) = &self.left {
            node.left.clone_from(left);
        }
        if let Some(prefetch) = &self.prefetch {
            let image = prefetch.as_ref().map(|prefetch| prefetch.image.clone());
            if image.is_none() || image != node.prefetch_image {
                node.prefetch = None;
            }
            node.prefetch_image = image;
            node.prefetch_since = prefetch.as_ref().map(|prefetch| prefetch.since);
        }
        if let Some(taints) = &self.taints {
            node.taints.clone_from(taints);
        }
        if let Some(topology) = &self.topology {
            node.topology.clone_from(topology);
        }
        if let Some(labels) = &self.labels {
            node.labels.extend(labels.clone());
            node.labels_applied = true;
        }
    }
}

/// Returns the time as Kubernetes writes it: to the second.
pub(super) fn text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
