//! The CA of the API server, while the cluster rotates it: in the kubeconfigs of this node, then the kubelet starts again.
//!
//! A kubeconfig that trusts every certificate already is not touched. That the kubelet is to be started again is
//! recorded before its kubeconfig changes, so a kill in between is another start, never a kubelet that knows too
//! little; below `/run`, since a reboot starts it, too.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tracing::info;

use crate::host::{Host, HostError, Root, Systemd};
use crate::model::kubeconfig::with_authority;
use crate::model::{Contents, FileMode, ManagedPath, ObservedFile, UnitName, message};

/// The kubeconfigs with that CA: of a node's beginning, and of its kubelet.
const KUBECONFIGS: [&str; 2] = ["/etc/kubernetes/kubeconfig", "/var/lib/kubelet/kubeconfig"];

/// The largest that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The file that marks a due restart of the kubelet.
const RESTART_DUE: &str = "/run/machine-config-agent-kubelet-restart";

/// The kubelet.
const KUBELET: &str = "kubelet.service";

/// Progress of the rotation on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rotated {
    /// The node trusts the new CA, and its kubelet has read it.
    Done,
    /// The kubelet is being started.
    Restarting,
}

/// The start of the kubelet, beside everything else: it takes as long as the kubelet does.
#[derive(Debug, Default)]
pub(super) struct Restart {
    runs: bool,
    outcome: Arc<Mutex<Option<Result<(), HostError>>>>,
    over: Arc<Notify>,
}

impl Restart {
    /// Waits for its end. Cancel-safe: an end that was not returned is returned the next time.
    pub(super) async fn over(&self) {
        self.over.notified().await;
    }

    /// Returns its result, once.
    fn taken(&mut self) -> Result<(), HostError> {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        if outcome.is_some() {
            self.runs = false;
        }
        outcome.unwrap_or(Ok(()))
    }

    fn start(&mut self, host: &Host) {
        self.runs = true;
        let (root, systemd) = (host.root.clone(), host.systemd.clone());
        let (outcome, over) = (Arc::clone(&self.outcome), Arc::clone(&self.over));
        tokio::spawn(async move {
            let ended = restart_kubelet(&root, &systemd).await;
            *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            over.notify_one();
        });
    }
}

async fn restart_kubelet(root: &Root, systemd: &Systemd) -> Result<(), HostError> {
    let invalid = |_| HostError::Unit { unit: KUBELET.to_owned(), cause: "no unit's name".to_owned() };
    let kubelet = UnitName::new(KUBELET).map_err(invalid)?;
    systemd.daemon_reload().await?;
    systemd.restart(&kubelet).await?;
    root.remove(RESTART_DUE)
}

/// Brings the node to this CA.
pub(super) fn follow(
    host: &Host,
    authority: &Contents,
    managed: &BTreeSet<ManagedPath>,
    restart: &mut Restart,
) -> Result<Rotated, HostError> {
    restart.taken()?;
    let root = &host.root;
    // A config that writes one brings the CA by itself.
    let own = KUBECONFIGS.iter().filter(|path| !managed.iter().any(|managed| managed.as_str() == **path));
    // The kubelet's own does not wait for the other one.
    let added = own.map(|path| add_authority(root, path, authority)).fold(Ok(()), Result::and);
    if !root.exists(RESTART_DUE)? {
        return added.map(|()| Rotated::Done);
    }
    if !restart.runs {
        info!(
            MESSAGE_ID = message::CA_ROTATION,
            MCA_TARGET = KUBELET,
            "Restarting {KUBELET} for the API server's new CA"
        );
        restart.start(host);
    }
    added.map(|()| Rotated::Restarting)
}

/// Adds the CA to a kubeconfig that does not trust it yet.
fn add_authority(root: &Root, path: &str, authority: &Contents) -> Result<(), HostError> {
    let Some(bytes) = root.read_at_most(path, MAX_BYTES)? else { return Ok(()) };
    let wrong = |cause: String| HostError::Malformed { path: path.to_owned(), format: "a kubeconfig", cause };
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let changed = with_authority(&text, authority.bytes()).map_err(|error| wrong(error.to_string()))?;
    let Some(changed) = changed else { return Ok(()) };
    root.replace(RESTART_DUE, b"", FileMode::PRIVATE)?;
    root.write_if_changed(path, changed.as_bytes(), mode_of(root, path)?)?;
    info!(MESSAGE_ID = message::CA_ROTATION, MCA_TARGET = path, "Added the API server's new CA to {path}");
    Ok(())
}

/// Returns the mode that the file has.
fn mode_of(root: &Root, path: &str) -> Result<FileMode, HostError> {
    let mode = match root.observe(path)? {
        ObservedFile::Regular { mode, .. } => FileMode::new(i64::from(mode & 0o777)),
        ObservedFile::Absent
        | ObservedFile::Symlink { .. }
        | ObservedFile::Directory { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => None,
    };
    Ok(mode.unwrap_or(FileMode::PRIVATE))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::host::FailPoints;

    fn kubeconfig(pem: &str) -> String {
        format!("clusters:\n- cluster:\n    certificate-authority-data: {}\n", STANDARD.encode(pem))
    }

    fn pem(body: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    }

    /// Follows until the kubelet is started.
    async fn followed(host: &Host, authority: &Contents, restart: &mut Restart) -> u32 {
        let mut restarts = 0;
        while follow(host, authority, &BTreeSet::new(), restart).unwrap() == Rotated::Restarting {
            restart.over().await;
            restarts += 1;
        }
        restarts
    }

    /// MCD-238, MCD-239: both kubeconfigs trust the new CA, their old trust stays, their modes too, and the kubelet
    /// starts once; the second time, and where nothing is missing, nothing is touched.
    #[tokio::test(flavor = "current_thread")]
    async fn kubeconfigs_change_and_kubelet_starts_once() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::in_directory(Root::open(directory.path()).unwrap(), FailPoints::off());
        let mode = FileMode::new(0o640).unwrap();
        for path in KUBECONFIGS {
            host.root.replace(path, kubeconfig(&pem("old")).as_bytes(), mode).unwrap();
        }
        let both = pem("old") + &pem("new");
        let authority = Contents::new(both.clone().into_bytes());
        let mut restart = Restart::default();
        assert_eq!(followed(&host, &authority, &mut restart).await, 1);
        for path in KUBECONFIGS {
            assert_eq!(host.root.read_text(path).unwrap(), Some(kubeconfig(&both)));
            assert_eq!(mode_of(&host.root, path).unwrap(), mode);
        }
        assert_eq!(followed(&host, &authority, &mut restart).await, 0);
        // Killed before the restart: the next agent makes up for it.
        host.root.replace(RESTART_DUE, b"", FileMode::PRIVATE).unwrap();
        assert_eq!(followed(&host, &authority, &mut Restart::default()).await, 1);
        assert!(!host.root.exists(RESTART_DUE).unwrap());
    }

    #[test]
    fn kubeconfig_of_config_and_missing_one_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::in_directory(Root::open(directory.path()).unwrap(), FailPoints::off());
        let [first, _] = KUBECONFIGS;
        host.root.replace(first, b"no kubeconfig", FileMode::PRIVATE).unwrap();
        let authority = Contents::new(pem("new").into_bytes());
        let managed = BTreeSet::from([ManagedPath::new(first).unwrap()]);
        let mut restart = Restart::default();
        assert_eq!(follow(&host, &authority, &managed, &mut restart).unwrap(), Rotated::Done);
        let error = follow(&host, &authority, &BTreeSet::new(), &mut restart).unwrap_err();
        assert!(error.to_string().contains(first), "{error}");
    }

    /// A kubeconfig that is damaged keeps the kubelet's own from no certificate, nor the kubelet from its restart.
    #[tokio::test(flavor = "current_thread")]
    async fn damaged_kubeconfig_affects_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::in_directory(Root::open(directory.path()).unwrap(), FailPoints::off());
        let [first, second] = KUBECONFIGS;
        host.root.replace(first, b"no kubeconfig", FileMode::PRIVATE).unwrap();
        host.root.replace(second, kubeconfig(&pem("old")).as_bytes(), FileMode::PRIVATE).unwrap();
        let both = pem("old") + &pem("new");
        let authority = Contents::new(both.clone().into_bytes());
        let mut restart = Restart::default();
        for _ in 0..2 {
            let error = follow(&host, &authority, &BTreeSet::new(), &mut restart).unwrap_err();
            assert!(error.to_string().contains(first), "{error}");
            assert_eq!(host.root.read_text(second).unwrap(), Some(kubeconfig(&both)));
            if restart.runs {
                restart.over().await;
            }
        }
        assert!(!host.root.exists(RESTART_DUE).unwrap());
    }
}
