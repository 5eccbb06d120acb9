//! Amounts, bounds and times never overflow, and counters return to their initial value.

use bursar_units::{Amount, Bounds, Dimension, INTEGER_MAX, Instant, Millis, Total};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..10_u64, Just(u64::MAX), Just(INTEGER_MAX)]
}

fn amount() -> impl Strategy<Value = Amount> {
    (number(), number(), number(), number()).prop_map(|(slots, cpu_milli, memory_bytes, gpus)| {
        Amount {
            slots,
            cpu_milli,
            memory_bytes,
            gpus,
        }
    })
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let bound = || prop::option::of(number());
    (bound(), bound(), bound(), bound()).prop_map(|(slots, cpu_milli, memory_bytes, gpus)| Bounds {
        slots,
        cpu_milli,
        memory_bytes,
        gpus,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_amount_fits_iff_the_sum_is_within_every_bound(held in prop::collection::vec(amount(), 0..4), more in amount(), bounds in bounds()) {
        let mut used = Total::ZERO;
        for amount in &held {
            used.add(amount);
        }
        let sum = |d: Dimension| held.iter().chain([&more]).map(|a| u128::from(a.of(d))).sum::<u128>();
        let over: Vec<Dimension> = Dimension::ALL
            .into_iter()
            .filter(|d| bounds.of(*d).is_some_and(|max| sum(*d) > u128::from(max)))
            .collect();
        prop_assert_eq!(used.fits(&more, &bounds), over.is_empty());
        prop_assert_eq!(used.exceeds(&more, &bounds).collect::<Vec<_>>(), over);
    }

    #[test]
    fn a_counter_comes_back_to_where_it_began(amounts in prop::collection::vec(amount(), 0..20)) {
        let mut counter = Total::ZERO;
        for amount in &amounts {
            counter.add(amount);
        }
        for amount in amounts.iter().rev() {
            counter.take(amount);
        }
        prop_assert!(counter.is_zero());
        counter.take(&Amount { slots: 1, ..Amount::default() });
        prop_assert!(counter.is_zero());
    }

    #[test]
    fn a_sum_saturates(a in amount(), b in amount()) {
        let mut sum = a;
        sum.add(&b);
        for dimension in Dimension::ALL {
            prop_assert_eq!(sum.of(dimension), a.of(dimension).saturating_add(b.of(dimension)));
        }
        let mut total = Total::from(a);
        total.add(&b);
        prop_assert_eq!(total.shown(), sum);
        for dimension in Dimension::ALL {
            prop_assert_eq!(total.of(dimension), u128::from(a.of(dimension)) + u128::from(b.of(dimension)));
        }
    }

    #[test]
    fn times_stay_within_the_largest_integer_of_a_record(at in 0..=INTEGER_MAX, length in number()) {
        let (at, length) = (Instant::from_ms(at), Millis::from_ms(length));
        let later = at.after(length);
        prop_assert!(at <= later && later.ms() <= INTEGER_MAX);
        prop_assert!(later.since(at) <= length);
        prop_assert_eq!(at.since(later), Millis::ZERO);
        prop_assert_eq!(at.before(length).ms(), at.ms().saturating_sub(length.ms()));
    }
}
