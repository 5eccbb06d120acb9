//! Adoption of a running program that the ledger does not know, because a restore has lost the
//! records about it (X5).
//!
//! Each program has a note: the command that adopts it, with its request and fence, in the form of
//! the ledger. A program that an earlier version started, or whose directory is missing, has none.
//! It counts as one slot of class and tenant [`UNKNOWN`], with the longest possible time to run.

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

/// The note of a program.
pub(super) fn note(request: &Request, order: &Order, fence: Fence) -> String {
    let adopt = Command::Adopt(Adoption {
        booking: Request {
            fence: Some(fence),
            ..request.clone()
        },
        order: Some(order.clone()),
        // Replaced when the program is adopted.
        isolation: Isolation::None,
    });
    // A recorded request can always be encoded.
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
    let adoption = match noted.filter(|noted| noted.booking.id == *id) {
        Some(noted) => noted,
        None => unknown(id)?,
    };
    Some(Command::Adopt(Adoption {
        isolation,
        ..adoption
    }))
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
