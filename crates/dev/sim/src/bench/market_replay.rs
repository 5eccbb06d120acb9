//! Replays a day of 64 machines as pods on one node, in virtual time.
//!
//! ```text
//! load (a trace, cut into bursts) ─► plant (quotas, and the kernel's shares where they exceed the
//! node) ─► counters ─► one way to set limits ─► plant
//! ```
//! Our rows use the same `market::node` as the agent. Each day is replayed twice: work that cannot be
//! done at once is lost, so that every way has the same day, or it waits.
//!
//! Form and constants of the rule were chosen on the first set of machines; `--held-out` replays two
//! sets that were not used for it. The node is the smallest whole number of processors that carries
//! the busiest five minutes of the day, by the means of the trace: the means always fit, and the peaks
//! do not. `SIZES_PERCENT` repeats the comparison on smaller and larger nodes.

mod forecast;
mod load;
mod optimum;
mod ours;
mod picture;
mod plant;
mod result;
mod tables;
mod ways;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, bail};

use super::table::{Table, grouped};
use load::{Load, Machines, Shape, Trace};
use plant::{Plant, Work};
use result::DayResult;
use ways::Way;

/// Number of machines in a set.
const PODS: usize = 64;
/// Maximum of each pod, in millicores; 100 % in the trace.
const MAX_MILLI: u64 = 1_000;
/// Minimum of each pod.
const MIN_MILLI: u64 = 50;
const PROCESSOR_MILLI: u64 = 1_000;
/// Sizes of the node.
const SIZES_PERCENT: [u64; 4] = [75, 100, 150, 200];
/// Number of machines of a generated trace: enough for all sets.
const MACHINES: usize = 512;
/// Seed of the bursts, and of the whole load if there is no trace.
const SEED: u64 = 1;
/// The days, in the order of their tables.
const DAYS: [(Machines, Shape); 6] = [
    (Machines::First, Shape::Bursts),
    (Machines::HeldOut, Shape::Bursts),
    (Machines::HeldOutToo, Shape::Bursts),
    (Machines::First, Shape::LongBursts),
    (Machines::First, Shape::Means),
    (Machines::First, Shape::NoisyNeighbour),
];

/// Options of the replay.
#[derive(Debug)]
pub struct Options {
    /// Trace to replay; if none, a day is generated from a seed.
    pub trace: Option<PathBuf>,
    /// Output file of the picture.
    pub picture: PathBuf,
    /// Replay the sets of machines that were not used to choose the rule, too.
    pub held_out: bool,
    /// Replay a tenth of the day, as a smoke test.
    pub quick: bool,
}

/// One way to set limits on one node for one day.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Case {
    way: Way,
    percent: u64,
    work: Work,
}

/// All ways on all sizes of the node for one day.
#[derive(Debug)]
struct Day {
    machines: Machines,
    shape: Shape,
    node_milli: u64,
    runs: Vec<(Case, DayResult)>,
}

impl Day {
    fn result(&self, way: Way, percent: u64, work: Work) -> Option<&DayResult> {
        let case = Case { way, percent, work };
        let run = self.runs.iter().find(|(known, _)| *known == case);
        run.map(|(_, result)| result)
    }

    fn name(&self) -> String {
        format!("{}, {}", self.shape.name(), self.machines.name())
    }
}

/// Replays every day once for each way.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    let trace = match &options.trace {
        Some(path) => Trace::read(path)?,
        None => Trace::make(MACHINES, SEED),
    };
    let mut table = Table::new(vec![trace.source.clone()]);
    if options.quick {
        table.note("A quick run: a tenth of each day. Not to be quoted.".to_owned());
    }
    for line in tables::METHOD {
        table.note((*line).to_owned());
    }
    let mut days = Vec::new();
    for (machines, shape) in DAYS {
        if machines != Machines::First && !options.held_out {
            continue;
        }
        let mut load = Load::of(trace.of(machines)?, shape, SEED);
        if options.quick {
            load.shorten();
        }
        let day = Day {
            machines,
            shape,
            node_milli: load.node_milli,
            runs: replay(&load, interrupted).with_context(|| shape.name())?,
        };
        for line in tables::day(&day, &load) {
            table.note(line);
        }
        if days.is_empty() {
            std::fs::write(&options.picture, picture::draw(&load, &day))
                .with_context(|| format!("cannot write {}", options.picture.display()))?;
            for line in tables::full_node(&day) {
                table.note(line);
            }
        }
        days.push(day);
    }
    for line in tables::WORDS {
        table.note((*line).to_owned());
    }
    table.note(format!("Picture: {}", options.picture.display()));
    tables::push_goals(&mut table, &days);
    Ok(table)
}

/// Replays a day in all cases, on as many threads as there are cores.
fn replay(load: &Load, interrupted: &AtomicBool) -> anyhow::Result<Vec<(Case, DayResult)>> {
    let sizes = |work| {
        let ways = Way::ALL.into_iter();
        // The bounds are of lost work.
        let ways = ways.filter(move |way| work == Work::Lost || !way.is_bound());
        ways.flat_map(move |way| SIZES_PERCENT.map(|percent| Case { way, percent, work }))
    };
    let cases: Vec<Case> = sizes(Work::Lost).chain(sizes(Work::Waits)).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index).copied() else {
                        return;
                    };
                    if interrupted.load(Ordering::Relaxed) {
                        return;
                    }
                    let node_milli = load.node_milli * case.percent / 100;
                    eprintln!(
                        "replaying on {}m: {}, work that {}",
                        grouped(node_milli),
                        case.way.name(),
                        match case.work {
                            Work::Lost => "is lost",
                            Work::Waits => "waits",
                        }
                    );
                    let result = Plant::new(load, node_milli, case.work).run(case.way);
                    if let Ok(mut done) = done.lock() {
                        done.push((case, result));
                    }
                }
            });
        }
    });
    let done = done.into_inner().context("a replay panicked")?;
    if done.len() < cases.len() {
        bail!(
            "interrupted after {} of {} replays",
            done.len(),
            cases.len()
        );
    }
    Ok(done)
}
