//! From counters to use, ask and memory.

use bursar_market::bidder::{Bidder, Estimate};
use bursar_market::ladder::{Memory, Recent, Size};
use bursar_market::need::next_headroom;
use bursar_market::params::Params;
use bursar_market::sense::{Reading, Sample, Throttled, reading};

use crate::random::Random;

const SECOND_US: u64 = 1_000_000;

fn sample(at_s: u64, usage_ms: u64, throttled_ms: u64, throttled_periods: u64) -> Sample {
    Sample {
        at_us: at_s * SECOND_US,
        usage_us: usage_ms * 1_000,
        throttled_us: Some(throttled_ms * 1_000),
        periods: Some(at_s * 10),
        throttled_periods: Some(throttled_periods),
    }
}

#[test]
fn a_reading_is_the_change_of_the_counters_over_the_time() {
    let before = sample(10, 1_000, 300, 7);
    let after = sample(12, 2_001, 801, 20);
    let read = reading(&before, &after).unwrap();
    let throttled = read.throttled.unwrap();
    assert_eq!(
        (read.used_milli, throttled.milli, throttled.permille()),
        (500, 250, 650)
    );
    let idle = Sample {
        periods: before.periods,
        throttled_periods: before.throttled_periods,
        ..after
    };
    let idle = reading(&before, &idle).unwrap().throttled.unwrap();
    assert_eq!(idle.permille(), 0, "no periods");
}

#[test]
fn an_invalid_sample_gives_no_value_and_never_zero() {
    let before = sample(10, 1_000, 300, 7);
    let after = sample(11, 1_500, 400, 9);
    for wrong in [
        // A clock that stands still, or goes back.
        Sample {
            at_us: before.at_us,
            ..after
        },
        Sample { at_us: 1, ..after },
        Sample {
            usage_us: 1,
            ..after
        },
        Sample {
            throttled_us: Some(1),
            ..after
        },
        Sample {
            periods: Some(1),
            ..after
        },
        Sample {
            throttled_periods: Some(1),
            ..after
        },
    ] {
        assert_eq!(reading(&before, &wrong), None, "{wrong:?}");
    }
    for absent in [
        Sample {
            throttled_us: None,
            ..after
        },
        Sample {
            periods: None,
            ..after
        },
        Sample {
            throttled_periods: None,
            ..after
        },
    ] {
        let read = reading(&before, &absent).unwrap();
        assert_eq!((read.used_milli, read.throttled), (500, None));
    }
}

fn throttled(used_milli: u64, milli: u64, periods: u64) -> Reading {
    Reading {
        used_milli,
        throttled: Some(Throttled {
            milli,
            periods: 10,
            throttled_periods: periods,
        }),
    }
}

/// A pod (50, 1000) with this limit, after it has used `size`.
fn bidder(limit_milli: u64, size: u64) -> Bidder {
    let params = Params {
        min_milli: 50,
        max_milli: 1000,
        weight: 1,
    };
    let mut bidder = Bidder::new(params, limit_milli, 10);
    bidder.take(throttled(size, 0, 0), 300);
    bidder
}

#[test]
fn the_ask_is_the_known_size_or_twice_the_use() {
    let check = |limit, size, reading, ask, is_stepped| {
        let Estimate {
            ask_milli,
            is_stepped: is,
            asks,
            ..
        } = bidder(limit, size).take(reading, 300);
        assert_eq!(
            (ask_milli, is),
            (ask, is_stepped),
            "{limit} {size} {reading:?}"
        );
        assert_eq!(asks, limit < ask);
    };
    check(55, 600, throttled(55, 545, 10), 600, false);
    check(55, 55, throttled(55, 545, 10), 110, true);
    check(20, 0, throttled(20, 545, 10), 100, true);
    // The load is on for half of the second: the throttled time is right without the share of periods.
    check(250, 1_000, throttled(136, 285, 5), 421, false);
    check(700, 600, throttled(640, 0, 0), 640, false);
    check(700, 600, throttled(640, 5, 0), 645, false);
    let use_only = |used_milli| Reading {
        used_milli,
        throttled: None,
    };
    check(100, 500, use_only(90), 117, false);
    check(100, 500, use_only(89), 89, false);
}

#[test]
fn the_firm_ask_falls_no_faster_than_the_mean_of_five() {
    let mut bidder = bidder(1000, 500);
    for _ in 0..4 {
        bidder.take(throttled(500, 0, 0), 300);
    }
    let firm = |used, bidder: &mut Bidder| bidder.take(throttled(used, 0, 0), 300).firm_milli;
    assert_eq!(firm(400, &mut bidder), 480);
    assert_eq!(firm(100, &mut bidder), 200, "at most twice the use");
    let mut fresh = Recent::default();
    fresh.take(7);
    fresh.take(4);
    assert_eq!(fresh.mean_floor(), 5, "of those there are");
}

#[test]
fn unmet_work_counts_while_a_pod_asks() {
    let mut bidder = bidder(55, 600);
    bidder.take(throttled(55, 545, 10), 300);
    bidder.take(throttled(55, 545, 10), 300);
    assert_eq!(bidder.unmet_milli, 2 * 545);
    bidder.take(throttled(55, 0, 0), 300);
    assert_eq!(bidder.unmet_milli, 0);
}

/// Method: against a list of all samples, for random windows and blocks.
#[test]
fn memory_and_size_are_those_of_a_list_of_all_samples() {
    let mut random = Random(3);
    for _ in 0..300 {
        let windows = usize::try_from(1 + random.below(12)).unwrap();
        let block = 1 + random.below(9);
        let mut memory = Memory::filled(windows, 700);
        let mut size = Size::default();
        let mut all = Vec::new();
        for _ in 0..60 {
            let used = random.below(1_000);
            all.push(used);
            memory.take(used);
            size.take(used, block);
            for window in 1..=windows {
                let known = all.iter().rev().take(window).max().copied().unwrap();
                let unknown = if all.len() < window { 700 } else { 0 };
                assert_eq!(memory.peak(window), known.max(unknown));
            }
            let step = usize::try_from(block).unwrap();
            let begin = ((all.len() - 1) / step).saturating_sub(1) * step;
            assert_eq!(Some(&size.milli()), all[begin..].iter().max());
        }
    }
}

#[test]
fn headroom_grows_on_a_miss_and_shrinks_in_quiet() {
    for (before, permille, after) in [
        (100, 300, 150),
        (480, 1000, 500),
        (500, 1000, 500),
        (150, 299, 140),
        (100, 0, 100),
        (105, 0, 100),
    ] {
        assert_eq!(
            next_headroom(before, permille),
            after,
            "{before} {permille}"
        );
    }
}
