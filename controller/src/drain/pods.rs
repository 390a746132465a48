//! A pod of the API, as the drain sees it. Pure.

use kube::core::ObjectMeta;
use machine_config_core::model::Timestamp;
use machine_config_core::model::pod::stays_on_node;

pub use machine_config_core::drain::{Blocker, Pod, PodSeen, Pods, Terminating};

/// Reads a pod's metadata.
pub fn seen(metadata: ObjectMeta) -> PodSeen {
    let owners = metadata.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let stays = stays_on_node(metadata.annotations.as_ref(), owners.map(|owner| owner.kind.as_str()));
    let finalizers = metadata.finalizers.unwrap_or_default();
    let terminating =
        metadata.deletion_timestamp.map(|due| Terminating { due: timestamp(&due.0), finalizers });
    PodSeen {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        created: metadata.creation_timestamp.map(|created| timestamp(&created.0)),
        stays,
        terminating,
    }
}

fn timestamp(time: &jiff::Timestamp) -> Timestamp {
    Timestamp::from_micros(u64::try_from(time.as_microsecond()).unwrap_or_default())
}
