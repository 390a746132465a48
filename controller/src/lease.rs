//! Leader election by a Lease: the decision. Pure.
//!
//! The API server's `resourceVersion` is the only judge: a Lease is taken and renewed by a write that names the version that
//! was read, so that of two writers one is refused. The times within the object are for people and are never compared: a wall
//! clock that jumps, here or there, changes nothing. How long a version has been the newest is measured on this process's own
//! monotonic clock, from the moment at which it was observed.
//!
//! At most one process leads: a leader acts for two thirds of the duration after it *sent* its last renewal. Another one
//! takes the Lease a whole duration after it *saw* that renewal, and only if it is still the newest. It saw it after it was
//! sent. A deleted Lease does not name its last holder: the process that creates it waits for a duration before it acts.

use std::time::Duration;

/// The times of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time that an unrenewed version keeps other processes away.
    pub duration: Duration,
}

impl Timing {
    /// Interval between renewals of the leader.
    fn renew(self) -> Duration {
        self.duration / 4
    }

    /// Returns the time that the leader may act after a renewal.
    fn valid(self) -> Duration {
        self.duration * 2 / 3
    }

    /// Returns the delay after a refused or lost request.
    fn retry(self) -> Duration {
        self.duration / 15
    }
}

/// A Lease as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its version.
    pub version: String,
    /// Holder; `None` once it was released.
    pub holder: Option<String>,
    /// Duration that its holder wrote.
    pub duration: Duration,
}

/// Last observation, and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LastRead {
    Nothing,
    Absent,
    There { lease: Lease, since: Duration },
}

/// Role of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Candidate,
    /// It holds the Lease: it may act from one point in time to another.
    Leader {
        from: Duration,
        until: Duration,
        renewed: Duration,
    },
    Lost,
}

/// Next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Create the Lease.
    Create,
    /// Write oneself into the Lease of this version.
    Write(String),
    /// Wait for news, at most until then; `None`: for as long as it takes.
    Wait(Option<Duration>),
    /// End the process: another one leads, or may.
    End,
}

/// One process's part in an election. All times are since its start.
#[derive(Debug, Clone)]
pub struct Election {
    me: String,
    timing: Timing,
    last_read: LastRead,
    role: Role,
    not_before: Duration,
}

impl Election {
    /// Begins; `me` is no other process's name, also not that of this one before a restart.
    pub const fn new(me: String, timing: Timing) -> Self {
        Self { me, timing, last_read: LastRead::Nothing, role: Role::Candidate, not_before: Duration::ZERO }
    }

    /// Takes what the API server has, from a watch or an answer. What is older than what is known may come late: it keeps this
    /// process from nothing but a write, which the server would refuse.
    pub fn observe(&mut self, lease: Option<Lease>, now: Duration) {
        let mine = |lease: &Lease| lease.holder.as_deref() == Some(self.me.as_str());
        let leads = matches!(self.role, Role::Leader { .. });
        match lease {
            None if leads => self.role = Role::Lost,
            None => self.last_read = LastRead::Absent,
            // A watch may be behind an answer.
            Some(lease) if self.is_old(&lease) => {}
            Some(lease) => {
                if leads && !mine(&lease) {
                    self.role = Role::Lost;
                }
                let known = matches!(&self.last_read, LastRead::There { lease: old, .. } if old.version == lease.version);
                if !known {
                    self.last_read = LastRead::There { lease, since: now };
                }
            }
        }
    }

    /// Returns true if a version came before the one that is known. The API server's versions are numbers that grow.
    fn is_old(&self, lease: &Lease) -> bool {
        let LastRead::There { lease: known, .. } = &self.last_read else { return false };
        let numbers = (lease.version.parse::<u64>(), known.version.parse::<u64>());
        matches!(numbers, (Ok(new), Ok(known)) if new < known)
    }

    /// Takes the answer to a write that was sent at a point in time: the Lease as it is now.
    pub fn written(&mut self, lease: Lease, sent: Duration, now: Duration) {
        let created = self.last_read == LastRead::Absent;
        let from = match self.role {
            Role::Leader { from, .. } => from,
            Role::Candidate if created => sent + self.timing.duration,
            Role::Candidate => sent,
            Role::Lost => return,
        };
        self.role = Role::Leader { from, until: sent + self.timing.valid(), renewed: sent };
        self.last_read = LastRead::There { lease, since: now };
    }

    /// Records that a write was refused or not answered.
    pub fn failed(&mut self, now: Duration) {
        self.not_before = now + self.timing.retry();
    }

    /// Returns until when this process may act, if it may now.
    pub fn leads(&self, now: Duration) -> Option<Duration> {
        match self.role {
            Role::Leader { from, until, .. } if from <= now && now < until => Some(until),
            Role::Leader { .. } | Role::Candidate | Role::Lost => None,
        }
    }

    /// Returns the version to release, if this process holds the Lease.
    pub fn held(&self) -> Option<&str> {
        match (&self.role, &self.last_read) {
            (Role::Leader { .. }, LastRead::There { lease, .. }) => Some(&lease.version),
            _ => None,
        }
    }

    /// Decides.
    pub fn next(&self, now: Duration) -> Next {
        let (due, write) = match (self.role, &self.last_read) {
            (Role::Lost, _) => return Next::End,
            (Role::Leader { until, .. }, _) if until <= now => return Next::End,
            (Role::Leader { renewed, .. }, LastRead::There { lease, .. }) => {
                (renewed + self.timing.renew(), Next::Write(lease.version.clone()))
            }
            (_, LastRead::Nothing) => return Next::Wait(None),
            (_, LastRead::Absent) => (Duration::ZERO, Next::Create),
            (Role::Candidate, LastRead::There { lease, since }) => {
                let free = lease.holder.as_deref().is_none_or(str::is_empty);
                // A holder that asks for less than it takes to act would be robbed.
                let wait = lease.duration.max(self.timing.duration);
                (if free { Duration::ZERO } else { *since + wait }, Next::Write(lease.version.clone()))
            }
        };
        let due = due.max(self.not_before);
        if due <= now { write } else { Next::Wait(Some(self.wake(due, now))) }
    }

    /// A leader also wakes when it may begin to act, and when it may not any more.
    fn wake(&self, due: Duration, now: Duration) -> Duration {
        match self.role {
            Role::Leader { from, until, .. } => {
                let begin = if from > now { from } else { due };
                due.min(until).min(begin)
            }
            Role::Candidate | Role::Lost => due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing { duration: Duration::from_secs(15) };

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease(version: u64, holder: &str) -> Lease {
        let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        Lease { version: version.to_string(), holder, duration: TIMING.duration }
    }

    fn candidate(name: &str) -> Election {
        Election::new(name.to_owned(), TIMING)
    }

    #[test]
    fn waits_whole_duration_for_unchanged_version() {
        let mut b = candidate("b");
        assert_eq!(b.next(at(0)), Next::Wait(None));
        b.observe(Some(lease(1, "a")), at(1));
        assert_eq!(b.next(at(15)), Next::Wait(Some(at(16))));
        b.observe(Some(lease(2, "a")), at(10));
        assert_eq!(b.next(at(20)), Next::Wait(Some(at(25))));
        // The same version again is no news.
        b.observe(Some(lease(2, "a")), at(20));
        assert_eq!(b.next(at(25)), Next::Write("2".to_owned()));
        // The server answers that it is not the newest.
        b.failed(at(25));
        assert_eq!(b.next(at(25)), Next::Wait(Some(at(26))));
        b.observe(Some(lease(3, "a")), at(25));
        assert_eq!(b.next(at(26)), Next::Wait(Some(at(40))));
        assert_eq!(b.leads(at(26)), None);
    }

    #[test]
    fn released_lease_is_taken_at_once() {
        let mut b = candidate("b");
        b.observe(Some(lease(1, "")), at(1));
        assert_eq!(b.next(at(1)), Next::Write("1".to_owned()));
        b.written(lease(2, "b"), at(1), at(2));
        assert_eq!(b.leads(at(2)), Some(at(11)));
        assert_eq!((b.held(), b.next(at(2))), (Some("2"), Next::Wait(Some(Duration::from_millis(4750)))));
        assert_eq!(b.next(at(5)), Next::Write("2".to_owned()));
    }

    #[test]
    fn leader_without_renewal_ends_before_others_may_take() {
        let mut a = candidate("a");
        a.observe(Some(lease(1, "")), at(0));
        a.written(lease(2, "a"), at(0), at(0));
        for second in 4..10 {
            assert_eq!(a.next(at(second)), Next::Write("2".to_owned()));
            a.failed(at(second));
        }
        assert_eq!((a.next(at(10)), a.leads(at(10))), (Next::End, None));
    }

    #[test]
    fn leader_ends_when_another_name_or_none_is_in_lease() {
        for other in [Some(lease(3, "b")), Some(lease(3, "")), None] {
            let mut a = candidate("a");
            a.observe(Some(lease(1, "")), at(0));
            a.written(lease(2, "a"), at(0), at(0));
            a.observe(other, at(1));
            assert_eq!((a.next(at(1)), a.leads(at(1)), a.held()), (Next::End, None, None));
            // It does not come back.
            a.written(lease(4, "a"), at(1), at(1));
            assert_eq!(a.leads(at(1)), None);
        }
    }

    /// A person's annotation gives the Lease another version.
    #[test]
    fn leader_renews_from_version_of_others() {
        let mut a = candidate("a");
        a.observe(Some(lease(1, "")), at(0));
        a.written(lease(2, "a"), at(0), at(0));
        a.observe(Some(lease(3, "a")), at(1));
        assert_eq!(a.next(at(4)), Next::Write("3".to_owned()));
    }

    /// The last holder of a deleted Lease may not have noticed.
    #[test]
    fn created_lease_is_held_for_duration_before_its_holder_acts() {
        let mut b = candidate("b");
        b.observe(None, at(0));
        assert_eq!(b.next(at(0)), Next::Create);
        b.written(lease(1, "b"), at(0), at(0));
        assert_eq!(b.leads(at(1)), None);
        let mut now = at(0);
        while now < at(15) {
            match b.next(now) {
                Next::Write(version) => b.written(lease(version.parse::<u64>().unwrap() + 1, "b"), now, now),
                Next::Wait(Some(until)) => now = until,
                Next::Create | Next::Wait(None) | Next::End => panic!("{now:?}"),
            }
        }
        assert_eq!((now, b.leads(now).is_some()), (at(15), true));
    }

    struct Random(u64);
    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }
    }

    /// Random delays of requests, answers and watches, and candidates that stop: no process ever acts while another one may.
    #[test]
    fn never_two_leaders() {
        let (mut terms, mut takes) = (0, 0);
        for seed in 0..300 {
            let mut random = Random(seed);
            let mut all = [candidate("a"), candidate("b"), candidate("c")];
            let mut server: Option<(u64, String)> = None;
            let mut version = 0;
            let mut leader: Option<usize> = None;
            let mut pending: Vec<(Duration, usize, Option<Lease>)> = Vec::new();
            for tick in 0..2000_u64 {
                let now = Duration::from_millis(tick * 100);
                if random.below(700) == 0 {
                    server = None; // The administrator's hand.
                }
                for (index, one) in all.iter_mut().enumerate() {
                    let stalled = (tick / 200 + u64::try_from(index).unwrap()) % 4 == seed % 4;
                    if !stalled && random.below(5) == 0 {
                        let lease = server.as_ref().map(|(version, holder)| lease(*version, holder));
                        pending.push((now + Duration::from_millis(random.below(3000)), index, lease));
                    }
                    let write = match one.next(now) {
                        Next::Create if server.is_none() => true,
                        Next::Write(of) => {
                            server.as_ref().is_some_and(|(version, _)| version.to_string() == of)
                        }
                        Next::Create => false,
                        Next::Wait(_) => continue,
                        Next::End => {
                            *one = candidate(&format!("{index}-{tick}"));
                            continue;
                        }
                    };
                    if !write || (stalled && random.below(2) == 0) {
                        one.failed(now);
                        continue;
                    }
                    version += 1;
                    takes += 1;
                    server = Some((version, one.me.clone()));
                    one.written(lease(version, &one.me.clone()), now, now);
                }
                pending.retain(|(when, index, lease)| {
                    let due = *when <= now;
                    if due {
                        all[*index].observe(lease.clone(), now);
                    }
                    !due
                });
                let leaders: Vec<usize> = (0..3).filter(|index| all[*index].leads(now).is_some()).collect();
                assert!(leaders.len() < 2, "seed {seed}, tick {tick}: {leaders:?}");
                if let [one] = leaders[..]
                    && leader != Some(one)
                {
                    (leader, terms) = (Some(one), terms + 1);
                }
            }
        }
        assert!(terms > 300 && takes > 3000, "{terms} terms, {takes} writes");
    }
}
