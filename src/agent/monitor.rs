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
    pub(super) last: Option<Look>,
    pub(super) memory: Memory,
}

/// Observation of the idle host by the last pass.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) seen: Observation,
    /// When everything is looked at again; `None` when this was a look at everything.
    pub(super) settle: Option<Duration>,
}

/// Observation of the last pass, and the paths changed since.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) look: Look,
    pub(super) changed: Vec<String>,
}

impl Monitor {
    /// Returns the last pass's observation, if the watch alone is the reason for this one.
    pub(super) fn take_last(&mut self) -> Option<Last> {
        let (look, changed) = (self.last.take(), self.changed.take());
        Some(Last { look: look?, changed: changed? })
    }
}
