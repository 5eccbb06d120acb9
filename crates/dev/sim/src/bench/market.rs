//! Measures how long one clearing takes, beside the seeds' own loops in the same run, and what an
//! agent costs that does it on real cgroups (design 10).
//!
//! The same seeded pods for ours and for the loops. Ours also bounds every step by what each pod has
//! now, which the loops do not do; theirs keep their pods in hash maps, as written, and find them
//! filled. Neither copies the names of pods.

mod cost;
pub(super) mod literal;

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use bursar_market::clear::{Market, Pod, Policy, Want, clear};

use super::table::{Goal, Row, Table, grouped, tenths, thousandths};
use super::usage::{self, Usage};
use crate::rng::Rng;

/// How many pods, and what one clearing of them may take.
const SIZES: [(usize, u64); 2] = [(250, 15_000), (10_000, 1_000_000)];
/// How many times faster than the literal loop.
const TIMES: u64 = 20;
/// The seed of the pods.
const SEED: u64 = 1;

/// What an agent may cost.
const AGENT_MILLI: u64 = 5;
const AGENT_MIB: u64 = 20;
/// For how long the machine is watched before the start.
const WATCHED: Duration = Duration::from_millis(500);

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// One clearing, beside the seeds' loops.
    Clear,
    /// A real agent with a hundred real cgroups.
    Agent,
}

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only these; all of them if empty.
    pub only: Vec<Part>,
    /// A tenth of the time: to see that it runs, not to quote.
    pub quick: bool,
    /// The program that users have.
    pub program: PathBuf,
}

/// Measures clearings, then an agent, and says what was seen.
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
        // One clearing takes five seconds to come.
        let time = time(Duration::from_mins(1)).max(Duration::from_secs(10));
        let seen = cost::measure(&options.program, time, interrupted)?;
        push_agent(&mut table, &seen, time);
    }
    Ok(table)
}

/// Says on stderr what comes next, unless somebody wants it to end.
fn begin(what: &str, interrupted: &AtomicBool) -> anyhow::Result<()> {
    if interrupted.load(Ordering::Relaxed) {
        bail!("interrupted before: {what}");
    }
    eprintln!("measuring: {what}");
    Ok(())
}

fn clearings(table: &mut Table, time: Duration, interrupted: &AtomicBool) -> anyhow::Result<()> {
    for (count, goal_ns) in SIZES {
        for policy in Policy::ALL {
            let what = format!("{} pods, {}", grouped(u64::try_from(count)?), policy.word());
            begin(&what, interrupted)?;
            let market = market(count, policy, SEED);
            let ours_ns = median_ns(time, || clear(black_box(&market)).shares.len());
            let theirs = literal::Loop::of(&market);
            let theirs_ns = median_ns(time, || theirs.run().len());
            push(table, &what, policy, [ours_ns, theirs_ns], goal_ns);
        }
    }
    Ok(())
}

fn push_agent(table: &mut Table, seen: &cost::Seen, time: Duration) {
    let name = format!(
        "agent that acts, {} cgroups at 1 Hz, {} s",
        cost::GROUPS,
        time.as_secs()
    );
    table.push(Row {
        name: format!("{name}: CPU"),
        seen: format!("{}m", thousandths(seen.microcores)),
        ratio: None,
        goal: Some(Goal {
            text: format!("≤ {AGENT_MILLI}m"),
            is_met: seen.microcores <= AGENT_MILLI * 1_000,
        }),
        near: format!(
            "{} clearings, {} limits written and read back; in each cgroup a shell counts for 1 ms a second, a quarter of them in turn for up to 30 ms",
            seen.clearings,
            grouped(seen.writes)
        ),
    });
    let mib_tenths = |kib: u64| tenths(kib * 10 / 1_024);
    let memory = seen.memory;
    table.push(Row {
        name: format!("{name}: memory"),
        seen: format!("{} MiB", mib_tenths(memory.resident_kib)),
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

fn push(table: &mut Table, what: &str, policy: Policy, [ours, theirs]: [u64; 2], goal_ns: u64) {
    let times_tenths = theirs.saturating_mul(10) / ours.max(1);
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
        ratio: Some(format!("{}×", tenths(times_tenths))),
        goal: Some(Goal {
            text: format!("ours ≥ {TIMES}×"),
            is_met: times_tenths >= TIMES * 10,
        }),
        near: "one core".to_owned(),
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is measured is another program, in real time"
)]
fn pause(length: Duration) {
    std::thread::sleep(length);
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
