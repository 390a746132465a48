//! What a new deployment has to show before it counts: units that are active, and the administrator's own checks.
//!
//! A check is a program; where systemd runs it is a transient unit, so that it gets nothing of the agent's and ends with
//! all that it has started. Invariant: of what it says only its last words are kept, and what may be a secret is masked.

use std::collections::BTreeSet;
use std::time::Duration;

use super::HostError;
use super::command::{self, last_words, with_words};
use super::masked::masked;
use super::root::Root;
use super::systemd::transient::{Program, Transients};
use super::systemd::{Systemd, UnitLinks, known};
use crate::model::observation::{EnabledSeen, FileSeen};
use crate::model::{FileMode, UnitName};

/// Where the checks are.
const CHECKS: &str = "/etc/machine-config-agent/health.d";

/// The unit that has to be active where nothing else is said, if it is enabled.
const KUBELET: &str = "kubelet.service";

/// The unit of the check that runs.
const UNIT: &str = "machine-config-agent-health.service";

/// Its standard error.
const ERRORS: &str = "/run/machine-config-agent-health.stderr";

/// The name that its lines have in the journal.
const LOG_NAME: &str = "machine-config-agent-health";

/// Anybody's permission to execute.
const EXECUTABLE: u32 = 0o111;

/// What has to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checklist {
    /// The units that have to be active.
    pub units: Vec<UnitName>,
    /// The names of the checks, in their order.
    pub checks: Vec<String>,
    /// What lies beside the checks and is none.
    pub ignored: Vec<String>,
}

impl Checklist {
    /// Reads what has to be shown: these units, or the kubelet where it is enabled, and all checks.
    pub fn of(root: &Root, units: Option<&BTreeSet<UnitName>>) -> Result<Self, HostError> {
        let units = match units {
            Some(units) => units.iter().cloned().collect(),
            None => kubelet(root)?.into_iter().collect(),
        };
        let mut list = Self { units, checks: Vec::new(), ignored: Vec::new() };
        let mut names = root.list(CHECKS)?;
        names.sort_unstable();
        for name in names {
            match root.seen(&format!("{CHECKS}/{name}"))? {
                FileSeen::Regular { mode, .. } if mode & EXECUTABLE != 0 => list.checks.push(name),
                FileSeen::Regular { .. }
                | FileSeen::Absent
                | FileSeen::Symlink { .. }
                | FileSeen::Directory
                | FileSeen::Special => list.ignored.push(name),
            }
        }
        Ok(list)
    }

    /// Says whether nothing has to be shown.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.checks.is_empty()
    }
}

fn kubelet(root: &Root) -> Result<Option<UnitName>, HostError> {
    let unit = known(KUBELET)?;
    let seen = UnitLinks::load(root)?.seen(&unit)?;
    Ok((seen.enabled == EnabledSeen::Enabled).then_some(unit))
}

/// Runs a check, no longer than given; returns how it ended when that was not well.
pub async fn run(
    root: &Root,
    systemd: &Systemd,
    name: &str,
    limit: Duration,
) -> Result<Option<String>, HostError> {
    let program = root.base().join(CHECKS.trim_start_matches('/')).join(name).display().to_string();
    match systemd.transients().await? {
        Some(units) => as_unit(&units, root, name, program, limit).await,
        None => match command::run(&program, &[], limit).await {
            Ok(()) => Ok(None),
            Err(HostError::Command { cause, .. }) => {
                Ok(Some(masked(&cause).replacen("exit status: ", "exit code ", 1)))
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
    // One that an earlier start left says nothing of now.
    units.stop(&unit).await?;
    root.replace(ERRORS, b"", FileMode::PRIVATE)?;
    let ended = units
        .run(Program {
            unit: &unit,
            description: &format!("Health check {name} (for machine-config-agent)"),
            command: &[program],
            log_name: LOG_NAME,
            log_fields: &[],
            output: None,
            errors: root.base().join(ERRORS.trim_start_matches('/')),
            pipe: None,
            seconds: Some(limit.as_secs().max(1)),
        })
        .await?;
    let words = last_words(&masked(&String::from_utf8_lossy(&root.read(ERRORS)?.unwrap_or_default())));
    units.stop(&unit).await?;
    root.remove(ERRORS)?;
    Ok((!ended.is_success()).then(|| with_words(&ended, &words)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::host::command::tests::make_program;

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
        assert!(Checklist::of(&root, None).unwrap().is_empty());
        for (name, mode) in [("20-b", 0o755), ("10-a", 0o500), ("README", 0o644)] {
            put(dir.path(), &format!("{CHECKS}/{name}"), mode, "");
        }
        std::fs::create_dir(dir.path().join(CHECKS.trim_start_matches('/')).join("old")).unwrap();
        let list = Checklist::of(&root, None).unwrap();
        assert_eq!(list.checks, ["10-a", "20-b"]);
        assert_eq!(list.ignored, ["README", "old"]);
    }

    #[test]
    fn the_kubelet_has_to_be_active_where_it_is_enabled_and_nothing_else_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let unit = "/etc/systemd/system/kubelet.service";
        put(dir.path(), unit, 0o644, "[Service]\nExecStart=x\n[Install]\nWantedBy=multi-user.target\n");
        assert!(Checklist::of(&root, None).unwrap().is_empty());
        let wants = dir.path().join("etc/systemd/system/multi-user.target.wants");
        std::fs::create_dir(&wants).unwrap();
        std::os::unix::fs::symlink(unit, wants.join("kubelet.service")).unwrap();
        assert_eq!(Checklist::of(&root, None).unwrap().units, [known(KUBELET).unwrap()]);
        let other = BTreeSet::from([known("crio.service").unwrap()]);
        assert_eq!(Checklist::of(&root, Some(&other)).unwrap().units, [known("crio.service").unwrap()]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_check_that_fails_is_told_with_its_last_words() {
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
}
