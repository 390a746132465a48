//! Parsers of foreign bytes, by name: targets of `fuzz/`, and of the test that reads its kept corpus. Each returns the texts of its
//! refusals; `tests/support/fuzzed.rs` says what holds for all. A private parser has its target in its own folder.
//!
//! With the feature `fuzzing` alone: no part of the interface.

use machine_config_core::model::document::{Document, Kind, documents};
use machine_config_core::model::reading::Found;
use serde_json::Value;

use crate::api::{self, ControllerConfig, MachineConfig, MachineConfigPool, MachineOSConfig, RolloutPolicy};
use crate::image::check_containerfile;
use crate::model::ModelError;
use crate::reading::{self, Object};
use crate::registry::fuzzing::{registry_credentials, registry_reference};
use crate::serve::fuzzing::{accept_header, tokens};

/// Reads bytes; the texts of its refusals.
pub type Target = fn(&[u8]) -> Vec<String>;

/// The parsers.
pub const TARGETS: &[(&str, Target)] = &[
    ("accept-header", accept_header),
    ("containerfile", containerfile),
    ("manifests", manifests),
    ("registry-credentials", registry_credentials),
    ("registry-reference", registry_reference),
    ("tokens", tokens),
];

fn containerfile(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    check_containerfile(text).err().map(|error| error.to_string()).into_iter().collect()
}

/// Reads the documents of a file, each by its kind, from its text and from its tree.
fn manifests(bytes: &[u8]) -> Vec<String> {
    match documents(bytes, "the file") {
        Ok(found) => found.iter().flat_map(manifest).collect(),
        Err(error) => vec![error.to_string()],
    }
}

fn manifest(document: &Document) -> Vec<String> {
    let tree = document.read::<Value>().map(|found| found.value).unwrap_or_default();
    let mut found: Vec<String> = api::check(&tree).into_iter().map(|found| found.text).collect();
    found.extend(match document.kind() {
        kind if kind == Kind::MACHINE_CONFIG.kind => read::<MachineConfig>(document, &tree),
        kind if kind == Kind::POOL.kind => read::<MachineConfigPool>(document, &tree),
        kind if kind == Kind::OS_CONFIG.kind => read::<MachineOSConfig>(document, &tree),
        kind if kind == Kind::CONTROLLER_CONFIG.kind => read::<ControllerConfig>(document, &tree),
        kind if kind == Kind::ROLLOUT_POLICY.kind => read::<RolloutPolicy>(document, &tree),
        _ => Vec::new(),
    });
    found
}

fn read<K: Object>(document: &Document, tree: &Value) -> Vec<String> {
    let of_file: Result<Found<K>, ModelError> = reading::of_document(document);
    let of_cluster: Result<Found<K>, ModelError> = reading::of_tree(tree);
    [of_file.err(), of_cluster.err()].into_iter().flatten().map(|error| error.to_string()).collect()
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
        fuzzed::replay(TARGETS, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/controller"));
    }
}
