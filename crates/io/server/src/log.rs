//! Names of log events: `area.what-happened`.

pub(crate) const ACCEPT_FAILED: &str = "accept.failed";
/// A cover of a submission had no room in an aggregate cap.
pub(crate) const BUDGET_CAP_BREACHED: &str = "budget.cap-breached";
/// No envelopes pay now for a run that was submitted.
pub(crate) const BUDGET_COVER_FAILED: &str = "budget.cover-failed";
/// A run named a sponsor that does not lend to its owner.
pub(crate) const BUDGET_LENDING_DENIED: &str = "budget.lending-denied";
pub(crate) const COPY_FAILED: &str = "copy.failed";
pub(crate) const DESCRIPTORS_NOT_RAISED: &str = "descriptors.not-raised";
/// An execution that was not running in the ledger was adopted.
pub(crate) const EXECUTION_ADOPTED: &str = "execution.adopted";
/// The directory or cgroup of an ended execution could not be removed.
pub(crate) const EXECUTION_NOT_CLEANED: &str = "execution.not-cleaned";
/// The program and environment of an execution could not be stored.
pub(crate) const EXECUTION_NOT_KEPT: &str = "execution.not-kept";
pub(crate) const EXECUTION_NOT_LISTED: &str = "execution.not-listed";
/// The state of an execution could not be read.
pub(crate) const EXECUTION_NOT_SEEN: &str = "execution.not-seen";
pub(crate) const EXECUTION_NOT_STOPPED: &str = "execution.not-stopped";
/// The ledger did not accept results of executions; they are submitted again.
pub(crate) const EXECUTION_RESULTS_NOT_TAKEN: &str = "execution.results-not-taken";
pub(crate) const EXECUTION_TASK_PANICKED: &str = "execution.task-panicked";
/// An execution that is unknown to the ledger runs; it was not stopped.
pub(crate) const EXECUTION_UNKNOWN_LEFT_ALONE: &str = "execution.unknown-left-alone";
/// The output of an execution could not be read.
pub(crate) const EXECUTION_UNREADABLE: &str = "execution.unreadable";
/// The stored program of an ended execution could not be removed.
pub(crate) const EXECUTION_WORK_NOT_FORGOTTEN: &str = "execution.work-not-forgotten";
pub(crate) const MARKET_ORIGINALS_UNREADABLE: &str = "market.originals-unreadable";
/// The record of the market could not be synced to disk.
pub(crate) const MARKET_RECORD_NOT_DURABLE: &str = "market.record-not-durable";
/// The ledger did not accept a report; it is submitted again.
pub(crate) const MARKET_REPORT_NOT_TAKEN: &str = "market.report-not-taken";
pub(crate) const MARKET_REPORT_REFUSED: &str = "market.report-refused";
pub(crate) const MARKET_RESTORED: &str = "market.restored";
pub(crate) const MARKET_TOO_MANY_ORIGINALS: &str = "market.too-many-originals";
pub(crate) const RUNNER_PANICKED: &str = "runner.panicked";
/// The ledger did not accept results of runs; they are submitted again.
pub(crate) const RUN_RESULTS_NOT_TAKEN: &str = "run.results-not-taken";
pub(crate) const STORE_UNREADABLE: &str = "store.unreadable";
