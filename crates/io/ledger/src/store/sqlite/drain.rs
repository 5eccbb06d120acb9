//! Copies the write-ahead log into the ledger file, on a thread and a connection of its own.
//!
//! A commit writes to the log and syncs it, and does nothing else. The thread copies the log while
//! commits go on (`PASSIVE`). SQLite starts the log again from its beginning only after all of it
//! was copied, and a busy writer never lets that happen; so at [`LOG_PAGES_MAX`] pages the thread
//! holds the writer back while it copies the last ones (`RESTART`).
//!
//! SQLite keeps the order that makes this safe: it syncs the log, copies its pages, syncs the
//! ledger file, and overwrites the log only after that. `tests/it/syncs.rs` reads that order from
//! the system calls of a process.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_units::causes::chain;
use rusqlite::Connection;

use super::connect;
use super::failure::Place;
use crate::log;
use crate::store::Error;

/// Pages that are added to the log before it is copied again: 4 MiB. Fewer cost more syncs of the
/// ledger file, more make each of them take longer beside the commits.
pub(super) const STEP_PAGES: u32 = 512;

/// Length of the log, in pages, from which on the writer is held back to start it again: 64 MiB.
/// A reader that stays on an old state can make the log longer than this.
pub(super) const LOG_PAGES_MAX: u32 = 8_192;

/// The thread that copies the log. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Drain {
    gate: Arc<Gate>,
    is_stopped: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

/// Two locks, so that the thread gets its turn after the commit that is under way, however soon
/// the next one follows.
#[derive(Debug, Default)]
struct Gate {
    next: Mutex<()>,
    writing: Mutex<()>,
}

impl Drain {
    /// Starts the thread, which copies the log whenever `writer` has added enough to it.
    pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<Self, Error> {
        let place = Place(path);
        let connection = connect(path)?;
        // The writer is held back meanwhile, so a reader that is in the way is not waited for.
        connection
            .busy_timeout(Duration::ZERO)
            .map_err(place.failed("open"))?;
        let (wake, woken) = sync_channel(1);
        wake_by(writer, wake.clone()).map_err(place.failed("open"))?;
        let (gate, is_stopped) = (Arc::<Gate>::default(), Arc::<AtomicBool>::default());
        let (entered, stopped) = (Arc::clone(&gate), Arc::clone(&is_stopped));
        let thread = std::thread::Builder::new()
            .name("drain".to_owned())
            .spawn(move || run(&connection, &entered, &stopped, &woken))
            .map_err(|source| place.file("open", source))?;
        Ok(Self {
            gate,
            is_stopped,
            wake,
            thread: Some(thread),
        })
    }

    /// Keeps the log from being started again; held by the writer during a transaction.
    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        self.gate.enter()
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        // Where the channel is full, the thread wakes for the message that is in it.
        let _full = self.wake.try_send(());
        if let Some(thread) = self.thread.take() {
            // A panic was printed, and SQLite leaves a log that was copied in part as it is.
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

/// Wakes the thread after a commit with which [`STEP_PAGES`] were added to the log. The hook takes
/// the place of SQLite's own, which would copy the log inside the commit.
fn wake_by(writer: &mut Connection, wake: SyncSender<()>) -> rusqlite::Result<()> {
    let mut seen = 0;
    writer.wal_hook(Some(move |_: &mut _, pages: i32| {
        let pages = u32::try_from(pages).unwrap_or(0);
        // A log that was started again is shorter than before.
        seen = seen.min(pages);
        if STEP_PAGES <= pages - seen {
            seen = pages;
            // Where the channel is full, the thread is about to wake.
            let _full = wake.try_send(());
        }
        Ok(())
    }))
}

fn run(connection: &Connection, gate: &Gate, is_stopped: &AtomicBool, woken: &Receiver<()>) {
    while woken.recv().is_ok() && !is_stopped.load(Ordering::Acquire) {
        // The log stays as it was: nothing is lost, and the next wake tries again.
        if let Err(error) = drain(connection, gate) {
            tracing::warn!(cause = chain(&error), "{}", log::LOG_NOT_COPIED);
        }
    }
}

/// Copies the log. Where it is too long, copies the rest of it while no commit runs, so that the
/// next commit starts it again.
fn drain(connection: &Connection, gate: &Gate) -> rusqlite::Result<()> {
    if copy(connection, "PRAGMA wal_checkpoint(PASSIVE)")? < LOG_PAGES_MAX {
        return Ok(());
    }
    let _held = gate.enter();
    copy(connection, "PRAGMA wal_checkpoint(RESTART)").map(drop)
}

/// Length of the log in pages, after copying as much of it as readers allow.
fn copy(connection: &Connection, sql: &str) -> rusqlite::Result<u32> {
    connection.query_row(sql, [], |row| row.get(1))
}
