//! Interlock with the Machine Config Operator, which may be at work in this cluster: the decision. Pure.
//!
//! Two programs on one pool set targets back and forth, and each counts the other's nodes as its own. So this one acts only where the
//! operator's Leases ([`LEASES`]) are free, or stay as they are for as long as they are valid. The times within a Lease are of another
//! machine's clock and are only compared with themselves: a Lease is renewed when its value changes while we watch, and the time
//! without a change is measured on our own monotonic clock.
//!
//! A pool may also have a target that the operator rendered, with nobody at work: a person says once that it is to be taken over.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::is_own_version;

/// Namespace of the operator.
pub const NAMESPACE: &str = "openshift-machine-config-operator";

/// Leases of its programs: the controller, and the operator, which brings the controller back.
pub const LEASES: [&str; 2] = ["machine-config-controller", "machine-config"];

/// The annotation of a pool whose target another program rendered: it is to be taken over.
pub const TAKE_OVER: &str = "machine-config-agent.io/take-over";

/// A Lease is never waited for longer, whatever duration it names. The operator's is 137 s.
const LONGEST: Duration = Duration::from_secs(300);

/// A Lease is waited for this long where it names no duration: the default of OpenShift.
const DEFAULT: Duration = Duration::from_secs(137);

/// A Lease of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its holder.
    pub holder: String,
    /// Time of the renewal, as its holder wrote it: it is not read, only compared.
    pub renewed: String,
    /// Time for which the holder leads without a renewal.
    pub duration: Option<Duration>,
}

/// State of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// It is absent, or nobody holds it.
    Free,
    /// It is held, and has this value since then.
    Held(Lease, Duration),
    /// Its value changed while we watched.
    Renewed(String),
}

/// The state of the interlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody else is at work.
    Clear,
    /// Not known yet; by time alone from then on, or by news.
    Wait(Option<Duration>),
    /// The operator is at work.
    AtWork {
        /// Its Lease.
        lease: &'static str,
        /// The holder.
        holder: String,
    },
}

/// The Leases as they were observed. All times are since the start of this process.
#[derive(Debug, Clone, Default)]
pub struct Interlock {
    leases: BTreeMap<&'static str, Known>,
}

impl Interlock {
    /// Takes a Lease as it is now; `None` where there is none.
    pub fn observe(&mut self, name: &'static str, lease: Option<Lease>, now: Duration) {
        let lease = lease.filter(|lease| !lease.holder.is_empty());
        let known = match (lease, self.leases.get(name)) {
            (None, _) => Known::Free,
            (Some(lease), Some(Known::Held(old, _))) if *old == lease => return,
            // It is held by the one that we saw, or by another one: either way somebody writes to it.
            (Some(lease), Some(Known::Held(..) | Known::Free | Known::Renewed(_))) => {
                Known::Renewed(lease.holder)
            }
            (Some(lease), None) => Known::Held(lease, now),
        };
        self.leases.insert(name, known);
    }

    /// Decides.
    pub fn verdict(&self, now: Duration) -> Verdict {
        let mut wait = None;
        for name in LEASES {
            match self.leases.get(name) {
                None => return Verdict::Wait(None),
                Some(Known::Free) => {}
                Some(Known::Renewed(holder)) => {
                    return Verdict::AtWork { lease: name, holder: holder.clone() };
                }
                Some(Known::Held(lease, since)) => {
                    let until = *since + lease.duration.unwrap_or(DEFAULT).min(LONGEST);
                    wait = wait.max((now < until).then_some(until));
                }
            }
        }
        wait.map_or(Verdict::Clear, |until| Verdict::Wait(Some(until)))
    }
}

/// A pool's target that another program rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTarget {
    /// The pool.
    pub pool: String,
    /// The rendered config.
    pub config: String,
    /// The version of the program that made it.
    pub version: String,
}

impl ForeignTarget {
    /// Compares a pool's target with its maker; `None` where it may be rendered here.
    pub fn new(pool: &str, is_taken_over: bool, config: &str, version: Option<&str>) -> Option<Self> {
        let version = version.filter(|version| !version.is_empty() && !is_own_version(version))?;
        (!is_taken_over).then(|| Self {
            pool: pool.to_owned(),
            config: config.to_owned(),
            version: version.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[expect(clippy::unnecessary_wraps, reason = "as it is observed")]
    fn held(holder: &str, renewed: &str) -> Option<Lease> {
        Some(Lease { holder: holder.to_owned(), renewed: renewed.to_owned(), duration: Some(at(137)) })
    }

    fn observed(leases: [Option<Lease>; 2]) -> Interlock {
        let mut interlock = Interlock::default();
        for (name, lease) in LEASES.into_iter().zip(leases) {
            interlock.observe(name, lease, at(0));
        }
        interlock
    }

    fn at_work(interlock: &Interlock, now: Duration) -> bool {
        matches!(interlock.verdict(now), Verdict::AtWork { .. })
    }

    #[test]
    fn nothing_is_clear_before_both_leases_were_read() {
        let mut interlock = Interlock::default();
        assert_eq!(interlock.verdict(at(9)), Verdict::Wait(None));
        interlock.observe(LEASES[0], None, at(9));
        assert_eq!(interlock.verdict(at(9999)), Verdict::Wait(None));
        interlock.observe(LEASES[1], held("", "1"), at(9));
        assert_eq!(interlock.verdict(at(9)), Verdict::Clear);
    }

    /// A time of a clock that is a year ahead is as good as any other.
    #[test]
    fn held_lease_is_stale_after_its_duration_by_own_clock() {
        for renewed in ["2027-01-01T00:00:00Z", "1970-01-01T00:00:00Z", ""] {
            let mut interlock = observed([held("a", renewed), None]);
            assert_eq!(interlock.verdict(at(136)), Verdict::Wait(Some(at(137))));
            // The same once more is no renewal.
            interlock.observe(LEASES[0], held("a", renewed), at(100));
            assert_eq!(interlock.verdict(at(137)), Verdict::Clear);
        }
    }

    #[test]
    fn change_of_held_lease_is_the_operator_at_work() {
        let mut waiting = observed([held("a", "1"), None]);
        waiting.observe(LEASES[0], held("a", "2"), at(26));
        assert!(at_work(&waiting, at(26)) && at_work(&waiting, at(9999)));
        // It stops by itself.
        waiting.observe(LEASES[0], held("", "3"), at(60));
        assert_eq!(waiting.verdict(at(60)), Verdict::Clear);
        let mut running = observed([None, None]);
        assert_eq!(running.verdict(at(1)), Verdict::Clear);
        running.observe(LEASES[1], held("b", "1"), at(500));
        let expected = Verdict::AtWork { lease: LEASES[1], holder: "b".to_owned() };
        assert_eq!(running.verdict(at(500)), expected, "it came later");
        let mut stale = observed([held("a", "1"), None]);
        assert_eq!(stale.verdict(at(200)), Verdict::Clear);
        stale.observe(LEASES[0], held("b", "1"), at(201));
        assert!(at_work(&stale, at(201)), "another holder");
    }

    #[test]
    fn lease_without_duration_is_waited_for() {
        let lease = |duration| Some(Lease { duration, ..held("a", "1").unwrap() });
        assert_eq!(observed([lease(None), None]).verdict(at(1)), Verdict::Wait(Some(DEFAULT)));
        let year = Some(Duration::from_secs(31_536_000));
        assert_eq!(observed([lease(year), None]).verdict(at(1)), Verdict::Wait(Some(LONGEST)));
    }

    #[test]
    fn target_of_another_program_is_foreign_until_it_is_taken_over() {
        let commit = Some("7ff337a4ffac8e7562692181178ede61e4b2eec5");
        let of = |is_taken_over, version| {
            ForeignTarget::new("worker", is_taken_over, "rendered-worker-1", version)
        };
        assert_eq!(of(false, commit).unwrap().pool, "worker");
        assert_eq!(of(true, commit), None);
        assert_eq!(of(false, Some(env!("CARGO_PKG_VERSION"))), None);
        // A person's own config, or one of an installation.
        assert_eq!((of(false, None), of(false, Some(""))), (None, None));
    }
}
