//! Tenants that hold slots: some renew and release them, some let them expire or stop waiting.

use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::{BookingRequest, Outcome, Priority, ReleaseRequest, RenewRequest, State};
use bursar_client::client::Mode;
use bursar_units::Label;
use tokio::time::sleep;

use super::Random;

/// Behaviour of a tenant. Times are ranges in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Habit {
    pub(super) tenant: &'static str,
    class: &'static str,
    /// Number of concurrent workers.
    pub(super) workers: u64,
    slots: (u64, u64),
    holds: (u64, u64),
    /// Pause between two bookings.
    rests: (u64, u64),
    priority: Priority,
    manner: Manner,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Manner {
    /// Renews and releases.
    Tidy,
    /// Neither renews nor releases: its bookings expire.
    Forgetful,
    /// Cancels after `PATIENCE` in the queue.
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

/// Maximum wait in the queue.
const WAIT_MS: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(3);
const LONG_POLL: Duration = Duration::from_secs(30);
/// The ttl of all bookings; short, so that renewals are needed.
const TTL_MS: u64 = 6_000;

/// One worker: pauses, books, holds and releases in a loop. It may be dropped at any moment: its
/// booking then expires.
pub(super) async fn work(client: Client, habit: Habit) {
    let mut random = Random::new();
    loop {
        sleep(Duration::from_millis(random.between(habit.rests))).await;
        // An error affects only this worker, which tries again.
        let _refused = once(&client, habit, &mut random).await;
    }
}

async fn once(client: &Client, habit: Habit, random: &mut Random) -> Option<()> {
    let id = bursar_client::ids::new(habit.tenant).ok()?;
    let request = BookingRequest {
        slots: random.between(habit.slots),
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
        booking = client.booking_wait(&id, LONG_POLL).await.ok()?;
    }
    let (State::Granted, Some(fence)) = (booking.state, booking.fence) else {
        return None;
    };
    let mut left = random.between(habit.holds);
    if habit.manner == Manner::Forgetful {
        sleep(Duration::from_millis(left)).await;
        return Some(());
    }
    while left > 0 {
        let step = left.min(TTL_MS / 3);
        sleep(Duration::from_millis(step)).await;
        left -= step;
        let renewal = RenewRequest {
            fence,
            ttl_ms: None,
        };
        client.renew(&id, &renewal, Mode::Do).await.ok()?;
    }
    let is_failed = random.between((0, 9)) == 0;
    let outcome = if is_failed {
        Outcome::Failed
    } else {
        Outcome::Ok
    };
    let release = ReleaseRequest {
        fence: Some(fence),
        outcome: Some(outcome),
        exit_code: Some(i32::from(is_failed)),
        ..ReleaseRequest::default()
    };
    client.release(&id, &release, Mode::Do).await.ok()?;
    Some(())
}
