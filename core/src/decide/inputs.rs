//! What a decision is made from.

use std::time::Duration;

use super::answer::{DrainStatus, UncordonStatus};
use super::down::{Down, Shutdown};
use super::hold::Retry;
use super::kept::Kept;
use super::mode::{Reboots, RunMode};
use super::prefetch::Prefetch;
use crate::model::backoff::Backoff;
use crate::model::observation::Finalization;
use crate::model::{ImageRef, NodeSettings, Observation, Target};
use crate::plan::differences::Difference;
use crate::update::ending::Ask;
use crate::update::{Fault, Record};

/// What a look at the idle host came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// It is as its config says.
    pub is_as_desired: bool,
    /// A repair was begun.
    pub is_repaired: bool,
    /// It is to be looked at again then, whatever happens.
    pub again: Option<Duration>,
}

/// What was asked in this pass, each once at most.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Answers {
    /// What logind says of a shutdown.
    pub shutdown: Option<Shutdown>,
    /// Whether somebody blocks the shutdown.
    pub is_blocked: Option<bool>,
    /// Whether the workload has left.
    pub drained: Option<DrainStatus>,
    /// Whether it may come back.
    pub uncordoned: Option<UncordonStatus>,
    /// The boot loader counts no boots any more.
    pub is_count_over: bool,
    /// What the deed of this pass failed with: a batch, an undo step, the way to the previous deployment.
    pub failed: Option<Fault>,
    /// The batch that stages was carried out.
    pub is_staged: bool,
    /// The host is watched for what the failed update is about.
    pub is_watched: bool,
    /// The shutdown will finalize what is staged.
    pub is_armed: bool,
    /// What became of the finalization, which the record has counted.
    pub finalization: Option<Finalization>,
    /// What differs from the record's new spec.
    pub differences: Option<Vec<Difference>>,
    /// Whether the new deployment proved itself.
    pub trial: Option<Result<(), Fault>>,
    /// The deployment before is the next boot's.
    pub has_fallen_back: bool,
    /// What the look at the idle host came to.
    pub rest: Option<Rest>,
}

/// What is remembered between two passes. Losing it costs a wait, a try or a telling more.
#[derive(Debug, Clone)]
pub struct Memory {
    /// The next try of a held update.
    pub retry: Retry,
    /// How far the end of this boot is.
    pub down: Down,
    /// How long the previous deployment is kept.
    pub kept: Kept,
    /// Since when the release is waited for.
    pub uncordon_since: Option<Duration>,
    /// How the waits grow.
    pub backoff: Backoff,
    /// How far the prefetch is.
    pub prefetch: Prefetch,
}

impl Memory {
    /// Creates what a process begins with.
    pub fn new(mode: RunMode, node: &str) -> Self {
        let mut retry = Retry::default();
        // Who runs `apply` again does not wait for the time of the next try. It may be a script at each boot.
        retry.ask(if mode == RunMode::OneShot { Ask::Rewritten } else { Ask::Start });
        Self {
            retry,
            down: Down::default(),
            kept: Kept::default(),
            uncordon_since: None,
            backoff: Backoff::for_work(node),
            prefetch: Prefetch::default(),
        }
    }

    /// Sets when the way to the reboot is tried again; returns how long that is from now.
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
    /// How long the agent lives.
    pub mode: RunMode,
    /// What becomes of reboots.
    pub reboots: Reboots,
    /// The open update.
    pub record: Option<&'a Record>,
    /// What is committed.
    pub current: Option<&'a Target>,
    /// What is desired.
    pub desired: Option<&'a Target>,
    /// What is seen of the machine.
    pub seen: &'a Observation,
    /// An update is due although its target is committed: an administrator forces it, or another one ended wrong and its
    /// effects stayed.
    pub is_forced: bool,
    /// What the control plane says can't be used.
    pub is_refused: bool,
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
