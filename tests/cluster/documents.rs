//! The table of documents, through an agent in a cluster: one after the other on the same host, as in each verb (`cli documents::`).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use machine_config_agent::model::yaml;
use serde_json::{Value, json};

use crate::cluster::scene::Scene;
use crate::cluster::{Bench, Gates, annotation, create_object, object_api, retarget};
use crate::document_samples::{Expect, documents};

/// Nothing of the table costs a drain, a service or a reboot.
fn policy() -> Value {
    let none = json!([{ "type": "None" }]);
    json!({ "nodeDisruptionPolicy": { "files": [{ "path": "/etc", "actions": none }],
        "units": [{ "name": "a.service", "actions": none }], "sshkey": { "actions": none } } })
}

/// What the agent does with a config on this host, as its `plan` says it: the fields that are refused.
fn planned(config: &Value, host: &Path) -> BTreeSet<String> {
    let files = tempfile::tempdir().unwrap();
    let put = |name: &str, object: &Value| {
        std::fs::write(files.path().join(name), object.to_string()).unwrap();
    };
    put("config.json", config);
    put(
        "policy.json",
        &json!({ "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": { "name": "cluster" }, "spec": policy() }),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-agent"));
    command.args(["plan", "--to", "config.json", "--policy", "policy.json", "--allow-unknown-fields"]);
    command.args(["--output", "json", "--os-backend", "none", "--root"]).arg(host).current_dir(files.path());
    let output = command.output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    if output.status.code() == Some(0) {
        assert!(document["drain"] == false && document["after"]["kind"] != "reboot", "{document}: {config}");
        return BTreeSet::new();
    }
    let refused = [&document["refused"], &document["irreconcilable"]];
    let refused = refused.iter().filter_map(|list| list.as_array()).flatten();
    let fields: BTreeSet<String> =
        refused.filter_map(|one| one["field"].as_str().map(str::to_owned)).collect();
    assert!(!fields.is_empty(), "{output:?}: {config}");
    fields
}

#[tokio::test]
async fn documents_have_the_same_answer_in_cluster() {
    let bench = Bench::private(Gates::Default);
    let scene = Scene::set(&bench, "documents", &[("controlPlaneTopology", "SingleReplica")]).await;
    let policies = object_api(&scene.client, "machineconfigurations");
    let patch = Patch::Merge(json!({ "spec": policy() }));
    policies.patch("cluster", &PatchParams::default(), &patch).await.unwrap();
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    let configs: Vec<_> = documents().into_iter().filter(|one| one.text.contains("name: 50-a")).collect();
    let (mut taken, mut refused) = (0, 0);
    for (number, document) in configs.iter().enumerate() {
        let (name, tree) = (format!("d-{number}"), yaml::tree(&document.text).unwrap());
        let spec = json!({ "spec": tree["spec"] });
        // The definition of the kind comes first: it refuses wrong types, and the server drops what it does not list.
        let stored = match create_object(&scene.client, "machineconfigs", &name, spec).await {
            Ok(stored) => serde_json::to_value(&stored).unwrap(),
            Err(error) => {
                assert!(matches!(document.expect, Expect::Refused(_)), "{error}: {}", document.text);
                continue;
            }
        };
        let is_whole = stored["spec"] == tree["spec"];
        let fields = match document.expect {
            Expect::Refused(field) if is_whole => [field.to_owned()].into(),
            Expect::Refused(_) | Expect::Unknown(_) | Expect::Taken => planned(&stored, scene.host.path()),
        };
        retarget(&scene.client, &scene.name, &name, None).await;
        let answers = |node: &Node| {
            let (state, reason) = (annotation(node, "state"), annotation(node, "reason").unwrap_or_default());
            if fields.is_empty() {
                state == Some("Done") && annotation(node, "currentConfig") == Some(name.as_str())
            } else {
                // Of several the reason may have the first ones.
                let is_named = fields.iter().any(|field| reason.contains(field));
                // What this host refuses is no fault of the document.
                let is_of_document = matches!(document.expect, Expect::Refused(_)) && is_whole;
                [Some("Degraded"), Some("Unreconcilable")].contains(&state)
                    && is_named
                    && (!is_of_document || reason.contains(&name))
            }
        };
        scene.until(&format!("{name}: {fields:?}: {}", document.text), answers).await;
        *(if fields.is_empty() { &mut taken } else { &mut refused }) += 1;
    }
    assert!(taken > 40 && refused > 60, "{taken} taken, {refused} refused");
    scene.want("a").await;
    scene.done("a").await;
}
