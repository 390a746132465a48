//! logind's signals about shutdowns, while the agent listens.

use crate::decide::down::Shutdown;
use crate::host::Host;
use crate::host::power::{Inhibitor, ShutdownMonitor};

/// Listens to logind from the first look at the block inhibitors of the shutdown until the update goes another way.
#[derive(Debug, Default)]
pub(super) struct ShutdownListener(Option<ShutdownMonitor>);

impl ShutdownListener {
    /// Waits for a signal of logind. Cancel-safe, as [`ShutdownMonitor::changed`] is.
    pub(super) async fn changed(&mut self) {
        let ended = match &mut self.0 {
            Some(shutdowns) => shutdowns.changed().await.is_err(),
            None => std::future::pending().await,
        };
        if ended {
            // The bus goes away with the machine; when it does not, the time that is waited ends, too.
            self.0 = None;
        }
    }

    /// Ends it.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Returns the block inhibitors of the shutdown.
    pub(super) async fn block_inhibitors(&mut self, host: &Host) -> Vec<Inhibitor> {
        if self.0.is_none() {
            // First the subscription, then the first look: so a block that goes away in between is reported. A bus that
            // is away shows in the request itself, which is counted, and which logind checks again.
            self.0 = host.power.listen().await.unwrap_or_default();
        }
        match &self.0 {
            Some(shutdowns) => shutdowns.block_inhibitors().await.unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Returns the state of a shutdown. An unknown one is taken to be under way: its time ends, too.
    pub(super) async fn shutdown(&self) -> Shutdown {
        let Some(shutdowns) = &self.0 else { return Shutdown { preparing: true, was_begun: false } };
        let preparing = shutdowns.preparing().await.unwrap_or(true);
        Shutdown { preparing, was_begun: shutdowns.was_begun() }
    }
}
