//! Texts of all planes. Dates are absent: only the client knows the reader's time zone.

pub use bursar_booking::words::{came_out, exit, used, verdict};
pub use bursar_units::words::{
    about, amount, count, gpu_hours, hours, length, number, resources, slots, value, value_of,
};
