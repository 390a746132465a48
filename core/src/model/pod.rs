//! Rule for pods that a drain leaves on their node, the same for the agent's own drain and the drain controller's.

use std::collections::BTreeMap;

/// Annotation of a pod that the kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Returns true if a drain leaves the pod alone: the kubelet's own by file, and one that its `DaemonSet` would put back.
/// `controllers` are the kinds of those owners that control it.
pub fn stays_on_node<'a>(
    annotations: Option<&BTreeMap<String, String>>,
    mut controllers: impl Iterator<Item = &'a str>,
) -> bool {
    annotations.is_some_and(|all| all.contains_key(MIRROR)) || controllers.any(|kind| kind == "DaemonSet")
}
