//! The table of documents, through each entry of the agent: the controller gives the same answers (`controllers documents::`).

use std::collections::BTreeSet;

use machine_config_agent::model::yaml;
use serde_json::{Value, json};

use crate::daemon_process::Daemon;
use crate::document_samples::{Document, Expect, PINNED_SETS, documents};
use crate::firstboot::Running;
use crate::test_host::{Node, QUIET, Ran, config, files, ignition};

const ON_HOST: [&str; 4] = ["--root", "root", "--os-backend", "none"];
/// The host has to reboot for the config.
const REBOOT_REQUIRED: i32 = 133;

fn configs() -> Vec<Document> {
    let documents: Vec<_> = documents().into_iter().filter(|one| one.kind == "MachineConfig").collect();
    assert!(documents.len() > 150);
    documents
}

/// Nothing of the table costs a service or a reboot.
const NOTHING_RESTARTS: &str = "{apiVersion: operator.openshift.io/v1, kind: MachineConfiguration, metadata: {name: cluster}, spec:
    {nodeDisruptionPolicy: {files: [{path: /etc, actions: [{type: None}]}], units: [{name: a.service, actions: [{type: None}]}],
    sshkey: {actions: [{type: None}]}}}}";

/// Exit code, and the refused fields.
fn answer(ran: &Ran) -> (i32, BTreeSet<String>) {
    let document: Value = serde_json::from_str(&ran.out).unwrap_or_default();
    let refused = document["refused"].as_array().cloned().unwrap_or_default();
    (ran.code, refused.iter().filter_map(|one| one["field"].as_str().map(str::to_owned)).collect())
}

#[test]
fn documents_have_one_answer_in_each_verb() {
    let node = Node::new();
    node.put("none.json", config("none", &ignition(json!({}))));
    let before = node.listing("root");
    for document in configs() {
        let is_of_installation = document.is_of_installation() || document.text.contains("fips: true");
        let Document { expect, text, .. } = document;
        node.put("a.yaml", &text);
        let json = ["--output", "json"];
        let on_host = |words: &[&str]| answer(&node.run(&[words, &ON_HOST, &json].concat()));
        let planned = on_host(&["plan", "--to", "a.yaml"]);
        let verified = on_host(&["verify", "--config", "a.yaml"]);
        let between =
            answer(&node.run(&[&["plan", "--from", "none.json", "--to", "a.yaml"], &json[..]].concat()));
        let Some(field) = expect.refused_in_file() else {
            // This host may refuse it, the document is right.
            assert!([0, 2, 3].contains(&planned.0), "{planned:?}: {text}");
            assert_eq!((planned.0 == 3, &planned.1), (verified.0 == 3, &verified.1), "{text}");
            assert_eq!(between.0, if is_of_installation { 3 } else { 0 }, "{between:?}: {text}");
            continue;
        };
        for (verb, (code, fields)) in [("plan", &planned), ("verify", &verified), ("plan --from", &between)] {
            assert!([3, 4].contains(code) && *code == planned.0, "{verb}: {code}: {text}");
            assert!(fields.iter().any(|one| one == field), "{verb}: {field} is not in {fields:?}: {text}");
        }
        let applied = node.apply("a.yaml");
        assert!(applied.code == planned.0 && applied.err.contains(field), "{}: {text}", applied.err);
        assert_eq!(node.listing("root"), before, "{text}");
    }
}

/// A policy beside the config: from a file, as in a control directory.
#[test]
fn policies_have_the_same_answer_in_plan() {
    let node = Node::new();
    node.put("a.json", config("a", &ignition(json!({}))));
    let policies: Vec<_> = documents().into_iter().filter(|one| one.kind == "MachineConfiguration").collect();
    assert!(policies.len() > 5);
    for Document { expect, text, .. } in policies {
        node.put("policy.yaml", &text);
        let words = ["plan", "--from", "a.json", "--to", "a.json", "--policy", "policy.yaml", "-o", "json"];
        let (code, fields) = answer(&node.run(&words));
        let Some(field) = expect.refused_in_file() else {
            assert_eq!((code, fields.len()), (0, 0), "{fields:?}: {text}");
            continue;
        };
        assert!([3, 4].contains(&code) && fields.contains(field), "{code}: {fields:?}: {text}");
        let allowed = node.run(&[&words[..], &["--allow-unknown-fields"]].concat());
        let is_unknown = matches!(expect, Expect::Unknown(_));
        let is_named = allowed.out.contains("unknown-field") && allowed.out.contains(field);
        assert_eq!((allowed.code == 0, is_named), (is_unknown, is_unknown), "{}: {text}", allowed.out);
    }
}

/// Nodes read them in a cluster alone: in a file the kind is named, whatever is in it.
#[test]
fn pinned_sets_beside_config_are_named() {
    let node = Node::new();
    for (_, spec) in PINNED_SETS {
        let set = format!(
            "{{apiVersion: machineconfiguration.openshift.io/v1, kind: PinnedImageSet, metadata: {{name: a}}, spec: {spec}}}"
        );
        node.put("a.yaml", format!("{}\n---\n{set}\n", config("a", &ignition(json!({})))));
        for verb in [["plan", "--to"], ["verify", "--config"]] {
            let ran = node.run(&[&verb[..], &["a.yaml", "--output", "json"], &ON_HOST].concat());
            let document: Value = serde_json::from_str(&ran.out).unwrap();
            let named = document["notApplied"].as_array().unwrap();
            let is_named = named
                .iter()
                .any(|one| one["because"] == "other-kind" && one.to_string().contains("PinnedImageSet"));
            assert!(ran.code == 0 && is_named, "{verb:?}: {}: {document}: {spec}", ran.code);
        }
    }
}

/// An image by tag and digest is one by digest, wherever a person gives it.
#[tokio::test(flavor = "current_thread")]
async fn tag_beside_digest_is_accepted_everywhere() {
    let (by_tag, digest) = ("r.test:5000/os:4.17", "a".repeat(64));
    let image = format!("{by_tag}@sha256:{digest}");
    let node = Node::new();
    node.put("a.json", config("a", &ignition(json!({}))));
    let files = ["plan", "--from", "a.json", "--to", "a.json"];
    let on_host = |verb: &[&'static str], last: &[&'static str]| [verb, &ON_HOST[..], last].concat();
    for words in [
        [&files[..], &["--to-image"]].concat(),
        [&files[..], &["--from-image"]].concat(),
        on_host(&["plan", "--to", "a.json"], &["--to-image"]),
        on_host(&["apply", "--yes", "--to", "a.json"], &["--to-image"]),
        vec!["stateroot", "inspect"],
        vec!["stateroot", "prepare", "--plan", "--version", "1"],
        vec!["seed", "containerfile", "--config", ".", "--image"],
    ] {
        let said = |image: &str| {
            let ran = node.run(&[&words[..], &[image]].concat());
            (ran.code, ran.out + &ran.err)
        };
        let (code, text) = said(by_tag);
        assert!(code != 0 && text.contains("it is not named by digest"), "{words:?}: {code}: {text}");
        // Of a host without image mode, or of a directory without a seed's config, each says something else.
        let (code, text) = said(&image);
        assert!(!text.contains("is refused"), "{words:?}: {code}: {text}");
        let is_done = words.starts_with(&files) && words.ends_with(&["--to-image"]);
        assert_eq!(code == 0, is_done, "{words:?}: {text}");
    }
    let mut daemon = Daemon::start(node);
    daemon.put("machineconfigs/a.yaml", &config("a", &ignition(json!({}))));
    daemon.put("target.yaml", &format!("config: a\nimage: {by_tag}\n"));
    let says = |words: &'static str| {
        move |report: &Value| report["reason"].as_str().is_some_and(|reason| reason.contains(words))
    };
    daemon.until("the tag alone", says("it is not named by digest")).await;
    daemon.put("target.yaml", &format!("config: a\nimage: {image}\n"));
    daemon.until("the host boots no images", says("does not boot images")).await;
}

/// Ignition has left the document; what is refused waits with its field on the console, the rest is done.
#[tokio::test(flavor = "current_thread")]
async fn documents_have_the_same_answer_in_first_boot() {
    for Document { expect, text, .. } in configs() {
        let node = Node::new();
        node.put("root/dev/console", "");
        node.put(
            "root/etc/ignition-machine-config-encapsulated.json",
            yaml::tree(&text).unwrap().to_string(),
        );
        let mut running = Running::start(&node, "log");
        if let Expect::Refused(field) = expect {
            running.until("root/dev/console", &["the kubelet waits", field]).await;
            assert!(running.is_under_way(), "{text}");
            continue;
        }
        node.put("a.yaml", &text);
        let words = ["plan", "--to", "a.yaml", "--allow-unknown-fields", "--output", "json"];
        let (code, fields) = answer(&node.run(&[&words, &ON_HOST[..]].concat()));
        if code == 3 {
            let field = fields.first().unwrap();
            running.until("root/dev/console", &["the kubelet waits", field]).await;
            continue;
        }
        let code = running.end();
        assert!([0, REBOOT_REQUIRED].contains(&code), "{code}: {}: {text}", node.read("log"));
        if let Expect::Unknown(field) = expect {
            assert!(node.read("log").contains(field), "{field} is not named: {}: {text}", node.read("log"));
        }
    }
}

/// The daemon over a directory, which a person writes: each document becomes the host's config, or the fault names its field.
#[tokio::test(flavor = "current_thread")]
async fn documents_have_the_same_answer_in_daemon() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", &NOTHING_RESTARTS.replace('\n', " "));
    let named = configs().into_iter().filter(|one| one.text.contains("name: 50-a"));
    let (mut taken, mut of_host) = (0, 0);
    for (number, Document { expect, text, .. }) in named.enumerate() {
        let name = format!("d-{number}");
        let text = text.replace("name: 50-a", &format!("name: {name}"));
        let file = format!("machineconfigs/{name}.yaml");
        daemon.put(&file, &text);
        let field = if let Some(field) = expect.refused_in_file() {
            Some(field.to_owned())
        } else {
            // This host may refuse it.
            daemon.put("target.yaml", &format!("config: {name}\n"));
            let words = ["plan", "--directory", "control", "--output", "json"];
            let (code, fields) = answer(&daemon.node.run(&[&words, &ON_HOST[..]].concat()));
            assert!([0, 3].contains(&code), "{code}: {fields:?}: {text}");
            (code == 3).then(|| fields.into_iter().next().unwrap_or_default())
        };
        daemon.put("target.yaml", &format!("config: {name}\n"));
        let Some(field) = field else {
            taken += 1;
            let is_done = |report: &Value| report["state"] == "Done" && report["currentConfig"] == *name;
            daemon.until(&format!("{name} is done: {text}"), is_done).await;
            continue;
        };
        let is_of_host = expect.refused_in_file().is_none();
        of_host += usize::from(is_of_host);
        let is_told = |report: &Value| {
            let reason = report["reason"].as_str().unwrap_or_default();
            let is_named = if is_of_host { report["desiredConfig"] == *name } else { reason.contains(&name) };
            report["fault"].is_object() && is_named && reason.contains(&field)
        };
        daemon.until(&format!("{field}: {text}"), is_told).await;
    }
    assert!(taken > 40 && of_host > 5, "{taken} taken, {of_host} refused by this host");
    daemon.put("machineconfigs/good.yaml", &config("good", &files(&[("/etc/good", "a")])));
    daemon.put("target.yaml", "config: good\n");
    daemon.until_done("good").await;
    for Document { expect, text, .. } in
        documents().into_iter().filter(|one| one.kind == "MachineConfiguration")
    {
        daemon.put("policy.yaml", &text);
        match expect.refused_in_file() {
            Some(field) => daemon.until_fault("InvalidDocument", &["policy.yaml", field]).await,
            None => daemon.until_done("good").await,
        }
    }
    daemon.put("policy.yaml", QUIET);
    daemon.until_done("good").await;
}

/// MCD may have committed any of them: each is taken over as it is, named where it is refused, and ended by a valid one.
#[test]
fn documents_that_machine_config_daemon_committed_are_taken_over() {
    // It had them from the API server, which checks names and versions.
    for document in configs().into_iter().filter(|one| one.text.contains("name: 50-a")) {
        // This host's line is as these say; of disks it shows nothing.
        let is_of_installation =
            document.is_of_installation() && document.text.contains("kernelArguments: {should");
        let Document { expect, text, .. } = document;
        let node = Node::new();
        node.put("root/etc/machine-config-daemon/currentconfig", yaml::tree(&text).unwrap().to_string());
        node.put("root/etc/machine-config-daemon/currentimage", "");
        node.put("new.json", config("rendered-worker-new", &files(&[("/etc/new", "new")])));
        let planned = node.plan("new.json");
        if is_of_installation {
            let told = planned.out + &planned.err;
            assert!(planned.code == 3 && told.contains("installed"), "{told}: {text}");
            continue;
        }
        assert_eq!(planned.code, 0, "{}{}: {text}", planned.out, planned.err);
        if let Expect::Refused(field) = expect {
            // An entry is named as in refusals, and not by its place in the document.
            let (_, left) = planned.out.split_once("Left as it is, of the old config\n").unwrap_or_default();
            let last = field.rsplit(['.', ' ']).next().unwrap_or(field);
            assert!(left.contains(last), "{field} is not named: {}: {text}", planned.out);
        }
        let ran = node.apply("new.json");
        let is_done = [0, REBOOT_REQUIRED].contains(&ran.code) && node.read("root/etc/new") == "new";
        assert!(is_done, "{}{}: {text}", ran.out, ran.err);
        if ran.code == REBOOT_REQUIRED {
            continue;
        }
        let verified = node.run(&[&["verify"], &ON_HOST[..]].concat());
        assert_eq!(verified.code, 0, "{}: {text}", verified.out);
    }
}
