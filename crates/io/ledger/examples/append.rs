//! How many records a second the SQLite store appends durably, by batch size.
//!
//! `cargo run --release -p bursar-ledger --example append -- [DIRECTORY]`: the directory decides
//! which disk is measured; its sync time stands beside the figures, for without it they say little.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bursar_engine::codec::Encoded;
use bursar_ledger::store::sqlite::{FILE_NAME, SqliteStore};
use bursar_ledger::store::{Append, Store as _};

/// Bytes of a usual record.
const RECORD_BYTES: usize = 320;

/// How long each batch size is measured.
const MEASURED: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = match std::env::args_os().nth(1) {
        Some(base) => tempfile::tempdir_in(base)?,
        None => tempfile::tempdir()?,
    };
    measure_all(directory.path())
}

fn measure_all(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    println!("sync    {:>10.1?}", sync_time(&directory.join("sync"))?);
    for batch in [1, 64, 256, 1_024, 4_096] {
        let rows = measure(&directory.join(format!("{batch}")), batch)?;
        println!("{batch:>7} {rows:>10} rows/s");
    }
    Ok(())
}

fn measure(directory: &Path, batch: usize) -> Result<u128, Box<dyn std::error::Error>> {
    std::fs::create_dir_all(directory)?;
    let mut store = SqliteStore::open(&directory.join(FILE_NAME))?;
    let mut term = store.lead()?;
    let start = Instant::now();
    while start.elapsed() < MEASURED {
        let records = (term.head..).take(batch);
        let records = records
            .map(|seq| Encoded {
                seq,
                bytes: vec![b'x'; RECORD_BYTES],
                blobs: Vec::new(),
            })
            .collect();
        store.append(
            term,
            &Append {
                records,
                tiles: Vec::new(),
            },
        )?;
        term.head += u64::try_from(batch)?;
    }
    Ok(u128::from(term.head) * 1_000_000 / start.elapsed().as_micros())
}

fn sync_time(path: &Path) -> std::io::Result<Duration> {
    const TIMES: u32 = 100;
    let mut file = File::create(path)?;
    let start = Instant::now();
    for _ in 0..TIMES {
        file.write_all(&[0; 4_096])?;
        file.sync_data()?;
    }
    Ok(start.elapsed() / TIMES)
}
