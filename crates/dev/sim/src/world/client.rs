//! A client: it follows the protocol over a bad network, and sometimes dies.
//!
//! ```text
//! asking ──granted──► holding ──work done──► releasing ──► over
//!    └──queued──► waiting ──granted──┘  └──fenced, dead──────┘
//! ```
//! An execution runs without its client, which only reads its state and may cancel it.
//! A request without an answer is sent again under the same id. This file decides the next step of
//! a client; the world carries its messages.

use bursar_booking::execution::{Exit, Order};
use bursar_booking::{Command, End, Fence, Outcome, Request, Submission};
use bursar_journal::hash::Hash;
use bursar_units::{Amount, BookingId, Label, Millis};

use super::habits::{Habits, Load};
use crate::clock::BEGINNING_MS;
use crate::rng::Rng;

/// A client with all its bookings.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: Label,
    pub(super) leases: Vec<Lease>,
    /// The replica that it sends requests to.
    pub(super) replica: usize,
}

/// One booking as its client knows it.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) request: Request,
    /// Present if it is an execution.
    order: Option<Order>,
    pub(super) phase: Phase,
    pub(super) fence: Option<Fence>,
    /// Time of the world when its work is done.
    pub(super) done_ms: u64,
    /// The newest record in an answer.
    pub(super) record: u64,
    /// Time of its client's next step.
    pub(super) wake_at_ms: Option<u64>,
}

/// State of a booking, as its client knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    Asking,
    Waiting,
    Holding,
    /// An execution that has its slot.
    Watching,
    Releasing,
    Cancelling,
    Over,
}

/// Next step of a client.
#[derive(Debug)]
pub(super) enum Deed {
    /// Sends a command, and wakes again after so long.
    Send(Box<Command>, u64),
    /// Reads its booking, and wakes again after so long.
    Look(u64),
    Nothing,
}

/// Result of a read.
#[derive(Clone, Debug)]
pub(super) enum Sight {
    Unknown,
    Queued,
    Held(Fence),
    Ended(End),
}

impl Lease {
    pub(super) fn draw(rng: &mut Rng, habits: &Habits, serial: u64, now_ms: u64) -> Option<Self> {
        let (request, order) = draw_request(rng, habits, serial, now_ms)?;
        Some(Self {
            request,
            order,
            phase: Phase::Asking,
            fence: None,
            done_ms: 0,
            record: 0,
            wake_at_ms: None,
        })
    }

    pub(super) fn wake(&mut self, rng: &mut Rng, now_ms: u64) -> Deed {
        let ttl_ms = self.request.ttl.ms();
        match self.phase {
            Phase::Over => Deed::Nothing,
            Phase::Asking => Deed::Send(Box::new(self.reserve()), rng.between(100, 4_000)),
            Phase::Waiting if rng.once_in(150) => {
                self.phase = Phase::Cancelling;
                self.wake(rng, now_ms)
            }
            // Sends it again under the same id, or dies and stays queued until its wait ends.
            Phase::Waiting if rng.once_in(30) => Deed::Send(Box::new(self.reserve()), 1_000),
            Phase::Waiting if rng.once_in(300) => self.vanish(),
            Phase::Waiting => Deed::Look(rng.between(50, 1_500)),
            Phase::Holding if self.done_ms <= now_ms => {
                self.phase = Phase::Releasing;
                self.wake(rng, now_ms)
            }
            // Dies: it neither renews nor releases.
            Phase::Holding if rng.once_in(40) => self.vanish(),
            Phase::Holding => {
                let third = ttl_ms / 3;
                let ttl = rng
                    .once_in(10)
                    .then(|| Millis::from_ms(rng.between(1_000, ttl_ms)));
                let nap = rng.between(third.saturating_sub(third / 10), third).max(1);
                let nap = nap.min(self.done_ms - now_ms);
                Deed::Send(Box::new(self.renew(ttl)), nap)
            }
            Phase::Watching if rng.once_in(12) => {
                self.phase = Phase::Cancelling;
                self.wake(rng, now_ms)
            }
            Phase::Watching if rng.once_in(20) => self.vanish(),
            Phase::Watching => Deed::Look(rng.between(200, 4_000)),
            Phase::Releasing => Deed::Send(Box::new(self.release(rng)), rng.between(100, 3_000)),
            Phase::Cancelling => {
                let id = self.request.id.clone();
                Deed::Send(Box::new(Command::Cancel { id }), rng.between(100, 3_000))
            }
        }
    }

    /// Notes the grant, and draws the time of the work.
    pub(super) fn hold(&mut self, rng: &mut Rng, fence: Fence, now_ms: u64) {
        if matches!(
            self.phase,
            Phase::Asking | Phase::Waiting | Phase::Cancelling
        ) {
            self.fence = Some(fence);
            if self.order.is_some() {
                self.phase = Phase::Watching;
                return;
            }
            let ttl_ms = self.request.ttl.ms();
            self.phase = Phase::Holding;
            let longest_ms = if rng.once_in(4) { ttl_ms * 3 } else { ttl_ms };
            self.done_ms = now_ms + rng.between(1, longest_ms);
        }
    }

    /// A command that is too late, too early or repeated: the engine must refuse or ignore it.
    pub(super) fn nonsense(&self, rng: &mut Rng) -> Command {
        let id = self.request.id.clone();
        let near = self.fence.unwrap_or_default().0;
        let fence = Fence(rng.between(near.saturating_sub(1), near + 1));
        let is_plain = self.order.is_none();
        match rng.below(6) {
            // Only the machine reports the results of its processes.
            5 if is_plain => Command::Exited {
                id,
                exit: Exit::Code(0),
            },
            0 => Command::Renew {
                id,
                fence,
                ttl: None,
            },
            1 => Command::Release {
                id,
                fence,
                outcome: None,
                exit_code: None,
            },
            2 => Command::Cancel { id },
            3 => {
                let mut request = self.request.clone();
                request.slots += 1;
                ask(request, self.order.clone())
            }
            _ => self.reserve(),
        }
    }

    /// Makes an execution a retry of another one.
    pub(super) fn retry(&mut self, first: Option<&Self>) {
        if let Some(order) = &mut self.order {
            order.retry_of = first.map(|first| first.request.id.clone());
        }
    }

    pub(super) fn reserve(&self) -> Command {
        ask(self.request.clone(), self.order.clone())
    }

    fn renew(&self, ttl: Option<Millis>) -> Command {
        Command::Renew {
            id: self.request.id.clone(),
            fence: self.fence.unwrap_or_default(),
            ttl,
        }
    }

    fn release(&self, rng: &mut Rng) -> Command {
        let outcome = [None, Some(Outcome::Ok), Some(Outcome::Failed)];
        let outcome = rng.pick(&outcome).copied().flatten();
        let exit_code = (outcome == Some(Outcome::Failed)).then_some(-7);
        Command::Release {
            id: self.request.id.clone(),
            fence: self.fence.unwrap_or_default(),
            outcome,
            exit_code,
        }
    }

    fn vanish(&mut self) -> Deed {
        self.phase = Phase::Over;
        Deed::Nothing
    }
}

pub(super) fn tenant(number: u64) -> Option<Label> {
    Label::new(&format!("tenant-{number}")).ok()
}

pub(super) fn class(number: u64) -> Option<Label> {
    Label::new(&format!("class-{number}")).ok()
}

/// A plain booking, or an execution.
fn ask(booking: Request, order: Option<Order>) -> Command {
    match order {
        None => Command::Reserve(booking),
        Some(order) => Command::Submit(Submission { booking, order }),
    }
}

fn draw_request(
    rng: &mut Rng,
    habits: &Habits,
    serial: u64,
    now_ms: u64,
) -> Option<(Request, Option<Order>)> {
    let is_large = habits.load == Load::Large && rng.once_in(30);
    let slots = match habits.load {
        Load::Large if is_large => 4,
        Load::Plain => {
            if rng.once_in(60) {
                0
            } else {
                rng.one_of([1, 1, 1, 2, 2, 3, 5])
            }
        }
        _ => 1,
    };
    let amount = Amount {
        slots,
        cpu_milli: rng.one_of([0, 0, 500, 2_000]),
        memory_bytes: rng.one_of([0, 0, 1 << 20, 3 << 30]),
        gpus: rng.one_of([0, 0, 0, 1]),
    };
    let is_long = rng.once_in(100);
    let wait_ms = if is_large {
        600_000
    } else {
        rng.one_of(habits.wait_ms)
    };
    let amount = if habits.load == Load::Plain {
        amount
    } else {
        only_slots(slots)
    };
    let class = class(rng.below(habits.classes))?;
    let tenant = tenant(rng.below(habits.tenants))?;
    let priority = rng.pick(&bursar_booking::Priority::ALL).copied();
    let ttl_ms = rng.one_of(habits.ttl_ms);
    let is_execution = rng.per_mille(habits.executions_per_mille);
    let order = is_execution.then(|| draw_order(rng));
    let id = draw_id(rng, serial, now_ms)?;
    let request = Request {
        slots: amount.slots,
        cpu_milli: amount.cpu_milli,
        memory_bytes: amount.memory_bytes,
        gpus: amount.gpus,
        priority: priority.unwrap_or_default(),
        ttl: Millis::from_ms(if is_execution { 0 } else { ttl_ms }),
        wait: Millis::from_ms(if is_long { 90_000_000 } else { wait_ms }),
        ..Request::new(id, class, tenant)
    };
    Some((request, order))
}

fn draw_order(rng: &mut Rng) -> Order {
    let is_hasty = rng.once_in(60);
    let start_ms = rng.one_of([1_000, 2_000, 5_000, 60_000]);
    Order {
        work: Hash([7; 32]),
        pids: rng.once_in(4).then_some(64),
        start_timeout: Millis::from_ms(if is_hasty { 500 } else { start_ms }),
        max_time: Millis::from_ms(rng.one_of([1_000, 4_000, 30_000, 3_600_000])),
        grace: Millis::from_ms(rng.one_of([0, 200, 2_000, 5_000])),
        retry_of: None,
    }
}

fn only_slots(slots: u64) -> Amount {
    Amount {
        slots,
        ..Amount::default()
    }
}

/// Most ids end in a `UUIDv7`, as the clients of Bursar make them; some are plain.
fn draw_id(rng: &mut Rng, serial: u64, now_ms: u64) -> Option<BookingId> {
    if rng.once_in(8) {
        return BookingId::new(&format!("job-{serial}")).ok();
    }
    let time = BEGINNING_MS + now_ms;
    let (a, b) = (rng.below(1 << 12), rng.below(1 << 62));
    let (high, low) = (time >> 16, time & 0xFFFF);
    let (first, last) = (0x8000 | (b >> 48), b & 0xFFFF_FFFF_FFFF);
    let text = format!("job-{serial}-{high:08x}-{low:04x}-7{a:03x}-{first:04x}-{last:012x}");
    BookingId::new(&text).ok()
}
