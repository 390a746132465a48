//! Small independent reconcilers with outputs of their own: what the cluster has its nodes trust, and pull with.
//!
//! Imports `model`, `host` and `control`. No update waits for a duty, and no duty for an update: each is done at every
//! pass of the loop and whenever the cluster's word changes, also in a paused pool, in the middle of a long pull, and
//! on a host that drifted. What is right already is not touched; what was said last counts until something else is said.
//!
//! | duty | keeps |
//! |---|---|
//! | `certificates` | the kubelet's CA, the cloud provider's CA, the CAs of registries |
//! | `pull_secret` | the merged pull secret, and the link to it |
//!
//! Invariant: a file is replaced at once, never removed first; what keeps one from being written keeps no other.

pub mod certificates;
pub mod pull_secret;

mod error;
mod file;

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::warn;

use crate::control::TrustReceiver;
use crate::host::{Host, HostError};
use crate::model::certificates::{ServerCaRotation, TrustSynced};
use crate::model::{ClusterTrust, ManagedPath, message};
use file::write;

pub use error::ReconcileError;
pub use file::Wanted;

/// How far the duties are.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// What is on the host as a whole; `None` when nobody says what is to be, or something is left to do.
    pub synced: Option<TrustSynced>,
    /// The first thing that went wrong.
    pub error: Option<ReconcileError>,
}

/// The duties, with what they were told and have told.
#[derive(Debug)]
pub struct TrustReconciler {
    feed: TrustReceiver,
    /// What was said last: also when there is nobody to say it any more.
    trust: Option<Arc<ClusterTrust>>,
    /// Files whose mode was told.
    loose: BTreeSet<ManagedPath>,
    rotation_told: ServerCaRotation,
}

impl TrustReconciler {
    /// Follows a feed.
    pub fn new(feed: TrustReceiver) -> Self {
        Self { feed, trust: None, loose: BTreeSet::new(), rotation_told: ServerCaRotation::Off }
    }

    /// Waits for another word of the cluster. Cancel-safe: one that was not returned comes again.
    pub async fn changed(&mut self) {
        self.feed.changed().await;
    }

    /// Brings the host to what the cluster says. `managed` names what configs write; it is asked only when something
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
        self.tell_rotation(trust.rotation);
        let secret = self.follow_secret(host, &trust);
        let certificates = certificates::follow(&host.root, &trust, managed);
        let refused = trust.registries.refused.first().cloned().map(ReconcileError::Registry);
        let whole = matches!(certificates, Ok(certificates::Followed::Whole));
        let error = secret.err().map(ReconcileError::PullSecret);
        let error = error.or(certificates.err().map(ReconcileError::Certificates)).or(refused);
        let synced = TrustSynced { version: trust.version.clone(), rotation: trust.rotation };
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

    /// Tells once that the API server's CA is being rotated.
    fn tell_rotation(&mut self, rotation: ServerCaRotation) {
        if rotation == ServerCaRotation::On && self.rotation_told != rotation {
            warn!(
                MESSAGE_ID = message::CA_ROTATION,
                MCA_TARGET = "/etc/kubernetes/kubeconfig",
                "the cluster rotates its API server's CA (service-ca-rotate): this agent leaves \
                 /etc/kubernetes/kubeconfig and /var/lib/kubelet/kubeconfig as they are. Next: bring the new CA to \
                 them and restart kubelet.service"
            );
        }
        self.rotation_told = rotation;
    }
}
