//! From counters to demand.

use bursar_market::need::next_headroom;
use bursar_market::sense::{Estimator, Sample, Shown, Window};

use crate::random::Random;

const SECOND_US: u64 = 1_000_000;

fn sample(at_s: u64, usage_ms: u64, throttled_ms: u64) -> Sample {
    Sample {
        at_us: at_s * SECOND_US,
        usage_us: usage_ms * 1_000,
        throttled_us: Some(throttled_ms * 1_000),
        periods: Some(at_s * 10),
        throttled_periods: Some(0),
    }
}

fn shown(samples: &[Option<Sample>]) -> Shown {
    let window = Window::default();
    let mut estimator = Estimator::default();
    for sample in samples {
        match sample {
            Some(sample) => estimator.take(*sample, &window),
            None => estimator.miss(),
        }
    }
    estimator.shown(&window)
}

/// Samples of the seconds `from..=to` with this use and throttling in each.
fn seconds(from: u64, to: u64, usage_ms: u64, throttled_ms: u64) -> Vec<Option<Sample>> {
    let at = |second: u64| {
        sample(
            second,
            (second - from) * usage_ms,
            (second - from) * throttled_ms,
        )
    };
    (from..=to).map(|second| Some(at(second))).collect()
}

#[test]
fn a_core_throttled_to_half_shows_a_demand_of_one_core() {
    // Measured on a real kernel: a little time is missing between the two counters.
    assert_eq!(
        shown(&[Some(sample(0, 0, 0)), Some(sample(10, 5_000, 4_999))]),
        Shown::Demand { milli: 999 }
    );
    assert_eq!(
        shown(&seconds(0, 5, 500, 500)),
        Shown::Demand { milli: 1000 }
    );
}

#[test]
fn use_is_known_from_the_second_sample_on() {
    let window = Window::default();
    let mut estimator = Estimator::default();
    estimator.take(sample(0, 0, 0), &window);
    assert_eq!(estimator.used_milli(&window), None);
    // A sample that is a little early is too short for a running bucket.
    let early = Sample {
        at_us: SECOND_US - 1_000,
        ..sample(0, 333, 0)
    };
    estimator.take(early, &window);
    assert_eq!(estimator.used_milli(&window), Some(333));
    assert_eq!(estimator.shown(&window), Shown::Nothing);
}

#[test]
fn nothing_is_shown_before_a_bucket_is_complete() {
    assert_eq!(shown(&[]), Shown::Nothing);
    assert_eq!(shown(&seconds(0, 0, 500, 0)), Shown::Nothing);
    assert_eq!(shown(&seconds(0, 4, 500, 0)), Shown::Nothing);
    assert_eq!(shown(&seconds(0, 5, 500, 0)), Shown::Demand { milli: 500 });
}

#[test]
fn a_peak_is_remembered_for_twelve_buckets_and_no_longer() {
    let mut estimator = Estimator::default();
    let window = Window::default();
    let mut usage_ms = 0;
    for second in 0..=70 {
        usage_ms += if (6..=10).contains(&second) { 900 } else { 100 };
        estimator.take(sample(second, usage_ms, 0), &window);
        let expected = match second {
            0..=4 => Shown::Nothing,
            5 | 70 => Shown::Demand { milli: 100 },
            // The running bucket counts from its first second on.
            _ => Shown::Demand { milli: 900 },
        };
        assert_eq!(estimator.shown(&window), expected, "second {second}");
    }
}

#[test]
fn an_invalid_sample_gives_no_value_and_never_zero() {
    let busy = seconds(0, 5, 500, 100);
    let known = Shown::Demand { milli: 600 };
    let after = |last: &[Option<Sample>]| shown(&[busy.as_slice(), last].concat());
    assert_eq!(after(&[None, None]), known, "unreadable");
    assert_eq!(after(&[Some(sample(6, 10, 0))]), known, "use went back");
    assert_eq!(
        after(&[Some(sample(6, 2_600, 10))]),
        known,
        "throttled time went back"
    );
    assert_eq!(
        after(&[Some(sample(3, 9_000, 900))]),
        known,
        "time went back"
    );
    assert_eq!(
        after(&[Some(sample(5, 9_000, 900))]),
        known,
        "time stood still"
    );
    let huge = Sample {
        usage_us: u64::MAX,
        ..sample(6, 0, 600)
    };
    let milli = u64::MAX / 1_001;
    assert!(
        matches!(after(&[Some(huge)]), Shown::Demand { milli: shown } if milli <= shown),
        "huge, but forward"
    );
    // The interval over the gap is not counted; five more seconds at 300m after it are.
    let mut later = vec![None];
    later.extend((100..=105).map(|second| Some(sample(second, 2_500 + (second - 100) * 800, 500))));
    assert_eq!(after(&later), Shown::Demand { milli: 800 });
}

#[test]
fn without_throttle_counters_use_is_shown() {
    let bare = |second| Sample {
        throttled_us: None,
        periods: None,
        throttled_periods: None,
        ..sample(second, second * 400, 0)
    };
    let samples: Vec<Option<Sample>> = (0..=6).map(|second| Some(bare(second))).collect();
    assert_eq!(shown(&samples), Shown::Use { milli: 400 });
}

#[test]
fn throttled_periods_count_since_the_last_clearing() {
    let window = Window::default();
    let mut estimator = Estimator::default();
    let at = |second: u64, periods, throttled_periods| Sample {
        periods: Some(periods),
        throttled_periods: Some(throttled_periods),
        ..sample(second, 0, 0)
    };
    estimator.take(at(0, 0, 0), &window);
    assert_eq!(
        estimator.throttled_permille(),
        None,
        "nothing was cleared yet"
    );
    estimator.cleared();
    estimator.take(at(5, 50, 15), &window);
    assert_eq!(estimator.throttled_permille(), Some(300));
    estimator.cleared();
    estimator.take(at(10, 50, 15), &window);
    assert_eq!(estimator.throttled_permille(), Some(0), "no periods");
    estimator.take(at(15, 53, 17), &window);
    assert_eq!(estimator.throttled_permille(), Some(666));
    estimator.take(at(20, 5, 1), &window);
    assert_eq!(estimator.throttled_permille(), None, "begun anew");
    estimator.take(at(25, 100, 90), &window);
    assert_eq!(
        estimator.throttled_permille(),
        None,
        "not counted from before"
    );
    estimator.cleared();
    estimator.take(sample(30, 0, 0), &window);
    assert_eq!(estimator.throttled_permille(), None, "a key is absent");
}

#[test]
fn headroom_grows_on_a_miss_and_shrinks_in_quiet() {
    for (permille, throttled, had_its_need, next) in [
        (100, Some(300), true, 150),
        (100, Some(1000), true, 150),
        (480, Some(300), true, 500),
        (500, Some(300), true, 500),
        (150, Some(300), false, 150),
        (150, Some(299), true, 140),
        (105, Some(0), false, 100),
        (100, Some(0), true, 100),
        (150, None, true, 150),
    ] {
        assert_eq!(next_headroom(permille, throttled, had_its_need), next);
    }
}

/// Method: random samples, some lost or backwards, against an estimator that keeps all of them and
/// evaluates the whole list every time.
#[test]
fn the_window_is_that_of_a_list_of_all_samples() {
    let mut random = Random(90);
    let window = Window {
        bucket_us: 5,
        buckets: 3,
        running_us_min: 2,
    };
    for _ in 0..2_000 {
        let mut estimator = Estimator::default();
        let mut all: Vec<Option<Sample>> = Vec::new();
        let (mut at_us, mut usage_us, mut throttled_us) = (100, 100, 100);
        for _ in 0..40 {
            at_us += random.below(4);
            usage_us += random.below(4);
            throttled_us += random.below(3);
            if random.once_in(15) {
                usage_us = 0;
            }
            let sample = Sample {
                at_us,
                usage_us,
                throttled_us: (!random.once_in(30)).then_some(throttled_us),
                periods: None,
                throttled_periods: None,
            };
            let sample = (!random.once_in(15)).then_some(sample);
            match sample {
                Some(sample) => estimator.take(sample, &window),
                None => estimator.miss(),
            }
            all.push(sample);
            assert_eq!(estimator.shown(&window), naive(&all, &window), "{all:?}");
        }
    }
}

fn naive(all: &[Option<Sample>], window: &Window) -> Shown {
    let mut complete: Vec<(u64, Option<u64>)> = Vec::new();
    let mut run: Vec<Sample> = Vec::new();
    let between = |first: &Sample, last: &Sample| {
        let took = last.at_us - first.at_us;
        let used = last.usage_us - first.usage_us;
        let held_back = first
            .throttled_us
            .zip(last.throttled_us)
            .map(|(a, b)| b - a);
        (
            used * 1000 / took,
            held_back.map(|held_back| (used + held_back) * 1000 / took),
        )
    };
    for sample in all {
        let Some(sample) = sample else {
            run.clear();
            continue;
        };
        let goes_back = run.last().is_some_and(|last| {
            let throttled = last.throttled_us.zip(sample.throttled_us);
            sample.at_us <= last.at_us
                || sample.usage_us < last.usage_us
                || throttled.is_some_and(|(last, now)| now < last)
        });
        if goes_back {
            run.clear();
        }
        run.push(*sample);
        if window.bucket_us <= sample.at_us - run[0].at_us {
            complete.push(between(&run[0], sample));
            run = vec![*sample];
        }
    }
    let keep = complete.len().saturating_sub(window.buckets);
    let mut counted = complete[keep..].to_vec();
    if counted.is_empty() {
        return Shown::Nothing;
    }
    if let (Some(first), Some(last)) = (run.first(), run.last())
        && window.running_us_min <= last.at_us - first.at_us
    {
        counted.push(between(first, last));
    }
    match counted
        .iter()
        .map(|(_, demand)| *demand)
        .collect::<Option<Vec<_>>>()
    {
        Some(demands) => Shown::Demand {
            milli: demands.into_iter().max().unwrap(),
        },
        None => Shown::Use {
            milli: counted.iter().map(|(used, _)| *used).max().unwrap(),
        },
    }
}
