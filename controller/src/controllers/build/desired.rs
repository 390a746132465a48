//! The build that a pool's target and its `MachineOSConfig` request.

use kube::{Api, Client};

use super::builder::{Builder, Order};
use super::group::Group;
use super::surroundings::Place;
use crate::api::pool::Configuration;
use crate::api::{MachineConfig, MachineOSConfigSpec};
use crate::build::{
    DesiredBuild, IMAGE_BUILDER, Inputs, JobSettings, OPENSHIFT_BUILD, Ready, Surroundings, build_name,
    check_size, image_inputs, push_spec, user_lines,
};
use crate::controllers::cache::Snapshot;
use crate::controllers::client::{self, RequestError};
use crate::image::{ApplyBy, Context, Request, compose};
use crate::reading::Lenient;

/// Content of a build, as long as neither `MachineOSConfig` nor target change. The rendered config itself is read again when a Job
/// needs it: it may be large.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    os_config: (String, i64),
    configuration: Configuration,
    name: String,
    inputs: String,
    ready: Ready,
}

impl Plan {
    /// Returns true if it still holds.
    pub(super) fn holds(&self, group: &Group) -> bool {
        let config =
            group.os_config.as_ref().map(|config| (config.build.uid.clone(), config.build.generation));
        config.as_ref() == Some(&self.os_config)
            && group.target().is_some_and(|(_, configuration)| *configuration == self.configuration)
    }

    /// Makes one; `None` where there is no target that can be read.
    pub(super) async fn new(
        client: &Client,
        group: &Group,
        apply_by: ApplyBy,
    ) -> Result<Option<Self>, RequestError> {
        let (Some(config), Some((target, configuration))) = (&group.os_config, group.target()) else {
            return Ok(None);
        };
        let Ok(spec) = &config.spec else { return Ok(None) };
        let Some(rendered) = read(client, &target).await? else { return Ok(None) };
        let inputs = Inputs { os_config: &group.name, spec, configuration, rendered: &rendered, apply_by };
        let (Ok(name), Ok(image)) = (build_name(&inputs), image_inputs(&inputs)) else { return Ok(None) };
        let ready = match context(rendered, &config.pool, spec, apply_by).await {
            Ok(_) => Ready::Yes,
            Err(not_ready) => not_ready,
        };
        let os_config = (config.build.uid.clone(), config.build.generation);
        Ok(Some(Self { os_config, configuration: configuration.clone(), name, inputs: image, ready }))
    }

    /// Name of the build.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the desired build, with its readiness by the cache.
    pub(super) fn desired_build(
        &self,
        group: &Group,
        snapshot: &Snapshot,
        builder: Option<&dyn Builder>,
    ) -> DesiredBuild {
        let missing = if let Some(builder) = builder {
            builder
                .missing(snapshot)
                .or_else(|| missing_secret(group, snapshot))
                .or_else(|| missing_mount(&builder.settings().mounted_secrets(), snapshot))
        } else {
            let kind = group.builder(&self.name);
            let kind = kind.as_str();
            Some(format!(
                "there is no builder {kind:?}; set the annotation {IMAGE_BUILDER} to Job or {OPENSHIFT_BUILD}"
            ))
        };
        let ready = match (&self.ready, missing) {
            (Ready::Yes, Some(what)) => Ready::Missing(what),
            (ready, _) => ready.clone(),
        };
        DesiredBuild { name: self.name.clone(), inputs: self.inputs.clone(), ready }
    }
}

/// Returns the Secret that a build waits for, with the next step.
fn missing_secret(group: &Group, snapshot: &Snapshot) -> Option<String> {
    let spec = group.os_config.as_ref()?.spec.as_ref().ok()?;
    let secrets = [Some(&spec.rendered_image_push_secret), spec.base_image_pull_secret.as_ref()];
    secrets.into_iter().flatten().find_map(|secret| {
        let name = &secret.name;
        match snapshot.secrets.get(name) {
            None => Some(format!("there is no Secret {name} in the controller's namespace; create it")),
            Some(secret) if !secret.has_credentials => {
                Some(format!("Secret {name} has no credentials of a registry; create it with `kubectl create secret docker-registry`"))
            }
            Some(_) => None,
        }
    })
}

/// Returns the Secret of the build settings that a build waits for, with the next step.
fn missing_mount(secrets: &[&str], snapshot: &Snapshot) -> Option<String> {
    let name = secrets.iter().find(|name| !snapshot.secrets.contains_key(**name))?;
    Some(format!(
        "there is no Secret {name} in the controller's namespace, which the build settings mount; create it, or remove the mount"
    ))
}

/// Reads a rendered config.
async fn read(client: &Client, name: &str) -> Result<Option<MachineConfig>, RequestError> {
    match client::read(Api::<Lenient<MachineConfig>>::all(client.clone()).get(name)).await {
        Ok(rendered) => Ok(Some(rendered)),
        Err(error) if error.code() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns what the build is made of, or why there is none. A large config is compressed for longer than a Lease may wait, so this
/// is not done on the thread of all others.
async fn context(
    rendered: MachineConfig,
    pool: &str,
    spec: &MachineOSConfigSpec,
    apply_by: ApplyBy,
) -> Result<Context, Ready> {
    let (pool, spec) = (pool.to_owned(), spec.clone());
    let made = tokio::task::spawn_blocking(move || composed(&rendered, &pool, &spec, apply_by)).await;
    // A panic ends the process, and nobody cancels it.
    made.unwrap_or_else(|error| Err(Ready::Invalid(error.to_string())))
}

fn composed(
    rendered: &MachineConfig,
    pool: &str,
    spec: &MachineOSConfigSpec,
    apply_by: ApplyBy,
) -> Result<Context, Ready> {
    let name = rendered.metadata.name.clone().unwrap_or_default();
    let base = rendered.spec.os_image_url.as_deref().unwrap_or_default();
    if base.is_empty() {
        return Err(Ready::Missing(format!(
            "{name} has no osImageURL; set one in a MachineConfig of the pool"
        )));
    }
    let request =
        Request { rendered, pool: Some(pool), base, containerfile: user_lines(spec), apply_by, trust: None };
    let context = compose(&request).map_err(|error| Ready::Invalid(error.to_string()))?;
    check_size(&name, &context).map_err(|error| Ready::Invalid(error.to_string()))?;
    Ok(context)
}

/// Returns what a builder carries out for the desired build; `None` where something of it is gone.
pub(super) async fn order(
    place: Place<'_>,
    group: &Group,
    desired: &DesiredBuild,
    settings: &JobSettings,
) -> Result<Option<Order>, RequestError> {
    let client = place.client;
    let (Some(config), Some((target, _))) = (&group.os_config, group.target()) else { return Ok(None) };
    let (Ok(spec), Some(build)) = (&config.spec, group.builds.get(&desired.name)) else { return Ok(None) };
    let Some(rendered) = read(client, &target).await? else { return Ok(None) };
    let made = context(rendered.clone(), &config.pool, spec, settings.apply_by).await;
    let Ok(context) = made else { return Ok(None) };
    let surroundings = if settings.from_cluster {
        place.surroundings(rendered, &config.pool, !settings.policy_json.is_empty()).await?
    } else {
        Surroundings::default()
    };
    Ok(Some(Order {
        build: desired.name.clone(),
        build_uid: build.build.uid.clone(),
        os_config: group.name.clone(),
        pool: config.pool.clone(),
        rendered: target,
        push_spec: push_spec(&spec.rendered_image_push_spec, &desired.name),
        context,
        surroundings,
    }))
}
