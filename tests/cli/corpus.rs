//! Documents in the structure of those that are public: each leaf field has its line, on a plain host and on one with an OS.
//!
//! `UPDATE_GOLDENS=1 cargo test --test cli corpus` writes the lines; a review reads the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use crate::corpus_samples::{Sample, covers, fields, samples, title};
use crate::test_host::{Node, Ran, config, ignition};
use machine_config_agent::model::fate::{Fate, OF_IGNITION, OF_SPEC};
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

/// Applied where the kernel of the host reports it (`slow fates::found::fips_is_refused_where_kernel_does_not_report_it`).
const ELSEWHERE: &str = "spec.fips";

/// A field that no document has would have no line, and a fate that no line shows would be a word alone.
#[test]
fn each_row_of_table_has_its_fate_in_a_line() {
    // An entry of a list is `[]` in the table.
    let general = |leaf: &str| {
        let parts = leaf.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest));
        parts.collect::<Vec<_>>().join("[]")
    };
    let mut lines = Vec::new();
    for sample in samples() {
        let golden = fs::read_to_string(sample.path.with_extension("fates")).unwrap();
        let line = |line: &str| {
            let (leaf, fates) = line.split_once(": ").unwrap();
            let (plain, with_os) = fates.split_once(" | ").unwrap();
            (general(leaf), [plain.to_owned(), with_os.to_owned()])
        };
        lines.extend(golden.lines().filter(|text| !text.contains(FOREIGN)).map(line));
    }
    let is_of = |row: &str, leaf: &str| {
        let whole = row.strip_suffix(".*").unwrap_or(row);
        leaf.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let mut wrong = Vec::new();
    for row in OF_SPEC.iter().chain(OF_IGNITION) {
        let words: BTreeSet<&str> = lines
            .iter()
            .filter(|(leaf, _)| is_of(row.field, leaf))
            .flat_map(|(_, fates)| fates.each_ref())
            .map(String::as_str)
            .collect();
        // Never what another fate is.
        let (expected, never) = match row.fate {
            Fate::Applied => ("applied", "named (installation)"),
            Fate::Installation => ("named (installation)", "applied"),
            Fate::Refused => ("refused", "applied"),
        };
        let is_shown = words.contains(expected) || row.field == ELSEWHERE;
        if !is_shown || words.contains(never) {
            wrong.push(format!("{} is {}: {words:?}", row.field, row.fate.as_str()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A document without a fault of its own holds nothing.
#[test]
fn each_document_stands_for_its_fault() {
    let mut seen = std::collections::BTreeSet::new();
    for Sample { name, fault, .. } in samples() {
        assert!(
            fault.len() > 20 && fault.ends_with('.'),
            "{name}: its first line is `# Fault: ...`: {fault:?}"
        );
        assert!(seen.insert(fault.clone()), "{name}: another document has this fault: {fault}");
    }
}
