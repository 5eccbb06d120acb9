//! Log events. Each has one name, `area.what-happened`.

/// A checkpoint was signed.
pub(crate) const CHECKPOINT_SIGNED: &str = "checkpoint.signed";
/// A command caused a panic in `decide`; it was written to a file and skipped.
pub(crate) const COMMAND_POISONED: &str = "command.poisoned";
/// The state of the ledger breaks an invariant.
pub(crate) const INVARIANT_BROKEN: &str = "invariant.broken";
/// Another process is leader; this one stops writing.
pub(crate) const LEADER_LOST: &str = "leader.lost";
/// The market's last report did not reach the ledger in time.
pub(crate) const MARKET_LEDGER_BEHIND: &str = "market.ledger-behind";
/// The host name is not a valid node name.
pub(crate) const MARKET_NODE_HAS_NO_NAME: &str = "market.node-has-no-name";
/// The files of the store are missing.
pub(crate) const STORE_AWAY: &str = "store.away";
/// The store failed; the operation is retried.
pub(crate) const STORE_FAILED: &str = "store.failed";
