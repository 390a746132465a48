//! Runs buildah: its lines as they come, an end by a deadline, and no process that outlives this one.

#![expect(clippy::disallowed_types, reason = "the controller's only program; `host` is the agent's")]

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

use super::LocalError;
use super::output::Output;

/// Time limit for the end of a killed program.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a program to its end; each line is given to `progress`.
pub(super) async fn run(
    program: &OsStr,
    arguments: &[String],
    deadline: Instant,
    progress: &mut dyn FnMut(&str),
) -> Result<(ExitStatus, Output), LocalError> {
    let failed = |error: std::io::Error| LocalError::program(program, &error);
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    // Both in one pipe: their order shows what belongs to which step.
    let mut child = spawn(program, arguments, &writer)?;
    drop(writer);
    let mut lines = Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(failed)?;
    let mut output = Output::default();
    let mut buffer = vec![0; 8 << 10];
    let ended = timeout_at(deadline, async {
        loop {
            let count = lines.read(&mut buffer).await?;
            if count == 0 {
                break;
            }
            for line in output.take(buffer.get(..count).unwrap_or_default()) {
                progress(&line);
            }
        }
        child.wait().await
    });
    if let Ok(status) = ended.await {
        if let Some(line) = output.end_line() {
            progress(&line);
        }
        return Ok((status.map_err(failed)?, output));
    }
    let killed = tokio::time::timeout(KILL_TIMEOUT, child.kill()).await;
    drop(killed);
    Err(LocalError::Timeout { step: output.step().unwrap_or("buildah").to_owned() })
}

/// Under `setpriv`, so that the kernel ends it with this process, whatever that dies of; buildah ends its own children so.
fn spawn(program: &OsStr, arguments: &[String], writer: &std::io::PipeWriter) -> Result<Child, LocalError> {
    let failed = |error: std::io::Error| LocalError::program(program, &error);
    let output = || writer.try_clone().map(Stdio::from).map_err(failed);
    let start = |command: &mut Command| {
        let command = command.stdin(Stdio::null()).stdout(output()?).stderr(output()?).kill_on_drop(true);
        Ok::<_, LocalError>(command.spawn())
    };
    let mut held = Command::new("setpriv");
    match start(held.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments))? {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            start(Command::new(program).args(arguments))?.map_err(failed)
        }
        started => started.map_err(failed),
    }
}
