//! Waits of a first boot that come before its loop: for the names of the network interfaces, and for the lock of another
//! agent. No number of tries ends them: the kubelet starts only after the first boot.

use std::time::Duration;

use crate::model::backoff::Backoff;

/// Retries of what a first boot needs before it can begin.
#[derive(Debug, Clone)]
pub struct FirstBootRetry(Backoff);

impl FirstBootRetry {
    /// Creates it; nothing has failed yet.
    pub fn new(node: &str) -> Self {
        Self(Backoff::for_work(node))
    }

    /// Takes a failure, or a lock that is held: returns the wait for the next try.
    pub fn fail(&mut self) -> Duration {
        self.0.next_wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host whose interface names can't be pinned tries again ever less often, and never gives up.
    #[test]
    fn waits_grow_to_a_minute_without_end() {
        let mut retry = FirstBootRetry::new("worker-0");
        let waits: Vec<Duration> = (0..200).map(|_| retry.fail()).collect();
        let (first, last) = (waits[0], waits[199]);
        assert!((1000..1250).contains(&first.as_millis()), "{first:?}");
        assert!(waits.is_sorted(), "{waits:?}");
        assert!((60_000..75_000).contains(&last.as_millis()), "{last:?}");
    }

    /// Hosts that are installed at once do not try in step.
    #[test]
    fn waits_differ_by_host() {
        let wait = |node| FirstBootRetry::new(node).fail();
        let waits = [wait("worker-0"), wait("worker-1"), wait("worker-2"), wait("worker-3")];
        assert!(waits.iter().any(|one| *one != waits[0]), "{waits:?}");
    }
}
