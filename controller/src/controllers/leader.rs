//! The shell of the election ([`crate::lease`]): a watch of the Lease, and the writes to it.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::cache::{Cache, Kind};
use super::client::{Fence, RequestError, limited, send, uptime};
use super::watches;
use super::write::{Write, write_within};
use crate::lease::{Election, Lease, Next, Timing};

/// Name of the Lease and of its candidate.
#[derive(Debug, Clone)]
pub(super) struct Candidacy {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) me: String,
    pub(super) timing: Timing,
    /// It renders, as each of its replicas: one that led has left a rendered config.
    pub(super) renders: bool,
}

/// Kinds that show whether a replica led before.
const NEEDED: [Kind; 3] = [Kind::Definitions, Kind::Pools, Kind::Configs];

/// A write that was sent: it is waited for, whatever happens meanwhile.
type Sent = Pin<Box<dyn Future<Output = Result<LeaseObject, RequestError>> + Send>>;

/// Most tries to release: each further one is due to another writer, such as the own renewal of a moment ago.
const MAX_RELEASES: usize = 3;

/// A part in the election.
pub(super) struct Leader {
    api: Api<LeaseObject>,
    candidacy: Candidacy,
    election: Election,
    fence: Fence,
    leading: watch::Sender<bool>,
    /// The object as it is now; fields of others stay.
    object: Option<LeaseObject>,
    /// The write under way: when it was sent, and whether it creates the Lease.
    in_flight: Option<(Duration, bool, Sent)>,
    cache: Cache,
}

impl Leader {
    pub(super) fn new(
        client: Client,
        candidacy: Candidacy,
        fence: Fence,
        cache: Cache,
    ) -> (Self, watch::Receiver<bool>) {
        let (leading, receiver) = watch::channel(false);
        let api = Api::namespaced(client, &candidacy.namespace);
        let election = Election::new(candidacy.me.clone(), candidacy.timing);
        (Self { api, candidacy, election, fence, leading, object: None, in_flight: None, cache }, receiver)
    }

    /// Takes part until this process does not lead any more, or may not. Cancel-safe: [`Leader::release`] waits for a write that
    /// was sent.
    pub(super) async fn run(&mut self) {
        let watch = watches::object(self.api.clone(), &self.candidacy.name);
        let mut changes = pin!(watch.default_backoff());
        let mut evidence = pin!(nobody_led(self.cache.clone()));
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
                () = &mut evidence, if self.candidacy.renders && self.election.awaits_evidence(now) => self.election.first_ever(uptime()),
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
        if self.election.observe(object.as_ref().map(read), uptime()) {
            self.object = object;
        }
    }

    async fn write(&mut self, version: Option<String>) {
        if version.is_none() {
            let wait = self.candidacy.timing.renew_deadline.as_secs();
            info!(
                "Lease {} was missing: creating it; if a replica led here before, the first write waits {wait} s, because that \
                 replica may not have noticed the deletion",
                self.candidacy.name
            );
        }
        let creates = version.is_none();
        let sent = self.send(version, Some(&self.candidacy.me));
        self.in_flight = Some((uptime(), creates, sent));
        self.settle().await;
        self.publish();
    }

    /// Waits for the answer of the write under way. Cancel-safe.
    async fn settle(&mut self) {
        let Some((at, creates, sent)) = &mut self.in_flight else { return };
        let (sent, creates, written) = (*at, *creates, sent.await);
        self.in_flight = None;
        match written {
            Ok(object) => {
                self.election.written(read(&object), sent, uptime());
                self.object = Some(object);
            }
            Err(error) => {
                self.election.failed(uptime());
                if creates && error.code() == 404 {
                    let namespace = &self.candidacy.namespace;
                    warn!(
                        "Lease {namespace}/{} can't be created, so this replica writes nothing: {error}; create the namespace \
                         {namespace}, or name another one with --namespace",
                        self.candidacy.name
                    );
                    return;
                }
                if matches!(error.code(), 404 | 409) {
                    // Another process was faster, or etcd came back from a backup and the watch is of no use.
                    self.look().await;
                    return;
                }
                let (namespace, name) = (&self.candidacy.namespace, &self.candidacy.name);
                warn!("Lease {namespace}/{name} can't be written: {error}");
            }
        }
    }

    /// Reads the Lease; returns false if it can't be read.
    async fn look(&mut self) -> bool {
        let limit = self.candidacy.timing.request_timeout();
        match limited(limit, send(self.api.get_opt(&self.candidacy.name))).await {
            Ok(object) => {
                self.election.read(object.as_ref().map(read), uptime());
                self.object = object;
                true
            }
            Err(error) => {
                warn!("Lease {} can't be read: {error}", self.candidacy.name);
                false
            }
        }
    }

    /// Returns a write that creates the Lease, or replaces a version of it.
    fn send(&self, version: Option<String>, holder: Option<&str>) -> Sent {
        let is_new = version.is_none();
        let (object, api) = (self.object(version, holder), self.api.clone());
        let (name, limit) = (self.candidacy.name.clone(), self.candidacy.timing.request_timeout());
        Box::pin(async move {
            let parameters = PostParams::default();
            if is_new {
                write_within(Write::Lease, limit, api.create(&parameters, &object)).await
            } else {
                write_within(Write::Lease, limit, api.replace(&name, &parameters, &object)).await
            }
        })
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

    /// Lets the next one lead at once. Nothing is written after this: a write that was sent has its answer first, since it may
    /// arrive after the release and hold the Lease for nobody.
    pub(super) async fn release(&mut self) {
        self.fence.open_until(None);
        let is_unsure = self.in_flight.is_some();
        self.settle().await;
        if is_unsure && self.election.held().is_none() {
            self.look().await;
        }
        for _ in 0..MAX_RELEASES {
            let Some(version) = self.own_version() else { return };
            match self.send(Some(version), None).await {
                Ok(_) => {
                    info!("Released Lease {}", self.candidacy.name);
                    return;
                }
                Err(error) => {
                    warn!("Failed to release Lease {}: {error}", self.candidacy.name);
                    // A renewal whose answer was lost has given it another version.
                    if !self.look().await {
                        break;
                    }
                }
            }
        }
        warn!("Lease {} was not released: the next replica takes over when it expires", self.candidacy.name);
    }

    /// Returns the version of the Lease, if it names this process.
    fn own_version(&self) -> Option<String> {
        let object = self.object.as_ref()?;
        let is_mine = object.spec.as_ref()?.holder_identity.as_ref() == Some(&self.candidacy.me);
        object.metadata.resource_version.clone().filter(|_| is_mine)
    }
}

/// Resolves once it is known that no replica led here before: each one that does names rendered configs to the pools first.
async fn nobody_led(cache: Cache) {
    cache.until(|snapshot| NEEDED.iter().all(|kind| snapshot.knows(*kind))).await;
    let has_led = cache.lock().rendered.values().any(|rendered| rendered.is_own);
    if has_led {
        info!(
            "Waiting before the first write until --lease-renew-deadline has passed: a replica led here before, as the \
             MachineConfigs that it rendered show"
        );
        std::future::pending::<()>().await;
    }
}

fn read(object: &LeaseObject) -> Lease {
    let spec = object.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    Lease {
        version: object.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        transitions: spec.lease_transitions.unwrap_or(0),
        duration: Duration::from_secs(seconds),
    }
}
