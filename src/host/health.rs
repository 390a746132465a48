//! Health checks of a new deployment: units that have to be active, and the administrator's own checks.
//!
//! A check is a program of an administrator ([`super::program`]).

use std::collections::BTreeSet;
use std::time::Duration;

use super::HostError;
use super::program::ProgramDirectory;
use super::root::Root;
use super::systemd::{Systemd, UnitLinks, known};
use crate::model::UnitName;

/// Directory of the checks.
const CHECKS: &str = "/etc/machine-config-agent/health.d";

/// The unit that has to be active by default, if it is enabled.
const KUBELET: &str = "kubelet.service";

/// The checks.
const DIRECTORY: ProgramDirectory<'_> = ProgramDirectory {
    path: CHECKS,
    unit: "machine-config-agent-health.service",
    errors: "/run/machine-config-agent-health.stderr",
    log_name: "machine-config-agent-health",
    what: "Health check",
};

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
        let (checks, ignored) = DIRECTORY.list(root)?;
        Ok(Self { units, checks, ignored })
    }

    /// Returns true if no check is set.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.checks.is_empty()
    }
}

fn kubelet(root: &Root) -> Result<Option<UnitName>, HostError> {
    let unit = known(KUBELET)?;
    let observed = UnitLinks::load(root)?.observe(&unit)?;
    Ok(observed.enabled.has_links().then_some(unit))
}

/// Runs a check, no longer than given; returns its end if that is a failure.
pub async fn run(
    root: &Root,
    systemd: &Systemd,
    name: &str,
    limit: Duration,
) -> Result<Option<String>, HostError> {
    DIRECTORY.run(root, systemd, name, limit, &[]).await
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
