//! Windows that repeat by the calendar, in UTC (B3).
//!
//! Window k ends k − 1 units after the first end, and begins at the end of window k − 1. A day that
//! a month lacks is the last day of that month: after 31 January come 28 February and 31 March.

use bursar_units::{Instant, Millis};
use serde::{Deserialize, Serialize};

use crate::spec::Renew;

/// Milliseconds of a day.
pub const DAY_MS: u64 = 86_400_000;
/// The last UTC day that is counted for itself, 31 December 2199. Later time is counted on it, so that
/// an instant far ahead in a forged record makes thousands of entries, not a hundred million.
pub const DAY_LAST: u64 = 84_005;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;
/// Days of 400 years.
const ERA_DAYS: u64 = 146_097;

/// A window of time, half-open: the end does not belong to it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Window {
    /// Start; absent: the beginning of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Instant>,
    /// End; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Instant>,
}

/// The declared windows of a meter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Schedule {
    /// Start of the first window.
    pub start: Option<Instant>,
    /// End of the first window.
    pub end: Option<Instant>,
    /// Unit by which the window repeats.
    pub renew: Option<Renew>,
}

impl Window {
    /// Whether the instant is in the window.
    pub fn is_open(&self, at: Instant) -> bool {
        self.start.is_none_or(|start| start <= at) && self.end.is_none_or(|end| at < end)
    }

    /// Whether two windows have an instant in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let before = |end: Option<Instant>, start: Option<Instant>| match (end, start) {
            (Some(end), Some(start)) => end <= start,
            _ => false,
        };
        !before(self.end, other.start) && !before(other.end, self.start)
    }

    /// The instant of the window that is nearest to `at`; its end counts as part of it.
    pub(crate) fn clamp(&self, at: Instant) -> Instant {
        let low = self.start.map_or(at, |start| at.max(start));
        self.end.map_or(low, |end| low.min(end))
    }

    /// The length from one instant to another that lies in the window.
    pub(crate) fn length(&self, from: Instant, to: Instant) -> u64 {
        self.clamp(to).since(self.clamp(from)).ms()
    }
}

impl Schedule {
    /// The window of an instant, or the first one if it is still to come; `None` after the last.
    pub fn current(&self, at: Instant) -> Option<Window> {
        let Some(first) = self.end else {
            return Some(Window {
                start: self.start,
                end: None,
            });
        };
        if at < first {
            return Some(Window {
                start: self.start,
                end: Some(first),
            });
        }
        let renew = self.renew?;
        // The quotient counts units of the greatest length, so it is never too large. Rounded down.
        let mut units = at.since(first).ms() / longest_ms(renew);
        while plus(first, renew, units + 1) <= at && plus(first, renew, units) < FAR {
            units += 1;
        }
        Some(Window {
            start: Some(plus(first, renew, units)),
            end: Some(plus(first, renew, units + 1)),
        })
    }
}

/// The last instant that a record can name.
const FAR: Instant = Instant::from_ms(bursar_units::INTEGER_MAX);

/// The UTC day of an instant, counted from 1970-01-01.
pub fn day(at: Instant) -> u64 {
    at.ms() / DAY_MS
}

/// The beginning of a UTC day.
pub fn day_start(day: u64) -> Instant {
    Instant::from_ms(0).after(Millis::from_ms(day.saturating_mul(DAY_MS)))
}

/// The UTC days of an interval, each with the milliseconds of its part. Time after [`DAY_LAST`] is part
/// of that day.
pub fn days_between(from: Instant, to: Instant) -> impl Iterator<Item = (u64, u64)> {
    let mut from = from;
    std::iter::from_fn(move || {
        let today = day(from).min(DAY_LAST);
        let until = match today {
            DAY_LAST => to,
            _ => day_start(today.saturating_add(1)).min(to),
        };
        let length = until.since(from).ms();
        from = until;
        (0 < length).then_some((today, length))
    })
}

/// The instant a number of units after another.
pub fn plus(at: Instant, renew: Renew, units: u64) -> Instant {
    let months = match renew {
        Renew::Day => return plus_days(at, units),
        Renew::Week => return plus_days(at, units.saturating_mul(7)),
        Renew::Month => units,
        Renew::Quarter => units.saturating_mul(3),
        Renew::Year => units.saturating_mul(12),
    };
    let (year, month, day_of_month) = civil(day(at));
    let sum = (month - 1).saturating_add(months);
    let (year, month) = (year.saturating_add(sum / 12), sum % 12 + 1);
    let day = days(year, month, day_of_month.min(month_days(year, month)));
    day_start(day).after(Millis::from_ms(at.ms() % DAY_MS))
}

fn plus_days(at: Instant, count: u64) -> Instant {
    at.after(Millis::from_ms(count.saturating_mul(DAY_MS)))
}

const fn longest_ms(renew: Renew) -> u64 {
    DAY_MS
        * match renew {
            Renew::Day => 1,
            Renew::Week => 7,
            Renew::Month => 31,
            Renew::Quarter => 92,
            Renew::Year => 366,
        }
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day of a day since 1970-01-01. Years begin on 1 March here, so that a leap day
/// is the last day of its year.
fn civil(day: u64) -> (u64, u64, u64) {
    let shifted = day.saturating_add(EPOCH_DAYS);
    let (era, in_era) = (shifted / ERA_DAYS, shifted % ERA_DAYS);
    let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * in_year + 2) / 153;
    let day_of_month = in_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day_of_month)
}

/// The day since 1970-01-01 of a year, month and day. The inverse of [`civil`].
fn days(year: u64, month: u64, day_of_month: u64) -> u64 {
    let year = year.saturating_sub(u64::from(month <= 2));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let (era, year_of_era) = (year / 400, year % 400);
    let in_year = (153 * from_march + 2) / 5 + day_of_month - 1;
    let in_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + in_year;
    era.saturating_mul(ERA_DAYS)
        .saturating_add(in_era)
        .saturating_sub(EPOCH_DAYS)
}
