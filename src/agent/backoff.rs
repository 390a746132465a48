//! How long to wait before the next try: doubling from a second to a minute, spread by the node's name so that a
//! thousand nodes that failed together do not come back together.

use std::time::Duration;

use crate::model::Sha256;

/// The longest wait, as MCD's: an administrator who mended the cause sees the node recover within a minute.
const LONGEST: u64 = 60_000;

/// The state of the waits.
#[derive(Debug)]
pub(super) struct Backoff {
    tries: u32,
    spread: u64,
}

impl Backoff {
    /// Derives the spread, 0 to 25 %, from the node's name: the same node always waits the same.
    pub(super) fn new(node: &str) -> Self {
        let digest = Sha256::of(node.as_bytes()).to_string();
        let spread =
            digest.get(..4).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default() % 250;
        Self { tries: 0, spread }
    }

    /// Returns the next wait.
    pub(super) fn next(&mut self) -> Duration {
        let base = 1000_u64.checked_shl(self.tries).unwrap_or(LONGEST).min(LONGEST);
        self.tries = (self.tries + 1).min(16);
        Duration::from_millis(base + base * self.spread / 1000)
    }

    /// Begins anew after a success.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_a_minute_and_begins_anew() {
        let mut backoff = Backoff::new("worker-0");
        let first = backoff.next();
        assert!((1000..1250).contains(&first.as_millis()));
        assert_eq!(backoff.next(), first * 2);
        let last = (0..40).map(|_| backoff.next()).last().unwrap();
        assert!((60_000..75_000).contains(&last.as_millis()));
        backoff.reset();
        assert_eq!(backoff.next(), first);
    }
}
