//! Names of log events: `area.what-happened`.

/// A slot could not be released; its ttl will end it.
pub(crate) const SLOT_NOT_GIVEN_BACK: &str = "slot.not-given-back";
