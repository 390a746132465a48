//! Carries an action out. Each write names the UID, and what overwrites names the observed version.

use jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::builder::{Builder, Credentials, Order};
use super::group::{DEGRADED, Group};
use super::queries::{NO_CREDENTIALS, read_credentials};
use super::surroundings::Place;
use super::{desired, written};
use crate::api::MachineConfigPool;
use crate::api::pool::Condition;
use crate::api::{CURRENT_BUILD, MachineOSConfigSpec};
use crate::build::{
    Action, BUILD_NAMESPACE, BuilderType, DesiredBuild, FINALIZER, JOB_UID, PoolCondition, REBUILD, REPLACES,
    Status, job_name,
};
use crate::controllers::cache::Cache;
use crate::controllers::cached::{Cached as _, Identified as _, store};
use crate::controllers::client::{RequestError, send};
use crate::controllers::conflict::{Expected, or_judged};
use crate::controllers::layering::OsBuild;
use crate::controllers::render::with_condition;
use crate::controllers::untyped::{MachineOsBuild, MachineOsConfig};
use crate::controllers::write::{Write, write, write_and_read};
use crate::reading::Lenient;

/// Objects and clients that a write needs.
pub(super) struct Writer<'a> {
    pub(super) client: &'a Client,
    pub(super) cache: &'a Cache,
    pub(super) namespace: &'a str,
    pub(super) builder: Option<&'a dyn Builder>,
    pub(super) group: &'a Group,
    pub(super) desired: Option<&'a DesiredBuild>,
}

/// Something that was decided by is gone: it is read and decided again.
fn gone() -> RequestError {
    RequestError::Failed("its owner is gone".to_owned())
}

/// Somebody wrote to a build meanwhile: it is read and decided again.
fn changed(name: &str) -> RequestError {
    let text = format!("build {name} was changed meanwhile");
    let status = kube::core::Status::failure(&text, "Conflict");
    RequestError::Refused(Box::new(status.with_code(409)))
}

impl Writer<'_> {
    pub(super) async fn execute(&self, action: &Action) -> Result<(), RequestError> {
        match action {
            Action::CreateBuild { pre_built, no_reuse } => self.create_build(*pre_built, *no_reuse).await,
            Action::DeleteBuild { name, uid, .. } => self.delete_build(name, uid).await,
            Action::ReleaseBuild { name, uid } => self.release(name, uid).await,
            Action::BeginRebuild { replaces } => self.annotate(&json!({ REPLACES: replaces })).await,
            Action::EndRebuild => self.annotate(&json!({ REPLACES: null, REBUILD: null })).await,
            Action::NameBuild => {
                let name = self.desired.ok_or_else(gone)?.name.clone();
                self.annotate(&json!({ CURRENT_BUILD: name })).await
            }
            Action::CreateJob => {
                let order = self.order().await?;
                self.builder()?.create(&order).await
            }
            Action::RecordJob { uid } => self.record(uid).await,
            Action::StartJob { uid } => {
                let order = self.order().await?;
                let credentials = self.credentials(&order).await?;
                self.builder()?.start(&order, uid, &credentials).await
            }
            Action::DeleteJob { name, uid, .. } => self.builder()?.delete(name, uid).await,
            Action::WriteStatus(status) => self.write_status(status).await,
            Action::Publish { image, seeded } => self.publish(image, *seeded).await,
            Action::SetCondition(condition) => self.set_condition(condition).await,
            // Not writes.
            Action::Query(_) | Action::DeleteImage { .. } | Action::Wait { .. } => Ok(()),
        }
    }

    fn builder(&self) -> Result<&dyn Builder, RequestError> {
        self.builder.ok_or_else(gone)
    }

    fn builds(&self) -> Api<MachineOsBuild> {
        Api::all(self.client.clone())
    }

    fn store_build(&self, build: MachineOsBuild) {
        self.cache.change(|snapshot| build.put(snapshot));
    }

    async fn order(&self) -> Result<Order, RequestError> {
        let desired = self.desired.ok_or_else(gone)?;
        let place = Place { client: self.client, cache: self.cache, namespace: self.namespace };
        let settings = self.builder()?.settings();
        desired::order(place, self.group, desired, settings).await?.ok_or_else(gone)
    }

    fn spec(&self) -> Result<&MachineOSConfigSpec, RequestError> {
        let config = self.group.os_config.as_ref().ok_or_else(gone)?;
        config.spec.as_ref().map_err(|why| RequestError::Failed(why.clone()))
    }

    async fn credentials(&self, order: &Order) -> Result<Credentials, RequestError> {
        let spec = self.spec()?;
        let read = |name| read_credentials(self.client, self.namespace, name);
        let base = match &spec.base_image_pull_secret {
            Some(secret) => read(&secret.name).await?,
            None if order.surroundings.pull_secret.is_empty() => NO_CREDENTIALS.to_vec(),
            None => order.surroundings.pull_secret.clone(),
        };
        Ok(Credentials { base, push: read(&spec.rendered_image_push_secret.name).await? })
    }

    async fn create_build(&self, pre_built: bool, no_reuse: bool) -> Result<(), RequestError> {
        let desired = self.desired.ok_or_else(gone)?;
        let build = written::build(self.group, desired, pre_built, no_reuse).ok_or_else(gone)?;
        let build: DynamicObject =
            serde_json::from_value(build).map_err(|error| RequestError::Failed(error.to_string()))?;
        let (build, how) = (MachineOsBuild::from(build), PostParams::default());
        let builds = self.builds();
        let made = write(Write::OsBuild, builds.create(&how, &build)).await;
        let made = or_judged(Write::OsBuild, made, &Expected::Absent, builds.get(&desired.name)).await;
        self.store_build(made.map_err(of_build("creation", &desired.name))?);
        Ok(())
    }

    async fn delete_build(&self, name: &str, uid: &str) -> Result<(), RequestError> {
        // Who controls it may have changed since it was seen.
        let version = self.group.builds.get(name).map(|build| build.version.clone());
        let expected = Expected::Version { uid: Some(uid.to_owned()), version: version.clone() };
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: version };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = write(Write::OsBuild, self.builds().delete(name, &how)).await;
        let deleted = or_judged(Write::OsBuild, deleted, &expected, self.builds().get(name)).await;
        deleted.map_err(of_build("deletion", name))?;
        read_build(self.client, self.cache, name).await
    }

    async fn release(&self, name: &str, uid: &str) -> Result<(), RequestError> {
        let now = send(self.builds().get(name)).await.map_err(of_build("reading", name))?;
        let mut finalizers = now.object.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        let body = json!({ "metadata": {
            "uid": uid,
            "resourceVersion": now.object.metadata.resource_version,
            "finalizers": finalizers,
        }});
        let how = PatchParams::default();
        let released = write(Write::OsBuild, self.builds().patch(name, &how, &Patch::Merge(body))).await;
        let expected = Expected::of(&now.object.metadata);
        let released = or_judged(Write::OsBuild, released, &expected, self.builds().get(name)).await;
        released.map_err(of_build("release", name))?;
        read_build(self.client, self.cache, name).await
    }

    /// Writes annotations of the `MachineOSConfig`.
    async fn annotate(&self, annotations: &Value) -> Result<(), RequestError> {
        let config = self.group.os_config.as_ref().ok_or_else(gone)?;
        let body = json!({ "metadata": {
            "uid": config.build.uid, "resourceVersion": config.version, "annotations": annotations,
        }});
        let api = Api::<MachineOsConfig>::all(self.client.clone());
        let (name, how) = (&self.group.name, PatchParams::default());
        let now = write(Write::OsConfigAnnotations, api.patch(name, &how, &Patch::Merge(body))).await;
        let expected =
            Expected::Version { uid: Some(config.build.uid.clone()), version: Some(config.version.clone()) };
        let now = or_judged(Write::OsConfigAnnotations, now, &expected, api.get(name)).await;
        let now = now.map_err(|error| error.about(&format!("annotation of MachineOSConfig {name}")))?;
        self.cache.change(|snapshot| now.put(snapshot));
        Ok(())
    }

    async fn record(&self, uid: &str) -> Result<(), RequestError> {
        let name = &self.desired.ok_or_else(gone)?.name;
        let build = self.group.builds.get(name).ok_or_else(gone)?;
        let mut annotations = json!({ JOB_UID: uid });
        if let Some(annotations) = annotations.as_object_mut().filter(|_| build.builder != BuilderType::Job) {
            annotations.insert(BUILD_NAMESPACE.to_owned(), json!(self.namespace));
        }
        let body = json!({ "metadata": {
            "uid": build.build.uid, "resourceVersion": build.version, "annotations": annotations,
        }});
        let how = PatchParams::default();
        let now = write(Write::OsBuild, self.builds().patch(name, &how, &Patch::Merge(body))).await;
        let now = or_judged(Write::OsBuild, now, &expected(build), self.builds().get(name)).await;
        self.store_build(now.map_err(of_build("annotation", name))?);
        Ok(())
    }

    /// Writes the desired build's status, if it is still as observed.
    async fn write_status(&self, status: &Status) -> Result<(), RequestError> {
        let name = &self.desired.ok_or_else(gone)?.name;
        let known = self.group.builds.get(name).ok_or_else(gone)?;
        let now = send(self.builds().get(name)).await.map_err(of_build("reading", name))?;
        if now.object.metadata.resource_version.as_ref() != Some(&known.version) {
            return Err(changed(name));
        }
        let body = json!({
            "metadata": { "uid": known.build.uid, "resourceVersion": known.version },
            "status": written::status(&now.object, status, self.namespace, Timestamp::now()),
        });
        let (api, how) = (self.builds(), PatchParams::default());
        let now = write(Write::OsBuildStatus, api.patch_status(name, &how, &Patch::Merge(body))).await;
        let now = or_judged(Write::OsBuildStatus, now, &expected(known), api.get(name)).await;
        self.store_build(now.map_err(of_build("status", name))?);
        Ok(())
    }

    async fn publish(&self, image: &str, seeded: bool) -> Result<(), RequestError> {
        let name = &self.desired.ok_or_else(gone)?.name;
        let config = self.group.os_config.as_ref().ok_or_else(gone)?;
        let mut status = json!({
            "currentImagePullSpec": image,
            "machineOSBuild": {
                "group": "machineconfiguration.openshift.io", "resource": "machineosbuilds", "name": name,
            },
            "observedGeneration": config.build.generation,
        });
        let api = Api::<MachineOsConfig>::all(self.client.clone());
        if seeded && !config.build.seeded {
            let old = send(api.get(&self.group.name)).await.map_err(of_config(&self.group.name))?;
            let conditions = old.object.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
            if let Some(status) = status.as_object_mut() {
                status.insert("conditions".to_owned(), json!(with_seeded(conditions.unwrap_or_default())));
            }
        }
        let body = json!({
            "metadata": { "uid": config.build.uid, "resourceVersion": config.version },
            "status": status,
        });
        let how = PatchParams::default();
        let name = &self.group.name;
        let now = write(Write::OsConfigStatus, api.patch_status(name, &how, &Patch::Merge(body))).await;
        let expected =
            Expected::Version { uid: Some(config.build.uid.clone()), version: Some(config.version.clone()) };
        let now = or_judged(Write::OsConfigStatus, now, &expected, api.get(name)).await;
        let now = now.map_err(|error| error.about(&format!("status of MachineOSConfig {name}")))?;
        self.cache.change(|snapshot| now.put(snapshot));
        Ok(())
    }

    async fn set_condition(&self, condition: &PoolCondition) -> Result<(), RequestError> {
        let Some(pool) = &self.group.object else { return Ok(()) };
        let old = pool.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let new = Condition {
            type_: DEGRADED.to_owned(),
            status: if condition.is_degraded { "True" } else { "False" }.to_owned(),
            reason: Some(condition.reason.clone()),
            message: Some(condition.message.clone()),
            last_transition_time: None,
        };
        let Some(conditions) = with_condition(&old, new, Timestamp::now()) else { return Ok(()) };
        let name = pool.metadata.name.clone().unwrap_or_default();
        let body = json!({
            "metadata": { "uid": pool.metadata.uid, "resourceVersion": pool.metadata.resource_version },
            "status": { "conditions": conditions },
        });
        let api = Api::<Lenient<MachineConfigPool>>::all(self.client.clone());
        let how = PatchParams::default();
        let now =
            write_and_read(Write::BuildCondition, api.patch_status(&name, &how, &Patch::Merge(body))).await;
        let now = or_judged(Write::BuildCondition, now, &Expected::of(&pool.metadata), api.get(&name)).await;
        let now = now.map_err(|error| error.about(&format!("condition {DEGRADED} of pool {name}")))?;
        store(self.cache, now);
        Ok(())
    }
}

/// Names the object of an error: a server that does not answer names none.
fn of_build(action: &str, name: &str) -> impl FnOnce(RequestError) -> RequestError {
    let what = format!("{action} of MachineOSBuild {name}");
    move |error| error.about(&what)
}

/// As that, of a read.
fn of_config(name: &str) -> impl FnOnce(RequestError) -> RequestError {
    let what = format!("reading of MachineOSConfig {name}");
    move |error| error.about(&what)
}

/// The state that a build was read in.
fn expected(build: &OsBuild) -> Expected {
    Expected::Version { uid: Some(build.build.uid.clone()), version: Some(build.version.clone()) }
}

/// Adds the condition of a `MachineOSConfig` whose first image was built before the cluster.
fn with_seeded(mut conditions: Vec<Value>) -> Vec<Value> {
    conditions.retain(|condition| condition["type"] != "Seeded");
    let now = Timestamp::now().round(jiff::Unit::Second).unwrap_or_default();
    conditions.push(json!({
        "type": "Seeded", "status": "True", "reason": crate::build::SEEDED,
        "message": "The first image was built before the cluster", "lastTransitionTime": now.to_string(),
    }));
    conditions
}

/// Reads a build as it is now.
async fn read_build(client: &Client, cache: &Cache, name: &str) -> Result<(), RequestError> {
    let known = MachineOsBuild::known(cache, name);
    match send(Api::<MachineOsBuild>::all(client.clone()).get(name)).await {
        Ok(now) => cache.change(|snapshot| now.put(snapshot)),
        Err(error) if error.code() == 404 => {
            cache.change(|snapshot| MachineOsBuild::remove_gone(snapshot, name, known.as_deref()));
        }
        Err(error) => return Err(of_build("reading", name)(error)),
    }
    Ok(())
}

/// Reads all of a group as it is now: what was written may have come to something or not.
pub(super) async fn refresh(writer: &Writer<'_>) -> Result<(), RequestError> {
    let (client, cache, group) = (writer.client, writer.cache, writer.group);
    let known = MachineOsConfig::known(cache, &group.name);
    match send(Api::<MachineOsConfig>::all(client.clone()).get(&group.name)).await {
        Ok(now) => cache.change(|snapshot| now.put(snapshot)),
        Err(error) if error.code() == 404 => {
            cache.change(|snapshot| MachineOsConfig::remove_gone(snapshot, &group.name, known.as_deref()));
        }
        Err(error) => return Err(of_config(&group.name)(error)),
    }
    let desired = writer.desired.map(|desired| &desired.name);
    for build in group.builds.keys().chain(desired.filter(|name| !group.builds.contains_key(*name))) {
        read_build(client, cache, build).await?;
    }
    if let (Some(builder), Some(desired)) = (writer.builder, desired) {
        builder.find(&job_name(desired)).await?;
    }
    if let Some(pool) = group.object.as_ref().and_then(|pool| pool.metadata.name.as_ref()) {
        match send(Api::<Lenient<MachineConfigPool>>::all(client.clone()).get(pool)).await {
            Ok(now) => cache.change(|snapshot| now.put(snapshot)),
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error.about(&format!("reading of pool {pool}"))),
        }
    }
    Ok(())
}
