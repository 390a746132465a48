//! A kind that a cluster may not have: its absence is no error. It is requested ever less often, and at once when the API
//! server was away or a controller gives the Node another target.

use std::time::Duration;

use tokio::sync::watch::Receiver;

use super::error::KubeError;
use super::node_watch::NodeSnapshot;
use crate::model::annotations::DESIRED_CONFIG;
use crate::model::backoff::Backoff;

/// After a refusal a person has to mend the permissions or the object, and a request an hour costs next to nothing.
const REFUSED_INTERVAL: Duration = Duration::from_secs(3600);

/// The kind as it is known.
pub(super) struct OptionalKind {
    snapshot: Receiver<NodeSnapshot>,
    /// Reason of the last reported error.
    logged: Option<&'static str>,
    /// The cluster has the kind.
    known: bool,
    /// Waits between requests for a kind that is not defined.
    absent: Backoff,
}

impl OptionalKind {
    /// Nothing is known yet.
    pub(super) fn new(snapshot: Receiver<NodeSnapshot>, seed: &str) -> Self {
        Self { snapshot, logged: None, known: false, absent: Backoff::for_missing_kind(seed) }
    }

    /// Notes that it was listed.
    pub(super) fn listed(&mut self) {
        (self.logged, self.known) = (None, true);
        self.absent.reset();
    }

    /// Returns true if an error is one for a person, and another one than the last.
    pub(super) fn is_news(&mut self, error: &KubeError) -> bool {
        let is_absent = error.is_not_found() && !self.known;
        let is_away =
            matches!(error, KubeError::Away { .. } | KubeError::Config { .. } | KubeError::OtherNode { .. });
        !is_absent && !is_away && self.logged.replace(error.reason()) != Some(error.reason())
    }

    /// Waits until the API server answers.
    pub(super) async fn until_up(&mut self) {
        // The Node's watch is gone with the process only.
        drop(self.snapshot.wait_for(|snapshot| snapshot.up).await);
    }

    /// Waits for the time of the next request after an error.
    pub(super) async fn wait_after(&mut self, error: &KubeError, wait: Duration) {
        match error {
            // The Node's watch delivers it.
            KubeError::Away { .. }
            | KubeError::Config { .. }
            | KubeError::OtherNode { .. }
            | KubeError::NoKubeconfig { .. } => {
                tokio::time::sleep(wait).await;
                self.until_up().await;
            }
            // There is no such kind here, or not yet: a server that starts does not serve its definitions at once.
            KubeError::NotFound { .. } => self.wait_for_retry().await,
            KubeError::Refused { .. } | KubeError::Invalid { .. } => {
                // The time that is over is no loss: both ends mean another request.
                drop(tokio::time::timeout(REFUSED_INTERVAL, self.reconnected()).await);
            }
        }
    }

    /// Waits until the API server went away and came back.
    async fn reconnected(&mut self) {
        drop(self.snapshot.wait_for(|snapshot| !snapshot.up).await);
        self.until_up().await;
    }

    /// Waits until a controller gave the Node another target: where one works, its kinds are there.
    async fn retargeted(&self) {
        let desired = |snapshot: &NodeSnapshot| {
            snapshot.node.as_ref().and_then(|node| node.annotations.get(DESIRED_CONFIG).cloned())
        };
        let mut snapshot = self.snapshot.clone();
        let before = desired(&snapshot.borrow());
        drop(snapshot.wait_for(|snapshot| desired(snapshot) != before).await);
    }

    /// Waits for the time of the next request for a kind that the cluster does not have.
    async fn wait_for_retry(&mut self) {
        let wait = self.absent.next_wait();
        let mut reconnected = self.snapshot.clone();
        tokio::select! {
            // Each arm only waits, and each end means another request.
            () = tokio::time::sleep(wait) => {}
            () = self.retargeted() => {}
            _ = reconnected.wait_for(|snapshot| !snapshot.up) => {}
        }
        self.until_up().await;
    }
}
