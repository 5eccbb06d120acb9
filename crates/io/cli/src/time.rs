//! Reading and showing times and durations.

use std::cmp::Ordering;

use bursar_client::api::instant;
use bursar_engine::words;
use bursar_units::{Instant, Millis};
use jiff::{Timestamp, Zoned, tz::TimeZone};

use crate::layout::Look;

/// Reads a time: RFC 3339, `14:30` today, a date (its first moment in UTC), `+36h`, `-7d`.
pub(crate) fn parse(text: &str, now: Instant, zone: &TimeZone) -> Result<Instant, String> {
    let duration = |text: &str| text.parse::<Millis>().map_err(|error| error.to_string());
    if let Some(length) = text.strip_prefix('+') {
        return Ok(now.after(duration(length)?));
    }
    if let Some(length) = text.strip_prefix('-') {
        return Ok(now.before(duration(length)?));
    }
    if let Some(date) = instant::of_date(text) {
        return Ok(date);
    }
    if let Ok(time) = text.parse::<jiff::civil::Time>() {
        let today = zoned(now, zone).date();
        let moment = today.to_datetime(time).to_zoned(zone.clone());
        let ms = moment
            .ok()
            .and_then(|moment| u64::try_from(moment.timestamp().as_millisecond()).ok());
        return ms
            .map(Instant::from_ms)
            .ok_or_else(|| format!("`{text}` is not a time of today"));
    }
    instant::parse(text).map_err(|_| {
        format!(
            "`{text}` is not a time; write 2026-11-16T10:00:00Z, 2026-11-16, 14:30, +36h or -7d"
        )
    })
}

impl Look {
    /// `Tue 17 Nov 09:00 (in 23h)`.
    pub(crate) fn moment(&self, at: Instant) -> String {
        let absolute = self.absolute(at);
        match at.cmp(&self.now) {
            Ordering::Equal => format!("{absolute} (now)"),
            Ordering::Greater => format!("{absolute} (in {})", distance(at.since(self.now))),
            Ordering::Less => format!("{absolute} ({} ago)", distance(self.now.since(at))),
        }
    }

    /// `Tue 17 Nov 09:00`, with the year if it is not the present one.
    pub(crate) fn absolute(&self, at: Instant) -> String {
        let (then, now) = (zoned(at, &self.zone), zoned(self.now, &self.zone));
        let form = if then.year() == now.year() {
            "%a %-d %b %H:%M"
        } else {
            "%a %-d %b %Y %H:%M"
        };
        then.strftime(form).to_string()
    }

    /// `today 16:30`, or `Tue 17 Nov 09:00` on another day.
    pub(crate) fn coming(&self, at: Instant) -> String {
        let (then, now) = (zoned(at, &self.zone), zoned(self.now, &self.zone));
        if then.date() == now.date() {
            return then.strftime("today %H:%M").to_string();
        }
        self.absolute(at)
    }

    /// `Tue 17 Nov 09:00:06`.
    pub(crate) fn to_the_second(&self, at: Instant) -> String {
        zoned(at, &self.zone)
            .strftime("%a %-d %b %H:%M:%S")
            .to_string()
    }

    /// `2 Oct 2026`.
    pub(crate) fn date(&self, at: Instant) -> String {
        zoned(at, &self.zone).strftime("%-d %b %Y").to_string()
    }

    /// Age in a table: `3d`.
    pub(crate) fn age(&self, at: Instant) -> String {
        distance(self.now.since(at))
    }
}

/// `2026-10-02`, in UTC.
pub(crate) fn utc_date(at: Instant) -> String {
    zoned(at, &TimeZone::UTC).strftime("%Y-%m-%d").to_string()
}

/// A duration in a table: `0s`, `0.1s`, `37s`, `5m 02s`.
pub(crate) fn length(length: Millis) -> String {
    match length.ms() {
        0 => "0s".to_owned(),
        ms @ 1..10_000 if ms % 1_000 >= 100 || ms < 1_000 => {
            format!(
                "{}.{}s",
                ms / 1_000,
                (ms % 1_000 / 100).max(u64::from(ms < 100))
            )
        }
        _ => words::length(length),
    }
}

/// A duration in its largest unit: `23h`, `3d`, `4s`.
pub(crate) fn distance(length: Millis) -> String {
    let seconds = length.ms() / 1_000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", words::number(seconds / 86_400)),
    }
}

fn zoned(at: Instant, zone: &TimeZone) -> Zoned {
    let ms = i64::try_from(at.ms()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms)
        .unwrap_or(Timestamp::MAX)
        .to_zoned(zone.clone())
}

#[cfg(test)]
mod tests {
    use bursar_units::{Instant, Millis};
    use jiff::tz::TimeZone;

    use super::{distance, length, parse};
    use crate::layout::Look;

    const NOW: &str = "2026-11-16T10:00:00Z";

    fn now() -> Instant {
        bursar_client::api::instant::parse(NOW).unwrap_or_default()
    }

    #[test]
    fn times_are_read_in_five_forms() {
        for (text, expected) in [
            ("2026-11-17T09:00:00Z", "2026-11-17T09:00:00.000Z"),
            ("14:30", "2026-11-16T14:30:00.000Z"),
            ("2026-11-18", "2026-11-18T00:00:00.000Z"),
            ("+36h", "2026-11-17T22:00:00.000Z"),
            ("-7d", "2026-11-09T10:00:00.000Z"),
        ] {
            let found = parse(text, now(), &TimeZone::UTC).map(bursar_client::api::instant::format);
            assert_eq!(found.as_deref(), Ok(expected), "{text}");
        }
        assert!(parse("tomorrow", now(), &TimeZone::UTC).is_err());
        assert!(parse("2026-11-99", now(), &TimeZone::UTC).is_err());
        assert!(parse("+36", now(), &TimeZone::UTC).is_err());
    }

    #[test]
    fn times_are_shown_absolute_first_and_relative_second() {
        let look = Look {
            now: now(),
            zone: TimeZone::UTC,
            utf8: true,
            color: false,
        };
        let at = |text| parse(text, now(), &TimeZone::UTC).unwrap_or_default();
        assert_eq!(look.moment(at("+23h")), "Tue 17 Nov 09:00 (in 23h)");
        assert_eq!(look.moment(at("-3d")), "Fri 13 Nov 10:00 (3d ago)");
        assert_eq!(look.moment(now()), "Mon 16 Nov 10:00 (now)");
        assert_eq!(look.absolute(at("+90d")), "Sun 14 Feb 2027 10:00");
        assert_eq!(look.age(at("-3d")), "3d");
        assert_eq!(look.coming(at("16:30")), "today 16:30");
        assert_eq!(look.coming(at("+23h")), "Tue 17 Nov 09:00");
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        for (ms, expected) in [
            (0, "0s"),
            (1, "0.1s"),
            (100, "0.1s"),
            (4_000, "4s"),
            (4_250, "4.2s"),
            (37_900, "37s"),
            (302_000, "5m 02s"),
        ] {
            assert_eq!(length(Millis::from_ms(ms)), expected, "{ms}");
        }
        assert_eq!(distance(Millis::from_secs(60)), "60s");
        assert_eq!(distance(Millis::from_hours(23)), "23h");
        assert_eq!(distance(Millis::from_hours(72)), "3d");
    }
}
