//! Steps that are allowed now, as a decision holds them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::capacity::obstacle;
use super::census::Tally;
use super::phase::{Mistake, Phase, TOO_MANY_FAILURES};
use super::{Pair, RolloutInput};
use crate::api::RolloutPolicyStatus;

/// Nodes that a message names.
pub(super) const MAX_NAMED: usize = 5;

/// Steps that are allowed now.
#[derive(Debug)]
pub(super) struct Course {
    /// The phase.
    pub(super) phase: Phase,
    /// For people.
    pub(super) message: String,
    /// Further nodes that may be given the target, whatever the capacity.
    pub(super) limit: usize,
    /// Target that failed nodes return to.
    pub(super) roll_back: Option<Pair>,
    /// Prefetch that the nodes are given.
    pub(super) prefetch: Option<PrefetchOrder>,
    /// The status of the policy.
    pub(super) memory: Option<RolloutPolicyStatus>,
    /// Cause of the halt.
    pub(super) halt: Option<String>,
    /// Its reason, in a word.
    pub(super) halt_reason: &'static str,
    /// Invalid input, with messages.
    pub(super) mistakes: Vec<(Mistake, String)>,
    /// When time alone changes something.
    pub(super) wake: Option<Timestamp>,
}

/// Prefetch that nodes are given.
#[derive(Debug, Clone)]
pub(super) struct PrefetchOrder {
    /// The image.
    pub(super) image: String,
    /// Nodes at a time.
    pub(super) at_once: usize,
    /// A node is not waited for any longer.
    pub(super) timeout: SignedDuration,
}

impl Course {
    /// Creates a course on which nothing is done.
    pub(super) fn stop(phase: Phase, message: String) -> Self {
        Self {
            phase,
            message,
            limit: 0,
            roll_back: None,
            prefetch: None,
            memory: None,
            halt: None,
            halt_reason: TOO_MANY_FAILURES,
            mistakes: Vec::new(),
            wake: None,
        }
    }

    /// Comes back at a time, or earlier.
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// Returns the progress as text, with the nodes that are waited for.
pub(super) fn progress(input: &RolloutInput<'_>, census: &Tally<'_>) -> String {
    let machines = census.len();
    let target = input.pool.configuration.name.as_deref().unwrap_or_default();
    let mut text = format!("{} of {machines} nodes have {target}", census.updated);
    let unwritten = census.unwritten();
    let lists = [&census.failing, &census.blocked, &census.down, &census.at_work];
    let left = &input.pool.left;
    let count =
        unwritten.len() + left.count + left.claimed + lists.into_iter().map(BTreeSet::len).sum::<usize>();
    // More of a list are never named: it may have thousands.
    let failing = census.failing.iter().take(MAX_NAMED).map(|node| (&*node.name, "failing"));
    let blocked = census.blocked.iter().take(MAX_NAMED).map(|node| (&*node.name, obstacle(node)));
    let down = census.down.iter().take(MAX_NAMED).map(|node| (&*node.name, obstacle(node)));
    let unwritten = unwritten.into_iter().map(|(name, ..)| (name, "not written"));
    let drains = census.drain_blocked.iter().filter(|node| census.at_work.contains(&*node.name));
    let draining = drains.take(MAX_NAMED).map(|node| (&*node.name, "drain blocked"));
    let others = census.at_work.iter().filter(|node| node.drain_blocked.is_none());
    let at_work = others.take(MAX_NAMED).map(|node| (&*node.name, "at work"));
    let waited = failing.chain(blocked).chain(down).chain(unwritten).chain(draining).chain(at_work);
    let elsewhere = left.first.iter().chain(&left.first_claimed);
    let waited = waited.chain(elsewhere.map(|(name, what)| (&**name, &**what)));
    let mut waited: Vec<_> = waited.collect();
    waited.sort_by_key(|(name, what)| (what.starts_with("at work"), *name));
    let names = waited.iter().take(MAX_NAMED).map(|(name, what)| format!("{name} ({what})"));
    let names = names.collect::<Vec<_>>().join(", ");
    match count {
        0 => {}
        count if count > MAX_NAMED => {
            text.push_str(&format!("; waiting for nodes {names} and {} more", count - MAX_NAMED));
        }
        _ => text.push_str(&format!("; waiting for nodes {names}")),
    }
    text
}
