//! Leader election by a Lease: the decision. Pure.
//!
//! The API server's `resourceVersion` is the only judge: a Lease is taken and renewed by a write that names the version that
//! was read, so that of two writers one is refused. The times within the object are for people and are never compared: a wall
//! clock that jumps, here or there, changes nothing. How long a version has been the newest is measured on this process's own
//! monotonic clock, from the moment at which it was observed.
//!
//! At most one process leads: a leader acts until the renew deadline after it *sent* its last renewal. Another one takes the
//! Lease a whole duration after it *saw* that renewal, and only if it is still the newest. It saw it after it was sent. A
//! deleted Lease does not name its last holder: the process that creates it waits for a renew deadline before it acts, unless it
//! is known that nobody led here before, as when a cluster gets its first controller.
//!
//! An etcd that was restored from a backup has older versions, and its Lease may name nobody while the leader of the lost
//! history still acts. A candidate takes an older version for what it is, the newest one there is, and waits for a whole
//! duration also where it names no holder. A leader takes one only as the answer to a read: its watch may be behind its own
//! renewals.

mod timing;

use std::time::Duration;

pub use timing::{Timing, TimingError};

/// The longest duration that a replica writes: that of another program may be of years.
const MAX_DURATION: Duration = Duration::from_secs(3600);

/// A Lease as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its version.
    pub version: String,
    /// Holder; `None` once it was released.
    pub holder: Option<String>,
    /// Number of its holders so far.
    pub transitions: i32,
    /// Duration that its holder wrote.
    pub duration: Duration,
}

/// Last observation, and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LastRead {
    Nothing,
    Absent,
    There {
        lease: Lease,
        since: Duration,
        /// It is older than one that was known before.
        is_restored: bool,
    },
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
    /// A Lease was there that another process made.
    has_seen: bool,
}

impl Election {
    /// Begins; `me` is no other process's name, also not that of this one before a restart.
    pub const fn new(me: String, timing: Timing) -> Self {
        Self {
            me,
            timing,
            last_read: LastRead::Nothing,
            role: Role::Candidate,
            not_before: Duration::ZERO,
            has_seen: false,
        }
    }

    /// Takes what a watch says. It may be behind an answer: an older version keeps a leader from nothing but a write, which the
    /// server would refuse. Returns false if it was ignored.
    pub fn observe(&mut self, lease: Option<Lease>, now: Duration) -> bool {
        let is_late = lease.as_ref().is_some_and(|lease| self.is_leader() && self.is_older(lease));
        if !is_late {
            self.read(lease, now);
        }
        !is_late
    }

    /// Takes the answer to a read: what the API server has, also where that is older.
    pub fn read(&mut self, lease: Option<Lease>, now: Duration) {
        let is_mine = |lease: &Lease| lease.holder.as_deref() == Some(self.me.as_str());
        if self.is_leader() && !lease.as_ref().is_some_and(is_mine) {
            self.role = Role::Lost;
        }
        let Some(lease) = lease else {
            if self.role != Role::Lost {
                self.last_read = LastRead::Absent;
            }
            return;
        };
        self.has_seen |= !self.is_leader();
        if !matches!(&self.last_read, LastRead::There { lease: known, .. } if *known == lease) {
            let is_restored = self.is_older(&lease);
            self.last_read = LastRead::There { lease, since: now, is_restored };
        }
    }

    fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// Returns true if a version came before the one that is known. The API server's versions are numbers that grow, and so is
    /// the number of holders, also where a restored etcd was given higher versions than it had.
    fn is_older(&self, lease: &Lease) -> bool {
        let LastRead::There { lease: known, .. } = &self.last_read else { return false };
        let numbers = (lease.version.parse::<u64>(), known.version.parse::<u64>());
        let is_lower = matches!(numbers, (Ok(new), Ok(known)) if new < known);
        is_lower || lease.transitions < known.transitions
    }

    /// Takes the answer to a write that was sent at a point in time: the Lease as it is now.
    pub fn written(&mut self, lease: Lease, sent: Duration, now: Duration) {
        let created = self.last_read == LastRead::Absent;
        let from = match self.role {
            Role::Leader { from, .. } => from,
            Role::Candidate if created => sent + self.timing.renew_deadline,
            Role::Candidate => sent,
            Role::Lost => return,
        };
        self.role = Role::Leader { from, until: sent + self.timing.renew_deadline, renewed: sent };
        self.last_read = LastRead::There { lease, since: now, is_restored: false };
    }

    /// Returns true if this process made the Lease, waits before it acts, and has seen no other one: to know that nobody led here before
    /// would end the wait.
    pub fn awaits_evidence(&self, now: Duration) -> bool {
        matches!(self.role, Role::Leader { from, .. } if now < from) && !self.has_seen
    }

    /// Takes it as known that nobody led here before: the process acts from now on.
    pub fn first_ever(&mut self, now: Duration) {
        if self.awaits_evidence(now)
            && let Role::Leader { from, .. } = &mut self.role
        {
            *from = now;
        }
    }

    /// Records that a write was refused or not answered.
    pub fn failed(&mut self, now: Duration) {
        self.not_before = now + self.timing.retry_after_failure();
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
                (renewed + self.timing.retry_period, Next::Write(lease.version.clone()))
            }
            (_, LastRead::Nothing) => return Next::Wait(None),
            (_, LastRead::Absent) => (Duration::ZERO, Next::Create),
            (Role::Candidate, LastRead::There { lease, since, is_restored }) => {
                let free = lease.holder.as_deref().is_none_or(str::is_empty) && !is_restored;
                // Never take over sooner than a holder can act.
                let wait = lease.duration.min(MAX_DURATION).max(self.timing.duration);
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
mod tests;
