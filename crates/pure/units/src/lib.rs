//! Integers with units, names with rules, and a hash map that cannot be iterated.
//!
//! All crates use these types, so a millisecond is never added to a byte, and a name in the engine has
//! been checked. Text is parsed into these types here, once, and errors name the mistake. Nothing
//! reads a clock; divisions and parsers document their rounding.

pub mod amount;
pub mod causes;
pub mod duration;
pub mod hidden;
pub mod index;
pub mod name;
pub mod quantity;
pub mod time;
pub mod vocabulary;
pub mod whole;
pub mod words;

pub use amount::{Amount, Bounds, Dimension, Total};
pub use index::Index;
pub use name::{BookingId, DEFAULT_NAMESPACE, Label, NameError, ObjectName, PodName, ScopedName};
pub use time::{Instant, Millis};

/// The largest integer in a record or an API answer: 2⁵³ − 1. JSON readers in other languages use
/// doubles, which are not exact beyond it.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Whether a value is the default of its type; such a field is omitted from a record.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
