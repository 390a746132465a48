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

/// Watches that break within this time are one line.
const COLLECT: Duration = Duration::from_secs(1);

/// One that lasts so long has its further causes told, and is told where one like it has just ended.
const LASTING: Duration = Duration::from_secs(10);

/// Connections that break again and again are not told again within this time.
const HELD: Duration = Duration::from_secs(60);

/// The most causes of one outage that are told.
const MAX_CAUSES: usize = 5;

/// Watches that are down, with their causes.
type Failing = BTreeMap<Kind, Failure>;

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
    last: Option<(Duration, BTreeSet<String>)>,
}

#[derive(Debug)]
struct Outage {
    since: Duration,
    /// All that it met.
    failing: Failing,
    /// Causes that were told.
    causes: BTreeSet<String>,
    /// When it is told, unless it was.
    due: Option<Duration>,
    /// One like it has just ended.
    is_repeated: bool,
}

impl Outages {
    /// Takes the watches that are down now; returns the line that is due.
    fn observe(&mut self, failing: &Failing, now: Duration) -> Option<Line> {
        if self.open.is_none() && failing.is_empty() {
            return None;
        }
        let last = self.last.take();
        let open = self.open.get_or_insert_with(|| Outage::new(failing, last.as_ref(), now));
        self.last = last;
        let line = open.observe(failing, now);
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
    fn new(failing: &Failing, last: Option<&(Duration, BTreeSet<String>)>, now: Duration) -> Self {
        let is_repeated = last
            .is_some_and(|(end, known)| now.saturating_sub(*end) < HELD && causes(failing).is_subset(known));
        let wait = if is_repeated { LASTING } else { COLLECT };
        let due = Some(now.saturating_add(wait));
        Self { since: now, failing: Failing::new(), causes: BTreeSet::new(), due, is_repeated }
    }

    fn observe(&mut self, failing: &Failing, now: Duration) -> Option<Line> {
        self.failing.extend(failing.iter().map(|(kind, failure)| (*kind, failure.clone())));
        if let Some(due) = self.due {
            if now < due {
                return None;
            }
            self.due = None;
            self.causes = causes(&self.failing);
            let text = text(&self.failing);
            return Some(if failing.is_empty() {
                Line::Over(format!("{text}; all is watched again"))
            } else {
                Line::Down(format!("{text}; the controller retries by itself"))
            });
        }
        if failing.is_empty() {
            let seconds = now.saturating_sub(self.since).as_secs();
            let names = names(self.failing.keys());
            return Some(Line::Over(format!("Watched again after {seconds} s: {names}")));
        }
        let is_lasting = now.saturating_sub(self.since) >= LASTING;
        let is_new = |failure: &Failure| !self.causes.contains(&failure.cause);
        let new: Failing = failing
            .iter()
            .filter(|(_, failure)| is_lasting && is_new(failure))
            .map(|(kind, failure)| (*kind, failure.clone()))
            .collect();
        if new.is_empty() || self.causes.len() >= MAX_CAUSES {
            return None;
        }
        self.causes.extend(causes(&new));
        Some(Line::Down(format!("{}; the controller retries by itself", text(&new))))
    }
}

fn causes(failing: &Failing) -> BTreeSet<String> {
    failing.values().map(|failure| failure.cause.clone()).collect()
}

/// Returns the text on watches that are down: those of one cause are named together.
fn text(failing: &Failing) -> String {
    let mut by_cause: Vec<(&Failure, Vec<&Kind>)> = Vec::new();
    for (kind, failure) in failing {
        match by_cause.iter_mut().find(|(known, _)| known.cause == failure.cause) {
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

/// Tells of outages for as long as it is polled.
pub(super) async fn tell(cache: Cache) {
    let (mut outages, mut changes) = (Outages::default(), cache.contents());
    loop {
        changes.mark_unchanged();
        let failing = failing(&cache.lock());
        match outages.observe(&failing, uptime()) {
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
        assert_eq!(outages.observe(&Failing::new(), at(0)), None);
        assert_eq!(outages.observe(&one, at(10)), None);
        assert_eq!((outages.observe(&both, at(10)), outages.due()), (None, Some(at(11))));
        let text =
            "machineconfigpools, nodes can't be read: connection reset; the controller retries by itself";
        assert_eq!(outages.observe(&both, at(11)), Some(Line::Down(text.to_owned())));
        // Other words for the same thing, and a watch that breaks later.
        let later = down(&[Kind::Pools, Kind::Nodes, Kind::Lease], "connection refused");
        assert_eq!(outages.observe(&later, at(12)), None);
        assert_eq!(outages.observe(&one, at(13)), None);
        let over = "Watched again after 5 s: machineconfigpools, nodes, leases";
        assert_eq!(outages.observe(&Failing::new(), at(15)), Some(Line::Over(over.to_owned())));
        assert_eq!((outages.observe(&Failing::new(), at(16)), outages.due()), (None, None));
    }

    #[test]
    fn outage_that_is_over_at_once_is_one_line() {
        let mut outages = Outages::default();
        assert_eq!(outages.observe(&down(&[Kind::Nodes], RESET), at(0)), None);
        assert_eq!(outages.observe(&Failing::new(), at(0)), None);
        let text = "nodes can't be read: connection reset; all is watched again";
        assert_eq!(outages.observe(&Failing::new(), at(1)), Some(Line::Over(text.to_owned())));
        // Again and again, it is not told, unless it lasts.
        for second in 2..9 {
            assert_eq!(outages.observe(&down(&[Kind::Nodes], RESET), at(second)), None);
            assert_eq!(outages.observe(&Failing::new(), at(second)), None);
        }
        assert_eq!(outages.observe(&down(&[Kind::Nodes], RESET), at(20)), None);
        assert!(matches!(outages.observe(&down(&[Kind::Nodes], RESET), at(30)), Some(Line::Down(_))));
        assert!(matches!(outages.observe(&Failing::new(), at(31)), Some(Line::Over(_))));
    }

    #[test]
    fn further_cause_of_lasting_outage_is_told() {
        let mut outages = Outages::default();
        let (reset, expired) = (down(&[Kind::Nodes], RESET), down(&[Kind::Nodes], "certificate expired"));
        assert_eq!(outages.observe(&reset, at(0)), None);
        assert!(outages.observe(&reset, at(1)).is_some());
        assert_eq!((outages.observe(&expired, at(2)), outages.due()), (None, Some(at(10))));
        let text = "nodes can't be read: certificate expired; the controller retries by itself";
        assert_eq!(outages.observe(&expired, at(10)), Some(Line::Down(text.to_owned())));
        assert_eq!(outages.observe(&expired, at(11)), None);
        assert_eq!(outages.observe(&reset, at(12)), None);
    }
}
