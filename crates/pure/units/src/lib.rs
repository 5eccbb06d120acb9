//! Integers with units, names with rules, and the one map that cannot be iterated.
//!
//! Every other crate speaks in these types, so a millisecond is never added to a byte and a
//! name that reached the engine has already been checked. Text becomes these types here, once,
//! and the errors say what was wrong with the text. Nothing here reads a clock or rounds in
//! secret: divisions and parses say which way they round.

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
pub use name::{BookingId, Label, NameError, ObjectName, PodName};
pub use time::{Instant, Millis};

/// The largest integer that a record or an API answer may carry: 2⁵³ − 1.
///
/// JSON readers in other languages keep integers in doubles; beyond this they would lie.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Whether a value is its type's default: such a field is left out of a record.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
