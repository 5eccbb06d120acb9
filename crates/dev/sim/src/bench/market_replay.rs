//! Replays a day of 64 machines as pods on one node, in virtual time (design 10).
//!
//! ```text
//! load (a trace, cut into bursts) ─► plant (quotas, and the kernel's shares where they exceed the
//! node) ─► counters ─► one way to set limits ─► plant
//! ```
//! Ours is the very node that the agent drives, with its own estimator. What a pod may not use at
//! once is lost: demand does not depend on limits, so that every way sees the same day.

mod load;
mod picture;
mod plant;
mod ways;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use bursar_market::clear::Policy;

use super::table::{Goal, Row, Table, grouped, tenths};
use load::Load;
use plant::{Outcome, Plant};
use ways::{Sees, Way};

/// How many machines of the trace take part, by name.
const PODS: usize = 64;
/// What each of them may use, in millicores; also what 100 % of the trace is.
const MAX_MILLI: u64 = 1_000;
/// What each of them keeps.
const MIN_MILLI: u64 = 50;
/// What the node has. Too little for their peaks, which the table states.
const NODE_MILLI: u64 = 17_000;
/// The seed of the bursts, and of the whole load where the trace is not present.
const SEED: u64 = 1;

/// What to replay, and where to draw it.
#[derive(Debug)]
pub struct Options {
    /// The trace, if it is present.
    pub trace: Option<PathBuf>,
    /// Where the picture goes.
    pub picture: PathBuf,
    /// A tenth of the day: to see that it runs, not to quote.
    pub quick: bool,
}

/// Replays the day once for each way and says what was seen.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    let mut load = match &options.trace {
        Some(path) => Load::read(path, PODS, SEED)?,
        None => Load::make(PODS, SEED),
    };
    if options.quick {
        load.shorten(load.seconds() / 10);
    }
    let mut outcomes = Vec::new();
    for way in Way::ALL {
        if interrupted.load(Ordering::Relaxed) {
            bail!("interrupted before: {}", way.name());
        }
        eprintln!("replaying: {}", way.name());
        outcomes.push((way, Plant::new(&load, NODE_MILLI).run(way)));
    }
    let picture = picture::draw(&load, NODE_MILLI, &outcomes);
    std::fs::write(&options.picture, picture)
        .with_context(|| format!("cannot write {}", options.picture.display()))?;
    let mut table = Table::new(notes(&load, options));
    for line in columns(&outcomes) {
        table.note(line);
    }
    table.note(format!("picture: {}", options.picture.display()));
    push_goals(&mut table, &outcomes);
    Ok(table)
}

fn notes(load: &Load, options: &Options) -> Vec<String> {
    let total = load.totals();
    let over = total.iter().filter(|milli| **milli > NODE_MILLI).count();
    let count = total.len().max(1);
    let mean = total.iter().sum::<u64>() / u64::try_from(count).unwrap_or(1);
    let peak = total.iter().copied().max().unwrap_or(0);
    let over_tenths = over * 1_000 / count;
    let mut notes = vec![
        load.source.clone(),
        format!(
            "{PODS} pods, {MIN_MILLI}m to {MAX_MILLI}m each, on a node of {}m; they want {}m on average and {}m at \
             their peak, more than the node has in {}% of all seconds",
            grouped(NODE_MILLI),
            grouped(mean),
            grouped(peak),
            tenths(u64::try_from(over_tenths).unwrap_or(0)),
        ),
        format!(
            "{} s of virtual time, sampled every second, cleared every 5 s; what may not be used at once is lost",
            grouped(load.seconds()),
        ),
    ];
    if options.quick {
        notes.push("A quick run: a tenth of the day. Not to be quoted.".to_owned());
    }
    notes
}

/// The table of the ways, as aligned lines.
fn columns(outcomes: &[(Way, Outcome)]) -> Vec<String> {
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
    let lines: Vec<[String; 7]> = std::iter::once(head)
        .chain(outcomes.iter().map(|(way, outcome)| {
            [
                way.name().to_owned(),
                format!("{}%", hundredths(outcome.throttled_ppm() / 100)),
                format!("{}%", hundredths(outcome.lost_ppm() / 100)),
                format!("{}×", hundredths(outcome.held_percent())),
                hundredths(outcome.writes_hundredths(PODS)),
                hundredths(outcome.jain_ppm() / 10_000),
                format!("{}%", hundredths(outcome.over_ppm() / 100)),
            ]
        }))
        .collect();
    let mut widths = [0; 7];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let aligned = lines.iter().map(|line| {
        let cells = line.iter().zip(widths).enumerate();
        let text: Vec<String> = cells
            .map(|(place, (cell, width))| match place {
                0 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text.join("  ")
    });
    let mut all: Vec<String> = vec![String::new()];
    all.extend(aligned);
    all.push(String::new());
    all.extend(
        [
            "throttled and lost: of the work that was wanted, held back by quotas, and not done at all",
            "held/used: limits over use; writes: per pod and hour; Jain: of what was done over what was wanted,",
            "  in the seconds in which somebody lost; over: time in which the limits exceed the node",
        ]
        .map(str::to_owned),
    );
    all
}

/// The goals are the default policy's. They are set against the kinder autoscaler: the one that
/// sees use alone starves its pods, holds little, and does little.
fn push_goals(table: &mut Table, outcomes: &[(Way, Outcome)]) {
    let of = |way: Way| outcomes.iter().find(|(found, _)| *found == way);
    let ours = of(Way::Ours(Policy::default()));
    let Some(((_, ours), (peer, theirs))) = ours.zip(of(Way::VerticalAutoscaler(Sees::Demand)))
    else {
        return;
    };
    let goal = |name: &str, [ours, theirs]: [u64; 2], unit: &str| Row {
        name: format!("{name}, {}", Policy::default().word()),
        seen: format!("{}{unit}", hundredths(ours)),
        ratio: Some(format!("{}×", hundredths(theirs * 100 / ours.max(1)))),
        goal: Some(Goal {
            text: format!("< {}{unit}", hundredths(theirs)),
            is_met: ours < theirs,
        }),
        near: format!("against {}", peer.name()),
    };
    let throttled = [ours, theirs].map(|outcome| outcome.throttled_ppm() / 100);
    table.push(goal("throttled work", throttled, "%"));
    let held = [ours, theirs].map(Outcome::held_percent);
    table.push(goal("CPU held over used", held, "×"));
    let broken = outcomes.iter().map(|(_, outcome)| outcome.broken).sum();
    let clearings = outcomes.iter().map(|(_, outcome)| outcome.clearings).sum();
    table.push(Row {
        name: "invariants broken, all policies".to_owned(),
        seen: grouped(broken),
        ratio: None,
        goal: Some(Goal {
            text: "0".to_owned(),
            is_met: broken == 0,
        }),
        near: format!("{} clearings", grouped(clearings)),
    });
}

/// Hundredths as a decimal with two places.
fn hundredths(number: u64) -> String {
    format!("{}.{:02}", grouped(number / 100), number % 100)
}
