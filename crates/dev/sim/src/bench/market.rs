//! Bench of the market: time of one clearing, compared with two prototypes in the same run, and the
//! cost of an agent on real cgroups.
//!
//! Two clearings of ours are measured. From a file, with demand given, it clears the same generated pods
//! as the prototypes, which keep their pods in hash maps that are filled beforehand; none copies the
//! names of pods. In an agent it takes counters: estimate, rungs, shares, reasons and planned writes.

mod cost;
mod counted;
pub(super) mod literal;

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bursar_market::clear::{Market, Pod, Policy, Want, clear};

use super::{begin, pause};
use super::table::{Goal, Row, Table, grouped, tenths, thousandths};
use super::usage::{self, Usage};
use crate::rng::Rng;

/// A number of pods, with the goals for one clearing in nanoseconds.
#[derive(Clone, Copy)]
struct Size {
    pods: usize,
    /// From a file.
    given_ns: u64,
    /// In an agent.
    counted_ns: u64,
}

const SIZES: [Size; 2] = [
    Size {
        pods: 250,
        given_ns: 15_000,
        counted_ns: 25_000,
    },
    Size {
        pods: 10_000,
        given_ns: 1_000_000,
        counted_ns: 1_200_000,
    },
];
/// Goal for the speed relative to a prototype.
const TIMES: u64 = 20;
/// The seed of the pods.
const SEED: u64 = 1;

/// Goals for the cost of an agent.
const AGENT_MILLI: u64 = 5;
const AGENT_MIB: u64 = 20;
/// Time for which the machine's load is measured before the start.
const WATCHED: Duration = Duration::from_millis(500);

/// Part that can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// One clearing, compared with the prototypes.
    Clear,
    /// An agent with a hundred cgroups.
    Agent,
}

/// Options of the bench of the market.
#[derive(Clone, Debug)]
pub struct Options {
    /// Parts to measure; all if empty.
    pub only: Vec<Part>,
    /// Run a tenth of the time, as a smoke test.
    pub quick: bool,
    /// Path of the `bursar` binary.
    pub program: PathBuf,
}

/// Measures clearings, then an agent.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    let quiet = Usage::start();
    pause(WATCHED);
    let mut table = Table::new(vec![usage::describe_machine()]);
    if let Some(warning) = quiet.used().warning() {
        table.note(warning);
    }
    if options.quick {
        table.note("A quick run: a tenth of the time. Not to be quoted.".to_owned());
    }
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let time = |whole: Duration| if options.quick { whole / 10 } else { whole };
    if wanted(Part::Clear) {
        clearings(&mut table, time(Duration::from_secs(1)), interrupted)?;
    }
    if wanted(Part::Agent) {
        begin("an agent with real cgroups", interrupted)?;
        let time = time(Duration::from_mins(1)).max(Duration::from_secs(10));
        let measured = cost::measure(&options.program, time, interrupted)?;
        push_agent(&mut table, &measured, time);
    }
    Ok(table)
}

fn clearings(table: &mut Table, time: Duration, interrupted: &AtomicBool) -> anyhow::Result<()> {
    for size in SIZES {
        for policy in Policy::ALL {
            let pods = grouped(u64::try_from(size.pods)?);
            let name = format!("{pods} pods, {}", policy.word());
            begin(&name, interrupted)?;
            let ours_ns = counted::median_ns(size.pods, policy, time);
            push_one(
                table,
                format!("agent's clearing, {name}"),
                ours_ns,
                size.counted_ns,
            );
            let market = market(size.pods, policy, SEED);
            let ours_ns = median_ns(time, || clear(black_box(&market)).shares.len());
            let theirs = literal::Loop::of(&market);
            let theirs_ns = median_ns(time, || theirs.run().len());
            push(table, &name, policy, [ours_ns, theirs_ns], size.given_ns);
        }
    }
    Ok(())
}

fn push_agent(table: &mut Table, measured: &cost::Measurement, time: Duration) {
    let name = format!(
        "agent that acts, {} cgroups at 1 Hz, {} s",
        cost::GROUPS,
        time.as_secs()
    );
    table.push(Row {
        name: format!("{name}: CPU"),
        value: format!("{}m", thousandths(measured.microcores)),
        ratio: None,
        goal: Some(Goal {
            text: format!("≤ {AGENT_MILLI}m"),
            is_met: measured.microcores <= AGENT_MILLI * 1_000,
        }),
        near: format!(
            "{} clearings, {} limits written and read back; in each cgroup a shell counts for 1 ms a second, a quarter of them in turn for up to 30 ms",
            measured.clearings,
            grouped(measured.writes)
        ),
    });
    let mib_tenths = |kib: u64| tenths(kib * 10 / 1_024);
    let memory = measured.memory;
    table.push(Row {
        name: format!("{name}: memory"),
        value: format!("{} MiB", mib_tenths(memory.resident_kib)),
        ratio: None,
        goal: Some(Goal {
            text: format!("≤ {AGENT_MIB} MiB"),
            is_met: memory.resident_kib <= AGENT_MIB * 1_024,
        }),
        near: format!(
            "resident, of which {} MiB are its own and the rest is its program",
            mib_tenths(memory.own_kib)
        ),
    });
}

fn push_one(table: &mut Table, name: String, took_ns: u64, goal_ns: u64) {
    table.push(Row {
        name,
        value: format!("{} µs", thousandths(took_ns)),
        ratio: None,
        goal: Some(Goal {
            text: format!("≤ {} µs", grouped(goal_ns / 1_000)),
            is_met: took_ns <= goal_ns,
        }),
        near: "one core".to_owned(),
    });
}

fn push(table: &mut Table, name: &str, policy: Policy, [ours, theirs]: [u64; 2], goal_ns: u64) {
    let times_tenths = theirs.saturating_mul(10) / ours.max(1);
    push_one(table, format!("clear {name}"), ours, goal_ns);
    table.push(Row {
        name: format!("the same, {}", literal::name(policy)),
        value: format!("{} µs", thousandths(theirs)),
        ratio: Some(format!("{}×", tenths(times_tenths))),
        goal: Some(Goal {
            text: format!("ours ≥ {TIMES}×"),
            is_met: times_tenths >= TIMES * 10,
        }),
        near: "one core".to_owned(),
    });
}

/// A node with a capacity halfway between the minimums and the needs of its pods.
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

/// Median time of at least eleven runs, and of as many as fit into `time`.
fn median_ns(time: Duration, mut run: impl FnMut() -> usize) -> u64 {
    let began = Instant::now();
    let mut took = Vec::new();
    while took.len() < 11 || began.elapsed() < time {
        let start = Instant::now();
        black_box(run());
        took.push(start.elapsed());
    }
    median(took)
}

fn median(mut took: Vec<Duration>) -> u64 {
    took.sort();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    u64::try_from(median.as_nanos()).unwrap_or(u64::MAX)
}
