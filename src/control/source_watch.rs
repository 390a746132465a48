//! A watch of a control plane's files that may fail: the kernel limits watches, and their reader goes on without.
//!
//! Invariant: without a watch there is a fault, so that the files are read from time to time, and the next try to watch them is
//! made before each read.

use crate::control::ControlError;
use crate::host::watch::{Watch, WatchSet};
use crate::host::{HostError, Root};
use crate::update::Fault;

/// The watch, or why there is none.
#[derive(Debug)]
pub(super) struct SourceWatch {
    root: Root,
    watch: Option<Watch>,
    fault: Option<Fault>,
}

impl SourceWatch {
    /// Begins to watch.
    pub(super) fn new(root: &Root, desired: WatchSet) -> Self {
        let mut watched = Self { root: root.clone(), watch: None, fault: None };
        watched.watch_over(desired);
        watched
    }

    /// Returns why nothing is watched.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Watches these paths, if they are not watched already.
    pub(super) fn watch_over(&mut self, desired: WatchSet) {
        if self.watch.as_ref().map(Watch::watch_set) == Some(&desired) {
            return;
        }
        match Watch::from_set(&self.root, desired) {
            Ok(watch) => {
                self.watch = Some(watch);
                self.fault = None;
            }
            Err(error) => self.lose(error),
        }
    }

    /// Notes that the paths are read now.
    pub(super) fn begin_observation(&mut self) {
        if let Some(Err(error)) = self.watch.as_mut().map(Watch::begin_observation) {
            self.lose(error);
        }
    }

    /// Waits for a change, or for the loss of the watch; without end when there is none. Cancel-safe as the watch is.
    pub(super) async fn changed(&mut self) {
        let Some(watch) = &mut self.watch else { return std::future::pending().await };
        if let Err(error) = watch.changed().await {
            self.lose(error);
        }
    }

    fn lose(&mut self, error: HostError) {
        let error = ControlError::from(error);
        self.watch = None;
        self.fault = Some(Fault::from_error(error.class(), error.reason(), &error, &error.next()));
    }
}
