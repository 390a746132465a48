//! Documents in the structure of those that are public: each leaf field has its line, on a plain host and on one with an OS.
//!
//! `UPDATE_GOLDENS=1 cargo test --test cli corpus` writes the lines; a review reads the difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::corpus_samples::{Sample, covers, fields, samples, title};
use crate::test_host::{Node, Ran, config, ignition};
use machine_config_agent::model::fate::{OF_IGNITION, OF_SPEC};
use serde_json::{Value, json};

/// So many documents are there at least.
const LEAST: usize = 47;

/// The fate of an object beside the config that is of no concern to nodes.
const FOREIGN: &str = "of another program";

/// The fate of each leaf by a plan, and of each object beside the config; the reason where it is named.
fn fates(sample: &Sample, ran: &Ran) -> BTreeMap<String, String> {
    let (name, document) = (&sample.name, &sample.config);
    let plan: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{name}: {} {}", ran.out, ran.err));
    let list = |key: &str| plan[key].as_array().cloned().unwrap_or_default();
    let refused = [list("irreconcilable"), list("refused")].concat();
    let field = |one: &Value| one["field"].as_str().unwrap_or_default().to_owned();
    let (others, named): (Vec<Value>, Vec<Value>) =
        list("notApplied").into_iter().partition(|one| one["because"] == "other-kind");
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
    let mut fates: BTreeMap<String, String> = all.iter().map(|leaf| (leaf.clone(), fate(leaf))).collect();
    let titles: Vec<String> = sample.others.iter().map(title).collect();
    assert!(others.iter().all(|one| titles.contains(&field(one))), "{name}: {others:?}");
    for title in titles {
        let is_named = others.iter().any(|one| field(one) == title);
        fates.insert(title, if is_named { "named (other-kind)" } else { FOREIGN }.to_owned());
    }
    fates
}

/// Each field of each document is applied, refused or named, on a plain host and on one with an OS, as its line says; so is each object
/// beside it.
#[test]
fn each_field_of_documents_has_its_line() {
    let node = Node::new();
    node.put("none.json", config("none", &ignition(json!({}))));
    let samples = samples();
    assert!(samples.len() >= LEAST, "{} documents", samples.len());
    let mut wrong = Vec::new();
    for sample in samples {
        let to = sample.path.to_str().unwrap();
        let json = ["--output", "json"];
        let words = ["plan", "--to", to, "--root", "root", "--os-backend", "none"];
        let plain = fates(&sample, &node.run(&[&words[..], &json].concat()));
        let words = ["plan", "--from", "none.json", "--to", to];
        let with_os = fates(&sample, &node.run(&[&words[..], &json].concat()));
        let mut lines = String::new();
        for (leaf, fate) in &plain {
            writeln!(lines, "{leaf}: {fate} | {}", with_os[leaf]).unwrap();
        }
        let golden = sample.path.with_extension("fates");
        if std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1") {
            fs::write(&golden, &lines).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if expected != lines {
            wrong.push(format!("{}: expected\n{expected}found\n{lines}", sample.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A field that no document has would have no line.
#[test]
fn each_field_of_table_is_in_a_document() {
    let leaves: Vec<String> = samples().iter().flat_map(|sample| fields(&sample.config)).collect();
    // An entry of a list is `[]` in the table.
    let general = |leaf: &String| {
        let parts = leaf.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest));
        parts.collect::<Vec<_>>().join("[]")
    };
    let all: Vec<String> = leaves.iter().map(general).collect();
    let is_held = |row: &str| {
        let whole = row.strip_suffix(".*").unwrap_or(row);
        all.iter().any(|leaf| {
            leaf.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    };
    let lacking: Vec<&str> =
        OF_SPEC.iter().chain(OF_IGNITION).map(|row| row.field).filter(|field| !is_held(field)).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
