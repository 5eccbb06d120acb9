//! A promise that was seen broken.

use thiserror::Error;

/// Which promise, and how one sees.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error("{promise}: {seen}")]
pub struct Violation {
    /// The promise, in words.
    pub promise: &'static str,
    /// What was seen instead.
    pub seen: String,
}

/// The word for a broken promise.
pub fn broken(promise: &'static str, seen: impl Into<String>) -> Violation {
    Violation {
        promise,
        seen: seen.into(),
    }
}

/// Demands that something holds.
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
