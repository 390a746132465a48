//! Documents that every host refuses, by the verbs of the controller: each says what a node says, with the same exit code.
//!
//! `UPDATE_GOLDENS=1 cargo test -p machine-config-controller --test controllers refused_documents` writes the answers.

use std::path::Path;
use std::process::{Command, Output};

use machine_config_core::plan::{Cause, ReasonKind};
use serde_json::{Value, json};

use crate::refused_samples::{HEADS, LONE_IGNITION, LONE_IGNITION_WORDS, ROWS, WITH_STATUS, document, lines};
use crate::schema_files;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/goldens/refused-documents.txt");

const POOL: &str = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigPool","metadata":{"name":"worker"},
    "spec":{"machineConfigSelector":{"matchLabels":{"machineconfiguration.openshift.io/role":"worker"}}}}"#;
const BASE: &str = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
    "metadata":{"name":"00-base","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":{}}"#;

/// A reason that the config alone causes has a row, and no row is of another reason.
#[test]
fn each_reason_of_config_has_its_document() {
    let of_config = |kind: &ReasonKind| matches!(kind.cause(), Cause::Config | Cause::Entry);
    for kind in ReasonKind::ALL {
        let name = format!("{kind:?}");
        let has_row = ROWS.iter().any(|row| row.0 == name);
        assert_eq!(has_row, of_config(kind), "{name}: add a document to tests/support/refused_documents.rs");
    }
    let is_known = |row: &str| ReasonKind::ALL.iter().any(|kind| format!("{kind:?}") == row);
    assert!(ROWS.iter().all(|row| is_known(row.0)));
}

fn run(words: &[&str], at: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    command.args(words).current_dir(at).env_remove("KUBECONFIG").output().unwrap()
}

/// Fields and messages of a refusal in JSON.
fn refused(output: &Output) -> Vec<(String, String)> {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let refused = document["refused"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    refused
        .iter()
        .map(|one| {
            assert_eq!(
                (&one["class"], &one["reason"]),
                (&json!("unreconcilable"), &json!("FailedToReconcile")),
                "{one}"
            );
            let (field, message) = (text(&one["field"]), text(&one["message"]));
            let said = message.rsplit_once(&format!("{field}: ")).map(|(_, said)| said.to_owned());
            (field, said.unwrap_or(message))
        })
        .collect()
}

#[test]
fn documents_that_no_host_takes_are_refused_by_each_verb() {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for directory in ["with", "without"] {
        put(&format!("{directory}/pool.yaml"), POOL);
        put(&format!("{directory}/base.yaml"), BASE);
    }
    let found = lines(|(kind, part)| {
        let document = document(part);
        put("with/a.yaml", &document);
        put("a.yaml", &document);
        let validated = run(&["validate", "--manifests", "with", "--output", "json"], place.path());
        assert_eq!(validated.status.code(), Some(3), "{kind} {part}: {validated:?}");
        let reasons = refused(&validated);
        for (words, name) in [
            (vec!["render", "--manifests", "with"], "render"),
            (vec!["bootstrap", "--manifests", "with", "--output", "out"], "bootstrap"),
        ] {
            let ran = run(&words, place.path());
            assert_eq!(ran.status.code(), Some(3), "{name}: {kind} {part}: {ran:?}");
            let text = String::from_utf8(ran.stderr).unwrap();
            let is_said = |(field, message): &(String, String)| text.contains(&format!("{field}: {message}"));
            assert!(
                reasons.iter().all(is_said) && text.contains("MachineConfig 50-a"),
                "{name}: {kind} {part}: {text}"
            );
        }
        let planned =
            ["plan", "--manifests", "without", "--pool", "worker", "-f", "a.yaml", "--output", "json"];
        let planned = run(&planned, place.path());
        assert_eq!(planned.status.code(), Some(3), "plan: {kind} {part}: {planned:?}");
        for (verb, ran) in [("refused", &validated), ("plan", &planned)] {
            let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
            // A config that no node can be brought to has no plan.
            let verb = if document.get("steps").is_some() { verb } else { "refused" };
            schema_files::check("controller", verb, &document);
        }
        reasons
    });
    if std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1") {
        std::fs::write(GOLDEN, &found).unwrap();
    }
    assert_eq!(std::fs::read_to_string(GOLDEN).unwrap_or_default(), found);
}

/// A value of another type than its field has: the document is wrong, in each verb and at each level.
#[test]
fn wrong_types_end_with_4_in_each_verb() {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    std::fs::create_dir(place.path().join("with")).unwrap();
    std::fs::create_dir(place.path().join("without")).unwrap();
    for directory in ["with", "without"] {
        put(&format!("{directory}/pool.yaml"), POOL);
        put(&format!("{directory}/base.yaml"), BASE);
    }
    let head = r#""apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"50-a"}"#;
    let mut documents = Vec::new();
    for bad in ["\"hi\"", "5", "true", "[\"hi\"]", "[]"] {
        documents.push(format!(r#"{{{head},"spec":{bad}}}"#));
        documents.push(format!(r#"{{{head},"spec":{{"config":{bad}}}}}"#));
        documents.push(format!(r#"{{{head},"spec":{{"config":{{"ignition":{bad}}}}}}}"#));
        for section in ["storage", "passwd", "systemd", "kernelArguments"] {
            let config = format!(r#"{{"ignition":{{"version":"3.4.0"}},"{section}":{bad}}}"#);
            documents.push(format!(r#"{{{head},"spec":{{"config":{config}}}}}"#));
        }
        let files = format!(r#"{{"ignition":{{"version":"3.4.0"}},"storage":{{"files":[{bad}]}}}}"#);
        documents.push(format!(r#"{{{head},"spec":{{"config":{files}}}}}"#));
    }
    let mode = r#"{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a","mode":"0644"}]}}"#;
    documents.push(format!(r#"{{{head},"spec":{{"config":{mode}}}}}"#));
    documents.push(format!(r#"{{{head},"spec":{{"fips":"yes"}}}}"#));
    for document in documents {
        put("with/a.yaml", &document);
        put("a.yaml", &document);
        for words in [
            vec!["validate", "--manifests", "with", "--output", "json"],
            vec!["render", "--manifests", "with"],
            vec!["bootstrap", "--manifests", "with", "--output", "out"],
            vec!["plan", "--manifests", "without", "--pool", "worker", "-f", "a.yaml", "--output", "json"],
        ] {
            let ran = run(&words, place.path());
            assert_eq!(ran.status.code(), Some(4), "{words:?}: {document}: {ran:?}");
            if words.contains(&"json") {
                let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
                let one = &found["refused"][0];
                assert_eq!(
                    (&one["class"], &one["reason"]),
                    (&json!("degraded"), &json!("InvalidDocument")),
                    "{document}: {found}"
                );
            }
        }
    }
}

/// As the agent refuses each (`cli refused_documents::`).
#[test]
fn odd_heads_are_refused_by_plan() {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    std::fs::create_dir(place.path().join("without")).unwrap();
    put("without/pool.yaml", POOL);
    put("without/base.yaml", BASE);
    for (head, words) in HEADS {
        put("a.json", head);
        let ran = run(&["plan", "--manifests", "without", "--pool", "worker", "-f", "a.json"], place.path());
        let text = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.code() == Some(4) && text.contains(words), "{head}: {:?} {text}", ran.status);
    }
}

/// In a directory they lie beside other manifests and are named; the file of `plan` is what a person gives.
#[test]
fn documents_of_other_shapes_have_one_answer() {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    for directory in ["with", "without"] {
        std::fs::create_dir(place.path().join(directory)).unwrap();
        put(&format!("{directory}/pool.yaml"), POOL);
        put(&format!("{directory}/base.yaml"), BASE);
    }
    let plan = ["plan", "--manifests", "without", "--pool", "worker", "-f", "a.json"];
    let told = |document: &str, words: &[&str]| {
        put("a.json", document);
        put("with/a.json", document);
        let ran = run(words, place.path());
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    let butane =
        HEADS.iter().filter(|(_, words)| words.contains("butane") || words.contains("spec.config of one"));
    for (document, words) in butane.chain([&(LONE_IGNITION, LONE_IGNITION_WORDS)]) {
        let (code, text) = told(document, &plan);
        assert!(code == Some(4) && text.contains(words), "{document}: {code:?} {text}");
        for verb in [vec!["validate", "--manifests", "with"], vec!["render", "--manifests", "with"]] {
            let (code, text) = told(document, &verb);
            assert!(code == Some(0) && text.contains(words), "{verb:?} {document}: {code:?} {text}");
        }
    }
    for document in WITH_STATUS {
        for words in [&plan[..], &["validate", "--manifests", "with"]] {
            let (code, text) = told(document, words);
            assert_eq!(code, Some(0), "{words:?} {document}: {text}");
        }
    }
}
