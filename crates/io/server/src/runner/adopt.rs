//! Adoption of a program that runs and that the ledger does not know, because a restore has lost the
//! records about it (X5).
//!
//! A program carries the command that adopts it, with its request and fence, as the ledger writes
//! it. A program that an earlier version started, or whose directory is missing, carries none. It
//! counts as one slot of class and tenant [`UNKNOWN`] for as long as any execution may run.

use bursar_engine::Answer;
use bursar_engine::booking::execution::{
    Adoption, GRACE_DEFAULT, Isolation, MAX_TIME_MAX, Order, START_TIMEOUT_DEFAULT,
};
use bursar_engine::booking::{Command, Fence, Reply, Request};
use bursar_engine::codec::{command_text, read_command_text};
use bursar_journal::hash::{HASH_BYTES, Hash};
use bursar_units::{BookingId, Label, Millis};

use super::outbox::Outbox;
use crate::log;

/// Class and tenant of a program without a note.
const UNKNOWN: &str = "unknown";

/// The note that a program carries.
pub(super) fn note(request: &Request, order: &Order, fence: Fence) -> String {
    let adopt = Command::Adopt(Adoption {
        booking: Request {
            fence: Some(fence),
            ..request.clone()
        },
        order: Some(order.clone()),
        // The adopting runner sees the isolation.
        isolation: Isolation::None,
    });
    // A request that is on record can be written.
    command_text(&adopt.into()).unwrap_or_default()
}

/// Adopts the program of an id; `None` when the runner ends.
pub(super) async fn adopt(
    outbox: &Outbox,
    id: &BookingId,
    note: &str,
    isolation: Isolation,
) -> Option<()> {
    let answer = outbox.send(command(id, note, isolation)?).await?;
    if answer == Ok(Answer::Booking(Reply::Recorded)) {
        tracing::warn!(%id, "{}", log::EXECUTION_ADOPTED);
    } else {
        tracing::warn!(%id, "{}", log::EXECUTION_UNKNOWN_LEFT_ALONE);
    }
    Some(())
}

/// The command that adopts the program of an id.
fn command(id: &BookingId, note: &str, isolation: Isolation) -> Option<Command> {
    let noted = match read_command_text(note) {
        Ok(bursar_engine::Command::Booking(Command::Adopt(noted))) => Some(noted),
        _ => None,
    };
    let found = match noted.filter(|noted| noted.booking.id == *id) {
        Some(noted) => noted,
        None => unknown(id)?,
    };
    Some(Command::Adopt(Adoption { isolation, ..found }))
}

fn unknown(id: &BookingId) -> Option<Adoption> {
    let label = Label::new(UNKNOWN).ok()?;
    let order = Order {
        work: Hash([0; HASH_BYTES]),
        pids: None,
        start_timeout: START_TIMEOUT_DEFAULT,
        max_time: MAX_TIME_MAX,
        grace: GRACE_DEFAULT,
        retry_of: None,
    };
    Some(Adoption {
        booking: Request {
            ttl: Millis::ZERO,
            ..Request::new(id.clone(), label.clone(), label)
        },
        order: Some(order),
        isolation: Isolation::None,
    })
}
