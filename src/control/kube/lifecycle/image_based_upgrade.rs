//! The ImageBasedUpgrade `upgrade`. Its status is a picture of the agent's own state. The object is made where there is none, as
//! lifecycle-agent does, and made again after a reboot into another stateroot, whose cluster never had it.

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::DynamicObject;
use serde_json::json;
use tracing::info;

use super::super::client::ApiClient;
use super::super::error::KubeError;
use super::follower::{ObjectApi, Subject};
use super::singleton::{LcaObject, ObservedObject, Singleton};
use super::upgrade;
use crate::control::lifecycle::{LifecycleReport, LifecycleSource};
use crate::model::message;

/// The object, and the agent's stages.
pub(super) struct ImageBasedUpgrade {
    objects: ObjectApi,
    source: LifecycleSource,
    /// UID of the object that was as the agent's state has it: what a person changes of it later is a desire.
    own: Option<String>,
}

impl ImageBasedUpgrade {
    /// Takes the client and the stages.
    pub(super) fn new(api: &ApiClient, source: LifecycleSource) -> Self {
        Self { objects: ObjectApi::new(api, Self::WHAT), source, own: None }
    }

    /// Makes the object: from the agent's state, or an idle one.
    async fn create(&self, last: Option<&LifecycleReport>) -> Result<(), KubeError> {
        let (annotations, spec) = upgrade::remembered(last);
        let mut object =
            DynamicObject::new(Self::WHAT.name, &self.objects.resource).data(json!({ "spec": spec }));
        object.metadata.annotations = Some(annotations);
        let made = self.objects.api.create(&PostParams::default(), &object).await;
        match made.map_err(KubeError::about(Self::WHAT.shown)) {
            // Its watch delivers it.
            Err(KubeError::Refused { status: 409, .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                info!(MESSAGE_ID = message::STAGE, "Created {} from this node's state", Self::WHAT.shown);
                Ok(())
            }
        }
    }

    /// Deletes an object that is not of this node's upgrade; its watch has it made again.
    async fn delete(&self, object: &LcaObject) -> Result<(), KubeError> {
        let uid = Some(object.metadata.uid.clone());
        let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let deleted = self.objects.api.delete(Self::WHAT.name, &params).await;
        match deleted.map_err(KubeError::about(Self::WHAT.shown)) {
            Ok(_) | Err(KubeError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Subject for ImageBasedUpgrade {
    const WHAT: Singleton = Singleton {
        kind: "ImageBasedUpgrade",
        path: "/apis/lca.openshift.io/v1/imagebasedupgrades",
        name: "upgrade",
        shown: "ImageBasedUpgrade upgrade",
    };

    async fn bring(&mut self, observed: &ObservedObject) -> Result<(), KubeError> {
        let reports = self.source.report.borrow_and_update().clone();
        // Whether there is a state decides what an absent object means.
        if !reports.is_read {
            return Ok(());
        }
        let last = reports.last.as_deref();
        match observed {
            ObservedObject::Unknown => Ok(()),
            ObservedObject::Absent => self.create(last).await,
            ObservedObject::There(object) if object.metadata.deletion_timestamp.is_some() => Ok(()),
            ObservedObject::There(object) => {
                let uid = Some(&object.metadata.uid);
                let copy = last.filter(|report| report.state.is_copy && !upgrade::is_same(object, report));
                if copy.is_some() && self.own.as_ref() != uid {
                    return self.delete(object).await;
                }
                self.own = uid.cloned();
                match upgrade::desire(object) {
                    Ok(desire) => self.source.put(desire),
                    Err(cause) => {
                        return Err(KubeError::Invalid { object: Self::WHAT.shown.to_owned(), cause });
                    }
                }
                match last {
                    Some(report) => self.objects.write_status(object, &upgrade::status(report)).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn reported(&mut self) {
        self.source.reported().await;
    }
}
