//! Next try of an update that failed and is undone: `update::ending` decides the events that may cause it, here is the
//! time.

use std::time::Duration;

use super::mode::RunMode;
use crate::model::backoff::Backoff;
use crate::update::Record;
use crate::update::ending::{RetryTrigger, Try, next_try};

/// The next try of a held update.
#[derive(Debug, Clone, Default)]
pub struct Retry {
    /// Source of the present request.
    trigger: RetryTrigger,
    /// The hold, once it began.
    hold: Option<Hold>,
}

/// Times are since the boot.
#[derive(Debug, Clone, Copy)]
struct Hold {
    since: Duration,
    /// Time of the next try. Passes in between do not move it.
    due: Option<Duration>,
}

/// Next state of the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The update is tried now.
    Try,
    /// It is held: for this long at most, or until a request.
    Wait(Option<Duration>),
}

impl Retry {
    /// Takes note of a request; the strongest reason counts.
    pub fn request(&mut self, trigger: RetryTrigger) {
        self.trigger = self.trigger.max(trigger);
    }

    /// Clears the requests: a pass has answered them.
    pub fn answered(&mut self) {
        self.trigger = RetryTrigger::Time;
    }

    /// Returns the key of this state: equal for equal states.
    #[cfg(test)]
    pub(super) fn key(&self, now: Duration) -> String {
        let from_now =
            |at: Duration| (at.saturating_sub(now).as_secs(), now.saturating_sub(at).as_secs().min(11));
        format!(
            "{:?} {:?}",
            self.trigger,
            self.hold.map(|hold| (from_now(hold.since).1, hold.due.map(from_now)))
        )
    }

    /// Ends the hold: the next one has a time of its own.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns the time of the next try by itself, since the boot.
    pub fn due(&self) -> Option<Duration> {
        self.hold.and_then(|hold| hold.due)
    }

    /// Returns the next step of a hold, which begins with the first call.
    pub fn next(&mut self, record: &Record, mode: RunMode, backoff: &mut Backoff, now: Duration) -> Next {
        let trigger = std::mem::take(&mut self.trigger);
        let hold = self.hold.get_or_insert(Hold { since: now, due: None });
        let held = match mode {
            RunMode::Daemon | RunMode::FirstBoot => now.saturating_sub(hold.since),
            // A person waits for the end of `apply`: each run is a try, and no program that never rests.
            RunMode::OneShot => Duration::MAX,
        };
        let next = next_try(record, trigger, held);
        if next == Try::Now || hold.due.is_some_and(|due| due <= now) {
            return Next::Try;
        }
        match next {
            Try::In(rest) => hold.due = Some(hold.due.map_or(now + rest, |due| due.min(now + rest))),
            Try::Within(longest) if hold.due.is_none() => {
                hold.due = Some(now + backoff.next_wait_up_to(longest));
            }
            Try::Now | Try::Within(_) | Try::Never => {}
        }
        Next::Wait(hold.due.map(|due| due.saturating_sub(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::example::spec;
    use crate::model::policy::DisruptionPolicy;
    use crate::model::{BootId, Facts, FaultClass, Timestamp, UpdateId};
    use crate::plan::plan;
    use crate::update::Fault;
    use crate::update::ending::{LATER, SHORTEST_HOLD};

    fn failed(reason: &str) -> Record {
        let (from, to) = (spec("rendered-a"), spec("rendered-b"));
        let facts = Facts::assumed(&from, &to).unwrap();
        let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        let (id, boot) = (UpdateId::new("1").unwrap(), BootId::new("b").unwrap());
        let text = |text: &str| text.to_owned();
        let fault = Fault {
            class: FaultClass::Degraded,
            reason: text(reason),
            message: text("it is a test"),
            next: text("Wait."),
        };
        Record { fault: Some(fault), ..Record::new(id, plan, boot, None, Timestamp::default()) }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn passes_in_between_do_not_move_next_try() {
        let (record, mut retry, mut backoff) =
            (failed("Io"), Retry::default(), Backoff::for_work("worker-0"));
        let mut next = |now| retry.next(&record, RunMode::Daemon, &mut backoff, now);
        let Next::Wait(Some(first)) = next(seconds(100)) else { panic!("no time is set") };
        assert!(first <= LATER + LATER / 4, "{first:?}");
        let half = first / 2;
        assert_eq!(next(seconds(100) + half), Next::Wait(Some(first.saturating_sub(half))));
        assert_eq!(next(seconds(100) + first), Next::Try);
    }

    #[test]
    fn host_changes_retry_every_ten_seconds() {
        let (record, mut retry, mut backoff) =
            (failed("Io"), Retry::default(), Backoff::for_work("worker-0"));
        for trigger in [RetryTrigger::Host, RetryTrigger::Rewritten] {
            retry.end();
            for now in [0, 4] {
                retry.request(trigger);
                let next = retry.next(&record, RunMode::Daemon, &mut backoff, seconds(now));
                assert_eq!(next, Next::Wait(Some(SHORTEST_HOLD.saturating_sub(seconds(now)))), "{trigger:?}");
            }
            assert_eq!(retry.next(&record, RunMode::Daemon, &mut backoff, SHORTEST_HOLD), Next::Try);
        }
        retry.end();
        retry.request(RetryTrigger::Rewritten);
        assert_eq!(retry.next(&record, RunMode::OneShot, &mut backoff, seconds(0)), Next::Try);
        retry.end();
        retry.request(RetryTrigger::Person);
        assert_eq!(retry.next(&record, RunMode::Daemon, &mut backoff, seconds(0)), Next::Try);
    }

    #[test]
    fn retry_request_ends_with_its_answer() {
        let (record, mut retry) = (failed("InvalidConfig"), Retry::default());
        let mut backoff = Backoff::for_work("worker-0");
        retry.request(RetryTrigger::Person);
        retry.answered();
        assert_eq!(retry.next(&record, RunMode::Daemon, &mut backoff, seconds(0)), Next::Wait(None));
    }
}
