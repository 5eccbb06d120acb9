//! Memory of a running execution: its shim, which lives as long as it does.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bursar_booking::Command;
use bursar_booking::execution::Verdict;
use bursar_units::BookingId;

use super::super::world::Ids;
use super::residue::{Process, shims};
use super::rig::Rig;
use super::work;

/// Time limit for all to start, and to end.
const TIME_MAX: Duration = Duration::from_mins(1);

pub(super) struct Measurement {
    pub(super) private: Kib,
    pub(super) resident: Kib,
}

/// Mean and maximum of many sizes, in KiB.
pub(super) struct Kib {
    pub(super) mean: u64,
    pub(super) most: u64,
}

struct Memory {
    private_kib: u64,
    resident_kib: u64,
}

/// Runs `count` executions at once, measures their shims, and cancels them.
pub(super) fn measure(directory: &Path, count: u64, program: &Path) -> anyhow::Result<Measurement> {
    let rig = Rig::begin(directory, count, program)?;
    let job = rig.job(&work("/bin/sleep", &["600"]))?;
    let now = rig.ledger().now().ms();
    let ids = Ids::new(14);
    let ids: BTreeSet<BookingId> = (0..count).filter_map(|_| ids.next(now)).collect();
    let texts: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
    let found = rig.runtime.block_on(async {
        for id in &ids {
            rig.submit(id.clone(), &job).await?;
        }
        all_run(&rig, ids.len()).await?;
        let found = shims(&texts);
        let cancels = ids.iter().cloned().map(|id| Command::Cancel { id });
        let memories: Vec<Memory> = found.iter().filter_map(memory).collect();
        rig.submit_all(cancels).await?;
        rig.until(TIME_MAX, |(held, queued, _)| held + queued == 0)
            .await?;
        anyhow::Ok(memories)
    })?;
    if found.len() != ids.len() {
        bail!("{} of {count} shims were found", found.len());
    }
    let is_cancelled = {
        let state = rig.ledger().view().read();
        let mut ended = state.bookings.ended().filter_map(|ended| ended.course());
        ended.all(|course| course.verdict == Verdict::Cancelled)
    };
    if !is_cancelled {
        bail!("an execution ended before it was cancelled");
    }
    rig.end()?;
    // The first one is charged for the pages that all of them share.
    let rest = found.get(1..).unwrap_or_default();
    Ok(Measurement {
        private: Kib::of(rest.iter().map(|it| it.private_kib).collect()),
        resident: Kib::of(rest.iter().map(|it| it.resident_kib).collect()),
    })
}

impl Kib {
    fn of(sizes: Vec<u64>) -> Self {
        let count = u64::try_from(sizes.len()).unwrap_or(u64::MAX).max(1);
        Self {
            mean: sizes.iter().sum::<u64>() / count,
            most: sizes.into_iter().max().unwrap_or(0),
        }
    }
}

/// Waits until `count` executions run.
async fn all_run(rig: &Rig, count: usize) -> anyhow::Result<()> {
    let mut head = rig.ledger().view().head();
    let running = || {
        let state = rig.ledger().view().read();
        let all = state.bookings.executions();
        all.filter(|(_, _, progress)| progress.started.is_some())
            .count()
    };
    let waiting = async {
        while running() < count {
            head.changed().await?;
        }
        anyhow::Ok(())
    };
    let waited = tokio::time::timeout(TIME_MAX, waiting).await;
    waited.with_context(|| format!("only {} of {count} run", running()))?
}

fn memory(process: &Process) -> Option<Memory> {
    let path = format!("/proc/{}/smaps_rollup", process.pid);
    let text = std::fs::read_to_string(path).ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(Memory {
        private_kib: kib("Private_Clean:")? + kib("Private_Dirty:")?,
        resident_kib: kib("Rss:")?,
    })
}
