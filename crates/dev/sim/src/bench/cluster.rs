//! Bench of the cluster: cover decisions, compared with a scan in the same run; the cost of a lease event
//! and of a copy of the accounts as ended and live leases grow; submissions over HTTP; memory; recovery.
//!
//! Covers and lease events call the accounts in this process, without a ledger: no record, no disk, no
//! thread. The other parts use a ledger on disk, as `bursar up` does.

mod chains;
mod cover;
mod lease;
mod memory;
mod recovery;
mod scan;
mod site;
mod submissions;
mod tree;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::table::{Goal, Row, Table, grouped, tenths, thousandths};
use super::{Bench, Scale, disk, heading, private_directory};
use lease::{Growth, History};
use site::{RUN_GPUS, Site};
use submissions::Load;

/// Goals.
mod goal {
    pub(super) const COVERS_PER_SECOND: u64 = 100_000;
    pub(super) const HISTORY_HUNDREDTHS: u64 = 120;
    pub(super) const LIVE_HUNDREDTHS: u64 = 200;
    pub(super) const SUBMISSIONS_PER_SECOND: u64 = 5_000;
}

/// Leases in the smaller state of a comparison, ended and live.
const FEW: u64 = 1_000;
/// The cluster that runs are submitted to: 1,000 runs fill it.
const SITE: Site = Site {
    nodes: 1_000,
    node_gpus: RUN_GPUS,
};
/// Live runs while runs are submitted: half of the cluster, and twice the cluster.
const LIVE: [u64; 2] = [500, 2_000];
/// Runs that hold GPUs while their memory is measured.
const HELD: u64 = 12_500;
/// Ended runs whose memory is measured; the most that are remembered.
const REMEMBERED: u64 = 100_000;

/// Part that can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// Memory of live GPUs and of remembered runs.
    Memory,
    /// Cover decisions, compared with a scan over all envelopes.
    Cover,
    /// Cost of a lease event and of a copy of the accounts as ended leases grow.
    History,
    /// Cost of a lease event as live leases grow.
    Live,
    /// Submissions of runs over HTTP.
    Submissions,
    /// Start without a snapshot.
    Recovery,
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

/// Measures the cluster. Checks `interrupted` between two parts, so that an interrupted run cleans up.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    disk::check_is_disk(&options.directory)?;
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let directory = private_directory(&options.directory)?;
    let bench = Bench {
        scale: Scale::of(options.quick),
        directory: directory.path(),
        interrupted,
    };
    let mut table = heading(directory.path(), options.quick)?;
    let tenth = if options.quick { 10 } else { 1 };
    // Memory comes first: it is the growth of this process, which other parts would distort.
    if wanted(Part::Memory) {
        bench.cluster_memory(&mut table, HELD / tenth, REMEMBERED / tenth)?;
    }
    if wanted(Part::Cover) {
        bench.begin("cover decisions")?;
        push_cover(&mut table, &cover::measure(bench.half())?);
    }
    let few = History {
        ended: FEW,
        live: FEW,
    };
    if wanted(Part::History) {
        bench.begin("lease events after many leases")?;
        let ended = 1_000_000 / tenth;
        let growth = lease::measure(few, History { ended, ..few }, bench.half())?;
        push_growth(&mut table, &growth, goal::HISTORY_HUNDREDTHS);
        push_copies(&mut table, &growth);
    }
    if wanted(Part::Live) {
        bench.begin("lease events beside many live leases")?;
        let live = 100_000 / tenth;
        let growth = lease::measure(few, History { live, ..few }, bench.half())?;
        push_growth(&mut table, &growth, goal::LIVE_HUNDREDTHS);
    }
    if wanted(Part::Submissions) {
        for live in LIVE {
            bench.submissions(&mut table, live)?;
        }
    }
    if wanted(Part::Recovery) {
        bench.cluster_recovery(&mut table, bench.scale.records)?;
    }
    Ok(table)
}

impl Bench<'_> {
    /// Time of a measurement that has two sides.
    fn half(&self) -> Duration {
        self.scale.measured / 2
    }

    fn cluster_memory(&self, table: &mut Table, held: u64, ended: u64) -> anyhow::Result<()> {
        self.begin("memory of live GPUs and remembered runs")?;
        let measured = memory::measure(&self.part_directory("memory")?, held, ended)?;
        let rows = [
            (
                "memory per live GPU",
                measured.bytes_per_gpu,
                format!(
                    "{} live, in runs of {RUN_GPUS}",
                    grouped(measured.live_gpus)
                ),
            ),
            (
                "memory per remembered run",
                measured.bytes_per_run,
                format!("{} remembered", grouped(measured.remembered)),
            ),
        ];
        for (name, bytes, near) in rows {
            table.push(Row {
                name: name.to_owned(),
                value: format!("{} bytes", grouped(bytes)),
                ratio: None,
                goal: None,
                near: format!("{near}; in working state and view, with allocator and store"),
            });
        }
        Ok(())
    }

    fn submissions(&self, table: &mut Table, live: u64) -> anyhow::Result<()> {
        self.begin(&format!("submissions, {} live runs", grouped(live)))?;
        let directory = self.part_directory(&format!("submissions-{live}"))?;
        let load = Load {
            site: SITE,
            live,
            connections: submissions::CONNECTIONS,
        };
        let measured = submissions::measure(&directory, self.scale, load)?;
        let waiting = grouped(live.saturating_sub(SITE.nodes));
        table.push(Row {
            name: format!(
                "HTTP, runs of {RUN_GPUS} GPUs, {} nodes, {waiting} waiting",
                grouped(SITE.nodes)
            ),
            value: format!("{} runs/s", grouped(measured.per_second)),
            ratio: None,
            goal: Some(Goal::at_least(
                measured.per_second,
                goal::SUBMISSIONS_PER_SECOND,
            )),
            near: format!("{}; {}", measured.near, submissions::live_words(&measured)),
        });
        Ok(())
    }

    fn cluster_recovery(&self, table: &mut Table, events: u64) -> anyhow::Result<()> {
        self.begin("a start without a snapshot")?;
        let measured = recovery::measure(&self.part_directory("recovery")?, events)?;
        table.push(Row {
            name: format!("recovery of {} lease events", grouped(events)),
            value: format!("{} s", thousandths(measured.took_ms)),
            ratio: None,
            goal: None,
            near: measured.near,
        });
        Ok(())
    }
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

fn push_copies(table: &mut Table, Growth { few, many }: &Growth) {
    let ratio_hundredths = hundredths_ceil(many.copy_ns, few.copy_ns);
    for (state, is_grown) in [(few, false), (many, true)] {
        table.push(Row {
            name: format!(
                "copy of the accounts, {} ended",
                grouped(state.history.ended)
            ),
            value: format!("{} µs", thousandths(state.copy_ns)),
            ratio: is_grown.then(|| times(ratio_hundredths)),
            goal: None,
            near: format!("one core; median of {}", grouped(state.batches)),
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
                copy_ns: 1,
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
