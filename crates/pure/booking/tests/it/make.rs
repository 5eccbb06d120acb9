//! Short ways to make what the tests need.

use bursar_booking::decide::{self, Change, Events};
use bursar_booking::execution::{self, Digest, Exit, Isolation, Order, Stage};
use bursar_booking::{
    Bookings, Event, Extras, Fence, Limit, Priority, Refusal, Reply, Request, Scope,
};
use bursar_units::{Amount, BookingId, Instant, Label, Millis, ObjectName};

pub(crate) fn at(ms: u64) -> Instant {
    Instant::from_ms(ms)
}

pub(crate) fn id(text: &str) -> BookingId {
    BookingId::new(text).unwrap()
}

/// An id that ends in a `UUIDv7` made at `ms`.
pub(crate) fn uuid_id(ms: u64, number: u64) -> BookingId {
    let time = format!("{ms:012x}");
    id(&format!(
        "job-{}-{}-7000-8000-{number:012x}",
        &time[..8],
        &time[8..]
    ))
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

pub(crate) fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// A scope as people write it: a name, `each`, or nothing.
pub(crate) fn scope(text: &str) -> Option<Scope> {
    match text {
        "" => None,
        "each" => Some(Scope::Each),
        named => Some(Scope::Named(label(named))),
    }
}

pub(crate) fn slots_limit(class: &str, tenant: &str, slots: u64) -> Limit {
    Limit {
        slots: Some(slots),
        ..Limit::unbounded(scope(class), scope(tenant))
    }
}

/// One slot, a minute to live, an hour to wait, normal priority.
pub(crate) fn request(class: &str, tenant: &str) -> Request {
    Request {
        class: label(class),
        tenant: label(tenant),
        amount: Amount {
            slots: 1,
            ..Amount::default()
        },
        priority: Priority::Normal,
        ttl: Millis::from_secs(60),
        wait: Millis::from_hours(1),
        extras: None,
    }
}

/// The same, but refused at once where it would have to wait.
pub(crate) fn at_once(class: &str, tenant: &str) -> Request {
    Request {
        wait: Millis::ZERO,
        ..request(class, tenant)
    }
}

/// What an order that names nothing gets: a minute to start, an hour to run, ten seconds to end.
pub(crate) fn order() -> Order {
    Order {
        work: Digest([7; 32]),
        pids: None,
        start_timeout: execution::START_TIMEOUT_DEFAULT,
        max_time: execution::MAX_TIME_DEFAULT,
        grace: execution::GRACE_DEFAULT,
        retry_of: None,
    }
}

/// A request under which something is to be run.
pub(crate) fn with_order(request: Request, order: Order) -> Request {
    Request {
        ttl: Millis::ZERO,
        extras: Some(Box::new(Extras {
            order: Some(order),
            ..Extras::default()
        })),
        ..request
    }
}

/// An execution of one slot that waits for an hour.
pub(crate) fn execution(class: &str, tenant: &str) -> Request {
    with_order(request(class, tenant), order())
}

pub(crate) fn sized(request: Request, slots: u64) -> Request {
    Request {
        amount: Amount {
            slots,
            ..request.amount
        },
        ..request
    }
}

/// Bookings with what was recorded of them, driven by plain calls.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) bookings: Bookings,
    pub(crate) log: Events,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            bookings: Bookings::new(),
            log: Events::new(),
        }
    }

    pub(crate) fn with_limits(limits: &[(&str, Limit)]) -> Self {
        let mut desk = Self::new();
        desk.set(0, limits).unwrap();
        desk
    }

    pub(crate) fn set(&mut self, now: u64, limits: &[(&str, Limit)]) -> Result<Reply, Refusal> {
        let set = |(text, limit): &(&str, Limit)| Change::SetLimit {
            name: name(text),
            limit: limit.clone(),
        };
        let changes: Vec<Change> = limits.iter().map(set).collect();
        self.record(|bookings, events| decide::change(bookings, at(now), &changes, events))
    }

    pub(crate) fn reserve(
        &mut self,
        now: u64,
        text: &str,
        request: &Request,
    ) -> Result<Reply, Refusal> {
        let id = id(text);
        self.record(|bookings, events| decide::reserve(bookings, at(now), &id, request, events))
    }

    /// Reserves and expects a grant.
    pub(crate) fn hold(&mut self, now: u64, text: &str, request: &Request) -> u64 {
        match self.reserve(now, text, request) {
            Ok(Reply::Granted(fence)) => fence.0,
            other => panic!("{text} was to be granted, and was told {other:?}"),
        }
    }

    pub(crate) fn release(&mut self, now: u64, text: &str, fence: u64) -> Result<Reply, Refusal> {
        let id = id(text);
        self.record(|bookings, events| {
            decide::release(bookings, at(now), &id, Fence(fence), (None, None), events)
        })
    }

    pub(crate) fn cancel(&mut self, now: u64, text: &str) -> Result<Reply, Refusal> {
        let id = id(text);
        self.record(|bookings, events| decide::cancel(bookings, at(now), &id, events))
    }

    pub(crate) fn force(&mut self, now: u64, text: &str) -> Result<Reply, Refusal> {
        let id = id(text);
        self.record(|bookings, events| decide::force(bookings, at(now), &id, "for a test", events))
    }

    pub(crate) fn started(&mut self, now: u64, text: &str) -> Result<Reply, Refusal> {
        let id = id(text);
        self.record(|bookings, events| {
            execution::started(bookings, at(now), &id, Isolation::Cgroup, events)
        })
    }

    pub(crate) fn adopt(
        &mut self,
        now: u64,
        text: &str,
        request: &Request,
        fence: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let (id, found) = (id(text), (fence.map(Fence), Isolation::Cgroup));
        self.record(|bookings, events| {
            execution::adopt(bookings, at(now), &id, request, found, events)
        })
    }

    pub(crate) fn exited(&mut self, now: u64, text: &str, exit: &Exit) -> Result<Reply, Refusal> {
        let id = id(text);
        self.record(|bookings, events| execution::exited(bookings, at(now), &id, exit, events))
    }

    pub(crate) fn stop_failed(
        &mut self,
        now: u64,
        text: &str,
        attempt: u32,
    ) -> Result<Reply, Refusal> {
        let id = id(text);
        self.record(|bookings, events| {
            execution::stop_failed(bookings, at(now), &id, attempt, events)
        })
    }

    /// Ticks until nothing is due.
    pub(crate) fn tick(&mut self, now: u64) {
        while self.bookings.is_unsettled() || self.bookings.due(at(now)).next().is_some() {
            self.record(|bookings, events| decide::tick(bookings, at(now), |_| None, events));
        }
    }

    pub(crate) fn fence_of(&self, text: &str) -> Option<u64> {
        match self.bookings.standing(&id(text)) {
            Some(bursar_booking::Standing::Granted(granted)) => Some(granted.fence.0),
            _ => None,
        }
    }

    /// How many hold and how many wait.
    pub(crate) fn live(&self) -> (usize, usize) {
        let (granted, queued, _) = self.bookings.counts();
        (granted, queued)
    }

    /// Ids in the order in which they were granted.
    pub(crate) fn grants(&self) -> Vec<String> {
        let grant = |(_, event): &(Instant, Event)| match event {
            Event::Granted { id, .. }
            | Event::Reserved {
                id, fence: Some(_), ..
            } => Some(id.to_string()),
            _ => None,
        };
        self.log.iter().filter_map(grant).collect()
    }

    /// One record: what is decided is noted and looked over.
    pub(crate) fn record<T>(&mut self, decide: impl FnOnce(&mut Bookings, &mut Events) -> T) -> T {
        let mut events = Events::new();
        let answer = decide(&mut self.bookings, &mut events);
        self.log.extend(events);
        bursar_booking::invariants::check(&self.bookings).unwrap();
        answer
    }
}

/// The word for a stage in tables.
pub(crate) fn stage_word(stage: Stage) -> &'static str {
    match stage {
        Stage::Starting => "starting",
        Stage::Running => "running",
        Stage::Stopping { .. } => "stopping",
        Stage::Stuck => "stuck",
    }
}
