//! Nodes that were provisioned for a custom pool: they came with its config, and get its labels, once.
//!
//! As the Machine Config Operator (`applyCustomPoolLabels` of `pkg/controller/node`), but at once, and only while the node still has
//! its first config: a node that a person moved to another pool later is not moved back.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::node::Node;
use super::patch::NodePatch;
use super::pools::{MASTER, WORKER};
use crate::api::MachineConfigPool;

/// Returns the config that decides a node's pool, as long as the node does not have the pool's labels yet.
pub fn first_config(node: &Node) -> Option<&str> {
    let first = node.first_pivot.as_deref().filter(|_| !node.labels_applied && !node.windows)?;
    (node.current.config.as_deref().is_none_or(|current| current == first)).then_some(first)
}

/// Returns the patch with the labels of the pool that a node's first config was rendered for. None for a pool that is not custom or
/// whose selector names no label.
pub fn label_patch(node: &Node, pool: &MachineConfigPool) -> Option<NodePatch> {
    first_config(node)?;
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if [MASTER, WORKER].contains(&name) || pool.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let labels = pool.spec.node_selector.as_ref().map(labels).filter(|labels| !labels.is_empty())?;
    Some(NodePatch { labels: Some(labels), ..NodePatch::new(node) })
}

/// Returns the labels that a selector asks for without a choice.
fn labels(selector: &LabelSelector) -> BTreeMap<String, String> {
    let mut labels = selector.match_labels.clone().unwrap_or_default();
    for one in selector.match_expressions.iter().flatten() {
        let value = match (one.operator.as_str(), one.values.as_deref()) {
            ("In", Some([value])) => value.clone(),
            ("Exists", _) => String::new(),
            _ => continue,
        };
        labels.entry(one.key.clone()).or_insert(value);
    }
    labels
}
