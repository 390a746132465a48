//! One object of lifecycle-agent and the agent's own state, brought together at each change of one of them.

use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Map, Value, json};
use tokio::sync::watch::{Receiver, channel};
use tracing::warn;

use super::super::client::ApiClient;
use super::super::error::KubeError;
use super::super::node_watch::NodeSnapshot;
use super::super::optional_kind::OptionalKind;
use super::super::reflector::Reflector;
use super::singleton::{LcaObject, ObservedObject, Singleton, SingletonHandler};
use crate::host::clock::elapsed;
use crate::model::backoff::Backoff;
use crate::model::message;

/// One kind of object, and the agent's state of it.
pub(super) trait Subject: Send {
    /// Names of the object.
    const WHAT: Singleton;

    /// Hands on what is desired, and writes what became of it.
    fn bring(&mut self, observed: &ObservedObject) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Waits for another report.
    fn reported(&mut self) -> impl Future<Output = ()> + Send;
}

/// Follows the object without end.
pub(super) async fn follow<S: Subject>(
    api: &ApiClient,
    node: &str,
    snapshot: &Receiver<NodeSnapshot>,
    subject: S,
) {
    let (sender, objects) = channel(ObservedObject::default());
    let place = format!("{node}/{}", S::WHAT.name);
    let kind = OptionalKind::new(snapshot.clone(), &place);
    let reflector = Reflector {
        api: api.clone(),
        handler: SingletonHandler::new(S::WHAT, sender, kind),
        backoff: Backoff::for_requests(&place),
    };
    tokio::select! {
        // Neither ends by itself.
        () = reflector.run() => {}
        () = reconcile(subject, objects, &place) => {}
    }
}

async fn reconcile<S: Subject>(mut subject: S, mut objects: Receiver<ObservedObject>, place: &str) {
    let mut backoff = Backoff::for_requests(&format!("{place}-status"));
    let mut logged = None;
    loop {
        let observed = objects.borrow_and_update().clone();
        let mut delay = None;
        match subject.bring(&observed).await {
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
                        S::WHAT.shown,
                        error.next()
                    );
                }
                delay = Some(backoff.next_wait());
            }
        }
        changed(&mut subject, &mut objects, delay).await;
    }
}

async fn changed<S: Subject>(
    subject: &mut S,
    objects: &mut Receiver<ObservedObject>,
    delay: Option<Duration>,
) {
    tokio::select! {
        // Each only waits. The values are gone with the process only.
        _ = objects.changed() => {}
        () = subject.reported() => {}
        () = elapsed(delay) => {}
    }
}

/// The object at the API server.
#[derive(Debug, Clone)]
pub(super) struct ObjectApi {
    /// Its kind.
    pub(super) api: Api<DynamicObject>,
    /// The same, for an object that is made.
    pub(super) resource: ApiResource,
    what: Singleton,
}

impl ObjectApi {
    /// Takes the client.
    pub(super) fn new(api: &ApiClient, what: Singleton) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("lca.openshift.io", "v1", what.kind));
        Self { api: Api::all_with(api.client(), &resource), resource, what }
    }

    /// Writes the status, if it is another one; a field that is null is removed.
    pub(super) async fn write_status(&self, object: &LcaObject, status: &Value) -> Result<(), KubeError> {
        if is_written(&object.status, status) {
            return Ok(());
        }
        let patch: Value = json!({ "metadata": { "uid": object.metadata.uid }, "status": status });
        let params = PatchParams::default();
        let written = self.api.patch_status(self.what.name, &params, &Patch::Merge(&patch)).await;
        written.map(drop).map_err(KubeError::about(self.what.shown))
    }
}

/// Returns true if the status is the stored one.
fn is_written(stored: &Value, status: &Value) -> bool {
    let none = Map::new();
    let fields = status.as_object().unwrap_or(&none);
    fields.iter().all(|(name, value)| stored.get(name).unwrap_or(&Value::Null) == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_field_is_null() {
        let status = json!({"observedGeneration": 7, "validNextStages": null});
        assert!(is_written(&json!({"observedGeneration": 7, "other": 1}), &status));
        assert!(!is_written(&json!({"observedGeneration": 7, "validNextStages": []}), &status));
        assert!(!is_written(&Value::Null, &status));
    }
}
