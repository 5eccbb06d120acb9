//! What runs and the ledger does not know, because a restore has lost the records about it (X5).
//!
//! A program carries the command by which it would be adopted: what was asked for it and under
//! which fence, as the ledger writes it. Programs that an earlier version started, or whose
//! directory is missing, carry none, and count as one slot of class and tenant [`UNKNOWN`] for as
//! long as any execution may run.

use bursar_engine::booking::execution::{
    Digest, GRACE_DEFAULT, Isolation, MAX_TIME_MAX, Order, START_TIMEOUT_DEFAULT,
};
use bursar_engine::booking::{Extras, Fence, Priority, Reply, Request};
use bursar_engine::codec::{command_text, read_command_text};
use bursar_engine::{Answer, Command};
use bursar_units::{Amount, BookingId, Label, Millis};

use super::outbox::Outbox;
use crate::log;

/// The class and tenant of what says nothing of itself.
const UNKNOWN: &str = "unknown";

/// What a program carries.
pub(super) fn note(id: &BookingId, request: &Request, fence: Fence) -> String {
    let adopt = Command::Adopt {
        id: id.clone(),
        request: request.clone(),
        fence: Some(fence),
        // Whoever finds it sees how it is kept apart.
        isolation: Isolation::None,
    };
    // A request that is on record can be written.
    command_text(&adopt).unwrap_or_default()
}

/// Adopts what was found under an id; `None` when the runner ends.
pub(super) async fn adopt(
    outbox: &Outbox,
    id: &BookingId,
    note: &str,
    isolation: Isolation,
) -> Option<()> {
    let answer = outbox.send(command(id, note, isolation)?).await?;
    if answer == Ok(Answer::Booking(Reply::Noted)) {
        tracing::warn!(%id, "{}", log::EXECUTION_ADOPTED);
    } else {
        tracing::warn!(%id, "{}", log::EXECUTION_UNKNOWN_LEFT_ALONE);
    }
    Some(())
}

/// The command that adopts what was found under an id.
fn command(id: &BookingId, note: &str, isolation: Isolation) -> Option<Command> {
    let (request, fence) = match read_command_text(note) {
        Ok(Command::Adopt {
            id: noted,
            request,
            fence,
            ..
        }) if noted == *id => (request, fence),
        _ => (unknown()?, None),
    };
    Some(Command::Adopt {
        id: id.clone(),
        request,
        fence,
        isolation,
    })
}

fn unknown() -> Option<Request> {
    let label = Label::new(UNKNOWN).ok()?;
    let order = Order {
        work: Digest::default(),
        pids: None,
        start_timeout: START_TIMEOUT_DEFAULT,
        max_time: MAX_TIME_MAX,
        grace: GRACE_DEFAULT,
        retry_of: None,
    };
    Some(Request {
        class: label.clone(),
        tenant: label,
        amount: Amount {
            slots: 1,
            ..Amount::default()
        },
        priority: Priority::Normal,
        ttl: Millis::ZERO,
        wait: Millis::ZERO,
        extras: Some(Box::new(Extras {
            order: Some(order),
            ..Extras::default()
        })),
    })
}
