//! What the server says in a log: each event has one name, `area.what-happened`.

/// A connection could not be taken.
pub(crate) const ACCEPT_FAILED: &str = "accept.failed";
/// A copy of the ledger could not be made.
pub(crate) const COPY_FAILED: &str = "copy.failed";
/// The limit on open files could not be raised.
pub(crate) const DESCRIPTORS_NOT_RAISED: &str = "descriptors.not-raised";
/// An execution that the ledger did not know as running was adopted.
pub(crate) const EXECUTION_ADOPTED: &str = "execution.adopted";
/// What was left of an execution could not be removed.
pub(crate) const EXECUTION_NOT_CLEANED: &str = "execution.not-cleaned";
/// What is to be run could not be kept.
pub(crate) const EXECUTION_NOT_KEPT: &str = "execution.not-kept";
/// The executions of the machine could not be listed.
pub(crate) const EXECUTION_NOT_LISTED: &str = "execution.not-listed";
/// Whether an execution lives could not be seen.
pub(crate) const EXECUTION_NOT_SEEN: &str = "execution.not-seen";
/// An execution could not be stopped.
pub(crate) const EXECUTION_NOT_STOPPED: &str = "execution.not-stopped";
/// The ledger did not take what was found; it is told again.
pub(crate) const EXECUTION_RESULTS_NOT_TAKEN: &str = "execution.results-not-taken";
/// The task of an execution panicked; it begins again.
pub(crate) const EXECUTION_TASK_PANICKED: &str = "execution.task-panicked";
/// An execution runs that the ledger does not want, and was left alone.
pub(crate) const EXECUTION_UNKNOWN_LEFT_ALONE: &str = "execution.unknown-left-alone";
/// What an execution wrote could not be read.
pub(crate) const EXECUTION_UNREADABLE: &str = "execution.unreadable";
/// What nobody runs any more could not be removed.
pub(crate) const EXECUTION_WORK_NOT_FORGOTTEN: &str = "execution.work-not-forgotten";
/// The limits that users wrote could not be read.
pub(crate) const MARKET_ORIGINALS_UNREADABLE: &str = "market.originals-unreadable";
/// The record of the market could not be made durable.
pub(crate) const MARKET_RECORD_NOT_DURABLE: &str = "market.record-not-durable";
/// The ledger did not take a report; it is told again.
pub(crate) const MARKET_REPORT_NOT_TAKEN: &str = "market.report-not-taken";
/// The ledger refused a report.
pub(crate) const MARKET_REPORT_REFUSED: &str = "market.report-refused";
/// Somebody had the limits put back that users wrote.
pub(crate) const MARKET_RESTORED: &str = "market.restored";
/// There are more originals than the ledger takes.
pub(crate) const MARKET_TOO_MANY_ORIGINALS: &str = "market.too-many-originals";
/// The runner panicked: the process ends.
pub(crate) const RUNNER_PANICKED: &str = "runner.panicked";
/// The store could not be read.
pub(crate) const STORE_UNREADABLE: &str = "store.unreadable";
