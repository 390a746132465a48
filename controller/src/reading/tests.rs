//! A table of documents, read through every entry: offline and in the cluster, by the agent and by the controller, in each form.

use kube::CustomResourceExt as _;
use machine_config_core::model::fate::OF_SPEC;
use machine_config_core::model::installed_storage;
use machine_config_core::model::machineconfig::MachineConfig as Config;
use machine_config_core::model::pinned::{PinnedSet, PinningPool};
use machine_config_core::model::pool::PoolConfigs;
use machine_config_core::model::reading::refuse_unknown;
use serde_json::json;

use super::*;
use crate::manifests::{ManifestError, Manifests, UnknownFields};
use crate::ran;

/// Answer of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Taken,
    /// Taken, but a field is named.
    Named(String),
    /// The field, and the exit code of a verb.
    Refused(String, u8),
}

use crate::documents::Expect::{self, Refused, Taken, Unknown};
use crate::documents::{PINNED_SETS, documents};

fn refused(error: &ModelError) -> Answer {
    Answer::Refused(error.field().unwrap_or_default().to_owned(), error.class().exit_code())
}

fn answer(read: Result<Vec<NotApplied>, ModelError>) -> Answer {
    match read {
        Ok(unknown) => unknown.first().map_or(Answer::Taken, |first| Answer::Named(first.field.clone())),
        Err(error) => refused(&error),
    }
}

/// The agent: `plan`, `apply`, `verify` and the control directory.
fn agent_file(text: &str) -> Answer {
    let read = Config::parse_or_wrap(text.as_bytes(), "f").and_then(|config| {
        config.refuse_unknown("f")?;
        Ok(Vec::new())
    });
    answer(read)
}

/// The agent in a cluster, at a first boot, and its import from MCD.
fn agent_cluster(tree: &Value) -> Answer {
    let config = Config::parse(tree.to_string().as_bytes(), "f");
    answer(config.and_then(|config| Ok(config.spec(None)?.remarks)))
}

/// The controller's verbs over files.
#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn controller_file(text: &str) -> Answer {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.yaml"), text).unwrap();
    let (manifests, errors) = Manifests::collect(directory.path(), UnknownFields::Refused).unwrap();
    let Some(error) = errors.first() else {
        let read = [manifests.configs.len(), manifests.pools.len(), manifests.os_configs.len()];
        let others = manifests.rollout_policies.len()
            + usize::from(manifests.policy.is_some())
            + usize::from(manifests.controller_config.is_some());
        assert_eq!(read.iter().sum::<usize>() + others, 1, "{text}");
        return Answer::Taken;
    };
    match error {
        ManifestError::Refused { error, .. } => refused(error),
        other @ (ManifestError::Unread { .. }
        | ManifestError::Unreachable { .. }
        | ManifestError::More { .. }
        | ManifestError::Several(_)
        | ManifestError::Twice { .. }
        | ManifestError::TooMany { .. }) => panic!("{other}: {text}"),
    }
}

/// The watches and the gets of `run`, `serve`, `status` and the live `plan`: the same answer, without the object's name.
fn as_watched<K: Object>(tree: &Value) {
    let Ok(watched) = serde_json::from_value::<Lenient<K>>(tree.clone()) else {
        // Metadata that are none: no API server has such an object.
        assert!(of_tree::<K>(tree).is_err(), "{tree}");
        return;
    };
    match of_tree::<K>(tree) {
        Ok(found) => assert!(watched.object.is_ok() && watched.unknown == found.unknown, "{tree}"),
        Err(error) => {
            let cause = watched.object.err().unwrap_or_default();
            assert!(cause.starts_with(error.field().unwrap_or_default()), "{cause}: {error}: {tree}");
        }
    }
}

/// The agent's readers of a part of a kind: none refuses what is taken elsewhere, and each names the same field.
fn parts_of_agent(kind: Kind, tree: &Value) -> Vec<(&'static str, ModelError)> {
    let text = tree.to_string();
    let mut parts = Vec::new();
    if kind == Kind::POOL {
        let pool = document::one(text.as_bytes(), "f", kind);
        let configs = pool.and_then(|pool| PoolConfigs::of_document(&pool)).map(drop);
        parts.push(("agent, configs of a pool", configs));
        parts.push(("agent, pinned images of a pool", PinningPool::of_tree(tree).map(drop)));
    }
    if kind == Kind::MACHINE_CONFIG && tree.pointer("/spec/config/ignition").is_some() {
        let storage = installed_storage(text.as_bytes(), "f").map(drop);
        parts.push(("agent, storage of the installation", storage));
    }
    parts.into_iter().filter_map(|(entry, read)| Some((entry, read.err()?))).collect()
}

/// The controllers: what the API server gives, and the check that its controller makes.
fn controller_cluster(tree: &Value) -> Answer {
    fn read<K: Object>(tree: &Value) -> Answer {
        as_watched::<K>(tree);
        let checked = of_tree::<K>(tree).and_then(|found| match found.value.check().first() {
            Some(text) => Err(wrong("f", text)),
            None => Ok(found.unknown),
        });
        answer(checked)
    }
    match tree["kind"].as_str().unwrap_or_default() {
        "MachineConfigPool" => read::<MachineConfigPool>(tree),
        "MachineOSConfig" => read::<MachineOSConfig>(tree),
        "RolloutPolicy" => read::<RolloutPolicy>(tree),
        "ControllerConfig" => read::<ControllerConfig>(tree),
        "MachineConfiguration" => {
            let policy = document::one(tree.to_string().as_bytes(), "f", Kind::POLICY);
            answer(policy.and_then(|policy| Ok(DisruptionPolicy::of_document(&policy)?.unknown)))
        }
        _ => read::<MachineConfig>(tree),
    }
}

use machine_config_core::model::document;
use machine_config_core::model::policy::DisruptionPolicy;

/// The forms in which a person has a document.
fn forms(yaml: &str, tree: &Value) -> Vec<String> {
    let list =
        json!({ "apiVersion": "v1", "kind": "List", "items": [tree], "metadata": { "resourceVersion": "" } });
    vec![
        yaml.to_owned(),
        format!("---\n# a comment\n{yaml}\n---\n"),
        format!("\u{feff}{yaml}\n---\n# nothing more\n"),
        tree.to_string(),
        serde_json::to_string_pretty(tree).unwrap(),
        list.to_string(),
        serde_saphyr::to_string(&list).unwrap(),
    ]
}

fn check(kind: Kind, document: &str, expect: Expect) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |entry: &str, found: &Answer, expected: &Answer, text: &str| {
        // Taken, and named: only an installation makes it.
        let is_of_installation = *expected == Answer::Taken
            && matches!(found, Answer::Named(field) if field.starts_with("ignition."));
        if found != expected && !is_of_installation {
            wrong.push(format!("{entry}: {found:?}, and not {expected:?}: {text}"));
        }
    };
    let tree = yaml::tree(document).unwrap();
    let parts = parts_of_agent(kind, &tree);
    let is_config = kind == Kind::MACHINE_CONFIG;
    // The document itself is wrong where its fields are named by their place; of an entry the first answer decides for the others.
    let is_document =
        |field: &str| ["spec", "metadata", "apiVersion", "sepc"].iter().any(|at| field.starts_with(at));
    let first = controller_cluster(&tree);
    let code = |field: &str| match &first {
        Answer::Refused(_, code) if !is_document(field) => *code,
        Answer::Taken | Answer::Named(_) | Answer::Refused(..) => 4,
    };
    let refused_with = |field: &str| Answer::Refused(field.to_owned(), code(field));
    let (file, cluster) = match expect {
        Taken => (Answer::Taken, Answer::Taken),
        Unknown(field) => (refused_with(field), Answer::Named(field.to_owned())),
        Refused(field) => (refused_with(field), refused_with(field)),
    };
    for text in forms(document, &tree) {
        same("controller, file", &controller_file(&text), &file, &text);
        if is_config {
            same("agent, file", &agent_file(&text), &file, &text);
        }
    }
    for (entry, error) in parts {
        same(entry, &refused(&error), &cluster, document);
    }
    same("controller, cluster", &controller_cluster(&tree), &cluster, document);
    if is_config {
        same("agent, cluster", &agent_cluster(&tree), &cluster, document);
    }
    wrong
}

use machine_config_core::model::yaml;

#[test]
fn documents_have_one_answer_in_every_entry() {
    let documents = documents();
    let kinds = [
        Kind::MACHINE_CONFIG,
        Kind::POOL,
        Kind::ROLLOUT_POLICY,
        Kind::OS_CONFIG,
        Kind::POLICY,
        Kind::CONTROLLER_CONFIG,
    ];
    let of = |kind: &str| *kinds.iter().find(|one| one.kind == kind).unwrap();
    let wrong: Vec<String> =
        documents.iter().flat_map(|one| check(of(one.kind), &one.text, one.expect)).collect();
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
    assert!(documents.len() >= 150);
}

fn of_refused(error: &ManifestError) -> Option<&str> {
    match error {
        ManifestError::Refused { error, .. } => error.field(),
        ManifestError::Unread { .. }
        | ManifestError::Unreachable { .. }
        | ManifestError::More { .. }
        | ManifestError::Several(_)
        | ManifestError::Twice { .. }
        | ManifestError::TooMany { .. } => None,
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn pinned_sets_are_read_by_nodes_and_named_in_files() {
    for (expected, spec) in PINNED_SETS {
        let Kind { kind, group_version } = Kind::PINNED_SET;
        let text =
            format!("{{apiVersion: {group_version}, kind: {kind}, metadata: {{name: a}}, spec: {spec}}}");
        let tree = yaml::tree(&text).unwrap();
        let cause = PinnedSet::of_tree(&tree).unread;
        let named =
            cause.as_deref().is_some_and(|cause| cause.contains(&format!("{}: ", expected.unwrap_or(" "))));
        assert_eq!((cause.is_some(), named), (expected.is_some(), expected.is_some()), "{cause:?}: {text}");
        for text in forms(&text, &tree) {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("a.yaml"), &text).unwrap();
            let (manifests, errors) = Manifests::collect(directory.path(), UnknownFields::Refused).unwrap();
            let notes = &manifests.notes;
            assert!(notes.len() == 1 && notes[0].contains("PinnedImageSet a"), "{notes:?}: {text}");
            // Of what nodes take the API server refuses the rest.
            let of_server = manifests.violations.iter().map(|violation| violation.field.as_str());
            let fields: Vec<_> = errors.iter().filter_map(of_refused).chain(of_server).collect();
            assert!(expected.is_none_or(|field| fields.contains(&field)), "{errors:?}: {text}");
            let is_refused = !errors.is_empty() || !manifests.violations.is_empty();
            assert_eq!(is_refused, !spec.contains("@sha256:"), "{text}");
        }
    }
}

/// The fields that are read and those that are listed as not read are the ones of the operator's own definition; those of a
/// MachineConfig have each their fate.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it reads the operator's definitions")]
fn fields_are_those_of_operators_definitions() {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/apiserver/openshift-api");
    let Ok(module) = std::fs::read_to_string(module) else {
        return ran::not_run("fields_are_those_of_operators_definitions", "tests/apiserver/build");
    };
    let fields = |definition: &Value| {
        let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let fields = spec["properties"].as_object().unwrap().keys();
        fields.map(|field| format!("spec.{field}")).collect::<std::collections::BTreeSet<_>>()
    };
    let of_operator = |file: &str| {
        let definitions = "machineconfiguration/v1/zz_generated.crd-manifests";
        let file = format!("{definitions}/0000_80_machine-config_01_{file}.crd.yaml");
        let text = std::fs::read_to_string(std::path::Path::new(module.trim()).join(file)).unwrap();
        fields(&yaml::tree(&text).unwrap())
    };
    let mut listed = fields(&json!(ControllerConfig::crd()));
    listed.extend(ControllerConfig::OF_OPERATOR.iter().map(|field| (*field).to_owned()));
    assert_eq!(listed, of_operator("controllerconfigs-SelfManagedHA-CustomNoUpgrade"));
    let fates = OF_SPEC.iter().map(|row| row.field.to_owned());
    assert_eq!(
        fates.chain(["spec.config".to_owned()]).collect::<std::collections::BTreeSet<_>>(),
        of_operator("machineconfigs")
    );
}

#[test]
fn unknown_fields_pass_where_they_are_allowed_and_are_named() {
    let text = "{kind: MachineConfig, metadata: {name: a}, spec: {kernelArgs: [a]}}";
    let read = |unknown| {
        let mut manifests = Manifests::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        #[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
        std::fs::write(&path, text).unwrap();
        manifests.replace_by_file(&path, unknown).map(|()| manifests.notes)
    };
    let error = read(UnknownFields::Refused).unwrap_err().to_string();
    assert!(error.contains("spec.kernelArgs") && error.contains("did you mean kernelArguments?"), "{error}");
    let notes = read(UnknownFields::Named).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("MachineConfig a: spec.kernelArgs"), "{notes:?}");
    let config = Config::parse(text.as_bytes(), "f").unwrap();
    let refused = refuse_unknown(&config.spec(None).unwrap().remarks, "f").unwrap_err();
    assert_eq!(refused.field(), Some("spec.kernelArgs"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn kinds_and_roles_without_effect_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let text = "{kind: MachineConfigPool, metadata: {name: worker}, spec: {machineConfigSelector: {matchLabels: {a: b}}}}\n---\n\
        {kind: MachineConfig, metadata: {name: of-none, labels: {machineconfiguration.openshift.io/role: infra}}, spec: {}}\n---\n\
        {kind: MachineConfig, metadata: {name: of-worker, labels: {a: b}}, spec: {}}\n---\n\
        {apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSet, metadata: {name: mirrors}}\n---\n\
        {apiVersion: machineconfiguration.openshift.io/v1, kind: KubeletConfig, metadata: {name: big}}\n---\n\
        {apiVersion: apps/v1, kind: Deployment, metadata: {name: other}}\n";
    std::fs::write(directory.path().join("all.yaml"), text).unwrap();
    std::fs::write(directory.path().join("none.yaml"), "# nothing\n---\n").unwrap();
    let notes = Manifests::read(directory.path()).unwrap().notes;
    let expected = [
        "ImageDigestMirrorSet mirrors",
        "KubeletConfig big",
        "none.yaml is empty",
        "MachineConfig of-none: no pool selects it (its role is infra)",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    assert!(notes.iter().zip(expected).all(|(note, words)| note.contains(words)), "{notes:#?}");
}

/// Documents that `plan -f` is given have their own note, and end those of the directory.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn role_without_effect_is_named_of_a_file_given_beside() {
    let directory = tempfile::tempdir().unwrap();
    let pool = |role: &str| {
        format!(
            "{{kind: MachineConfigPool, metadata: {{name: {role}}}, spec: {{machineConfigSelector: {{matchLabels: {{a: {role}}}}}}}}}"
        )
    };
    let config = |name: &str, role: &str| {
        format!("{{kind: MachineConfig, metadata: {{name: {name}, labels: {{a: {role}}}}}, spec: {{}}}}")
    };
    let text = [pool("worker"), config("of-infra", "infra"), config("of-workr", "workr")].join("\n---\n");
    std::fs::write(directory.path().join("all.yaml"), text).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("new.yaml");
    let notes = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut manifests = Manifests::read(directory.path()).unwrap();
        manifests.replace_by_file(&file, UnknownFields::Refused).unwrap();
        let name = |note: &String| note.split_once(": no pool").map(|(name, _)| name.to_owned());
        manifests.notes.iter().filter_map(name).collect::<Vec<_>>()
    };
    let [infra, workr, new] = ["of-infra", "of-workr", "new"].map(|name| format!("MachineConfig {name}"));
    assert_eq!(notes(&config("new", "worker")), [infra.clone(), workr.clone()]);
    assert_eq!(notes(&config("new", "workr")), [infra.clone(), workr.clone(), new]);
    assert_eq!(notes(&config("of-workr", "workr")), [infra.clone(), workr.clone()]);
    assert_eq!(notes(&config("of-workr", "worker")), [infra]);
    assert_eq!(notes(&pool("infra")), [workr]);
}
