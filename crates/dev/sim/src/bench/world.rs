//! A real ledger on a real disk with one hot limit, and requests for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bursar_booking::decide::Change;
use bursar_booking::limit::Scope;
use bursar_booking::{Limit, Request};
use bursar_engine::{Command, spine};
use bursar_ledger::clock::MachineClock;
use bursar_ledger::data::{self, Data};
use bursar_ledger::intake::Submission;
use bursar_ledger::pipeline::{Ledger, Observe};
use bursar_ledger::writer::Poison;
use bursar_ledger::{snapshots, store};
use bursar_units::{BookingId, Label, ObjectName};

use super::table::{grouped, thousandths};
use super::usage::Used;

pub(super) const CLASS: &str = "python";
pub(super) const TENANT: &str = "acme";
/// Slots of the hot limit: more than there are outstanding operations, so that each is granted.
pub(super) const SLOTS: u64 = 8_192;
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A running ledger.
pub(super) struct World {
    pub(super) data: Data,
    pub(super) commits: Arc<Commits>,
}

/// Counts of commits and failures of the ledger.
#[derive(Default)]
pub(super) struct Commits {
    batches: AtomicU64,
    records: AtomicU64,
    micros: AtomicU64,
    failures: AtomicU64,
}

/// Commits in a period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Committed {
    pub(super) batches: u64,
    pub(super) records: u64,
    pub(super) micros: u64,
}

/// Generator of ids in the form of our clients: they end in a `UUIDv7`, with its random part from a seed.
pub(super) struct Ids {
    next: AtomicU64,
}

impl World {
    /// Opens a data directory as `bursar up` does.
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        let commits = Arc::new(Commits::default());
        let observe = Arc::clone(&commits);
        let data = data::open(
            directory,
            Arc::new(MachineClock::default()),
            observe,
            |_, _| {},
        )?;
        Ok(Self { data, commits })
    }

    /// Removes the snapshots of a stopped ledger. A running one takes a snapshot each minute if there
    /// are many new records, and a start from it would read few of them.
    pub(super) fn remove_snapshots(directory: &Path) -> anyhow::Result<()> {
        let snapshots = directory.join(snapshots::DIRECTORY_NAME);
        if snapshots.exists() {
            std::fs::remove_dir_all(snapshots)?;
        }
        Ok(())
    }

    /// Creates a ledger with the hot limit.
    pub(super) fn begin(directory: &Path) -> anyhow::Result<Self> {
        Self::begin_with(directory, SLOTS)
    }

    /// Creates a ledger with a limit of `slots`.
    pub(super) fn begin_with(directory: &Path, slots: u64) -> anyhow::Result<Self> {
        let world = Self::open(directory)?;
        let changes = vec![limit(CLASS, slots)?, tenants(slots)];
        world.submit(spine::Command::change(changes))?;
        Ok(world)
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.data.ledger
    }

    /// Stops the ledger; fails if its store failed.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.data.stop();
        match self.commits.failures.load(Ordering::Relaxed) {
            0 => Ok(()),
            failures => bail!("the store failed {failures} times, so the results are invalid"),
        }
    }

    /// Submits a command and waits for the answer; fails if it is refused.
    pub(super) fn submit(&self, command: impl Into<Command>) -> anyhow::Result<()> {
        let (sender, receiver) = sync_channel(1);
        let reply = Box::new(move |result| {
            // The receiver is gone after a timeout.
            let _closed = sender.send(result);
        });
        self.ledger().push(Submission {
            by: label("operator")?,
            commands: vec![command.into()],
            reply,
        });
        let outcomes = receiver
            .recv_timeout(ANSWER_MAX)
            .context("the ledger did not answer")??;
        for outcome in outcomes {
            outcome
                .result
                .map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        }
        Ok(())
    }
}

/// Class and tenant of repeated requests for one slot without waiting.
pub(super) struct RequestTemplate {
    class: Label,
    tenant: Label,
}

impl RequestTemplate {
    pub(super) fn usual() -> anyhow::Result<Self> {
        Self::new(CLASS, TENANT)
    }

    pub(super) fn new(class: &str, tenant: &str) -> anyhow::Result<Self> {
        Ok(Self {
            class: label(class)?,
            tenant: label(tenant)?,
        })
    }

    pub(super) fn request(&self, id: BookingId) -> Request {
        Request::new(id, self.class.clone(), self.tenant.clone())
    }
}

pub(super) fn label(text: &str) -> anyhow::Result<Label> {
    Label::new(text).with_context(|| format!("{text:?} is not a valid label"))
}

/// A limit on each tenant that lets one tenant hold all slots; the default is smaller.
pub(super) fn tenants(slots: u64) -> Change {
    Change::SetLimit(Limit {
        slots: Some(slots),
        ..Limit::shipped_for_tenants()
    })
}

/// A limit on a class, with the name of the class.
pub(super) fn limit(class: &str, slots: u64) -> anyhow::Result<Change> {
    let scope = Some(Scope::Named(label(class)?));
    let limit = Limit {
        slots: Some(slots),
        ..Limit::unbounded(ObjectName::new(class)?, scope, None)
    };
    Ok(Change::SetLimit(limit))
}

impl Ids {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            next: AtomicU64::new(seed << 40),
        }
    }

    pub(super) fn text(&self, now_ms: u64) -> String {
        let random = mixed(self.next.fetch_add(1, Ordering::Relaxed));
        let (high, low) = (now_ms >> 16, now_ms & 0xffff);
        let (a, b) = (random & 0xfff, (random >> 12) & 0x3fff | 0x8000);
        let c = mixed(random) & 0xffff_ffff_ffff;
        format!("job-{high:08x}-{low:04x}-7{a:03x}-{b:04x}-{c:012x}")
    }

    pub(super) fn next(&self, now_ms: u64) -> Option<BookingId> {
        BookingId::new(&self.text(now_ms)).ok()
    }
}

/// Spreads a counter over all bits (the finaliser of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Commits {
    pub(super) fn so_far(&self) -> Committed {
        Committed {
            batches: self.batches.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            micros: self.micros.load(Ordering::Relaxed),
        }
    }
}

impl Committed {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            batches: self.batches.saturating_sub(earlier.batches),
            records: self.records.saturating_sub(earlier.records),
            micros: self.micros.saturating_sub(earlier.micros),
        }
    }

    pub(super) fn words(self) -> String {
        let batches = self.batches.max(1);
        format!(
            "{} records a commit of {} ms",
            grouped(self.records / batches),
            thousandths(self.micros / batches)
        )
    }
}

/// Limiting resource of a running ledger: the CPU if all cores are busy, else the disk.
pub(super) fn near(used: &Used, committed: Committed) -> String {
    let bound = if used.is_busy() { "CPU" } else { "disk" };
    format!("{bound}; {}; {}", used.words(), committed.words())
}

impl Observe for Commits {
    fn poisoned(&self, poison: &Poison) {
        eprintln!("a command was poisoned: {}", poison.message);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn store_failed(&self, error: &store::Error) {
        eprintln!("the store failed: {error}");
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn not_leader(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn store_away(&self, _: &Result<String, store::Error>) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn committed(&self, records: usize, took: Duration) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.records
            .fetch_add(u64::try_from(records).unwrap_or(0), Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(0);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn signed(&self, _size: u64) {}

    fn invariant_broken(&self, _: &bursar_engine::invariants::Broken) {}
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_ledger::snapshots::DIRECTORY_NAME;
    use bursar_units::{BookingId, Instant};

    use super::{Ids, World};

    #[test]
    fn a_start_from_records_alone_finds_no_snapshot() {
        let data = tempfile::tempdir().unwrap();
        let snapshots = data.path().join(DIRECTORY_NAME);
        std::fs::create_dir(&snapshots).unwrap();
        std::fs::write(snapshots.join("newest"), "{}").unwrap();
        for _ in 0..2 {
            World::remove_snapshots(data.path()).unwrap();
            assert!(!snapshots.exists());
        }
    }

    #[test]
    fn an_id_contains_its_time_and_follows_from_the_seed() {
        let made = 0x0198_f3c2_1a2b;
        let id = Ids::new(7).next(made);
        assert_eq!(
            id.as_ref().and_then(BookingId::made_at).map(Instant::ms),
            Some(made)
        );
        assert_eq!(id, Ids::new(7).next(made));
        assert_ne!(id, Ids::new(8).next(made));
    }
}
