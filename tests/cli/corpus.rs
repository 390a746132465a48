//! Documents in the structure of those that are public: each leaf field has its line, on a plain host and on one with an OS.
//!
//! `UPDATE_GOLDENS=1 cargo test --test cli corpus` writes the lines; a review reads the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::test_host::{Node, Ran, config, ignition};
use serde_json::{Value, json};

/// So many documents are there at least.
const LEAST: usize = 40;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// The Ignition config below its key of a MachineConfig, and the other fields of the spec.
fn fields(document: &Value) -> BTreeSet<String> {
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
fn covers(field: &str, leaf: &str, document: &Value) -> bool {
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

/// The fate of each leaf by a plan; the reason where it is named.
fn fates(name: &str, document: &Value, ran: &Ran) -> BTreeMap<String, String> {
    let plan: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{name}: {} {}", ran.out, ran.err));
    let list = |key: &str| plan[key].as_array().cloned().unwrap_or_default();
    let refused = [list("irreconcilable"), list("refused")].concat();
    let named = list("notApplied");
    let field = |one: &Value| one["field"].as_str().unwrap_or_default().to_owned();
    let all = fields(document);
    // A document that can't be read at all has no field.
    for one in refused.iter().chain(&named).filter(|one| !field(one).is_empty()) {
        let is_known = all.iter().any(|leaf| covers(&field(one), leaf, document));
        assert!(is_known, "{name} has no {}: {one}", field(one));
    }
    let fate = |leaf: &String| {
        let of = |list: &[Value]| {
            list.iter().find(|one| !field(one).is_empty() && covers(&field(one), leaf, document)).cloned()
        };
        if of(&refused).is_some() {
            "refused".to_owned()
        } else if !refused.is_empty() {
            "refused with the config".to_owned()
        } else if let Some(one) = of(&named) {
            format!("named ({})", one["because"].as_str().unwrap_or_default())
        } else {
            "applied".to_owned()
        }
    };
    all.iter().map(|leaf| (leaf.clone(), fate(leaf))).collect()
}

/// Each field of each document is applied, refused or named, on a plain host and on one with an OS, as its line says.
#[test]
fn each_field_of_documents_has_its_line() {
    let node = Node::new();
    node.put("none.json", config("none", &ignition(json!({}))));
    let names: Vec<PathBuf> = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut names: Vec<PathBuf> =
        names.into_iter().filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    names.sort();
    assert!(names.len() >= LEAST, "{} documents", names.len());
    let mut wrong = Vec::new();
    for path in names {
        let (name, to) = (path.file_stem().unwrap().to_str().unwrap(), path.to_str().unwrap());
        let document: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let json = ["--output", "json"];
        let words = ["plan", "--to", to, "--root", "root", "--os-backend", "none"];
        let plain = fates(name, &document, &node.run(&[&words[..], &json].concat()));
        let words = ["plan", "--from", "none.json", "--to", to];
        let with_os = fates(name, &document, &node.run(&[&words[..], &json].concat()));
        let mut lines = String::new();
        for (leaf, fate) in &plain {
            writeln!(lines, "{leaf}: {fate} | {}", with_os[leaf]).unwrap();
        }
        let golden = path.with_extension("fates");
        if std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1") {
            fs::write(&golden, &lines).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if expected != lines {
            wrong.push(format!("{name}: expected\n{expected}found\n{lines}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
