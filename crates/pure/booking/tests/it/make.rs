//! Constructors and drivers for tests.

use bursar_booking::decide::{Change, Events};
use bursar_booking::execution::{self, Adoption, Exit, Isolation, Order, Stage};
use bursar_booking::{Bookings, Command, Event, Fence, Limit, Refusal, Request, Scope, Submission};
use bursar_journal::hash::Hash;
use bursar_plane::{Due, Plane as _, Reference, Steps};
use bursar_units::{BookingId, Instant, Label, Millis, ObjectName};

/// The level whose snapshots are written.
pub(crate) const LEVEL: u64 = 2;

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

/// A limit without bounds, whose name is set later.
pub(crate) fn unbounded(class: &str, tenant: &str) -> Limit {
    Limit::unbounded(name("unnamed"), scope(class), scope(tenant))
}

pub(crate) fn slots_limit(class: &str, tenant: &str, slots: u64) -> Limit {
    Limit {
        slots: Some(slots),
        ..unbounded(class, tenant)
    }
}

/// One slot, a ttl of a minute, a wait of an hour, normal priority; the id is set later.
pub(crate) fn request(class: &str, tenant: &str) -> Request {
    Request {
        ttl: Millis::from_secs(60),
        wait: Millis::from_hours(1),
        ..Request::new(id("unnamed"), label(class), label(tenant))
    }
}

/// The same without a wait.
pub(crate) fn at_once(class: &str, tenant: &str) -> Request {
    Request {
        wait: Millis::ZERO,
        ..request(class, tenant)
    }
}

pub(crate) fn sized(request: Request, slots: u64) -> Request {
    Request { slots, ..request }
}

/// Order with defaults: a minute to start, an hour to run, ten seconds to end.
pub(crate) fn order() -> Order {
    Order {
        work: Hash([7; 32]),
        pids: None,
        start_timeout: execution::START_TIMEOUT_DEFAULT,
        max_time: execution::MAX_TIME_DEFAULT,
        grace: execution::GRACE_DEFAULT,
        retry_of: None,
    }
}

/// A request, with an order if it is an execution.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Asked {
    pub(crate) booking: Request,
    pub(crate) order: Option<Order>,
}

/// A plain booking or an execution.
pub(crate) trait Ask {
    /// Sets the id.
    fn named(&self, id: &BookingId) -> Asked;
}

impl Ask for Request {
    fn named(&self, id: &BookingId) -> Asked {
        Asked::from(self.clone()).named(id)
    }
}

impl Ask for Asked {
    fn named(&self, id: &BookingId) -> Asked {
        let mut asked = self.clone();
        asked.booking.id = id.clone();
        asked
    }
}

impl From<Request> for Asked {
    fn from(booking: Request) -> Self {
        let order = None;
        Self { booking, order }
    }
}

impl Asked {
    /// Command that requests it.
    pub(crate) fn command(self) -> Command {
        let Self { booking, order } = self;
        match order {
            None => Command::Reserve(booking),
            Some(order) => Command::Submit(Submission { booking, order }),
        }
    }

    /// Command that reports it as running, under the fence of its program.
    pub(crate) fn adoption(self, fence: Option<u64>, isolation: Isolation) -> Command {
        Command::Adopt(Adoption {
            booking: Request {
                fence: fence.map(Fence),
                ..self.booking
            },
            order: self.order,
            isolation,
        })
    }
}

/// A request for an execution.
pub(crate) fn with_order(request: Request, order: Order) -> Asked {
    let ttl = Millis::ZERO;
    Asked {
        booking: Request { ttl, ..request },
        order: Some(order),
    }
}

/// An execution of one slot that waits for an hour.
pub(crate) fn execution(class: &str, tenant: &str) -> Asked {
    with_order(request(class, tenant), order())
}

/// Command that releases a booking without an outcome.
pub(crate) fn release(id: BookingId, fence: Fence) -> Command {
    Command::Release {
        id,
        fence,
        outcome: None,
        exit_code: None,
    }
}

/// Events of a record of that time, each with its own time.
pub(crate) fn dated(now: u64, events: Events) -> Vec<(Instant, Event)> {
    let events = events.into_list().into_iter();
    events
        .map(|event| (event.time().unwrap_or(at(now)), event))
        .collect()
}

/// Decides a command in a record of its own.
pub(crate) fn decided(
    bookings: &mut Bookings,
    now: u64,
    command: &Command,
) -> (Result<Reply, Refusal>, Vec<(Instant, Event)>) {
    let mut events = Events::new(at(now), 0);
    let answer = bookings.decide(at(now), command, &mut events);
    (answer.map(Reply::from), dated(now, events))
}

/// Processes deadlines in a record of its own, without renewals.
pub(crate) fn ticked(bookings: &mut Bookings, now: u64) -> Vec<(Instant, Event)> {
    let mut events = Events::new(at(now), 0);
    tick(bookings, now, |_| None, &mut events);
    dated(now, events)
}

/// Processes deadlines; `renewed` has the new deadlines of holders.
pub(crate) fn tick(
    bookings: &mut Bookings,
    now: u64,
    renewed: impl Fn(&BookingId) -> Option<Instant>,
    events: &mut Events,
) {
    let alive_until = |object: &Reference| match object {
        Reference::Booking(id) => renewed(id),
        _ => None,
    };
    let due = Due {
        until: at(now),
        class: None,
    };
    bookings.tick(due, &alive_until, &mut { Steps::FULL }, events);
}

/// Changes limits as the engine does: checks all, emits all, settles all.
pub(crate) fn change(
    bookings: &mut Bookings,
    now: u64,
    changes: &[Change],
    events: &mut Events,
) -> Result<(), Refusal> {
    let changes: Vec<&Change> = changes.iter().collect();
    let [before, after] = bookings.implied(&changes);
    let checked: Vec<&Change> = before.iter().chain(changes.iter().copied()).collect();
    bookings.check_changes(at(now), &checked)?;
    for change in checked.into_iter().chain(&after) {
        bookings.change(at(now), change, events);
    }
    bookings.settle(at(now), events);
    Ok(())
}

/// Bookings with their recorded events.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) bookings: Bookings,
    /// Events with their times.
    pub(crate) log: Vec<(Instant, Event)>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            bookings: Bookings::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn with_limits(limits: &[(&str, Limit)]) -> Self {
        let mut desk = Self::new();
        desk.set(0, limits).unwrap();
        desk
    }

    pub(crate) fn set(&mut self, now: u64, limits: &[(&str, Limit)]) -> Result<(), Refusal> {
        let set = |(text, limit): &(&str, Limit)| {
            Change::SetLimit(Limit {
                name: name(text),
                ..limit.clone()
            })
        };
        let changes: Vec<Change> = limits.iter().map(set).collect();
        self.change(now, &changes)
    }

    pub(crate) fn change(&mut self, now: u64, changes: &[Change]) -> Result<(), Refusal> {
        let mut events = Events::new(at(now), 0);
        let answer = change(&mut self.bookings, now, changes, &mut events);
        self.keep(dated(now, events));
        answer
    }

    pub(crate) fn tell(&mut self, now: u64, command: &Command) -> Result<Reply, Refusal> {
        let (answer, events) = decided(&mut self.bookings, now, command);
        self.keep(events);
        answer
    }

    pub(crate) fn reserve(
        &mut self,
        now: u64,
        text: &str,
        asked: &impl Ask,
    ) -> Result<Reply, Refusal> {
        self.tell(now, &asked.named(&id(text)).command())
    }

    /// Reserves without recording or checking.
    pub(crate) fn fill(&mut self, now: u64, text: &str, asked: &impl Ask) {
        let command = asked.named(&id(text)).command();
        decided(&mut self.bookings, now, &command).0.unwrap();
    }

    /// Reserves and expects a grant.
    pub(crate) fn hold(&mut self, now: u64, text: &str, asked: &impl Ask) -> u64 {
        match self.reserve(now, text, asked) {
            Ok(Reply::Granted(fence)) => fence.0,
            other => panic!("{text} was to be granted, and was told {other:?}"),
        }
    }

    pub(crate) fn release(&mut self, now: u64, text: &str, fence: u64) -> Result<Reply, Refusal> {
        self.tell(now, &release(id(text), Fence(fence)))
    }

    pub(crate) fn renew(
        &mut self,
        now: u64,
        text: &str,
        fence: u64,
        ttl: Option<Millis>,
    ) -> Result<Reply, Refusal> {
        let (id, fence) = (id(text), Fence(fence));
        self.tell(now, &Command::Renew { id, fence, ttl })
    }

    pub(crate) fn cancel(&mut self, now: u64, text: &str) -> Result<Reply, Refusal> {
        self.tell(now, &Command::Cancel { id: id(text) })
    }

    pub(crate) fn force(&mut self, now: u64, text: &str) -> Result<Reply, Refusal> {
        let (id, reason) = (id(text), "for a test".to_owned());
        self.tell(now, &Command::Force { id, reason })
    }

    pub(crate) fn note(&mut self, now: u64, id_text: &str, text: &str) -> Result<Reply, Refusal> {
        let (id, text) = (id(id_text), text.to_owned());
        self.tell(now, &Command::Note { id, text })
    }

    pub(crate) fn started(&mut self, now: u64, text: &str) -> Result<Reply, Refusal> {
        let (id, isolation) = (id(text), Isolation::Cgroup);
        self.tell(now, &Command::Started { id, isolation })
    }

    pub(crate) fn adopt(
        &mut self,
        now: u64,
        text: &str,
        asked: &impl Ask,
        fence: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let found = asked.named(&id(text));
        self.tell(now, &found.adoption(fence, Isolation::Cgroup))
    }

    pub(crate) fn exited(&mut self, now: u64, text: &str, exit: &Exit) -> Result<Reply, Refusal> {
        let (id, exit) = (id(text), exit.clone());
        self.tell(now, &Command::Exited { id, exit })
    }

    pub(crate) fn stop_failed(
        &mut self,
        now: u64,
        text: &str,
        attempt: u32,
    ) -> Result<Reply, Refusal> {
        let id = id(text);
        self.tell(now, &Command::StopFailed { id, attempt })
    }

    /// Ticks until nothing is due.
    pub(crate) fn tick(&mut self, now: u64) {
        while self.bookings.is_unsettled() || self.bookings.due(at(now)).next().is_some() {
            self.tick_once(now);
        }
    }

    /// Ticks for one record.
    pub(crate) fn tick_once(&mut self, now: u64) {
        let events = ticked(&mut self.bookings, now);
        self.keep(events);
    }

    pub(crate) fn fence_of(&self, text: &str) -> Option<u64> {
        match self.bookings.standing(&id(text)) {
            Some(bursar_booking::Standing::Granted(granted)) => Some(granted.fence.0),
            _ => None,
        }
    }

    /// Numbers of granted and queued bookings.
    pub(crate) fn live(&self) -> (usize, usize) {
        let (granted, queued, _) = self.bookings.counts();
        (granted, queued)
    }

    /// Ids in the order in which they were granted.
    pub(crate) fn grants(&self) -> Vec<String> {
        let granted = self.log.iter().filter_map(|(_, event)| grant(event));
        granted.map(|(id, _)| id.to_string()).collect()
    }

    /// Records the events of a decision and checks the state.
    fn keep(&mut self, events: Vec<(Instant, Event)>) {
        self.log.extend(events);
        bursar_booking::invariants::check(&self.bookings).unwrap();
    }
}

/// Booking that an event grants, and its fence.
pub(crate) fn grant(event: &Event) -> Option<(&BookingId, Fence)> {
    if let Event::Granted { id, fence, .. } = event {
        return Some((id, *fence));
    }
    let (request, _) = event.request()?;
    Some((&request.id, request.fence?))
}

/// A reply without the booking that it shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    Granted(Fence),
    Queued,
    Repeated,
    Stopping,
    Recorded,
    Renewed { expires: Instant },
    Ended,
    AlreadyEnded,
    Noted,
}

impl From<bursar_booking::Reply> for Reply {
    fn from(reply: bursar_booking::Reply) -> Self {
        use bursar_booking::Reply as Whole;
        match reply {
            Whole::Granted(fence) => Self::Granted(fence),
            Whole::Queued => Self::Queued,
            Whole::Repeated(_) => Self::Repeated,
            Whole::Stopping(_) => Self::Stopping,
            Whole::Recorded => Self::Recorded,
            Whole::Renewed { expires } => Self::Renewed { expires },
            Whole::Ended(_) => Self::Ended,
            Whole::AlreadyEnded(_) => Self::AlreadyEnded,
            Whole::Noted(_) => Self::Noted,
        }
    }
}

/// The word for a stage in tables.
pub(crate) fn stage_word(stage: Stage) -> &'static str {
    match stage {
        Stage::Starting => "starting",
        Stage::Running => "running",
        Stage::Stopping(_) => "stopping",
        Stage::Stuck => "stuck",
    }
}
