//! What the ledger says in a log: each event has one name, `area.what-happened`.

/// A new key signs, and is not in its place yet; the next start puts it there.
pub(crate) const KEY_NOT_IN_PLACE: &str = "key.not-in-place";
/// The write-ahead log was not copied into the ledger file; it grows until it is.
pub(crate) const LOG_NOT_COPIED: &str = "log.not-copied";
/// A committed record cannot be folded: the process ends.
pub(crate) const RECORD_NOT_FOLDED: &str = "record.not-folded";
/// Records were not indexed; searches scan them.
pub(crate) const RECORDS_NOT_INDEXED: &str = "records.not-indexed";
/// No snapshot was anchored.
pub(crate) const SNAPSHOT_NOT_ANCHORED: &str = "snapshot.not-anchored";
/// No snapshot was taken.
pub(crate) const SNAPSHOT_NOT_TAKEN: &str = "snapshot.not-taken";
/// A thread of the ledger panicked: the process ends.
pub(crate) const THREAD_PANICKED: &str = "thread.panicked";
/// Deciding what is due panics every time: the process ends.
pub(crate) const TICK_PANICKED: &str = "tick.panicked";
