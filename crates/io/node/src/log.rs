//! What a node says in a log: each event has one name, `area.what-happened`.

/// A program could not be asked to end.
pub(crate) const EXECUTION_NOT_ASKED: &str = "execution.not-asked";
/// What became of an execution could not be seen.
pub(crate) const EXECUTION_NOT_SEEN: &str = "execution.not-seen";
/// What an execution left could not be ended.
pub(crate) const EXECUTION_NOT_SETTLED: &str = "execution.not-settled";
/// How an execution ended could not be kept.
pub(crate) const EXECUTION_STATUS_NOT_WRITTEN: &str = "execution.status-not-written";
/// The agent could not do something that is not about one pod.
pub(crate) const MARKET_FAILED: &str = "market.failed";
/// A limit could not be put back.
pub(crate) const MARKET_NOT_RESTORED: &str = "market.not-restored";
