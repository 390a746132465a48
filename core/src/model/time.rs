//! A point in time, as it is stored. Pure code never reads "now": it is given.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// No clock that was ever set is before this: 2020-01-01T00:00:00Z.
const FIRST: u64 = 1_577_836_800_000_000;

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Takes microseconds since the epoch.
    pub fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns microseconds since the epoch.
    pub fn micros(self) -> u64 {
        self.0
    }

    /// Reads what [`Timestamp`] prints: RFC 3339 in UTC, in seconds.
    pub fn read(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let numbers = |text: &str, sign: char| -> Option<[u64; 3]> {
            let all: Result<Vec<u64>, _> = text.split(sign).map(str::parse).collect();
            all.ok()?.try_into().ok()
        };
        let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
        let is_valid = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        if !is_valid || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        Some(Self(seconds * 1_000_000))
    }

    /// Returns the time since an earlier point; zero when the clock was set back in between, or set for the first time: a machine
    /// without a battery starts in 1970.
    pub fn since(self, earlier: Self) -> Duration {
        if earlier.0 < FIRST && self.0 >= FIRST {
            return Duration::ZERO;
        }
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// RFC 3339 in UTC with seconds, as Kubernetes writes times.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Turns a date into days since the epoch: the other way of [`civil`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Turns days since the epoch into a date of the Gregorian calendar (Howard Hinnant's algorithm for days >= 0).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_times_are_read() {
        for seconds in [0, 951_782_399, 951_868_800, 1_577_836_800, 1_795_205_045, 4_107_542_399] {
            let at = Timestamp::from_micros(seconds * 1_000_000);
            assert_eq!(Timestamp::read(&at.to_string()), Some(at), "{at}");
        }
        for text in
            ["", "2026-11-29", "2026-13-01T00:00:00Z", "2026-11-29T24:00:00Z", "2026-11-29T00:00:00+01:00"]
        {
            assert_eq!(Timestamp::read(text), None, "{text}");
        }
    }

    /// A clock that is set for the first time is no time that passed.
    #[test]
    fn time_is_measured_on_one_clock() {
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        let since = |now, earlier| at(now).since(at(earlier)).as_secs();
        assert_eq!(since(1_795_205_045, 1_795_205_000), 45);
        assert_eq!(since(1_795_205_045, 1_795_205_100), 0);
        assert_eq!(since(1_795_205_045, 100), 0);
        assert_eq!(since(145, 100), 45);
    }

    #[test]
    fn shows_rfc_3339() {
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000).to_string();
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_205_045), "2026-11-20T20:04:05Z");
    }
}
