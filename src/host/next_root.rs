//! The root of a soft reboot: the host's own `ostree` mounts a deployment in `/run/nextroot`, and systemd starts the
//! system there (systemd-soft-reboot.service(8)).
//!
//! # Decisions
//! 1. It is prepared when the reboot is recorded, not when the deployment is staged: `systemctl reboot` takes
//!    that way by itself if it is there, and an update may be undone until then.
//! 2. `ostree` runs as a unit of systemd: the mount has to be the host's, and an agent in a container has others.
//! 3. Anything but a soft reboot removes it before: another deployment that is staged, an update that is undone, a
//!    whole reboot. libostree removes only the mount in its own mount namespace.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::systemd::transient::Program;
use super::systemd::{Systemd, known};
use super::{HostError, Root};
use crate::host::command::{last_words, with_words};
use crate::model::FileMode;

/// Mount point of the next root.
const NEXT_ROOT: &str = "/run/nextroot";
/// A directory that every next root has.
const IN_NEXT_ROOT: &str = "/run/nextroot/usr";
/// libostree's note of a prepared root.
const PREPARED: &str = "/run/ostree/nextroot-booted";
/// Unit of the new user space that moves the note to its final place.
const BOOT_COMPLETE: &str = "ostree-boot-complete.service";
/// Mount table of the host.
const HOST_MOUNTS: &str = "/proc/1/mountinfo";
/// Directory of the deployments, below the root.
const DEPLOYMENTS: &str = "sysroot/ostree/deploy";
/// The unit, and its words.
const UNIT: &str = "machine-config-agent-next-root.service";
const WORDS: &str = "/run/machine-config-agent-next-root.stderr";
const MAX_WORDS_BYTES: u64 = 16 << 10;
/// It mounts, and writes one file.
const SECONDS: u64 = 60;

/// Returns true if a soft reboot would start another system than the running one.
pub fn is_mounted(root: &Root) -> Result<bool, HostError> {
    root.exists(IN_NEXT_ROOT)
}

/// Completes a finished soft reboot: libostree's own unit finds the running deployment. It is not started again if it
/// has outlived the reboot, as units without default dependencies do; then nothing could be read of the sysroot.
pub async fn complete(root: &Root, systemd: &Systemd) -> Result<(), HostError> {
    if !root.exists(PREPARED)? || is_mounted(root)? {
        return Ok(());
    }
    // The host's own mounts: a container may not have got the one of a reboot that is still to come.
    let Some(mounts) = root.read_text(HOST_MOUNTS)? else { return Ok(()) };
    if mounts.lines().any(|line| line.split(' ').nth(4) == Some(NEXT_ROOT)) {
        return Ok(());
    }
    tracing::info!("{BOOT_COMPLETE} has not run since the soft reboot: starting it");
    systemd.restart(&known(BOOT_COMPLETE)?).await.map(|_| ())
}

/// Returns the running deployment: the one whose `/etc` is mounted. libostree goes by the prepared one, also where the
/// soft reboot started the old user space again. Nothing where no deployment has it, as with a transient `/etc`.
pub fn running(root: &Root) -> Option<String> {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let here = identity(&root.base().join("etc"))?;
    let entries = |path: &Path| {
        let found = std::fs::read_dir(path).into_iter().flatten().flatten();
        found.filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?)))
    };
    for (stateroot, name) in entries(&root.base().join(DEPLOYMENTS)) {
        let mut all = entries(&stateroot.join("deploy"));
        if let Some((_, checkout)) = all.find(|(path, _)| identity(&path.join("etc")) == Some(here)) {
            return Some(format!("{name}-{checkout}"));
        }
    }
    None
}

/// Mounts a deployment as the next root, by its place in the list of deployments.
pub async fn prepare(root: &Root, systemd: &Systemd, index: u32) -> Result<(), HostError> {
    let command = ["/usr/bin/ostree", "admin", "prepare-soft-reboot", &index.to_string()].map(str::to_owned);
    Box::pin(run(root, systemd, &command, "Prepare a soft reboot (for machine-config-agent)")).await
}

/// Takes the next root away; a missing one is ignored.
pub async fn drop(root: &Root, systemd: &Systemd) -> Result<(), HostError> {
    if is_mounted(root)? {
        let command = ["/usr/bin/umount", "--recursive", NEXT_ROOT].map(str::to_owned);
        // Boxed: it is a part of every step of an update, and hardly ever needed.
        Box::pin(run(root, systemd, &command, "Give up a prepared soft reboot (for machine-config-agent)"))
            .await?;
    }
    root.remove(PREPARED)?;
    Ok(())
}

async fn run(root: &Root, systemd: &Systemd, command: &[String], what: &str) -> Result<(), HostError> {
    let unit = known(UNIT)?;
    let failed = |result: String| HostError::Job { action: "run", unit: UNIT.to_owned(), result };
    let Some(units) = systemd.transients().await? else {
        return Err(failed("no systemd runs for this host".to_owned()));
    };
    // A unit of an earlier start has no meaning any more.
    units.stop(&unit).await?;
    root.replace(WORDS, b"", FileMode::PRIVATE)?;
    let program = Program {
        unit: &unit,
        description: what,
        command,
        log_name: "machine-config-agent",
        log_fields: &[],
        output: None,
        errors: root.base().join(WORDS.trim_start_matches('/')),
        environment: None,
        pipe: None,
        seconds: Some(SECONDS),
    };
    let ended = units.run(program).await?;
    units.stop(&unit).await?;
    let words = root.read_tail(WORDS, MAX_WORDS_BYTES)?.unwrap_or_default();
    root.remove(WORDS)?;
    if ended.is_success() {
        return Ok(());
    }
    Err(failed(with_words(&ended.to_string(), &last_words(&String::from_utf8_lossy(&words)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::systemd::tests::double::Double;
    use crate::host::systemd::tests::peers;

    /// libostree may take another deployment for the booted one; `/etc` can't lie.
    #[test]
    fn running_deployment_is_known_by_etc() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(running(&root), None);
        std::fs::create_dir_all(at("etc")).unwrap();
        for checkout in ["old.0", "new.0"] {
            std::fs::create_dir_all(at(DEPLOYMENTS).join("fcos/deploy").join(checkout).join("etc")).unwrap();
        }
        std::fs::write(at(DEPLOYMENTS).join("fcos/deploy/old.0.origin"), "").unwrap();
        assert_eq!(running(&root), None, "no deployment has it");
        std::fs::remove_dir(at("etc")).unwrap();
        std::os::unix::fs::symlink(at(DEPLOYMENTS).join("fcos/deploy/old.0/etc"), at("etc")).unwrap();
        assert_eq!(running(&root).as_deref(), Some("fcos-old.0"));
    }

    /// Only a finished soft reboot is completed: a mounted root, here or on the host, is still to come.
    #[tokio::test(flavor = "current_thread")]
    async fn finished_soft_reboot_is_completed() {
        let mounted = format!("36 35 0:30 / {NEXT_ROOT} ro,relatime - overlay overlay ro\n");
        for (prepared, here, on_host, completes) in [
            (false, false, Some(""), false),
            (true, false, Some("25 1 8:2 / / ro - ext4 /dev/sda2 ro\n"), true),
            (true, true, Some(""), false),
            (true, false, Some(mounted.as_str()), false),
            (true, false, None, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let put = |path: &str, text: &str| {
                let path = dir.path().join(path.trim_start_matches('/'));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            };
            put("/etc/os-release", "");
            if prepared {
                put(PREPARED, "");
            }
            if here {
                put(&format!("{IN_NEXT_ROOT}/lib"), "");
            }
            if let Some(mounts) = on_host {
                put(HOST_MOUNTS, mounts);
            }
            let double = Double::new("257");
            let (_server, systemd) = peers(&double).await;
            complete(&Root::open(dir.path()).unwrap(), &systemd).await.unwrap();
            let asked = double.state().asked.iter().any(|call| call.contains(BOOT_COMPLETE));
            assert_eq!(asked, completes, "{prepared} {here} {on_host:?}: {:?}", double.state().asked);
        }
    }
}
