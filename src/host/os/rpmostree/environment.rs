//! Environment of rpm-ostree's daemon: the proxies to pull through.
//!
//! The daemon pulls by itself, with the environment that systemd gives it. A drop-in below `/run` names the agent's file
//! of proxies, before MCO's own `10-mco-default-env.conf`, which wins where it exists. The daemon that runs is
//! stopped once after a change, unless it works; the bus starts it again.
//!
//! Invariant: the environment of the running daemon is recorded after it was stopped, so a kill in between is
//! another stop, never a daemon without proxies.

use super::daemon::Daemon;
use crate::host::proxy::UNIT_FILE;
use crate::host::systemd::known;
use crate::host::{HostError, Proxies, Root, Systemd};
use crate::model::{FileMode, Sha256};

/// The unit of the daemon.
const UNIT: &str = "rpm-ostreed.service";

/// The agent's drop-in.
const DROP_IN: &str = "/run/systemd/system/rpm-ostreed.service.d/05-machine-config-agent-proxy.conf";

/// The digest of the environment that the daemon was last started with.
const APPLIED: &str = "/run/machine-config-agent-rpm-ostreed.proxy";

/// Files that MCD leaves when it is killed in the middle of a rebase (MCD-016): its drop-in, and the signature policy
/// that it mounts over the host's.
const LEFT_BY_MCD: [&str; 2] = [
    "/run/systemd/system/rpm-ostreed.service.d/temporal-policy-binding.conf",
    "/run/tmp-rpm-ostree-policy.json",
];

/// Applies the present proxies to the daemon's environment.
pub(super) async fn provide(root: &Root, systemd: &Systemd, proxies: &Proxies) -> Result<(), HostError> {
    let left = LEFT_BY_MCD.into_iter().map(|path| root.exists(path)).collect::<Result<Vec<_>, _>>()?;
    let left = left.contains(&true);
    let settings = proxies.for_pulls()?;
    if settings.is_empty() && !root.exists(DROP_IN)? {
        if left {
            stop_without_leftovers(root, systemd).await?;
        }
        return Ok(());
    }
    proxies.unit_file()?;
    let text = format!("[Service]\nEnvironmentFile=-{UNIT_FILE}\n");
    root.write_if_changed(DROP_IN, text.as_bytes(), FileMode::DEFAULT)?;
    let digest = Sha256::digest(settings.to_environment_file().as_bytes()).to_string();
    if !left && root.read_text(APPLIED)?.as_deref() == Some(digest.as_str()) {
        return Ok(());
    }
    if Daemon::open(root).await?.active().await?.is_some() {
        // Its transaction is joined, or waited for: the next one gets the proxies.
        return Ok(());
    }
    stop_without_leftovers(root, systemd).await?;
    root.replace(APPLIED, digest.as_bytes(), FileMode::PRIVATE)
}

/// Removes the files left by MCD, and stops the daemon, so that its next start reads the unit as it is now.
async fn stop_without_leftovers(root: &Root, systemd: &Systemd) -> Result<(), HostError> {
    for path in LEFT_BY_MCD {
        root.remove(path)?;
    }
    systemd.daemon_reload().await?;
    if let Some(units) = systemd.transients().await? {
        units.stop(&known(UNIT)?).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProxySettings;

    /// MCD-016: the files left by MCD go, also on a host without proxies; a host without either is not touched.
    #[tokio::test(flavor = "current_thread")]
    async fn leftovers_of_mcd_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let proxies = Proxies::new(root.clone(), ProxySettings::default());
        let systemd = Systemd::absent();
        provide(&root, &systemd, &proxies).await.unwrap();
        assert!(!root.exists("/run").unwrap());
        for path in LEFT_BY_MCD {
            root.replace(path, b"x", FileMode::DEFAULT).unwrap();
        }
        provide(&root, &systemd, &proxies).await.unwrap();
        assert!(LEFT_BY_MCD.iter().all(|path| !root.exists(path).unwrap()));
        assert!(!root.exists(DROP_IN).unwrap());
    }
}
