//! Ids that are never granted twice, even if they are repeated much later (L6).

use bursar_units::{BookingId, NameError};

/// Makes a new id: the prefix, a hyphen and a `UUIDv7`.
pub fn new(prefix: &str) -> Result<BookingId, NameError> {
    BookingId::new(&format!("{prefix}-{}", uuid::Uuid::now_v7()))
}
