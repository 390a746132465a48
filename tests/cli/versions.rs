//! `tests/versions/run`: the version that hand-overs are played with is one of this history, and a run without it is no pass.

use std::path::Path;
use std::process::{Command, Output};

use crate::ran;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/versions/run");
const COMMIT: &str = "c2486e02b48f96e02c316769be7e4359a2b51f91";

fn git(at: &Path, words: &[&str]) -> Output {
    let name = ["-c", "user.name=t", "-c", "user.email=t@test", "-c", "commit.gpgsign=false"];
    Command::new("git").args(name).args(words).current_dir(at).output().unwrap()
}

/// A repository of two commits with the script.
fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("tests/versions");
    std::fs::create_dir_all(&to).unwrap();
    std::fs::copy(SCRIPT, to.join("run")).unwrap();
    for words in [&["init", "--quiet"][..], &["add", "."]] {
        assert!(git(dir.path(), words).status.success());
    }
    for message in ["a", "b"] {
        let made = git(dir.path(), &["commit", "--quiet", "--allow-empty", "-m", message]);
        assert!(made.status.success(), "{made:?}");
    }
    dir
}

fn has_git(test: &str) -> bool {
    let has = Command::new("git").arg("--version").output().is_ok();
    if !has {
        ran::not_run(test, "git");
    }
    has
}

/// The exit code, and what it says.
fn run(at: &Path, not_run: Option<&str>) -> (i32, String) {
    let mut command = Command::new(at.join("tests/versions/run"));
    command.arg(COMMIT).env_remove("MCA_NOT_RUN").env("GIT_CEILING_DIRECTORIES", at.parent().unwrap());
    command.envs(not_run.map(|code| ("MCA_NOT_RUN", code)));
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn version_that_is_missing_is_an_error() {
    if !has_git("version_that_is_missing_is_an_error") {
        return;
    }
    let whole = repository();
    for not_run in [None, Some("0")] {
        let (code, text) = run(whole.path(), not_run);
        assert!(code == 1 && text.contains(COMMIT) && text.contains("Next: "), "{code} {text}");
    }
    let clone = tempfile::tempdir().unwrap();
    let url = format!("file://{}", whole.path().display());
    let cloned = git(clone.path(), &["clone", "--quiet", "--depth", "1", &url, "shallow"]);
    assert!(cloned.status.success(), "{cloned:?}");
    std::fs::remove_dir_all(whole.path().join(".git")).unwrap();
    for at in [clone.path().join("shallow"), whole.path().to_owned()] {
        for (not_run, expected) in [(None, 2), (Some("0"), 0)] {
            let (code, text) = run(&at, not_run);
            let is_told = text.lines().any(|line| line.starts_with("not run: ") && line.contains(" needs "));
            assert!(code == expected && is_told, "{}: {code} {text}", at.display());
        }
    }
}

#[test]
fn default_version_is_in_the_history() {
    let test = "default_version_is_in_the_history";
    if !has_git(test) {
        return;
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shallow = git(top, &["rev-parse", "--is-shallow-repository"]);
    if String::from_utf8_lossy(&shallow.stdout).trim() != "false" {
        ran::not_run(test, "the whole history");
        return;
    }
    let script = std::fs::read_to_string(SCRIPT).unwrap();
    let default = script.lines().find_map(|line| line.strip_prefix("default=")).unwrap();
    assert!(git(top, &["merge-base", "--is-ancestor", default, "HEAD"]).status.success(), "{default}");
}
