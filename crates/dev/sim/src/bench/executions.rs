//! Bench of executions, on a real disk and a real kernel (X1 to X5).
//!
//! The same rules as for bookings: every part is bounded in count and time, uses fixed seeds, and
//! ends all processes that it started. Leaks are counted from the ledger's records and from the
//! kernel, never from the counters of the measured code.

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
use super::world::RequestTemplate;
use super::{Bench, Scale, disk, heading, private_directory};
use trace::Trace;

/// Part that can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// Rate of executions with the null executor.
    Rate,
    /// Slots leaked by crashes, cancels and timeouts, on virtual time.
    Leaks,
    /// Real processes, compared with a plain loop that starts them.
    Processes,
    /// Real processes under a server that is killed repeatedly.
    Kills,
    /// Time from the end of a process to the next grant.
    Handover,
    /// Memory of a running execution.
    Memory,
    /// A trace of short requests over HTTP.
    Replay,
}

/// Options of the bench of executions.
#[derive(Debug)]
pub struct Options {
    /// Parts to measure; all if empty.
    pub only: Vec<Part>,
    /// Run a tenth of the work, as a smoke test.
    pub quick: bool,
    /// Directory for temporary data; must be on a disk.
    pub directory: PathBuf,
    /// Path of the `bursar` binary, for real processes.
    pub program: PathBuf,
    /// Trace to replay; if none, one is generated from a seed.
    pub trace: Option<PathBuf>,
}

mod goal {
    pub(super) const EXECUTIONS_PER_SECOND: u64 = 10_000;
    pub(super) const HANDOVER_P99_US: u64 = 10_000;
    pub(super) const PRIVATE_KIB: u64 = 1_024;
}

/// Executions with the null executor, some of them crashed, cancelled or timed out.
const TROUBLED: u64 = 100_000;
/// Real executions under a server that is killed.
const REAL: u64 = 2_000;
/// Number of kills.
const KILLS: u64 = 50;
/// Number of slots that are handed over.
const HANDOVERS: u64 = 1_000;
/// Executions that run at once while their memory is measured.
const SLEEPERS: u64 = 200;
/// Seed of all random choices.
const SEED: u64 = 1;

/// Measures executions. Checks `interrupted` between two parts, so that an interrupted run cleans up.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    disk::check_is_disk(&options.directory)?;
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let real = [Part::Processes, Part::Kills, Part::Handover, Part::Memory];
    // Started processes have another working directory.
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
        let measured = rate::measure(&self.part_directory("rate")?, self.scale)?;
        let outstanding = grouped(rate::OUTSTANDING);
        table.push(Row {
            name: format!("null executor, {outstanding} outstanding"),
            value: format!("{} executions/s", grouped(measured.per_second)),
            ratio: None,
            goal: Some(Goal::at_least(
                measured.per_second,
                goal::EXECUTIONS_PER_SECOND,
            )),
            near: measured.near,
        });
        Ok(())
    }

    fn leaks(&self, table: &mut Table, count: u64) -> anyhow::Result<()> {
        self.begin("crashes, cancels and timeouts that run nothing")?;
        let measured = leaks::measure(count, SEED)?;
        table.push(Row {
            name: format!("leaked by {} executions, null executor", grouped(count)),
            value: grouped(measured.leaked),
            ratio: None,
            goal: Some(none(measured.leaked)),
            near: measured.detail,
        });
        Ok(())
    }

    fn processes(&self, table: &mut Table, program: &Path) -> anyhow::Result<()> {
        self.begin("real processes")?;
        let ours = processes::measure(&self.part_directory("processes")?, self.scale, program)?;
        self.begin("the same without us")?;
        let plain = processes::measure_plain(self.scale)?;
        let at_a_time = processes::AT_A_TIME;
        table.push(Row {
            name: format!("/bin/true with shim and cgroup, {at_a_time} at a time"),
            value: format!("{} executions/s", grouped(ours.per_second)),
            ratio: None,
            goal: None,
            near: ours.near,
        });
        let permille = ours.per_second * 1_000 / plain.per_second.max(1);
        table.push(Row {
            name: format!("/bin/true, fork, exec and wait only, {at_a_time} at a time"),
            value: format!("{} processes/s", grouped(plain.per_second)),
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
        let measured = kills::measure(&self.part_directory("kills")?, count, kills, program)?;
        table.push(Row {
            name: format!(
                "leaked by {} real executions, {kills} kills -9",
                grouped(count)
            ),
            value: grouped(measured.leaked),
            ratio: None,
            goal: Some(none(measured.leaked)),
            near: measured.detail,
        });
        Ok(())
    }

    fn handover(&self, table: &mut Table, times: u64, program: &Path) -> anyhow::Result<()> {
        self.begin("from exit to the next grant")?;
        let measured = handover::measure(&self.part_directory("handover")?, times, program)?;
        let (slots, waiting) = (handover::SLOTS, handover::WAITING);
        table.push(Row {
            name: format!("exit to next grant p50, {slots} slots, {waiting} waiting"),
            value: format!("{} ms", thousandths(measured.p50_us)),
            ratio: None,
            goal: None,
            near: measured.near,
        });
        table.push(Row {
            name: format!("exit to next grant p99, {slots} slots, {waiting} waiting"),
            value: format!("{} ms", thousandths(measured.p99_us)),
            ratio: None,
            goal: Some(Goal {
                text: format!("≤ {} ms", goal::HANDOVER_P99_US / 1_000),
                is_met: measured.p99_us <= goal::HANDOVER_P99_US,
            }),
            near: measured.detail,
        });
        Ok(())
    }

    fn shims(&self, table: &mut Table, count: u64, program: &Path) -> anyhow::Result<()> {
        self.begin("memory of running executions")?;
        let measured = memory::measure(&self.part_directory("memory")?, count, program)?;
        table.push(Row {
            name: format!("private memory of a shim beyond the first, {count} running"),
            value: format!("{} KiB", grouped(measured.private.mean)),
            ratio: None,
            goal: Some(Goal::at_most(
                measured.private.most,
                goal::PRIVATE_KIB,
                "KiB",
            )),
            near: format!(
                "mean; most {} KiB; resident {} KiB, most {} KiB, shared pages counted in each",
                grouped(measured.private.most),
                grouped(measured.resident.mean),
                grouped(measured.resident.most)
            ),
        });
        Ok(())
    }

    fn replay(&self, table: &mut Table, trace: &Trace) -> anyhow::Result<()> {
        self.begin("the trace of LoRA requests over HTTP")?;
        let measured = replay::measure(&self.part_directory("replay")?, trace)?;
        let name = format!(
            "{} LoRA requests at {}×, limit {}",
            grouped(measured.requests),
            grouped(replay::TIMES_AS_FAST),
            replay::SLOTS
        );
        table.push(Row {
            name: format!("{name}: holders left"),
            value: grouped(measured.leaked),
            ratio: None,
            goal: Some(none(measured.leaked)),
            near: measured.near,
        });
        table.push(Row {
            name: format!("{name}: over-admissions"),
            value: grouped(measured.over),
            ratio: None,
            goal: Some(none(measured.over)),
            near: measured.detail,
        });
        table.below(measured.waits);
        Ok(())
    }
}

fn none(value: u64) -> Goal {
    Goal {
        text: "0".to_owned(),
        is_met: value == 0,
    }
}

fn check_program(program: &Path) -> anyhow::Result<()> {
    if program.is_file() {
        return Ok(());
    }
    bail!(
        "there is no program at {}\n\nhint: `cargo build --profile dist --package bursar` builds it; \
         --program chooses another",
        program.display()
    )
}

/// Prints the progress of a long part on stderr, ten times in total.
struct Progress {
    name: &'static str,
    whole: u64,
    next: u64,
}

impl Progress {
    fn new(name: &'static str, whole: u64) -> Self {
        let next = whole / 10;
        Self { name, whole, next }
    }

    fn at(&mut self, done: u64) {
        if done < self.next.max(1) {
            return;
        }
        let (done, whole) = (done.min(self.whole), self.whole);
        eprintln!("  {} of {} {}", grouped(done), grouped(whole), self.name);
        self.next = done + (whole / 10).max(1);
    }
}

/// A runtime for one part; its threads have the given name, by which their CPU use is reported.
fn runtime(name: &str) -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .thread_name(name)
        .enable_all()
        .build()
        .context("cannot start a runtime")
}

/// A program with arguments.
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

/// Template of executions of one slot that wait up to an hour.
struct Job {
    template: RequestTemplate,
    order: Order,
}

impl Job {
    fn new(tenant: &str, class: &str, work: Hash) -> anyhow::Result<Self> {
        Ok(Self {
            template: RequestTemplate::new(class, tenant)?,
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

    fn submission(&self, id: BookingId) -> Submission {
        Submission {
            booking: Request {
                ttl: Millis::ZERO,
                wait: Millis::from_hours(1),
                ..self.template.request(id)
            },
            order: self.order.clone(),
        }
    }
}
