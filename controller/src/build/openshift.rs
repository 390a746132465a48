//! The builder `OpenShiftBuild`: a Build of `build.openshift.io`, and what its phases mean. Pure.
//!
//! # Decisions
//!
//! - A Build can't be created suspended. Its pod waits until the Secrets that it mounts are there, so the inputs come after it as with a
//!   Job, and the annotation [`STARTED`] says that they are.
//! - One try: OpenShift's builder repeats the push by itself, and nothing else. Another one is a rebuild.
//! - The Containerfile stands in the Build; the config is a Secret, and the agent's executable is taken out of its image.

use serde_json::{Value, json};

use super::archives;
use super::input::{Job, Outcome};
use super::mounts::volume_name;
use super::objects::{JobRequest, JobSettings, metadata};
use crate::image::AGENT;

/// The type of a builder that makes Builds.
pub const OPENSHIFT_BUILD: &str = "OpenShiftBuild";

/// The annotation of a Build whose inputs are there.
pub const STARTED: &str = "machine-config-agent.io/started";

/// The label of an image with its pool: OpenShift's own name of the source design.
const POOL_LABEL: &str = "io.openshift.machineconfig.pool";

/// The most of a failed build's last words that is reported.
const MAX_FAILURE: usize = 1000;

/// Returns a build's Build.
pub fn openshift_build(request: &JobRequest<'_>, settings: &JobSettings) -> Value {
    let named = |prefix: &str| json!({ "name": format!("{prefix}-{}", request.build) });
    let env: Vec<Value> =
        settings.proxy.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let mounts = settings.mounts.iter().enumerate();
    let volumes: Vec<Value> =
        mounts.map(|(number, mount)| mount.build_volume(&volume_name(number))).collect();
    let files = archives::secrets(request.build, request.context);
    let files: Vec<Value> =
        files.map(|(name, ..)| json!({ "secret": { "name": name }, "destinationDir": "." })).collect();
    let mut spec = json!({
        "completionDeadlineSeconds": settings.deadline,
        "resources": settings.resources,
        "source": {
            "type": "Dockerfile",
            "dockerfile": request.context.containerfile,
            "secrets": files,
            "images": [{
                "from": { "kind": "DockerImage", "name": settings.agent_image },
                "paths": [{ "sourcePath": format!("/usr/bin/{AGENT}"), "destinationDir": "." }],
            }],
        },
        "strategy": {
            "type": "Docker",
            "dockerStrategy": {
                "pullSecret": named("base"),
                "noCache": true,
                "forcePull": true,
                "imageOptimizationPolicy": "SkipLayers",
                "env": env,
                "volumes": volumes,
            },
        },
        "output": {
            "to": { "kind": "DockerImage", "name": request.push_spec },
            "pushSecret": named("final"),
            "imageLabels": [{ "name": POOL_LABEL, "value": request.pool }],
        },
    });
    if let Some(spec) = spec.as_object_mut().filter(|_| !settings.node_selector.is_empty()) {
        spec.insert("nodeSelector".to_owned(), json!(settings.node_selector));
    }
    json!({
        "apiVersion": "build.openshift.io/v1",
        "kind": "Build",
        "metadata": metadata(request, settings),
        "spec": spec,
    })
}

fn text<'a>(build: &'a Value, pointer: &str) -> &'a str {
    build.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a Build as the decisions know it.
pub fn reduced(build: &Value) -> Job {
    let owner = build.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owner = owner
        .into_iter()
        .flatten()
        .find(|owner| owner["kind"] == "MachineOSBuild" && owner["controller"] == true);
    let job = Job {
        uid: text(build, "/metadata/uid").to_owned(),
        owner: owner.map(|owner| text(owner, "/uid").to_owned()).unwrap_or_default(),
        deleting: build.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
        ..Job::default()
    };
    let annotations = build.pointer("/metadata/annotations").and_then(Value::as_object);
    let is_started = annotations.is_some_and(|annotations| annotations.contains_key(STARTED));
    match text(build, "/status/phase") {
        "Running" => Job { active: 1, ..job },
        "Complete" => Job { succeeded: 1, is_complete: true, ..job },
        "Failed" | "Error" | "Cancelled" => Job { failed: 1, failure: Some(failure(build, last)), ..job },
        // New, Pending, and what a later version calls so.
        _ => Job { suspended: !is_started, ..job },
    }
}

/// Returns what a Build that ended has left.
pub fn outcome(
    build: &Value,
    image: impl Fn(&str) -> Option<String>,
    explained: impl Fn(&str) -> String,
) -> Outcome {
    match text(build, "/status/phase") {
        "Complete" => Outcome { image: image(text(build, "/status/output/to/imageDigest")), failure: None },
        _ => Outcome { image: None, failure: Some(failure(build, explained)) },
    }
}

/// Cause of the failure: by its last lines, else the message.
fn failure(build: &Value, explained: impl Fn(&str) -> String) -> String {
    let words = ["/status/logSnippet", "/status/message", "/status/reason", "/status/phase"];
    let found = words.into_iter().map(|pointer| text(build, pointer).trim()).find(|words| !words.is_empty());
    let words = explained(found.unwrap_or("no message"));
    format!("Build {}: {words}", text(build, "/metadata/name"))
}

/// The end of a text: the error is there.
fn last(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(MAX_FAILURE);
    text.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::build::{State, progress};
    use crate::image::Context;

    fn context() -> Context {
        let files = BTreeMap::from([("machineconfig.json".to_owned(), b"pa55word".to_vec())]);
        Context { containerfile: "FROM registry.test/os\nRUN true\n".to_owned(), files }
    }

    #[expect(clippy::needless_pass_by_value, reason = "as json! makes it")]
    fn build(phase: &str, more: Value) -> Value {
        let mut status = json!({ "phase": phase });
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        json!({
            "metadata": { "name": "build-worker-1", "uid": "u", "annotations": { STARTED: "" },
                "ownerReferences": [{ "kind": "MachineOSBuild", "uid": "o", "controller": true }] },
            "status": status,
        })
    }

    #[test]
    fn build_holds_text_and_names_of_secrets() {
        let context = context();
        let request = JobRequest {
            build: "worker-1",
            build_uid: "build-uid",
            os_config: "worker",
            pool: "worker",
            rendered: "rendered-worker-a",
            push_spec: "registry.test/os:worker-1",
            context: &context,
        };
        let settings = JobSettings {
            namespace: "ns".to_owned(),
            agent_image: "registry.test/agent:1".to_owned(),
            proxy: BTreeMap::from([("HTTPS_PROXY".to_owned(), "http://proxy.test".to_owned())]),
            ..JobSettings::default()
        };
        let build = openshift_build(&request, &settings);
        assert_eq!(build["metadata"]["name"], "build-worker-1");
        assert_eq!(build["metadata"]["ownerReferences"][0]["uid"], "build-uid");
        let source = &build["spec"]["source"];
        assert_eq!(source["dockerfile"], context.containerfile);
        assert_eq!(source["secrets"][0]["secret"]["name"], "mc-worker-1");
        assert_eq!(source["images"][0]["paths"][0]["sourcePath"], "/usr/bin/machine-config-agent");
        let strategy = &build["spec"]["strategy"]["dockerStrategy"];
        assert_eq!(strategy["imageOptimizationPolicy"], "SkipLayers");
        assert_eq!(strategy["env"][0]["name"], "HTTPS_PROXY");
        assert_eq!(build["spec"]["output"]["pushSecret"]["name"], "final-worker-1");
        assert_eq!(build["spec"]["output"]["to"]["name"], "registry.test/os:worker-1");
        assert!(!build.to_string().contains("pa55word"), "contents are in the Secret");
    }

    /// The phases of the source design: New and Pending wait, Running builds, Complete ends well, the others do not.
    #[test]
    fn phases_become_states() {
        let table = [
            ("New", State::Prepared),
            ("Pending", State::Prepared),
            ("Running", State::Building),
            ("Complete", State::Succeeded),
            ("Failed", State::Failed),
            ("Error", State::Failed),
            ("Cancelled", State::Failed),
            ("", State::Prepared),
        ];
        for (phase, state) in table {
            let job = reduced(&build(phase, json!({})));
            assert_eq!(progress(&job), state, "{phase}");
            assert!(!job.suspended && job.uid == "u" && job.owner == "o", "{job:?}");
        }
        let mut waiting = build("New", json!({}));
        waiting["metadata"]["annotations"] = json!({});
        assert!(reduced(&waiting).suspended, "its inputs are not there");
        waiting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(progress(&reduced(&waiting)), State::Interrupted);
    }

    #[test]
    fn digest_or_last_lines_are_left() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let by = |digest: &str| (!digest.is_empty()).then(|| format!("registry.test/os@{digest}"));
        let done = build("Complete", json!({ "output": { "to": { "imageDigest": digest } } }));
        assert_eq!(outcome(&done, by, last).image, Some(format!("registry.test/os@{digest}")));
        assert_eq!(outcome(&build("Complete", json!({})), by, last).image, None);
        let snippet = json!({ "logSnippet": "STEP 3: RUN false\nerror: exit status 1", "message": "Docker build failed" });
        let failure = outcome(&build("Failed", snippet), by, last).failure.unwrap();
        assert!(failure.starts_with("Build build-worker-1: STEP 3: RUN false"), "{failure}");
        let failure = outcome(&build("Cancelled", json!({ "message": "cancelled by user" })), by, last)
            .failure
            .unwrap();
        assert!(failure.ends_with("cancelled by user"), "{failure}");
    }
}
