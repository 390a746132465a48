//! Events of the cluster, as `kubectl describe` shows them. One that repeats is counted, and not written again.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machine_config_core::model::Sha256;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

use super::cache::Snapshot;
use super::client::send;
use super::write::{Write, refused, unanswered, write};
use crate::api::controller_config::CONTROLLER_CONFIG;

/// The longest message that the API server takes.
const MAX_MESSAGE: usize = 1024;

/// Kind of a pool.
pub(super) const POOL: &str = "MachineConfigPool";

const NODE: &str = "Node";
const ROLLOUT_POLICY: &str = "RolloutPolicy";

/// Object of an Event.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) name: String,
    pub(super) uid: String,
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl About {
    /// Returns what tells this very object from all others, also from one of the same name that is made later.
    pub(super) fn key(&self) -> String {
        format!("{self} {}", self.uid)
    }

    pub(super) fn node(name: &str, uid: &str) -> Self {
        Self { kind: NODE, api_version: "v1", name: name.to_owned(), uid: uid.to_owned() }
    }

    pub(super) fn machine_config(name: &str, uid: &str) -> Self {
        Self { kind: "MachineConfig", ..Self::pool(name, uid) }
    }

    pub(super) fn os_build(name: &str, uid: &str) -> Self {
        Self { kind: "MachineOSBuild", ..Self::pool(name, uid) }
    }

    pub(super) fn os_config(name: &str, uid: &str) -> Self {
        Self { kind: "MachineOSConfig", ..Self::pool(name, uid) }
    }

    pub(super) fn controller_config(uid: &str) -> Self {
        Self { kind: "ControllerConfig", ..Self::pool(CONTROLLER_CONFIG, uid) }
    }

    pub(super) fn disruption_policy(uid: &str) -> Self {
        let (name, uid) = ("cluster".to_owned(), uid.to_owned());
        Self { kind: "MachineConfiguration", api_version: "operator.openshift.io/v1", name, uid }
    }

    pub(super) fn rollout_policy(name: &str, uid: &str) -> Self {
        let api_version = "machine-config-agent.io/v1alpha1";
        Self { kind: ROLLOUT_POLICY, api_version, name: name.to_owned(), uid: uid.to_owned() }
    }

    pub(super) fn pool(name: &str, uid: &str) -> Self {
        let api_version = "machineconfiguration.openshift.io/v1";
        Self { kind: POOL, api_version, name: name.to_owned(), uid: uid.to_owned() }
    }
}

impl About {
    /// Returns true if a node, a pool or a policy was deleted: nothing is told of it any more. One that can't be read is there.
    pub(super) fn is_gone(&self, snapshot: &Snapshot) -> bool {
        match self.kind {
            NODE => snapshot.nodes.get(&self.name).is_none_or(|now| now.uid != self.uid),
            POOL => snapshot
                .pools
                .get(&self.name)
                .is_none_or(|now| now.as_ref().is_ok_and(|now| now.metadata.uid.as_ref() != Some(&self.uid))),
            ROLLOUT_POLICY => !snapshot.policies.contains_key(&self.name),
            _ => false,
        }
    }
}

/// Type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Normal,
    Warning,
}

/// Maximum concurrent writes of Events.
const MAX_OPEN: usize = 32;

/// Time for which an Event waits for a free place before it is dropped.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Places of Events that are written now.
static OPEN: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_OPEN)));

/// Emits an Event, best effort, while the caller continues.
pub(super) async fn emit(client: &Client, about: &About, severity: Severity, reason: &str, message: &str) {
    let Ok(Ok(place)) = timeout(MAX_WAIT, Arc::clone(&OPEN).acquire_owned()).await else {
        unanswered(Write::Event);
        warn!("Event {reason} of {about} is not written: {MAX_OPEN} others are not answered");
        return;
    };
    let (client, about) = (client.clone(), about.clone());
    let (reason, message) = (reason.to_owned(), message.to_owned());
    tokio::spawn(async move {
        emit_now(&client, &about, severity, &reason, &message).await;
        drop(place);
    });
}

async fn emit_now(client: &Client, about: &About, severity: Severity, reason: &str, message: &str) {
    let digest = Sha256::digest(format!("{}/{reason}/{message}", about.uid).as_bytes()).to_string();
    let name = format!("{}.{}", about.name, digest.chars().take(16).collect::<String>());
    let api = Api::<Event>::namespaced(client.clone(), "default");
    let now = Time(Timestamp::now());
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            kind: Some(about.kind.to_owned()),
            api_version: Some(about.api_version.to_owned()),
            name: Some(about.name.clone()),
            uid: Some(about.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(if severity == Severity::Warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        source: Some(EventSource { component: Some("machine-config-controller".to_owned()), host: None }),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now.clone()),
        count: Some(1),
        ..Event::default()
    };
    let written = match write(Write::Event, api.create(&PostParams::default(), &event)).await {
        Err(error) if error.code() == 409 => {
            let old = send(api.get(&name)).await.ok().and_then(|event| event.count).unwrap_or(1);
            let patch = json!({ "count": old.saturating_add(1), "lastTimestamp": now });
            write(Write::Event, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await
        }
        written => written,
    };
    if let Err(error) = written {
        // No version is stated, so nobody was faster; one that has expired meanwhile is not told again either.
        if error.is_conflict() {
            refused(Write::Event);
        }
        warn!("Event {reason} of {} {} is not written: {error}", about.kind, about.name);
    }
}
