//! The builder `OpenShiftBuild`: a Build of `build.openshift.io`, followed by its phases.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::builder::{Answer, Builder, Credentials, Ended, Order, image};
use super::job::{KubeClient, create_input};
use super::kept::BuildJob;
use crate::build::{
    IMAGE_BUILDER, InputOwner, JobSettings, MACHINE_OS_BUILD, STARTED, inputs, job_name, openshift_build,
    openshift_outcome, openshift_reduced,
};
use crate::controllers::cache::{Cache, Kind, Seen};
use crate::controllers::client::{RequestError, ask};
use crate::controllers::kept::Kept;

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

impl Kept for OpenShiftBuild {
    const KIND: Kind = Kind::OpenShiftBuilds;
    const LABELS: Option<&'static str> = Some(MACHINE_OS_BUILD);

    fn put(self, seen: &mut Seen) -> bool {
        let (name, version) = (self.name_any(), self.resource_version().unwrap_or_default());
        let new = BuildJob::new(version, openshift_reduced(&self.tree()));
        if seen.openshift_builds.get(&name).is_some_and(|old| new.is_older(old)) {
            return false;
        }
        let old = seen.openshift_builds.insert(name, new.clone());
        old.is_none_or(|old| old.job != new.job)
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.openshift_builds.remove(name).is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.openshift_builds.keys().cloned().collect()
    }
}

/// Builds of OpenShift in one namespace.
#[derive(Debug)]
pub(super) struct OpenShiftBuilds {
    client: KubeClient,
    cache: Cache,
    settings: JobSettings,
}

impl OpenShiftBuilds {
    pub(super) const fn new(client: Client, cache: Cache, settings: JobSettings) -> Self {
        Self { client: KubeClient(client), cache, settings }
    }

    fn api(&self) -> Api<OpenShiftBuild> {
        Api::namespaced(self.client.0.clone(), &self.settings.namespace)
    }

    fn keep(&self, build: OpenShiftBuild) {
        self.cache.change(|seen| build.put(seen));
    }

    async fn let_run(&self, order: &Order, uid: &str, credentials: &Credentials) -> Result<(), RequestError> {
        let owner = InputOwner::OpenShiftBuild(uid);
        let made = inputs(&order.request(), &self.settings, owner, &credentials.base, &credentials.push);
        let made = made.map_err(|error| RequestError::Failed(error.to_string()))?;
        let secrets = Api::<Secret>::namespaced(self.client.0.clone(), &self.settings.namespace);
        for secret in &made.secrets {
            create_input(&secrets, secret, uid).await?;
        }
        let patch = json!({ "metadata": { "uid": uid, "annotations": { STARTED: "true" } } });
        let name = job_name(&order.build);
        self.keep(ask(self.api().patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?);
        Ok(())
    }
}

impl Builder for OpenShiftBuilds {
    fn missing(&self, seen: &Seen) -> Option<String> {
        let kind = Kind::OpenShiftBuilds;
        if let Some(failure) = seen.failing.get(&kind).filter(|_| !seen.synced.contains(&kind)) {
            return Some(format!(
                "{} can't be read: {}; add the component openshift-builds on OpenShift, or remove the annotation {IMAGE_BUILDER}",
                kind.resource(),
                failure.cause
            ));
        }
        let is_named = !self.settings.agent_image.is_empty();
        (!is_named).then(|| {
            "the build settings have no agentImage; name it in the file of --build-settings".to_owned()
        })
    }

    fn mounted_secrets(&self) -> Vec<&str> {
        self.settings.mounted_secrets()
    }

    fn create<'a>(&'a self, order: &'a Order) -> Answer<'a, ()> {
        Box::pin(async move {
            let made = serde_json::from_value(openshift_build(&order.request(), &self.settings));
            let made = made.map_err(|error| RequestError::Failed(error.to_string()))?;
            self.keep(ask(self.api().create(&PostParams::default(), &made)).await?);
            Ok(())
        })
    }

    fn start<'a>(&'a self, order: &'a Order, uid: &'a str, credentials: &'a Credentials) -> Answer<'a, ()> {
        Box::pin(self.let_run(order, uid, credentials))
    }

    fn delete<'a>(&'a self, name: &'a str, uid: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let how = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            match ask(self.api().delete(name, &how)).await {
                Ok(_) => {}
                Err(error) if error.code() == 404 => {}
                Err(error) => return Err(error),
            }
            self.find(name).await.map(drop)
        })
    }

    fn find<'a>(&'a self, name: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            match ask(self.api().get(name)).await {
                Ok(found) => {
                    let uid = found.uid();
                    self.keep(found);
                    Ok(uid)
                }
                Err(error) if error.code() == 404 => {
                    self.cache.change(|seen| OpenShiftBuild::remove(seen, name));
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
    }

    fn outcome<'a>(&'a self, build: &'a str, uid: &'a str, push_spec: &'a str) -> Answer<'a, Ended> {
        Box::pin(async move {
            match ask(self.api().get(&job_name(build))).await {
                Ok(found) if found.uid().as_deref() == Some(uid) => {
                    let outcome = openshift_outcome(&found.tree(), |digest| image(push_spec, digest));
                    Ok(Ended { is_gone: false, outcome })
                }
                Ok(_) => Ok(Ended { is_gone: true, ..Ended::default() }),
                Err(error) if error.code() == 404 => Ok(Ended { is_gone: true, ..Ended::default() }),
                Err(error) => Err(error),
            }
        })
    }
}
