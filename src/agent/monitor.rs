//! What the drift monitor remembers. Losing it costs a telling or a repair more.

use std::time::Duration;

use crate::decide::drift::Memory;
use crate::host::watch::Watch;
use crate::model::Observation;

/// The watch, and what was seen last.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    pub(super) watch: Option<Watch>,
    /// What the watch told since the last pass; `None` when something else was the reason for a pass.
    pub(super) changed: Option<Vec<String>>,
    pub(super) last: Option<Look>,
    pub(super) memory: Memory,
}

/// What the last pass saw of the idle host.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) seen: Observation,
    /// When everything is looked at again; `None` when this was a look at everything.
    pub(super) settle: Option<Duration>,
}

/// What the last pass saw, and what changed since.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) look: Look,
    pub(super) changed: Vec<String>,
}

impl Monitor {
    /// Returns what the last pass saw, if the watch alone is the reason for this one.
    pub(super) fn take_last(&mut self) -> Option<Last> {
        let (look, changed) = (self.last.take(), self.changed.take());
        Some(Last { look: look?, changed: changed? })
    }
}
