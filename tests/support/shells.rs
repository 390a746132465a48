//! The completions of a program, as shells take them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    reason = "shared by tests: it fails by panicking, and starts programs"
)]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use crate::ran::not_run;

/// Returns what bash offers at the end of a line: its own script, called as readline calls it, in a directory.
pub fn completed(script: &str, directory: &std::path::Path, line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        words.push(String::new());
        for letter in word.chars() {
            let is_break = "=:@".contains(letter);
            let last = words.last().unwrap();
            if !last.is_empty() && is_break != last.contains(['=', ':', '@']) {
                words.push(String::new());
            }
            words.last_mut().unwrap().push(letter);
        }
    }
    let current = words.last().unwrap().replace(['=', ':', '@'], "");
    let before = words.len().checked_sub(2).map(|at| words[at].clone()).unwrap_or_default();
    let call = "set -u; name=$1 cur=$2 prev=$3; shift 3; . /dev/stdin; COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); \
        f=$(complete -p \"$name\"); f=${f#*-F }; ${f%% *} \"$name\" \"$cur\" \"$prev\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", call, "bash"]).args([&words[0], &current, &before]).args(&words).current_dir(directory);
    let ran = fed(&mut bash, script);
    let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success() && err.is_empty(), "{line}: {err}");
    out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The shell reads the script without a complaint.
pub fn parses(shell: &str, script: &str, test: &str) {
    if Command::new(shell).arg("--version").output().is_err() {
        return not_run(test, shell);
    }
    let ran = fed(Command::new(shell).args(["-n", "/dev/stdin"]), script);
    assert!(
        ran.status.success() && ran.stderr.is_empty(),
        "{shell}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

fn fed(command: &mut Command, script: &str) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}
