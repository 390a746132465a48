//! A write without a row, or beside the one way, fails here.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

const PAGE: &str = include_str!("../../../../docs/monitoring.md");

#[test]
fn page_has_a_row_for_each_write() {
    let rows = PAGE.split("## Writes that fail").nth(1).unwrap().split("\n## ").next().unwrap();
    let names: Vec<&str> =
        rows.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let listed: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed.len(), names.len(), "one row each: {names:?}");
    assert_eq!(listed, Write::ALL.iter().map(|write| write.as_str()).collect());
}

/// Methods of kube's `Api` that write.
const METHODS: [&str; 12] = [
    ".create(",
    ".create_subresource",
    ".replace(",
    ".replace_status(",
    ".replace_subresource(",
    ".patch(",
    ".patch_status(",
    ".patch_subresource(",
    ".patch_metadata(",
    ".delete(",
    ".delete_collection(",
    ".evict(",
];

/// Names of what such a method takes, and no other of that name does. A call that has none of them is met by the fence of a debug build.
const PARAMETERS: [&str; 5] = ["Params", "&how", "&params", "&parameters", "&options"];

/// The calls that wait for an answer. The nearest one before a write has to be one that counts.
const CALLS: [&str; 5] = ["send(", "read(", "write(", "write_within(", "write_and_read("];

#[expect(clippy::disallowed_methods, reason = "a test: it reads the sources")]
fn sources(folder: &Path, all: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if !path.ends_with("write/tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            // Without comments and line breaks.
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
            all.push((path.display().to_string(), lines.collect::<Vec<_>>().join("")));
        }
    }
}

#[test]
fn each_call_that_writes_is_counted() {
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/controllers"), &mut all);
    let mut used = BTreeSet::new();
    let mut calls = 0;
    for (path, text) in &all {
        for method in METHODS {
            for (at, _) in text.match_indices(method) {
                let before = &text[..at];
                // Other types have such methods, too; a request has parameters, and is awaited by one of these.
                let is_request = text[at..].find("await").is_some_and(|end| {
                    let call = &text[at..at + end];
                    PARAMETERS.iter().any(|word| call.contains(word))
                });
                if !is_request {
                    continue;
                }
                calls += 1;
                let is_whole =
                    |at: usize| !before[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
                let last = |call: &&'static str| {
                    let all = before.rmatch_indices(*call).map(|(at, _)| at);
                    Some((all.into_iter().find(|at| is_whole(*at))?, *call))
                };
                let nearest = CALLS.iter().filter_map(last).max();
                let (place, call) = nearest.unwrap_or((0, ""));
                assert!(
                    call.starts_with("write"),
                    "{path}: {} is not counted",
                    &text[place..at + method.len()]
                );
            }
        }
        for write in Write::ALL {
            if text.contains(&format!("Write::{write:?}")) && !path.ends_with("controllers/write.rs") {
                used.insert(write.as_str());
            }
        }
    }
    assert!(calls > 38, "{calls}");
    assert_eq!(used, Write::ALL.iter().map(|write| write.as_str()).collect(), "each is used");
}

#[tokio::test]
async fn refusals_and_lost_answers_are_counted_and_conflicts_are_not() {
    let value = |outcome| FAILURES.get_or_create(&labels(Write::SeedConfig, outcome)).get();
    let answers = |code: u16| async move {
        let status = kube::core::Status::failure("no", "No").with_code(code);
        Err::<(), _>(kube::Error::Api(Box::new(status)))
    };
    for code in [403, 409, 404, 422, 500] {
        assert!(write(Write::SeedConfig, answers(code)).await.is_err());
    }
    assert_eq!((value(REFUSED), value(UNANSWERED)), (2, 1));
}
