//! The printed tables and goals.

use std::fmt::Write as _;

use bursar_units::words::number as grouped;

use super::super::table::{Goal, Row, Table, tenths};
use super::load::{Load, Machines, Shape};
use super::plant::Work;
use super::result::DayResult;
use super::ways::Way;
use super::{Day, MAX_MILLI, MIN_MILLI, PODS, SIZES_PERCENT};

/// Size of the node on which all costs are shown, and the loss is compared with the best causal rule.
const FULL_PERCENT: u64 = 100;
/// Size of the node on which the delay is compared.
const DELAY_PERCENT: u64 = 150;
/// Goal for lost work over that of the best causal rule, in percent.
const LOST_PERCENT_MAX: u64 = 125;
/// Goal for the delay: this part of the prototype's.
const DELAY_PART: u64 = 20;

/// How every day is replayed.
pub(super) const METHOD: &[&str] = &[
    "Each day: 64 pods of 50m to 1000m on nodes of four sizes, in virtual time; ours senses, clears and acts every second",
    "VPA-like: 90th percentile of use in the day so far, 24 h half-life, + 15 %, every minute, within the same bounds; its sample is the mean of",
    "  a minute, as deployed, or of a second, as ours. Clairvoyant: the least work that any rule can lose which knows the next 1 or 5 s. Best causal",
    "  rule: the least that a rule loses on average which knows height and busy time of every five minutes and how the bursts were drawn",
];

/// The words of the tables.
pub(super) const WORDS: &[&str] = &[
    "",
    "thr: time in which a quota held a pod back, of the time in which it wanted anything, in percent; lost: work not done, of what was wanted, in",
    "  percent, also where the node was full; held: limits over use (without a limit, all that a pod may use); p99: if work waits instead, the",
    "  delay that 99 % of it does not exceed; writes: per pod and hour; Jain: of done over wanted, in the seconds in which somebody lost; over: time",
    "  in which the limits exceed the node",
];

/// A cost of a way that is better if it is less.
#[derive(Clone, Copy)]
struct Cost {
    name: &'static str,
    value: fn(&DayResult) -> u64,
    words: fn(u64) -> String,
}

const COSTS: [Cost; 3] = [
    Cost {
        name: "throttled",
        value: DayResult::throttled_ppm,
        words: percent,
    },
    Cost {
        name: "lost",
        value: DayResult::lost_ppm,
        words: percent,
    },
    Cost {
        name: "held over used",
        value: DayResult::held_ppm,
        words: times,
    },
];

/// All ways on all sizes.
pub(super) fn day(day: &Day, load: &Load) -> Vec<String> {
    let total = load.totals();
    let count = u64::try_from(total.len()).unwrap_or(1).max(1);
    let over = total.iter().filter(|milli| **milli > day.node_milli);
    let over = u64::try_from(over.count()).unwrap_or(0) * 1_000 / count;
    let mut head = vec![
        String::new(),
        capitalised(&day.name()),
        format!(
            "They want {}m on average and {}m at their peak; the node of 100 % has {}m: enough for the busiest five minutes, {}m, and too little in {}% of all seconds",
            grouped(total.iter().sum::<u64>() / count),
            grouped(total.iter().copied().max().unwrap_or(0)),
            grouped(day.node_milli),
            grouped(load.busiest_milli),
            tenths(over),
        ),
    ];
    if day.shape == Shape::NoisyNeighbour {
        head.push(format!(
            "The last pod always wants {}m and may use it; the costs are those of the {} others",
            grouped(day.node_milli / 2),
            load.measured
        ));
    }
    let mut names = vec!["WAY".to_owned()];
    for _ in SIZES_PERCENT {
        names.extend(["│", "THR", "LOST", "HELD", "P99"].map(str::to_owned));
    }
    let line = |way: Way| {
        let mut cells = vec![way.name()];
        for percent in SIZES_PERCENT {
            cells.push("│".to_owned());
            let lost = day.result(way, percent, Work::Lost);
            let cost = |cost: Cost| {
                lost.map_or_else(String::new, |result| (cost.words)((cost.value)(result)))
            };
            cells.extend(COSTS.map(cost));
            let waits = day.result(way, percent, Work::Waits);
            cells.push(waits.map_or_else(|| "-".to_owned(), |result| delay(result.delay_s_p99())));
        }
        cells
    };
    let lines: Vec<Vec<String>> = std::iter::once(names).chain(Way::ALL.map(line)).collect();
    let lines = aligned(&lines);
    head.push(sizes(day, lines.first().map_or("", String::as_str)));
    head.extend(lines);
    head
}

/// The sizes of the node above their columns, which begin with a bar.
fn sizes(day: &Day, names: &str) -> String {
    let mut out = String::new();
    for (columns, percent) in names.split('│').zip([0].into_iter().chain(SIZES_PERCENT)) {
        let label = match percent {
            0 => String::new(),
            _ => format!(
                "│  {percent} %: {}m",
                grouped(day.node_milli * percent / 100)
            ),
        };
        let width = columns.chars().count() + usize::from(percent > 0);
        let _ = write!(out, "{label:width$}");
    }
    out.trim_end().to_owned()
}

/// The other costs on the node of 100 %.
pub(super) fn full_node(day: &Day) -> Vec<String> {
    let head = ["WAY", "WRITES", "JAIN", "OVER"]
        .map(str::to_owned)
        .to_vec();
    let line = |way: Way| {
        let mut cells = vec![way.name()];
        if let Some(result) = day.result(way, FULL_PERCENT, Work::Lost) {
            cells.push(hundredths(result.writes_hundredths()));
            cells.push(hundredths(result.jain_ppm() / 10_000));
            cells.push(format!("{}%", percent(result.over_ppm())));
        }
        cells
    };
    let title = format!("The same day on the node of {FULL_PERCENT} %");
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(Way::ALL.map(line)).collect();
    [String::new(), title]
        .into_iter()
        .chain(aligned(&lines))
        .collect()
}

/// Aligned columns; only the first is left-aligned.
fn aligned(lines: &[Vec<String>]) -> Vec<String> {
    let columns = lines.iter().map(Vec::len).max();
    let mut widths = vec![0; columns.unwrap_or(0)];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).enumerate();
        let text: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text.join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

/// Goals of ours with 600 writes, on the bursts of each set.
pub(super) fn push_goals(table: &mut Table, days: &[Day]) {
    for day in days.iter().filter(|day| day.shape == Shape::Bursts) {
        for peer in [Way::SEED, Way::AUTOSCALER] {
            for cost in COSTS {
                table.push(better(day, cost, peer));
            }
        }
        table.push(near_causal(day));
        table.push(soon(day));
    }
    table.push(kept(days));
}

/// Whether ours costs less than a peer on every size.
fn better(day: &Day, cost: Cost, peer: Way) -> Row {
    let values = |way: Way| {
        SIZES_PERCENT.map(|percent| day.result(way, percent, Work::Lost).map_or(0, cost.value))
    };
    let (ours, theirs) = (values(Way::OURS), values(peer));
    let words = |values: [u64; 4]| values.map(cost.words).join(" / ");
    Row {
        name: format!("{}, {}", cost.name, short(day)),
        value: words(ours),
        ratio: None,
        goal: Some(Goal {
            text: format!("< {}", words(theirs)),
            is_met: ours.iter().zip(&theirs).all(|(ours, theirs)| ours < theirs),
        }),
        near: format!("{}; nodes of 75, 100, 150 and 200 %", peer.name()),
    }
}

/// Whether ours loses little more than the best causal rule on the full node.
fn near_causal(day: &Day) -> Row {
    let [ours, best] = [Way::OURS, Way::Causal].map(|way| {
        let result = day.result(way, FULL_PERCENT, Work::Lost);
        result.map_or(0, DayResult::lost_ppm)
    });
    Row {
        name: format!("lost, {}", short(day)),
        value: percent(ours),
        ratio: Some(format!("{}×", hundredths(ours * 100 / best.max(1)))),
        goal: Some(Goal {
            text: format!("≤ {}× {}", hundredths(LOST_PERCENT_MAX), percent(best)),
            is_met: ours * 100 <= best * LOST_PERCENT_MAX,
        }),
        near: format!("{}; node of {FULL_PERCENT} %", Way::Causal.name()),
    }
}

/// Whether work waits far less than with the prototype.
fn soon(day: &Day) -> Row {
    let [ours, theirs] = [Way::OURS, Way::SEED].map(|way| {
        let result = day.result(way, DELAY_PERCENT, Work::Waits);
        result.map_or(0, DayResult::delay_s_p99)
    });
    Row {
        name: format!("p99 of delay, {}", short(day)),
        value: format!("{}s", grouped(ours)),
        ratio: None,
        goal: Some(Goal {
            text: format!("≤ {}s / {DELAY_PART}", grouped(theirs)),
            is_met: ours * DELAY_PART <= theirs,
        }),
        near: format!("{}; node of {DELAY_PERCENT} %", Way::SEED.name()),
    }
}

/// Whether every clearing kept its promises.
fn kept(days: &[Day]) -> Row {
    let runs = days.iter().flat_map(|day| &day.runs);
    let ours: Vec<&DayResult> = runs
        .filter(|(case, _)| matches!(case.way, Way::Ours { .. }))
        .map(|(_, result)| result)
        .collect();
    let broken = ours.iter().map(|result| result.broken).sum();
    let clearings = ours.iter().map(|result| result.clearings).sum();
    Row {
        name: format!("invariants broken, {} days of ours", ours.len()),
        value: grouped(broken),
        ratio: None,
        goal: Some(Goal {
            text: "0".to_owned(),
            is_met: broken == 0 && clearings > 0,
        }),
        near: format!(
            "{} clearings; each pod within {MIN_MILLI}m and {}m or its own maximum, and limits never above the node",
            grouped(clearings),
            grouped(MAX_MILLI)
        ),
    }
}

/// The set of a day, in few letters.
fn short(day: &Day) -> String {
    let first = day.machines.first();
    let held_out = if day.machines == Machines::First {
        ""
    } else {
        ", held out"
    };
    format!("machines {first}-{}{held_out}", first + PODS - 1)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// Parts per million in percent, with one place.
pub(super) fn percent(ppm: u64) -> String {
    tenths((ppm + 500) / 1_000)
}

/// Parts per million as a factor, with two places.
pub(super) fn times(ppm: u64) -> String {
    hundredths((ppm + 5_000) / 10_000)
}

/// Hundredths as a decimal with two places.
fn hundredths(number: u64) -> String {
    format!("{}.{:02}", grouped(number / 100), number % 100)
}

/// A time in the largest unit of which there are at least three.
fn delay(seconds: u64) -> String {
    match seconds {
        0..180 => format!("{seconds}s"),
        180..10_800 => format!("{}min", seconds / 60),
        _ => format!("{}h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::{delay, percent, times};

    #[test]
    fn numbers_are_rounded_to_the_nearest_and_have_their_units() {
        assert_eq!([190_499, 190_500].map(percent), ["19.0", "19.1"]);
        assert_eq!(times(1_454_999), "1.45");
        assert_eq!(times(1_455_000), "1.46");
        assert_eq!(
            [0, 179, 180, 10_799, 10_800].map(delay),
            ["0s", "179s", "3min", "179min", "3h"]
        );
    }
}
