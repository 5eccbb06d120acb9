//! Bench of the cluster: cover decisions, compared with a scan in the same run, and the cost of a
//! lease event as ended and live leases grow.
//!
//! Both parts call the accounts in this process, without a ledger: no record, no disk, no thread.

mod cover;
mod lease;
mod scan;
mod tree;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::begin;
use super::table::{Goal, Row, Table, grouped, tenths, thousandths};
use super::usage;
use lease::{Growth, History};

/// Goals.
mod goal {
    pub(super) const COVERS_PER_SECOND: u64 = 100_000;
    pub(super) const HISTORY_HUNDREDTHS: u64 = 120;
    pub(super) const LIVE_HUNDREDTHS: u64 = 200;
}

/// Leases in the smaller state of a comparison, ended and live.
const FEW: u64 = 1_000;

/// Part that can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// Cover decisions, compared with a scan over all envelopes.
    Cover,
    /// Cost of a lease event as ended leases grow.
    History,
    /// Cost of a lease event as live leases grow.
    Live,
}

/// Options of the bench of the cluster.
#[derive(Debug)]
pub struct Options {
    /// Parts to measure; all if empty.
    pub only: Vec<Part>,
    /// Run a tenth of the work, as a smoke test.
    pub quick: bool,
    /// Directory for temporary data; must be on a disk.
    pub directory: PathBuf,
}

/// Measures covers, then lease events.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    let warning = usage::other_programs();
    let mut table = Table::new(vec![usage::describe_machine()]);
    if let Some(warning) = warning {
        table.note(warning);
    }
    if options.quick {
        table.note("A quick run: a tenth of the counts and times. Not to be quoted.".to_owned());
    }
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let divisor = if options.quick { 10 } else { 1 };
    let time = Duration::from_secs(5) / divisor;
    if wanted(Part::Cover) {
        begin("cover decisions", interrupted)?;
        push_cover(&mut table, &cover::measure(time)?);
    }
    let few = History {
        ended: FEW,
        live: FEW,
    };
    if wanted(Part::History) {
        begin("lease events after many leases", interrupted)?;
        let ended = 1_000_000 / u64::from(divisor);
        let growth = lease::measure(few, History { ended, ..few }, time)?;
        push_growth(&mut table, &growth, goal::HISTORY_HUNDREDTHS);
    }
    if wanted(Part::Live) {
        begin("lease events beside many live leases", interrupted)?;
        let live = 100_000 / u64::from(divisor);
        let growth = lease::measure(few, History { live, ..few }, time)?;
        push_growth(&mut table, &growth, goal::LIVE_HUNDREDTHS);
    }
    Ok(table)
}

fn push_cover(table: &mut Table, measured: &cover::Measurement) {
    let name = format!(
        "cover of 8 GPUs, envelope {} of {} pays",
        cover::PAYER,
        grouped(measured.envelopes)
    );
    table.push(Row {
        name,
        value: format!("{} covers/s", grouped(measured.per_second)),
        ratio: None,
        goal: Some(Goal::at_least(measured.per_second, goal::COVERS_PER_SECOND)),
        near: format!(
            "one core; {} owners in random order, {} live claims",
            grouped(measured.requests),
            grouped(measured.claims)
        ),
    });
    let times_tenths = measured.per_second.saturating_mul(10) / measured.scan_per_second.max(1);
    table.push(Row {
        name: "the same, a scan over all envelopes".to_owned(),
        value: format!("{} covers/s", grouped(measured.scan_per_second)),
        ratio: Some(format!("{}×", tenths(times_tenths))),
        goal: None,
        near: format!(
            "one core; the takes of all {} requests agree",
            grouped(measured.requests)
        ),
    });
}

fn push_growth(table: &mut Table, growth: &Growth, most_hundredths: u64) {
    let Growth { few, many } = growth;
    let ratio_hundredths = hundredths_ceil(many.pair_ns, few.pair_ns);
    for (state, is_grown) in [(few, false), (many, true)] {
        table.push(Row {
            name: format!(
                "fund and close of 8 GPUs, {} ended, {} live",
                grouped(state.history.ended),
                grouped(state.history.live)
            ),
            value: format!("{} µs", thousandths(state.pair_ns)),
            ratio: is_grown.then(|| times(ratio_hundredths)),
            goal: is_grown.then(|| Goal {
                text: format!("≤ {}", times(most_hundredths)),
                is_met: ratio_hundredths <= most_hundredths,
            }),
            near: format!("one core; median of {} batches", grouped(state.batches)),
        });
    }
}

/// Hundredths of `value / of`, rounded up: a growth is never shown smaller than it is.
fn hundredths_ceil(value: u64, of: u64) -> u64 {
    value.saturating_mul(100).div_ceil(of.max(1))
}

/// Hundredths as a factor: `120` as `1.20×`.
fn times(hundredths: u64) -> String {
    format!("{}×", thousandths(hundredths.saturating_mul(10)))
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::lease::{Cost, Growth, History};
    use super::{goal, hundredths_ceil, push_growth, times};

    #[test]
    fn growth_is_rounded_up_and_compared_with_its_goal() {
        assert_eq!(
            [120, 121, 100],
            [
                hundredths_ceil(1_200, 1_000),
                hundredths_ceil(1_201, 1_000),
                hundredths_ceil(7, 7)
            ]
        );
        assert_eq!(["1.20×", "0.97×"], [120, 97].map(times));
        let row = |many_ns: u64| {
            let cost = |pair_ns: u64| Cost {
                history: History { ended: 1, live: 1 },
                pair_ns,
                batches: 3,
            };
            let mut table = Table::new(Vec::new());
            let growth = Growth {
                few: cost(1_000),
                many: cost(many_ns),
            };
            push_growth(&mut table, &growth, goal::HISTORY_HUNDREDTHS);
            table.not_met().count()
        };
        assert_eq!([0, 1], [row(1_200), row(1_201)]);
    }
}
