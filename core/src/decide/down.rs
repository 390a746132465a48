//! Progress of a requested reboot. A shutdown that was canceled, was never begun or never ended is
//! requested again, after a wait.

use std::time::Duration;

/// Time limit of a requested reboot to end this process. The longest shutdown a node is allowed
/// (`ostree-finalize-staged` alone has five minutes), and then some.
pub const REBOOT_TIMEOUT: Duration = Duration::from_secs(600);

/// Time limit of logind's signal that the shutdown begins: it comes before the reply.
pub const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Progress of the end of this boot, as far as this process knows. Times are since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Down {
    /// No reboot is requested.
    #[default]
    Up,
    /// It was requested; when it has not begun, or not ended, until then, it is requested again.
    Requested {
        /// Set once it has begun.
        begun: bool,
        /// The end of the timeout.
        until: Duration,
    },
    /// It came to nothing; it is requested again then.
    Later {
        /// When.
        at: Duration,
    },
}

/// logind's state of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// One is under way now.
    pub preparing: bool,
    /// One was begun since the subscription, even if it was canceled since.
    pub was_begun: bool,
}

/// Progress of the end of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownProgress {
    /// Nothing keeps from asking for the reboot.
    Free,
    /// To be waited for, this long at most.
    Wait(Duration),
    /// The reboot that was requested came to nothing: how.
    InVain(&'static str),
}

impl Down {
    /// Creates the state of a reboot that was requested at `now`.
    pub fn requested(now: Duration) -> Self {
        Self::Requested { begun: false, until: now + BEGIN_TIMEOUT }
    }

    /// Takes a shutdown of another program for the one that is needed: requests to a machine that goes down
    /// fail.
    pub fn join(&mut self, shutdown: Shutdown, now: Duration) {
        if *self == Self::Up && shutdown.preparing && shutdown.was_begun {
            *self = Self::Requested { begun: true, until: now + REBOOT_TIMEOUT };
        }
    }

    /// Returns true if a requested reboot is not answered yet: only then logind's state is needed.
    pub fn is_requested(&self) -> bool {
        matches!(self, Self::Requested { .. })
    }

    /// Returns the progress of the shutdown that was requested.
    pub fn progress(&mut self, shutdown: Shutdown, now: Duration) -> ShutdownProgress {
        let (begun, until) = match self {
            Self::Up => return ShutdownProgress::Free,
            Self::Later { at } if now < *at => return ShutdownProgress::Wait(at.saturating_sub(now)),
            Self::Later { .. } => {
                *self = Self::Up;
                return ShutdownProgress::Free;
            }
            Self::Requested { begun, until } => (begun, until),
        };
        if shutdown.preparing && !*begun {
            *until = now + REBOOT_TIMEOUT;
        }
        *begun |= shutdown.preparing || shutdown.was_begun;
        match (shutdown.preparing, *begun, now < *until) {
            (true, _, true) | (false, false, true) => ShutdownProgress::Wait(until.saturating_sub(now)),
            (true, _, false) => ShutdownProgress::InVain("has not ended this boot in ten minutes"),
            (false, true, _) => ShutdownProgress::InVain("was cancelled"),
            (false, false, false) => ShutdownProgress::InVain("was not begun"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Shutdown = Shutdown { preparing: false, was_begun: false };
    const BEGUN: Shutdown = Shutdown { preparing: true, was_begun: true };
    const TAKEN_BACK: Shutdown = Shutdown { preparing: false, was_begun: true };

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn shutdown_has_half_minute_to_begin_and_ten_minutes_to_end() {
        let mut down = Down::requested(seconds(100));
        assert_eq!(down.progress(NOTHING, seconds(100)), ShutdownProgress::Wait(BEGIN_TIMEOUT));
        assert_eq!(down.progress(NOTHING, seconds(129)), ShutdownProgress::Wait(seconds(1)));
        let mut never = down;
        assert_eq!(never.progress(NOTHING, seconds(130)), ShutdownProgress::InVain("was not begun"));
        assert_eq!(down.progress(BEGUN, seconds(129)), ShutdownProgress::Wait(REBOOT_TIMEOUT));
        assert_eq!(down.progress(BEGUN, seconds(728)), ShutdownProgress::Wait(seconds(1)));
        assert_eq!(
            down.progress(BEGUN, seconds(729)),
            ShutdownProgress::InVain("has not ended this boot in ten minutes")
        );
    }

    /// Also when it came and went between two looks.
    #[test]
    fn canceled_shutdown_is_noticed() {
        let mut down = Down::requested(Duration::ZERO);
        assert_eq!(down.progress(TAKEN_BACK, seconds(1)), ShutdownProgress::InVain("was cancelled"));
        let mut down = Down::requested(Duration::ZERO);
        assert_eq!(down.progress(BEGUN, seconds(1)), ShutdownProgress::Wait(REBOOT_TIMEOUT));
        assert_eq!(down.progress(NOTHING, seconds(2)), ShutdownProgress::InVain("was cancelled"));
    }

    #[test]
    fn shutdown_of_others_is_awaited() {
        let mut down = Down::Up;
        for shutdown in [NOTHING, TAKEN_BACK, Shutdown { preparing: true, was_begun: false }] {
            down.join(shutdown, seconds(1));
            assert_eq!(down, Down::Up, "{shutdown:?}");
        }
        down.join(BEGUN, seconds(1));
        assert_eq!(down.progress(BEGUN, seconds(1)), ShutdownProgress::Wait(REBOOT_TIMEOUT));
        assert_eq!(down.progress(NOTHING, seconds(2)), ShutdownProgress::InVain("was cancelled"));
    }

    #[test]
    fn next_try_is_made_when_its_time_has_come() {
        let mut down = Down::Later { at: seconds(10) };
        assert_eq!(down.progress(NOTHING, seconds(9)), ShutdownProgress::Wait(seconds(1)));
        assert_eq!(down.progress(NOTHING, seconds(10)), ShutdownProgress::Free);
        assert_eq!(down, Down::Up);
        assert_eq!(down.progress(BEGUN, seconds(11)), ShutdownProgress::Free);
    }
}
