//! Stream data of bookings, executions and limits.

use bursar_engine::booking::{End, Outcome};
use bursar_engine::summary::Data;
use bursar_units::Millis;
use serde_json::{Value, json};

/// The facts of an event; null where there is none.
pub(crate) fn facts(data: &Data) -> Value {
    match data {
        Data::Booking {
            slots,
            waited,
            held,
            end,
            outcome,
            exit_code,
        } => json!({
            "slots": slots,
            "waitedMs": waited.map(Millis::ms),
            "heldMs": held.map(Millis::ms),
            "end": end.map(End::word),
            "outcome": outcome.map(Outcome::word),
            "exitCode": exit_code,
        }),
        Data::Limit { limit, granted } => json!({
            "slots": limit.as_ref().and_then(|limit| limit.slots),
            "granted": granted,
        }),
        _ => json!({}),
    }
}
