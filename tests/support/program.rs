//! Programs that a test makes.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    reason = "shared by tests: it fails by panicking, and starts programs"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a program. Another process writes it: while this one has it open, a test beside this one may fork, and the
/// kernel runs no program that anybody has open for writing (`ETXTBSY`).
pub fn make_program(path: &Path, text: &str) {
    let mut install = Command::new("install");
    let install = install.args(["-D", "-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().unwrap();
    install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success());
}
