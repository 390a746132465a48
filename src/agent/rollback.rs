//! The deployment that ran before: kept until the new one was healthy for as long as the administrator set.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::Agent;
use crate::control::ControlPlane;
use crate::model::message;
use crate::model::text::chain;

/// How far the wait for the end of the old deployment is. A restart of the agent begins it anew: it is a lower limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Proof {
    /// The node is not healthy, or not known to be.
    #[default]
    None,
    /// It is healthy since then.
    Since(Instant),
    /// The old deployment was given up.
    Given,
}

impl<C: ControlPlane> Agent<C> {
    /// Gives the old deployment up when its time has come; returns how long that is from now. A failure is tried again
    /// after the same time: the node is none the worse for it.
    pub(super) async fn give_rollback_up(&mut self) -> Option<Duration> {
        let kept = self.tuning.keep_rollback?;
        if self.health.fault.is_some() || !self.health.drift.is_empty() {
            self.proof = Proof::None;
            return None;
        }
        let since = match self.proof {
            Proof::Given => return None,
            Proof::Since(since) => since,
            Proof::None => Instant::now(),
        };
        self.proof = Proof::Since(since);
        let left = kept.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        match self.host.os.drop_rollback().await {
            Ok(()) => {
                self.proof = Proof::Given;
                let seconds = kept.as_secs();
                info!(
                    MESSAGE_ID = message::ROLLBACK_DROPPED,
                    "the node was healthy for {seconds} s: the deployment before the booted one is given up"
                );
                None
            }
            Err(error) => {
                warn!("the deployment before the booted one can't be given up: {}", chain(&error));
                self.proof = Proof::None;
                Some(kept)
            }
        }
    }
}
