//! What the client says in a log: each event has one name, `area.what-happened`.

/// A slot was not given back: its ttl ends it.
pub(crate) const SLOT_NOT_GIVEN_BACK: &str = "slot.not-given-back";
