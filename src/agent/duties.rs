//! The duties beside the updates: when they are done, and what becomes of their errors.

use std::collections::BTreeSet;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::control::TrustFeed;
use crate::duties::{Attended, Duties, DutyError};
use crate::host::Host;
use crate::journal::Journal;
use crate::model::backoff::Backoff;
use crate::model::{ManagedPath, message};
use crate::report::LoopState;
use crate::update::Fault;

/// The duties, with the time of their next try.
#[derive(Debug)]
pub(super) struct OnDuty {
    duties: Duties,
    backoff: Backoff,
    /// Something failed: this is when it is tried again. The times of updates are others.
    due: Option<Instant>,
}

impl OnDuty {
    /// Takes what the duties follow. Nothing is done yet.
    pub(super) fn new(feed: TrustFeed, node: &str) -> Self {
        Self { duties: Duties::new(feed), backoff: Backoff::for_work(node), due: None }
    }

    /// Waits for a reason to do them. Cancel-safe: what was not returned comes again, and a time that has come stays.
    pub(super) async fn changed(&mut self) {
        let Self { duties, due, .. } = self;
        let due = async {
            match due {
                Some(due) => tokio::time::sleep_until(*due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Each arm only waits for what lasts.
            () = duties.changed() => {}
            () = due => {}
        }
    }

    /// Does them between two steps of an update, or without one: also what needs to know the configs.
    pub(super) fn attend(&mut self, host: &Host, journal: &Journal, health: &mut LoopState) {
        let attended = self.duties.attend(host, || managed(journal));
        self.account(attended, health);
    }

    /// Does what can be done while a step is under way and the journal is its own.
    pub(super) fn attend_meanwhile(&mut self, host: &Host, health: &mut LoopState) {
        let attended = self.duties.attend(host, || None);
        self.account(attended, health);
    }

    fn account(&mut self, attended: Attended, health: &mut LoopState) {
        if attended.synced.is_some() {
            health.trust = attended.synced;
        }
        let fault = attended.error.as_ref().map(fault);
        if fault != health.duty {
            self.backoff.reset();
            self.due = None;
        }
        // A pass before the time is another try, and no reason to wait longer for the next one.
        let over = self.due.is_none_or(|due| due <= Instant::now());
        if over && attended.error.as_ref().is_some_and(DutyError::may_pass) {
            self.due = Some(Instant::now() + self.backoff.next_wait());
        }
        if fault != health.duty {
            tell(fault.as_ref());
        }
        health.duty = fault;
    }
}

fn tell(fault: Option<&Fault>) {
    if let Some(fault) = fault {
        let Fault { reason, message: text, next, .. } = fault;
        warn!(MESSAGE_ID = message::TRUST_FAILED, MCA_FAULT = reason, "{reason}: {text}. Next: {next}");
    } else {
        info!(
            MESSAGE_ID = message::TRUST_RESTORED,
            "certificates and the pull secret are as the cluster says again"
        );
    }
}

fn fault(error: &DutyError) -> Fault {
    Fault::of(error.class(), error.reason(), error, &error.next())
}

/// Lists what configs write: the committed one, and both of an update. `None` when that can't be read: the pass that
/// follows tells why.
fn managed(journal: &Journal) -> Option<BTreeSet<ManagedPath>> {
    let mut managed: BTreeSet<ManagedPath> = journal.origin_spec().ok()?.files.keys().cloned().collect();
    managed.extend(journal.committed_spec().ok()?.files.keys().cloned());
    managed.extend(journal.target_spec().into_iter().flat_map(|spec| spec.files.keys().cloned()));
    Some(managed)
}
