//! `setup` installs what its word names, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::program::make_program;

/// Runs a script that sources `setup`, with nothing in PATH but awk, grep, and programs that answer as these do.
fn sourced(script: &str, programs: &[(&str, &str)]) -> bool {
    let home = tempfile::tempdir().unwrap();
    for tool in ["awk", "grep"] {
        let found =
            ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(tool)).find(|path| path.exists());
        symlink(found.unwrap(), home.path().join(tool)).unwrap();
    }
    for (name, answer) in programs {
        make_program(&home.path().join(name), &format!("#!/bin/sh\n{answer}\n"));
    }
    let script = format!("PATH='{}'; {script}", home.path().display());
    let mut bash = Command::new("/bin/bash");
    bash.args(["-c", &script]).env("HOME", home.path()).current_dir(env!("CARGO_MANIFEST_DIR"));
    bash.status().unwrap().success()
}

/// A builder image has no Rust, and a rustup without a toolchain prints nothing on standard output.
#[test]
fn setup_takes_no_answer_for_no() {
    for (word, program, new, old) in [
        (
            "recent_rust",
            "cargo",
            "echo 'cargo 1.89.0 (abc 2025-01-01)'",
            "echo 'cargo 1.88.0 (abc 2025-01-01)'",
        ),
        ("recent_go", "go", "echo go1.26.0", "echo go1.25.9"),
    ] {
        let script = format!(". ./setup functions; {word}");
        assert!(!sourced(&script, &[]), "{word} without {program}");
        assert!(!sourced(&script, &[(program, "exit 1")]), "{word} with {program} that fails");
        assert!(!sourced(&script, &[(program, old)]), "{word}: {old}");
        assert!(sourced(&script, &[(program, new)]), "{word}: {new}");
    }
}

/// A builder has neither Go nor pip, and a build asks for neither; what the tests need is asked for by their word.
#[test]
fn setup_for_build_asks_for_no_go() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let record = format!("echo \"$0 $*\" >>'{}'; exit 1", asked.display());
    let programs = [
        ("dpkg-query", "echo install ok installed"),
        ("rpm", "exit 0"),
        ("apt-get", &record),
        ("cargo", "echo 'cargo 1.89.0 (abc 2025-01-01)'"),
        ("go", &record),
        ("python3", &record),
    ];
    assert!(sourced("set -e; . ./setup build", &programs));
    assert!(!asked.exists(), "{}", fs::read_to_string(&asked).unwrap());
    sourced("set -e; . ./setup everything", &programs);
    let asked = fs::read_to_string(&asked).unwrap();
    assert!(asked.contains("go env GOVERSION"), "{asked}");
}
