//! The kernel's files, from real hosts and invalid ones.

use bursar_market::cgroup::{
    Pressure, Quota, Stat, cfs, cpu_max, cpuacct_usage_us, pressure, stat,
};
use proptest::prelude::*;

/// A host with version 2, Linux 6.1, a limited container.
const V2: &str = "usage_usec 8123456789\nuser_usec 6000000000\nsystem_usec 2123456789\n\
    core_sched.force_idle_usec 0\nnr_periods 51234\nnr_throttled 1234\nthrottled_usec 98765432\n\
    nr_bursts 0\nburst_usec 0\n";
/// The same without a CPU controller: it counts use, but no throttling.
const V2_WITHOUT_CONTROLLER: &str = "usage_usec 772131\nuser_usec 401223\nsystem_usec 370908\n";
/// A host with version 1, Linux 5.15 and later.
const V1: &str =
    "nr_periods 4711\nnr_throttled 12\nthrottled_time 3456789012\nnr_bursts 0\nburst_time 0\n";
/// An older one.
const V1_OLD: &str = "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n";

#[test]
fn both_versions_of_cpu_stat_are_read_and_missing_keys_are_absent() {
    let all = |usage_us, throttled_us, periods, throttled_periods| Stat {
        usage_us,
        throttled_us,
        periods,
        throttled_periods,
    };
    assert_eq!(
        stat(V2),
        all(
            Some(8_123_456_789),
            Some(98_765_432),
            Some(51_234),
            Some(1_234)
        )
    );
    assert_eq!(
        stat(V2_WITHOUT_CONTROLLER),
        all(Some(772_131), None, None, None)
    );
    assert_eq!(stat(V1), all(None, Some(3_456_789), Some(4_711), Some(12)));
    assert_eq!(stat(V1_OLD), all(None, Some(0), Some(0), Some(0)));
    assert_eq!(stat(""), Stat::default());
    let odd = "usage_usec -5\nusage_usecs 7\nnr_periods +3\nnr_throttled 99999999999999999999\n\
        throttled_usec\nthrottled_time 12 13\n";
    assert_eq!(stat(odd), Stat::default(), "what is no number is absent");
}

#[test]
fn use_of_version_1_is_in_nanoseconds() {
    assert_eq!(cpuacct_usage_us("1234567890123\n"), Some(1_234_567_890));
    for odd in ["", "-1\n", "abc", "1 2", "0x10"] {
        assert_eq!(cpuacct_usage_us(odd), None, "{odd:?}");
    }
}

#[test]
fn quotas_of_both_versions_are_read() {
    let quota = |quota_us, period_us| {
        Some(Quota {
            quota_us,
            period_us,
        })
    };
    assert_eq!(cpu_max("max 100000\n"), quota(None, 100_000));
    assert_eq!(cpu_max("58000 100000\n"), quota(Some(58_000), 100_000));
    assert_eq!(cfs("-1\n", "100000\n"), quota(None, 100_000));
    assert_eq!(cfs("250000\n", "50000\n"), quota(Some(250_000), 50_000));
    for odd in [
        "",
        "max",
        "100000",
        "max 0",
        "0 100000",
        "-1 100000",
        "max max",
        "1 2 3",
        "9999999999999999999999 1",
    ] {
        assert_eq!(cpu_max(odd), None, "{odd:?}");
    }
    for (odd, period) in [
        ("-2", "100000"),
        ("0", "100000"),
        ("max", "100000"),
        ("-1", ""),
        ("-1", "0"),
        ("5", "-1"),
    ] {
        assert_eq!(cfs(odd, period), None, "{odd:?} {period:?}");
    }
}

#[test]
fn a_limit_is_written_in_the_cgroups_own_period() {
    for (milli, period_us, text) in [
        (580, 100_000, "58000 100000"),
        (1_000, 50_000, "50000 50000"),
        (10, 100_000, "1000 100000"),
        (9, 100_000, "9000 1000000"),
        (1, 100_000, "1000 1000000"),
        (0, 100_000, "1000 1000000"),
        (333, 10_000, "3330 10000"),
    ] {
        let quota = Quota::of_milli(milli, period_us);
        assert_eq!(quota.cpu_max(), text);
        assert_eq!(quota.milli_ceil(), Some(milli.max(1)), "{text}");
        assert_eq!(cpu_max(text), Some(quota));
    }
    assert_eq!(
        (
            Quota::NONE.cpu_max().as_str(),
            Quota::NONE.cfs_quota().as_str()
        ),
        ("max 100000", "-1")
    );
    assert_eq!(Quota::NONE.milli_ceil(), None);
    let odd = Quota {
        quota_us: Some(33_333),
        period_us: 100_000,
    };
    assert_eq!(
        (odd.milli_ceil(), odd.cfs_quota().as_str()),
        (Some(334), "33333")
    );
    let absurd = Quota {
        quota_us: Some(u64::MAX),
        period_us: 0,
    };
    assert_eq!(absurd.milli_ceil(), Some(u64::MAX));
}

#[test]
fn pressure_is_parsed() {
    let text = "some avg10=12.34 avg60=3.00 avg300=0.07 total=123456\n\
        full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    let seen = Pressure {
        last_10s_hundredths: 1_234,
        total_us: 123_456,
    };
    assert_eq!(pressure(text), Some(seen));
    for odd in [
        "",
        "full avg10=0.00 total=1",
        "some avg10=1 total=1",
        "some avg10=1.5 total=1",
        "some avg10=-1.00 total=1",
        "some avg10=1.00",
        "some avg10=99999999999999999999.00 total=1",
    ] {
        assert_eq!(pressure(odd), None, "{odd:?}");
    }
}

#[test]
fn a_huge_file_is_not_read_to_its_end() {
    let huge = "x 1\n".repeat(1_000_000) + "usage_usec 5\n";
    assert_eq!(stat(&huge).usage_us, None);
}

proptest! {
    /// Method: any text, and well-formed lines with numbers of any size.
    #[test]
    fn no_text_makes_a_parser_fail(text in ".{0,200}", key in "usage_usec|throttled_time|some avg10", number in "-?[0-9]{0,25}(\\.[0-9]{0,3})?") {
        for text in [text.clone(), format!("{key} {number}\n{text}"), format!("{number} {number}"), format!("some avg10={number} total={number}")] {
            stat(&text);
            cpuacct_usage_us(&text);
            if let Some(quota) = cpu_max(&text).or(cfs(&text, &number)) {
                prop_assert!(quota.period_us > 0 && quota.quota_us != Some(0));
                quota.milli_ceil();
            }
            pressure(&text);
        }
    }

    /// Method: a formatted quota is parsed back the same, and allows no more than the limit.
    #[test]
    fn a_quota_survives_the_round_trip(milli in 1_u64..1_000_000_000, period_us in 1_000_u64..=1_000_000) {
        let quota = Quota::of_milli(milli, period_us);
        prop_assert_eq!(cpu_max(&quota.cpu_max()), Some(quota));
        prop_assert_eq!(cfs(&quota.cfs_quota(), &quota.period_us.to_string()), Some(quota));
        prop_assert!(quota.quota_us.is_some_and(|quota_us| 1_000 <= quota_us));
        prop_assert!(quota.milli_ceil().is_some_and(|ceil| ceil <= milli));
    }
}
