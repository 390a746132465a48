//! The documents of `tests/corpus`: the leaves of each, and the leaf that a program means by a field.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    unreachable_pub,
    dead_code,
    reason = "shared by tests: the lints of a library do not fit"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A file of the corpus: its one config, and the objects beside it.
pub struct Sample {
    pub name: String,
    /// The fault that it stands for: what a reader does that does not know the structure.
    pub fault: String,
    pub path: PathBuf,
    pub config: Value,
    pub others: Vec<Value>,
}

/// Reads all of them.
pub fn samples() -> Vec<Sample> {
    // From the root of the repository, or from a crate of it.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = root.ancestors().map(|above| above.join("tests/corpus")).find(|at| at.is_dir()).unwrap();
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    paths.sort();
    paths.into_iter().map(sample).collect()
}

fn sample(path: PathBuf) -> Sample {
    let text = fs::read_to_string(&path).unwrap();
    let fault =
        text.lines().next().and_then(|line| line.strip_prefix("# Fault: ")).unwrap_or_default().to_owned();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let items = |document: Value| match document["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![document],
    };
    let is_config = |one: &Value| one["kind"].is_null() || one["kind"] == "MachineConfig";
    let (mut configs, others): (Vec<Value>, Vec<Value>) =
        documents.into_iter().flat_map(items).partition(is_config);
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(configs.len(), 1, "{name} has one config");
    Sample { name, fault, path, config: configs.remove(0), others }
}

/// Kind and name of an object.
pub fn title(object: &Value) -> String {
    format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
}

/// The Ignition config below its key of a MachineConfig, and the other fields of the spec.
pub fn fields(document: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    match document.get("spec") {
        Some(spec) => {
            leaves(&spec["config"], "", &mut found);
            let others = spec.as_object().unwrap().iter().filter(|(name, _)| *name != "config");
            others.for_each(|(name, value)| leaves(value, &format!("spec.{name}"), &mut found));
        }
        None => leaves(document, "", &mut found),
    }
    found
}

fn leaves(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            let below = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            leaves(value, &below, found);
        }),
        Value::Array(list) if list.iter().any(Value::is_object) => {
            let each = list.iter().enumerate();
            each.for_each(|(index, value)| leaves(value, &format!("{at}[{index}]"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            found.insert(at.to_owned());
        }
    }
}

/// Returns true if a field as the agent names it is a leaf, or holds it.
pub fn covers(field: &str, leaf: &str, document: &Value) -> bool {
    let field = field.split(" in MachineConfig").next().unwrap_or(field);
    let field = field.strip_prefix("spec.config.").or_else(|| field.strip_prefix("config.")).unwrap_or(field);
    let mut words = field.split(' ');
    let section = words.next().unwrap_or_default();
    let config = document.get("spec").map_or(document, |spec| &spec["config"]);
    let mut at = section.to_owned();
    if let Some(name) = words.next().and_then(|word| serde_json::from_str::<String>(word).ok()) {
        let list = section.split('.').fold(config, |value, key| &value[key]);
        let is_it = |entry: &Value| ["path", "name", "device"].iter().any(|key| entry[*key] == name.as_str());
        // A list of words is one leaf.
        if let Some(list) = list.as_array() {
            let Some(index) = list.iter().position(is_it) else { return false };
            at = format!("{at}[{index}]");
        }
    }
    let rest: Vec<&str> = words.filter(|word| !word.starts_with('"')).collect();
    let Some(below) = leaf.strip_prefix(&at) else { return false };
    let is_whole = below.is_empty() || below.starts_with(['.', '[']);
    is_whole && rest.first().is_none_or(|word| below.trim_start_matches('.').starts_with(word))
}
