//! Named places where a test has the process die: between any two of them, a power cut must do no harm.
//!
//! A release has none of them, unless it is built with the feature `fail-points`: its environment must not end the
//! agent of a node in the middle of a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Selection of the point where the process dies.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    Off,
    Count,
    At(u64),
    Named(String),
}

/// The fail points of one process; clones count together. Off, they cost one comparison.
#[derive(Debug, Clone)]
pub struct FailPoints {
    mode: Mode,
    passed: Arc<AtomicU64>,
    /// Prefix of the names of these points.
    prefix: &'static str,
}

impl FailPoints {
    /// True in builds that have fail points: debug builds, and those with the feature.
    pub const ARE_BUILT: bool = cfg!(any(debug_assertions, feature = "fail-points"));

    /// Returns fail points that do nothing.
    pub fn off() -> Self {
        Self { mode: Mode::Off, passed: Arc::default(), prefix: "" }
    }

    /// Reads `count`, `kill:<k>` (the k-th point passed, from 1) or `kill:<name>` (the first of that name).
    pub fn parse(text: &str) -> Option<Self> {
        let mode = match text.split_once(':') {
            None if text == "count" => Mode::Count,
            Some(("kill", place)) if !place.is_empty() => match place.parse() {
                Ok(number) => Mode::At(number),
                Err(_) => Mode::Named(place.to_owned()),
            },
            None | Some(_) => return None,
        };
        Some(Self { mode, passed: Arc::default(), prefix: "" })
    }

    /// Passes a point: kills this process, without a chance to clean up, when it is the one.
    pub fn hit(&self, name: &str) {
        if !Self::ARE_BUILT || self.mode == Mode::Off {
            return;
        }
        let passed = self.passed.fetch_add(1, Ordering::Relaxed) + 1;
        let fatal = match &self.mode {
            Mode::Off | Mode::Count => false,
            Mode::At(number) => *number == passed,
            Mode::Named(point) => point.strip_prefix(self.prefix) == Some(name),
        };
        if fatal
            && rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .is_err()
        {
            std::process::abort();
        }
    }

    /// Returns the same points under names that begin otherwise, so that a test can tell two places apart.
    #[must_use]
    pub fn named(&self, prefix: &'static str) -> Self {
        Self { prefix, ..self.clone() }
    }

    /// Returns the number of passed points, if they are to be counted.
    pub fn counted(&self) -> Option<u64> {
        (self.mode == Mode::Count).then(|| self.count())
    }

    /// Returns the number of passed points.
    pub fn count(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_three_forms_and_counts() {
        for bad in ["", "kill", "kill:", "counts", "die:3"] {
            assert!(FailPoints::parse(bad).is_none(), "{bad:?}");
        }
        let fail_points = FailPoints::parse("kill:elsewhere").unwrap();
        fail_points.hit("here");
        fail_points.hit("there");
        assert_eq!(fail_points.count(), 2);
        let off = FailPoints::off();
        off.hit("here");
        assert_eq!(off.count(), 0);
    }
}
