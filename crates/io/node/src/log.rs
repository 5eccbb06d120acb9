//! Names of the log events of this crate, in the form `area.what-happened`.

/// SIGTERM could not be sent to a program.
pub(crate) const EXECUTION_NOT_ASKED: &str = "execution.not-asked";
/// The directory or cgroups of an execution could not be read.
pub(crate) const EXECUTION_NOT_SEEN: &str = "execution.not-seen";
/// Remaining processes of an execution could not be killed.
pub(crate) const EXECUTION_NOT_SETTLED: &str = "execution.not-settled";
pub(crate) const EXECUTION_STATUS_NOT_WRITTEN: &str = "execution.status-not-written";
/// The agent failed at something that concerns no single pod.
pub(crate) const MARKET_FAILED: &str = "market.failed";
pub(crate) const MARKET_NOT_RESTORED: &str = "market.not-restored";
