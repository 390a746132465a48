//! The shell of the election ([`crate::lease`]): a watch of the Lease, and the writes to it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::client::{Fence, RequestError, uptime};
use super::write::{Write, write};
use crate::lease::{Election, Lease, Next, Timing};

/// Name of the Lease and of its candidate.
#[derive(Debug, Clone)]
pub(super) struct Candidacy {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) me: String,
    pub(super) timing: Timing,
}

/// A part in the election.
pub(super) struct Leader {
    api: Api<LeaseObject>,
    candidacy: Candidacy,
    election: Election,
    fence: Fence,
    leading: watch::Sender<bool>,
    /// The object as it is now; fields of others stay.
    object: Option<LeaseObject>,
}

impl Leader {
    pub(super) fn new(client: Client, candidacy: Candidacy, fence: Fence) -> (Self, watch::Receiver<bool>) {
        let (leading, receiver) = watch::channel(false);
        let api = Api::namespaced(client, &candidacy.namespace);
        let election = Election::new(candidacy.me.clone(), candidacy.timing);
        (Self { api, candidacy, election, fence, leading, object: None }, receiver)
    }

    /// Takes part until this process does not lead any more, or may not. Cancel-safe between two requests.
    pub(super) async fn run(&mut self) {
        let watch = watch_object(self.api.clone(), &self.candidacy.name);
        let mut changes = pin!(watch.default_backoff());
        loop {
            let now = uptime();
            let wait = match self.election.next(now) {
                Next::Create => {
                    self.write(None).await;
                    continue;
                }
                Next::Write(version) => {
                    self.write(Some(version)).await;
                    continue;
                }
                Next::End => return,
                Next::Wait(until) => until,
            };
            let due = async {
                match wait {
                    Some(until) => sleep_until(Instant::now() + until.saturating_sub(now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                news = changes.next() => match news {
                    Some(Ok(object)) => self.observe(object),
                    Some(Err(error)) => warn!("Lease {} can't be watched: {error}", self.candidacy.name),
                    None => return,
                },
                () = due => {}
            }
            self.publish();
        }
    }

    fn publish(&self) {
        let until = self.election.leads(uptime());
        self.fence.open_until(until);
        let changed = self.leading.send_if_modified(|leading| {
            let changed = *leading != until.is_some();
            *leading = until.is_some();
            changed
        });
        if changed && until.is_some() {
            info!("{} leads", self.candidacy.me);
        }
    }

    fn observe(&mut self, object: Option<LeaseObject>) {
        let lease = object.as_ref().map(read);
        self.object = object;
        self.election.observe(lease, uptime());
    }

    async fn write(&mut self, version: Option<String>) {
        let sent = uptime();
        let written = match version {
            None => {
                let object = self.object(None, Some(&self.candidacy.me));
                write(Write::Lease, self.api.create(&PostParams::default(), &object)).await
            }
            Some(version) => self.replace(version, Some(&self.candidacy.me.clone())).await,
        };
        match written {
            Ok(object) => {
                self.election.written(read(&object), sent, uptime());
                self.object = Some(object);
            }
            Err(error) => {
                self.election.failed(uptime());
                if matches!(error.code(), 404 | 409) {
                    // Another process was faster; the watch names it.
                    return;
                }
                let (namespace, name) = (&self.candidacy.namespace, &self.candidacy.name);
                warn!("Lease {namespace}/{name} can't be written: {error}");
            }
        }
        self.publish();
    }

    async fn replace(&self, version: String, holder: Option<&str>) -> Result<LeaseObject, RequestError> {
        let object = self.object(Some(version), holder);
        let how = PostParams::default();
        write(Write::Lease, self.api.replace(&self.candidacy.name, &how, &object)).await
    }

    fn object(&self, version: Option<String>, holder: Option<&str>) -> LeaseObject {
        let now = MicroTime(Timestamp::now());
        let old = self.object.clone().unwrap_or_default();
        let before = old.spec.unwrap_or_default();
        let same = before.holder_identity.as_deref() == holder;
        let transitions = before.lease_transitions.unwrap_or(0);
        let seconds = i32::try_from(self.candidacy.timing.duration.as_secs()).unwrap_or(15);
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(seconds),
            acquire_time: if same { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if same { transitions } else { transitions.saturating_add(1) }),
            ..before
        };
        let labels =
            BTreeMap::from([("app.kubernetes.io/name".to_owned(), "machine-config-controller".to_owned())]);
        let metadata = ObjectMeta {
            name: Some(self.candidacy.name.clone()),
            namespace: Some(self.candidacy.namespace.clone()),
            labels: Some(old.metadata.labels.unwrap_or(labels)),
            annotations: old.metadata.annotations,
            resource_version: version,
            ..ObjectMeta::default()
        };
        LeaseObject { metadata, spec: Some(spec) }
    }

    /// Lets the next one lead at once. Nothing is written after this.
    pub(super) async fn release(&mut self) {
        self.fence.open_until(None);
        let Some(version) = self.election.held().map(str::to_owned) else { return };
        match self.replace(version, None).await {
            Ok(_) => info!("Released Lease {}", self.candidacy.name),
            Err(error) => warn!("Lease {} is not released: {error}; others wait for it", self.candidacy.name),
        }
    }
}

fn read(object: &LeaseObject) -> Lease {
    let spec = object.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    Lease {
        version: object.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: Duration::from_secs(seconds),
    }
}
