//! The one way to run a program: by name and arguments, without a shell, bounded in time and in what is kept of its
//! output. Secrets never go into arguments: everyone may read them in `/proc`.

#![expect(clippy::disallowed_types, reason = "this is where programs are run")]

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::HostError;

/// So much of the end of a failed program's output goes into the error: enough for its last words, not a flood.
const KEPT: usize = 600;

/// Runs a program to its end. Its failure, and its taking longer than `limit`, are errors; it is killed then.
pub async fn run(program: &str, arguments: &[&str], limit: Duration) -> Result<(), HostError> {
    output(program, arguments, limit).await.map(drop)
}

/// Runs a program as [`run`] does, and returns its standard output.
pub async fn output(program: &str, arguments: &[&str], limit: Duration) -> Result<String, HostError> {
    let failed = |cause: String| HostError::Command { program: program.to_owned(), cause };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(limit, command.output()).await {
        Err(_) => return Err(HostError::Timeout { object: program.to_owned(), seconds: limit.as_secs() }),
        Ok(output) => output.map_err(|error| failed(format!("it can't be started: {error}")))?,
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}: {}", output.status, last_words(&text))))
}

/// Returns the last lines of a text in one, as many as fit.
pub(in crate::host) fn last_words(text: &str) -> String {
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(KEPT);
    let end: String = text.chars().skip(skipped).collect();
    end.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
pub(in crate::host) mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use super::*;

    /// Makes a program. Another process writes it: while this one has it open, a test beside this one may fork, and the
    /// kernel runs no program that anybody has open for writing (`ETXTBSY`).
    pub(in crate::host) fn make_program(path: &Path, text: &str) {
        let mut install = std::process::Command::new("install");
        let install = install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(std::process::Stdio::piped());
        let mut install = install.spawn().unwrap();
        install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn failures_say_why() {
        let limit = Duration::from_secs(20);
        run("true", &[], limit).await.unwrap();
        let error = run("ls", &["/does/not/exist"], limit).await.unwrap_err().to_string();
        assert!(
            error.starts_with("ls failed: exit status: 2: ") && error.contains("/does/not/exist"),
            "{error}"
        );
        let error = run("no-such-program", &[], limit).await.unwrap_err().to_string();
        assert!(error.contains("can't be started"), "{error}");
        let error = run("tail", &["-f", "/dev/null"], Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(error.reason(), "TimedOut");
    }
}
