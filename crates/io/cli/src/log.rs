//! What the program says in a log: each event has one name, `area.what-happened`.

/// A checkpoint was signed.
pub(crate) const CHECKPOINT_SIGNED: &str = "checkpoint.signed";
/// Deciding a command panicked; it was set aside.
pub(crate) const COMMAND_POISONED: &str = "command.poisoned";
/// The state of the ledger breaks an invariant.
pub(crate) const INVARIANT_BROKEN: &str = "invariant.broken";
/// Another process leads: this one writes no more.
pub(crate) const LEADER_LOST: &str = "leader.lost";
/// The ledger does not know yet what the market did.
pub(crate) const MARKET_LEDGER_BEHIND: &str = "market.ledger-behind";
/// The name of this machine cannot stand in the ledger.
pub(crate) const MARKET_NODE_HAS_NO_NAME: &str = "market.node-has-no-name";
/// The files of the store are gone.
pub(crate) const STORE_AWAY: &str = "store.away";
/// The store failed; it is asked again.
pub(crate) const STORE_FAILED: &str = "store.failed";
