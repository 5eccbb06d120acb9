//! Search for the records of one booking by a scan of all records and by the index, as for a proof:
//! a reader is opened, and each matching record is decoded.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bursar_engine::Reference;
use bursar_engine::codec::decode;
use bursar_engine::subject::subjects_of;
use bursar_ledger::index::{Index, search};
use bursar_ledger::store::Reader;

use super::chains::Chains;
use super::world::World;

/// Time limit for writing the records on a slow disk.
const TIME_MAX: Duration = Duration::from_secs(90);
/// Time limit for the index to be complete.
const INDEXED_MAX: Duration = Duration::from_mins(2);
/// Number of searches, of which the median is reported.
const TIMES: usize = 21;

pub(super) struct Measurement {
    pub(super) scan_us: u64,
    pub(super) index_us: u64,
    pub(super) near: String,
}

/// Writes records through a running ledger, waits for its index, and searches.
pub(super) fn measure(directory: &Path, records: u64) -> anyhow::Result<Measurement> {
    let world = World::begin(directory)?;
    let first = world.ledger().view().read().spine.head;
    Chains::start(world.ledger(), 5, (records - first) / 2)?.finish(TIME_MAX)?;
    let written = Instant::now();
    let head = world.ledger().view().read().spine.head;
    let (readers, index) = (world.data.readers(), world.data.index());
    let subject = booking_at(readers()?.as_ref(), head / 2)?;
    let reader = readers()?;
    // The indexer batches records, so the last few are scanned.
    while index.about(reader.as_ref(), &subject, 0, 1).records + 256 < head {
        if INDEXED_MAX < written.elapsed() {
            bail!("the index was not complete within {INDEXED_MAX:?}");
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let behind = written.elapsed();
    let took = |index: Option<&Index>| -> anyhow::Result<u64> {
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let started = Instant::now();
            let found = search(readers()?.as_ref(), index, &subject, 0..head, 1_000)?;
            times.push(started.elapsed());
            if found.len() != 2 {
                bail!("{subject} has {} records", found.len());
            }
        }
        times.sort();
        let median = times.get(TIMES / 2).copied().unwrap_or_default();
        Ok(u64::try_from(median.as_micros())?)
    };
    let (scan_us, index_us) = (took(None)?, took(Some(&index))?);
    world.stop()?;
    let size = std::fs::metadata(directory.join(bursar_ledger::index::FILE_NAME))?.len();
    Ok(Measurement {
        scan_us,
        index_us,
        near: format!(
            "CPU of one thread; the index has {} MiB and was complete {} ms after the last record",
            size >> 20,
            behind.as_millis()
        ),
    })
}

/// The booking that a record is about.
fn booking_at(reader: &dyn Reader, seq: u64) -> anyhow::Result<Reference> {
    let kept = reader.records(seq, 1)?.pop();
    let bytes = kept.and_then(|kept| kept.bytes).context("no record")?;
    let record = decode(seq, &bytes, |_| None)?;
    let mut bookings =
        subjects_of(&record).filter(|subject| matches!(subject, Reference::Booking(_)));
    bookings.next().context("the record is about no booking")
}
