//! Memory of the drift monitor. Losing it costs a report or a repair more.

use std::time::Duration;

use crate::decide::drift::Memory;
use crate::host::watch::Watch;
use crate::model::Observation;

/// The watch, and the last observation.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    pub(super) watch: Option<Watch>,
    /// Paths that the watch reported since the last pass; `None` when something else was the reason for a pass.
    pub(super) changed: Option<Vec<String>>,
    pub(super) last: Option<IdleObservation>,
    pub(super) memory: Memory,
}

/// Observation of the idle host by the last pass.
#[derive(Debug)]
pub(super) struct IdleObservation {
    pub(super) observed: Observation,
    /// Time at which everything is observed again; `None` when everything was.
    pub(super) settle: Option<Duration>,
}

/// Observation of the last pass, and the paths changed since.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) observation: IdleObservation,
    pub(super) changed: Vec<String>,
}

impl Monitor {
    /// Waits for a change of the host, and keeps its paths. Cancel-safe: one that was not returned comes again.
    pub(super) async fn host_changed(&mut self) {
        let Some(watch) = &mut self.watch else { return std::future::pending().await };
        match watch.changed().await {
            Ok(paths) => self.changed = Some(paths),
            // The next pass begins another watch, or tells why it can't.
            Err(_) => self.watch = None,
        }
    }

    /// Returns the last pass's observation, if the watch alone is the reason for this one.
    pub(super) fn take_last(&mut self) -> Option<Last> {
        let (observation, changed) = (self.last.take(), self.changed.take());
        Some(Last { observation: observation?, changed: changed? })
    }
}
