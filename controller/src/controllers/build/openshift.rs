//! The builder `OpenShiftBuild`: a Build of `build.openshift.io`, followed by its phases.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::builder::{ApiFuture, Builder, Credentials, EndedBuild, Order, PodOutcome, image};
use super::objects::Objects;
use super::observed::{BuildJob, put_job};
use crate::build::{
    IMAGE_BUILDER, InputOwner, JobSettings, MACHINE_OS_BUILD, STARTED, inputs, job_name, openshift_build,
    openshift_outcome, openshift_reduced,
};
use crate::controllers::cache::{Kind, Snapshot};
use crate::controllers::cached::{Cached, Identified};
use crate::controllers::client::{RequestError, send};

/// A Build without a type of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::controllers) struct OpenShiftBuild(DynamicObject);

impl Resource for OpenShiftBuild {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "Build".into()
    }
    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "build.openshift.io".into()
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "builds".into()
    }
    fn meta(&self) -> &kube::api::ObjectMeta {
        &self.0.metadata
    }
    fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
        &mut self.0.metadata
    }
}

impl OpenShiftBuild {
    fn tree(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }
}

impl Cached for OpenShiftBuild {
    const KIND: Kind = Kind::OpenShiftBuilds;
    const LABELS: Option<&'static str> = Some(MACHINE_OS_BUILD);

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let (name, version) = (self.name_any(), self.resource_version().unwrap_or_default());
        let new = BuildJob::new(version, openshift_reduced(&self.tree()));
        let takes_older = snapshot.takes_older();
        put_job(&mut snapshot.openshift_builds, name, new, takes_older)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        snapshot.openshift_builds.remove(name).is_some()
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.openshift_builds.keys().cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        Some(&snapshot.openshift_builds.get(name)?.job.uid)
    }
}

impl Identified for OpenShiftBuild {}

/// Builds of OpenShift in one namespace.
#[derive(Debug)]
pub(super) struct OpenShiftBuilds {
    objects: Objects,
}

impl OpenShiftBuilds {
    pub(super) const fn new(objects: Objects) -> Self {
        Self { objects }
    }

    async fn start_build(
        &self,
        order: &Order,
        uid: &str,
        credentials: &Credentials,
    ) -> Result<(), RequestError> {
        let owner = InputOwner::OpenShiftBuild(uid);
        let settings = &self.objects.settings.within(&order.surroundings);
        let made = inputs(&order.request(), settings, owner, &credentials.base, &credentials.push);
        let made = made.map_err(|error| RequestError::Failed(error.to_string()))?;
        self.objects.create_secrets(&made.secrets, uid).await?;
        let patch = json!({ "metadata": { "uid": uid, "annotations": { STARTED: "true" } } });
        self.objects.patch::<OpenShiftBuild>(&job_name(&order.build), patch).await
    }
}

impl Builder for OpenShiftBuilds {
    fn missing(&self, snapshot: &Snapshot) -> Option<String> {
        let kind = Kind::OpenShiftBuilds;
        if let Some(failure) = snapshot.failing.get(&kind).filter(|_| !snapshot.synced.contains(&kind)) {
            return Some(format!(
                "{} can't be read: {}; add the component openshift-builds on OpenShift, or remove the annotation {IMAGE_BUILDER}",
                kind.resource(),
                failure.cause
            ));
        }
        let is_named = !self.objects.settings.agent_image.is_empty();
        (!is_named).then(|| {
            "the build settings have no agentImage; name it in the file of --build-settings".to_owned()
        })
    }

    fn settings(&self) -> &JobSettings {
        &self.objects.settings
    }

    fn create<'a>(&'a self, order: &'a Order) -> ApiFuture<'a, ()> {
        Box::pin(async move {
            let made = serde_json::from_value(openshift_build(&order.request(), &self.objects.settings));
            let made: OpenShiftBuild = made.map_err(|error| RequestError::Failed(error.to_string()))?;
            self.objects.create(&made).await
        })
    }

    fn start<'a>(
        &'a self,
        order: &'a Order,
        uid: &'a str,
        credentials: &'a Credentials,
    ) -> ApiFuture<'a, ()> {
        Box::pin(self.start_build(order, uid, credentials))
    }

    fn delete<'a>(&'a self, name: &'a str, uid: &'a str) -> ApiFuture<'a, ()> {
        Box::pin(self.objects.delete::<OpenShiftBuild>(name, uid))
    }

    fn find<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Option<String>> {
        Box::pin(self.objects.find::<OpenShiftBuild>(name))
    }

    fn outcome<'a>(&'a self, ended: &'a EndedBuild<'a>) -> ApiFuture<'a, PodOutcome> {
        Box::pin(async move {
            match send(self.objects.api::<OpenShiftBuild>().get(&job_name(ended.build))).await {
                Ok(found) if found.uid().as_deref() == Some(ended.uid) => {
                    let image = |digest: &str| image(ended.push_spec, digest);
                    let outcome = openshift_outcome(&found.tree(), image, |lines| ended.explained(lines));
                    Ok(PodOutcome { is_gone: false, outcome })
                }
                Ok(_) => Ok(PodOutcome { is_gone: true, ..PodOutcome::default() }),
                Err(error) if error.code() == 404 => {
                    Ok(PodOutcome { is_gone: true, ..PodOutcome::default() })
                }
                Err(error) => Err(error.about(&format!("reading of Build {}", job_name(ended.build)))),
            }
        })
    }
}
