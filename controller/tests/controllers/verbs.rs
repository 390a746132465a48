//! Exit codes of the verbs, which are the agent's, and refusals as JSON.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: worker}\nspec: \
    {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}}\n";

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(at: &Path, words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    let output = command.args(words).current_dir(at).stdin(Stdio::null()).env_remove("KUBECONFIG").output();
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn config(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {{name: {name}, labels: \
         {{machineconfiguration.openshift.io/role: worker}}}}\nspec: {spec}\n"
    )
}

/// Directories `good`, `bad` (a fault that any node has) and `never` (one that no running node can get to), beside files.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for directory in ["good", "bad", "never", "both"] {
        put(&format!("{directory}/pool.yaml"), POOL);
        put(&format!("{directory}/00-base.yaml"), &config("00-base", "{kernelArguments: [quiet]}"));
    }
    let never = "{config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/a, mode: 644}]}}}";
    put("bad/50-typo.yaml", &config("50-typo", "{kernelArgs: [quiet]}"));
    put("never/50-mode.yaml", &config("50-mode", never));
    put("both/50-mode.yaml", &config("50-mode", never));
    put("both/50-typo.yaml", &config("50-typo", "{kernelArgs: [quiet]}"));
    put("fips.yaml", &config("50-fips", "{fips: true}"));
    put("settings.yaml", "jobs: [");
    put(
        "kubeconfig",
        &json!({ "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "a", "user": {} }] })
        .to_string(),
    );
    place
}

#[test]
fn exit_codes_are_those_of_agent() {
    let place = place();
    let plan = |more: &[&'static str]| [&["plan", "--pool", "worker", "-f", "fips.yaml"], more].concat();
    let build = ["build", "--config", "fips.yaml", "--print"];
    let rows: Vec<(i32, Vec<&str>)> = vec![
        (0, vec!["crds"]),
        (0, vec!["validate", "--manifests", "good"]),
        (0, vec!["render", "--manifests", "good"]),
        (0, vec!["bootstrap", "--manifests", "good", "--output", "out"]),
        (2, vec![]),
        (2, vec!["frobnicate"]),
        (2, vec!["render", "--frobnicate"]),
        (2, vec!["render", "--manifests", "none"]),
        (2, vec!["validate", "--manifests", "none"]),
        (2, vec!["bootstrap", "--manifests", "none", "--output", "out"]),
        (2, vec!["render", "--manifests", "good", "--pool", "none"]),
        (2, plan(&["--manifests", "none"])),
        (2, plan(&["--kubeconfig", "none"])),
        (2, vec!["plan", "--manifests", "good", "--pool", "worker", "-f", "none"]),
        (2, vec!["build", "--config", "none", "--push", "r.test/os:1"]),
        (2, build.to_vec()),
        (2, vec!["build", "--config", "fips.yaml", "--base", "r.test/os:1", "--push", "no tag"]),
        (2, vec!["run", "--kubeconfig", "none"]),
        (2, vec!["run", "--build-settings", "settings.yaml"]),
        (2, vec!["status", "--kubeconfig", "none"]),
        (2, vec!["serve", "--directory", "good", "--listen", "192.0.2.1:1"]),
        (2, vec!["serve", "--directory", "good", "--tls-cert", "none", "--tls-key", "none"]),
        (2, vec!["serve", "--kubeconfig", "none", "--listen", "127.0.0.1:0"]),
        (3, plan(&["--manifests", "good"])),
        (3, vec!["render", "--manifests", "never"]),
        (3, vec!["validate", "--manifests", "never"]),
        (3, vec!["bootstrap", "--manifests", "never", "--output", "out"]),
        (4, vec!["render", "--manifests", "bad"]),
        (4, vec!["validate", "--manifests", "bad"]),
        (4, vec!["bootstrap", "--manifests", "bad", "--output", "out"]),
        (4, vec!["validate", "--manifests", "both"]),
        (4, plan(&["--manifests", "bad"])),
        (4, plan(&["--kubeconfig", "kubeconfig"])),
        (4, vec!["bootstrap", "--manifests", "good", "--output", "good/pool.yaml/out"]),
    ];
    for (code, words) in rows {
        let ran = run(place.path(), &words);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.err);
    }
}

/// Class, reason, field and next step, for what the parser refuses as well.
#[test]
fn refusals_are_json_where_json_was_asked_for() {
    let place = place();
    let rows: [(i32, &[&str], &str, &str, Value); 8] = [
        (
            2,
            &["validate", "--manifest", "good", "-o", "json"],
            "usage",
            "InvalidArguments",
            json!("--manifest"),
        ),
        (2, &["plan", "--output=json", "--pool", "worker"], "usage", "InvalidArguments", json!("--file")),
        (2, &["statsu", "-o", "json"], "usage", "InvalidArguments", json!("statsu")),
        (2, &["validate", "--manifests", "none", "-o", "json"], "usage", "InvalidArguments", Value::Null),
        (
            2,
            &["build", "--config", "fips.yaml", "--base", "r.test/os:1", "--push", "no tag", "-o", "json"],
            "usage",
            "InvalidArguments",
            json!("--push"),
        ),
        (
            3,
            &["validate", "--manifests", "never", "-o", "json"],
            "unreconcilable",
            "FailedToReconcile",
            json!("storage.files \"/etc/a\" mode"),
        ),
        (
            4,
            &["validate", "--manifests", "bad", "-o", "json"],
            "degraded",
            "InvalidDocument",
            json!("spec.kernelArgs"),
        ),
        (
            4,
            &["plan", "--kubeconfig", "kubeconfig", "--pool", "a", "-f", "fips.yaml", "-o", "json"],
            "degraded",
            "SetupFailed",
            Value::Null,
        ),
    ];
    for (code, words, class, reason, field) in rows {
        let ran = run(place.path(), words);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.err);
        let document: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let refused = &document["refused"][0];
        assert_eq!((&refused["class"], &refused["reason"]), (&json!(class), &json!(reason)), "{document}");
        assert_eq!(refused["field"], field, "{document}");
        assert!(refused["message"].as_str().is_some_and(|text| !text.is_empty()), "{document}");
        assert!(!ran.err.is_empty(), "{words:?}");
    }
    // Its `--output` is a directory.
    let ran = run(place.path(), &["bootstrap", "--manifest", "good", "--output", "json"]);
    assert_eq!((ran.code, &*ran.out), (Some(2), ""));
}

/// The directory of `validate`'s faults has the same ones for `bootstrap`.
#[test]
fn bootstrap_names_faults_that_validate_names() {
    let place = place();
    let all = place.path().join("both");
    let os_config = "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineOSConfig, metadata: {name: worker}, spec: \
        {machineConfigPool: {name: worker}, imageBuilder: {imageBuilderType: Job}, renderedImagePushSecret: {name: Push}, \
        renderedImagePushSpec: 'registry.test/os:1', containerFile: [{content: \"FROM configs\\nRUNN a\"}]}}";
    std::fs::write(all.join("os.yaml"), os_config).unwrap();
    std::fs::write(all.join("60-kernel.yaml"), config("60-kernel", "{kernelType: fast}")).unwrap();
    let faults = |words: &[&str]| {
        let ran = run(place.path(), words);
        assert_eq!(ran.code, Some(4), "{}", ran.err);
        ran.err
    };
    let validate = faults(&["validate", "--manifests", "both"]);
    for part in [
        "6 errors:\n",
        "kernelArgs",
        "mode",
        "kernelType",
        "pre-built-image",
        "RUNN",
        "renderedImagePushSecret.name",
    ] {
        assert!(validate.contains(part), "{part}: {validate}");
    }
    assert_eq!(faults(&["bootstrap", "--manifests", "both", "--output", "out"]), validate);
    assert!(!place.path().join("out").exists());
}

/// Documents that no verb reads beside a pool: each is named, or refused.
#[test]
fn documents_without_kind_are_named() {
    let place = place();
    let good = place.path().join("good");
    let put = |name: &str, text: &str| std::fs::write(good.join(name), text).unwrap();
    put("60-bare.yaml", "metadata: {name: 60-bare}\nspec: {kernelArguments: [nosmt]}\n");
    put("61-ignition.yaml", "ignition: {version: 3.4.0}\nstorage: {files: [{path: /etc/a}]}\n");
    put("62-several.yaml", &format!("{}---\nspec: {{fips: true}}\n", config("62-several", "{}")));
    std::fs::create_dir(good.join("63-below.yaml")).unwrap();
    let named = [
        "good/60-bare.yaml: it has no kind, so it is not read",
        "good/61-ignition.yaml: it is an Ignition config without a kind",
        "good/62-several.yaml document 2 (a document without kind): it has no kind",
        "good/63-below.yaml: it is a directory, which is not read",
    ];
    let verbs: [&[&str]; 4] = [
        &["validate", "--manifests", "good"],
        &["render", "--manifests", "good"],
        &["plan", "--pool", "worker", "-f", "fips.yaml", "--manifests", "good"],
        &["bootstrap", "--manifests", "good", "--output", "out"],
    ];
    for words in verbs {
        let ran = run(place.path(), words);
        assert!([Some(0), Some(3)].contains(&ran.code), "{words:?}: {}", ran.err);
        for note in named {
            assert!(ran.err.contains(note), "{words:?}: {note}: {}", ran.err);
        }
    }
    for text in ["", "kind: ConfigMap\nmetadata: {name: a}\n", "ignition: {version: 3.4.0}\n"] {
        std::fs::write(place.path().join("none.yaml"), text).unwrap();
        let ran = run(place.path(), &["plan", "--pool", "worker", "-f", "none.yaml", "--manifests", "good"]);
        assert!(
            ran.code == Some(2) && ran.err.contains("none.yaml: contains no object"),
            "{text}: {}",
            ran.err
        );
    }
    let scalar = "it is not a mapping of fields to values";
    put("64-scalar.yaml", &format!("{}---\nfips\n", config("64-scalar", "{}")));
    std::os::unix::fs::symlink("gone.yaml", good.join("65-link.yaml")).unwrap();
    for words in verbs {
        let ran = run(place.path(), words);
        assert!([Some(2), Some(4)].contains(&ran.code), "{words:?}: {}", ran.err);
        for fault in
            [format!("64-scalar.yaml document 2: {scalar}"), "65-link.yaml: it is no file".to_owned()]
        {
            assert!(ran.err.contains(&fault) || ran.err.contains(scalar), "{words:?}: {fault}: {}", ran.err);
        }
    }
}
