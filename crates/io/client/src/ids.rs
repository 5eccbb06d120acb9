//! Ids that are never granted twice, however late they are repeated (design 50, L6).

use bursar_units::{BookingId, NameError};

/// A new id: the prefix, a hyphen and a `UUIDv7`.
pub fn new(prefix: &str) -> Result<BookingId, NameError> {
    BookingId::new(&format!("{prefix}-{}", uuid::Uuid::now_v7()))
}
