//! The form of every file: its length, its name and its comments, the one door of `fsync`, and the number of test binaries.

use super::sources::{Source, all_sources, none, sources};
use crate::table;

/// At most eight of the agent and `core/`, one for each kind. Each links everything: one more is half a minute of each run of
/// `./test`. A new test is a module of one of these.
const TEST_BINARIES: [&str; 8] = ["agent", "cli", "cluster", "host", "os", "pure", "sandbox", "slow"];

/// The ninth is the cluster side's: its tests start the controller, whose path cargo gives only to the tests of its own
/// package.
const CONTROLLER_TEST_BINARIES: [&str; 1] = ["controllers"];

#[test]
fn test_binaries_are_eight_and_one_of_controllers() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &serde_json::Value, field: &str| value[field].as_array().unwrap().clone();
    let targets = list(&metadata, "packages").into_iter().flat_map(|package| list(&package, "targets"));
    let tests = targets.filter(|target| target["kind"][0] == "test");
    let names: Vec<String> = tests.map(|target| target["name"].as_str().unwrap().to_owned()).collect();
    let update = "Make it a module of one of these: `mod NAME;` in its main.rs.";
    let listed = TEST_BINARIES.iter().chain(&CONTROLLER_TEST_BINARIES).map(|name| (*name).to_owned());
    table::compare("TEST_BINARIES", listed, "Cargo", names, update);
}

/// The negative control of the power cuts takes out what goes through this one door.
#[test]
fn fsync_has_one_door() {
    let calls = |source: &Source| {
        let code = source.code();
        ["rustix::fs::fsync", "rustix::fs::fdatasync", "sync_all", "sync_data"]
            .into_iter()
            .any(|word| code.contains(word))
    };
    let callers: Vec<_> = sources().into_iter().filter(|source| !source.is_test() && calls(source)).collect();
    let names: Vec<_> = callers.iter().map(Source::to_string).collect();
    assert_eq!(names, ["src/host/fsync.rs"]);
}

#[test]
fn every_file_is_short_introduced_and_well_named() {
    let mut wrong = Vec::new();
    for source in all_sources() {
        let lines = source.text.lines().count();
        if lines > 800 {
            wrong.push(format!("{source} has {lines} lines; split it at a seam (800)"));
        }
        if !source.text.starts_with("//!") {
            wrong.push(format!("{source} does not say what it is for (//!)"));
        }
        let vague = ["util", "utils", "helper", "helpers", "manager", "common", "misc"];
        if source.module().iter().any(|part| vague.contains(&part.as_str())) {
            wrong.push(format!("{source} has a name that says nothing"));
        }
    }
    none(&wrong);
}

/// Words that begin a clause as a noun: "What went wrong" is "Cause".
const CLAUSES: [&str; 7] = ["What ", "Who ", "Whom ", "Whether ", "Where ", "Why ", "How "];

/// Doc comments that begin with such a clause, at most. The number only falls.
const MAX_CLAUSES: usize = 3;

/// The doc comments of a file that begin with a clause as a noun. Those without a full stop are help texts of flags.
fn clauses(text: &str) -> Vec<String> {
    let doc = |line: &str| {
        let line = line.trim_start();
        let mark = ["//!", "///"].into_iter().find(|mark| line.starts_with(mark))?;
        Some((mark, line[mark.len()..].trim().to_owned()))
    };
    let lines: Vec<_> = text.lines().map(doc).collect();
    let blocks = lines.chunk_by(|a, b| a.as_ref().map(|a| a.0) == b.as_ref().map(|b| b.0));
    let blocks = blocks.filter_map(|block| Some((&block.first()?.as_ref()?.1, &block.last()?.as_ref()?.1)));
    let begins = |first: &str| CLAUSES.iter().any(|word| first.starts_with(word));
    blocks
        .filter(|(first, last)| begins(first) && last.ends_with(['.', ':']))
        .map(|(first, _)| first.clone())
        .collect()
}

#[test]
fn doc_comments_begin_with_nouns_and_verbs() {
    let source = "//! What it is.\n\n/// How it\n/// ends.\na: A,\n/// How to print it\nb: B,\n/// Its end.\nfn f() {}";
    assert_eq!(clauses(source), ["What it is.", "How it"]);
    let found = all_sources().into_iter().flat_map(|source| {
        let clauses = clauses(&source.text).into_iter();
        clauses.map(move |comment| format!("{source}: {comment}"))
    });
    let found: Vec<String> = found.collect();
    assert!(found.len() <= MAX_CLAUSES, "{} clauses as nouns:\n{}", found.len(), found.join("\n"));
}
