//! `setup` installs what its word names, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::make_program;

/// Runs a script that sources `setup`, with nothing in PATH but four tools and programs that answer as these do.
fn sourced(script: &str, programs: &[(&str, &str)]) -> bool {
    played(script, programs).status.success()
}

fn played(script: &str, programs: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    for tool in ["awk", "grep", "sed", "sort"] {
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
    bash.output().unwrap()
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

/// A user is told one command, and nothing of what that command brings.
#[test]
fn user_without_packages_is_told_one_command() {
    let none = "exit 1";
    let ubuntu = "case \"$*\" in
        'pkgnames rustc-1.') echo rustc-1.75; echo rustc-1.89; echo rustc-1.91 ;;
        'policy rustc') echo '  Candidate: 1.75.0' ;;
        'policy rustc-1.89') echo '  Candidate: 1.89.0' ;;
        'policy rustc-1.91') echo '  Candidate: 1.91.1' ;;
        'policy rustup') echo '  Candidate: 1.26.0' ;;
        esac";
    let old = "case \"$*\" in 'policy rustc') echo '  Candidate: 1.75.0' ;; 'policy rustup') echo '  Candidate: 1.26.0' ;; esac";
    let fedora = [("dnf", none), ("rpm", none)];
    let debian = |cache| [("apt-get", none), ("apt-cache", cache)];
    for (programs, ends) in [
        (debian(ubuntu), "ostree skopeo util-linux rustc-1.91 cargo-1.91"),
        (debian(old), "ostree skopeo util-linux rustup"),
        (fedora, "ostree skopeo util-linux rust cargo clippy rustfmt"),
    ] {
        let mut programs = programs.to_vec();
        programs.extend([("dpkg-query", none), ("cargo", none), ("id", "echo 1000")]);
        let output = played(". ./setup sandbox && echo goes on", &programs);
        let said = String::from_utf8(output.stderr).unwrap();
        let mut lines = said.lines();
        let line = lines.next().unwrap();
        assert!(line.starts_with("setup: packages are missing; as root: "), "{said}");
        assert!(line.ends_with(ends), "{line}");
        assert_eq!(lines.next(), None, "{said}");
        assert!(!output.status.success() && output.stdout.is_empty());
    }
}
