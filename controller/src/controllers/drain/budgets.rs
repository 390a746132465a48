//! Disruption budgets, watched while a drain lasts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::warn;

use super::super::cache::{Cache, Kind};
use super::super::metrics::Metrics;
use super::super::reported::Reported;
use crate::drain::Budgets;
use crate::watches;

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
        let mut events = Reported::new(api, watches::config(), Kind::Budgets, cache, metrics);
        let mut told = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                        told = None;
                    }
                    if self.take(event) {
                        self.changed.send_modify(|count| *count = count.wrapping_add(1));
                    }
                }
                Err(failure) => {
                    // Log once per outage; outages that pass are logged for all kinds together.
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
