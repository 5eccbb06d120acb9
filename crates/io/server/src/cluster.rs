//! The API of the cluster: budgets, runs, leases and usage.

pub(crate) mod answers;
mod budgets;
mod covers;
pub(crate) mod effect;
mod leases;
pub(crate) mod metrics;
pub(crate) mod refusal;
pub(crate) mod routes;
mod runs;
pub(crate) mod sight;
mod usage;

use bursar_client::api::Since;
use bursar_units::{Instant, Millis};

pub(crate) use covers::note_covers;

/// Time for which ended runs and leases are listed without `since`.
const ENDED_SHOWN: Millis = Millis::from_hours(24);

/// Start of the period whose ended runs and leases are listed.
fn ended_since(since: Option<Since>, now: Instant) -> Instant {
    since.map_or_else(
        || now.before(ENDED_SHOWN),
        |since| Instant::from_ms(since.ms(now.ms())),
    )
}
