//! Measures the plane of executions, on a real disk and a real kernel (design 40, X1 to X5).
//!
//! The same rules as for bookings: every part is bounded in count and time, follows from fixed
//! seeds, and ends what it started. What leaks is counted from the ledger's own records and
//! from the kernel, never from the counters of what is measured.

mod leaks;
mod rate;
mod records;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use bursar_booking::execution::{Digest, GRACE_DEFAULT, MAX_TIME_DEFAULT, Order, START_TIMEOUT_DEFAULT};
use bursar_booking::{Extras, Request};
use bursar_node::executor::Work;
use bursar_units::Millis;
use tokio::runtime::Runtime;

use super::table::{Goal, Row, Table, grouped};
use super::world::{label, request};
use super::{Bench, Scale, disk, heading, private_directory};

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Part {
    /// Executions through engine and journal, with an executor that runs nothing.
    Rate,
    /// Slots lost to crashes, cancels and timeouts, on virtual time.
    Leaks,
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

/// The goals of the issue, and of design 50.
mod goal {
    pub(super) const EXECUTIONS_PER_SECOND: u64 = 10_000;
    pub(super) const LEAKED: u64 = 0;
}

/// Executions of which some are crashed, cancelled and timed out.
const TROUBLED: u64 = 100_000;
/// What the load of the part without a clock follows from.
const SEED: u64 = 1;

/// Measures executions and says what was seen. Between two parts it looks at `interrupted`, so
/// that whoever stops it finds nothing left behind.
pub fn measure(options: &Options, interrupted: &AtomicBool) -> anyhow::Result<Table> {
    disk::check_is_disk(&options.directory)?;
    let directory = private_directory(&options.directory)?;
    let bench = Bench {
        scale: Scale::of(options.quick),
        directory: directory.path(),
        interrupted,
    };
    let mut table = heading(directory.path(), options.quick)?;
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let tenth = if options.quick { 10 } else { 1 };
    if wanted(Part::Rate) {
        bench.rate(&mut table)?;
    }
    if wanted(Part::Leaks) {
        bench.leaks(&mut table, TROUBLED / tenth)?;
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
            goal: Some(Goal::at_most(seen.leaked, goal::LEAKED, "leaked")),
            near: seen.detail,
        });
        Ok(())
    }
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
    }
}

/// An execution of one slot that is willing to wait.
fn order(tenant: &str, class: &str, work: Digest) -> anyhow::Result<Request> {
    let order = Order {
        work,
        pids: None,
        start_timeout: START_TIMEOUT_DEFAULT,
        max_time: MAX_TIME_DEFAULT,
        grace: GRACE_DEFAULT,
        retry_of: None,
    };
    Ok(Request {
        class: label(class)?,
        tenant: label(tenant)?,
        ttl: Millis::ZERO,
        wait: Millis::from_hours(1),
        extras: Some(Box::new(Extras {
            order: Some(order),
            ..Extras::default()
        })),
        ..request()?
    })
}
