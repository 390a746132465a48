//! The pods of a drain, and the state of each. Pure.

use std::collections::BTreeMap;

use kube::core::{ObjectMeta, PartialObjectMeta, WatchEvent};
use tokio::time::Instant;

use crate::model::pod::stays_on_node;

/// The part of a pod that is read.
pub(super) type PodMetadata = PartialObjectMeta<k8s_openapi::api::core::v1::Pod>;

fn stays(pod: &ObjectMeta) -> bool {
    let owners = pod.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    stays_on_node(pod.annotations.as_ref(), owners.map(|owner| owner.kind.as_str()))
}

/// State of a pod's eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvictionState {
    /// Its eviction was not requested yet.
    There,
    /// It is on its way.
    Leaving,
    /// It may not leave.
    Refused { budget: bool, message: String, again: Instant },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) state: EvictionState,
}

/// Meaning of a watch event for the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Changed,
}

/// The pods that are to leave, by uid.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pub(super) left: BTreeMap<String, Pod>,
}

impl Pods {
    /// Takes a new list; the state of the pods in it is kept.
    pub(super) fn replace(&mut self, list: impl Iterator<Item = ObjectMeta>) {
        let mut old = std::mem::take(&mut self.left);
        for metadata in list.filter(|metadata| !stays(metadata)) {
            let uid = metadata.uid.as_deref().unwrap_or_default();
            let state = match old.remove(uid).map(|pod| pod.state) {
                _ if metadata.deletion_timestamp.is_some() => EvictionState::Leaving,
                Some(refused @ EvictionState::Refused { .. }) => refused,
                Some(EvictionState::There | EvictionState::Leaving) | None => EvictionState::There,
            };
            self.put(metadata, state);
        }
    }

    pub(super) fn put(&mut self, metadata: ObjectMeta, state: EvictionState) {
        let ObjectMeta { name, namespace, uid, .. } = metadata;
        let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
        let uid = uid.unwrap_or_default();
        self.left.insert(uid.clone(), Pod { namespace, name, uid, state });
    }

    /// Takes an event of the watch; `None` when it ends the watch.
    pub(super) fn see(&mut self, event: WatchEvent<PodMetadata>) -> Option<Change> {
        let before = self.reported().map(|pod| pod.uid.clone());
        let mut came = false;
        match event {
            WatchEvent::Deleted(pod) => drop(self.left.remove(&pod.metadata.uid.unwrap_or_default())),
            WatchEvent::Added(PodMetadata { metadata, .. })
            | WatchEvent::Modified(PodMetadata { metadata, .. })
                if !stays(&metadata) =>
            {
                if metadata.deletion_timestamp.is_some() {
                    self.put(metadata, EvictionState::Leaving);
                } else if !self.left.contains_key(metadata.uid.as_deref().unwrap_or_default()) {
                    came = true;
                    self.put(metadata, EvictionState::There);
                }
            }
            WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return None,
        }
        let same = !came && self.reported().map(|pod| pod.uid.clone()) == before;
        Some(if same { Change::None } else { Change::Changed })
    }

    pub(super) fn stands(&mut self, uid: &str, state: Option<EvictionState>) {
        match (self.left.get_mut(uid), state) {
            (Some(pod), Some(state)) => pod.state = state,
            (Some(_), None) => drop(self.left.remove(uid)),
            (None, _) => {}
        }
    }

    pub(super) fn to_ask(&self, now: Instant) -> Vec<Pod> {
        let due = |pod: &&Pod| match &pod.state {
            EvictionState::There => true,
            EvictionState::Leaving => false,
            EvictionState::Refused { again, .. } => *again <= now,
        };
        self.left.values().filter(due).cloned().collect()
    }

    /// The time of the next refused pod's next request.
    pub(super) fn due(&self) -> Option<Instant> {
        let again = |pod: &Pod| match &pod.state {
            EvictionState::Refused { again, .. } => Some(*again),
            EvictionState::There | EvictionState::Leaving => None,
        };
        self.left.values().filter_map(again).min()
    }

    /// The pod that is named: one that may not leave before one that is about to.
    pub(super) fn reported(&self) -> Option<&Pod> {
        let rank = |pod: &&Pod| {
            let moving = !matches!(pod.state, EvictionState::Refused { .. });
            (moving, pod.namespace.clone(), pod.name.clone(), pod.uid.clone())
        };
        self.left.values().min_by_key(rank)
    }

    pub(super) fn why(&self) -> String {
        let Some(pod) = self.reported() else { return "the node's pods are leaving".to_owned() };
        let name = format!("pod {}/{}", pod.namespace, pod.name);
        match &pod.state {
            EvictionState::There | EvictionState::Leaving => format!("{name} is leaving"),
            EvictionState::Refused { budget: true, message, .. } => {
                format!("{name} is kept by its PodDisruptionBudget: {message}")
            }
            EvictionState::Refused { budget: false, message, .. } => {
                format!("{name} can't be evicted: {message}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RETRY;
    use super::*;

    fn metadata(name: &str, more: &str) -> ObjectMeta {
        serde_json::from_str(&format!(r#"{{"name":"{name}","namespace":"shop","uid":"u-{name}"{more}}}"#))
            .unwrap()
    }

    fn line(kind: &str, name: &str, more: &str) -> WatchEvent<PodMetadata> {
        let object = serde_json::json!({ "metadata": metadata(name, more) });
        serde_json::from_value(serde_json::json!({ "type": kind, "object": object })).unwrap()
    }

    #[test]
    fn daemon_and_mirror_pods_stay() {
        let table = [
            ("", false),
            (r#","annotations":{"kubernetes.io/config.mirror":"x"}"#, true),
            (r#","annotations":{"a":"b"}"#, false),
            (r#","ownerReferences":[{"kind":"DaemonSet","controller":true}]"#, true),
            (r#","ownerReferences":[{"kind":"DaemonSet"}]"#, false),
            (r#","ownerReferences":[{"kind":"ReplicaSet","controller":true}]"#, false),
        ];
        for (more, desired) in table {
            assert_eq!(stays(&metadata("a", more)), desired, "{more}");
        }
    }

    /// The pod that is named is the one in the way; others come and go without a word.
    #[test]
    fn only_blocking_pod_is_named() {
        let mut pods = Pods::default();
        pods.replace(["a", "b", "c"].into_iter().map(|name| metadata(name, "")));
        let later = Instant::now() + RETRY;
        let refused = EvictionState::Refused { budget: true, message: "no".to_owned(), again: later };
        for uid in ["u-a", "u-c"] {
            pods.stands(uid, Some(EvictionState::Leaving));
        }
        pods.stands("u-b", Some(refused));
        assert_eq!(pods.why(), "pod shop/b is kept by its PodDisruptionBudget: no");
        assert_eq!((pods.due(), pods.to_ask(Instant::now()).len()), (Some(later), 0));
        assert_eq!(pods.to_ask(later).len(), 1);
        assert_eq!(pods.see(line("DELETED", "a", "")), Some(Change::None));
        assert_eq!(
            pods.see(line("MODIFIED", "c", r#","deletionTimestamp":"2026-01-01T00:00:00Z""#)),
            Some(Change::None)
        );
        assert_eq!(pods.see(line("ADDED", "d", "")), Some(Change::Changed));
        assert_eq!(pods.see(line("ADDED", "d", "")), Some(Change::None));
        assert_eq!(pods.see(line("DELETED", "b", "")), Some(Change::Changed));
        assert_eq!(pods.why(), "pod shop/c is leaving");
        assert_eq!(pods.see(line("ERROR", "", "")), None);
        pods.see(line("DELETED", "c", "")).unwrap();
        assert_eq!(pods.see(line("DELETED", "d", "")), Some(Change::Changed));
        assert_eq!(pods.reported(), None);
    }

    #[test]
    fn list_keeps_state_of_its_pods() {
        let mut pods = Pods::default();
        pods.replace(["a", "b"].into_iter().map(|name| metadata(name, "")));
        let again = Instant::now();
        pods.stands("u-a", Some(EvictionState::Refused { budget: false, message: "why".to_owned(), again }));
        pods.replace(
            [metadata("a", ""), metadata("c", r#","deletionTimestamp":"2026-01-01T00:00:00Z""#)].into_iter(),
        );
        let names: Vec<&str> = pods.left.values().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(pods.why(), "pod shop/a can't be evicted: why");
        assert_eq!(pods.to_ask(again).len(), 1);
    }
}
