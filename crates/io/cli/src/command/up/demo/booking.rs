//! Tenants that hold slots for work of their own: they renew, forget and lose patience.

use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{BookingRequest, Outcome, Priority, ReleaseRequest, RenewRequest, State};
use bursar_client::client::Mode;
use bursar_units::Label;
use tokio::time::sleep;

use super::Chance;

/// The habits of a tenant.
#[derive(Clone, Copy)]
pub(super) struct Habit {
    /// Who it is.
    pub(super) tenant: &'static str,
    class: &'static str,
    /// How many of its workers are at it at once.
    pub(super) workers: u64,
    slots: (u64, u64),
    /// How long it holds, in milliseconds, from and to.
    holds: (u64, u64),
    /// How long it rests between two bookings.
    rests: (u64, u64),
    priority: Priority,
    manner: Manner,
}

/// What a tenant is like.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Manner {
    /// Renews and gives back.
    Tidy,
    /// Does not renew and never gives back: its bookings expire.
    Forgetful,
    /// Loses patience in the queue.
    Impatient,
}

pub(super) const HABITS: &[Habit] = &[
    Habit {
        tenant: "zeta",
        class: "node",
        workers: 6,
        slots: (1, 2),
        holds: (2_000, 6_000),
        rests: (1_000, 6_000),
        priority: Priority::Normal,
        manner: Manner::Tidy,
    },
    Habit {
        tenant: "deep",
        class: "train",
        workers: 3,
        slots: (3, 6),
        holds: (8_000, 20_000),
        rests: (2_000, 8_000),
        priority: Priority::Batch,
        manner: Manner::Tidy,
    },
    Habit {
        tenant: "oops",
        class: "node",
        workers: 3,
        slots: (1, 1),
        holds: (5_000, 8_000),
        rests: (3_000, 9_000),
        priority: Priority::Normal,
        manner: Manner::Forgetful,
    },
    Habit {
        tenant: "rush",
        class: "node",
        workers: 3,
        slots: (1, 2),
        holds: (1_000, 3_000),
        rests: (1_000, 5_000),
        priority: Priority::High,
        manner: Manner::Impatient,
    },
];

/// How long a tidy one may wait in the queue.
const WAIT_MS: u64 = 60_000;
/// How long an impatient one does.
const PATIENCE: Duration = Duration::from_secs(3);
/// The ttl of all: short, so that there is something to renew.
const TTL_MS: u64 = 6_000;

/// One worker's life: rest, ask, hold, give back, for ever. It may end at any moment: what it held
/// then expires.
pub(super) async fn live(client: Client, habit: Habit) {
    let mut chance = Chance::new();
    loop {
        sleep(Duration::from_millis(chance.between(habit.rests))).await;
        // What goes wrong here goes wrong for this worker only, and it tries again.
        let _refused = once(&client, habit, &mut chance).await;
    }
}

async fn once(client: &Client, habit: Habit, chance: &mut Chance) -> Option<()> {
    let id = bursar_client::ids::new(habit.tenant).ok()?;
    let request = BookingRequest {
        slots: chance.between(habit.slots),
        ttl_ms: Some(TTL_MS),
        wait_ms: Some(WAIT_MS),
        priority: Some(habit.priority),
        ..BookingRequest::new(Label::new(habit.class).ok()?)
    };
    let mut booking = client.reserve(&id, &request, Mode::Do).await.ok()?;
    if booking.state == State::Queued && habit.manner == Manner::Impatient {
        booking = client.booking_wait(&id, PATIENCE).await.ok()?;
        if booking.state == State::Queued {
            client.cancel(&id, Mode::Do).await.ok()?;
            return Some(());
        }
    }
    while booking.state == State::Queued {
        booking = client
            .booking_wait(&id, Duration::from_secs(30))
            .await
            .ok()?;
    }
    let (State::Granted, Some(fence)) = (booking.state, booking.fence) else {
        return None;
    };
    let mut left = chance.between(habit.holds);
    if habit.manner == Manner::Forgetful {
        sleep(Duration::from_millis(left)).await;
        return Some(());
    }
    while left > 0 {
        let step = left.min(TTL_MS / 3);
        sleep(Duration::from_millis(step)).await;
        left -= step;
        client
            .renew(
                &id,
                &RenewRequest {
                    fence,
                    ttl_ms: None,
                },
                Mode::Do,
            )
            .await
            .ok()?;
    }
    let is_failed = chance.between((0, 9)) == 0;
    let release = ReleaseRequest {
        fence: Some(fence),
        outcome: Some(if is_failed {
            Outcome::Failed
        } else {
            Outcome::Ok
        }),
        exit_code: Some(i32::from(is_failed)),
        ..ReleaseRequest::default()
    };
    client.release(&id, &release, Mode::Do).await.ok()?;
    Some(())
}
