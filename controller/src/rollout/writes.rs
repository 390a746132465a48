//! Writes to nodes that were not made, or whose fate is not known, or that another program took back. Pure: the shell records
//! what became of each write, and the decision asks which nodes are left alone, and which take a place.
//!
//! # Rules
//!
//! - A node whose write was **refused** (4xx) was not changed. It takes no place, it is named with the server's words, and it is
//!   tried again with growing pauses: at once when the node or the target changes.
//! - A write that was **not answered** may have been made, or may yet be: the API server goes on with a request whose client has gone. Its node
//!   takes a place as if it were at work, until its version has changed, which the write names, or it is read after the time in which the API
//!   server works on a request ([`IN_SERVER`]). No read before that tells. Each further try is a request of its own: after those of the
//!   first seconds ([`QUICK`]) the node waits for longer than it takes the place, and others are given the target first.
//! - An answer of 5xx, or one that can't be read, is one of a request that is over: reading the node is enough.
//! - A write that was **not sent** (no connection) was not made, and is tried again soon.
//! - A target that **another program** sets back is given again at once, and then with growing pauses.
//! - A **former target**, as that of the other pool when a label goes back and forth, is given twice at once, and then with growing pauses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Pair;
use super::node::Node;
use super::patch::NodePatch;
use crate::retry::{FORMER, LONGEST, MAX_TURNS, REMEMBERED, is_same, pause, turn};

/// The longest time for which an API server works on a request: its own limit (`--request-timeout`).
const IN_SERVER: Duration = Duration::from_secs(60);

/// A target is given so often in a row before the other program that sets it back is named, and waited for.
const MAX_REPEATED: u32 = 3;

/// A write without an answer is tried again at once for so long: a connection that breaks is made anew.
const QUICK: Duration = Duration::from_secs(10);

/// A node whose writes are not answered waits for its turn after all others for so long at most.
const LAST: Duration = Duration::from_secs(1800);

/// Failures without a refusal before one is named: a connection that breaks once is nobody's concern.
const MAX_UNNAMED: u32 = 2;

/// Answer to a write that was not made, or may not have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 4xx: nothing was changed.
    Refused,
    /// 5xx: the request is over, and may have changed the node.
    Failed,
    /// It can't be read: the request is over, and may have changed the node.
    Unreadable,
    /// None: the request may still be under way.
    Missing,
    /// None, since there is no connection: nothing was changed.
    Unsent,
}

impl Answer {
    /// Reads the status of an answer, 0 without one.
    pub fn from_code(code: u16) -> Self {
        match code {
            400..500 => Self::Refused,
            0 => Self::Missing,
            _ => Self::Failed,
        }
    }

    /// Returns the pause after so many tries, the first of which failed so long ago.
    fn pause(self, tries: u32, since: Duration) -> Duration {
        let pause = pause(tries);
        match self {
            Self::Refused => pause,
            Self::Missing if since.saturating_add(pause) > QUICK => pause.max(IN_SERVER.saturating_mul(2)),
            Self::Failed | Self::Unreadable | Self::Missing | Self::Unsent => {
                pause.min(IN_SERVER.saturating_mul(2))
            }
        }
    }

    /// Returns when a read tells that the write was not made; `None` if it is known not to be.
    fn settled(self, now: Duration) -> Option<Duration> {
        match self {
            Self::Refused | Self::Unsent => None,
            Self::Failed | Self::Unreadable => Some(now),
            Self::Missing => Some(now.saturating_add(IN_SERVER)),
        }
    }
}

/// Outcomes of the writes to nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeWrites {
    now: Duration,
    failed: BTreeMap<String, Failed>,
    /// Those that are not answered yet: the version they were sent for, and whether they give a target.
    sent: BTreeMap<String, (String, bool)>,
    given: BTreeMap<String, Given>,
    /// Those that were given the same target again and again, or several in turn.
    repeated: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Failed {
    /// The node as it was, as far as a change of it is a reason to try again.
    node: Node,
    version: String,
    target: Option<Pair>,
    gives_target: bool,
    answer: Answer,
    cause: String,
    tries: u32,
    /// Failures in a row without a refusal, whatever was to be written.
    unanswered: u32,
    /// When the first of the tries failed.
    first: Duration,
    /// When the last write failed that gives a target: a taint is tried more often.
    given_at: Option<Duration>,
    next: Duration,
    /// The version may still be written to: a read from this time on tells that it was not.
    unsettled: Option<Duration>,
    /// When it is read, and how often that failed.
    next_read: Duration,
    lost_reads: u32,
}

/// The target that a node was given last.
#[derive(Debug, Clone, PartialEq)]
struct Given {
    uid: String,
    pair: Pair,
    times: u32,
    at: Duration,
    /// Those before it.
    former: Vec<Pair>,
    /// So often it was given a former one.
    turns: u32,
}

/// A node that is not written to as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Obstacle<'a> {
    /// It is not written to before this time of the own clock.
    pub(super) next: Duration,
    /// It may have the target.
    pub(super) takes_place: bool,
    /// Others are given the target first.
    pub(super) is_last: bool,
    /// Reason and message for the pool's condition.
    pub(super) named: Option<(Unwritten, &'a str)>,
}

/// Cause of a node that is not written to. The reason of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// The API server refuses it.
    Refused,
    /// It is not answered.
    Unanswered,
    /// Another program sets its target back.
    SetBack,
    /// It was given several targets in turn.
    Alternates,
}

impl Unwritten {
    /// All of them: the documentation is compared with it.
    #[cfg(test)]
    pub(super) const ALL: [Self; 4] = [Self::Refused, Self::Unanswered, Self::SetBack, Self::Alternates];

    /// Returns its word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "NodeWriteRefused",
            Self::Unanswered => "NodeWriteUnanswered",
            Self::SetBack => "NodeTargetSetBack",
            Self::Alternates => "NodeTargetAlternates",
        }
    }
}

impl NodeWrites {
    /// Sets the own clock.
    pub fn observe(&mut self, now: Duration) {
        self.now = now;
    }

    /// Returns the own clock.
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Records that a write was sent. Until it is answered its node is not written to again, and takes a place if it may have a target.
    pub fn sent(&mut self, patch: &NodePatch) {
        self.sent.insert(patch.node.clone(), (patch.resource_version.clone(), patch.pair.is_some()));
    }

    /// Records that it was answered.
    pub fn answered(&mut self, node: &str) {
        self.sent.remove(node);
    }

    /// Returns true if a write to a node is not answered yet.
    pub fn is_under_way(&self, node: &str) -> bool {
        self.sent.contains_key(node)
    }

    /// Returns the nodes that the API server may still give a target: a write that it got, and has not settled.
    pub fn open_targets(&self) -> impl Iterator<Item = &str> {
        let sent = self.sent.iter().filter(|(_, (_, gives_target))| *gives_target);
        let is_open = |failed: &Failed| failed.gives_target && failed.unsettled.is_some();
        let failed = self.failed.iter().filter(move |(_, failed)| is_open(failed));
        sent.map(|(name, _)| name).chain(failed.map(|(name, _)| name)).map(String::as_str)
    }

    /// Returns true if this process has given a node its target.
    pub(super) fn has_given(&self, node: &Node, target: &Pair) -> bool {
        self.given.get(&node.name).is_some_and(|given| given.uid == node.uid && given.pair == *target)
    }

    /// Records that a write was made.
    pub fn written(&mut self, patch: &NodePatch) {
        self.failed.remove(&patch.node);
        let Some(pair) = &patch.pair else { return };
        let before = self.given.remove(&patch.node).filter(|given| given.uid == patch.uid);
        let given = Given::after(before, patch.uid.clone(), pair.clone(), self.now);
        if given.times >= MAX_REPEATED || given.turns >= MAX_TURNS {
            self.repeated.insert(patch.node.clone());
        } else {
            self.repeated.remove(&patch.node);
        }
        self.given.insert(patch.node.clone(), given);
    }

    /// Records that a write was not made, or may not have been.
    pub fn failed(
        &mut self,
        node: &Node,
        target: Option<&Pair>,
        patch: &NodePatch,
        answer: Answer,
        cause: &str,
    ) {
        let facts = facts(node);
        let known = self.failed.get(&node.name).filter(|failed| failed.node.uid == node.uid);
        let unanswered = known.map_or(0, |known| known.unanswered).saturating_add(1);
        let before = known.filter(|failed| failed.is_of(&facts, target));
        let tries = before.map_or(0, |failed| failed.tries).saturating_add(1);
        let first = before.map_or(self.now, |failed| failed.first);
        // An earlier write onto the same version may still come.
        let open =
            known.filter(|failed| failed.version == patch.resource_version && failed.unsettled.is_some());
        let unsettled = open.and_then(|failed| failed.unsettled).max(answer.settled(self.now));
        let words = known.map(|failed| failed.cause.clone()).filter(|known| is_same(known, cause));
        let failed = Failed {
            version: patch.resource_version.clone(),
            target: target.cloned(),
            gives_target: patch.pair.is_some() || open.is_some_and(|failed| failed.gives_target),
            answer,
            // The same cause keeps its words: they are in the pool's status.
            cause: words.unwrap_or_else(|| cause.to_owned()),
            tries,
            unanswered: if answer == Answer::Refused { 0 } else { unanswered },
            first,
            given_at: if patch.pair.is_some() {
                Some(self.now)
            } else {
                known.and_then(|known| known.given_at)
            },
            next: self.now.saturating_add(answer.pause(tries, self.now.saturating_sub(first))),
            unsettled,
            next_read: self.now.saturating_add(pause(1)),
            lost_reads: 0,
            node: facts,
        };
        self.failed.insert(node.name.clone(), failed);
    }

    /// Records that a node was read after its write failed, by a request that began at the own clock's time or later.
    pub fn read(&mut self, node: &str) {
        let Some(failed) = self.failed.get_mut(node) else { return };
        failed.lost_reads = 0;
        match failed.unsettled {
            Some(settled) if settled > self.now => failed.next_read = settled,
            Some(_) | None => failed.unsettled = None,
        }
    }

    /// Records that a node could not be read after its write failed.
    pub fn not_read(&mut self, node: &str) {
        let Some(failed) = self.failed.get_mut(node) else { return };
        failed.lost_reads = failed.lost_reads.saturating_add(1);
        failed.next_read = self.now.saturating_add(pause(failed.lost_reads).min(IN_SERVER));
        failed.next = failed.next.max(failed.next_read);
    }

    /// Returns the nodes that are to be read now: the outcome of their last write is not known.
    pub fn unread(&self) -> Vec<String> {
        let is_due = |failed: &Failed| failed.unsettled.is_some() && failed.next_read <= self.now;
        self.failed.iter().filter(|(_, failed)| is_due(failed)).map(|(name, _)| name.clone()).collect()
    }

    /// Forgets a node that is gone.
    pub fn forget(&mut self, node: &str) {
        self.failed.remove(node);
        self.sent.remove(node);
        self.given.remove(node);
        self.repeated.remove(node);
    }

    /// Returns the nodes that may not be written to as they should be.
    pub(super) fn troubled(&self) -> impl Iterator<Item = &str> {
        let repeated = self.repeated.iter().filter(|name| !self.failed.contains_key(*name));
        let is_further = |name: &&String| !self.failed.contains_key(*name) && !self.repeated.contains(*name);
        let sent = self.sent.keys().filter(is_further);
        self.failed.keys().chain(repeated).chain(sent).map(String::as_str)
    }

    /// Returns the time until a node is written to again, if that failed a moment ago.
    pub fn wait(&self, node: &Node, target: Option<&Pair>) -> Option<Duration> {
        let next = self.obstacle(node, target)?.next;
        next.checked_sub(self.now).filter(|wait| !wait.is_zero())
    }

    /// Returns true if no write has failed that is not made yet.
    pub fn is_well(&self) -> bool {
        self.failed.is_empty()
    }

    /// Returns the time until a node is tried again, or no longer takes a place.
    pub(super) fn next_change(&self) -> Option<Duration> {
        let of_failed = |failed: &Failed| {
            [Some(failed.next), failed.unsettled.map(|_| failed.next_read), failed.last_until()]
        };
        let failed = self.failed.values().flat_map(of_failed).flatten();
        let given = self.repeated.iter().filter_map(|name| self.given.get(name));
        let given = given.flat_map(|given| [given.next(), given.next_turn()]).flatten();
        let waits = failed.chain(given).filter_map(|at| at.checked_sub(self.now));
        waits.filter(|wait| !wait.is_zero()).min()
    }

    /// Returns why a node is not written to, if there is a cause.
    pub(super) fn obstacle(&self, node: &Node, target: Option<&Pair>) -> Option<Obstacle<'_>> {
        if self.failed.is_empty() && self.given.is_empty() && self.sent.is_empty() {
            return None;
        }
        self.under_way(node, target)
            .or_else(|| self.failure(node, target))
            .or_else(|| self.set_back(node, target))
            .or_else(|| self.alternates(node, target))
            .or_else(|| self.unanswered(node))
    }

    fn under_way(&self, node: &Node, target: Option<&Pair>) -> Option<Obstacle<'_>> {
        let (version, gives_target) = self.sent.get(&node.name)?;
        let takes_place = *gives_target && *version == node.resource_version;
        // One that failed before has its name until it is answered.
        let failed = self.failed.get(&node.name).filter(|failed| failed.is_of(&facts(node), target));
        let named = failed.and_then(Failed::named).or_else(|| self.unanswered(node)?.named);
        // Its answer brings the next decision.
        Some(Obstacle { next: self.now.saturating_add(IN_SERVER), takes_place, is_last: false, named })
    }

    fn failure(&self, node: &Node, target: Option<&Pair>) -> Option<Obstacle<'_>> {
        let failed = self.failed.get(&node.name)?;
        let is_unsettled = failed.version == node.resource_version && failed.unsettled.is_some();
        let takes_place = failed.gives_target && is_unsettled;
        if !failed.is_of(&facts(node), target) && !takes_place {
            return None;
        }
        let is_last = self.is_last(failed);
        Some(Obstacle { next: failed.next, takes_place, is_last, named: failed.named() })
    }

    /// A node whose last writes were not answered, and that is tried at once: it or its target has changed.
    fn unanswered(&self, node: &Node) -> Option<Obstacle<'_>> {
        let failed = self.failed.get(&node.name)?;
        let is_it = failed.node.uid == node.uid && failed.answer != Answer::Refused;
        let named = failed.named().filter(|_| is_it)?;
        let is_last = self.is_last(failed);
        Some(Obstacle { next: self.now, takes_place: false, is_last, named: Some(named) })
    }

    fn is_last(&self, failed: &Failed) -> bool {
        failed.last_until().is_some_and(|until| self.now < until)
    }

    fn set_back(&self, node: &Node, target: Option<&Pair>) -> Option<Obstacle<'_>> {
        let given = self.given.get(&node.name)?;
        let is_back = given.uid == node.uid && Some(&given.pair) == target && node.desired != given.pair;
        let next = given.next()?;
        let named = Some((Unwritten::SetBack, "another program sets its target back; stop it"));
        is_back.then_some(Obstacle { next, takes_place: false, is_last: false, named })
    }

    fn alternates(&self, node: &Node, target: Option<&Pair>) -> Option<Obstacle<'_>> {
        let given = self.given.get(&node.name).filter(|given| given.uid == node.uid)?;
        let target = target.filter(|target| node.desired != **target && given.pair != **target)?;
        let next = given.next_turn().filter(|next| *next > self.now && given.former.contains(target))?;
        let cause = "it was given several targets in turn; find the program that changes its labels or the pool's MachineConfigs, and stop it";
        Some(Obstacle {
            next,
            takes_place: false,
            is_last: false,
            named: Some((Unwritten::Alternates, cause)),
        })
    }
}

impl Failed {
    fn is_of(&self, facts: &Node, target: Option<&Pair>) -> bool {
        self.node == *facts && self.target.as_ref() == target
    }

    /// Returns reason and message for the pool's condition.
    fn named(&self) -> Option<(Unwritten, &str)> {
        let why = match self.answer {
            Answer::Refused | Answer::Failed => Unwritten::Refused,
            Answer::Unreadable | Answer::Missing | Answer::Unsent => Unwritten::Unanswered,
        };
        let is_named = self.answer == Answer::Refused || self.unanswered >= MAX_UNNAMED;
        is_named.then_some((why, &*self.cause))
    }

    /// Returns until when others go first: a try takes a place for long.
    fn last_until(&self) -> Option<Duration> {
        let is_slow = self.answer == Answer::Missing && self.unanswered >= MAX_UNNAMED;
        Some(self.given_at.filter(|_| is_slow)?.saturating_add(LAST))
    }
}

impl Given {
    /// The target that a node is given after another one, or the same once more.
    fn after(before: Option<Self>, uid: String, pair: Pair, now: Duration) -> Self {
        let new = Self { uid, pair, times: 1, at: now, former: Vec::new(), turns: 0 };
        // One that held for long is a new matter.
        let Some(before) = before.filter(|before| now.saturating_sub(before.at) < REMEMBERED) else {
            return new;
        };
        let Self { mut former, turns, times, .. } = before;
        if before.pair == new.pair {
            let is_recent = now.saturating_sub(before.at) < LONGEST.saturating_mul(2);
            let times = if is_recent { times.saturating_add(1) } else { 1 };
            return Self { times, former, turns, ..new };
        }
        let turns = turns.saturating_add(u32::from(former.contains(&new.pair)));
        former.retain(|one| *one != new.pair && *one != before.pair);
        former.push(before.pair);
        former.drain(..former.len().saturating_sub(FORMER));
        Self { former, turns, ..new }
    }

    /// Returns when a former target is given again, where that happened too often.
    fn next_turn(&self) -> Option<Duration> {
        Some(self.at.saturating_add(turn(self.turns)?))
    }

    /// Returns when it is given again, where that happened too often.
    fn next(&self) -> Option<Duration> {
        let surplus = self.times.checked_sub(MAX_REPEATED - 1).filter(|surplus| *surplus > 0)?;
        Some(self.at.saturating_add(pause(surplus)))
    }
}

/// Returns a node without what changes by itself: its version, and whether it takes pods.
fn facts(node: &Node) -> Node {
    Node {
        resource_version: String::new(),
        ready: false,
        runs_controller: false,
        drain_blocked: None,
        annotations: BTreeMap::new(),
        ..node.clone()
    }
}
