//! The trust reconciler beside the updates: its runs, and its errors.

use std::collections::BTreeSet;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::control::TrustReceiver;
use crate::decide::trust::TrustRetry;
use crate::host::Host;
use crate::host::clock::elapsed;
use crate::journal::Journal;
use crate::model::{ManagedPath, message};
use crate::reconcilers::{ReconcileError, Reconciled, TrustReconciler};
use crate::report::LoopState;
use crate::update::Fault;

/// The reconciler, and its next retry.
#[derive(Debug)]
pub(super) struct TrustTask {
    reconciler: TrustReconciler,
    retry: TrustRetry,
    /// Origin of the retry's times.
    began: Instant,
}

impl TrustTask {
    /// Creates the task. Nothing is done yet.
    pub(super) fn new(feed: TrustReceiver, node: &str) -> Self {
        let (reconciler, retry) = (TrustReconciler::new(feed), TrustRetry::new(node));
        Self { reconciler, retry, began: Instant::now() }
    }

    /// Waits for a reason to reconcile. Cancel-safe: a change that was not returned comes again, and a time that has
    /// come stays.
    pub(super) async fn changed(&mut self) {
        let left = self.retry.left(self.began.elapsed());
        let Self { reconciler, .. } = self;
        tokio::select! {
            // Each arm only waits for a lasting state.
            () = reconciler.changed() => {}
            () = elapsed(left) => {}
        }
    }

    /// Reconciles between two steps of an update, or without one: also the parts that need to know the configs.
    pub(super) fn reconcile(&mut self, host: &Host, journal: &Journal, health: &mut LoopState) {
        let reconciled = self.reconciler.reconcile(host, || managed(journal));
        self.account(reconciled, health);
    }

    /// Reconciles the other parts while a step owns the journal.
    pub(super) fn reconcile_meanwhile(&mut self, host: &Host, health: &mut LoopState) {
        let reconciled = self.reconciler.reconcile(host, || None);
        self.account(reconciled, health);
    }

    fn account(&mut self, reconciled: Reconciled, health: &mut LoopState) {
        if reconciled.synced.is_some() {
            health.trust = reconciled.synced;
        }
        let fault = reconciled.error.as_ref().map(fault);
        let is_news = fault != health.duty;
        let may_pass = reconciled.error.as_ref().is_some_and(ReconcileError::may_pass);
        self.retry.tried(is_news, may_pass, self.began.elapsed());
        if is_news {
            log_trust_fault(fault.as_ref());
        }
        health.duty = fault;
    }
}

fn log_trust_fault(fault: Option<&Fault>) {
    if let Some(fault) = fault {
        let Fault { reason, message: text, next, .. } = fault;
        warn!(MESSAGE_ID = message::TRUST_FAILED, MCA_FAULT = reason, "{reason}: {text}. Next: {next}");
    } else {
        info!(
            MESSAGE_ID = message::TRUST_RESTORED,
            "Certificates and the pull secret match the cluster again"
        );
    }
}

fn fault(error: &ReconcileError) -> Fault {
    Fault::from_error(error.class(), error.reason(), error, &error.next())
}

/// Lists the paths that configs write: the committed one, and both of an update. `None` when that can't be read: the
/// pass that follows logs why.
fn managed(journal: &Journal) -> Option<BTreeSet<ManagedPath>> {
    let mut managed: BTreeSet<ManagedPath> = journal.origin_spec().ok()?.files.keys().cloned().collect();
    managed.extend(journal.current_spec().ok()?.files.keys().cloned());
    managed.extend(journal.target_spec().into_iter().flat_map(|spec| spec.files.keys().cloned()));
    Some(managed)
}
