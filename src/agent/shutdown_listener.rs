//! logind's signals about shutdowns, while the agent listens.

use std::time::Duration;

use tracing::warn;

use crate::decide::down::{Down, Shutdown, ShutdownProgress};
use crate::host::Power;
use crate::host::clock::{Clock, elapsed};
use crate::host::power::{Inhibitor, ShutdownMonitor};
use crate::model::message;

/// Logs a reboot into another stateroot that came to nothing, and when it is requested again; returns these words.
pub(super) fn reboot_in_vain(stateroot: &str, how: &str, again: Duration) -> String {
    let again = again.as_secs();
    let told = format!(
        "The requested reboot into the stateroot {stateroot} {how}: requesting it again in {again} s"
    );
    warn!(MESSAGE_ID = message::STATEROOT_REBOOT, "{told}");
    told
}

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

    /// Listens from now on. A bus that is away shows in the request itself, which is counted, and which logind checks again.
    pub(super) async fn listen(&mut self, power: &dyn Power) {
        if self.0.is_none() {
            self.0 = power.listen().await.unwrap_or_default();
        }
    }

    /// Follows a reboot that was requested while it listened, until it has come to nothing; returns how.
    pub(super) async fn until_in_vain(&mut self, clock: &Clock) -> &'static str {
        let mut down = Down::requested(clock.monotonic());
        loop {
            match down.progress(self.shutdown().await, clock.monotonic()) {
                ShutdownProgress::InVain(how) => return how,
                ShutdownProgress::Wait(left) => tokio::select! {
                    // Each only waits: logind is asked again.
                    () = self.changed() => {}
                    () = elapsed(Some(left)) => {}
                },
                ShutdownProgress::Free => return "is not known any more",
            }
        }
    }

    /// Returns the block inhibitors of the shutdown.
    pub(super) async fn block_inhibitors(&mut self, power: &dyn Power) -> Vec<Inhibitor> {
        // First the subscription, then the first look: so a block that goes away in between is reported.
        self.listen(power).await;
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
