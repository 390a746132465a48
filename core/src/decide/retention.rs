//! Retention of the previous deployment: until the node was healthy for as long as the administrator set.

use std::time::Duration;

use crate::update::ending::{LATER, SOON};

/// Progress of the retention. A restart of the agent begins it again: the time is a lower limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// The node is not healthy, or not known to be.
    #[default]
    Unknown,
    /// It is healthy since then, by the time since the boot.
    HealthySince(Duration),
    /// It could not be given up so often; the next try is due then.
    Again {
        /// When.
        at: Duration,
        /// Number of failures.
        failures: u32,
    },
    /// The old deployment was given up.
    Given,
}

/// Due action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing, at any time.
    Nothing,
    /// Nothing before this time has passed.
    In(Duration),
    /// The old deployment is given up.
    Now,
}

impl Retention {
    /// Looks at a node that keeps its old deployment for `within`; `None` keeps it for ever.
    pub fn due(&mut self, within: Option<Duration>, is_healthy: bool, now: Duration) -> Due {
        let Some(within) = within else { return Due::Nothing };
        if !is_healthy {
            *self = Self::Unknown;
            return Due::Nothing;
        }
        let since = match *self {
            Self::Given => return Due::Nothing,
            Self::Again { at, .. } => {
                let left = at.saturating_sub(now);
                return if left.is_zero() { Due::Now } else { Due::In(left) };
            }
            Self::HealthySince(since) => since,
            Self::Unknown => now,
        };
        *self = Self::HealthySince(since);
        let left = within.saturating_sub(now.saturating_sub(since));
        if left.is_zero() { Due::Now } else { Due::In(left) }
    }

    /// Takes a failure at `now`: the next try is due after a minute, then ever later, up to ten minutes.
    pub fn fail(&mut self, now: Duration) {
        let failures = if let Self::Again { failures, .. } = *self { failures } else { 0 };
        let wait = SOON.saturating_mul(1 << failures.min(8)).min(LATER);
        *self = Self::Again { at: now + wait, failures: failures + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previous_deployment_is_removed_once_after_healthy_time() {
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        let mut kept = Retention::default();
        assert_eq!(kept.due(None, true, hour), Due::Nothing);
        assert_eq!(kept.due(Some(hour), true, hour), Due::In(hour));
        assert_eq!(kept.due(Some(hour), true, hour + minute), Due::In(minute * 59));
        // An unhealthy moment restarts the clock.
        assert_eq!(kept.due(Some(hour), false, hour + minute), Due::Nothing);
        assert_eq!(kept.due(Some(hour), true, hour + minute * 2), Due::In(hour));
        assert_eq!(kept.due(Some(hour), true, hour * 2 + minute * 2), Due::Now);
        kept.fail(hour * 3);
        assert_eq!(kept.due(Some(hour), true, hour * 3), Due::In(minute));
        assert_eq!(kept.due(Some(hour), true, hour * 3 + minute), Due::Now);
        for minutes in [2, 4, 8, 10, 10] {
            kept.fail(hour * 3);
            assert_eq!(kept.due(Some(hour), true, hour * 3), Due::In(minute * minutes));
        }
        kept = Retention::Given;
        assert_eq!(kept.due(Some(hour), true, hour * 9), Due::Nothing);
    }
}
