//! The verbs over a directory of files, as a person runs them.

use std::path::{Path, PathBuf};

use super::*;

const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker}
spec: {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: something-else}
";

fn machine_config(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {{name: {name}, labels: \
         {{machineconfiguration.openshift.io/role: worker}}}}\nspec: {spec}\n"
    )
}

#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "pool.yaml", POOL);
    let base = "{config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/a.conf, contents: {source: 'data:,1'}}]}}}";
    write(directory.path(), "00-base.yml", &machine_config("00-base", base));
    write(directory.path(), "notes.txt", "no manifest");
    directory
}

fn run(arguments: &[&str]) -> Result<VerbOutput, CliError> {
    let cli = Cli::parse_from([&["machine-config-controller"], arguments].concat());
    match &cli.verb {
        Verb::Crds => crds::run(),
        Verb::Render(arguments) => render::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Bootstrap(arguments) => bootstrap::run(arguments),
        Verb::Validate(arguments) => validate::run(arguments),
        Verb::Build(arguments) => build::run(arguments),
        Verb::Completions(arguments) => Ok(completions::run(arguments, Cli::command())),
        Verb::Man(arguments) => man::run(arguments, Cli::command()),
        Verb::Run(_) | Verb::Serve(_) | Verb::Status(_) => panic!("it has no end"),
    }
}

/// The flag that tests kill it by is in no release: there an administrator's slip, or a thief, could use it.
#[test]
fn release_has_no_abort_flag() {
    let parsed = Cli::try_parse_from(["machine-config-controller", "run", "--abort-at-write", "1"]);
    assert_eq!(parsed.is_ok(), cfg!(debug_assertions));
}

#[test]
fn renders_objects_of_directory() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let output = run(&["render", "--manifests", path]).unwrap();
    assert!(
        output.text.starts_with("---\n") && output.text.contains("name: rendered-worker-"),
        "{}",
        output.text
    );
    assert_eq!(run(&["render", "--manifests", path, "--pool", "worker"]).unwrap().text, output.text);
    let error = run(&["render", "--manifests", path, "--pool", "infra"]).unwrap_err().to_string();
    assert_eq!(error, "there is no MachineConfigPool infra in the directory; it has worker");
}

#[test]
fn shows_cost_of_change_beforehand() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let plan = |text: &str| {
        let file = write(elsewhere.path(), "new.yaml", text);
        run(&["plan", "--manifests", path, "--pool", "worker", "-f", file.to_str().unwrap()]).unwrap()
    };
    let reboot = plan(&machine_config("50-args", "{kernelArguments: [quiet]}"));
    assert!(reboot.text.contains("reboot") && reboot.text.contains("quiet"), "{}", reboot.text);
    let changed = "{config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/a.conf, contents: {source: 'data:,2'}}]}}}";
    let file = plan(&machine_config("00-base", changed));
    assert!(file.text.contains("/etc/a.conf"), "{}", file.text);
    let refused = plan(&machine_config("50-fips", "{fips: true}"));
    assert!(
        refused.text.contains("would refuse it") && refused.code == ExitCode::from(3),
        "{}",
        refused.text
    );
    let nothing = plan(&machine_config("50-nothing", "{}")).text;
    assert!(nothing.starts_with("the nodes of pool worker keep rendered-worker-"), "{nothing}");
}

/// A pool without a MachineConfig: its first one, and the pool itself, may come by the file.
#[test]
fn plans_first_config_of_pool() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "pool.yaml", POOL);
    let path = directory.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let plan = |text: &str, more: &[&str]| {
        let file = write(elsewhere.path(), "new.yaml", text);
        let words = ["plan", "--manifests", path, "-f", file.to_str().unwrap()];
        run(&[&words[..], more].concat())
    };
    let worker = ["--pool", "worker"];
    let first = machine_config("50-args", "{kernelArguments: [quiet]}");
    let text = plan(&first, &worker).unwrap().text;
    for part in ["a node of pool worker that has no config yet:\n", "reboot", "quiet"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = plan(&first, &["--pool", "worker", "-o", "json"]).unwrap().text;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["from"].is_null() && json["after"]["kind"] == "reboot", "{json}");
    let refused = plan(&machine_config("50-fips", "{fips: true}"), &worker).unwrap();
    assert_eq!(refused.code, ExitCode::from(3), "{}", refused.text);
    // Nothing for the pool is no plan.
    let other = machine_config("50-args", "{}").replace("role: worker", "role: infra");
    let error = plan(&other, &worker).unwrap_err().to_string();
    assert!(error.contains("pool worker: machineConfigSelector selects no MachineConfig"), "{error}");
    let infra = POOL.replace("worker", "infra");
    let of_infra = first.replace("role: worker", "role: infra");
    let text = plan(&format!("{infra}\n---\n{of_infra}"), &["--pool", "infra"]).unwrap().text;
    assert!(text.contains("a node of pool infra that has no config yet:\n"), "{text}");
    // Of a new pool, the nodes have what it selects of before.
    write(directory.path(), "base.yaml", &machine_config("00-base", "{kernelArguments: [nosmt]}"));
    let both = infra.replace(
        "matchLabels: {machineconfiguration.openshift.io/role: infra}",
        "matchExpressions: \
        [{key: machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}]",
    );
    let text = plan(&format!("{both}\n---\n{of_infra}"), &["--pool", "infra"]).unwrap().text;
    assert!(
        text.contains("a node of pool infra that has rendered-infra-") && text.contains("quiet"),
        "{text}"
    );
    assert!(!text.contains("nosmt"), "{text}");
}

/// The file may change the images of the release.
#[test]
fn plan_reads_release_of_file() {
    let directory = directory();
    let elsewhere = tempfile::tempdir().unwrap();
    let image = format!("r.test/os@sha256:{}", "a".repeat(64));
    let config = format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\n\
         metadata: {{name: machine-config-controller}}\nspec: {{baseOSContainerImage: '{image}'}}\n"
    );
    let file = write(elsewhere.path(), "new.yaml", &config);
    let path = directory.path().to_str().unwrap();
    let text =
        run(&["plan", "--manifests", path, "--pool", "worker", "-f", file.to_str().unwrap()]).unwrap().text;
    assert!(text.contains(&image), "{text}");
}

/// Faults of objects that are not the pool's are named beside its plan.
#[test]
fn plan_of_pool_passes_faults_of_others() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = write(elsewhere.path(), "new.yaml", &machine_config("50-args", "{kernelArguments: [quiet]}"));
    let plan = || run(&["plan", "--manifests", path, "--pool", "worker", "-f", file.to_str().unwrap()]);
    let of_infra = |name: &str, spec: &str| machine_config(name, spec).replace("role: worker", "role: infra");
    let infra = POOL
        .replace("worker", "infra")
        .replace("{machineConfigSelector: ", "{maxUnavailable: x, machineConfigSelector: ");
    write(directory.path(), "infra.yaml", &infra);
    write(directory.path(), "infra-config.yaml", &of_infra("50-infra", "{kernelArguments: quiet}"));
    let output = plan().unwrap();
    assert!(
        output.text.contains("because of kernelArguments") || output.text.contains("quiet"),
        "{}",
        output.text
    );
    let error = output.error.unwrap();
    for part in
        ["2 errors:", "infra.yaml ", "spec.maxUnavailable", "infra-config.yaml ", "spec.kernelArguments"]
    {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(error::exit_code(&error.refusals()), 4);
    // What may be the pool's is a refusal, and the first to be told.
    for (name, text) in [
        ("a.yaml", machine_config("50-bad", "{kernelArguments: quiet}")),
        ("a.yaml", POOL.replace("{machineConfigSelector", "{maxUnavailable: x, machineConfigSelector")),
        ("a.yaml", machine_config("00-base", "{}")),
        ("a.yaml", "kind: [".to_owned()),
        ("a.yaml", "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: cluster}\nspec: {x: 1}".to_owned()),
        ("a.yaml", "apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nmetadata: {name: a}\nspec: {}".to_owned()),
    ] {
        let path = write(directory.path(), name, &text);
        let error = plan().map(|output| output.text).unwrap_err().to_string();
        assert!(error.contains("a.yaml"), "{text}: {error}");
        #[expect(clippy::disallowed_methods, reason = "a test: it removes the files that it wrote")]
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn second_disruption_policy_is_refused() {
    let directory = directory();
    let policy = "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: cluster}\nspec: {}\n";
    write(directory.path(), "a.yaml", policy);
    write(directory.path(), "b.yaml", policy);
    let error =
        run(&["validate", "--manifests", directory.path().to_str().unwrap()]).unwrap_err().to_string();
    assert!(
        error.ends_with("b.yaml: MachineConfiguration cluster exists already; keep one of the two"),
        "{error}"
    );
}

#[test]
fn errors_name_file_and_no_content() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    write(directory.path(), "01-twice.yaml", &machine_config("00-base", "{}"));
    let error = run(&["render", "--manifests", path]).unwrap_err().to_string();
    assert!(
        error.ends_with("01-twice.yaml: MachineConfig 00-base exists already; keep one of the two"),
        "{error}"
    );
    write(directory.path(), "01-twice.yaml", &machine_config("01-bad", "{kernelArguments: geheim}"));
    let error = run(&["render", "--manifests", path]).unwrap_err().to_string();
    assert!(
        error.contains("01-twice.yaml can't be read: spec.kernelArguments: ") && !error.contains("geheim"),
        "{error}"
    );
    let error = run(&["render", "--manifests", "/nowhere"]).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere: "), "{error}");
}

#[test]
fn definitions_are_of_upstream_kinds() {
    let text = run(&["crds"]).unwrap().text;
    for name in [
        "machineconfigs.machineconfiguration.openshift.io",
        "machineconfigpools.machineconfiguration.openshift.io",
    ] {
        assert!(text.contains(&format!("name: {name}")), "{text}");
    }
    // A status is written apart from the spec, and Ignition's fields are kept.
    assert!(
        text.contains("subresources:") && text.contains("x-kubernetes-preserve-unknown-fields: true"),
        "{text}"
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it moves the files that a person has")]
fn digest_of_other_contents_is_named_by_validate_and_render() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let hash = format!("sha256-{}", "0".repeat(64));
    let contents = format!("{{source: 'data:,b', verification: {{hash: {hash}}}}}");
    let files = format!("{{files: [{{path: /etc/b, contents: {contents}}}]}}");
    let spec = format!("{{config: {{ignition: {{version: 3.5.0}}, storage: {files}}}}}");
    write(directory.path(), "60-stale.yaml", &machine_config("60-stale", &spec));
    for verb in ["validate", "render"] {
        let text = run(&[verb, "--manifests", path]).unwrap().text;
        let remark = "not applied: storage.files \"/etc/b\" contents.verification.hash: it does not match the contents";
        assert!(text.contains(remark) && !text.contains(&hash), "{verb}: {text}");
    }
    let field = "storage.files \"/etc/b\" contents.verification.hash";
    let text = run(&["validate", "--manifests", path, "--output", "json"]).unwrap().text;
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let named = &found["notApplied"][0];
    assert_eq!((named["pool"].as_str(), named["field"].as_str()), (Some("worker"), Some(field)), "{text}");
    // As `plan` says, of the file alone and beside the same object.
    let file = directory.path().join("60-stale.yaml");
    let given = tempfile::tempdir().unwrap();
    let stale = given.path().join("60-stale.yaml");
    for is_known in [true, false] {
        std::fs::copy(&file, &stale).unwrap();
        if !is_known {
            std::fs::remove_file(&file).unwrap();
        }
        let words = ["plan", "--manifests", path, "--pool", "worker", "-f", stale.to_str().unwrap()];
        let text = run(&words).unwrap().text;
        assert_eq!(text.matches(field).count(), 1, "{is_known}: {text}");
        let text = run(&[&words[..], &["--output", "json"]].concat()).unwrap().text;
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let named = found["notApplied"].as_array().unwrap();
        assert!(matches!(named.as_slice(), [one] if one["field"] == field), "{is_known}: {text}");
    }
}

/// SEED-015: the verdict alone, in the words of `bootstrap`; nothing is written by either.
#[test]
fn validate_prints_result_of_bootstrap() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let output = elsewhere.path().join("out");
    let written = output.to_str().unwrap();
    let valid = run(&["validate", "--manifests", path]).unwrap().text;
    assert!(
        valid.starts_with("pool worker: rendered-worker-") && valid.ends_with(" of 1 MachineConfigs\n"),
        "{valid}"
    );
    assert_eq!(run(&["bootstrap", "--manifests", path, "--output", written]).unwrap().text, valid);
    assert!(output.join("machine-pools/worker.yaml").is_file());
    write(directory.path(), "50-bad.yaml", &machine_config("50-bad", "{kernelType: fast}"));
    let os_config = "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineOSConfig, metadata: {name: infra}, spec: \
        {machineConfigPool: {name: infra}, imageBuilder: {imageBuilderType: Job}, renderedImagePushSecret: {name: a}, \
        renderedImagePushSpec: 'registry.test/os:1'}}";
    write(directory.path(), "os.yaml", os_config);
    let error = run(&["validate", "--manifests", path]).unwrap_err().to_string();
    assert!(error.starts_with("3 errors:\n") && error.contains("\n  MachineOSConfig infra: "), "{error}");
    assert!(error.contains("there is no MachineConfigPool infra") && error.contains("kernelType"), "{error}");
    let fresh = elsewhere.path().join("fresh");
    let refused = run(&["bootstrap", "--manifests", path, "--output", fresh.to_str().unwrap()]).unwrap_err();
    assert!(error.contains(&refused.to_string()), "{refused}");
    assert!(!fresh.exists());
    let missing = os_config.replace("renderedImagePushSpec: 'registry.test/os:1'", "");
    write(directory.path(), "os.yaml", &missing);
    let error = run(&["validate", "--manifests", path]).unwrap_err().to_string();
    assert!(
        error.contains("os.yaml: MachineOSConfig infra: spec.renderedImagePushSpec: it is required"),
        "{error}"
    );
}

/// `kubectl apply -k dist/manifests/overlays/kubernetes` creates the kinds that this controller knows.
#[test]
fn manifests_hold_printed_definitions() {
    let manifest = include_str!("../../../dist/manifests/components/controller/crds.yaml");
    let update = "machine-config-controller crds > dist/manifests/components/controller/crds.yaml";
    assert!(run(&["crds"]).unwrap().text == manifest, "they differ; {update}");
}

/// An image that can't be built fails the bootstrap before anything is built or written, with object and line.
#[test]
fn bootstrap_refuses_unbuildable_image() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (output, work) = (elsewhere.path().join("out"), elsewhere.path().join("work"));
    let build = |more: &[&str]| {
        let (output, work) = (output.to_str().unwrap(), work.to_str().unwrap());
        let flags = ["bootstrap", "--manifests", path, "--output", output, "--build", "--work-dir", work];
        run(&[&flags, more].concat()).unwrap_err().to_string()
    };
    let mode = ["--image-mode", "--push", "registry.test/os", "--push-secret", "push"];
    let error = build(&mode);
    assert!(error.contains("pool worker: no MachineConfig of it has an osImageURL"), "{error}");
    let os_config = "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineOSConfig, metadata: {name: worker}, spec: \
        {machineConfigPool: {name: worker}, imageBuilder: {imageBuilderType: Job}, renderedImagePushSecret: {name: a}, \
        renderedImagePushSpec: 'registry.test/os:1', containerFile: [{content: 'RUN true'}]}}";
    write(directory.path(), "os.yaml", os_config);
    let base = format!("registry.test/os@sha256:{}", "0".repeat(64));
    let error = build(&["--os-image", &base]);
    assert!(error.starts_with("MachineOSConfig worker: ") && error.contains("line 1"), "{error}");
    assert!(!output.exists() && !work.exists());
    // Without --build it has to name an image.
    let error = run(&["bootstrap", "--manifests", path, "--output", output.to_str().unwrap()]).unwrap_err();
    assert!(error.to_string().contains("MachineOSConfig worker: metadata.annotations"), "{error}");
    let alone = Cli::try_parse_from([
        "machine-config-controller",
        "bootstrap",
        "--manifests",
        path,
        "--output",
        "o",
        "--image-mode",
    ]);
    assert!(alone.is_err(), "it needs --build, --push and --push-secret");
}

const OS_CONFIG: &str = "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineOSConfig, metadata: {name: worker}, spec: \
    {machineConfigPool: {name: worker}, imageBuilder: {imageBuilderType: Job}, renderedImagePushSecret: {name: SECRET}, \
    renderedImagePushSpec: 'registry.test/os:1', containerFile: FILES}}";

/// A missing image hides no fault of the Containerfile, nor one of another document.
#[test]
fn validate_names_all_faults_of_directory() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let files = r#"[{content: "FROM configs\nRUNN a"}, {containerfileArch: ARM64, content: "FROM configs\nRUN <<EOF\na"}]"#;
    write(directory.path(), "os.yaml", &OS_CONFIG.replace("SECRET", "Push").replace("FILES", files));
    let policy = "apiVersion: machine-config-agent.io/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: worker}\nspec: {allowedFailures: \
        101%, windows: [{start: '25:00', length: 0h}]}\n";
    write(directory.path(), "policy.yaml", policy);
    write(directory.path(), "pool.yaml", &POOL.replace("spec: {", "spec: {maxUnavailable: abc, "));
    let error = run(&["validate", "--manifests", path]).unwrap_err().to_string();
    for part in [
        "8 errors:\n",
        "os.yaml: MachineOSConfig worker: spec.renderedImagePushSecret.name: the name must be a lowercase RFC 1123 subdomain",
        "policy.yaml: RolloutPolicy worker: spec.allowedFailures: \"101%\" is neither",
        "policy.yaml: RolloutPolicy worker: spec.windows[0].start: \"25:00\" is not a time",
        "policy.yaml: RolloutPolicy worker: spec.windows[0]: length must be 1m to 168h",
        "pool.yaml: MachineConfigPool worker: spec.maxUnavailable: \"abc\" is neither a number nor a percentage",
        "MachineOSConfig worker: metadata.annotations[machineconfiguration.openshift.io/pre-built-image] is missing",
        "MachineOSConfig worker: spec.containerFile[0].content: the Containerfile, line 2: unknown instruction 'RUNN'",
        "MachineOSConfig worker: spec.containerFile[1].content: the Containerfile, line 2: the here-document EOF has no end",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Each verb that renders refuses what etcd would not store.
#[test]
fn verbs_refuse_config_that_etcd_would_not_store() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let config = |name: &str| {
        let source = format!("data:,{}", "a".repeat(900_000));
        let files = format!("storage: {{files: [{{path: /etc/{name}, contents: {{source: '{source}'}}}}]}}");
        machine_config(name, &format!("{{config: {{ignition: {{version: 3.5.0}}, {files}}}}}"))
    };
    write(directory.path(), "50-a.yaml", &config("50-a"));
    let new = write(elsewhere.path(), "new.yaml", &config("51-b"));
    let plan = ["plan", "--manifests", path, "--pool", "worker", "-f", new.to_str().unwrap()];
    let says = |arguments: &[&str]| {
        let error = run(arguments).unwrap_err().to_string();
        for part in ["etcd takes at most 1572864 (1.5 MiB)", "50-a (900", "51-b (900"] {
            assert!(error.contains(part), "{arguments:?}: {part}: {error}");
        }
    };
    says(&plan);
    write(directory.path(), "51-b.yaml", &config("51-b"));
    let output = elsewhere.path().join("out");
    says(&["render", "--manifests", path]);
    says(&["validate", "--manifests", path]);
    says(&["bootstrap", "--manifests", path, "--output", output.to_str().unwrap()]);
    assert!(!output.exists());
}

/// A plan is of a directory or of a cluster; a server that is away is named with the next step.
#[test]
fn plan_reads_directory_or_cluster() {
    let both = ["plan", "--manifests", "a", "--kubeconfig", "b", "--pool", "worker", "-f", "c"];
    assert!(Cli::try_parse_from([&["machine-config-controller"], &both[..]].concat()).is_err());
    let elsewhere = tempfile::tempdir().unwrap();
    let file = write(elsewhere.path(), "new.yaml", &machine_config("50-a", "{}"));
    let kubeconfig = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], \
        clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {}}]}";
    let kubeconfig = write(elsewhere.path(), "kubeconfig", kubeconfig);
    let plan = |kubeconfig: &str| {
        let file = file.to_str().unwrap();
        run(&["plan", "--kubeconfig", kubeconfig, "--pool", "worker", "-f", file]).unwrap_err().to_string()
    };
    let error = plan(kubeconfig.to_str().unwrap());
    for part in [
        "machineconfigpools.machineconfiguration.openshift.io (list) of https://127.0.0.1:1",
        "can't be read: ",
        "refused",
        "check whether the API server answers",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = plan("/nowhere/kubeconfig");
    assert!(error.starts_with("/nowhere/kubeconfig: ") && error.contains("--kubeconfig"), "{error}");
}

/// A refusal hides no note about the objects that were read.
#[test]
fn notes_are_kept_beside_refusal() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "other.yaml", "apiVersion: v1\nkind: KubeletConfig\nmetadata: {name: a}\n");
    write(directory.path(), "a.yml", &machine_config("00-a", "{config: {ignition: {version: 3.5.0}}}"));
    let at = directory.path().to_str().unwrap();
    let out = directory.path().join("out");
    for words in [
        &["validate", "--manifests", at][..],
        &["render", "--manifests", at],
        &["bootstrap", "--manifests", at, "--output", out.to_str().unwrap()],
    ] {
        let error = run(words).unwrap_err();
        assert!(error.notes().iter().any(|note| note.contains("KubeletConfig")), "{words:?}: {error:?}");
        assert!(error.to_string().contains("MachineConfigPool") && !error.refusals().is_empty(), "{error}");
    }
}

/// Each page that another one refers to is there, and the completions know each verb.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it reads the pages as man(1) does")]
fn pages_and_completions_know_every_verb() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().to_str().unwrap();
    assert_eq!(run(&["man", "--directory", at]).unwrap().text, "");
    let program = std::fs::read_to_string(directory.path().join("machine-config-controller.8")).unwrap();
    let script = run(&["completions", "bash"]).unwrap().text;
    let verbs = [
        "bootstrap",
        "build",
        "completions",
        "crds",
        "man",
        "plan",
        "render",
        "run",
        "serve",
        "status",
        "validate",
    ];
    for verb in verbs {
        let page =
            std::fs::read_to_string(directory.path().join(format!("machine-config-controller-{verb}.8")));
        assert_eq!(page.unwrap(), run(&["man", verb]).unwrap().text);
        let referred = format!("machine\\-config\\-controller\\-{verb}(8)");
        assert!(program.contains(&referred), "{verb}: {program}");
        assert!(script.contains(&format!("'{verb}') verbs=")), "{verb}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), verbs.len() + 1);
    // The help has the codes of the page, and none that is not among the agent's.
    let help = Cli::command().render_help().to_string();
    let (_, codes) = help.split_once("Exit status").unwrap();
    let told: Vec<&str> =
        codes.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
    assert_eq!(told, ["0", "2", "3", "4"]);
    let (_, section) = program.split_once(".SH \"EXIT STATUS\"").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR"));
    assert_eq!(rows.collect::<Vec<_>>(), told);
    let refused = run(&["man", "none"]).unwrap_err().to_string();
    assert_eq!(refused, "there is no command none; `machine-config-controller --help` lists them");
}
