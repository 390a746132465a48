//! Disruption budgets, watched while a drain lasts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::warn;

use super::super::cache::{Cache, Kind};
use super::super::client::uptime;
use super::super::failure::Failure;
use super::super::metrics::Metrics;
use crate::drain::Budgets;
use crate::watches;
use crate::watches::Answers;

/// The cluster's budgets, watched while a drain needs them.
#[derive(Clone)]
pub(super) struct SharedBudgets {
    budgets: Arc<Mutex<Budgets>>,
    pub(super) changed: watch::Sender<u64>,
}

impl SharedBudgets {
    pub(super) fn new() -> Self {
        Self { budgets: Arc::default(), changed: watch::channel(0).0 }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Budgets> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn follow(self, client: Client, cache: Cache, metrics: Metrics) {
        let api = Api::<PodDisruptionBudget>::all(client);
        let config = watches::config();
        let mut answers = Answers::of(api.resource_url(), &config);
        let mut events = Box::pin(watches::paced(api, config));
        let watched = BudgetWatch { cache, metrics };
        let mut told = None;
        // They were listed, and may not be watched.
        let (mut is_listed, mut is_unwatched) = (false, false);
        loop {
            let event = tokio::select! {
                // A watch without a change has no event.
                _ = answers.next(), if is_unwatched => {
                    (is_unwatched, told) = (false, None);
                    watched.is_up();
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => {
                    if matches!(event, Event::InitDone) {
                        is_listed = true;
                        if !is_unwatched {
                            watched.is_up();
                            told = None;
                        }
                    }
                    if self.take(event) {
                        self.changed.send_modify(|count| *count = count.wrapping_add(1));
                    }
                }
                Some(Err(error)) => {
                    let failure = Failure::new(&error);
                    is_unwatched = is_listed;
                    answers.failed();
                    watched.fails(&failure);
                    // Not each try. What passes by itself is told for all kinds together.
                    let is_told = failure.is_refusal() || failure.code == 404;
                    if is_told && told.as_ref() != Some(&failure.cause) {
                        warn!(
                            "PodDisruptionBudgets can't be watched: {}; a pod that a budget refuses is asked for again after the time of \
                             the API server alone",
                            failure.cause
                        );
                        told = Some(failure.cause);
                    }
                }
                None => return,
            }
        }
    }

    /// Takes an event; returns true if the budgets that are known have changed.
    fn take(&self, event: Event<PodDisruptionBudget>) -> bool {
        match event {
            Event::Init => self.lock().begin_list(),
            Event::InitApply(budget) => self.lock().list(budget),
            Event::Apply(budget) => {
                self.lock().put(budget);
                return true;
            }
            Event::Delete(budget) => {
                let metadata = budget.metadata;
                self.lock()
                    .remove(&metadata.namespace.unwrap_or_default(), &metadata.name.unwrap_or_default());
                return true;
            }
            Event::InitDone => {
                self.lock().end_list();
                return true;
            }
        }
        false
    }
}

/// Reports of the budgets' watch, as long as it is needed.
struct BudgetWatch {
    cache: Cache,
    metrics: Metrics,
}

impl BudgetWatch {
    fn is_up(&self) {
        self.metrics.watched(Kind::Budgets.resource(), true);
        self.cache.change(|snapshot| snapshot.recovers(Kind::Budgets));
    }

    fn fails(&self, failure: &Failure) {
        self.metrics.watched(Kind::Budgets.resource(), false);
        self.cache.change(|snapshot| snapshot.fails(Kind::Budgets, failure, uptime()));
    }
}

impl Drop for BudgetWatch {
    fn drop(&mut self) {
        self.cache.change(|snapshot| snapshot.recovers(Kind::Budgets));
        self.metrics.not_watched(Kind::Budgets.resource());
    }
}
