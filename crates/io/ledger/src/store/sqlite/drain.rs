//! Thread that copies the write-ahead log into the ledger file, over its own connection.
//!
//! A commit only writes to the log and syncs it. The thread copies the log during commits
//! (`PASSIVE`). SQLite restarts the log from its beginning only after all of it was copied, which a
//! busy writer prevents; so at [`LOG_PAGES_MAX`] pages the thread blocks the writer while it copies
//! the last pages (`RESTART`).
//!
//! The order of SQLite makes this safe: it syncs the log, copies its pages, syncs the ledger file,
//! and only then overwrites the log. `tests/it/syncs.rs` checks the order of the system calls.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_units::causes::chain;
use rusqlite::Connection;

use super::connect;
use super::failure::LedgerFile;
use crate::log;
use crate::store::Error;

/// Number of new pages after which the log is copied: 4 MiB. Fewer pages need more syncs of the
/// ledger file; more pages make each sync longer.
pub(super) const STEP_PAGES: u32 = 512;

/// Length of the log in pages at which the writer is blocked to restart it: 64 MiB. A reader of an
/// old state can make the log longer.
pub(super) const LOG_PAGES_MAX: u32 = 8_192;

/// Handle of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Drain {
    gate: Arc<Gate>,
    is_stopped: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

/// Two locks, so that the thread gets its turn after the present commit, before the next one.
#[derive(Debug, Default)]
struct Gate {
    next: Mutex<()>,
    writing: Mutex<()>,
}

impl Drain {
    /// Starts the thread, which copies the log whenever `writer` has added enough to it.
    pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<Self, Error> {
        let file = LedgerFile(path);
        let connection = connect(path)?;
        // The writer is blocked during a restart, so the thread does not wait for readers.
        connection
            .busy_timeout(Duration::ZERO)
            .map_err(file.failed("open"))?;
        let (wake, woken) = sync_channel(1);
        wake_by(writer, wake.clone()).map_err(file.failed("open"))?;
        let (gate, is_stopped) = (Arc::<Gate>::default(), Arc::<AtomicBool>::default());
        let (entered, stopped) = (Arc::clone(&gate), Arc::clone(&is_stopped));
        let thread = std::thread::Builder::new()
            .name("drain".to_owned())
            .spawn(move || run(&connection, &entered, &stopped, &woken))
            .map_err(|source| file.io_failed("open", source))?;
        Ok(Self {
            gate,
            is_stopped,
            wake,
            thread: Some(thread),
        })
    }

    /// Prevents a restart of the log; held by the writer during a transaction.
    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        self.gate.enter()
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        // If the channel is full, the thread wakes for the message in it.
        let _full = self.wake.try_send(());
        if let Some(thread) = self.thread.take() {
            // A panic was printed, and a partial copy does not change the log.
            let _panicked = thread.join();
        }
    }
}

impl Gate {
    fn enter(&self) -> MutexGuard<'_, ()> {
        let _next = lock(&self.next);
        lock(&self.writing)
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the thread when [`STEP_PAGES`] were added to the log. The hook replaces SQLite's own, which
/// would copy the log inside the commit.
fn wake_by(writer: &mut Connection, wake: SyncSender<()>) -> rusqlite::Result<()> {
    let mut seen = 0;
    writer.wal_hook(Some(move |_: &mut _, pages: i32| {
        let pages = u32::try_from(pages).unwrap_or(0);
        // A restarted log is shorter.
        seen = seen.min(pages);
        if STEP_PAGES <= pages - seen {
            seen = pages;
            // If the channel is full, the thread is about to wake.
            let _full = wake.try_send(());
        }
        Ok(())
    }))
}

fn run(connection: &Connection, gate: &Gate, is_stopped: &AtomicBool, woken: &Receiver<()>) {
    while woken.recv().is_ok() && !is_stopped.load(Ordering::Acquire) {
        // The log is unchanged, and the next wake tries again.
        if let Err(error) = drain(connection, gate) {
            tracing::warn!(cause = chain(&error), "{}", log::LOG_NOT_COPIED);
        }
    }
}

/// Copies the log. If it is too long, copies its rest while no commit runs, so that the next commit
/// restarts it.
fn drain(connection: &Connection, gate: &Gate) -> rusqlite::Result<()> {
    if copy(connection, "PRAGMA wal_checkpoint(PASSIVE)")? < LOG_PAGES_MAX {
        return Ok(());
    }
    let _held = gate.enter();
    copy(connection, "PRAGMA wal_checkpoint(RESTART)").map(drop)
}

/// Copies as much of the log as readers allow, and returns its length in pages.
fn copy(connection: &Connection, sql: &str) -> rusqlite::Result<u32> {
    connection.query_row(sql, [], |row| row.get(1))
}
