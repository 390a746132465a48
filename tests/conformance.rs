//! Every behaviour that the cluster relies on has a test that names it, or an entry in the page of differences.
//!
//! The ids are those of the reference: `mcd-contract.md` 8.2, 8.3 and 8.6 to 8.11, `image-mode.md` 6.1, 6.3 to 6.7 and
//! 6.11. A test names an id in its doc comment; a difference names it in `docs/differences-from-mcd.md`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it reads the sources and stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The ids of one family, from the first to the last.
const FAMILIES: [(&str, u32, u32); 10] = [
    ("MCD", 22, 67),
    // MCD-183 needs a machine with firmware and a boot loader.
    ("MCD", 118, 182),
    ("MCD", 184, 221),
    ("ANN", 1, 12),
    ("DRN", 1, 6),
    ("MCN", 1, 7),
    ("OBS", 1, 7),
    ("OST", 1, 12),
    ("CRA", 1, 12),
    ("FIL", 1, 14),
];

fn ids() -> BTreeSet<String> {
    let family = |(name, first, last): (&str, u32, u32)| {
        (first..=last).map(move |number| format!("{name}-{number:03}")).collect::<Vec<_>>()
    };
    FAMILIES.into_iter().flat_map(family).collect()
}

/// The ids that stand in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let is_id = |word: &&str| {
        word.split_once('-').is_some_and(|(family, number)| {
            FAMILIES.iter().any(|(name, ..)| *name == family)
                && number.len() == 3
                && number.chars().all(|c| c.is_ascii_digit())
        })
    };
    words.filter(is_id).map(str::to_owned).collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The doc comments of test functions: what stands in `///` lines right above `#[test]` or `#[tokio::test...]`.
fn test_comments(text: &str) -> String {
    let (mut block, mut kept) = (String::new(), String::new());
    for line in text.lines().map(str::trim_start) {
        if let Some(comment) = line.strip_prefix("///") {
            block.push_str(comment);
            block.push('\n');
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            kept.push_str(&block);
            block.clear();
        } else if !line.starts_with("#[") {
            block.clear();
        }
    }
    kept
}

fn tested() -> BTreeMap<String, PathBuf> {
    let mut files = Vec::new();
    sources(Path::new("tests"), &mut files);
    sources(Path::new("src"), &mut files);
    let mut tested = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for id in named(&test_comments(&text)) {
            tested.entry(id).or_insert_with(|| file.clone());
        }
    }
    tested
}

#[test]
fn every_id_is_tested_or_is_a_difference() {
    let page = std::fs::read_to_string("docs/differences-from-mcd.md").unwrap();
    let (tested, differs) = (tested(), named(&page));
    let left: Vec<String> =
        ids().into_iter().filter(|id| !tested.contains_key(id) && !differs.contains(id)).collect();
    assert!(left.is_empty(), "neither a test nor a difference names: {}", left.join(" "));
    let known = ids();
    let stray: Vec<&String> =
        tested.keys().filter(|id| !known.contains(*id) && !id.starts_with("MCD-")).collect();
    assert!(stray.is_empty(), "no such id: {stray:?}");
}

#[test]
fn the_scan_sees_what_it_has_to_see() {
    let text = "/// ANN-001: a target.\n#[test]\nfn a() {}\n/// ANN-002\nfn helper() {}\n/// MCN-003, DRN-004.\n#[tokio::test]\n";
    let found: Vec<String> = named(&test_comments(text)).into_iter().collect();
    assert_eq!(found, ["ANN-001", "DRN-004", "MCN-003"]);
    assert_eq!(ids().len(), 46 + 65 + 38 + 12 + 6 + 7 + 7 + 12 + 12 + 14);
}
