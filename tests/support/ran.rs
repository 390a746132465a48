//! A test that can't be run here says so: past the runner's capture, for the last lines of `./test`, and in a file, so that
//! `tests/cli/conformance.rs` does not count it.
#![allow(
    clippy::disallowed_methods,
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "shared by tests: the lints of a library do not fit"
)]

use std::io::Write as _;

/// The tests that were not run, one a line: name, tab, the missing requirement.
pub const NOT_RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tests-not-run");

/// Reports that a test is not run, and what it needs.
pub fn not_run(test: &str, needs: &str) {
    let line = format!("not run: {test} needs {needs}\n");
    drop(std::io::stderr().write_all(line.as_bytes()));
    let append = std::fs::OpenOptions::new().append(true).create(true).open(NOT_RUN);
    drop(append.map(|mut file| file.write_all(format!("{test}\t{needs}\n").as_bytes())));
}
