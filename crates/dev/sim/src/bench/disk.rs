//! Time that the disk needs to make a small write durable.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::table::thousandths;

/// Number of writes.
const TRIES: usize = 200;
/// One page of the ledger's file, in bytes.
const WRITE_BYTES: usize = 8_192;
/// File system type of tmpfs, which is in memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Fails if the directory is in memory: without durability every result would be wrong.
pub(super) fn check_is_disk(directory: &Path) -> anyhow::Result<()> {
    let stat = rustix::fs::statfs(directory).with_context(|| {
        format!(
            "cannot examine {}; choose another directory with --directory",
            directory.display()
        )
    })?;
    if u64::try_from(stat.f_type).is_ok_and(|kind| kind == TMPFS_MAGIC) {
        bail!(
            "{} is in memory, not on a disk; choose another directory with --directory",
            directory.display()
        );
    }
    Ok(())
}

/// Measures writes with sync and describes the result.
pub(super) fn describe(directory: &Path) -> anyhow::Result<String> {
    let path = directory.join("fsync");
    let mut times = syncs(&path).with_context(|| format!("cannot write {}", path.display()))?;
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get(times.len().saturating_sub(1) * percent / 100);
        thousandths(time.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(0)))
    };
    Ok(format!(
        "Disk: fdatasync after {} KiB takes {} ms (p50), {} ms (p99)",
        WRITE_BYTES / 1_024,
        at(50),
        at(99)
    ))
}

/// Overwrites the same page repeatedly, as a write-ahead log of constant size does.
fn syncs(path: &Path) -> std::io::Result<Vec<Duration>> {
    let mut file = File::create(path)?;
    let page = [7; WRITE_BYTES];
    file.write_all(&page)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&page)?;
        let started = Instant::now();
        file.sync_data()?;
        times.push(started.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(times)
}
