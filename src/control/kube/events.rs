//! Kubernetes events about the Node, as MCD's (docs/contract.md).
//!
//! Events are sent in order beside the work (`outbox`); a reboot waits for those that precede it. A repetition is counted
//! in its event; an endless repetition is counted, and reported every few minutes.

use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::client::ApiClient;
use super::error::KubeError;
use super::node::{NodeView, unreadable};
use crate::host::clock::Clock;
use crate::report::{self, Severity};

/// The source of MCD's events: dashboards and alerts look for it.
const COMPONENT: &str = "machineconfigdaemon";

/// The cut of a message: the API server refuses longer ones of the newer kind, and kubectl shows no more.
const MAX_MESSAGE_LENGTH: usize = 1024;

/// Time in which a repetition is counted in the event of the first, as client-go does.
const REPEATS: Duration = Duration::from_secs(600);

/// Repetitions that are reported one by one, as client-go does.
const BURST: u64 = 25;

/// Interval of reports after that, as client-go does.
const SLOW: Duration = Duration::from_secs(300);

/// Remembered kinds of events: an update has about ten.
const REMEMBERED: usize = 32;

/// Namespace of cluster-scoped objects' events if the agent's own is refused.
const FALLBACK: &str = "default";

/// The events of one node.
#[derive(Debug)]
pub(super) struct Events {
    api: ApiClient,
    node: String,
    namespace: String,
    /// The namespace is the one to take.
    chosen: bool,
    clock: Clock,
    sent: Vec<SentEvent>,
    last: u64,
}

/// An event that is in the cluster.
#[derive(Debug)]
struct SentEvent {
    uid: String,
    reason: &'static str,
    message: String,
    name: String,
    count: u64,
    sent: Instant,
}

impl Events {
    /// Nothing is sent yet.
    pub(super) fn new(api: ApiClient, node: &str, namespace: &str) -> Self {
        Self {
            api,
            node: node.to_owned(),
            namespace: namespace.to_owned(),
            chosen: false,
            clock: Clock::system(),
            sent: Vec::new(),
            last: 0,
        }
    }

    /// Emits an event; it has reached the API server when this returns.
    pub(super) async fn emit(
        &mut self,
        node: &NodeView,
        occurrence: &report::Event,
    ) -> Result<(), KubeError> {
        let message: String = occurrence.message().chars().take(MAX_MESSAGE_LENGTH).collect();
        self.sent.retain(|event| event.sent.elapsed() < REPEATS);
        let same = |event: &SentEvent| {
            (event.reason, &event.message, &event.uid) == (occurrence.reason(), &message, &node.uid)
        };
        if let Some(index) = self.sent.iter().position(same) {
            match self.repeat(index).await {
                // It is gone by now: it is created again.
                Err(error) if error.is_not_found() => drop(self.sent.remove(index)),
                done => return done,
            }
        }
        self.first(node, occurrence, message).await
    }

    /// Chooses the namespace once: with the base permissions MCD's is refused, and a refusal at each start looks like an
    /// attack in the audit log. Without an answer, the first event finds out.
    async fn choose(&mut self) {
        if std::mem::replace(&mut self.chosen, true) {
            return;
        }
        let review = json!({
            "spec": { "resourceAttributes": { "namespace": self.namespace, "verb": "create", "resource": "events" } },
        });
        let Ok(review) = serde_json::from_value::<SelfSubjectAccessReview>(review) else { return };
        // Every user may request that for himself.
        let answer = Api::all(self.api.client()).create(&PostParams::default(), &review).await;
        if answer.is_ok_and(|review| review.status.is_some_and(|status| !status.allowed)) {
            FALLBACK.clone_into(&mut self.namespace);
        }
    }

    async fn repeat(&mut self, index: usize) -> Result<(), KubeError> {
        let now = self.clock.now().to_string();
        let Some(event) = self.sent.get_mut(index) else { return Ok(()) };
        event.count = event.count.saturating_add(1);
        if event.count > BURST && event.sent.elapsed() < SLOW {
            return Ok(());
        }
        let patch = json!({ "count": event.count, "lastTimestamp": now });
        event.sent = Instant::now();
        let events = Api::<Event>::namespaced(self.api.client(), &self.namespace);
        let patched =
            events.patch_metadata(&event.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.map(drop).map_err(KubeError::about("Event"))
    }

    async fn first(
        &mut self,
        node: &NodeView,
        occurrence: &report::Event,
        message: String,
    ) -> Result<(), KubeError> {
        self.choose().await;
        let name = self.name();
        let now = self.clock.now().to_string();
        let place = EventMeta { namespace: &self.namespace, name: &name, now: &now, message: &message };
        match self.create(event(node, occurrence, &place)?).await {
            Err(error) if is_elsewhere(&error) && self.namespace != FALLBACK => {
                // Not an OpenShift cluster: there is no such namespace, or nothing is allowed in it.
                FALLBACK.clone_into(&mut self.namespace);
                let place = EventMeta { namespace: FALLBACK, name: &name, now: &now, message: &message };
                self.create(event(node, occurrence, &place)?).await?;
            }
            answer => answer?,
        }
        let reason = occurrence.reason();
        self.sent.push(SentEvent {
            uid: node.uid.clone(),
            reason,
            message,
            name,
            count: 1,
            sent: Instant::now(),
        });
        if self.sent.len() > REMEMBERED {
            self.sent.remove(0);
        }
        Ok(())
    }

    async fn create(&self, event: Event) -> Result<(), KubeError> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let events = Api::namespaced(self.api.client(), namespace);
        let created = events.create(&PostParams::default(), &event).await;
        created.map(drop).map_err(KubeError::about("Event"))
    }

    /// A name that no other event has: the node's and the time.
    fn name(&mut self) -> String {
        self.last = self.clock.now().micros().max(self.last.saturating_add(1));
        format!("{}.{:x}", self.node, self.last)
    }
}

fn is_elsewhere(error: &KubeError) -> bool {
    error.is_not_found() || matches!(error, KubeError::Refused { status: 403, .. })
}

struct EventMeta<'a> {
    namespace: &'a str,
    name: &'a str,
    now: &'a str,
    message: &'a str,
}

fn event(node: &NodeView, occurrence: &report::Event, place: &EventMeta<'_>) -> Result<Event, KubeError> {
    let mut about = json!({ "kind": "Node", "name": node.name, "uid": node.uid, "apiVersion": "v1" });
    // The API server wants it to agree with the event's own, but for the default one.
    if place.namespace != FALLBACK
        && let Some(about) = about.as_object_mut()
    {
        about.insert("namespace".to_owned(), json!(place.namespace));
    }
    let severity = match occurrence.severity() {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let event = json!({
        "metadata": { "name": place.name, "namespace": place.namespace },
        "involvedObject": about,
        "reason": occurrence.reason(),
        "message": place.message,
        "type": severity,
        "source": { "component": COMPONENT, "host": node.name },
        "reportingComponent": COMPONENT,
        "reportingInstance": node.name,
        "firstTimestamp": place.now,
        "lastTimestamp": place.now,
        "count": 1,
    });
    serde_json::from_value(event).map_err(|error| unreadable("Event", &error))
}
