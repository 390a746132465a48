//! When drift is told once more, and whether it is repaired once more.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::ManagedPath;
use crate::plan::differences::{Difference, Kind, What};

/// A file that is written again and again differs otherwise each time. What is new is told at once, other details of
/// the same differences this late: a report, an event and a patch each time would be a load on the cluster.
const DETAILS: Duration = Duration::from_secs(10);

/// Drift that comes back again and again has a cause that no repair removes: after so many a person has to look.
const REPAIRS: usize = 3;
/// The time in which they count: a cause that comes back less often is repaired for ever.
const REPAIRS_WITHIN: Duration = Duration::from_secs(3600);

/// What differs, whatever its details; and why it stays.
type Outline = Vec<(Kind, String, What, Option<String>)>;

/// What is remembered of drift. Times are since the boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// When drift was told last.
    told: Duration,
    /// By path: when it was repaired.
    repairs: BTreeMap<ManagedPath, Vec<Duration>>,
    /// By path: why a repair failed, and when.
    failed: BTreeMap<ManagedPath, (Duration, String)>,
}

impl Memory {
    /// Says how long what was found is held back, as it is what was told but for its details.
    pub fn held_back(&self, told: &[Difference], found: &[Difference], now: Duration) -> Option<Duration> {
        let since = now.saturating_sub(self.told);
        let details = !told.is_empty() && outlined(told) == outlined(found);
        (details && since < DETAILS).then(|| DETAILS.saturating_sub(since))
    }

    /// Notes that drift is told.
    pub fn told(&mut self, now: Duration) {
        self.told = now;
    }

    /// Says why a path is not repaired once more.
    pub fn gives_up(&mut self, path: &ManagedPath, now: Duration) -> Option<String> {
        let counts = |at: Duration| now.saturating_sub(at) < REPAIRS_WITHIN;
        self.failed.retain(|_, (at, _)| counts(*at));
        if let Some((_, why)) = self.failed.get(path) {
            return Some(format!("the repair failed: {why}"));
        }
        let repairs = self.repairs.get_mut(path)?;
        repairs.retain(|at| counts(*at));
        (repairs.len() >= REPAIRS)
            .then(|| format!("it was repaired {REPAIRS} times within an hour, so something else writes it"))
    }

    /// Notes that a path is repaired. One repair of a path mends all that differs there.
    pub fn repaired(&mut self, path: ManagedPath, now: Duration) {
        let times = self.repairs.entry(path).or_default();
        if times.last() != Some(&now) {
            times.push(now);
        }
    }

    /// Notes why the repair of a path failed.
    pub fn failed(&mut self, path: ManagedPath, now: Duration, why: String) {
        self.failed.insert(path, (now, why));
    }
}

fn outlined(drift: &[Difference]) -> Outline {
    let line = |found: &Difference| (found.kind, found.target.clone(), found.what, found.unrepaired.clone());
    drift.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_path_is_repaired_three_times_an_hour() {
        let (mut memory, path) = (Memory::default(), ManagedPath::new("/etc/app.conf").unwrap());
        let other = ManagedPath::new("/etc/other.conf").unwrap();
        for at in [0, 20, 40] {
            assert_eq!(memory.gives_up(&path, MINUTE * at), None, "{at}");
            memory.repaired(path.clone(), MINUTE * at);
            memory.repaired(path.clone(), MINUTE * at);
        }
        let why = memory.gives_up(&path, MINUTE * 59).unwrap();
        assert!(why.contains("3 times within an hour"), "{why}");
        assert_eq!(memory.gives_up(&other, MINUTE * 59), None);
        // The first of the three is an hour old.
        assert_eq!(memory.gives_up(&path, MINUTE * 60), None);
    }

    #[test]
    fn a_repair_that_failed_is_not_tried_for_an_hour() {
        let (mut memory, path) = (Memory::default(), ManagedPath::new("/etc/app.conf").unwrap());
        memory.failed(path.clone(), MINUTE, "it is a directory".to_owned());
        assert_eq!(
            memory.gives_up(&path, MINUTE * 60).as_deref(),
            Some("the repair failed: it is a directory")
        );
        assert_eq!(memory.gives_up(&path, MINUTE * 61), None);
    }
}
