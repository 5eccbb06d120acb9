//! Tables for label, capacity and parameters.

use bursar_market::capacity::{allocatable_milli, capacity_milli};
use bursar_market::clear::Mode::{self, Congested, Overloaded, Uncongested};
use bursar_market::clear::{Market, Pod, Policy, Want, clear};
use bursar_market::label::label;
use bursar_market::params::{Container, Params, Settings, params_for_pod, weight};

#[test]
fn the_label_worsens_at_once_and_improves_past_a_band() {
    let within = |(before, min_milli, need_milli): (Mode, u64, u64),
                  (capacity_milli, all_milli)| {
        let market = Market {
            capacity_milli,
            policy: Policy::default(),
            quantum_milli: 1,
            pods: vec![Pod {
                id: "a".into(),
                min_milli,
                max_milli: 9000,
                weight: 1,
                want: Want::Need(need_milli),
                headroom_permille: 100,
            }],
        };
        let cleared = clear(&market);
        label(
            (before, cleared.mode),
            (cleared.min_milli, all_milli),
            (cleared.ask_milli, cleared.capacity_milli),
        )
    };
    let after = |before, min, need| within((before, min, need), (1000, 1000));
    for (before, min, need, shown) in [
        (Uncongested, 100, 1000, Uncongested),
        (Uncongested, 100, 1001, Congested),
        (Uncongested, 1001, 1001, Overloaded),
        (Congested, 100, 951, Congested),
        (Congested, 100, 950, Uncongested),
        (Congested, 951, 951, Congested),
        (Overloaded, 951, 951, Overloaded),
        (Overloaded, 950, 2000, Congested),
        (Overloaded, 950, 951, Congested),
        (Overloaded, 950, 950, Uncongested),
    ] {
        assert_eq!(after(before, min, need), shown, "{before:?} {min} {need}");
    }
    // Unmanaged use of all but the floors is no overload.
    assert_eq!(within((Overloaded, 500, 900), (500, 1800)), Congested);
    assert_eq!(within((Overloaded, 1711, 1800), (1711, 1800)), Overloaded);
}

#[test]
fn unmanaged_use_takes_surplus_and_never_floors() {
    for (allocatable, unmanaged, floors, capacity) in [
        (1800, 300, 300, 1500),
        (1800, 0, 300, 1800),
        (1800, 1700, 300, 300),
        (1800, 9999, 300, 300),
        (1800, 300, 2500, 1800),
        (0, 0, 300, 0),
        (u64::MAX, u64::MAX, u64::MAX, u64::MAX),
    ] {
        assert_eq!(capacity_milli(allocatable, unmanaged, floors), capacity);
    }
}

#[test]
fn a_plain_machine_keeps_a_reserve() {
    for (online, reserve, allocatable) in [
        (2000, None, 1800),
        (4000, None, 3800),
        (64_000, None, 60_800),
        (100, None, 0),
        (2000, Some(500), 1500),
        (2000, Some(0), 2000),
        (u64::MAX, Some(u64::MAX), 0),
    ] {
        assert_eq!(allocatable_milli(online, reserve), allocatable, "{online}");
    }
}

#[test]
fn parameters_come_from_requests_limits_and_priority() {
    let settings = Settings {
        baseline_milli: 100,
        unlimited_milli: 4000,
        factor_permille: 1000,
    };
    let container = |request_milli, limit_milli| Container {
        request_milli,
        limit_milli,
    };
    let check = |containers: &[Container], settings: &Settings, expected: [u64; 3]| {
        let [min_milli, max_milli, weight] = expected;
        let params = Params {
            min_milli,
            max_milli,
            weight,
        };
        assert_eq!(
            params_for_pod(containers, settings),
            params,
            "{containers:?}"
        );
    };
    check(
        &[container(Some(250), Some(1000))],
        &settings,
        [250, 1000, 250],
    );
    check(&[container(None, Some(1000))], &settings, [100, 1000, 1]);
    check(&[container(Some(50), None)], &settings, [100, 4000, 50]);
    check(&[], &settings, [100, 4000, 1]);
    let two = [
        container(Some(100), Some(500)),
        container(Some(200), Some(700)),
    ];
    check(&two, &settings, [300, 1200, 300]);
    let one_open = [container(Some(100), Some(500)), container(Some(200), None)];
    check(&one_open, &settings, [300, 4000, 300]);
    check(
        &[container(Some(900), Some(500))],
        &settings,
        [500, 500, 900],
    );
    check(&[container(Some(80), Some(60))], &settings, [60, 60, 80]);
    let double = Settings {
        factor_permille: 2500,
        ..settings
    };
    check(
        &[container(Some(101), Some(1000))],
        &double,
        [101, 1000, 252],
    );
    let most = container(Some(u64::MAX), Some(u64::MAX));
    check(&[most, most], &double, [1_000_000_000; 3]);
    assert_eq!(
        [weight(0, 1000), weight(100, 0), weight(u64::MAX, u64::MAX)],
        [1, 1, 1_000_000_000]
    );
}
