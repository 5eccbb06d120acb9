//! A broken promise.

use thiserror::Error;

/// A broken promise with the observed values.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error("{promise}: {seen}")]
pub struct Violation {
    /// The broken promise.
    pub promise: &'static str,
    /// The observation that contradicts it.
    pub seen: String,
}

/// Creates a violation.
pub fn broken(promise: &'static str, seen: impl Into<String>) -> Violation {
    Violation {
        promise,
        seen: seen.into(),
    }
}

/// Returns a violation unless `holds`.
pub fn demand(
    holds: bool,
    promise: &'static str,
    seen: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds {
        Ok(())
    } else {
        Err(broken(promise, seen()))
    }
}
