//! What shells offer after the words of a line.

use std::process::Command;

use crate::shells::{completed, parses};

fn script(shell: &str) -> String {
    let ran =
        Command::new(env!("CARGO_BIN_EXE_machine-config-controller")).args(["completions", shell]).output();
    String::from_utf8(ran.unwrap().stdout).unwrap()
}

/// Rows: a line up to the cursor, and all that bash offers there.
const LINES: &[(&str, &str)] = &[
    ("re", "render"),
    ("b", "bootstrap build"),
    ("plan --", "--manifests --kubeconfig --os-image --allow-unknown-fields --pool --file --output --help"),
    ("plan --file ", "manifests pool.yaml"),
    ("plan -f pool", "pool.yaml"),
    ("plan --manifests ", "manifests"),
    ("status --output=y", ""),
    ("status --output=j", "json"),
    ("status --watch --no", "--nodes"),
    ("build --apply ", "agent ignition"),
    ("run --controllers ren", "render"),
    ("run --controllers render,n", "render,node"),
    ("completions f", "fish"),
    ("man b", "bootstrap build"),
];

#[test]
fn bash_completes_verbs_flags_and_values() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("pool.yaml"), "").unwrap();
    std::fs::create_dir(place.path().join("manifests")).unwrap();
    let script = script("bash");
    for (line, expected) in LINES {
        let found = completed(&script, place.path(), &format!("machine-config-controller {line}"));
        assert_eq!(found, expected.split_whitespace().collect::<Vec<_>>(), "{line}");
    }
}

#[test]
fn other_shells_read_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        parses(shell, &script(shell), "completions of the controller");
    }
}
