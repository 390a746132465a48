//! Continuity of the API server's state with the one that is known.
//!
//! Versions alone do not tell: the writes of others may pass those of the lost state before a watch is answered again, and a watch that goes
//! on from one of them then misses what changed. So a watch that breaks puts all in doubt. The leader ends it by its own Lease: one that is not
//! as it wrote it last shows an earlier state, and everything is listed again. One that is proves the known history up to that write, and no
//! further: a watch that goes on from a later version is listed again, since the backup may be younger than the Lease.
//!
//! A version of the Lease is compared with those of other kinds: they are of one etcd, but for the Events of some clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Decisions wait so long for each broken watch: an API server that has just started answers one kind after another. One that was answered
/// for so long has held.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// The history of this process.
static HISTORY: LazyLock<watch::Sender<History>> = LazyLock::new(|| watch::channel(History::default()).0);

/// State of knowledge of the API server's history.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Number of times that a watch broke.
    breaks: u64,
    /// Number of breaks that were judged.
    judged: u64,
    /// The version up to which the last judgement proved the known history; none where nothing was proved.
    proven: Option<u64>,
    /// Number of times that the API server went back.
    restores: u64,
    /// Number of times that it answered again after it had not.
    returns: u64,
    /// Watches that broke, with the version that they go on from once they are answered.
    doubtful: BTreeMap<u64, Option<String>>,
    /// Those of them that decisions wait for, and until when.
    awaited: BTreeMap<u64, Instant>,
    /// Those that were waited for in vain: nothing waits for them again before they are answered.
    late: BTreeSet<u64>,
    /// Watches that are listed again.
    listing: BTreeSet<u64>,
    /// Watches that broke and have not held since.
    unsteady: BTreeMap<u64, Unsteady>,
}

/// A watch that breaks again and again is waited for once: it must not keep the others from being decided by.
#[derive(Debug)]
struct Unsteady {
    /// The first break.
    since: Instant,
    /// When it was answered after the last one.
    answered: Option<Instant>,
}

impl Unsteady {
    /// Takes another break.
    fn broke(&mut self, now: Instant) {
        let has_held = self.answered.take().is_some_and(|at| now.duration_since(at) >= ANSWERED_WITHIN);
        if has_held {
            self.since = now;
        }
    }
}

impl History {
    /// Returns true while it is not known whether the objects that are known are of one state.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.breaks != self.judged || !self.listing.is_empty() || !self.awaited.is_empty()
    }

    /// Number of times that the API server went back.
    pub(crate) fn restores(&self) -> u64 {
        self.restores
    }

    fn broke(&mut self, id: u64, is_known: bool) {
        self.breaks = self.breaks.wrapping_add(1);
        self.listing.remove(&id);
        if is_known {
            self.doubtful.insert(id, None);
            let now = Instant::now();
            self.unsteady.entry(id).or_insert(Unsteady { since: now, answered: None }).broke(now);
        }
    }

    /// A watch goes on from a version.
    fn resumed(&mut self, id: u64, from: &str) {
        let Some(at) = self.doubtful.get_mut(&id) else { return };
        *at = Some(from.to_owned());
        self.answers(id);
        if self.breaks == self.judged {
            self.settle();
        }
    }

    fn listed(&mut self, id: u64) {
        self.doubtful.remove(&id);
        self.listing.remove(&id);
        self.answers(id);
    }

    /// It is refused: the others go on without it.
    fn failed(&mut self, id: u64) -> bool {
        let was_awaited = self.awaited.remove(&id).is_some();
        self.listing.remove(&id) || was_awaited
    }

    fn answers(&mut self, id: u64) {
        self.awaited.remove(&id);
        self.late.remove(&id);
        if let Some(unsteady) = self.unsteady.get_mut(&id) {
            unsteady.answered.get_or_insert_with(Instant::now);
        }
    }

    /// Waits no longer for the watches whose time is over.
    fn expire(&mut self, now: Instant) -> bool {
        let late: Vec<u64> =
            self.awaited.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect();
        self.awaited.retain(|_, until| *until > now);
        self.late.extend(&late);
        !late.is_empty()
    }

    fn judge(&mut self, breaks: u64, proven: Option<u64>) {
        self.judged = breaks;
        self.proven = proven;
        if self.breaks == breaks {
            self.settle();
        }
        let now = Instant::now();
        for id in self.doubtful.iter().filter(|(_, at)| at.is_none()).map(|(id, _)| *id) {
            let until = self.unsteady.get(&id).map_or(now, |unsteady| unsteady.since) + ANSWERED_WITHIN;
            if until > now && !self.late.contains(&id) {
                self.awaited.entry(id).or_insert(until);
            }
        }
    }

    /// Has the watches that were answered go on, or be listed again.
    fn settle(&mut self) {
        let proven = self.proven;
        let (answered, open) =
            std::mem::take(&mut self.doubtful).into_iter().partition(|(_, at)| at.is_some());
        self.doubtful = open;
        let answered: BTreeMap<u64, Option<String>> = answered;
        let is_proven = |at: &Option<String>| {
            let version = at.as_ref().and_then(|at| at.parse::<u64>().ok());
            matches!((version, proven), (Some(version), Some(proven)) if version <= proven)
        };
        self.listing.extend(answered.into_iter().filter(|(_, at)| !is_proven(at)).map(|(id, _)| id));
    }

    fn restored(&mut self) {
        self.restores = self.restores.wrapping_add(1);
        self.judged = self.breaks;
        self.proven = None;
        self.doubtful.clear();
        self.awaited.clear();
        self.late.clear();
    }
}

/// Follows the history.
pub(crate) fn history() -> watch::Receiver<History> {
    HISTORY.subscribe()
}

/// Number of times that the API server went back.
pub(crate) fn restores() -> u64 {
    HISTORY.borrow().restores
}

/// Returns the number of times that a watch broke, if it was not judged yet.
pub(crate) fn unjudged() -> Option<u64> {
    let history = HISTORY.borrow();
    (history.breaks != history.judged).then_some(history.breaks)
}

/// Number of times that a watch broke.
pub(crate) fn breaks() -> u64 {
    HISTORY.borrow().breaks
}

/// Judges so many breaks: the history is the known one up to a version.
pub(crate) fn judge(breaks: u64, proven: Option<u64>) {
    HISTORY.send_modify(|history| history.judge(breaks, proven));
    let is_waiting = !HISTORY.borrow().awaited.is_empty();
    if is_waiting && let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(async {
            sleep(ANSWERED_WITHIN).await;
            HISTORY.send_if_modified(|history| history.expire(Instant::now()));
        }));
    }
}

/// Has all watches begin again with a list: the API server went back to an earlier state.
pub(crate) fn restored() {
    HISTORY.send_modify(History::restored);
}

/// The API server answers again: what waits for its next try is tried at once.
pub(crate) fn returned() {
    HISTORY.send_modify(|history| history.returns = history.returns.wrapping_add(1));
}

/// Waits before a try, at most until the API server answers again after it had not.
pub(crate) async fn pause(wait: Duration) {
    let mut history = history();
    let since = history.borrow_and_update().tries();
    if wait.is_zero() {
        return;
    }
    drop(timeout(wait, history.wait_for(|history| history.tries() != since)).await.map(drop));
}

impl History {
    /// It changes with each reason for another try.
    const fn tries(&self) -> (u64, u64) {
        (self.restores, self.returns)
    }
}

/// A watch in the history, for as long as it lasts.
#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    pub(super) changes: watch::Receiver<History>,
    /// It was listed once.
    is_known: bool,
}

impl Entry {
    pub(super) fn new() -> Self {
        static IDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let id = IDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { id, changes: history(), is_known: false }
    }

    /// Returns true if the watch is to be listed again.
    pub(super) fn is_listing(&self) -> bool {
        HISTORY.borrow().listing.contains(&self.id)
    }

    /// The connection broke.
    pub(super) fn broke(&self) {
        HISTORY.send_modify(|history| history.broke(self.id, self.is_known));
    }

    /// It goes on from a version.
    pub(super) fn resumed(&self, from: &str) {
        let id = self.id;
        HISTORY.send_if_modified(|history| {
            let is_doubtful = history.doubtful.contains_key(&id);
            history.resumed(id, from);
            is_doubtful
        });
    }

    /// A list begins because the API server went back.
    pub(super) fn begins_list(&self) {
        let id = self.id;
        HISTORY.send_if_modified(|history| history.listing.insert(id));
    }

    /// Its list is complete, or it is gone.
    pub(super) fn listed(&mut self) {
        self.is_known = true;
        self.leave();
    }

    /// Its list has failed: the others go on without it.
    pub(super) fn failed(&self) {
        let id = self.id;
        HISTORY.send_if_modified(|history| history.failed(id));
    }

    fn leave(&self) {
        let id = self.id;
        HISTORY.send_if_modified(|history| {
            let was_there = history.listing.contains(&id) || history.doubtful.contains_key(&id);
            history.listed(id);
            was_there
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
        HISTORY.send_if_modified(|history| {
            history.unsteady.remove(&self.id);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two watches that go on from 80 and from 120.
    fn broken() -> History {
        let mut history = History::default();
        for id in [1, 2] {
            history.broke(id, true);
        }
        assert!(history.is_in_doubt());
        history
    }

    #[test]
    fn only_what_lease_proves_goes_on_without_list() {
        // Before or after the judgement.
        for is_answered_first in [true, false] {
            let mut history = broken();
            let answer = |history: &mut History| {
                history.resumed(1, "80");
                history.resumed(2, "120");
            };
            if is_answered_first {
                answer(&mut history);
                assert!(history.listing.is_empty(), "nothing is known yet");
            }
            history.judge(2, Some(100));
            if !is_answered_first {
                assert!(history.is_in_doubt(), "both are waited for");
                answer(&mut history);
            }
            assert!(!history.listing.contains(&1) && history.listing.contains(&2) && history.is_in_doubt());
            history.listed(2);
            assert!(!history.is_in_doubt() && history.doubtful.is_empty());
        }
    }

    #[test]
    fn without_proof_all_broken_watches_are_listed() {
        let mut history = broken();
        history.resumed(1, "80");
        history.judge(2, None);
        history.resumed(2, "x");
        assert!(history.listing.contains(&1) && history.listing.contains(&2));
    }

    #[tokio::test(start_paused = true)]
    async fn break_after_judgement_is_judged_again() {
        let mut history = broken();
        history.resumed(1, "80");
        history.broke(2, true);
        history.judge(2, Some(100));
        assert!(history.is_in_doubt() && history.listing.is_empty());
        history.judge(3, Some(100));
        assert!(history.is_in_doubt() && history.doubtful.len() == 1);
        assert!(!history.expire(Instant::now()) && history.is_in_doubt(), "its time is not over");
        assert!(history.expire(Instant::now() + ANSWERED_WITHIN));
        assert!(!history.is_in_doubt(), "one that is away holds up nobody for long");
        history.broke(2, true);
        history.judge(4, Some(100));
        assert!(!history.is_in_doubt(), "nor again before it was answered");
        // One that is answered and breaks again is not waited for once more, until it has held.
        let mut history = broken();
        for breaks in 2.. {
            history.judge(breaks, None);
            if !history.awaited.contains_key(&2) {
                break;
            }
            tokio::time::advance(ANSWERED_WITHIN / 4).await;
            history.listed(1);
            history.listed(2);
            assert!(!history.is_in_doubt());
            history.broke(2, true);
            assert!(breaks < 8, "for ever");
        }
        assert!(!history.is_in_doubt(), "the others are decided by");
        history.listed(2);
        tokio::time::advance(ANSWERED_WITHIN).await;
        history.broke(2, true);
        history.judge(history.breaks, None);
        assert!(history.is_in_doubt(), "it had held");
        // One that was never listed has nothing that could be of another state.
        let mut history = History::default();
        history.broke(3, false);
        history.judge(1, None);
        assert!(!history.is_in_doubt() && !history.doubtful.contains_key(&3));
    }

    #[tokio::test(start_paused = true)]
    async fn pause_ends_when_server_answers_again() {
        let long = Duration::from_secs(3600);
        let begun = tokio::time::Instant::now();
        let pause = tokio::spawn(pause(long));
        tokio::time::sleep(Duration::from_secs(1)).await;
        returned();
        pause.await.unwrap();
        assert!(begun.elapsed() < long);
    }
}
