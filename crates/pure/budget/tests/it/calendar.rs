//! B3: windows that repeat, against a naive calendar that counts days one by one.

use bursar_budget::calendar::{DAY_LAST, DAY_MS, Schedule, days_between, plus};
use bursar_budget::spec::Renew;
use proptest::prelude::*;

use crate::world::at;

/// (year, month, day) of a day since 1970, counted one by one.
fn civil(day: u64) -> (u64, u64, u64) {
    let (mut year, mut month, mut date) = (1970, 1, 1);
    for _ in 0..day {
        date += 1;
        if length(year, month) < date {
            (date, month) = (1, month + 1);
        }
        if 12 < month {
            (month, year) = (1, year + 1);
        }
    }
    (year, month, date)
}

fn length(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_month_later_is_the_same_day_or_the_last(day in 0_u64..30_000, months in 0_u64..60, rest in 0..DAY_MS) {
        let later = plus(at(day * DAY_MS + rest), Renew::Month, months);
        let (year, month, date) = civil(day);
        let sum = month - 1 + months;
        let (year, month) = (year + sum / 12, sum % 12 + 1);
        let expected = (year, month, date.min(length(year, month)));
        prop_assert_eq!(civil(later.ms() / DAY_MS), expected);
        prop_assert_eq!(later.ms() % DAY_MS, rest);
    }

    #[test]
    fn windows_follow_each_other_without_a_gap(
        end in 0_u64..20_000, renew in prop::sample::select(Renew::ALL.to_vec()), probe in 0_u64..40_000,
    ) {
        let schedule = Schedule { start: None, end: Some(at(end * DAY_MS)), renew: Some(renew) };
        let (probe, mut units) = (at(probe * DAY_MS + 7), 0);
        while plus(at(end * DAY_MS), renew, units) <= probe {
            units += 1;
        }
        let window = schedule.current(probe).unwrap();
        prop_assert_eq!(window.end, Some(plus(at(end * DAY_MS), renew, units)));
        let start = (0 < units).then(|| plus(at(end * DAY_MS), renew, units - 1));
        prop_assert_eq!(window.start, start);
        prop_assert!(window.is_open(probe));
    }
}

#[test]
fn a_day_that_a_month_lacks_is_its_last_day() {
    // 31 January 2024, 00:00.
    let january = at(19_753 * DAY_MS);
    let days = |months| plus(january, Renew::Month, months).ms() / DAY_MS - 19_753;
    assert_eq!([days(1), days(2), days(3)], [29, 60, 90]);
    assert_eq!(
        plus(january, Renew::Quarter, 1),
        plus(january, Renew::Month, 3)
    );
    assert_eq!(
        plus(january, Renew::Year, 1),
        plus(january, Renew::Month, 12)
    );
    assert_eq!(plus(january, Renew::Week, 2), plus(january, Renew::Day, 14));
}

#[test]
fn an_interval_has_its_days_and_the_last_one_has_all_time_after_it() {
    let days = |from: u64, to: u64| -> Vec<(u64, u64)> {
        days_between(at(from), at(to)).take(100_000).collect()
    };
    assert_eq!(civil(DAY_LAST), (2199, 12, 31));
    assert_eq!(
        days(DAY_MS - 1, 2 * DAY_MS + 5),
        [(0, 1), (1, DAY_MS), (2, 5)]
    );
    assert_eq!(days(7, 7), []);
    assert_eq!(days(8, 7), []);
    let far = bursar_units::INTEGER_MAX;
    let last = DAY_LAST * DAY_MS;
    assert_eq!(
        days(last - 1, far),
        [(DAY_LAST - 1, 1), (DAY_LAST, far - last)]
    );
    assert_eq!(
        days(last + 2 * DAY_MS, far),
        [(DAY_LAST, far - last - 2 * DAY_MS)]
    );
    assert_eq!(days(0, far).len() as u64, DAY_LAST + 1);
}
