//! Replays a day of 64 machines as pods on one node, in virtual time.
//!
//! ```text
//! load (a trace, cut into bursts) ─► plant (quotas, and the kernel's shares where they exceed the
//! node) ─► counters ─► one way to set limits ─► plant
//! ```
//! Our rows use the same `market::node` as the agent, with its estimator. Work that cannot be done at
//! once is lost: demand does not depend on limits, so that every way has the same day.
//!
//! No parameter was chosen by its result. The node is the smallest whole number of processors that
//! carries the busiest five minutes of the day, by the means of the trace: the means always fit, and
//! the peaks do not. `SIZES_PERCENT` repeats the comparison on smaller and larger nodes. The
//! autoscaler runs twice, with samples of a minute as in a usual deployment and with samples of a
//! second as ours; the goals refer to both.

mod load;
mod picture;
mod plant;
mod ways;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use bursar_market::clear::Policy;

use super::table::{Goal, Row, Table, grouped, tenths};
use load::Load;
use plant::{DayResult, Plant};
use ways::{Sample, Way};

/// Number of machines of the trace that are used, in the order of their names.
const PODS: usize = 64;
/// Maximum of each pod, in millicores; 100 % in the trace.
const MAX_MILLI: u64 = 1_000;
/// Minimum of each pod.
const MIN_MILLI: u64 = 50;
const PROCESSOR_MILLI: u64 = 1_000;
/// Sizes of the node for the second table.
const SIZES_PERCENT: [u64; 4] = [75, 100, 150, 200];
/// Ways in the second table.
const COMPARED: [Way; 3] = [
    Way::Ours(Policy::Proportional),
    Way::VerticalAutoscaler(Sample::Minute),
    Way::VerticalAutoscaler(Sample::Second),
];
/// Seed of the bursts, and of the whole load if there is no trace.
const SEED: u64 = 1;

/// Options of the replay.
#[derive(Debug)]
pub struct Options {
    /// Trace to replay; if none, a day is generated from a seed.
    pub trace: Option<PathBuf>,
    /// Output file of the picture.
    pub picture: PathBuf,
    /// Replay a tenth of the day, as a smoke test.
    pub quick: bool,
}

/// Result of one way to set limits on one node.
#[derive(Debug)]
struct Run {
    way: Way,
    node_milli: u64,
    result: DayResult,
}

/// Replays the day once for each way.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    let mut load = match &options.trace {
        Some(path) => Load::read(path, PODS, SEED)?,
        None => Load::make(PODS, SEED),
    };
    let node_milli = load.busiest_milli.next_multiple_of(PROCESSOR_MILLI);
    if options.quick {
        load.shorten(load.seconds() / 10);
    }
    let sizes = SIZES_PERCENT.map(|percent| node_milli * percent / 100);
    let ways = Way::ALL.map(|way| (way, node_milli));
    let others = sizes.into_iter().filter(|size| *size != node_milli);
    let others = others.flat_map(|size| COMPARED.map(|way| (way, size)));
    let wanted: Vec<(Way, u64)> = ways.into_iter().chain(others).collect();
    let runs = replay(&load, &wanted, interrupted)?;
    let (day, _) = runs.split_at(Way::ALL.len());
    let picture = picture::draw(&load, node_milli, day);
    std::fs::write(&options.picture, picture)
        .with_context(|| format!("cannot write {}", options.picture.display()))?;
    let mut table = Table::new(notes(&load, node_milli, options));
    for line in ways_lines(day).into_iter().chain(sizes_lines(&runs, sizes)) {
        table.note(line);
    }
    table.note(format!("Picture: {}", options.picture.display()));
    push_goals(&mut table, &runs, day);
    Ok(table)
}

/// Runs all replays on as many threads as there are cores; returns them in order.
fn replay(
    load: &Load,
    wanted: &[(Way, u64)],
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<Run>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((way, node_milli)) = wanted.get(index).copied() else {
                        return;
                    };
                    if interrupted.load(Ordering::Relaxed) {
                        return;
                    }
                    eprintln!("replaying on {}m: {}", grouped(node_milli), way.name());
                    let result = Plant::new(load, node_milli).run(way);
                    let run = Run {
                        way,
                        node_milli,
                        result,
                    };
                    if let Ok(mut done) = done.lock() {
                        done.push((index, run));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().context("a replay panicked")?;
    if done.len() < wanted.len() {
        bail!("interrupted after {} of {} days", done.len(), wanted.len());
    }
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, run)| run).collect())
}

fn notes(load: &Load, node_milli: u64, options: &Options) -> Vec<String> {
    let total = load.totals();
    let over = total.iter().filter(|milli| **milli > node_milli).count();
    let count = total.len().max(1);
    let mean = total.iter().sum::<u64>() / u64::try_from(count).unwrap_or(1);
    let peak = total.iter().copied().max().unwrap_or(0);
    let over_tenths = over * 1_000 / count;
    let mut notes = vec![
        load.source.clone(),
        format!(
            "Node: {}m, the smallest whole number of processors that carries the busiest five minutes, {}m by the \
             means of the trace",
            grouped(node_milli),
            grouped(load.busiest_milli),
        ),
        format!(
            "{PODS} pods of {MIN_MILLI}m to {MAX_MILLI}m want {}m on average and {}m at their peak, more than the \
             node has in {}% of all seconds",
            grouped(mean),
            grouped(peak),
            tenths(u64::try_from(over_tenths).unwrap_or(0)),
        ),
        format!(
            "{} s of virtual time, sampled every second, cleared every 5 s; what may not be used at once is lost",
            grouped(load.seconds()),
        ),
        "VPA-like: 90th percentile of use in the day so far, 24 h half-life, + 15 %, every minute, within the same \
         bounds; its sample is the mean of a minute, as deployed, or of a second, as ours"
            .to_owned(),
    ];
    if options.quick {
        notes.push("A quick run: a tenth of the day. Not to be quoted.".to_owned());
    }
    notes
}

/// First table: all ways on the node.
fn ways_lines(day: &[Run]) -> Vec<String> {
    let head = [
        "WAY",
        "THROTTLED",
        "LOST",
        "HELD/USED",
        "WRITES",
        "JAIN",
        "OVER",
    ]
    .map(str::to_owned);
    let lines = day.iter().map(|Run { way, result, .. }| {
        [
            way.name().to_owned(),
            percent(result.throttled_ppm()),
            percent(result.lost_ppm()),
            times(result.held_percent()),
            hundredths(result.writes_hundredths(PODS)),
            hundredths(result.jain_ppm() / 10_000),
            percent(result.over_ppm()),
        ]
    });
    let lines: Vec<[String; 7]> = std::iter::once(head).chain(lines).collect();
    let mut all = aligned(&lines);
    all.extend(
        [
            "",
            "throttled: time in which a quota held a pod back, of the time in which it wanted anything; lost: work",
            "  not done, of what was wanted, also where the node was full; held/used: limits over use (without a",
            "  limit, all that a pod may use); writes: per pod and hour; Jain: of done over wanted, in the seconds",
            "  in which somebody lost; over: time in which the limits exceed the node",
        ]
        .map(str::to_owned),
    );
    all
}

/// Second table: ours and the autoscalers on smaller and larger nodes.
fn sizes_lines(runs: &[Run], sizes: [u64; 4]) -> Vec<String> {
    let mut head = vec!["THROTTLED / LOST / HELD OVER USED".to_owned()];
    for (size, percent) in sizes.into_iter().zip(SIZES_PERCENT) {
        head.push(format!("{percent}%: {}m", grouped(size)));
    }
    let line = |way: Way| {
        let cell = |size: u64| {
            let is_it = |run: &&Run| run.way == way && run.node_milli == size;
            runs.iter().find(is_it).map_or_else(String::new, |run| {
                let result = &run.result;
                let [throttled, lost] = [result.throttled_ppm(), result.lost_ppm()].map(percent);
                format!("{throttled} / {lost} / {}", times(result.held_percent()))
            })
        };
        let cells = sizes.into_iter().map(cell);
        std::iter::once(way.name().to_owned())
            .chain(cells)
            .collect()
    };
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(COMPARED.map(line)).collect();
    aligned(&lines)
}

/// Aligned columns below an empty line; only the first is left-aligned.
fn aligned(lines: &[impl AsRef<[String]>]) -> Vec<String> {
    let columns = lines.iter().map(|line| line.as_ref().len()).max();
    let mut widths = vec![0; columns.unwrap_or(0)];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line.as_ref()) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |line: &[String]| {
        let cells = line.iter().zip(&widths).enumerate();
        let text: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text.join("  ")
    };
    let lines = lines.iter().map(|cells| line(cells.as_ref()));
    std::iter::once(String::new()).chain(lines).collect()
}

/// Goals of the default policy on the node, against both autoscalers.
fn push_goals(table: &mut Table, runs: &[Run], day: &[Run]) {
    let of = |way: Way| day.iter().find(|run| run.way == way);
    let peers = [Sample::Minute, Sample::Second].map(Way::VerticalAutoscaler);
    for peer in peers {
        let Some((ours, theirs)) = of(Way::Ours(Policy::default())).zip(of(peer)) else {
            continue;
        };
        let both = [&ours.result, &theirs.result];
        let throttled = both.map(|result| result.throttled_ppm() / 100);
        table.push(goal("throttled time", peer, throttled, "%"));
        let held = both.map(DayResult::held_percent);
        table.push(goal("CPU held over used", peer, held, "×"));
    }
    let ours: Vec<&Run> = runs
        .iter()
        .filter(|run| matches!(run.way, Way::Ours(_)))
        .collect();
    let broken = ours.iter().map(|run| run.result.broken).sum();
    let clearings = ours.iter().map(|run| run.result.clearings).sum();
    table.push(Row {
        name: format!("invariants broken, {} runs of ours", ours.len()),
        value: grouped(broken),
        ratio: None,
        goal: Some(Goal {
            text: "0".to_owned(),
            is_met: broken == 0,
        }),
        near: format!(
            "{} clearings: each policy on the node, and {} on the other sizes",
            grouped(clearings),
            Policy::default().word()
        ),
    });
}

fn goal(name: &str, peer: Way, [ours, theirs]: [u64; 2], unit: &str) -> Row {
    Row {
        name: format!("{name}, {}", Policy::default().word()),
        value: format!("{}{unit}", hundredths(ours)),
        ratio: Some(format!("{}×", hundredths(theirs * 100 / ours.max(1)))),
        goal: Some(Goal {
            text: format!("< {}{unit}", hundredths(theirs)),
            is_met: ours < theirs,
        }),
        near: format!("against {}", peer.name()),
    }
}

fn percent(ppm: u64) -> String {
    format!("{}%", hundredths(ppm / 100))
}

fn times(percent: u64) -> String {
    format!("{}×", hundredths(percent))
}

/// Hundredths as a decimal with two places.
fn hundredths(number: u64) -> String {
    format!("{}.{:02}", grouped(number / 100), number % 100)
}
