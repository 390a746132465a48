//! Inputs of a decision.

use std::time::Duration;

use super::answer::{DrainStatus, UncordonStatus};
use super::down::{Down, Shutdown};
use super::hold::Retry;
use super::mode::{Reboots, RunMode};
use super::prefetch::Prefetch;
use super::retention::Retention;
use crate::model::backoff::Backoff;
use crate::model::observation::Finalization;
use crate::model::{ImageRef, NodeSettings, Observation, Target};
use crate::plan::differences::Difference;
use crate::update::ending::RetryTrigger;
use crate::update::{Fault, Record};

/// Result of a look at the idle host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// It is as its config.
    pub is_as_desired: bool,
    /// A repair was begun.
    pub is_repaired: bool,
    /// Time of the next look.
    pub again: Option<Duration>,
}

/// Answers of this pass, each requested once at most.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Answers {
    /// logind's state of a shutdown.
    pub shutdown: Option<Shutdown>,
    /// Set if an inhibitor blocks the shutdown.
    pub is_blocked: Option<bool>,
    /// State of the drain.
    pub drained: Option<DrainStatus>,
    /// State of the uncordon.
    pub uncordoned: Option<UncordonStatus>,
    /// The boot loader counts no boots any more.
    pub is_count_over: bool,
    /// Fault of this pass's action: a batch, an undo step, the fallback to the previous deployment.
    pub failed: Option<Fault>,
    /// The batch that stages was carried out.
    pub is_staged: bool,
    /// The host is watched for changes of the failed update's objects.
    pub is_watched: bool,
    /// The shutdown will finalize the staged deployment.
    pub is_armed: bool,
    /// Result of the finalization, which the record has counted.
    pub finalization: Option<Finalization>,
    /// Differences from the record's new spec.
    pub differences: Option<Vec<Difference>>,
    /// Result of the new deployment's health trial.
    pub trial: Option<Result<(), Fault>>,
    /// The deployment before is the next boot's.
    pub has_fallen_back: bool,
    /// Result of the look at the idle host.
    pub rest: Option<Rest>,
}

/// Memory between two passes. Losing it costs a wait, a try or a report more.
#[derive(Debug, Clone)]
pub struct Memory {
    /// The next try of a held update.
    pub retry: Retry,
    /// Progress of the end of this boot.
    pub down: Down,
    /// State of the kept previous deployment.
    pub kept: Retention,
    /// Since when the release is waited for.
    pub uncordon_since: Option<Duration>,
    /// Growth of the waits.
    pub backoff: Backoff,
    /// Progress of the prefetch.
    pub prefetch: Prefetch,
}

impl Memory {
    /// Creates the memory of a new process.
    pub fn new(mode: RunMode, node: &str) -> Self {
        let mut retry = Retry::default();
        // A second `apply` does not wait for the time of the next try. It may be a script at each boot.
        retry.request(if mode == RunMode::OneShot { RetryTrigger::Rewritten } else { RetryTrigger::Start });
        Self {
            retry,
            down: Down::default(),
            kept: Retention::default(),
            uncordon_since: None,
            backoff: Backoff::for_work(node),
            prefetch: Prefetch::default(),
        }
    }

    /// Sets the time of the next try of the reboot's preparation; returns the delay from now.
    pub fn later(&mut self, now: Duration) -> Duration {
        let left = self.backoff.next_wait();
        self.down = Down::Later { at: now + left };
        left
    }
}

/// All of it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Inputs<'a> {
    /// Run mode of the agent.
    pub mode: RunMode,
    /// Policy of reboots.
    pub reboots: Reboots,
    /// The open update.
    pub record: Option<&'a Record>,
    /// The current target.
    pub current: Option<&'a Target>,
    /// The desired target.
    pub desired: Option<&'a Target>,
    /// Observation of the machine.
    pub observed: &'a Observation,
    /// An update is due although its target is committed: an administrator forces it, or another one ended wrong and its
    /// effects stayed.
    pub is_forced: bool,
    /// Set if the control plane's desired target can't be used: no update to the one before it begins.
    pub is_refused: bool,
    /// The fault of an open update whose config this version of the agent can't read: none of its steps is begun any more.
    pub unreadable: Option<&'a Fault>,
    /// The host can't be watched: it is looked at from time to time.
    pub is_unwatched: bool,
    /// A drain can be requested.
    pub can_drain: bool,
    /// The settings of this node.
    pub node_settings: &'a NodeSettings,
    /// The answers of this pass.
    pub answers: &'a Answers,
    /// The image that is to be there before it is desired.
    pub prefetch: Option<&'a ImageRef>,
    /// The time since the boot.
    pub now: Duration,
}
