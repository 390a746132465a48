//! Parsers of foreign bytes, by name: targets of `fuzz/`, and of the test that reads its kept corpus. Each returns the texts of its
//! refusals; `tests/support/fuzzed.rs` says what holds for all.
//!
//! With the feature `fuzzing` alone: no part of the interface.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::model::hosted::hosted_config;
use crate::model::kubeconfig::with_authority;
use crate::model::reference::Reference;
use crate::model::refusal::Refusal;
use crate::model::registry_auth::registry_auth;
use crate::model::{
    ConfigName, DisruptionPolicy, HostSpec, ImageRef, Karg, MachineConfig, ModelError, ProxySettings,
    annotations, installed_storage, kargs, yaml,
};
use crate::stateroot::{
    Seed, booted_deployment, config_of_seed, container_images, containers, deletions, is_without_identity,
    member, seed_config,
};

/// Reads bytes; the texts of its refusals.
pub type Target = fn(&[u8]) -> Vec<String>;

/// The parsers.
pub const TARGETS: &[(&str, Target)] = &[
    ("annotations", node_annotations),
    ("applied", applied_config),
    ("environment", environment),
    ("image", image),
    ("installed", installed),
    ("kernel-arguments", kernel_arguments),
    ("kubeconfig", kubeconfig),
    ("machineconfig", machine_config),
    ("policy", policy),
    ("pull-secret", pull_secret),
    ("seed", seed),
    ("seed-labels", seed_labels),
];

/// Stands for a password, a key or a private file in the corpus: where it is a value of one of these fields alone, no text of
/// a refusal has it.
const SECRET: &str = "hunter2";
const SECRET_FIELDS: [&str; 4] = ["contents", "inline", "passwordHash", "source"];

fn node_annotations(bytes: &[u8]) -> Vec<String> {
    let Ok(found) = serde_json::from_slice::<BTreeMap<String, String>>(bytes) else { return Vec::new() };
    texts([annotations::target(&found).err()])
}

/// MCD's `currentconfig`: whatever it had committed is a place that can be left.
fn applied_config(bytes: &[u8]) -> Vec<String> {
    let config = match MachineConfig::parse_applied(bytes, "currentconfig") {
        Ok(config) => config,
        Err(error) => return texts([Some(error)]),
    };
    let again = MachineConfig::parse_applied(config.json().as_bytes(), "currentconfig");
    assert!(again.as_ref() == Ok(&config), "its own text reads the same");
    let known = config.known_spec(None);
    assert_eq!(known, config.known_spec(None), "it is read the same");
    let found = texts([config.committed_spec(None).err()]);
    keeps_secrets(bytes, &found);
    found
}

fn machine_config(bytes: &[u8]) -> Vec<String> {
    let hosted = ConfigName::new("hosted").and_then(|name| hosted_config(bytes, &name, "the payload"));
    let config = match MachineConfig::parse_or_wrap(bytes, "the document") {
        Ok(config) => config,
        Err(error) => {
            let found = texts([Some(error), hosted.err()]);
            keeps_secrets(bytes, &found);
            return found;
        }
    };
    let again = MachineConfig::parse(config.json().as_bytes(), "the document");
    assert!(again.as_ref() == Ok(&config), "its own text reads the same");
    assert_eq!(again.map(|again| again.content()), Ok(config.content()), "and is the same content");
    let spec = config.spec(None);
    match &spec {
        Ok(spec) => of_spec(&config, spec),
        Err(error) => {
            let is_named = error.field().is_some() || matches!(error, ModelError::Layers { .. });
            assert!(
                is_named || matches!(error, ModelError::Image { .. }),
                "a refusal without field: {error}"
            );
        }
    }
    let found = texts([
        spec.err(),
        config.committed_spec(None).err(),
        config.refuse_unknown("the document").err(),
        hosted.err(),
    ]);
    keeps_secrets(bytes, &found);
    found
}

/// Checks the spec of a target: it can be committed, and is then the same.
fn of_spec(config: &MachineConfig, spec: &HostSpec) {
    assert_eq!(config.committed_spec(None).as_ref(), Ok(spec), "a target can be committed");
    let fields: BTreeSet<&str> = spec.remarks.iter().map(|remark| remark.field.as_str()).collect();
    assert!(!fields.contains(""), "a remark without a field");
}

fn policy(bytes: &[u8]) -> Vec<String> {
    texts([DisruptionPolicy::parse(bytes, "the document").err()])
}

fn kubeconfig(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    match with_authority(text, b"pem") {
        Ok(Some(changed)) => {
            assert_eq!(with_authority(&changed, b"pem"), Ok(None), "it is right then");
            Vec::new()
        }
        Ok(None) => Vec::new(),
        Err(error) => vec![error.to_string()],
    }
}

fn image(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    if let Ok(reference) = Reference::parse(text) {
        let canonical = reference.canonical();
        assert!(
            Reference::parse(&canonical).is_ok_and(|again| again.canonical() == canonical),
            "{canonical:?}"
        );
    }
    match ImageRef::parse(text) {
        Ok(image) => {
            assert_eq!(ImageRef::parse(&image.to_string()).as_ref(), Ok(&image), "its text reads the same");
            Vec::new()
        }
        Err(error) => texts([Some(error)]),
    }
}

fn installed(bytes: &[u8]) -> Vec<String> {
    let fixed = match installed_storage(bytes, "the document") {
        Ok(fixed) => fixed,
        Err(error) => return texts([Some(error)]),
    };
    for entry in fixed.entries() {
        assert!(entry.is_same(&entry) && !entry.field.is_empty(), "an entry is itself");
    }
    Vec::new()
}

fn environment(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    match ProxySettings::parse_environment_file(text) {
        Ok(read) => {
            let written = read.to_environment_file();
            let again = ProxySettings::parse_environment_file(&written);
            assert_eq!(again.as_ref(), Ok(&read), "what is written reads the same");
            Vec::new()
        }
        Err(error) => texts([Some(error)]),
    }
}

fn pull_secret(bytes: &[u8]) -> Vec<String> {
    let found = registry_auth(bytes, "registry.test:5000/a/b");
    assert!(found.is_none_or(|auth| !auth.is_empty()), "an empty account is none");
    Vec::new()
}

/// The files of a seed.
fn seed(bytes: &[u8]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    found.extend(booted_deployment(bytes).err().map(|error| error.to_string()));
    found.extend(seed_config(bytes).err().map(|error| error.to_string()));
    let _ = is_without_identity(bytes);
    match config_of_seed(bytes) {
        Ok(config) => {
            let again = config_of_seed(config.json.as_bytes()).map(|again| again.json);
            assert_eq!(again, Ok(config.json), "what is left out is left out");
        }
        Err(error) => found.push(error),
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return found };
    found.extend(deletions(text).err().map(|error| error.to_string()));
    drop(containers(text));
    drop(container_images(text));
    let _ = member(text);
    found
}

fn seed_labels(bytes: &[u8]) -> Vec<String> {
    let Ok(labels) = serde_json::from_slice::<BTreeMap<String, String>>(bytes) else { return Vec::new() };
    Seed::from_labels(&labels).err().map(|error| error.to_string()).into_iter().collect()
}

fn kernel_arguments(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let line = Karg::split(text);
    let joined: Vec<&str> = line.iter().map(Karg::as_str).collect();
    assert_eq!(Karg::split(&joined.join(" ")), line, "words stay words");
    let mut former = kargs::FormerKargs::default();
    former.learn(&line, &[]);
    let left = former.left_over(&line, &[], &[]);
    assert!(left.len() <= line.len() && former.left_over(&line, &line, &[]).is_empty(), "what is left over");
    kargs::of_image_file(text, "x86_64").err().into_iter().collect()
}

/// The texts, and what each refusal has.
fn texts(errors: impl IntoIterator<Item = Option<ModelError>>) -> Vec<String> {
    let checked = |error: ModelError| {
        let text = error.to_string();
        let refusals = Refusal::of_input(&error, text.clone());
        assert!(!refusals.is_empty(), "a refusal");
        for refusal in refusals {
            assert!(refusal.next.is_some_and(|next| !next.is_empty()), "the next step");
            assert!(!refusal.class.is_empty() && !refusal.reason.is_empty(), "class and reason");
            assert!(refusal.field.is_none_or(|field| !field.is_empty()), "no empty field: {text}");
        }
        text
    };
    errors.into_iter().flatten().map(checked).collect()
}

/// No refusal has what only secret fields hold.
fn keeps_secrets(bytes: &[u8], texts: &[String]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if !text.contains(SECRET) {
        return;
    }
    let trees = yaml::trees(text).unwrap_or_default();
    if !trees.is_empty() && trees.iter().all(|tree| is_kept(tree, "")) {
        assert!(texts.iter().all(|text| !text.contains(SECRET)), "a refusal has a secret: {texts:?}");
    }
}

/// Returns true if the secret is in no key, and in the values of secret fields alone.
fn is_kept(tree: &Value, field: &str) -> bool {
    match tree {
        Value::Object(fields) => {
            fields.iter().all(|(name, value)| !name.contains(SECRET) && is_kept(value, name))
        }
        Value::Array(values) => values.iter().all(|value| is_kept(value, field)),
        Value::String(text) => SECRET_FIELDS.contains(&field) || !text.contains(SECRET),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

#[cfg(test)]
#[path = "../../tests/support/fuzzed.rs"]
mod fuzzed;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn kept_corpus_is_read_without_harm() {
        fuzzed::replay(TARGETS, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/core"));
    }
}
