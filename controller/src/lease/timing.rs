//! Times of an election, and whether they can work together.

use std::time::Duration;

/// Factor by which client-go spreads the retry period.
const JITTER_PERCENT: u32 = 120;

/// The longest time of one request.
const MAX_REQUEST: Duration = Duration::from_secs(10);

/// The times of an election, as client-go names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time that an unrenewed version keeps other processes away.
    pub duration: Duration,
    /// Time that the leader acts after its last renewal.
    pub renew_deadline: Duration,
    /// Time between renewals.
    pub retry_period: Duration,
}

/// Times that can't work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A leader would act after another one took the Lease.
    #[error(
        "--lease-renew-deadline {} is not less than --lease-duration {}: the leader would still act when another replica takes \
         the Lease; lower the first or raise the second",
        .0.as_secs(), .1.as_secs()
    )]
    Deadline(Duration, Duration),
    /// A leader would end before it has tried to renew.
    #[error(
        "--lease-retry-period {} is too long for --lease-renew-deadline {}: the leader would end before a second try; give at \
         most {} s",
        .0.as_secs(), .1.as_secs(), (*.1 * 100 / JITTER_PERCENT).as_secs()
    )]
    Retry(Duration, Duration),
}

impl Timing {
    /// Creates the times. Those that are not given have the proportions of OpenShift's: 107 s and 26 s for 137 s, by which a
    /// leader survives an API server that does not answer for a minute.
    pub fn new(
        duration: Duration,
        renew_deadline: Option<Duration>,
        retry_period: Option<Duration>,
    ) -> Result<Self, TimingError> {
        let renew_deadline = renew_deadline.unwrap_or(duration * 107 / 137);
        let retry_period = retry_period.unwrap_or(renew_deadline * 26 / 107);
        if renew_deadline >= duration {
            return Err(TimingError::Deadline(renew_deadline, duration));
        }
        if retry_period * JITTER_PERCENT / 100 >= renew_deadline {
            return Err(TimingError::Retry(retry_period, renew_deadline));
        }
        Ok(Self { duration, renew_deadline, retry_period })
    }

    /// Returns the delay after a refused or lost request.
    pub(super) fn retry_after_failure(self) -> Duration {
        self.retry_period / 4
    }

    /// Returns the limit of one request: two of them fit into the time that the leader acts.
    pub fn request_timeout(self) -> Duration {
        MAX_REQUEST.min(self.renew_deadline / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn times_have_proportions_of_openshift() {
        let timing = Timing::new(seconds(137), None, None).unwrap();
        assert_eq!((timing.renew_deadline, timing.retry_period), (seconds(107), seconds(26)));
        assert_eq!(timing.request_timeout(), seconds(10));
        let short = Timing::new(seconds(6), None, None).unwrap();
        assert!(short.request_timeout() * 2 <= short.renew_deadline);
        let given = Timing::new(seconds(60), Some(seconds(40)), Some(seconds(5))).unwrap();
        assert_eq!((given.renew_deadline, given.retry_period), (seconds(40), seconds(5)));
        for duration in 1..=3600 {
            assert!(Timing::new(seconds(duration), None, None).is_ok(), "{duration}");
        }
    }

    #[test]
    fn times_that_cannot_work_are_refused() {
        let refused = |duration, deadline, retry| {
            Timing::new(seconds(duration), Some(seconds(deadline)), Some(seconds(retry)))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(60, 60, 5),
            "--lease-renew-deadline 60 is not less than --lease-duration 60: the leader would still act when another replica \
             takes the Lease; lower the first or raise the second"
        );
        assert_eq!(
            refused(60, 40, 34),
            "--lease-retry-period 34 is too long for --lease-renew-deadline 40: the leader would end before a second try; give \
             at most 33 s"
        );
        // At a duration alone below the deadline of before: the deadline is named.
        assert_eq!(
            Timing::new(seconds(10), Some(seconds(107)), None),
            Err(TimingError::Deadline(seconds(107), seconds(10)))
        );
    }
}
