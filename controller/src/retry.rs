//! Pauses between tries of what is refused again and again; pure. Times are those of the process's own clock.

mod cause;
mod turns;

use std::collections::BTreeMap;
use std::time::Duration;

pub use cause::{essence, is_same};
pub use turns::{FORMER, KEPT, MAX_TURNS, REMEMBERED, Turn, Turns, turn};

/// The first pause.
const FIRST: Duration = Duration::from_secs(2);

/// The longest pause.
pub const LONGEST: Duration = Duration::from_secs(300);

/// Returns the pause after so many tries in a row: 2, 4, 8, ... 300 s.
pub fn pause(tries: u32) -> Duration {
    let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST.saturating_mul(factor.max(1)).min(LONGEST)
}

/// Things that are tried again: each by its name, and with its input, whose change is a reason to try at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retries {
    tried: BTreeMap<String, Tried>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tried {
    input: String,
    cause: String,
    tries: u32,
    next: Duration,
}

impl Retries {
    /// Returns the time to wait before the next try; `None` if it is due.
    pub fn wait(&self, name: &str, input: &str, now: Duration) -> Option<Duration> {
        let tried = self.tried.get(name).filter(|tried| tried.input == input)?;
        tried.next.checked_sub(now).filter(|wait| !wait.is_zero())
    }

    /// Returns the time until the next try of what failed last, whatever its input.
    pub fn next(&self, name: &str, now: Duration) -> Option<Duration> {
        Some(self.tried.get(name)?.next.saturating_sub(now))
    }

    /// Records a failure; returns the pause before the next try, and true if its cause is news. The same cause keeps its first words.
    pub fn failed(&mut self, name: &str, input: &str, cause: &str, now: Duration) -> (Duration, bool) {
        self.failed_for(name, input, cause, LONGEST, now)
    }

    /// As [`Retries::failed`], with a longest pause.
    pub fn failed_for(
        &mut self,
        name: &str,
        input: &str,
        cause: &str,
        longest: Duration,
        now: Duration,
    ) -> (Duration, bool) {
        let before = self.tried.get(name);
        let known = before.map(|before| &before.cause).filter(|known| is_same(known, cause));
        let (is_news, cause) = (known.is_none(), known.map_or(cause, |known| known).to_owned());
        let tries = before.filter(|tried| tried.input == input).map_or(0, |tried| tried.tries);
        let pause = pause(tries.saturating_add(1)).min(longest);
        let tried = Tried {
            input: input.to_owned(),
            cause,
            tries: tries.saturating_add(1),
            next: now.saturating_add(pause),
        };
        self.tried.insert(name.to_owned(), tried);
        (pause, is_news)
    }

    /// Returns the number of failures in a row with the last input.
    pub fn tries(&self, name: &str) -> u32 {
        self.tried.get(name).map_or(0, |tried| tried.tries)
    }

    /// Returns the cause of the last failure of what has not succeeded since.
    pub fn cause(&self, name: &str) -> Option<&str> {
        self.tried.get(name).map(|tried| &*tried.cause)
    }

    /// Forgets what succeeded; returns true if it had failed.
    pub fn succeeded(&mut self, name: &str) -> bool {
        self.tried.remove(name).is_some()
    }

    /// Forgets what is gone.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.tried.retain(|name, _| is_kept(name));
    }
}

/// A value is written so often in a row before somebody else is said to write it, too.
const MAX_REPEATED: u32 = 3;

/// So often another process has written a value at least that it tells of: the pause after it is 32 s.
const TAKEN_OVER: u32 = MAX_REPEATED + 4;

/// Values that are written again although they did not change: another program writes them, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repeats {
    written: BTreeMap<String, Written>,
    /// When those that are over were forgotten.
    swept: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    value: String,
    times: u32,
    at: Duration,
}

impl Written {
    fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < LONGEST.saturating_mul(2)
    }

    fn is_fought(&self) -> bool {
        self.times >= MAX_REPEATED
    }
}

impl Repeats {
    /// Returns the time to wait before a value is written again; `None` if it may be written.
    pub fn wait(&self, name: &str, value: &str, now: Duration) -> Option<Duration> {
        let written = self.written.get(name).filter(|written| written.value == value)?;
        let surplus = written.times.checked_sub(MAX_REPEATED - 1).filter(|surplus| *surplus > 0)?;
        let next = written.at.saturating_add(pause(surplus));
        next.checked_sub(now).filter(|wait| !wait.is_zero())
    }

    /// Returns true if a value is about to be written too often in a row: another program sets it back. Of another value nobody has done so yet.
    pub fn is_contested(&self, name: &str, value: &str, now: Duration) -> bool {
        let written = self.written.get(name).filter(|written| written.is_recent(now));
        written.is_some_and(|written| written.value == value && written.times >= MAX_REPEATED - 1)
    }

    /// Returns the time until a value counts as kept that was written too often in a row; `None` if it was not, or counts as kept.
    pub fn unproven(&self, name: &str, value: &str, now: Duration) -> Option<Duration> {
        let written = self.written.get(name).filter(|written| written.value == value)?;
        let kept = written.at.saturating_add(KEPT).checked_sub(now).filter(|left| !left.is_zero());
        kept.filter(|_| written.is_fought())
    }

    /// Takes over what another process wrote too often in a row: the next write waits for as long as a value takes to count as kept.
    pub fn take_over(&mut self, name: &str, value: &str, now: Duration) {
        let written = Written { value: value.to_owned(), times: TAKEN_OVER, at: now };
        self.written.insert(name.to_owned(), written);
    }

    /// Forgets a value: it was changed by an own write.
    pub fn forget(&mut self, name: &str) {
        self.written.remove(name);
    }

    /// Records a write; returns true if it is the first one of too many in a row.
    pub fn wrote(&mut self, name: &str, value: &str, now: Duration) -> bool {
        // One that held for long is a new matter.
        let before = self.written.get(name).filter(|written| written.is_recent(now));
        let (times, is_told) = match before {
            Some(before) if before.value == value => {
                let times = before.times.saturating_add(1);
                (times, times == MAX_REPEATED)
            }
            // A change of ours: whether another program sets it back as well is not known yet.
            Some(_) | None => (1, false),
        };
        // What is not written any more is forgotten, now and then.
        if now.saturating_sub(self.swept) > LONGEST {
            self.swept = now;
            self.written.retain(|_, written| written.is_recent(now));
        }
        self.written.insert(name.to_owned(), Written { value: value.to_owned(), times, at: now });
        is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let pauses: Vec<u64> = [0, 1, 2, 3, 8, 9, 40, u32::MAX].map(|tries| pause(tries).as_secs()).into();
        assert_eq!(pauses, [2, 2, 4, 8, 256, 300, 300, 300]);
    }

    #[test]
    fn another_input_is_tried_at_once() {
        let mut retries = Retries::default();
        assert_eq!(retries.wait("worker", "a", at(0)), None);
        assert_eq!(retries.failed("worker", "a", "no", at(0)), (at(2), true));
        assert_eq!(retries.wait("worker", "a", at(1)), Some(at(1)));
        assert_eq!(retries.wait("worker", "a", at(2)), None);
        assert_eq!(retries.failed("worker", "a", "no", at(2)), (at(4), false));
        assert_eq!(retries.wait("worker", "b", at(3)), None);
        assert_eq!(retries.failed("worker", "b", "no", at(3)), (at(2), false));
        assert_eq!(retries.cause("worker"), Some("no"));
        assert!(retries.succeeded("worker"));
        assert!(!retries.succeeded("worker"));
    }

    /// A time, a port or a number of a request is other words for the same cause.
    #[test]
    fn same_cause_in_other_words_is_no_news() {
        let mut retries = Retries::default();
        let mut is_news = |cause: &str| retries.failed("worker", "a", cause, at(0)).1;
        assert!(is_news(
            "webhook: dial tcp 10.0.0.1:51234->10.0.0.2:443: i/o timeout after 1.52s at 2026-11-28T17:00:00Z (500)"
        ));
        assert!(!is_news(
            "webhook: dial tcp 10.0.0.1:40001->10.0.0.2:443: i/o timeout after 31ms at 2026-11-29T18:01:02.5Z (500)"
        ));
        assert!(is_news(
            "webhook: dial tcp 10.0.0.1:40001->10.0.0.2:443: i/o timeout after 31ms at 2026-11-29T18:01:02.5Z (503)"
        ));
        assert!(is_news("denied: trace 51, request 0b1c2d3e-0000-4a5b-8c7d-001122334455"));
        assert!(!is_news("denied: trace 7, request 9f1c2d3e-1111-4a5b-8c7d-aabbccddeeff"));
        // Objects are not.
        assert!(is_news("MachineConfig 50-worker is refused: quota of ns1"));
        assert!(is_news("MachineConfig 60-worker is refused: quota of ns1"));
        assert!(is_news("MachineConfig 60-worker is refused: quota of ns2"));
    }

    #[test]
    fn value_that_is_written_again_and_again_waits() {
        let mut repeats = Repeats::default();
        let mut written = Vec::new();
        let mut told = 0;
        for second in 0..40 {
            if repeats.wait("worker", "a", at(second)).is_none() {
                told += u32::from(repeats.wrote("worker", "a", at(second)));
                written.push(second);
            }
        }
        assert_eq!((written, told), (vec![0, 1, 2, 4, 8, 16, 32], 1));
        assert!(repeats.is_contested("worker", "a", at(40)) && !repeats.is_contested("worker", "a", at(900)));
        let unproven = |second| repeats.unproven("worker", "a", at(second));
        assert_eq!((unproven(40), unproven(62)), (Some(at(22)), None));
        // Another value is our own change: it starts free, and so does each one after it.
        for (second, value) in [(40, "b"), (41, "c"), (42, "d")] {
            assert_eq!(repeats.wait("worker", value, at(second)), None);
            assert!(!repeats.is_contested("worker", value, at(second)));
            assert!(!repeats.wrote("worker", value, at(second)));
            assert_eq!(repeats.wait("worker", value, at(second)), None);
            assert_eq!(repeats.unproven("worker", value, at(second)), None);
        }
        // The other program is still there: it is told of once more.
        let told = [43, 44].map(|second| repeats.wrote("worker", "d", at(second)));
        assert_eq!((told, repeats.unproven("worker", "d", at(44))), ([false, true], Some(at(30))));
        // One that held for long is a new matter.
        assert!(!repeats.wrote("worker", "a", at(40 + 3600)));
        assert_eq!(repeats.wait("worker", "a", at(40 + 3600)), None);
        repeats.take_over("worker", "c", at(4000));
        assert_eq!(repeats.wait("worker", "c", at(4000)), Some(at(32)));
        assert_eq!(repeats.unproven("worker", "c", at(4000)), Some(at(30)));
    }
}
