//! When nodes may be given a new target.
//!
//! A window opens at a wall clock time in a time zone, and is open for a length of elapsed time. Where the clocks jump
//! over the start, it opens after the jump; where the start comes twice, it opens at the first one.

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use machine_config_core::model::faults::Causes;

use crate::api::duration;
use crate::api::rollout_policy::{Day, Window};

/// The longest window: a week.
const MAX_LENGTH: SignedDuration = SignedDuration::from_hours(168);

/// The windows of a policy, read.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<Opening>);

#[derive(Debug)]
struct Opening {
    days: Option<Vec<Day>>,
    start: Time,
    length: SignedDuration,
    zone: TimeZone,
}

/// State of the windows: nodes get a new target only while one is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    /// They may, now.
    pub(super) is_open: bool,
    /// When this changes.
    pub(super) until: Option<Timestamp>,
    /// The next start.
    pub(super) next: Option<Timestamp>,
}

impl Windows {
    /// Reads them. A fault names the window, the cause and the correction.
    pub(super) fn collect(windows: Option<&[Window]>, faults: &mut Causes) -> Self {
        let Some(windows) = windows else { return Self::default() };
        if windows.is_empty() {
            let fault = "spec.windows is empty, so it never opens; name a window, or remove the field";
            faults.add(fault.to_owned());
        }
        let mut read = Vec::new();
        for (place, window) in windows.iter().enumerate() {
            match opening(window) {
                Ok(opening) => read.push(opening),
                Err(causes) => {
                    for cause in causes {
                        faults.add(format!("spec.windows[{place}] never opens: {cause}"));
                    }
                }
            }
        }
        Self(read)
    }

    /// Returns the state of the windows at a time.
    pub(super) fn at(&self, now: Timestamp) -> Opened {
        if self.0.is_empty() {
            return Opened { is_open: true, until: None, next: None };
        }
        let starts: Vec<_> = self.0.iter().flat_map(|opening| opening.around(now)).collect();
        let next = starts.iter().map(|(start, _)| *start).filter(|start| *start > now).min();
        // The end of the last of those that overlap.
        let mut open: Option<Timestamp> = None;
        let mut sorted = starts;
        sorted.sort_unstable();
        for (start, end) in sorted {
            let reached = open.unwrap_or(now);
            if start <= reached && end > reached {
                open = Some(end);
            }
        }
        Opened { is_open: open.is_some(), until: open.or(next), next }
    }
}

impl Opening {
    /// Returns starts and ends from a week ago to a week and a day ahead: one of them is in force, or is the next.
    fn around(&self, now: Timestamp) -> Vec<(Timestamp, Timestamp)> {
        let today = now.to_zoned(self.zone.clone()).date();
        let day = |offset: i64| {
            let date = today.checked_add(offset.days()).ok()?;
            let opens =
                self.days.as_ref().is_none_or(|days| days.iter().any(|day| weekday(*day) == date.weekday()));
            let start = opens.then(|| self.zone.to_zoned(date.to_datetime(self.start)).ok())??.timestamp();
            Some((start, start.checked_add(self.length).ok()?))
        };
        (-8..=8).filter_map(day).collect()
    }
}

fn opening(window: &Window) -> Result<Opening, Vec<String>> {
    let mut causes = Vec::new();
    if window.days.as_ref().is_some_and(Vec::is_empty) {
        causes.push("days is empty; name a day, or remove the field".to_owned());
    }
    let start = Time::strptime("%H:%M", &window.start)
        .map_err(|_| format!("start {:?} is not a time; write it as 22:00", shown(&window.start)));
    let length = duration(&window.length)
        .filter(|length| *length > SignedDuration::ZERO && *length <= MAX_LENGTH)
        .ok_or_else(|| format!("length {:?} is not 1m to 168h; write it as 4h", shown(&window.length)));
    let name = window.time_zone.as_deref().unwrap_or("UTC");
    let zone = TimeZone::get(name)
        .map_err(|_| format!("timeZone {:?} is unknown; write it as Europe/Berlin", shown(name)));
    match (start, length, zone) {
        (Ok(start), Ok(length), Ok(zone)) if causes.is_empty() => {
            Ok(Opening { days: window.days.clone(), start, length, zone })
        }
        (start, length, zone) => {
            causes.extend([start.err(), length.err(), zone.err()].into_iter().flatten());
            Err(causes)
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

fn weekday(day: Day) -> Weekday {
    match day {
        Day::Monday => Weekday::Monday,
        Day::Tuesday => Weekday::Tuesday,
        Day::Wednesday => Weekday::Wednesday,
        Day::Thursday => Weekday::Thursday,
        Day::Friday => Weekday::Friday,
        Day::Saturday => Weekday::Saturday,
        Day::Sunday => Weekday::Sunday,
    }
}
