//! Retention of the previous deployment: until the node was healthy for as long as the administrator set.

use std::time::Duration;

/// Progress of the retention. A restart of the agent begins it again: the time is a lower limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// The node is not healthy, or not known to be.
    #[default]
    Unknown,
    /// It is healthy since then, by the time since the boot.
    HealthySince(Duration),
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
            Self::HealthySince(since) => since,
            Self::Unknown => now,
        };
        *self = Self::HealthySince(since);
        let left = within.saturating_sub(now.saturating_sub(since));
        if left.is_zero() { Due::Now } else { Due::In(left) }
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
        // Ill for a moment: the time begins again.
        assert_eq!(kept.due(Some(hour), false, hour + minute), Due::Nothing);
        assert_eq!(kept.due(Some(hour), true, hour + minute * 2), Due::In(hour));
        assert_eq!(kept.due(Some(hour), true, hour * 2 + minute * 2), Due::Now);
        kept = Retention::Given;
        assert_eq!(kept.due(Some(hour), true, hour * 9), Due::Nothing);
    }
}
