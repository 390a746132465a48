//! Health checks of a new deployment: units that have to be active, and the administrator's own checks.
//!
//! A check is a program; where systemd runs it is a transient unit, so that it gets nothing of the agent's and ends with
//! all that it has started. Invariant: only the last lines of its output are kept, in memory and on disk, and possible
//! secrets are masked. It runs as root, so one that another user may change is not run.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::net::unix::pipe::Receiver;

use super::HostError;
use super::command::{self, last_words, with_words};
use super::redact::redact;
use super::root::Root;
use super::systemd::transient::{Program, Transients};
use super::systemd::{Systemd, UnitLinks, known};
use crate::model::UnitName;
use crate::model::observation::{ObservedFile, UnitFileState};

/// Directory of the checks.
const CHECKS: &str = "/etc/machine-config-agent/health.d";

/// The unit that has to be active by default, if it is enabled.
const KUBELET: &str = "kubelet.service";

/// The unit of the check that runs.
const UNIT: &str = "machine-config-agent-health.service";

/// Its standard error, a named pipe.
const ERRORS: &str = "/run/machine-config-agent-health.stderr";

/// Most bytes kept of the end of its output.
const MAX_KEPT_BYTES: usize = 8 * 1024;

/// As much is read at once.
const CHUNK_BYTES: usize = 4 * 1024;

/// So many reads empty a pipe that was full when its writer ended.
const MAX_LAST_READS: usize = 32;

/// The name that its lines have in the journal.
const LOG_NAME: &str = "machine-config-agent-health";

/// Anybody's permission to execute.
const EXECUTABLE: u32 = 0o111;

/// Health checks to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks {
    /// The units that have to be active.
    pub units: Vec<UnitName>,
    /// The names of the checks, in their order.
    pub checks: Vec<String>,
    /// Entries beside the checks that are not executable files.
    pub ignored: Vec<String>,
}

impl HealthChecks {
    /// Reads the health checks: these units, or the kubelet where it is enabled, and all checks.
    pub fn load(root: &Root, units: Option<&BTreeSet<UnitName>>) -> Result<Self, HostError> {
        let units = match units {
            Some(units) => units.iter().cloned().collect(),
            None => kubelet(root)?.into_iter().collect(),
        };
        let mut list = Self { units, checks: Vec::new(), ignored: Vec::new() };
        let mut names = root.list(CHECKS)?;
        names.sort_unstable();
        for name in names {
            match root.observe(&format!("{CHECKS}/{name}"))? {
                ObservedFile::Regular { mode, .. } if mode & EXECUTABLE != 0 => list.checks.push(name),
                ObservedFile::Regular { .. }
                | ObservedFile::Absent
                | ObservedFile::Symlink { .. }
                | ObservedFile::Directory
                | ObservedFile::Special => list.ignored.push(name),
            }
        }
        Ok(list)
    }

    /// Returns true if no check is set.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.checks.is_empty()
    }
}

fn kubelet(root: &Root) -> Result<Option<UnitName>, HostError> {
    let unit = known(KUBELET)?;
    let seen = UnitLinks::load(root)?.observe(&unit)?;
    Ok((seen.enabled == UnitFileState::Enabled).then_some(unit))
}

/// Runs a check, no longer than given; returns its end if that is a failure.
pub async fn run(
    root: &Root,
    systemd: &Systemd,
    name: &str,
    limit: Duration,
) -> Result<Option<String>, HostError> {
    root.check_trusted(&format!("{CHECKS}/{name}"))?;
    let program = root.base().join(CHECKS.trim_start_matches('/')).join(name).display().to_string();
    match systemd.transients().await? {
        Some(units) => as_unit(&units, root, name, program, limit).await,
        None => match command::run(&program, &[], limit).await {
            Ok(()) => Ok(None),
            Err(HostError::Command { cause, .. }) => {
                Ok(Some(redact(&cause).replacen("exit status: ", "exit code ", 1)))
            }
            Err(HostError::Timeout { seconds, .. }) => Ok(Some(format!("no end within {seconds} s"))),
            Err(error) => Err(error),
        },
    }
}

async fn as_unit(
    units: &Transients,
    root: &Root,
    name: &str,
    program: String,
    limit: Duration,
) -> Result<Option<String>, HostError> {
    let unit = known(UNIT)?;
    // A unit of an earlier start has no meaning now.
    units.stop(&unit).await?;
    let mut output = Output::open(root)?;
    let description = format!("Health check {name} (for machine-config-agent)");
    let command = [program];
    let mut run = Box::pin(units.run(Program {
        unit: &unit,
        description: &description,
        command: &command,
        log_name: LOG_NAME,
        log_fields: &[],
        output: None,
        errors: root.base().join(ERRORS.trim_start_matches('/')),
        environment: None,
        pipe: None,
        seconds: Some(limit.as_secs().max(1)),
    }));
    let ended = loop {
        tokio::select! {
            // The same future is polled until it ends.
            ended = &mut run => break ended?,
            // Cancel-safe: it only waits, and takes the output in the step that ends it.
            read = output.read() => read?,
        }
    };
    let words = output.last_words()?;
    units.stop(&unit).await?;
    root.remove_pipe(ERRORS)?;
    Ok((!ended.is_success()).then(|| with_words(&ended, &words)))
}

/// Standard error of a check.
#[derive(Debug)]
struct Output {
    pipe: Receiver,
    end: Vec<u8>,
    /// The beginning is gone.
    cut: bool,
}

impl Output {
    fn open(root: &Root) -> Result<Self, HostError> {
        let pipe = Receiver::from_owned_fd(root.make_pipe(ERRORS)?).map_err(unread)?;
        Ok(Self { pipe, end: Vec::new(), cut: false })
    }

    /// Waits for more, and reads it.
    async fn read(&mut self) -> Result<(), HostError> {
        self.pipe.readable().await.map_err(unread)?;
        self.take().map(drop)
    }

    /// Reads the available output; returns true if there was any.
    fn take(&mut self) -> Result<bool, HostError> {
        let mut chunk = [0; CHUNK_BYTES];
        match self.pipe.try_read(&mut chunk) {
            Ok(count) => {
                self.end.extend_from_slice(chunk.get(..count).unwrap_or_default());
                let over = self.end.len().saturating_sub(MAX_KEPT_BYTES);
                self.cut |= over > 0;
                drop(self.end.drain(..over));
                Ok(count > 0)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(unread(error)),
        }
    }

    /// Reads the rest, and returns the end of it all.
    fn last_words(mut self) -> Result<String, HostError> {
        let mut reads = 0;
        while reads < MAX_LAST_READS && self.take()? {
            reads += 1;
        }
        let text = String::from_utf8_lossy(&self.end);
        // Half a word may be half a secret, which the redaction would miss.
        let whole =
            if self.cut { text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest) } else { &text };
        Ok(last_words(&redact(whole)))
    }
}

fn unread(source: std::io::Error) -> HostError {
    HostError::io("read", ERRORS, source)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::program::make_program;

    fn put(dir: &Path, path: &str, mode: u32, text: &str) {
        let at = dir.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(&at, text).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn executables_are_checks_in_their_order_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert!(HealthChecks::load(&root, None).unwrap().is_empty());
        for (name, mode) in [("20-b", 0o755), ("10-a", 0o500), ("README", 0o644)] {
            put(dir.path(), &format!("{CHECKS}/{name}"), mode, "");
        }
        std::fs::create_dir(dir.path().join(CHECKS.trim_start_matches('/')).join("old")).unwrap();
        let list = HealthChecks::load(&root, None).unwrap();
        assert_eq!(list.checks, ["10-a", "20-b"]);
        assert_eq!(list.ignored, ["README", "old"]);
    }

    #[test]
    fn enabled_kubelet_must_be_active_by_default() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let unit = "/etc/systemd/system/kubelet.service";
        put(dir.path(), unit, 0o644, "[Service]\nExecStart=x\n[Install]\nWantedBy=multi-user.target\n");
        assert!(HealthChecks::load(&root, None).unwrap().is_empty());
        let wants = dir.path().join("etc/systemd/system/multi-user.target.wants");
        std::fs::create_dir(&wants).unwrap();
        std::os::unix::fs::symlink(unit, wants.join("kubelet.service")).unwrap();
        assert_eq!(HealthChecks::load(&root, None).unwrap().units, [known(KUBELET).unwrap()]);
        let other = BTreeSet::from([known("crio.service").unwrap()]);
        assert_eq!(HealthChecks::load(&root, Some(&other)).unwrap().units, [known("crio.service").unwrap()]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn failed_check_is_reported_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let none = Systemd::absent();
        let script = "#!/bin/sh\necho \"the port\nis closed, token=hunter2\" >&2\nexit $(cat \"$0.code\")\n";
        put(dir.path(), &format!("{CHECKS}/10-a.code"), 0o644, "3");
        let program = dir.path().join(CHECKS.trim_start_matches('/')).join("10-a");
        make_program(&program, script);
        let limit = Duration::from_secs(30);
        let how = run(&root, &none, "10-a", limit).await.unwrap();
        assert_eq!(how.as_deref(), Some("exit code 3: the port; is closed, token=***"));
        put(dir.path(), &format!("{CHECKS}/10-a.code"), 0o644, "0");
        assert_eq!(run(&root, &none, "10-a", limit).await.unwrap(), None);
        make_program(&program, "#!/bin/sh\nexec tail -f /dev/null\n");
        let how = run(&root, &none, "10-a", Duration::from_millis(10)).await.unwrap();
        assert_eq!(how.as_deref(), Some("no end within 0 s"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn flood_on_standard_error_is_kept_in_bounds() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut output = Output::open(&root).unwrap();
        let path = dir.path().join(ERRORS.trim_start_matches('/'));
        let writer = std::thread::spawn(move || {
            let mut pipe = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            for _ in 0..4096 {
                pipe.write_all(&[b'x'; 1024]).unwrap();
            }
            pipe.write_all(b"\nthe port is closed\n").unwrap();
        });
        while !writer.is_finished() || output.take().unwrap() {
            tokio::time::timeout(Duration::from_millis(50), output.read()).await.ok().transpose().unwrap();
            assert!(output.end.len() <= MAX_KEPT_BYTES && output.end.capacity() <= 4 * MAX_KEPT_BYTES);
        }
        assert_eq!(output.last_words().unwrap(), "the port is closed");
        // A second run begins with an empty pipe.
        assert_eq!(Output::open(&root).unwrap().last_words().unwrap(), "");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn check_writable_by_others_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        put(dir.path(), &format!("{CHECKS}/README"), 0o644, "");
        let checks = dir.path().join(CHECKS.trim_start_matches('/'));
        make_program(&checks.join("10-a"), "#!/bin/sh\ntouch \"$0.ran\"\n");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let limit = Duration::from_secs(30);
        for (at, bad, reason) in
            [(checks.join("10-a"), 0o775, "UnsafeFile"), (checks.clone(), 0o1777, "UnsafeDirectory")]
        {
            mode(&at, bad);
            let error = run(&root, &Systemd::absent(), "10-a", limit).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{error}");
            assert!(
                error.next().contains("chmod go-w /etc/machine-config-agent/health.d"),
                "{}",
                error.next()
            );
            mode(&at, 0o755);
        }
        assert!(!checks.join("10-a.ran").exists());
        assert_eq!(run(&root, &Systemd::absent(), "10-a", limit).await.unwrap(), None);
        assert!(checks.join("10-a.ran").exists());
    }
}
