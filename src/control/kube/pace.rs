//! When to try again: doubling, and spread by the node's name so that nodes that lost the API server together do not
//! come back together. The same node always draws the same numbers.

use std::time::Duration;

use crate::model::Sha256;

/// The longest wait: an API server that is back is noticed within half a minute.
const LONGEST: u64 = 30_000;

/// The length of the first wait, at most.
const SHORTEST: u64 = 1000;

/// The waits of one kind of request.
#[derive(Debug)]
pub(super) struct Pace {
    seed: String,
    drawn: u64,
    tries: u32,
}

impl Pace {
    /// Begins with the node's name or uid.
    pub(super) fn new(seed: &str) -> Self {
        Self { seed: seed.to_owned(), drawn: 0, tries: 0 }
    }

    /// Draws a number below `limit`.
    pub(super) fn draw(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        let digest = Sha256::of(format!("{}/{}", self.seed, self.drawn).as_bytes()).to_string();
        let number = digest.get(..8).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default();
        number % limit.max(1)
    }

    /// Returns the next wait: up to a second first, then half to all of 2, 4, ... 30 s.
    pub(super) fn next(&mut self) -> Duration {
        let tries = self.tries;
        self.tries = (tries + 1).min(16);
        if tries == 0 {
            return Duration::from_millis(self.draw(SHORTEST));
        }
        let base = SHORTEST.checked_shl(tries).unwrap_or(LONGEST).min(LONGEST);
        Duration::from_millis(base / 2 + self.draw(base / 2))
    }

    /// Says whether the last try failed, too.
    pub(super) fn is_failing(&self) -> bool {
        self.tries > 0
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
    fn doubles_to_half_a_minute_and_differs_by_node() {
        let mut pace = Pace::new("worker-0");
        assert!(pace.next() < Duration::from_secs(1));
        let second = pace.next().as_millis();
        assert!((1000..2000).contains(&second), "{second}");
        let last = (0..20).map(|_| pace.next()).last().unwrap().as_millis();
        assert!((15_000..30_000).contains(&last), "{last}");
        assert!(pace.is_failing());
        pace.reset();
        assert!(!pace.is_failing() && pace.next() < Duration::from_secs(1));
        let firsts: std::collections::BTreeSet<u128> =
            (0..50).map(|n| Pace::new(&format!("worker-{n}")).next().as_millis()).collect();
        assert!(firsts.len() > 40, "{firsts:?}");
    }
}
