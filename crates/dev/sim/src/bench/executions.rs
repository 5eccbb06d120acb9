//! Measures the plane of executions, on a real disk and a real kernel (design 40, X1 to X5).
//!
//! The same rules as for bookings: every part is bounded in count and time, follows from fixed
//! seeds, and ends what it started. What leaks is counted from the ledger's own records and
//! from the kernel, never from the counters of what is measured.

mod handover;
mod kills;
mod leaks;
mod load;
mod memory;
mod processes;
mod rate;
mod records;
mod replay;
mod residue;
mod rig;
mod trace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use bursar_booking::execution::{GRACE_DEFAULT, MAX_TIME_DEFAULT, Order, START_TIMEOUT_DEFAULT};
use bursar_booking::{Request, Submission};
use bursar_journal::hash::Hash;
use bursar_node::executor::Work;
use bursar_units::{BookingId, Millis};
use tokio::runtime::Runtime;

use super::table::{Goal, Row, Table, grouped, thousandths};
use super::world::Wish;
use super::{Bench, Scale, disk, heading, private_directory};
use trace::Trace;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// Executions through engine and journal, with an executor that runs nothing.
    Rate,
    /// Slots lost to crashes, cancels and timeouts, on virtual time.
    Leaks,
    /// Real processes, beside a plain loop that starts them.
    Processes,
    /// Real processes under a server that is killed again and again.
    Kills,
    /// From the end of a process to the grant of the next.
    Handover,
    /// Memory of a running execution.
    Memory,
    /// A trace of short requests over HTTP.
    Replay,
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
    /// The program that users have, for what needs real processes.
    pub program: PathBuf,
    /// The trace to replay; one that a seed makes where it is not present.
    pub trace: Option<PathBuf>,
}

/// The goals of the issue, and of design 50.
mod goal {
    pub(super) const EXECUTIONS_PER_SECOND: u64 = 10_000;
    pub(super) const HANDOVER_P99_US: u64 = 10_000;
    pub(super) const PRIVATE_KIB: u64 = 1_024;
}

/// Executions that run nothing and of which some are crashed, cancelled and timed out.
const TROUBLED: u64 = 100_000;
/// Real executions under a server that is killed.
const REAL: u64 = 2_000;
/// How often it is.
const KILLS: u64 = 50;
/// How many slots are handed over.
const HANDOVERS: u64 = 1_000;
/// Executions that run at once while their memory is looked at.
const SLEEPERS: u64 = 200;
/// What every part that draws lots follows from.
const SEED: u64 = 1;

/// Measures executions and says what was seen. Between two parts it looks at `interrupted`, so
/// that whoever stops it finds nothing left behind.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    disk::check_is_disk(&options.directory)?;
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let real = [Part::Processes, Part::Kills, Part::Handover, Part::Memory];
    // What is started has another directory.
    let program = std::path::absolute(&options.program).context("cannot find this directory")?;
    if real.into_iter().any(wanted) {
        check_program(&program)?;
    }
    let directory = private_directory(&options.directory)?;
    let bench = Bench {
        scale: Scale::of(options.quick),
        directory: directory.path(),
        interrupted,
    };
    let mut table = heading(directory.path(), options.quick)?;
    let tenth = if options.quick { 10 } else { 1 };
    if wanted(Part::Rate) {
        bench.rate(&mut table)?;
    }
    if wanted(Part::Leaks) {
        bench.leaks(&mut table, TROUBLED / tenth)?;
    }
    if wanted(Part::Processes) {
        bench.processes(&mut table, &program)?;
    }
    if wanted(Part::Kills) {
        bench.kills(&mut table, REAL / tenth, KILLS / tenth, &program)?;
    }
    if wanted(Part::Handover) {
        bench.handover(&mut table, HANDOVERS / tenth, &program)?;
    }
    if wanted(Part::Memory) {
        bench.shims(&mut table, SLEEPERS / tenth, &program)?;
    }
    if wanted(Part::Replay) {
        let mut trace = match &options.trace {
            Some(path) => Trace::read(path)?,
            None => Trace::make(trace::COUNT, SEED),
        };
        let kept = trace.requests.len() / usize::try_from(tenth)?;
        trace.requests.truncate(kept);
        bench.replay(&mut table, &trace)?;
    }
    Ok(table)
}

impl Bench<'_> {
    fn rate(&self, table: &mut Table) -> anyhow::Result<()> {
        self.begin("executions that run nothing")?;
        let seen = rate::measure(&self.place("rate")?, self.scale)?;
        let outstanding = grouped(rate::OUTSTANDING);
        table.push(Row {
            name: format!("null executor, {outstanding} outstanding"),
            seen: format!("{} executions/s", grouped(seen.per_second)),
            ratio: None,
            goal: Some(Goal::at_least(seen.per_second, goal::EXECUTIONS_PER_SECOND)),
            near: seen.near,
        });
        Ok(())
    }

    fn leaks(&self, table: &mut Table, count: u64) -> anyhow::Result<()> {
        self.begin("crashes, cancels and timeouts that run nothing")?;
        let seen = leaks::measure(count, SEED)?;
        table.push(Row {
            name: format!("leaked by {} executions, null executor", grouped(count)),
            seen: grouped(seen.leaked),
            ratio: None,
            goal: Some(none(seen.leaked)),
            near: seen.detail,
        });
        Ok(())
    }

    fn processes(&self, table: &mut Table, program: &Path) -> anyhow::Result<()> {
        self.begin("real processes")?;
        let ours = processes::measure(&self.place("processes")?, self.scale, program)?;
        self.begin("the same without us")?;
        let plain = processes::measure_plain(self.scale)?;
        let at_a_time = processes::AT_A_TIME;
        table.push(Row {
            name: format!("/bin/true with shim and cgroup, {at_a_time} at a time"),
            seen: format!("{} executions/s", grouped(ours.per_second)),
            ratio: None,
            goal: None,
            near: ours.near,
        });
        let permille = ours.per_second * 1_000 / plain.per_second.max(1);
        table.push(Row {
            name: format!("/bin/true, fork, exec and wait only, {at_a_time} at a time"),
            seen: format!("{} processes/s", grouped(plain.per_second)),
            ratio: Some(format!("{}×", thousandths(permille))),
            goal: None,
            near: plain.near,
        });
        Ok(())
    }

    fn kills(
        &self,
        table: &mut Table,
        count: u64,
        kills: u64,
        program: &Path,
    ) -> anyhow::Result<()> {
        self.begin("real processes under a server that is killed")?;
        let seen = kills::measure(&self.place("kills")?, count, kills, program)?;
        table.push(Row {
            name: format!(
                "leaked by {} real executions, {kills} kills -9",
                grouped(count)
            ),
            seen: grouped(seen.leaked),
            ratio: None,
            goal: Some(none(seen.leaked)),
            near: seen.detail,
        });
        Ok(())
    }

    fn handover(&self, table: &mut Table, times: u64, program: &Path) -> anyhow::Result<()> {
        self.begin("from exit to the next grant")?;
        let seen = handover::measure(&self.place("handover")?, times, program)?;
        let (slots, waiting) = (handover::SLOTS, handover::WAITING);
        table.push(Row {
            name: format!("exit to next grant p50, {slots} slots, {waiting} waiting"),
            seen: format!("{} ms", thousandths(seen.p50_us)),
            ratio: None,
            goal: None,
            near: seen.near,
        });
        table.push(Row {
            name: format!("exit to next grant p99, {slots} slots, {waiting} waiting"),
            seen: format!("{} ms", thousandths(seen.p99_us)),
            ratio: None,
            goal: Some(Goal {
                text: format!("≤ {} ms", goal::HANDOVER_P99_US / 1_000),
                is_met: seen.p99_us <= goal::HANDOVER_P99_US,
            }),
            near: seen.detail,
        });
        Ok(())
    }

    fn shims(&self, table: &mut Table, count: u64, program: &Path) -> anyhow::Result<()> {
        self.begin("memory of running executions")?;
        let seen = memory::measure(&self.place("memory")?, count, program)?;
        table.push(Row {
            name: format!("private memory of a shim beyond the first, {count} running"),
            seen: format!("{} KiB", grouped(seen.private.mean)),
            ratio: None,
            goal: Some(Goal::at_most(seen.private.most, goal::PRIVATE_KIB, "KiB")),
            near: format!(
                "mean; most {} KiB; resident {} KiB, most {} KiB, shared pages counted in each",
                grouped(seen.private.most),
                grouped(seen.resident.mean),
                grouped(seen.resident.most)
            ),
        });
        Ok(())
    }

    fn replay(&self, table: &mut Table, trace: &Trace) -> anyhow::Result<()> {
        self.begin("the trace of LoRA requests over HTTP")?;
        let seen = replay::measure(&self.place("replay")?, trace)?;
        let name = format!(
            "{} LoRA requests at {}×, limit {}",
            grouped(seen.requests),
            grouped(replay::TIMES_AS_FAST),
            replay::SLOTS
        );
        table.push(Row {
            name: format!("{name}: holders left"),
            seen: grouped(seen.leaked),
            ratio: None,
            goal: Some(none(seen.leaked)),
            near: seen.near,
        });
        table.push(Row {
            name: format!("{name}: over-admissions"),
            seen: grouped(seen.over),
            ratio: None,
            goal: Some(none(seen.over)),
            near: seen.detail,
        });
        table.below(seen.waits);
        Ok(())
    }
}

/// That there is none of it.
fn none(seen: u64) -> Goal {
    Goal {
        text: "0".to_owned(),
        is_met: seen == 0,
    }
}

fn check_program(program: &Path) -> anyhow::Result<()> {
    if program.is_file() {
        return Ok(());
    }
    bail!(
        "there is no program at {}\n\nhint: `cargo build --release --package bursar` builds it, or \
         name another with --program",
        program.display()
    )
}

/// Says on stderr how far something long has come, ten times in all.
struct Progress {
    what: &'static str,
    whole: u64,
    next: u64,
}

impl Progress {
    fn new(what: &'static str, whole: u64) -> Self {
        let next = whole / 10;
        Self { what, whole, next }
    }

    fn at(&mut self, done: u64) {
        if done < self.next.max(1) {
            return;
        }
        let (done, whole) = (done.min(self.whole), self.whole);
        eprintln!("  {} of {} {}", grouped(done), grouped(whole), self.what);
        self.next = done + (whole / 10).max(1);
    }
}

/// A runtime of its own for one part, whose threads are told apart by their name.
fn runtime(name: &str) -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .thread_name(name)
        .enable_all()
        .build()
        .context("cannot start a runtime")
}

/// A program with arguments and nothing else.
fn work(command: &str, args: &[&str]) -> Work {
    Work {
        command: command.to_owned(),
        args: args.iter().map(|word| (*word).to_owned()).collect(),
        env: BTreeMap::new(),
        directory: None,
        user: None,
        allow_privilege_escalation: false,
    }
}

/// An execution of one slot that is willing to wait; it is submitted again and again.
struct Job {
    wish: Wish,
    order: Order,
}

impl Job {
    fn new(tenant: &str, class: &str, work: Hash) -> anyhow::Result<Self> {
        Ok(Self {
            wish: Wish::new(class, tenant)?,
            order: Order {
                work,
                pids: None,
                start_timeout: START_TIMEOUT_DEFAULT,
                max_time: MAX_TIME_DEFAULT,
                grace: GRACE_DEFAULT,
                retry_of: None,
            },
        })
    }

    /// What to submit under an id.
    fn submission(&self, id: BookingId) -> Submission {
        Submission {
            booking: Request {
                ttl: Millis::ZERO,
                wait: Millis::from_hours(1),
                ..self.wish.request(id)
            },
            order: self.order.clone(),
        }
    }
}
