//! The table of documents, through each verb of the controller, `serve` and a cluster: the agent gives the same answers
//! (`cli documents::`).

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use machine_config_core::model::yaml;
use serde_json::{Value, json};

use crate::cluster::{Agent, MachineConfigBuilder, call, key, object_until, within};
use crate::document_samples::{Document, Expect, PINNED_SETS, documents};
use crate::process::{Cluster, apply_definition, condition, target};

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

/// A node that is there does not get what an installation sets.
fn is_refused_by_host(verb: &str, is_of_installation: bool, ran: &Output) -> bool {
    verb == "plan" && is_of_installation && ran.status.code() == Some(3)
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
    for document in documents {
        let is_of_installation = document.is_of_installation() || document.text.contains("fips: true");
        let Document { kind, expect, text } = document;
        put(&place.path().join("with/a.yaml"), &text);
        put(&place.path().join("a.yaml"), &text);
        let mut verbs = vec![
            vec!["validate", "--manifests", "with", "--output", "json"],
            vec!["render", "--manifests", "with"],
            vec!["bootstrap", "--manifests", "with", "--output", "out"],
        ];
        if kind == "MachineConfig" {
            let plan =
                ["plan", "--manifests", "without", "--pool", "worker", "-f", "a.yaml", "--output", "json"];
            verbs.push(plan.to_vec());
            let build = ["build", "--config", "a.yaml", "--base", BASE, "--push", "r.test/os:2"];
            // A build of what is taken would begin.
            let print = expect.refused_in_file().is_none().then_some("--print");
            verbs.push(build.into_iter().chain(print).collect());
        }
        for words in verbs {
            let ran = run(&words, place.path());
            let code = ran.status.code();
            let Some(field) = expect.refused_in_file() else {
                if is_refused_by_host(words[0], is_of_installation, &ran) {
                    continue;
                }
                let is_printed =
                    words[0] != "build" || String::from_utf8_lossy(&ran.stdout).contains("\nFROM ");
                if code != Some(0) || !fields(&ran).is_empty() || !is_printed {
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

/// Lets the API server store each document of some kinds as it is, as definitions of another program may.
pub async fn loosen(cluster: &Cluster, kinds: &[(&str, &str)]) {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    for (group, plural) in kinds {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}");
        let (_, definition) = call(&cluster.client, "GET", &path, None).await;
        let versions = definition["spec"]["versions"].as_array().unwrap().iter().map(|version| {
            let mut version = version.clone();
            version["schema"]["openAPIV3Schema"] = anything.clone();
            version
        });
        let spec = json!({ "spec": { "versions": versions.collect::<Vec<_>>() } });
        let patch = Some(("application/merge-patch+json", spec));
        let (code, answer) = call(&cluster.client, "PATCH", &path, patch).await;
        assert_eq!(code, 200, "{answer}");
        // It is in force a moment later, without an event.
        let (version, kind) =
            (&definition["spec"]["versions"][0]["name"], &definition["spec"]["names"]["kind"]);
        let version = format!("{group}/{}", version.as_str().unwrap());
        let path = format!("/apis/{version}/{plural}?dryRun=All");
        let name = if *plural == "machineconfigurations" { "cluster" } else { "loose" };
        let probe = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": 5 });
        within("any document is stored", async {
            while ![200, 201].contains(
                &call(&cluster.client, "POST", &path, Some(("application/json", probe.clone()))).await.0,
            ) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// Stores a document; a second one of the name comes in its place.
async fn store(cluster: &Cluster, path: &str, name: &str, tree: &Value) {
    let at = format!("{path}/{name}");
    drop(call(&cluster.client, "DELETE", &at, None).await);
    let (code, answer) = call(&cluster.client, "POST", path, Some(("application/json", tree.clone()))).await;
    assert!([200, 201].contains(&code), "{code}: {answer}: {tree}");
}

const OF_GROUP: &str = "machineconfiguration.openshift.io";

/// The refusal of each document by its object and field, and a note of each field that nobody knows: the real program reads them
/// from a cluster whose definitions let all pass.
#[tokio::test]
async fn documents_have_the_same_answer_in_plan_of_cluster() {
    let cluster = Cluster::new().await;
    let policies = ("operator.openshift.io", "machineconfigurations");
    let kinds =
        ["machineconfigs", "machineconfigpools", "controllerconfigs"].map(|plural| (OF_GROUP, plural));
    loosen(&cluster, &[&kinds[..], &[policies]].concat()).await;
    let place = tempfile::tempdir().unwrap();
    put(
        &place.path().join("new.json"),
        &json!({ "apiVersion": GROUP, "kind": "MachineConfig", "spec": {},
        "metadata": { "name": "99-new", "labels": { key("role"): "worker" } } })
        .to_string(),
    );
    let kubeconfig = cluster.kubeconfig.to_str().unwrap();
    let plan = ["plan", "--kubeconfig", kubeconfig, "--pool", "worker", "-f", "new.json", "-o", "json"];
    cluster.pool("worker").await;
    let base = MachineConfigBuilder::new("50-base").file("/etc/a", 0o644, "a");
    cluster.config("worker", base).await;
    let mut wrong = Vec::new();
    // One object of the kind: one after the other.
    for (kind, (group, plural), name) in [
        ("ControllerConfig", kinds[2], "machine-config-controller"),
        ("MachineConfiguration", policies, "cluster"),
    ] {
        let path = format!("/apis/{group}/v1/{plural}");
        for Document { expect, text, .. } in documents().into_iter().filter(|one| one.kind == kind) {
            store(&cluster, &path, name, &yaml::tree(&text).unwrap()).await;
            let ran = run(&plan, place.path());
            let said = String::from_utf8_lossy(&ran.stderr);
            let is_right = match expect {
                Expect::Taken => ran.status.success(),
                Expect::Unknown(field) => ran.status.success() && said.contains(field),
                Expect::Refused(field) => {
                    ran.status.code() == Some(4) && fields(&ran).contains(field) && said.contains(kind)
                }
            };
            if !is_right {
                wrong.push(format!("{expect:?}: {text}: {ran:?}"));
            }
        }
        call(&cluster.client, "DELETE", &format!("{path}/{name}"), None).await;
    }
    wrong.extend(wrong_of_many(&cluster, || run(&plan, place.path())).await);
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// All at once: the program names each.
async fn wrong_of_many(cluster: &Cluster, plan: impl Fn() -> Output) -> Vec<String> {
    let (mut wrong, mut expected) = (Vec::new(), Vec::new());
    for (kind, plural) in [("MachineConfig", "machineconfigs"), ("MachineConfigPool", "machineconfigpools")] {
        let rows = documents().into_iter().filter(|one| one.kind == kind && one.text.contains("spec: "));
        for (number, Document { expect, text, .. }) in rows.enumerate() {
            let mut tree = yaml::tree(&text).unwrap();
            if kind == "MachineConfig" && !text.contains("name: 50-a") {
                continue;
            }
            let name = format!("d-{number}");
            tree["metadata"] = json!({ "name": name });
            store(cluster, &format!("/apis/{GROUP}/{plural}"), &name, &tree).await;
            expected.push((format!("{kind} {name}"), expect, text));
        }
    }
    assert!(expected.len() > 150);
    let ran = plan();
    let said = String::from_utf8(ran.stderr).unwrap();
    for (object, expect, text) in expected {
        let told: Vec<&str> = said
            .lines()
            .filter(|line| line.split_once(&object).is_some_and(|(_, rest)| rest.starts_with([':', ' '])))
            .collect();
        let is_right = match expect {
            // What an installation sets is named.
            Expect::Taken => told.iter().all(|line| line.contains("note: ")),
            Expect::Unknown(field) | Expect::Refused(field) => told.iter().any(|line| line.contains(field)),
        };
        if !is_right {
            wrong.push(format!("{object}: {expect:?}: {text}: {told:?}"));
        }
    }
    wrong
}

/// The same by `run`: the pool of each document says it, or has a target.
#[tokio::test]
async fn documents_have_the_same_answer_in_cluster() {
    let cluster = Cluster::new().await;
    let (configs_of, pools) = ((OF_GROUP, "machineconfigs"), (OF_GROUP, "machineconfigpools"));
    apply_definition(&cluster.client, "rolloutpolicies").await;
    let rollouts = ("machine-config-agent.io", "rolloutpolicies");
    loosen(&cluster, &[configs_of, pools, (OF_GROUP, "controllerconfigs"), rollouts]).await;
    let mut created = Vec::new();
    for (name, expect, tree) in configs() {
        store(&cluster, &format!("/apis/{GROUP}/machineconfigs"), &name, &tree).await;
        cluster.pool(&name).await;
        created.push((name, expect, tree));
    }
    assert!(created.len() > 150, "{}", created.len());
    let mut wanted = Vec::new();
    for (number, Document { expect, text, .. }) in
        documents().into_iter().filter(|one| one.kind == "MachineConfigPool").enumerate()
    {
        let (name, mut tree) = (format!("p-{number}"), yaml::tree(&text).unwrap());
        tree["metadata"] = json!({ "name": name });
        store(&cluster, &format!("/apis/{GROUP}/machineconfigpools"), &name, &tree).await;
        wanted.push((name, expect, text));
    }
    let mut controller = cluster.start("a", &["--controllers", "render,node"]);
    for (name, expect, tree) in created {
        let holds = |pool: &Value| match expect {
            Expect::Taken => !target(pool).is_empty(),
            Expect::Unknown(field) => is_told(pool, "UnknownFields", field) && !target(pool).is_empty(),
            Expect::Refused(field) => is_told(pool, "RenderDegraded", field) && target(pool).is_empty(),
        };
        cluster.until_pool(&name, &format!("{expect:?}: {tree}"), holds).await;
    }
    for (name, expect, text) in wanted {
        let what = format!("{expect:?}: {text}");
        match expect {
            // It selects nothing.
            Expect::Taken | Expect::Unknown(_) => {
                let is_read = |pool: &Value| condition(pool, "RolloutInvalid")["status"].is_string();
                let pool = cluster.until_pool(&name, &what, is_read).await;
                assert!(!pool["status"].to_string().contains("maxUnavailable"), "{what}: {pool}");
            }
            // A value that its type takes.
            Expect::Refused(field) if text.contains("maxUnavailable: ") && !text.contains("[1]") => {
                cluster.until_pool(&name, &what, |pool| is_told(pool, "RolloutInvalid", field)).await;
            }
            Expect::Refused(field) => {
                let words = format!("MachineConfigPool {name} can't be read: {field}");
                controller.0.line(&what, |line| line.contains(&words)).await;
            }
        }
    }
    controller_configs_have_the_same_answer(&cluster).await;
    rollout_policies_have_the_same_answer(&cluster).await;
}

fn is_told(pool: &Value, kind: &str, field: &str) -> bool {
    let found = condition(pool, kind);
    found["status"] == "True" && found["message"].as_str().unwrap_or_default().contains(field)
}

async fn rollout_policies_have_the_same_answer(cluster: &Cluster) {
    let kind = GroupVersionKind::gvk("machine-config-agent.io", "v1alpha1", "RolloutPolicy");
    let resource = ApiResource::from_gvk_with_plural(&kind, "rolloutpolicies");
    let policies: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let rows = documents().into_iter().filter(|one| one.kind == "RolloutPolicy");
    for (number, Document { expect, text, .. }) in rows.enumerate() {
        // It is for the pool of its name.
        let (name, mut tree) = (format!("d-{number}"), yaml::tree(&text).unwrap());
        tree["metadata"] = json!({ "name": name });
        store(cluster, "/apis/machine-config-agent.io/v1alpha1/rolloutpolicies", &name, &tree).await;
        let accepted =
            |object: &DynamicObject| condition(&serde_json::to_value(object).unwrap(), "Accepted").clone();
        let is_right = |object: &DynamicObject| match expect {
            Expect::Taken | Expect::Unknown(_) => accepted(object)["status"] == "True",
            Expect::Refused(field) => {
                let accepted = accepted(object);
                accepted["status"] == "False"
                    && accepted["message"].as_str().is_some_and(|told| told.contains(field))
            }
        };
        object_until(&policies, &name, &format!("{expect:?}: {text}"), is_right).await;
    }
}

async fn controller_configs_have_the_same_answer(cluster: &Cluster) {
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-base").file("/etc/a", 0o644, "a")).await;
    let path = format!("/apis/{GROUP}/controllerconfigs");
    for Document { expect, text, .. } in documents().into_iter().filter(|one| one.kind == "ControllerConfig")
    {
        store(cluster, &path, "machine-config-controller", &yaml::tree(&text).unwrap()).await;
        let holds = |pool: &Value| match expect {
            Expect::Refused(field) => is_told(
                pool,
                "RenderDegraded",
                &format!("ControllerConfig machine-config-controller: {field}"),
            ),
            Expect::Taken | Expect::Unknown(_) => condition(pool, "RenderDegraded")["status"] == "False",
        };
        cluster.until_pool("worker", &format!("{expect:?}: {text}"), holds).await;
    }
}
