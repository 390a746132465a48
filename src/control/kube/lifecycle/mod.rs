//! The ImageBasedUpgrade `upgrade` of lifecycle-agent, in its place: watched where the agent was told to carry it out and the
//! cluster has this one node.
//!
//! Its status is a picture of the agent's own state. The object is made where there is none, as lifecycle-agent does, and made
//! again after a reboot into another stateroot, whose cluster never had it.

mod singleton;
mod upgrade;

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectList};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::watch::{Receiver, channel};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::client::ApiClient;
use super::error::KubeError;
use super::node_watch::NodeSnapshot;
use super::optional_kind::OptionalKind;
use super::reflector::Reflector;
use crate::control::lifecycle::{LifecycleLink, LifecycleReport, LifecycleSource, lifecycle_channel};
use crate::model::backoff::Backoff;
use crate::model::message;

use singleton::{LcaObject, SeenObject, Singleton, SingletonHandler};

const UPGRADE: Singleton = Singleton {
    kind: "ImageBasedUpgrade",
    path: "/apis/lca.openshift.io/v1/imagebasedupgrades",
    name: "upgrade",
    shown: "ImageBasedUpgrade upgrade",
};

/// The task that follows it. Dropped, it ends.
#[derive(Debug)]
pub struct LifecycleWatcher {
    task: AbortHandle,
}

impl Drop for LifecycleWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LifecycleWatcher {
    /// Begins. Within a tokio runtime; nothing is requested yet.
    pub(super) fn start(
        api: &ApiClient,
        node: &str,
        snapshot: &Receiver<NodeSnapshot>,
    ) -> (Self, LifecycleLink) {
        let (source, link) = lifecycle_channel();
        let follower =
            Follower { api: api.clone(), node: node.to_owned(), snapshot: snapshot.clone(), source };
        (Self { task: tokio::spawn(follower.run()).abort_handle() }, link)
    }
}

struct Follower {
    api: ApiClient,
    node: String,
    snapshot: Receiver<NodeSnapshot>,
    source: LifecycleSource,
}

impl Follower {
    async fn run(mut self) {
        self.until_alone().await;
        let (sender, objects) = channel(SeenObject::default());
        let kind = OptionalKind::new(self.snapshot.clone(), &format!("{}/upgrade", self.node));
        let reflector = Reflector {
            api: self.api.clone(),
            handler: SingletonHandler::new(UPGRADE, sender, kind),
            backoff: Backoff::for_requests(&format!("{}/upgrade", self.node)),
        };
        tokio::select! {
            // Neither ends by itself.
            () = reflector.run() => {}
            () = self.reconcile(objects) => {}
        }
    }

    /// Waits until the API server answers that this is its only node.
    async fn until_alone(&mut self) {
        let mut backoff = Backoff::for_requests(&format!("{}/nodes", self.node));
        let mut is_logged = false;
        loop {
            let is_up = |snapshot: &NodeSnapshot| snapshot.up && snapshot.node.is_some();
            // The Node's watch is gone with the process only.
            drop(self.snapshot.wait_for(is_up).await);
            let why = match self.nodes().await {
                Ok(1) => return,
                Ok(_) => {
                    "the cluster has other nodes; an image-based upgrade is one of a single node".to_owned()
                }
                Err(error) if error.is_away() => {
                    tokio::time::sleep(backoff.next_wait()).await;
                    continue;
                }
                Err(error) => format!("{error}. Next: {}", error.next()),
            };
            if !is_logged {
                warn!(MESSAGE_ID = message::STAGE_FAILED, "{} is not followed: {why}", UPGRADE.shown);
                is_logged = true;
            }
            drop(self.snapshot.wait_for(|snapshot| !snapshot.up).await);
        }
    }

    /// Counts the nodes, up to two.
    async fn nodes(&self) -> Result<usize, KubeError> {
        let request =
            kube::core::Request::new("/api/v1/nodes").list_metadata(&ListParams::default().limit(2));
        let list = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.api.client().request::<ObjectList<IgnoredAny>>(request).await
        };
        Ok(list.await.map_err(KubeError::about("Nodes"))?.items.len())
    }

    /// Brings object and agent together, at each change of one of them.
    async fn reconcile(&mut self, mut objects: Receiver<SeenObject>) {
        let mut backoff = Backoff::for_requests(&format!("{}/upgrade-status", self.node));
        let mut logged = None;
        loop {
            let seen = objects.borrow_and_update().clone();
            let mut delay = None;
            match self.bring(&seen).await {
                Ok(()) => {
                    backoff.reset();
                    logged = None;
                }
                Err(error) => {
                    if !error.is_away() && logged.replace(error.reason()) != Some(error.reason()) {
                        warn!(
                            MESSAGE_ID = message::NOT_PUBLISHED,
                            MCA_FAULT = error.reason(),
                            "Failed to write {}: {error}. Next: {}",
                            UPGRADE.shown,
                            error.next()
                        );
                    }
                    delay = Some(backoff.next_wait());
                }
            }
            self.changed(&mut objects, delay).await;
        }
    }

    async fn changed(&mut self, objects: &mut Receiver<SeenObject>, delay: Option<Duration>) {
        let due = async {
            match delay {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Each only waits. The values are gone with the process only.
            _ = objects.changed() => {}
            changed = self.source.report.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            () = due => {}
        }
    }

    async fn bring(&mut self, seen: &SeenObject) -> Result<(), KubeError> {
        let reports = self.source.report.borrow_and_update().clone();
        // Whether there is a state decides what an absent object means.
        if !reports.is_read {
            return Ok(());
        }
        let last = reports.last.as_deref();
        match seen {
            SeenObject::Unknown => Ok(()),
            SeenObject::Absent => self.create(last).await,
            SeenObject::There(object) if object.metadata.deletion_timestamp.is_some() => Ok(()),
            SeenObject::There(object) => {
                let copy = last.filter(|report| report.state.is_copy && !upgrade::is_same(object, report));
                if copy.is_some() {
                    return self.delete(object).await;
                }
                match upgrade::desire(object) {
                    Ok(desire) => self.source.put(desire),
                    Err(cause) => {
                        return Err(KubeError::Invalid { object: UPGRADE.shown.to_owned(), cause });
                    }
                }
                match last {
                    Some(report) => self.write_status(object, report).await,
                    None => Ok(()),
                }
            }
        }
    }

    fn objects(&self) -> (Api<DynamicObject>, ApiResource) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("lca.openshift.io", "v1", UPGRADE.kind));
        (Api::all_with(self.api.client(), &resource), resource)
    }

    /// Makes the object: from the agent's state, or an idle one.
    async fn create(&self, last: Option<&LifecycleReport>) -> Result<(), KubeError> {
        let (api, resource) = self.objects();
        let (annotations, spec) = upgrade::remembered(last);
        let mut object = DynamicObject::new(UPGRADE.name, &resource).data(json!({ "spec": spec }));
        object.metadata.annotations = Some(annotations);
        let made = api.create(&PostParams::default(), &object).await;
        match made.map_err(KubeError::about(UPGRADE.shown)) {
            // Its watch delivers it.
            Err(KubeError::Refused { status: 409, .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                info!(MESSAGE_ID = message::STAGE, "Created {} from this node's state", UPGRADE.shown);
                Ok(())
            }
        }
    }

    /// Deletes an object that is not of this node's upgrade; its watch has it made again.
    async fn delete(&self, object: &LcaObject) -> Result<(), KubeError> {
        let uid = Some(object.metadata.uid.clone());
        let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let deleted = self.objects().0.delete(UPGRADE.name, &params).await;
        match deleted.map_err(KubeError::about(UPGRADE.shown)) {
            Ok(_) | Err(KubeError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write_status(&self, object: &LcaObject, report: &LifecycleReport) -> Result<(), KubeError> {
        let status = upgrade::status(report);
        if upgrade::is_written(&object.status, &status) {
            return Ok(());
        }
        let patch: Value = json!({ "metadata": { "uid": object.metadata.uid }, "status": status });
        let params = PatchParams::default();
        let written = self.objects().0.patch_status(UPGRADE.name, &params, &Patch::Merge(&patch)).await;
        written.map(drop).map_err(KubeError::about(UPGRADE.shown))
    }
}
