//! Limits of drift: reports, repairs, and the part of the host that is observed for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::node_settings::NodeSettings;
use crate::model::{DisruptionPolicy, HostSpec, ManagedPath, Observation};
use crate::plan::Plan;
use crate::plan::differences::{Difference, DifferenceKind, Kind};
use crate::plan::repair::repair;
use crate::update::Record;

/// A file that is written again and again differs otherwise each time. A new path is reported at once, other details of
/// the same differences this late: a report, an event and a patch each time would be a load on the cluster.
const DETAILS: Duration = Duration::from_secs(10);

/// Drift that comes back again and again has a cause that no repair removes: after so many a person has to look.
const REPAIRS: usize = 3;
/// The time in which they count: a cause that comes back less often is repaired for ever.
const REPAIRS_WITHIN: Duration = Duration::from_secs(3600);

/// Delay from a look at changed paths alone to a look at everything.
const SETTLE: Duration = Duration::from_millis(250);
/// More changed files than this are no faster to look at than all.
const MAX_CHANGED: usize = 64;
/// Paths that decide about other paths: units, presets and accounts. Keys of accounts depend on them, too.
const SHARED: [&str; 4] = ["/etc/systemd/", "/etc/passwd", "/etc/group", "/etc/shadow"];

/// Differences without their details; and the reason why each stays.
type Outline = Vec<(Kind, String, DifferenceKind, Option<String>)>;

/// Memory of drift. Times are since the boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// Time of the last report of drift.
    reported: Duration,
    /// By path: when it was repaired.
    repairs: BTreeMap<ManagedPath, Vec<Duration>>,
    /// By path: why a repair failed, and when.
    failed: BTreeMap<ManagedPath, (Duration, String)>,
    /// Time at which keys and passwords of accounts that appeared could not be set.
    accounts_failed: Option<Duration>,
}

impl Memory {
    /// Returns the key of this state: equal for equal states.
    #[cfg(test)]
    pub(super) fn key(&self, now: Duration) -> String {
        let counts = |at: &&Duration| now.saturating_sub(**at) < REPAIRS_WITHIN;
        let repairs: Vec<usize> =
            self.repairs.values().map(|times| times.iter().filter(counts).count()).collect();
        format!("{repairs:?} {}", self.failed.values().filter(|(at, _)| counts(&at)).count())
    }

    /// Returns the delay of a report that differs from the last one only in details.
    pub fn held_back(
        &self,
        reported: &[Difference],
        found: &[Difference],
        now: Duration,
    ) -> Option<Duration> {
        let since = now.saturating_sub(self.reported);
        let details = !reported.is_empty() && outlined(reported) == outlined(found);
        (details && since < DETAILS).then(|| DETAILS.saturating_sub(since))
    }

    /// Notes a report of drift.
    pub fn reported(&mut self, now: Duration) {
        self.reported = now;
    }

    /// Returns why a path is not repaired again; `None` if it is.
    fn why_unrepaired(&mut self, path: &ManagedPath, now: Duration) -> Option<String> {
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

    /// Notes that a path is repaired. One repair of a path repairs all that differs there.
    pub fn repaired(&mut self, path: ManagedPath, now: Duration) {
        let times = self.repairs.entry(path).or_default();
        if times.last() != Some(&now) {
            times.push(now);
        }
    }

    /// Selects the differences to repair; notes at the rest why each is not repaired again.
    pub fn select<'a>(
        &mut self,
        found: &'a mut [Difference],
        settings: &NodeSettings,
        now: Duration,
    ) -> Vec<(ManagedPath, &'a mut Difference)> {
        let mut selected = Vec::new();
        for difference in found {
            let Some(path) = difference.path().filter(|path| settings.repairs(path)) else { continue };
            difference.unrepaired = self.why_unrepaired(&path, now);
            if difference.unrepaired.is_none() {
                selected.push((path, difference));
            }
        }
        selected
    }

    /// Notes that a repair failed, or nothing if it has no fault: another target ended it.
    pub fn repair_failed(&mut self, record: &Record, now: Duration) {
        let Some(fault) = &record.fault else { return };
        if record.plan.is_of_accounts() {
            self.accounts_failed = Some(now);
        }
        for path in record.plan.steps().iter().filter_map(|step| step.op.own_path()) {
            self.failed(path, now, fault.message.clone());
        }
    }

    /// Returns true if keys and passwords of accounts that appeared are not tried again yet.
    pub fn are_accounts_left(&self, now: Duration) -> bool {
        self.accounts_failed.is_some_and(|at| now.saturating_sub(at) < REPAIRS_WITHIN)
    }

    /// Notes why the repair of a path failed.
    fn failed(&mut self, path: ManagedPath, now: Duration, why: String) {
        self.failed.insert(path, (now, why));
    }
}

/// Plans the repair of the selected differences, and notes at the rest why each is left.
pub fn plan_repair(
    spec: &HostSpec,
    observed: &Observation,
    selected: &mut [(ManagedPath, &mut Difference)],
    policy: &DisruptionPolicy,
) -> Option<Plan> {
    let drift: Vec<Difference> = selected.iter().map(|(_, difference)| (**difference).clone()).collect();
    let decided = repair(spec, observed, &drift, policy);
    for ((_, difference), why) in selected.iter_mut().zip(decided.left) {
        difference.unrepaired = why;
    }
    decided.plan
}

/// Returns the changed files where a look at these is enough for now, and when everything is to be looked at. `settle`
/// is that time where it was chosen by an earlier look at changed files alone.
pub fn narrowed(
    spec: &HostSpec,
    changed: &[String],
    settle: Option<Duration>,
    now: Duration,
) -> Option<(BTreeSet<ManagedPath>, Duration)> {
    let settle = settle.unwrap_or(now + SETTLE);
    if changed.len() > MAX_CHANGED || now >= settle {
        return None;
    }
    let file = |path: &String| {
        let shared = SHARED.iter().any(|other| path.starts_with(other)) || path.contains("/.ssh/");
        let path = ManagedPath::new(path.as_str()).ok().filter(|_| !shared)?;
        let is_linked = spec.hard_targets().any(|(_, target)| *target == path);
        (spec.files.contains_key(&path) && !is_linked).then_some(path)
    };
    let paths = changed.iter().map(file).collect::<Option<_>>()?;
    Some((paths, settle))
}

fn outlined(drift: &[Difference]) -> Outline {
    let line = |found: &Difference| (found.kind, found.target.clone(), found.what, found.unrepaired.clone());
    drift.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::model::{ConfigName, Contents, FileSpec};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn only_changed_files_are_observed_until_all_is_due() {
        let mut spec = HostSpec::empty(ConfigName::new("rendered-a").unwrap());
        for path in ["/etc/app.conf", "/etc/systemd/system-preset/10-x.preset", "/home/core/.ssh/rc"] {
            let file = FileSpec::of_unit(Contents::new(Vec::new()));
            spec.files.insert(ManagedPath::new(path).unwrap(), file);
        }
        let look = |changed: &[&str], settle: Option<Duration>, now: Duration| {
            let changed: Vec<String> = changed.iter().map(|&path| path.to_owned()).collect();
            narrowed(&spec, &changed, settle, now)
        };
        let (paths, settle) = look(&["/etc/app.conf"], None, MINUTE).unwrap();
        assert_eq!(paths.iter().map(ManagedPath::as_str).collect::<Vec<_>>(), ["/etc/app.conf"]);
        assert_eq!(settle, MINUTE + SETTLE);
        // Changes without end do not put it off.
        assert_eq!(look(&["/etc/app.conf"], Some(settle), MINUTE + SETTLE / 2).unwrap().1, settle);
        assert_eq!(look(&["/etc/app.conf"], Some(settle), settle), None);
        for other in
            ["/etc/systemd/system-preset/10-x.preset", "/home/core/.ssh/rc", "/etc/passwd", "/ostree/deploy"]
        {
            assert_eq!(look(&["/etc/app.conf", other], None, MINUTE), None, "{other}");
        }
        assert_eq!(look(&["/etc/app.conf"; MAX_CHANGED + 1], None, MINUTE), None);
    }

    #[test]
    fn path_is_repaired_three_times_per_hour() {
        let (mut memory, path) = (Memory::default(), ManagedPath::new("/etc/app.conf").unwrap());
        let other = ManagedPath::new("/etc/other.conf").unwrap();
        for at in [0, 20, 40] {
            assert_eq!(memory.why_unrepaired(&path, MINUTE * at), None, "{at}");
            memory.repaired(path.clone(), MINUTE * at);
            memory.repaired(path.clone(), MINUTE * at);
        }
        let why = memory.why_unrepaired(&path, MINUTE * 59).unwrap();
        assert!(why.contains("3 times within an hour"), "{why}");
        assert_eq!(memory.why_unrepaired(&other, MINUTE * 59), None);
        // The first of the three is an hour old.
        assert_eq!(memory.why_unrepaired(&path, MINUTE * 60), None);
    }

    #[test]
    fn failed_repair_is_not_retried_for_one_hour() {
        let (mut memory, path) = (Memory::default(), ManagedPath::new("/etc/app.conf").unwrap());
        memory.failed(path.clone(), MINUTE, "it is a directory".to_owned());
        assert_eq!(
            memory.why_unrepaired(&path, MINUTE * 60).as_deref(),
            Some("the repair failed: it is a directory")
        );
        assert_eq!(memory.why_unrepaired(&path, MINUTE * 61), None);
    }
}
