//! The documents of `tests/corpus` by `validate`: each field, and each object beside the config, has the fate that the agent's plan gives
//! it on every host. What only a host decides is none of a directory's business.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::corpus_samples::{Sample, covers, fields, samples, title};

const GROUP: &str = "machineconfiguration.openshift.io/v1";
const ROLE: &str = "machineconfiguration.openshift.io/role";

/// Kinds that `validate` reads beside MachineConfigs.
const READ: [&str; 1] = ["MachineConfigPool"];

/// The fates of a sample's lines, where both kinds of host have the same one; `None` where the host decides.
fn expected(sample: &Sample) -> BTreeMap<String, Option<String>> {
    let lines = std::fs::read_to_string(sample.path.with_extension("fates")).unwrap();
    // FIPS comes with an installation: refused by hosts that were installed without it.
    let is_of_host = lines.lines().any(|line| line.starts_with("spec.fips: refused"));
    let fate = |line: &str| {
        let (leaf, fates) = line.split_once(": ").unwrap();
        let (plain, with_os) = fates.split_once(" | ").unwrap();
        let is_refused = |fate: &str| fate.starts_with("refused");
        // A difference that a host cannot get to is no fault of the document.
        let is_of_document = is_refused(plain) == is_refused(with_os) && !is_of_host;
        let fate = if is_refused(plain) { plain } else { with_os };
        (leaf.to_owned(), is_of_document.then(|| fate.to_owned()))
    };
    lines.lines().map(fate).collect()
}

/// The manifests of a cluster with the sample: what the agent takes for itself becomes a MachineConfig.
fn manifests(sample: &Sample, at: &Path) {
    let put = |name: &str, document: &str| std::fs::write(at.join(name), document).unwrap();
    let selector = json!({ "matchLabels": { ROLE: "worker" } });
    let pool = json!({"apiVersion": GROUP, "kind": "MachineConfigPool", "metadata": {"name": "worker"},
        "spec": {"machineConfigSelector": selector}});
    put("00-pool.yaml", &pool.to_string());
    if sample.config.get("spec").is_some() {
        put("sample.yaml", &std::fs::read_to_string(&sample.path).unwrap());
    } else {
        let config = json!({"apiVersion": GROUP, "kind": "MachineConfig",
            "metadata": {"name": "50-sample", "labels": {ROLE: "worker"}}, "spec": {"config": sample.config}});
        put("sample.yaml", &config.to_string());
    }
}

/// Refusals and notes of `validate`, and its whole output.
fn validated(sample: &Sample) -> (Vec<Value>, Vec<String>, String) {
    let place = tempfile::tempdir().unwrap();
    manifests(sample, place.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    command.args(["validate", "--output", "json", "--manifests"]).arg(place.path()).env_remove("KUBECONFIG");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}: {text}", sample.name));
    let refused = document["refused"].as_array().cloned().unwrap_or_default();
    assert_eq!(output.status.success(), refused.is_empty(), "{}: {text}", sample.name);
    let notes = document["notes"].as_array().cloned().unwrap_or_default();
    let notes = notes.iter().map(|note| note.as_str().unwrap().to_owned()).collect();
    (refused, notes, text)
}

#[test]
fn corpus_has_same_fates_in_validate() {
    let mut wrong = Vec::new();
    let (mut refused_leaves, mut named_objects) = (0, 0);
    for sample in samples() {
        let (refused, notes, text) = validated(&sample);
        let expected = expected(&sample);
        let is_refused = |leaf: &str| {
            let field = |one: &Value| one["field"].as_str().unwrap_or_default().to_owned();
            refused.iter().any(|one| !field(one).is_empty() && covers(&field(one), leaf, &sample.config))
        };
        for leaf in fields(&sample.config) {
            let found = if is_refused(&leaf) {
                "refused"
            } else if refused.is_empty() {
                "taken"
            } else {
                "refused with the config"
            };
            let fate = expected[&leaf].as_deref().unwrap_or("taken");
            let fate = if fate.starts_with("refused") { fate } else { "taken" };
            refused_leaves += u32::from(found == "refused");
            if fate != found {
                wrong.push(format!(
                    "{} {leaf}: {fate} by the agent, {found} by validate: {text}",
                    sample.name
                ));
            }
        }
        for object in &sample.others {
            let title = title(object);
            let is_read = READ.contains(&object["kind"].as_str().unwrap());
            let is_named = notes.iter().any(|note| note.contains(&format!(": {title}: ")));
            let by_agent = expected[&title].as_deref() == Some("named (other-kind)");
            named_objects += u32::from(is_named);
            // The notes are left out of a refusal.
            if refused.is_empty() && is_named != (by_agent && !is_read) {
                wrong.push(format!(
                    "{} {title}: named {by_agent} by the agent, {is_named} by validate",
                    sample.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused_leaves > 5 && named_objects > 4, "{refused_leaves} {named_objects}");
}
