//! Measures the plane of bookings, with peers beside it in the same run (design 50, "Speed"), and
//! in [`executions`] that of executions, in [`market`] and [`market_replay`] the market of a node.
//!
//! Every row is bounded in count and time, talks over loopback or a socket in a directory of its
//! own, and ends what it started. Load follows from fixed seeds; times are the machine's. It
//! judges nothing but the stated goals, and says which resource each row was near.

mod chains;
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
use usage::Usage;

/// What can be measured by itself.
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
    /// A start without a snapshot.
    Recovery,
    /// The records of one booking, by a scan and by the index.
    Search,
    /// The same pairs in the peer that speaks SQL.
    Postgres,
    /// The same pairs in the peer that runs Lua.
    Redis,
}

/// What to measure, and how long.
#[derive(Debug)]
pub struct Options {
    /// Only these; all of them if empty.
    pub only: Vec<Part>,
    /// A tenth of the counts and times: to see that it runs, not to quote.
    pub quick: bool,
    /// Where data is kept meanwhile; must be on a disk.
    pub directory: PathBuf,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Scale {
    measured: Duration,
    warm_up: Duration,
    records: u64,
    ids: u64,
}

/// What the parts share.
struct Bench<'a> {
    scale: Scale,
    directory: &'a Path,
    interrupted: &'a AtomicBool,
}

/// The goals of the issue, and of design 50.
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

/// Measures bookings and says what was seen. Between two parts it looks at `interrupted`, so
/// that whoever stops it finds nothing left behind.
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
    // Memory comes first: it is a growth of this very process, which later parts would blur.
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
        let seen = memory::measure(&self.place("memory")?, self.scale.ids)?;
        table.push(Row {
            name: "memory per million remembered ids".to_owned(),
            seen: format!("{} MiB", seen.mib_per_million),
            ratio: None,
            goal: Some(Goal::at_most(seen.mib_per_million, goal::MEMORY_MIB, "MiB")),
            near: seen.near,
        });
        Ok(())
    }

    fn pairs(&self, table: &mut Table) -> anyhow::Result<u64> {
        self.begin("pairs on one hot limit, in process")?;
        let seen = pairs::measure(&self.place("pairs")?, self.scale)?;
        let outstanding = table::grouped(u64::try_from(chains::OUTSTANDING)?);
        table.push(Row {
            name: format!("hot limit, bursar in process, {outstanding} outstanding"),
            seen: format!("{} pairs/s", table::grouped(seen.pairs_per_second)),
            ratio: None,
            goal: Some(Goal::at_least(
                seen.pairs_per_second,
                goal::PAIRS_PER_SECOND,
            )),
            near: seen.near,
        });
        Ok(seen.pairs_per_second)
    }

    fn postgres(&self, table: &mut Table, ours: Option<u64>) -> anyhow::Result<()> {
        self.begin("the same in PostgreSQL")?;
        let peer = peer::postgres::start(&self.place("postgres")?)?;
        table.note(peer.version().to_owned());
        for way in peer::postgres::WAYS {
            self.begin(way.name)?;
            let seen = peer.measure(way, self.scale.measured)?;
            table.push(peer_row(way.name, &seen, ours, Some(goal::TIMES_POSTGRES)));
        }
        Ok(())
    }

    fn redis(&self, table: &mut Table, ours: Option<u64>) -> anyhow::Result<()> {
        for way in peer::redis::WAYS {
            self.begin(way.name)?;
            let peer = peer::redis::start(&self.place(way.directory)?, way)?;
            let seen = peer.measure(self.scale.warm_up, self.scale.measured)?;
            if way.is_durable {
                table.note(peer.version().to_owned());
            }
            let times = way.is_durable.then_some(goal::TIMES_REDIS);
            table.push(peer_row(way.name, &seen, ours, times));
        }
        Ok(())
    }

    fn latency(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("latency at a fixed rate")?;
        let seen = latency::measure(&self.place("latency")?, self.scale)?;
        let rate = table::grouped(latency::RECORDS_PER_SECOND);
        table.push(Row {
            name: format!("latency p50 at {rate} records/s"),
            seen: format!("{} ms", table::thousandths(seen.p50_us)),
            ratio: None,
            goal: None,
            near: seen.near,
        });
        table.push(Row {
            name: format!("latency p99 at {rate} records/s"),
            seen: format!("{} ms", table::thousandths(seen.p99_us)),
            ratio: None,
            goal: Some(Goal {
                text: format!("≤ {} ms", goal::LATENCY_P99_US / 1_000),
                is_met: seen.p99_us <= goal::LATENCY_P99_US,
            }),
            near: seen.detail,
        });
        Ok(())
    }

    fn http(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("HTTP, one operation a request")?;
        let seen = http::measure(&self.place("http")?, self.scale, http::UNBATCHED)?;
        table.push(Row {
            name: format!(
                "HTTP unbatched, {} connections",
                http::UNBATCHED.connections
            ),
            seen: format!("{} requests/s", table::grouped(seen.per_second)),
            ratio: None,
            goal: Some(Goal::at_least(seen.per_second, goal::REQUESTS_PER_SECOND)),
            near: seen.near,
        });
        self.begin("HTTP, batched")?;
        let shape = http::BATCHED;
        let seen = http::measure(&self.place("http-batched")?, self.scale, shape)?;
        table.push(Row {
            name: format!(
                "HTTP {} a batch, {} connections",
                shape.batch, shape.connections
            ),
            seen: format!("{} operations/s", table::grouped(seen.per_second)),
            ratio: None,
            goal: Some(Goal::at_least(seen.per_second, goal::OPERATIONS_PER_SECOND)),
            near: seen.near,
        });
        Ok(())
    }

    fn recovery(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("a start without a snapshot")?;
        let seen = recovery::measure(&self.place("recovery")?, self.scale.records)?;
        table.push(Row {
            name: format!("recovery of {} records", table::grouped(self.scale.records)),
            seen: format!("{} s", table::thousandths(seen.took_ms)),
            ratio: None,
            goal: Some(Goal {
                text: format!("≤ {} s", goal::RECOVERY_MS / 1_000),
                is_met: seen.took_ms <= goal::RECOVERY_MS,
            }),
            near: seen.near,
        });
        Ok(())
    }

    fn search(&self, table: &mut Table) -> anyhow::Result<()> {
        for records in [self.scale.records / 50, self.scale.records / 5] {
            let size = table::grouped(records);
            self.begin(&format!("a search of {size} records"))?;
            let seen = search::measure(&self.place(&format!("search-{records}"))?, records)?;
            for (how, took_us) in [("a scan", seen.scan_us), ("the index", seen.index_us)] {
                table.push(Row {
                    name: format!("a booking's records of {size}, by {how}"),
                    seen: format!("{} ms", table::thousandths(took_us)),
                    ratio: None,
                    goal: None,
                    near: seen.near.clone(),
                });
            }
        }
        Ok(())
    }

    /// Says on stderr what comes next, unless somebody wants it to end.
    fn begin(&self, what: &str) -> anyhow::Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted before: {what}");
        }
        eprintln!("measuring: {what}");
        Ok(())
    }

    /// An empty directory for one part.
    fn place(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.directory.join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }
}

/// An empty table under what there is to know about disk and machine.
fn heading(directory: &Path, is_quick: bool) -> anyhow::Result<Table> {
    let quiet = Usage::start();
    let disk = disk::describe(directory)?;
    let mut table = Table::new(vec![disk, usage::describe_machine()]);
    if let Some(warning) = quiet.used().warning() {
        table.note(warning);
    }
    if is_quick {
        table.note("A quick run: a tenth of the counts and times. Not to be quoted.".to_owned());
    }
    Ok(table)
}

fn peer_row(name: &str, seen: &peer::Seen, ours: Option<u64>, times: Option<u64>) -> Row {
    let ratio_milli = ours.map(|ours| ours.saturating_mul(1_000) / seen.pairs_per_second.max(1));
    Row {
        name: format!("hot limit, {name}"),
        seen: format!("{} pairs/s", table::grouped(seen.pairs_per_second)),
        ratio: ratio_milli.map(|milli| format!("{}×", table::tenths(milli / 100))),
        goal: ratio_milli.zip(times).map(|(milli, times)| Goal {
            text: format!("ours ≥ {times}×"),
            is_met: milli >= times * 1_000,
        }),
        near: seen.near.clone(),
    }
}

/// A directory that disappears with its guard. Others may pass through it, since `PostgreSQL`
/// refuses to run as root and has a user of its own.
fn private_directory(parent: &Path) -> anyhow::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new()
        .prefix("bursar-bench-")
        .permissions(std::fs::Permissions::from_mode(0o711))
        .tempdir_in(parent)
        .with_context(|| {
            format!(
                "cannot create a directory in {}; name another with --directory",
                parent.display()
            )
        })?;
    Ok(directory)
}
