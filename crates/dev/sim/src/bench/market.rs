//! Measures how long one clearing takes, beside the seeds' own loops in the same run (design 10).
//!
//! The same seeded pods for both. Ours also bounds every step by what each pod has now, which the
//! loops do not do; theirs keep their pods in hash maps, as written, and find them filled.

pub(super) mod literal;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use bursar_market::clear::{Market, Pod, Policy, Want, clear};

use super::table::{Goal, Row, Table, grouped, thousandths};
use super::usage::{self, Usage};
use crate::rng::Rng;

/// How many pods, and what one clearing of them may take.
const SIZES: [(usize, u64); 2] = [(250, 15_000), (10_000, 1_000_000)];
/// How many times faster than the literal loop.
const TIMES: u64 = 20;
/// The seed of the pods.
const SEED: u64 = 1;

/// What to measure, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A tenth of the time: to see that it runs, not to quote.
    pub quick: bool,
}

/// Measures clearings and says what was seen.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    let quiet = Usage::start();
    let mut table = Table::new(vec![usage::describe_machine()]);
    if let Some(warning) = quiet.used().warning() {
        table.note(warning);
    }
    if options.quick {
        table.note("A quick run: a tenth of the time. Not to be quoted.".to_owned());
    }
    let time = Duration::from_millis(if options.quick { 100 } else { 1_000 });
    for (count, goal_ns) in SIZES {
        for policy in Policy::ALL {
            let what = format!("{} pods, {}", grouped(u64::try_from(count)?), policy.word());
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted before: {what}");
            }
            eprintln!("measuring: {what}");
            let market = market(count, policy, SEED);
            let ours_ns = median_ns(time, || clear(black_box(&market)).shares.len());
            let theirs = literal::Loop::of(&market);
            let theirs_ns = median_ns(time, || theirs.run().len());
            push(&mut table, &what, policy, [ours_ns, theirs_ns], goal_ns);
        }
    }
    Ok(table)
}

fn push(table: &mut Table, what: &str, policy: Policy, [ours, theirs]: [u64; 2], goal_ns: u64) {
    let tenths = theirs.saturating_mul(10) / ours.max(1);
    table.push(Row {
        name: format!("clear {what}"),
        seen: format!("{} µs", thousandths(ours)),
        ratio: None,
        goal: Some(Goal {
            text: format!("≤ {} µs", grouped(goal_ns / 1_000)),
            is_met: ours <= goal_ns,
        }),
        near: "one core".to_owned(),
    });
    table.push(Row {
        name: format!("the same, {}", literal::name(policy)),
        seen: format!("{} µs", thousandths(theirs)),
        ratio: Some(format!("{}×", super::table::tenths(tenths))),
        goal: Some(Goal {
            text: format!("ours ≥ {TIMES}×"),
            is_met: tenths >= TIMES * 10,
        }),
        near: "one core".to_owned(),
    });
}

/// A node that is too small by half of what its pods want above their floors.
pub(super) fn market(count: usize, policy: Policy, seed: u64) -> Market {
    let mut rng = Rng::new(seed);
    let pods: Vec<Pod> = (0..count)
        .map(|number| {
            let min_milli = rng.between(20, 200);
            let max_milli = min_milli + rng.between(50, 2_000);
            Pod {
                id: format!("{number:08x}-7d1c-4f0a-9c55-{:012x}", rng.below(1 << 48)).into(),
                min_milli,
                max_milli,
                weight: rng.between(1, 1_000),
                want: Want::Demand(rng.below(1_000_001)),
                headroom_permille: 100,
                current_milli: Some(rng.between(min_milli, max_milli)),
                cooling: rng.once_in(4),
            }
        })
        .collect();
    let mut market = Market {
        capacity_milli: 0,
        policy,
        quantum_milli: 1,
        pods,
    };
    let sums = clear(&market);
    market.capacity_milli = u64::midpoint(sums.min_milli, sums.need_milli);
    market
}

/// The median of as many runs as fit into that time, and at least eleven.
fn median_ns(time: Duration, mut run: impl FnMut() -> usize) -> u64 {
    let began = Instant::now();
    let mut took = Vec::new();
    while took.len() < 11 || began.elapsed() < time {
        let start = Instant::now();
        black_box(run());
        took.push(start.elapsed());
    }
    took.sort();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    u64::try_from(median.as_nanos()).unwrap_or(u64::MAX)
}
