//! Small independent reconcilers with outputs of their own: the cluster's certificates and pull secret.
//!
//! Imports `model`, `host` and `control`. No update waits for a duty, and no duty for an update: each is done at every
//! pass of the loop and whenever the cluster's word changes, also in a paused pool, in the middle of a long pull, and
//! on a host that drifted. A file that is right already is not touched; the last trust counts until another one comes.
//!
//! | duty | keeps |
//! |---|---|
//! | `certificates` | the kubelet's CA, the cloud provider's CA, the CAs of registries |
//! | `pull_secret` | the merged pull secret, and the link to it |
//! | `server_ca` | the API server's CA in the kubeconfigs, while it is rotated, and the kubelet's restart |
//!
//! The proxies of the cluster are handed to the parts that pull.
//!
//! Invariant: a file is replaced at once, never removed first; a failure of one affects no other.

pub mod certificates;
pub mod pull_secret;

mod error;
mod file;
mod server_ca;

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::warn;

use crate::control::TrustReceiver;
use crate::host::{Host, HostError};
use crate::model::certificates::{ServerCaRotation, TrustSynced};
use crate::model::{ClusterTrust, ManagedPath, message};
use file::write;
use server_ca::{Restart, Rotated};

pub use error::ReconcileError;
pub use file::DesiredFile;

/// Progress of the reconcilers.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// The files that are applied; `None` without a source, or while something is left to do.
    pub synced: Option<TrustSynced>,
    /// The first thing that went wrong.
    pub error: Option<ReconcileError>,
}

/// The reconcilers, with their inputs and reports.
#[derive(Debug)]
pub struct TrustReconciler {
    feed: TrustReceiver,
    /// The last trust: also when the cluster's object is gone.
    trust: Option<Arc<ClusterTrust>>,
    /// Files whose mode was logged.
    loose: BTreeSet<ManagedPath>,
    restart: Restart,
}

impl TrustReconciler {
    /// Follows a feed.
    pub fn new(feed: TrustReceiver) -> Self {
        Self { feed, trust: None, loose: BTreeSet::new(), restart: Restart::default() }
    }

    /// Waits for another word of the cluster. Cancel-safe: one that was not returned comes again.
    pub async fn changed(&mut self) {
        tokio::select! {
            // Each arm only waits for a lasting state.
            () = self.feed.changed() => {}
            () = self.restart.over() => {}
        }
    }

    /// Applies the cluster's trust. `managed` lists the paths of configs; it is called only when something
    /// is to be removed, and `None` leaves the removal for another time.
    pub fn reconcile(
        &mut self,
        host: &Host,
        managed: impl FnOnce() -> Option<BTreeSet<ManagedPath>>,
    ) -> Reconciled {
        if let Some(trust) = self.feed.now() {
            self.trust = Some(trust);
        }
        let Some(trust) = self.trust.clone() else { return Reconciled::default() };
        let proxy = trust.proxy.clone().map(|proxy| host.proxies.set_cluster(proxy));
        let secret = self.follow_secret(host, &trust);
        let managed = LazyCell::new(managed);
        let certificates = certificates::follow(&host.root, &trust, || managed.clone());
        let rotated = self.follow_rotation(host, &trust, || managed.clone());
        let refused = trust.registries.refused.first().cloned().map(ReconcileError::Registry);
        let whole = matches!(certificates, Ok(certificates::Followed::Whole));
        let error = secret.err().map(ReconcileError::PullSecret);
        let error = error.or(certificates.err().map(ReconcileError::Certificates)).or(refused);
        let error = error.or(proxy.err().map(ReconcileError::Proxy));
        let rotation = *rotated.as_ref().unwrap_or(&trust.rotation);
        let error = error.or(rotated.err().map(ReconcileError::ServerCa));
        let synced = TrustSynced { version: trust.version.clone(), rotation };
        Reconciled { synced: (whole && error.is_none()).then_some(synced), error }
    }

    /// Writes the pull secret before the link that leads to it.
    fn follow_secret(&mut self, host: &Host, trust: &ClusterTrust) -> Result<(), HostError> {
        write(&host.root, &pull_secret::desired(&host.root, trust)?)?;
        let Some(found) = pull_secret::link(host)? else { return Ok(()) };
        if let Some(mode) = found.loose(&host.root)?
            && self.loose.insert(found.path.clone())
        {
            warn!(
                MESSAGE_ID = message::CREDENTIALS_READABLE,
                MCA_TARGET = %found.path,
                "{} holds registry credentials and has mode {mode}: others than root may read it. Next: give it mode \
                 0600 where it is written, in its MachineConfig",
                found.path
            );
        }
        Ok(())
    }

    /// Applies the API server's new CA while it is rotated; returns the progress.
    fn follow_rotation(
        &mut self,
        host: &Host,
        trust: &ClusterTrust,
        managed: impl FnOnce() -> Option<BTreeSet<ManagedPath>>,
    ) -> Result<ServerCaRotation, HostError> {
        let Some(authority) = trust.server_ca.as_ref().filter(|_| trust.rotation == ServerCaRotation::On)
        else {
            return Ok(trust.rotation);
        };
        // Paths that configs write are known again when the current step is over.
        let Some(managed) = managed() else { return Ok(trust.rotation) };
        Ok(match server_ca::follow(host, authority, &managed, &mut self.restart)? {
            Rotated::Done => ServerCaRotation::Brought,
            Rotated::Restarting => ServerCaRotation::On,
        })
    }
}
