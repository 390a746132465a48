//! Log lines of outages: watches that break together are one line, and their end is another one. What the API server refuses does not pass by
//! itself: each watch tells it, with its next step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::cache::{Cache, Kind, Snapshot};
use super::client::uptime;
use super::failure::Failure;
use super::unread::{failure_text_of, names};
use crate::retry::{essence, is_same};

/// The answer of an API server that is busy or has just started.
const BUSY: u16 = 429;

/// Watches that break within this time are one line.
const COLLECT: Duration = Duration::from_secs(1);

/// One that lasts so long has its further causes told, and is told where one like it has just ended.
const LASTING: Duration = Duration::from_secs(10);

/// Kinds whose times differ by no more have one in the line.
const ALIKE: Duration = Duration::from_secs(5);

/// Connections that break again and again are not told again within this time.
const HELD: Duration = Duration::from_secs(60);

/// The most causes of one outage that are told.
const MAX_CAUSES: usize = 5;

/// Watches that are down, with their causes.
type Failing = BTreeMap<Kind, Failure>;

/// Causes by kind, without what changes in their words.
type Causes = BTreeSet<(Kind, String)>;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Down(String),
    Over(String),
}

/// Outages so far.
#[derive(Debug, Default)]
struct Outages {
    open: Option<Outage>,
    /// The end and the causes of the last one.
    last: Option<(Duration, Causes)>,
}

#[derive(Debug)]
struct Outage {
    since: Duration,
    /// All that it met.
    failing: Failing,
    /// When each kind of it broke, and when it was watched again.
    times: BTreeMap<Kind, (Duration, Option<Duration>)>,
    /// Causes that were told.
    causes: Causes,
    /// When it is told, unless it was.
    due: Option<Duration>,
    /// One like it has just ended.
    is_repeated: bool,
}

impl Outages {
    /// Takes the watches that are down now, and those that are refused: they are neither; returns the line that is due.
    fn observe(&mut self, failing: &Failing, refused: &BTreeSet<Kind>, now: Duration) -> Option<Line> {
        if self.open.is_none() && failing.is_empty() {
            return None;
        }
        let last = self.last.take();
        let open = self.open.get_or_insert_with(|| Outage::new(failing, last.as_ref(), now));
        self.last = last;
        let line = open.observe(failing, refused, now);
        let is_over = failing.is_empty() && (open.due.is_none() || open.is_repeated);
        if is_over && let Some(over) = self.open.take() {
            self.last = Some((now, causes(&over.failing)));
        }
        line
    }

    /// Returns when to look again, also where nothing changes.
    fn due(&self) -> Option<Duration> {
        let open = self.open.as_ref()?;
        Some(open.due.unwrap_or_else(|| open.since.saturating_add(LASTING)))
    }
}

impl Outage {
    fn new(failing: &Failing, last: Option<&(Duration, Causes)>, now: Duration) -> Self {
        let is_repeated = last
            .is_some_and(|(end, known)| now.saturating_sub(*end) < HELD && causes(failing).is_subset(known));
        let wait = if is_repeated { LASTING } else { COLLECT };
        let due = Some(now.saturating_add(wait));
        let (failing, times, causes) = (Failing::new(), BTreeMap::new(), Causes::new());
        Self { since: now, failing, times, causes, due, is_repeated }
    }

    fn observe(&mut self, failing: &Failing, refused: &BTreeSet<Kind>, now: Duration) -> Option<Line> {
        self.failing.extend(failing.iter().map(|(kind, failure)| (*kind, failure.clone())));
        for kind in failing.keys() {
            self.times.entry(*kind).or_insert((now, None)).1 = None;
        }
        for (kind, (_, end)) in &mut self.times {
            let is_watched = !failing.contains_key(kind) && !refused.contains(kind);
            if is_watched {
                end.get_or_insert(now);
            } else {
                *end = None;
            }
        }
        if let Some(due) = self.due {
            if now < due {
                return None;
            }
            self.due = None;
            self.causes = causes(&self.failing);
            let text = text(&self.failing);
            let are_watched = self.times.values().all(|(_, end)| end.is_some());
            return Some(if failing.is_empty() && are_watched {
                Line::Over(format!("{text}; all is watched again"))
            } else {
                Line::Down(format!("{text}; the controller retries automatically"))
            });
        }
        if failing.is_empty() {
            return self.over().map(Line::Over);
        }
        let is_lasting = now.saturating_sub(self.since) >= LASTING;
        // A kind that was not told yet, or one with a cause that was not. A server that starts is on its way back.
        let is_new = |kind: &Kind, failure: &Failure| {
            let cause = essence(&failure.cause);
            !self.causes.iter().any(|(told, _)| told == kind)
                || failure.code != BUSY && !self.causes.iter().any(|(_, told)| *told == cause)
        };
        let new: Failing = failing
            .iter()
            .filter(|(kind, failure)| is_lasting && is_new(kind, failure))
            .map(|(kind, failure)| (*kind, failure.clone()))
            .collect();
        self.causes.extend(causes(&new));
        let further = self.causes.iter().map(|(_, cause)| cause).collect::<BTreeSet<_>>().len();
        if new.is_empty() || further > MAX_CAUSES {
            return None;
        }
        Some(Line::Down(format!("{}; the controller retries automatically", text(&new))))
    }
}

impl Outage {
    /// Returns the text on the kinds that are watched again, each with its own time.
    fn over(&self) -> Option<String> {
        let lasted = self.times.iter().filter_map(|(kind, (since, end))| {
            let lasted = (*end)?.saturating_sub(*since);
            Some((kind, lasted))
        });
        let lasted: Vec<(&Kind, Duration)> = lasted.collect();
        let longest = lasted.iter().map(|(_, lasted)| *lasted).max()?;
        let mut by_time: BTreeMap<u64, Vec<&Kind>> = BTreeMap::new();
        for (kind, lasted) in lasted {
            let lasted = if longest.saturating_sub(lasted) > ALIKE { lasted } else { longest };
            by_time.entry(lasted.as_secs()).or_default().push(kind);
        }
        if by_time.len() == 1 {
            return by_time.first_key_value().map(|(seconds, kinds)| {
                format!("Watched again after {seconds} s: {}", names(kinds.iter().copied()))
            });
        }
        let texts = by_time
            .iter()
            .map(|(seconds, kinds)| format!("{} after {seconds} s", names(kinds.iter().copied())));
        let texts = texts.collect::<Vec<_>>().join(", ");
        (!texts.is_empty()).then(|| format!("Watched again: {texts}"))
    }
}

fn causes(failing: &Failing) -> Causes {
    failing.iter().map(|(kind, failure)| (*kind, essence(&failure.cause))).collect()
}

/// Returns the text on watches that are down: those of one cause are named together.
fn text(failing: &Failing) -> String {
    let mut by_cause: Vec<(&Failure, Vec<&Kind>)> = Vec::new();
    for (kind, failure) in failing {
        match by_cause.iter_mut().find(|(known, _)| is_same(&known.cause, &failure.cause)) {
            Some((_, kinds)) => kinds.push(kind),
            None => by_cause.push((failure, vec![kind])),
        }
    }
    let texts = by_cause.into_iter().map(|(failure, kinds)| failure_text_of(&names(kinds), Some(failure)));
    texts.collect::<Vec<_>>().join("; ")
}

/// Returns the watches that are down and not refused.
fn failing(snapshot: &Snapshot) -> Failing {
    let is_down = |(kind, failure): &(&Kind, &Failure)| !failure.is_refusal() && !snapshot.lacks(**kind);
    let down = snapshot.failing.iter().filter(is_down);
    down.map(|(kind, failure)| (*kind, failure.clone())).collect()
}

/// Returns the kinds that the API server refuses: each is told by itself.
fn refused(snapshot: &Snapshot) -> BTreeSet<Kind> {
    let is_refused = |(kind, failure): &(&Kind, &Failure)| failure.is_refusal() && !snapshot.lacks(**kind);
    snapshot.failing.iter().filter(is_refused).map(|(kind, _)| *kind).collect()
}

/// Tells of outages for as long as it is polled.
pub(super) async fn tell(cache: Cache) {
    let (mut outages, mut changes) = (Outages::default(), cache.contents());
    loop {
        changes.mark_unchanged();
        let (failing, refused) = {
            let snapshot = cache.lock();
            (failing(&snapshot), refused(&snapshot))
        };
        match outages.observe(&failing, &refused, uptime()) {
            Some(Line::Down(text)) => warn!("{text}"),
            Some(Line::Over(text)) => info!("{text}"),
            None => {}
        }
        let due = outages.due().filter(|due| *due > uptime());
        let timer = async {
            match due {
                Some(due) => sleep_until(Instant::now() + due.saturating_sub(uptime())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = timer => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: BTreeSet<Kind> = BTreeSet::new();

    const RESET: &str = "connection reset";

    fn down(kinds: &[Kind], cause: &str) -> Failing {
        kinds.iter().map(|kind| (*kind, Failure::with_code(0, cause.to_owned()))).collect()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn outage_is_one_line_and_its_end_another_one() {
        let mut outages = Outages::default();
        let (one, both) = (down(&[Kind::Pools], RESET), down(&[Kind::Pools, Kind::Nodes], RESET));
        assert_eq!(outages.observe(&Failing::new(), &NONE, at(0)), None);
        assert_eq!(outages.observe(&one, &NONE, at(10)), None);
        assert_eq!((outages.observe(&both, &NONE, at(10)), outages.due()), (None, Some(at(11))));
        let text =
            "machineconfigpools, nodes can't be read: connection reset; the controller retries automatically";
        assert_eq!(outages.observe(&both, &NONE, at(11)), Some(Line::Down(text.to_owned())));
        // Other words for the same thing, and a watch that breaks later.
        let later = down(&[Kind::Pools, Kind::Nodes, Kind::Lease], "connection refused");
        assert_eq!(outages.observe(&later, &NONE, at(12)), None);
        assert_eq!(outages.observe(&one, &NONE, at(13)), None);
        let over = "Watched again after 5 s: machineconfigpools, nodes, leases";
        assert_eq!(outages.observe(&Failing::new(), &NONE, at(15)), Some(Line::Over(over.to_owned())));
        assert_eq!((outages.observe(&Failing::new(), &NONE, at(16)), outages.due()), (None, None));
    }

    /// Another kind breaks with the words of the first one, and one whose words change.
    #[test]
    fn further_kind_with_same_cause_is_told_and_same_cause_in_other_words_is_not() {
        let mut outages = Outages::default();
        let first = down(&[Kind::Pools], "no route to 10.0.0.1:6443 after 12 s");
        assert_eq!(outages.observe(&first, &NONE, at(0)), None);
        assert!(outages.observe(&first, &NONE, at(1)).is_some());
        assert_eq!(
            outages.observe(&down(&[Kind::Pools], "no route to 10.0.0.1:6443 after 31 s"), &NONE, at(30)),
            None
        );
        let both = down(&[Kind::Pools, Kind::Nodes], "no route to 10.0.0.1:6443 after 40 s");
        let text =
            "nodes can't be read: no route to 10.0.0.1:6443 after 40 s; the controller retries automatically";
        assert_eq!(outages.observe(&both, &NONE, at(40)), Some(Line::Down(text.to_owned())));
        assert_eq!(outages.observe(&both, &NONE, at(41)), None);
    }

    /// Each kind has its own time, and one that is refused after the outage is not watched again.
    #[test]
    fn end_of_outage_has_times_of_kinds_and_no_kind_that_is_refused() {
        let mut outages = Outages::default();
        let all = down(&[Kind::Pools, Kind::Nodes, Kind::Configs], RESET);
        assert_eq!(outages.observe(&all, &NONE, at(0)), None);
        assert!(outages.observe(&all, &NONE, at(1)).is_some());
        assert_eq!(outages.observe(&down(&[Kind::Nodes, Kind::Configs], RESET), &NONE, at(2)), None);
        let refused = BTreeSet::from([Kind::Configs]);
        assert_eq!(outages.observe(&down(&[Kind::Nodes], RESET), &refused, at(3)), None);
        let over =
            "Watched again: machineconfigpools.machineconfiguration.openshift.io after 2 s, nodes after 9 s";
        let line = outages.observe(&Failing::new(), &refused, at(9));
        assert_eq!(line, Some(Line::Over(over.to_owned())));
        // None of them is.
        assert_eq!(outages.observe(&down(&[Kind::Configs], RESET), &NONE, at(100)), None);
        assert!(outages.observe(&down(&[Kind::Configs], RESET), &NONE, at(101)).is_some());
        assert_eq!(outages.observe(&Failing::new(), &refused, at(102)), None);
    }

    #[test]
    fn outage_that_is_over_at_once_is_one_line() {
        let mut outages = Outages::default();
        assert_eq!(outages.observe(&down(&[Kind::Nodes], RESET), &NONE, at(0)), None);
        assert_eq!(outages.observe(&Failing::new(), &NONE, at(0)), None);
        let text = "nodes can't be read: connection reset; all is watched again";
        assert_eq!(outages.observe(&Failing::new(), &NONE, at(1)), Some(Line::Over(text.to_owned())));
        // Again and again, it is not told, unless it lasts.
        for second in 2..9 {
            assert_eq!(outages.observe(&down(&[Kind::Nodes], RESET), &NONE, at(second)), None);
            assert_eq!(outages.observe(&Failing::new(), &NONE, at(second)), None);
        }
        assert_eq!(outages.observe(&down(&[Kind::Nodes], RESET), &NONE, at(20)), None);
        assert!(matches!(outages.observe(&down(&[Kind::Nodes], RESET), &NONE, at(30)), Some(Line::Down(_))));
        assert!(matches!(outages.observe(&Failing::new(), &NONE, at(31)), Some(Line::Over(_))));
    }

    #[test]
    fn server_that_starts_is_no_further_cause() {
        let mut outages = Outages::default();
        let reset = down(&[Kind::Nodes], RESET);
        let starting = |kind| {
            let cause = Failure::with_code(BUSY, "storage is (re)initializing".to_owned());
            Failing::from([(kind, cause)])
        };
        assert_eq!(outages.observe(&reset, &NONE, at(0)), None);
        assert!(outages.observe(&reset, &NONE, at(1)).is_some());
        for second in [2, 20, 40] {
            assert_eq!(outages.observe(&starting(Kind::Nodes), &NONE, at(second)), None);
        }
        let expired = down(&[Kind::Nodes], "certificate expired");
        let told = [50, 70].map(|second| outages.observe(&expired, &NONE, at(second)));
        assert!(told.iter().flatten().count() == 1, "another cause is told: {told:?}");
    }

    #[test]
    fn further_cause_of_lasting_outage_is_told() {
        let mut outages = Outages::default();
        let (reset, expired) = (down(&[Kind::Nodes], RESET), down(&[Kind::Nodes], "certificate expired"));
        assert_eq!(outages.observe(&reset, &NONE, at(0)), None);
        assert!(outages.observe(&reset, &NONE, at(1)).is_some());
        assert_eq!((outages.observe(&expired, &NONE, at(2)), outages.due()), (None, Some(at(10))));
        let text = "nodes can't be read: certificate expired; the controller retries automatically";
        assert_eq!(outages.observe(&expired, &NONE, at(10)), Some(Line::Down(text.to_owned())));
        assert_eq!(outages.observe(&expired, &NONE, at(11)), None);
        assert_eq!(outages.observe(&reset, &NONE, at(12)), None);
    }
}
