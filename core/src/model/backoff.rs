//! When to try again: waits that double, and are spread by the node's name so that a thousand nodes that failed together
//! do not come back together. The same node always draws the same numbers.

use std::time::Duration;

use super::Sha256;

/// The first wait, in milliseconds.
const FIRST: u64 = 1000;

/// The longest wait of the node's work, as MCD's: an administrator who repaired the cause sees it recover within a minute.
const LONGEST_OF_WORK: u64 = 60_000;

/// The longest wait of a request: an API server that is back is noticed within half a minute.
const LONGEST_OF_REQUESTS: u64 = 30_000;

/// The longest wait for an object that an update was begun with and that is not there yet.
const LONGEST_OF_AWAITED: u64 = 5_000;

/// The first and the longest wait for a kind that the cluster does not have: it may be about to come, or never does.
const OF_ABSENT: (u64, u64) = (5_000, 600_000);

/// Differences of the delays between nodes.
#[derive(Debug, Clone, Copy)]
enum Jitter {
    /// Each wait is longer by the same share, in thousandths.
    Longer(u64),
    /// Each is drawn: anywhere in the first one, then in the second half.
    Drawn,
}

/// The back-off of one kind of retry.
#[derive(Debug, Clone)]
pub struct Backoff {
    seed: String,
    first: u64,
    longest: u64,
    spread: Jitter,
    drawn: u64,
    tries: u32,
}

impl Backoff {
    /// Creates the back-off of a node's work: 1, 2, 4, ... 60 s, all longer by 0 to 25 % that the name decides.
    pub fn for_work(node: &str) -> Self {
        Self::new(node, (FIRST, LONGEST_OF_WORK), Jitter::Longer(number(node, 250)))
    }

    /// Creates the back-off for an object that is not there yet: 1, 2, 4, 5, 5 ... s, all longer by 0 to 25 %.
    pub fn for_missing_object(node: &str) -> Self {
        Self::new(node, (FIRST, LONGEST_OF_AWAITED), Jitter::Longer(number(node, 250)))
    }

    /// Creates the back-off for a kind that the cluster does not have: up to 5 s, then half to all of 10, 20 ... 600 s.
    pub fn for_missing_kind(seed: &str) -> Self {
        Self::new(seed, OF_ABSENT, Jitter::Drawn)
    }

    /// Creates the back-off of requests, with the node's name or uid: up to a second, then half to all of 2, 4, ... 30 s.
    pub fn for_requests(seed: &str) -> Self {
        Self::new(seed, (FIRST, LONGEST_OF_REQUESTS), Jitter::Drawn)
    }

    fn new(seed: &str, (first, longest): (u64, u64), spread: Jitter) -> Self {
        Self { seed: seed.to_owned(), first, longest, spread, drawn: 0, tries: 0 }
    }

    /// Draws a number below `limit`.
    pub fn draw(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        number(&format!("{}/{}", self.seed, self.drawn), limit)
    }

    /// Returns the next wait.
    pub fn next_wait(&mut self) -> Duration {
        self.next_wait_up_to(Duration::from_millis(self.longest))
    }

    /// Returns the next wait, which grows up to another one than the longest.
    pub fn next_wait_up_to(&mut self, longest: Duration) -> Duration {
        let longest = u64::try_from(longest.as_millis()).unwrap_or(self.longest);
        let tries = self.tries;
        self.tries = (tries + 1).min(16);
        let whole = self.first.checked_shl(tries).unwrap_or(longest).min(longest);
        Duration::from_millis(match self.spread {
            Jitter::Longer(share) => whole + whole * share / 1000,
            Jitter::Drawn if tries == 0 => self.draw(whole),
            Jitter::Drawn => whole / 2 + self.draw(whole / 2),
        })
    }

    /// Returns true if the last try failed.
    pub fn is_failing(&self) -> bool {
        self.tries > 0
    }

    /// Starts again after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

/// Derives a number below `limit` from a text.
fn number(text: &str, limit: u64) -> u64 {
    let digest = Sha256::digest(text.as_bytes()).to_string();
    let number = digest.get(..8).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default();
    number % limit.max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn work_doubles_to_minute_and_begins_again() {
        let mut backoff = Backoff::for_work("worker-0");
        let first = backoff.next_wait();
        assert!((1000..1250).contains(&first.as_millis()));
        assert_eq!(backoff.next_wait(), first * 2);
        let last = (0..40).map(|_| backoff.next_wait()).last().unwrap();
        assert!((60_000..75_000).contains(&last.as_millis()));
        let last = backoff.next_wait_up_to(Duration::from_secs(600));
        assert!((600_000..750_000).contains(&last.as_millis()), "{last:?}");
        backoff.reset();
        assert_eq!(backoff.next_wait(), first);
        let firsts: BTreeSet<Duration> =
            (0..50).map(|n| Backoff::for_work(&format!("worker-{n}")).next_wait()).collect();
        assert!(firsts.len() > 30, "{firsts:?}");
    }

    /// An object that comes late is noticed within 6.25 s, and a fleet does not request in step.
    #[test]
    fn awaited_object_is_requested_every_few_seconds() {
        let waits = |node: &str| {
            let mut backoff = Backoff::for_missing_object(node);
            (0..40).map(|_| backoff.next_wait().as_millis()).collect::<Vec<_>>()
        };
        assert!(waits("worker-0").iter().all(|wait| *wait < 6_250));
        assert!(waits("worker-0").iter().skip(3).all(|wait| *wait >= 5_000));
        let lasts: BTreeSet<_> =
            (0..50).map(|node| waits(&format!("worker-{node}")).last().copied()).collect();
        assert!(lasts.len() > 30, "{lasts:?}");
    }

    /// A kind that never comes costs a node six requests an hour.
    #[test]
    fn absent_kind_is_requested_ever_less_often() {
        let mut backoff = Backoff::for_missing_kind("worker-0");
        assert!(backoff.next_wait().as_millis() < 5_000);
        let second = backoff.next_wait().as_millis();
        assert!((5_000..10_000).contains(&second), "{second}");
        let last = (0..40).map(|_| backoff.next_wait().as_secs()).last().unwrap();
        assert!((300..600).contains(&last), "{last}");
    }

    #[test]
    fn requests_double_to_half_minute_and_differ_by_node() {
        let mut backoff = Backoff::for_requests("worker-0");
        assert!(backoff.next_wait() < Duration::from_secs(1));
        let second = backoff.next_wait().as_millis();
        assert!((1000..2000).contains(&second), "{second}");
        let last = (0..20).map(|_| backoff.next_wait()).last().unwrap().as_millis();
        assert!((15_000..30_000).contains(&last), "{last}");
        assert!(backoff.is_failing());
        backoff.reset();
        assert!(!backoff.is_failing() && backoff.next_wait() < Duration::from_secs(1));
        let firsts: BTreeSet<Duration> =
            (0..50).map(|n| Backoff::for_requests(&format!("worker-{n}")).next_wait()).collect();
        assert!(firsts.len() > 40, "{firsts:?}");
    }
}
