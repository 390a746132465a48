//! The deployment that ran before: kept until the new one was healthy for as long as the administrator set.

use std::time::Duration;

use tracing::{info, warn};

use super::Agent;
use crate::control::ControlPlane;
use crate::decide::kept::{Due, Kept};
use crate::model::message;
use crate::model::text::chain;

impl<C: ControlPlane> Agent<C> {
    /// Gives the old deployment up when its time has come; returns how long that is from now. A failure is tried again
    /// after the same time: the node is none the worse for it.
    pub(super) async fn give_rollback_up(&mut self) -> Option<Duration> {
        let within = self.tuning.keep_rollback;
        let is_healthy = self.health.fault.is_none() && self.health.drift.is_empty();
        match self.kept.look(within, is_healthy, self.host.clock.monotonic()) {
            Due::Nothing => return None,
            Due::In(left) => return Some(left),
            Due::Now => {}
        }
        let within = within?;
        match self.host.os.drop_rollback().await {
            Ok(()) => {
                self.kept = Kept::Given;
                let seconds = within.as_secs();
                info!(
                    MESSAGE_ID = message::ROLLBACK_DROPPED,
                    "the node was healthy for {seconds} s: the deployment before the booted one is given up"
                );
                None
            }
            Err(error) => {
                warn!("the deployment before the booted one can't be given up: {}", chain(&error));
                self.kept = Kept::Unknown;
                Some(within)
            }
        }
    }
}
