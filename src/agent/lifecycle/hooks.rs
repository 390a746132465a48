//! Programs of an administrator before and after a stage: for what is out of the agent's scope, such as certificates, backups
//! and the configuration of a cluster.

use std::time::Duration;

use tracing::{info, warn};

use crate::host::program::ProgramDirectory;
use crate::host::{HostError, Root, Systemd};
use crate::model::message;

/// The directories of the programs are below this one.
const HOOKS: &str = "/etc/machine-config-agent/lifecycle.d";

/// Longest run of one program: a backup goes to a slow store.
const HOOK_TIMEOUT: Duration = Duration::from_secs(1800);

/// A point at which programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    BeforePrepare,
    AfterPrepare,
    BeforeActivate,
    AfterActivate,
    BeforeRollBack,
    AfterRollBack,
}

impl Hook {
    fn as_str(self) -> &'static str {
        match self {
            Self::BeforePrepare => "before-prepare",
            Self::AfterPrepare => "after-prepare",
            Self::BeforeActivate => "before-activate",
            Self::AfterActivate => "after-activate",
            Self::BeforeRollBack => "before-roll-back",
            Self::AfterRollBack => "after-roll-back",
        }
    }

    /// Runs the programs in the order of their names; the first failure ends it, and is returned.
    pub(super) async fn run(
        self,
        root: &Root,
        systemd: &Systemd,
        stateroot: &str,
    ) -> Result<Option<String>, HostError> {
        let hook = self.as_str();
        let path = format!("{HOOKS}/{hook}");
        let directory = ProgramDirectory {
            path: &path,
            unit: "machine-config-agent-hook.service",
            errors: "/run/machine-config-agent-hook.stderr",
            log_name: "machine-config-agent-hook",
            what: "Hook",
        };
        let (programs, ignored) = directory.list(root)?;
        if !ignored.is_empty() {
            warn!("Not executable, so no hook: {} in {path}", ignored.join(", "));
        }
        for name in programs {
            let fields = [format!("MCA_HOOK={hook}/{name}"), format!("MCA_STATEROOT={stateroot}")];
            let failed = directory.run(root, systemd, &name, HOOK_TIMEOUT, &fields).await?;
            if let Some(how) = failed {
                warn!(
                    MESSAGE_ID = message::HOOK_FAILED,
                    MCA_HOOK = %format!("{hook}/{name}"),
                    MCA_STATEROOT = stateroot,
                    "Hook {hook}/{name} failed: {how}"
                );
                return Ok(Some(format!("hook {hook}/{name} failed: {how}")));
            }
            info!(
                MESSAGE_ID = message::HOOK_RAN,
                MCA_HOOK = %format!("{hook}/{name}"),
                MCA_STATEROOT = stateroot,
                "Hook {hook}/{name} ran"
            );
        }
        Ok(None)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests: they make the host's files")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::program::make_program;

    fn put(dir: &std::path::Path, hook: &str, name: &str, text: &str) -> std::path::PathBuf {
        let path = dir.join(HOOKS.trim_start_matches('/')).join(hook);
        std::fs::create_dir_all(&path).unwrap();
        make_program(&path.join(name), text);
        path.join(name)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn hooks_run_in_order_until_one_fails() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let run = async || Hook::BeforeActivate.run(&root, &Systemd::absent(), "rhcos_1").await;
        assert_eq!(run().await.unwrap(), None);
        let ran = dir.path().join("ran");
        let line = |name: &str| format!("#!/bin/sh\necho {name} >> {}\n", ran.display());
        put(
            dir.path(),
            "before-activate",
            "20-b",
            &(line("b") + "echo 'no room, token=hunter2' >&2\nexit 3\n"),
        );
        put(dir.path(), "before-activate", "10-a", &line("a"));
        put(dir.path(), "before-activate", "30-c", &line("c"));
        put(dir.path(), "after-activate", "10-d", &line("d"));
        let failed = run().await.unwrap().unwrap();
        assert_eq!(failed, "hook before-activate/20-b failed: exit code 3: no room, token=***");
        assert_eq!(std::fs::read_to_string(&ran).unwrap(), "a\nb\n");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn hook_writable_by_others_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let hook = put(dir.path(), "after-prepare", "10-a", "#!/bin/sh\ntouch \"$0.ran\"\n");
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = Hook::AfterPrepare.run(&root, &Systemd::absent(), "rhcos_1").await.unwrap_err();
        assert_eq!(error.reason(), "UnsafeFile");
        assert!(!hook.with_extension("ran").exists());
    }
}
