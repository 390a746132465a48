//! The table of documents, through each verb of the controller, `serve` and a cluster: the agent gives the same answers
//! (`cli documents::`).

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use machine_config_core::model::yaml;
use serde_json::{Value, json};

use crate::cluster::{Agent, create_object, key};
use crate::document_samples::{Document, Expect, PINNED_SETS, documents};
use crate::process::{Cluster, condition, target};

const GROUP: &str = "machineconfiguration.openshift.io/v1";
/// By tag and digest, as a person copies it.
const BASE: &str = "r.test/os:1@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn controller() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    command.env_remove("KUBECONFIG");
    command
}

fn run(words: &[&str], at: &Path) -> Output {
    controller().args(words).current_dir(at).output().unwrap()
}

fn put(at: &Path, text: &str) {
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    std::fs::write(at, text).unwrap();
}

/// The fields that a verb refuses.
fn fields(output: &Output) -> BTreeSet<String> {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let refused = document["refused"].as_array().cloned().unwrap_or_default();
    refused.iter().filter_map(|one| one["field"].as_str().map(str::to_owned)).collect()
}

/// A plan is for nodes that were installed without the fields: what only an installation can change is read, and can't be reached.
fn is_of_installation(output: &Output) -> bool {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let refused = document["refused"].as_array().cloned().unwrap_or_default();
    output.status.code() == Some(3)
        && !refused.is_empty()
        && refused.iter().all(|one| one["class"] == "unreconcilable")
}

#[test]
fn documents_have_one_answer_in_each_verb() {
    let place = tempfile::tempdir().unwrap();
    let selector = json!({ "matchLabels": { key("role"): "worker" } });
    let pool = json!({ "apiVersion": GROUP, "kind": "MachineConfigPool", "metadata": { "name": "worker" },
        "spec": { "machineConfigSelector": selector } });
    let base = json!({ "apiVersion": GROUP, "kind": "MachineConfig", "spec": {},
        "metadata": { "name": "00-base", "labels": { key("role"): "worker" } } });
    for directory in ["with", "without"] {
        put(&place.path().join(directory).join("pool.yaml"), &pool.to_string());
        put(&place.path().join(directory).join("base.yaml"), &base.to_string());
    }
    let documents = documents();
    assert!(documents.len() > 250);
    let mut wrong = Vec::new();
    for Document { kind, expect, text } in documents {
        put(&place.path().join("with/a.yaml"), &text);
        put(&place.path().join("a.yaml"), &text);
        let mut verbs = vec![
            vec!["validate", "--manifests", "with", "--output", "json"],
            vec!["render", "--manifests", "with"],
            vec!["bootstrap", "--manifests", "with", "--output", "out"],
        ];
        if kind == "MachineConfig" {
            verbs.push(vec![
                "plan",
                "--manifests",
                "without",
                "--pool",
                "worker",
                "-f",
                "a.yaml",
                "--output",
                "json",
            ]);
            let build = ["build", "--config", "a.yaml", "--base", BASE, "--push", "r.test/os:2"];
            // A build of what is taken would begin.
            let print = expect.refused_in_file().is_none().then_some("--print");
            verbs.push(build.into_iter().chain(print).collect());
        }
        for words in verbs {
            let ran = run(&words, place.path());
            let code = ran.status.code();
            let Some(field) = expect.refused_in_file() else {
                let is_printed =
                    words[0] != "build" || String::from_utf8_lossy(&ran.stdout).contains("\nFROM ");
                let is_taken = code == Some(0) && fields(&ran).is_empty();
                if !(is_taken || words[0] == "plan" && is_of_installation(&ran)) || !is_printed {
                    wrong.push(format!("{words:?}: {text}: {ran:?}"));
                }
                continue;
            };
            assert!([Some(3), Some(4)].contains(&code), "{words:?}: {text}: {ran:?}");
            let said = String::from_utf8(ran.stderr.clone()).unwrap();
            let is_named =
                if words.contains(&"json") { fields(&ran).contains(field) } else { said.contains(field) };
            assert!(is_named, "{words:?}: {field}: {text}: {ran:?}");
        }
    }
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// Nodes alone read them: each verb names the kind, and says what the API server would refuse.
#[test]
fn pinned_sets_have_one_answer_in_each_verb() {
    let place = tempfile::tempdir().unwrap();
    let pool = json!({ "apiVersion": GROUP, "kind": "MachineConfigPool", "metadata": { "name": "worker" },
        "spec": { "machineConfigSelector": { "matchLabels": { key("role"): "worker" } } } });
    put(&place.path().join("with/pool.yaml"), &pool.to_string());
    let base = json!({ "apiVersion": GROUP, "kind": "MachineConfig", "spec": {},
        "metadata": { "name": "00-base", "labels": { key("role"): "worker" } } });
    put(&place.path().join("with/base.yaml"), &base.to_string());
    let mut wrong = Vec::new();
    for (expected, spec) in PINNED_SETS {
        let text =
            format!("{{apiVersion: {GROUP}, kind: PinnedImageSet, metadata: {{name: a}}, spec: {spec}}}");
        put(&place.path().join("with/a.yaml"), &text);
        for words in [
            &["validate", "--manifests", "with", "--output", "json"][..],
            &["bootstrap", "--manifests", "with", "--output", "out"],
        ] {
            let ran = run(words, place.path());
            let code = ran.status.code();
            let said = String::from_utf8([&ran.stdout[..], &ran.stderr].concat()).unwrap();
            let is_taken = code == Some(0);
            let is_named = said.contains("PinnedImageSet a");
            let names_field = expected.is_none_or(|field| said.contains(field));
            if is_taken != spec.contains("@sha256:") || !is_named || !names_field {
                wrong.push(format!("{words:?}: {text}: {ran:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// The MachineConfigs that have no head of their own, each with a name and a role of its own.
fn configs() -> Vec<(String, Expect, Value)> {
    let documents = documents().into_iter().filter(|one| one.text.contains("name: 50-a"));
    let named = documents.enumerate().map(|(number, Document { expect, text, .. })| {
        let name = format!("d-{number}");
        let mut tree = yaml::tree(&text).unwrap();
        tree["metadata"] = json!({ "name": name, "labels": { key("role"): name } });
        (name, expect, tree)
    });
    named.collect()
}

/// A rendered config that a bootstrap would not have written: a new node is not given it, and the log names the field.
#[tokio::test]
async fn documents_that_are_refused_are_not_served() {
    let place = tempfile::tempdir().unwrap();
    for (name, _, tree) in configs() {
        let pool = json!({ "apiVersion": GROUP, "kind": "MachineConfigPool", "metadata": { "name": name },
            "spec": { "configuration": { "name": name } } });
        put(&place.path().join(format!("machine-pools/{name}.yaml")), &pool.to_string());
        put(&place.path().join(format!("machine-configs/{name}.yaml")), &tree.to_string());
    }
    let mut command = controller();
    command.args(["serve", "--listen", "127.0.0.1:0", "--without-first-contact", "--directory"]);
    command.arg(place.path());
    let mut server = Agent::run("serve", command);
    let line = server.line("it serves", |line| line.contains("127.0.0.1:")).await;
    let at =
        line.split(' ').find_map(|word| word.split("//").last().filter(|at| at.starts_with("127.0.0.1:")));
    let at = at.unwrap().trim_end_matches(['/', '.', ',', ';']).to_owned();
    let mut refused = Vec::new();
    for (name, expect, tree) in configs() {
        let mut stream = TcpStream::connect(&at).unwrap();
        let accept = "application/vnd.coreos.ignition+json;version=3.4.0";
        let request = format!(
            "GET /config/{name} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // A bootstrap let unknown fields pass, or refused them.
        let expected = if let Expect::Refused(field) = expect {
            refused.push((format!("\"/config/{name}\" "), field));
            "HTTP/1.1 503"
        } else {
            "HTTP/1.1 200"
        };
        assert!(answer.starts_with(expected), "{expect:?}: {tree}: {answer}");
    }
    // Of many at once the log has the first ones.
    let (request, field) = refused.first().unwrap();
    server.line(field, |line| line.contains(request) && line.contains(field)).await;
}

#[tokio::test]
async fn documents_have_the_same_answer_in_cluster() {
    let cluster = Cluster::new().await;
    let mut created = Vec::new();
    for (name, expect, tree) in configs() {
        // The definition of the kind comes first: it refuses wrong types, and the server drops what it does not list.
        match create_object(&cluster.client, "machineconfigs", &name, tree.clone()).await {
            Ok(stored) => {
                cluster.pool(&name).await;
                let is_whole = stored.data["spec"] == tree["spec"];
                created.push((name, if is_whole { expect } else { Expect::Taken }, tree));
            }
            Err(error) => assert!(matches!(expect, Expect::Refused(_)), "{expect:?}: {tree}: {error}"),
        }
    }
    assert!(created.len() > 120, "{}", created.len());
    let _controller = cluster.start("a", &["--controllers", "render"]);
    for (name, expect, tree) in created {
        let is_told = |pool: &Value, kind: &str, field: &str| {
            let found = condition(pool, kind);
            found["status"] == "True" && found["message"].as_str().unwrap_or_default().contains(field)
        };
        let holds = |pool: &Value| match expect {
            Expect::Taken => !target(pool).is_empty(),
            Expect::Unknown(field) => is_told(pool, "UnknownFields", field) && !target(pool).is_empty(),
            Expect::Refused(field) => is_told(pool, "RenderDegraded", field) && target(pool).is_empty(),
        };
        cluster.until_pool(&name, &format!("{expect:?}: {tree}"), holds).await;
    }
}
