//! Log lines and Events for people. Their names are the Machine Config Operator's.

use kube::Client;
use tracing::{info, warn};

use super::group::Group;
use crate::build::{
    Action, Answers, BuilderType, DeletionReason, DesiredBuild, PoolCondition, State, Status,
};
use crate::controllers::client::RequestError;
use crate::controllers::contested::Field;
use crate::controllers::events::{About, Severity, emit};

/// The most of a message that a line has: a builder's last words may be long.
const MAX_LINE: usize = 300;

/// Builds of a `MachineOSConfig` that is gone that an error is told of.
const MAX_TOLD: usize = 4;

/// Reports an action that was carried out, about the group as it was before.
pub(super) struct Reporter<'a> {
    pub(super) client: &'a Client,
    pub(super) group: &'a Group,
    /// The desired build, as the cache has it now: name and UID.
    pub(super) build: Option<(String, String)>,
    /// Answers of registries and pods before it.
    pub(super) answers: &'a Answers,
}

impl Reporter<'_> {
    pub(super) async fn report(&self, action: &Action) {
        let name = self.build.as_ref().map(|(name, _)| name.as_str()).unwrap_or_default();
        match action {
            Action::CreateBuild { pre_built, .. } => self.created(name, *pre_built).await,
            Action::DeleteBuild { name, uid, reason } => {
                let why = match reason {
                    DeletionReason::Superseded => "another one is required",
                    DeletionReason::Rebuild => "it is made again",
                };
                let about = About::os_build(name, uid);
                self.log_and_emit(
                    &about,
                    Severity::Normal,
                    "BuildDeleted",
                    &format!("Deleted build {name}: {why}"),
                )
                .await;
            }
            Action::ReleaseBuild { name, uid } => self.released(name, uid).await,
            Action::BeginRebuild { .. } => {
                self.config("RebuildRequested", &format!("Rebuild of {} was requested", self.group.name))
                    .await;
            }
            Action::CreateJob => {
                let kind = self.kind(name);
                self.of_build("JobCreated", &format!("Created the {kind} of build {name}")).await;
            }
            Action::StartJob { .. } => {
                let kind = self.kind(name);
                self.of_build("JobStarted", &format!("Started the {kind} of build {name}")).await;
            }
            Action::DeleteJob { name, .. } => {
                let build = self.build.as_ref().map(|(build, _)| build.as_str()).unwrap_or_default();
                let kind = self.kind(build);
                self.of_build("JobDeleted", &format!("Deleted {kind} {name}")).await;
            }
            Action::WriteStatus(status) => self.state(name, status).await,
            Action::Publish { image, .. } => {
                let text = format!("MachineOSConfig {} has image {image} of build {name}", self.group.name);
                self.config("ConfigReconciled", &text).await;
            }
            Action::SetCondition(condition) => self.condition(condition).await,
            Action::EndRebuild
            | Action::RecordJob { .. }
            | Action::NameBuild
            | Action::Query(_)
            | Action::DeleteImage { .. }
            | Action::Wait { .. } => {}
        }
    }

    /// Returns the kind of the object that carries a build out.
    fn kind(&self, build: &str) -> &'static str {
        if self.group.builder(build) == BuilderType::OpenShiftBuild { "Build" } else { "Job" }
    }

    async fn created(&self, name: &str, pre_built: bool) {
        let config = self.group.os_config.as_ref().map(|config| &config.build);
        if config.is_some_and(|config| config.current.is_some()) {
            let text = format!("Configuration of {} changed: build {name} is required", self.group.name);
            self.config("PoolConfigChanged", &text).await;
        }
        let what = if pre_built { "its image was built before" } else { "an image is required" };
        self.of_build("BuildStarted", &format!("Created build {name}: {what}")).await;
    }

    async fn released(&self, name: &str, uid: &str) {
        let Some(cause) = self.answers.undeleted(name) else {
            info!("Released build {name}, which is being deleted");
            return;
        };
        let image = self.group.builds.get(name).and_then(|build| build.build.image.as_deref());
        let text = format!(
            "Released build {name}, which is being deleted; its image {} stays in the registry: {cause}; delete it there",
            image.unwrap_or_default()
        );
        self.log_and_emit(&About::os_build(name, uid), Severity::Warning, "ImageNotDeleted", &text).await;
    }

    async fn state(&self, name: &str, status: &Status) {
        let message: String = status.message.chars().take(MAX_LINE).collect();
        let (severity, reason, job, text) = match status.state {
            State::Initial => return,
            State::Prepared => (Severity::Normal, "BuildPreparing", None, "waits for its pod".to_owned()),
            State::Building => (Severity::Normal, "BuildBuilding", None, "runs".to_owned()),
            State::Succeeded => {
                let image = status.image.as_deref().unwrap_or_default();
                let text = format!("succeeded with image {image}");
                (Severity::Normal, "BuildCompleted", Some("JobCompleted"), text)
            }
            State::Failed => {
                (Severity::Warning, "BuildFailed", Some("JobFailed"), format!("failed: {message}"))
            }
            State::Interrupted => {
                (Severity::Warning, "BuildInterrupted", None, format!("was interrupted: {message}"))
            }
        };
        let Some((_, uid)) = &self.build else { return };
        let about = About::os_build(name, uid);
        self.log_and_emit(&about, severity, reason, &format!("Build {name} {text}")).await;
        // One without a Job reused an image, or could not be built.
        let has_job = self.group.builds.get(name).is_some_and(|build| build.build.job_uid.is_some());
        if let Some(reason) = job.filter(|_| has_job) {
            emit(
                self.client,
                &about,
                severity,
                reason,
                &format!("The {} of build {name} has ended", self.kind(name)),
            )
            .await;
        }
    }

    async fn condition(&self, condition: &PoolCondition) {
        let Some(pool) = &self.group.object else { return };
        let name = pool.metadata.name.clone().unwrap_or_default();
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        let was_degraded = self.group.is_degraded();
        if condition.is_degraded {
            self.log_and_emit(&about, Severity::Warning, "BuildDegraded", &condition.message).await;
        } else if was_degraded {
            self.log_and_emit(&about, Severity::Normal, "BuildRecovered", &condition.message).await;
        }
        if condition.reason == "NoLayeredObjects" {
            self.log_and_emit(&about, Severity::Normal, "ConfigDeleted", &condition.message).await;
        }
    }

    async fn of_build(&self, reason: &str, text: &str) {
        let Some((name, uid)) = &self.build else { return };
        self.log_and_emit(&About::os_build(name, uid), Severity::Normal, reason, text).await;
    }

    async fn config(&self, reason: &str, text: &str) {
        let Some(config) = &self.group.os_config else { return };
        let about = About::os_config(&self.group.name, &config.build.uid);
        self.log_and_emit(&about, Severity::Normal, reason, text).await;
    }

    async fn log_and_emit(&self, about: &About, severity: Severity, reason: &str, text: &str) {
        match severity {
            Severity::Normal => info!("{text}"),
            Severity::Warning => warn!("{text}"),
        }
        emit(self.client, about, severity, reason, text).await;
    }
}

/// Names a field that another program may set back, and the object that has it.
pub(super) fn field(group: &Group, desired: Option<&DesiredBuild>, action: &Action) -> Option<Field> {
    let uid = group.os_config.as_ref().map(|config| config.build.uid.as_str()).unwrap_or_default();
    let of_config = |field: &str| {
        let about = About::os_config(&group.name, uid);
        Some(Field::new(about, format!("{field} of MachineOSConfig {}", group.name)))
    };
    match action {
        Action::NameBuild => of_config("annotation current-machine-os-build"),
        Action::Publish { .. } => of_config("status"),
        Action::WriteStatus(_) => {
            let name = &desired?.name;
            let uid = &group.builds.get(name)?.build.uid;
            Some(Field::new(About::os_build(name, uid), format!("status of MachineOSBuild {name}")))
        }
        Action::SetCondition(_) => {
            let pool = &group.object.as_ref()?.metadata;
            let name = pool.name.as_deref().unwrap_or_default();
            let about = About::pool(name, pool.uid.as_deref().unwrap_or_default());
            Some(Field::new(about, format!("condition ImageBuildDegraded of pool {name}")))
        }
        // They are of objects of ours.
        Action::Query(_)
        | Action::CreateBuild { .. }
        | Action::DeleteBuild { .. }
        | Action::DeleteImage { .. }
        | Action::ReleaseBuild { .. }
        | Action::BeginRebuild { .. }
        | Action::EndRebuild
        | Action::CreateJob
        | Action::RecordJob { .. }
        | Action::StartJob { .. }
        | Action::DeleteJob { .. }
        | Action::Wait { .. } => None,
    }
}

/// Returns what an action writes. The same for another build, or about another generation, is a change of ours.
pub(super) fn content(group: &Group, desired: Option<&DesiredBuild>, action: &Action) -> String {
    let build = desired.map(|desired| &*desired.name).unwrap_or_default();
    let generation = group.os_config.as_ref().map(|config| config.build.generation).unwrap_or_default();
    match action {
        // Its status names the generation.
        Action::Publish { .. } => format!("{action:?} of {build} for generation {generation}"),
        Action::Query(_)
        | Action::CreateBuild { .. }
        | Action::DeleteBuild { .. }
        | Action::DeleteImage { .. }
        | Action::ReleaseBuild { .. }
        | Action::BeginRebuild { .. }
        | Action::EndRebuild
        | Action::NameBuild
        | Action::CreateJob
        | Action::RecordJob { .. }
        | Action::StartJob { .. }
        | Action::DeleteJob { .. }
        | Action::WriteStatus(_)
        | Action::SetCondition(_)
        | Action::Wait { .. } => format!("{action:?} of {build}"),
    }
}

/// Returns the text on a request that failed, with the next step where it is a person's.
pub(super) fn error_text(error: &RequestError) -> String {
    let next = match error.code() {
        403 => {
            "; grant the controller's account this right, as its manifests do, or correct the webhook that refuses it"
        }
        401 => "; renew the controller's token or kubeconfig",
        _ => "",
    };
    format!("{error}{next}")
}

/// Reports that something could not be read or written: at the `MachineOSConfig`, and once that is gone at what it left.
pub(super) async fn failed(client: &Client, group: &Group, error: &str) {
    warn!("MachineOSConfig {}: {error}", group.name);
    for about in left(group) {
        emit(client, &about, Severity::Warning, "ConfigReconcileFailed", error).await;
    }
}

fn left(group: &Group) -> Vec<About> {
    if let Some(config) = &group.os_config {
        return vec![About::os_config(&group.name, &config.build.uid)];
    }
    let builds = group.builds.iter().map(|(name, build)| About::os_build(name, &build.build.uid));
    let pool = group.object.iter().map(|pool| {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        About::pool(name, pool.metadata.uid.as_deref().unwrap_or_default())
    });
    // The pool of its name may never have been its own.
    let builds: Vec<About> = builds.take(MAX_TOLD).collect();
    if builds.is_empty() { pool.collect() } else { builds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Ready;
    use crate::controllers::cache::Snapshot;
    use crate::controllers::cached::Cached as _;
    use crate::controllers::untyped::MachineOsConfig;
    use crate::retry::Repeats;

    fn group(generation: i64) -> Group {
        let config: kube::api::DynamicObject = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "worker", "uid": "u", "generation": generation },
            "spec": { "machineConfigPool": { "name": "worker" } },
        }))
        .unwrap();
        let mut snapshot = Snapshot::default();
        MachineOsConfig::from(config).put(&mut snapshot);
        Group::new("worker", &snapshot)
    }

    /// Each is a change of ours, however fast they follow each other. The same one again is not.
    #[test]
    fn writes_for_another_build_or_generation_are_no_contest() {
        let image = "r.test/os@sha256:1".to_owned();
        for action in [Action::NameBuild, Action::Publish { image, seeded: false }] {
            let mut repeats = Repeats::default();
            let mut write = |build: &str, generation: i64, second: u64| {
                let desired =
                    DesiredBuild { name: build.to_owned(), inputs: String::new(), ready: Ready::Yes };
                let content = content(&group(generation), Some(&desired), &action);
                let now = std::time::Duration::from_secs(second);
                (repeats.wrote("field", &content, now), repeats.wait("field", &content, now).is_some())
            };
            for (second, build) in (0..).zip(["a", "b", "c", "d", "e"]) {
                let generation = i64::try_from(second).unwrap();
                assert_eq!(write(build, generation, second), (false, false), "{action:?}");
            }
            let again: Vec<_> = [5, 6].map(|second| write("e", 4, second)).into();
            assert_eq!(again, [(false, false), (true, true)], "{action:?}");
        }
        // An edit of the MachineOSConfig has the same image named again, for its generation.
        let mut repeats = Repeats::default();
        let action = Action::Publish { image: "r.test/os@sha256:1".to_owned(), seeded: false };
        let desired = DesiredBuild { name: "a".to_owned(), inputs: String::new(), ready: Ready::Yes };
        for generation in 1..9 {
            let content = content(&group(generation), Some(&desired), &action);
            assert!(!repeats.wrote("field", &content, std::time::Duration::ZERO), "{content}");
        }
    }
}
