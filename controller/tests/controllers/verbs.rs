//! Exit codes of the verbs, which are the agent's, and refusals as JSON.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: worker}\nspec: \
    {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}}\n";

const OS_CONFIG: &str = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineOSConfig\nmetadata: {name: worker}\nspec: \
    {machineConfigPool: {name: worker}, imageBuilder: {imageBuilderType: Job}, renderedImagePushSecret: {name: push}, \
    renderedImagePushSpec: 'registry.test/os:1'}\n";

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
    put("image/pool.yaml", POOL);
    put("image/00-base.yaml", &config("00-base", "{kernelArguments: [quiet]}"));
    put("image/os.yaml", OS_CONFIG);
    let no_host = "{config: {ignition: {version: 3.4.0}, storage: {files: [{path: /usr}]}}}";
    put("no-host.yaml", &config("50-usr", no_host));
    put("no-host/50-usr.yaml", &config("50-usr", no_host));
    put("no-host/pool.yaml", POOL);
    let mixed = "{config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/a, mode: 644}, \
        {path: /etc/b, contents: {source: 'data:;base64,@'}}]}}}";
    put("mixed.yaml", &config("50-mixed", mixed));
    put("mixed/50-mixed.yaml", &config("50-mixed", mixed));
    put("mixed/pool.yaml", POOL);
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
        (3, vec!["render", "--manifests", "no-host"]),
        (3, vec!["plan", "--pool", "worker", "-f", "no-host.yaml", "--manifests", "good"]),
        (3, vec!["build", "--config", "no-host.yaml", "--base", "r.test/os:1", "--print"]),
        (4, vec!["render", "--manifests", "mixed"]),
        (4, vec!["validate", "--manifests", "mixed"]),
        (4, vec!["plan", "--pool", "worker", "-f", "mixed.yaml", "--manifests", "good"]),
        (4, vec!["build", "--config", "mixed.yaml", "--base", "r.test/os:1", "--print"]),
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

/// Each verb that only prints ends well when nobody reads it: the pipe is closed before it begins.
#[test]
fn verbs_that_print_survive_closed_pipe() {
    let place = place();
    std::fs::write(place.path().join("a.yaml"), config("50-b", "{kernelArguments: [nosmt]}")).unwrap();
    for words in [
        &["--help"][..],
        &["status", "--help"],
        &["completions", "bash"],
        &["man"],
        &["crds"],
        &["render", "--manifests", "good"],
        &["validate", "--manifests", "good"],
        &["validate", "--manifests", "good", "--output", "json"],
        &["plan", "--manifests", "good", "--pool", "worker", "-f", "a.yaml"],
        &["plan", "--manifests", "good", "--pool", "worker", "-f", "a.yaml", "--output", "json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
        command.args(words).current_dir(place.path()).stdin(Stdio::null()).env_remove("KUBECONFIG");
        let ran = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && !told.contains("Broken pipe"), "{words:?}: {:?} {told}", ran.status);
    }
}

/// With the flag an unknown field passes, and each verb names it.
#[test]
fn unknown_fields_that_are_allowed_are_named() {
    let place = place();
    for words in [
        &["validate", "--manifests", "bad"][..],
        &["render", "--manifests", "bad"],
        &["bootstrap", "--manifests", "bad", "--output", "out"],
        &["plan", "--pool", "worker", "--manifests", "good", "-f", "bad/50-typo.yaml"],
        &["build", "--config", "bad/50-typo.yaml", "--base", "r.test/os:1", "--print"],
    ] {
        let refused = run(place.path(), words);
        let ran = run(place.path(), &[words, &["--allow-unknown-fields"]].concat());
        let told = ran.out + &ran.err;
        assert_eq!((refused.code, ran.code), (Some(4), Some(0)), "{words:?}: {}{told}", refused.err);
        assert!(told.contains("spec.kernelArgs"), "{words:?}: {told}");
        assert!(refused.err.contains("--allow-unknown-fields"), "{words:?}: {}", refused.err);
    }
}

/// Exit code, command line, class, reason and field of a refusal.
type Row = (i32, &'static [&'static str], &'static str, &'static str, Value);

fn refused_rows() -> [Row; 9] {
    [
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
            &["validate", "--manifests", "image", "-o", "json"],
            "degraded",
            "InvalidConfig",
            json!("metadata.annotations[machineconfiguration.openshift.io/pre-built-image]"),
        ),
        (
            4,
            &["plan", "--kubeconfig", "kubeconfig", "--pool", "a", "-f", "fips.yaml", "-o", "json"],
            "degraded",
            "SetupFailed",
            Value::Null,
        ),
    ]
}

/// Class, reason, field and next step, for what the parser refuses as well.
#[test]
fn refusals_are_json_where_json_was_asked_for() {
    let place = place();
    for (code, words, class, reason, field) in refused_rows() {
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

/// Standard input by each of its names, a pipe of the shell and a link are a file like another.
#[test]
fn standard_input_pipe_and_link_are_planned() {
    let place = place();
    std::fs::write(place.path().join("a.yaml"), config("50-a", "{kernelArguments: [nosmt]}")).unwrap();
    std::os::unix::fs::symlink("a.yaml", place.path().join("link")).unwrap();
    let plan = |given: &str| {
        let mut bash = Command::new("bash");
        let script = format!("\"$0\" plan --manifests good --pool worker -f {given}");
        bash.args(["-c", &script, env!("CARGO_BIN_EXE_machine-config-controller")]).current_dir(place.path());
        let output = bash.stdin(Stdio::null()).env_remove("KUBECONFIG").output().unwrap();
        assert!(output.status.success(), "{given}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let of_file = plan("a.yaml");
    assert!(of_file.contains("nosmt"), "{of_file}");
    for given in
        ["- <a.yaml", "/dev/stdin <a.yaml", "/dev/fd/0 <a.yaml", "- < <(cat a.yaml)", "<(cat a.yaml)", "link"]
    {
        assert_eq!(plan(given), of_file, "{given}");
    }
}

/// The same for the config of `build`, and a list or several documents of one.
#[test]
fn forms_of_built_config_have_one_answer() {
    let place = place();
    let text = config("50-a", "{kernelArguments: [nosmt]}");
    let foreign = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: app}}";
    let json = serde_json::to_string(&machine_config_core::model::yaml::tree(&text).unwrap()).unwrap();
    for (name, text) in [
        ("a.yaml", text.clone()),
        ("list", format!("{{apiVersion: v1, kind: List, items: [{json}, {foreign}]}}")),
        ("trailing", format!("---\n{text}\n---\n")),
        ("several", format!("{foreign}\n---\n# a comment\n---\n{text}\n---\n")),
    ] {
        std::fs::write(place.path().join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("a.yaml", place.path().join("link")).unwrap();
    let build = |given: &str| {
        let mut bash = Command::new("bash");
        let base = format!("r.test/os@sha256:{}", "a".repeat(64));
        let script = format!("\"$0\" build --base {base} --print --config {given}");
        bash.args(["-c", &script, env!("CARGO_BIN_EXE_machine-config-controller")]).current_dir(place.path());
        let output = bash.stdin(Stdio::null()).env_remove("KUBECONFIG").output().unwrap();
        assert!(output.status.success(), "{given}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let of_file = build("a.yaml");
    assert!(of_file.contains("\nFROM "), "{of_file}");
    for given in [
        "- <a.yaml",
        "/dev/stdin <a.yaml",
        "- < <(cat a.yaml)",
        "<(cat a.yaml)",
        "link",
        "list",
        "- <list",
        "trailing",
        "several",
    ] {
        assert_eq!(build(given), of_file, "{given}");
    }
}

/// A mode whose decimal digits are octal ones was meant as octal, and each verb says so.
#[test]
fn mode_in_decimal_digits_of_octal_one_is_explained() {
    let place = place();
    for verb in [&["validate"][..], &["render"], &["bootstrap", "--output", "out"]] {
        let ran = run(place.path(), &[verb, &["--manifests", "never"]].concat());
        let words = "644 is decimal, 01204 in octal: for 0644 write 0644 in YAML, 420 in JSON";
        assert!(ran.code == Some(3) && ran.err.contains(words), "{verb:?}: {}", ran.err);
    }
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

/// A wrong type, a bad name and label, and a fault of the merged config hide no other fault.
#[test]
fn all_faults_are_named_in_one_run() {
    let place = place();
    let all = place.path().join("all");
    std::fs::create_dir(&all).unwrap();
    let put = |name: &str, text: &str| std::fs::write(all.join(name), text).unwrap();
    let validate = || {
        let ran = run(place.path(), &["validate", "--manifests", "all"]);
        assert!([Some(3), Some(4)].contains(&ran.code), "{}", ran.err);
        ran.err
    };
    put("pool.yaml", POOL);
    let spec = "{fips: \"yes\", kernelTyp: x, kernelType: fast, config: {ignition: {version: 3.4.0}, storage: {files: [\
                {path: etc/rel, mode: \"0644\"}, {mode: 9999}, {path: 5, mod: 1}]}}}";
    put("a.yaml", &config("Bad_Name", spec).replace("labels: {", "labels: {x: 5, "));
    put(
        "pool2.yaml",
        &POOL
            .replace("name: worker", "name: Bad_Pool")
            .replace("spec: {", "spec: {paused: 5, maxUnavailable: abc, "),
    );
    let found = validate();
    for part in [
        "metadata.name: config name \"Bad_Name\"",
        "metadata.labels.x: ",
        "spec.fips: ",
        "spec.kernelType \"fast\"",
        "spec.config.storage.files[0].mode",
        "storage.files \"etc/rel\"",
        "spec.config.storage.files[1].path: it is missing",
        "storage.files[1] mode: ",
        "spec.config.storage.files[2].path",
        "spec.kernelTyp: ",
        "spec.config.storage.files[2].mod: ",
        "Bad_Pool",
        "spec.paused",
        "spec.maxUnavailable",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    std::fs::remove_file(all.join("a.yaml")).unwrap();
    std::fs::remove_file(all.join("pool2.yaml")).unwrap();
    let storage =
        |storage: &str| format!("{{config: {{ignition: {{version: 3.4.0}}, storage: {{{storage}}}}}}}");
    put("1.yaml", &config("1-link", &storage("links: [{path: /etc/a, target: /b}]")));
    put("2.yaml", &config("2-directory", &storage("directories: [{path: /etc/a/b}]")));
    put("3.yaml", &config("3-lock", &storage("files: [{path: /etc/passwd.lock}]")));
    let found = validate();
    for part in ["storage.directories \"/etc/a/b\"", "storage.files \"/etc/passwd.lock\""] {
        assert!(found.contains(part), "{part}: {found}");
    }
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
    put("64-empty.yaml", "---\n# nothing\n");
    put("65-empty.json", "");
    let named = [
        "good/60-bare.yaml: it has no kind, so it is not read",
        "good/61-ignition.yaml: it is an Ignition config without a kind",
        "good/62-several.yaml document 2 (a document without kind): it has no kind",
        "good/63-below.yaml is not read: it is a directory",
        "good/64-empty.yaml is empty",
        "good/65-empty.json is empty",
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
    for text in ["", "kind: ConfigMap\nmetadata: {name: a}\n"] {
        std::fs::write(place.path().join("none.yaml"), text).unwrap();
        let ran = run(place.path(), &["plan", "--pool", "worker", "-f", "none.yaml", "--manifests", "good"]);
        assert!(ran.code == Some(4) && ran.err.contains("it contains no object"), "{text}: {}", ran.err);
    }
    let scalar = "it is not a mapping of fields to values";
    put("64-scalar.yaml", &format!("{}---\nfips\n", config("64-scalar", "{}")));
    std::os::unix::fs::symlink("gone.yaml", good.join("65-link.yaml")).unwrap();
    for words in verbs {
        let ran = run(place.path(), words);
        assert!([Some(2), Some(4)].contains(&ran.code), "{words:?}: {}", ran.err);
        for fault in
            [format!("64-scalar.yaml document 2: {scalar}"), "65-link.yaml: it is not a file".to_owned()]
        {
            assert!(ran.err.contains(&fault) || ran.err.contains(scalar), "{words:?}: {fault}: {}", ran.err);
        }
    }
}

/// One object does not hide its own further faults, in files, links, accounts, units and fields of the OS alike.
#[test]
fn every_fault_of_one_object_is_named_in_one_run() {
    let place = place();
    let put = |name: &str, text: &str| std::fs::write(place.path().join("good").join(name), text).unwrap();
    let spec = r#"{"kernelType":"fast","extensions":["nope","neither"],"kernelArguments":["a=\"b","initrd=x"],"kernelArgs":[],
        "config":{"ignition":{"version":"3.4.0"},
        "passwd":{"users":[{"name":"a b"},{"name":"app","homeDir":"x","uid":-1,"shell":"y"},{"name":"root","shouldExist":false}],
            "groups":[{"name":"g h"}]},
        "storage":{"files":[{"path":"/etc/a","mode":99999},{"path":"etc/b"},{"path":"/etc/c","contents":{"source":"https://x/y"}},
                {"path":"/etc/d","user":{"id":-1}},{"path":"/etc/l/x"},{"path":"/tmp"}],
            "directories":[{"path":"etc/x"},{"path":"/etc/dd","mode":99999}],"links":[{"path":"/etc/l"},{"path":"/etc/m","target":"a"}],
            "luks":[{"name":"a/b"}],"raid":[{"name":"r","level":"raid99"}],"disks":[{"device":"sda"}]},
        "systemd":{"units":[{"name":"x"},{"name":"y.service","mask":true,"enabled":true},
            {"name":"z.service","dropins":[{"name":"a"}]},{"name":"u.service","contents":"[Unit"}]}}}"#;
    put("50-a.yaml", &config("50-a", spec));
    let fields = [
        "spec.kernelArguments \"a=\\\"b\"",
        "spec.kernelArguments \"initrd=x\"",
        "spec.kernelType \"fast\"",
        "spec.extensions \"nope\"",
        "spec.extensions \"neither\"",
        "spec.kernelArgs",
        "passwd.users \"a b\"",
        "passwd.users \"app\" homeDir",
        "passwd.users \"app\" uid",
        "passwd.users \"app\" shell",
        "passwd.users \"root\" shouldExist",
        "passwd.groups \"g h\"",
        "storage.files \"/etc/a\" mode",
        "storage.files \"etc/b\"",
        "storage.files \"/etc/c\" contents",
        "storage.files \"/etc/d\" user",
        "storage.files \"/tmp\"",
        "storage.directories \"etc/x\"",
        "storage.directories \"/etc/dd\" mode",
        "storage.links \"/etc/l\" target",
        "storage.luks \"a/b\" name",
        "storage.luks \"a/b\" device",
        "storage.raid \"r\" level",
        "storage.raid \"r\" devices",
        "storage.disks \"sda\" device",
        "systemd.units \"x\"",
        "systemd.units \"y.service\"",
        "systemd.units \"z.service\" dropins \"a\"",
        "systemd.units \"u.service\" contents",
    ];
    let ran = run(place.path(), &["validate", "--manifests", "good", "--output", "json"]);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let found: Vec<&str> =
        document["refused"].as_array().unwrap().iter().filter_map(|one| one["field"].as_str()).collect();
    let missing: Vec<&&str> = fields.iter().filter(|field| !found.contains(field)).collect();
    assert!(missing.is_empty(), "{missing:#?} not in {found:#?}");
    let text = run(place.path(), &["render", "--manifests", "good"]).err;
    assert!(fields.iter().all(|field| text.contains(field)), "{text}");
    // Within bounds.
    let files: Vec<Value> = (0..500).map(|at| json!({ "path": format!("etc/{at}") })).collect();
    let spec = json!({ "config": { "ignition": { "version": "3.4.0" }, "storage": { "files": files } } });
    put("50-a.yaml", &config("50-a", &spec.to_string()));
    let text = run(place.path(), &["validate", "--manifests", "good"]).err;
    assert!(text.lines().count() < 110 && text.contains("and 400 more faults of the same object"), "{text}");
}

/// Nor do those of build settings and of a policy, and each MachineConfig has its own reasons.
#[test]
fn faults_of_other_kinds_do_not_hide_each_other() {
    let place = place();
    let put = |name: &str, text: &str| std::fs::write(place.path().join("good").join(name), text).unwrap();
    put(
        "os.yaml",
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineOSConfig\nmetadata: {name: worker, annotations: \
         {machineconfiguration.openshift.io/pre-built-image: 'r.test/a:b'}}\nspec: {machineConfigPool: {name: worker}, imageBuilder: \
         {imageBuilderType: Job}, renderedImagePushSpec: 'r.test/a:b', containerFile: [{content: RUNN x}, {content: 'FROM'}]}\n",
    );
    put(
        "policy.yaml",
        "apiVersion: machine-config-agent.io/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: a}\nspec: {poolRef: {name: worker}, \
         nodeTimeout: soon, canary: {nodes: 1, soak: x}, drain: {timeout: 0s}, windows: [{start: '25:00', length: 0h}]}\n",
    );
    let config_of = |name: &str, passwd: &str| {
        config(name, &format!("{{config: {{ignition: {{version: 3.4.0}}, passwd: {passwd}}}}}"))
    };
    put("51-root.yaml", &config_of("51-root", "{users: [{name: root, shouldExist: false}]}"));
    put(
        "52-toor.yaml",
        &config_of("52-toor", "{users: [{name: toor, uid: 0}], groups: [{name: ops, gid: 0}]}"),
    );
    let text = run(place.path(), &["validate", "--manifests", "good"]).err;
    for part in [
        "spec.renderedImagePushSecret",
        "pre-built-image",
        "spec.containerFile[0].content",
        "spec.nodeTimeout",
        "spec.canary",
        "spec.drain.timeout",
        "spec.windows[0].start: \"25:00\"",
        "spec.windows[0]: length must be",
        "MachineConfig 51-root is refused, and no node gets it: the node can't reach its new config: passwd.users \"root\" shouldExist",
        "MachineConfig 52-toor is refused, and no node gets it: the node can't reach its new config: passwd.users \"toor\" uid",
        "MachineConfig 52-toor is refused, and no node gets it: the node can't reach its new config: passwd.groups \"ops\" gid",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Nodes refuse a set of pinned images that no verb here applies: it is checked, beside the note.
#[test]
fn faults_of_pinned_image_set_are_named() {
    let place = place();
    let set = |spec: &str| {
        let text = format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: PinnedImageSet\nmetadata: {{name: worker}}\nspec: {spec}\n"
        );
        std::fs::write(place.path().join("good/pinned.yaml"), text).unwrap();
        let ran = run(place.path(), &["validate", "--manifests", "good"]);
        assert!(ran.err.contains("PinnedImageSet worker: this kind is not handled in files"), "{}", ran.err);
        ran
    };
    let image = format!("r.test/a@sha256:{}", "a".repeat(64));
    assert_eq!(set(&format!("{{pinnedImages: [{{name: '{image}'}}]}}")).code, Some(0));
    let refused =
        set(&format!("{{pinnedImages: [{{name: '{image}'}}, {{name: 'r.test/a:1'}}], pinnedImage: []}}"));
    for part in ["spec.pinnedImages[1].name: ", "spec.pinnedImage: ", "did you mean"] {
        assert!(
            refused.code == Some(4) && refused.err.contains(part),
            "{part}: {:?} {}",
            refused.code,
            refused.err
        );
    }
    assert!(refused.err.contains("2 errors"), "{}", refused.err);
    for spec in ["{}", "{pinnedImages: []}", "{pinnedImages: [{name: 5}]}"] {
        let refused = set(spec);
        assert!(
            refused.code == Some(4) && refused.err.contains("spec.pinnedImages"),
            "{spec}: {}",
            refused.err
        );
    }
}

/// A label that the API server refuses is refused here, with its key; a namespace it drops.
#[test]
fn faults_of_metadata_are_named() {
    let place = place();
    let labels = "namespace: a, finalizers: ['a b'], ownerReferences: [{}], annotations: {'a b': c}, labels: {'a b': c, d: 'x y', ";
    let text = config("50-a", "{}").replace("labels: {", labels);
    std::fs::write(place.path().join("good/50-a.yaml"), text).unwrap();
    let ran = run(place.path(), &["validate", "--manifests", "good"]);
    for part in [
        "8 errors:\n",
        "50-a.yaml: MachineConfig 50-a: metadata.labels: \"a b\" is not a label key; write it as NAME or DOMAIN/NAME",
        "metadata.labels: \"x y\" of \"d\" is not a label value; write at most 63 of",
        "metadata.annotations: \"a b\" is not an annotation key",
        "metadata.finalizers: \"a b\" is not a finalizer name",
        "metadata.ownerReferences[0].uid: it ",
    ] {
        assert!(ran.code == Some(4) && ran.err.contains(part), "{part}: {}", ran.err);
    }
}

/// An object with faults hides no fault of objects that have nothing to do with it.
#[test]
fn refused_config_hides_no_fault_of_others() {
    let place = place();
    let put = |name: &str, text: &str| std::fs::write(place.path().join("good").join(name), text).unwrap();
    let validate = || run(place.path(), &["validate", "--manifests", "good"]).err;
    let infra = POOL.replace("name: worker", "name: infra").replace("role: worker", "role: infra");
    put("infra.yaml", &infra);
    put("50-a.yaml", &config("50-a", "{fips: 5}"));
    let unselected = "pool infra: machineConfigSelector selects no MachineConfig";
    let found = validate();
    assert!(found.contains("spec.fips") && found.contains(unselected), "{found}");
    // It may be the one that the pool lacks.
    for one in [
        config("51-b", "{fips: 5}").replace("role: worker", "role: infra"),
        config("51-b", "{fips: 5}").replace("role: worker", "role: 5"),
        "a: [".to_owned(),
    ] {
        put("51-b.yaml", &one);
        assert!(!validate().contains(unselected), "{one}");
    }
    put("51-b.yaml", &config("51-b", "{extensions: [never-heard-of]}"));
    put("52-c.yaml", &config("52-c", "{extensions: [kernel-devel]}"));
    put("53-d.yaml", &config("53-d", "{kernelType: realtime}"));
    let found = validate();
    for part in ["spec.fips", unselected, "never-heard-of", "\"kernel-devel\"", "4 errors"] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

/// No entry of a directory is left out in silence, by any verb, also where another one is refused.
#[test]
fn entries_that_are_not_read_are_named() {
    let place = place();
    let good = place.path().join("good");
    let put = |name: &str, text: &str| std::fs::write(good.join(name), text).unwrap();
    let unread = ["a.txt", "b.bu", "c.ign", "d.yaml.gz", ".e.yaml", "f.yaml~", ".g.yaml.swp", "README"];
    for name in unread {
        put(name, &config("50-fips", "{fips: true}"));
    }
    std::fs::create_dir(good.join("below")).unwrap();
    std::os::unix::fs::symlink("below", good.join("linked")).unwrap();
    // The volume of a ConfigMap.
    std::fs::create_dir(good.join("..2026_11_28")).unwrap();
    std::os::unix::fs::symlink("..2026_11_28", good.join("..data")).unwrap();
    put("60-upper.YAML", &config("60-upper", "{kernelArguments: [nosmt]}"));
    put("61-upper.Yml", &config("61-upper", "{kernelArguments: [nosmp]}"));
    put("62-upper.JSON", &json!({ "apiVersion": "v1", "kind": "ConfigMap" }).to_string());
    let verbs: [&[&str]; 4] = [
        &["validate", "--manifests", "good"],
        &["render", "--manifests", "good"],
        &["plan", "--pool", "worker", "-f", "fips.yaml", "--manifests", "good"],
        &["bootstrap", "--manifests", "good", "--output", "out"],
    ];
    let is_named = |ran: &Ran, words: &[&str]| {
        for name in unread.iter().chain(&["below", "linked"]) {
            let note = format!("note: good/{name} is not read: ");
            assert_eq!(ran.err.matches(&note).count(), 1, "{words:?}: {note}: {}", ran.err);
        }
        assert!(!ran.err.contains("..data") && !ran.err.contains("-upper"), "{words:?}: {}", ran.err);
    };
    for words in verbs {
        let ran = run(place.path(), words);
        assert!([Some(0), Some(3)].contains(&ran.code), "{words:?}: {}", ran.err);
        is_named(&ran, words);
    }
    let rendered = run(place.path(), &["render", "--manifests", "good"]).out;
    assert!(rendered.contains("nosmt") && rendered.contains("nosmp"), "{rendered}");
    put("63-broken.yaml", "kind: MachineConfig\nspec: 5\n");
    for words in verbs {
        let ran = run(place.path(), words);
        assert_eq!(ran.code, Some(4), "{words:?}: {}", ran.err);
        is_named(&ran, words);
    }
}
