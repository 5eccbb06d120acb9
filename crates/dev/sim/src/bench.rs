//! Benches: bookings, with peers in the same run; [`executions`]; the market of a node in [`market`]
//! and [`market_replay`]; budgets and runs in [`cluster`].
//!
//! Every row is bounded in count and time, communicates over loopback or a socket in its own
//! directory, and ends all processes that it started. Load is generated from fixed seeds; times are
//! real. Each row is compared with its goal, if it has one, and names the resource that limited it.

mod chains;
pub mod cluster;
mod disk;
pub mod executions;
mod http;
mod latency;
pub mod market;
pub mod market_replay;
mod memory;
mod pairs;
pub mod peer;
mod recovery;
mod search;
pub mod table;
pub mod usage;
mod world;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use table::{Goal, Row, Table};

/// Part that can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// Memory per million remembered ids.
    Memory,
    /// Pairs on one hot limit, in process.
    Pairs,
    /// Latency at a fixed rate.
    Latency,
    /// Requests and batched operations over HTTP.
    Http,
    /// Start without a snapshot.
    Recovery,
    /// Search for the records of one booking, by a scan and by the index.
    Search,
    /// The same pairs in `PostgreSQL`.
    Postgres,
    /// The same pairs in Redis.
    Redis,
}

/// Options of the bench of bookings.
#[derive(Debug)]
pub struct Options {
    /// Parts to measure; all if empty.
    pub only: Vec<Part>,
    /// Run a tenth of the work, as a smoke test.
    pub quick: bool,
    /// Directory for temporary data; must be on a disk.
    pub directory: PathBuf,
}

#[derive(Clone, Copy, Debug)]
struct Scale {
    measured: Duration,
    warm_up: Duration,
    records: u64,
    ids: u64,
}

struct Bench<'a> {
    scale: Scale,
    directory: &'a Path,
    interrupted: &'a AtomicBool,
}

mod goal {
    pub(super) const PAIRS_PER_SECOND: u64 = 100_000;
    pub(super) const LATENCY_P99_US: u64 = 5_000;
    pub(super) const REQUESTS_PER_SECOND: u64 = 20_000;
    pub(super) const OPERATIONS_PER_SECOND: u64 = 100_000;
    pub(super) const RECOVERY_MS: u64 = 2_000;
    pub(super) const MEMORY_MIB: u64 = 300;
    pub(super) const TIMES_POSTGRES: u64 = 30;
    pub(super) const TIMES_REDIS: u64 = 1;
}

/// Measures bookings. Checks `interrupted` between two parts, so that an interrupted run cleans up.
pub fn bookings(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    disk::check_is_disk(&options.directory)?;
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Postgres) {
        peer::postgres::install()?;
    }
    if wanted(Part::Redis) {
        peer::redis::install()?;
    }
    let directory = private_directory(&options.directory)?;
    let bench = Bench {
        scale: Scale::of(options.quick),
        directory: directory.path(),
        interrupted,
    };
    let mut table = heading(directory.path(), options.quick)?;
    // Memory comes first: it is the growth of this process, which other parts would distort.
    if wanted(Part::Memory) {
        bench.memory(&mut table)?;
    }
    let mut ours = None;
    if wanted(Part::Pairs) {
        ours = Some(bench.pairs(&mut table)?);
    }
    if wanted(Part::Postgres) {
        bench.postgres(&mut table, ours)?;
    }
    if wanted(Part::Redis) {
        bench.redis(&mut table, ours)?;
    }
    if wanted(Part::Latency) {
        bench.latency(&mut table)?;
    }
    if wanted(Part::Http) {
        bench.http(&mut table)?;
    }
    if wanted(Part::Recovery) {
        bench.recovery(&mut table)?;
    }
    if wanted(Part::Search) {
        bench.search(&mut table)?;
    }
    Ok(table)
}

impl Scale {
    fn of(quick: bool) -> Self {
        let whole = Self {
            measured: Duration::from_secs(8),
            warm_up: Duration::from_secs(1),
            records: 1_000_000,
            ids: 1_000_000,
        };
        if !quick {
            return whole;
        }
        Self {
            measured: whole.measured / 10,
            warm_up: whole.warm_up / 10,
            records: whole.records / 10,
            ids: whole.ids / 10,
        }
    }
}

impl Bench<'_> {
    fn memory(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("memory of remembered ids")?;
        let measured = memory::measure(&self.part_directory("memory")?, self.scale.ids)?;
        table.push(Row {
            name: "memory per million remembered ids".to_owned(),
            value: format!("{} MiB", measured.mib_per_million),
            ratio: None,
            goal: Some(Goal::at_most(
                measured.mib_per_million,
                goal::MEMORY_MIB,
                "MiB",
            )),
            near: measured.near,
        });
        Ok(())
    }

    fn pairs(&self, table: &mut Table) -> anyhow::Result<u64> {
        self.begin("pairs on one hot limit, in process")?;
        let measured = pairs::measure(&self.part_directory("pairs")?, self.scale)?;
        let outstanding = table::grouped(u64::try_from(chains::OUTSTANDING)?);
        table.push(Row {
            name: format!("hot limit, bursar in process, {outstanding} outstanding"),
            value: format!("{} pairs/s", table::grouped(measured.pairs_per_second)),
            ratio: None,
            goal: Some(Goal::at_least(
                measured.pairs_per_second,
                goal::PAIRS_PER_SECOND,
            )),
            near: measured.near,
        });
        Ok(measured.pairs_per_second)
    }

    fn postgres(&self, table: &mut Table, ours: Option<u64>) -> anyhow::Result<()> {
        self.begin("the same in PostgreSQL")?;
        let peer = peer::postgres::start(&self.part_directory("postgres")?)?;
        table.note(peer.version().to_owned());
        for way in peer::postgres::WAYS {
            self.begin(way.name)?;
            let measured = peer.measure(way, self.scale.measured)?;
            table.push(peer_row(
                way.name,
                &measured,
                ours,
                Some(goal::TIMES_POSTGRES),
            ));
        }
        Ok(())
    }

    fn redis(&self, table: &mut Table, ours: Option<u64>) -> anyhow::Result<()> {
        for way in peer::redis::WAYS {
            self.begin(way.name)?;
            let peer = peer::redis::start(&self.part_directory(way.directory)?, way)?;
            let measured = peer.measure(self.scale.warm_up, self.scale.measured)?;
            if way.is_durable {
                table.note(peer.version().to_owned());
            }
            let times = way.is_durable.then_some(goal::TIMES_REDIS);
            table.push(peer_row(way.name, &measured, ours, times));
        }
        Ok(())
    }

    fn latency(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("latency at a fixed rate")?;
        let measured = latency::measure(&self.part_directory("latency")?, self.scale)?;
        let rate = table::grouped(latency::RECORDS_PER_SECOND);
        table.push(Row {
            name: format!("latency p50 at {rate} records/s"),
            value: format!("{} ms", table::thousandths(measured.p50_us)),
            ratio: None,
            goal: None,
            near: measured.near,
        });
        table.push(Row {
            name: format!("latency p99 at {rate} records/s"),
            value: format!("{} ms", table::thousandths(measured.p99_us)),
            ratio: None,
            goal: Some(Goal {
                text: format!("≤ {} ms", goal::LATENCY_P99_US / 1_000),
                is_met: measured.p99_us <= goal::LATENCY_P99_US,
            }),
            near: measured.detail,
        });
        Ok(())
    }

    fn http(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("HTTP, one operation a request")?;
        let measured = http::measure(&self.part_directory("http")?, self.scale, http::UNBATCHED)?;
        table.push(Row {
            name: format!(
                "HTTP unbatched, {} connections",
                http::UNBATCHED.connections
            ),
            value: format!("{} requests/s", table::grouped(measured.per_second)),
            ratio: None,
            goal: Some(Goal::at_least(
                measured.per_second,
                goal::REQUESTS_PER_SECOND,
            )),
            near: measured.near,
        });
        self.begin("HTTP, batched")?;
        let shape = http::BATCHED;
        let measured = http::measure(&self.part_directory("http-batched")?, self.scale, shape)?;
        table.push(Row {
            name: format!(
                "HTTP {} a batch, {} connections",
                shape.batch, shape.connections
            ),
            value: format!("{} operations/s", table::grouped(measured.per_second)),
            ratio: None,
            goal: Some(Goal::at_least(
                measured.per_second,
                goal::OPERATIONS_PER_SECOND,
            )),
            near: measured.near,
        });
        Ok(())
    }

    fn recovery(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("a start without a snapshot")?;
        let measured = recovery::measure(&self.part_directory("recovery")?, self.scale.records)?;
        table.push(Row {
            name: format!("recovery of {} records", table::grouped(self.scale.records)),
            value: format!("{} s", table::thousandths(measured.took_ms)),
            ratio: None,
            goal: Some(Goal {
                text: format!("≤ {} s", goal::RECOVERY_MS / 1_000),
                is_met: measured.took_ms <= goal::RECOVERY_MS,
            }),
            near: measured.near,
        });
        Ok(())
    }

    fn search(&self, table: &mut Table) -> anyhow::Result<()> {
        for records in [self.scale.records / 50, self.scale.records / 5] {
            let size = table::grouped(records);
            self.begin(&format!("a search of {size} records"))?;
            let measured =
                search::measure(&self.part_directory(&format!("search-{records}"))?, records)?;
            for (how, took_us) in [
                ("a scan", measured.scan_us),
                ("the index", measured.index_us),
            ] {
                table.push(Row {
                    name: format!("a booking's records of {size}, by {how}"),
                    value: format!("{} ms", table::thousandths(took_us)),
                    ratio: None,
                    goal: None,
                    near: measured.near.clone(),
                });
            }
        }
        Ok(())
    }

    fn begin(&self, part: &str) -> anyhow::Result<()> {
        begin(part, self.interrupted)
    }

    /// Creates the directory of one part.
    fn part_directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.directory.join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }
}

/// Prints the next part on stderr; fails if the run was interrupted.
fn begin(part: &str, interrupted: &AtomicBool) -> anyhow::Result<()> {
    if interrupted.load(Ordering::Relaxed) {
        bail!("interrupted before: {part}");
    }
    eprintln!("measuring: {part}");
    Ok(())
}

/// An empty table with a description of disk and machine.
fn heading(directory: &Path, is_quick: bool) -> anyhow::Result<Table> {
    let warning = usage::other_programs();
    let disk = disk::describe(directory)?;
    let mut table = Table::new(vec![disk, usage::describe_machine()]);
    if let Some(warning) = warning {
        table.note(warning);
    }
    if is_quick {
        table.note("A quick run: a tenth of the counts and times. Not to be quoted.".to_owned());
    }
    Ok(table)
}

fn peer_row(
    name: &str,
    measured: &peer::Measurement,
    ours: Option<u64>,
    times: Option<u64>,
) -> Row {
    let ratio_milli =
        ours.map(|ours| ours.saturating_mul(1_000) / measured.pairs_per_second.max(1));
    Row {
        name: format!("hot limit, {name}"),
        value: format!("{} pairs/s", table::grouped(measured.pairs_per_second)),
        ratio: ratio_milli.map(|milli| format!("{}×", table::tenths(milli / 100))),
        goal: ratio_milli.zip(times).map(|(milli, times)| Goal {
            text: format!("ours ≥ {times}×"),
            is_met: milli >= times * 1_000,
        }),
        near: measured.near.clone(),
    }
}

/// A directory that is removed on drop. Other users may enter it, because `PostgreSQL` refuses to run
/// as root and uses its own user.
fn private_directory(parent: &Path) -> anyhow::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new()
        .prefix("bursar-bench-")
        .permissions(std::fs::Permissions::from_mode(0o711))
        .tempdir_in(parent)
        .with_context(|| {
            format!(
                "cannot create a directory in {}; choose another with --directory",
                parent.display()
            )
        })?;
    Ok(directory)
}
