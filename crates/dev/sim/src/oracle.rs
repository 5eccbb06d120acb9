//! The rules of S1–S6 and X1 as a person would write them on one page: lists, counting, the plain
//! loop.
//!
//! It shares no code with `bursar-booking` but the types of requests, limits and events. Every
//! number is counted from the list of holders each time it is wanted, and every rule is read off
//! design 40; it is slow, and small worlds do not mind. [`Oracle::record`] says what must follow
//! from a command, [`Oracle::unrecorded`] whether an answer that left no record was the right one.

mod executions;
mod limits;
mod pump;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bursar_booking::decide::Change;
use bursar_booking::execution::Cause;
use bursar_booking::{End, Event, Fence, Limit, Outcome, Refusal, Reply, Request, Scope};
use bursar_engine::{Answer, Command, Refusal as EngineRefusal};
use bursar_units::{Amount, BookingId, Instant, Label, Millis, ObjectName};

use crate::violation::{Violation, broken, demand};

const DAY: Millis = Millis::from_hours(24);
const STEPS_MAX: usize = 256;

/// Events with their times.
pub type Expected = Vec<(Instant, Event)>;

/// The plain state.
#[derive(Clone, Debug)]
pub struct Oracle {
    limits: BTreeMap<ObjectName, Limit>,
    nodes: BTreeMap<ObjectName, Amount>,
    /// In order of arrival.
    waiting: Vec<Waiter>,
    holders: BTreeMap<BookingId, Holder>,
    ended: BTreeMap<BookingId, Past>,
    ended_in_order: VecDeque<BookingId>,
    turns: BTreeMap<Label, u128>,
    virtual_time: u128,
    arrivals: u64,
    dues: u64,
    fence: u64,
    unsettled: Option<Instant>,
    forgotten_at: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Waiter {
    id: BookingId,
    request: Request,
    arrival: u64,
    since: Instant,
    until: Instant,
    passes: u32,
    due: Option<u64>,
}

#[derive(Clone, Debug)]
struct Holder {
    request: Request,
    fence: Fence,
    /// When time ends it, or stops an execution.
    until: Option<Instant>,
    /// What has happened to an execution.
    way: Way,
}

/// What has happened to an execution; its stage follows from that.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    has_started: bool,
    stopping: Option<Cause>,
    stops_failed: u32,
}

#[derive(Clone, Debug)]
struct Past {
    request: Request,
    fence: Option<Fence>,
    at: Instant,
}

/// What became of a request, or would.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Verdict {
    Granted,
    Queued,
    Repeated,
    Refused(&'static str),
}

impl Default for Oracle {
    fn default() -> Self {
        let shipped = Limit {
            slots: Some(100),
            ..Limit::unbounded(Some(bursar_booking::Scope::Each), None)
        };
        let name = ObjectName::new("default").ok();
        Self {
            limits: name.map(|name| (name, shipped)).into_iter().collect(),
            nodes: BTreeMap::new(),
            waiting: Vec::new(),
            holders: BTreeMap::new(),
            ended: BTreeMap::new(),
            ended_in_order: VecDeque::new(),
            turns: BTreeMap::new(),
            virtual_time: 0,
            arrivals: 0,
            dues: 0,
            fence: 0,
            unsettled: None,
            forgotten_at: None,
        }
    }
}

impl Oracle {
    /// How many hold and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.holders.len(), self.waiting.len())
    }

    /// The ids that hold or wait.
    pub fn live(&self) -> Vec<BookingId> {
        let waiting = self.waiting.iter().map(|waiter| &waiter.id);
        self.holders.keys().chain(waiting).cloned().collect()
    }

    /// How many of those who wait are due (S4).
    pub fn due_count(&self) -> usize {
        self.waiting
            .iter()
            .filter(|waiter| waiter.due.is_some())
            .count()
    }

    /// Follows a recorded command, and says what events it must have had.
    pub fn record(&mut self, at: Instant, command: &Command) -> Result<Expected, Violation> {
        let mut events = Expected::new();
        match command {
            Command::Reserve { id, request } => self.reserve(at, id, request, &mut events)?,
            Command::Release {
                id,
                outcome,
                exit_code,
                ..
            } => {
                let said = (*outcome, *exit_code);
                self.end(at, id, End::Released, said, None, &mut events);
                self.pump(at, &mut { STEPS_MAX }, &mut events);
            }
            Command::Started { id, isolation } => self.started(at, id, *isolation, &mut events),
            Command::Exited { id, exit } => self.exited(at, id, exit, &mut events),
            Command::StopFailed { id, attempt } => {
                self.stop_failed(at, id, *attempt, &mut events);
            }
            Command::Cancel { id } if self.is_execution(id) => {
                self.stop(at, id, Cause::Cancelled, &mut events);
            }
            Command::Cancel { id } => {
                self.end(at, id, End::Cancelled, (None, None), None, &mut events);
                self.pump(at, &mut { STEPS_MAX }, &mut events);
            }
            Command::Force { id, reason } => {
                let reason = Some(reason.clone());
                self.end(at, id, End::Forced, (None, None), reason, &mut events);
                self.pump(at, &mut { STEPS_MAX }, &mut events);
            }
            Command::Change { changes } => {
                let was_bounded = self.bounds_each_tenant();
                self.make_way(at, changes, &mut events);
                for change in changes {
                    self.change(at, change, &mut events);
                }
                let [_, (name, limit)] = shipped();
                if was_bounded && !self.bounds_each_tenant() && !self.limits.contains_key(&name) {
                    self.change(at, &Change::SetLimit { name, limit }, &mut events);
                }
                self.pump(at, &mut { STEPS_MAX }, &mut events);
            }
            Command::Level { .. } => {
                for (name, limit) in shipped() {
                    self.change(at, &Change::SetLimit { name, limit }, &mut events);
                }
            }
            Command::Tick { renewed } => self.tick(at, renewed, &mut events),
            Command::Resume { .. } => self.resume(at),
            _ => {}
        }
        Ok(events)
    }

    /// Whether an answer that left no record is the one that the rules give.
    pub fn unrecorded(
        &mut self,
        at: Instant,
        command: &Command,
        answer: &Result<Answer, EngineRefusal>,
    ) -> Result<(), Violation> {
        let expected = match command {
            Command::Reserve { id, request } => match self.verdict(at, id, request) {
                Verdict::Repeated => "repeated",
                Verdict::Refused(why) => why,
                Verdict::Granted => "granted",
                Verdict::Queued => "queued",
            },
            Command::Release { id, fence, .. } => self.release_word(id, *fence),
            Command::Renew { id, fence, .. } => self.renew_word(id, *fence),
            Command::Started { id, .. } => self.started_word(id),
            Command::Exited { id, .. } => self.exited_word(id),
            Command::StopFailed { id, attempt } => self.stop_failed_word(id, *attempt),
            Command::Cancel { id } => self.cancel_word(id),
            Command::Force { id, .. } => self.force_word(id),
            _ => return Ok(()),
        };
        let given = word_of(answer);
        demand(
            expected == given,
            "an answer without a record is what the plain rules say",
            || {
                format!(
                    "{command:?} at {at:?}: the rules say `{expected}`, the answer was {answer:?}"
                )
            },
        )
    }

    fn reserve(
        &mut self,
        at: Instant,
        id: &BookingId,
        request: &Request,
        events: &mut Expected,
    ) -> Result<(), Violation> {
        let verdict = self.verdict(at, id, request);
        let fence = match verdict {
            Verdict::Granted => Some(Fence(self.fence + 1)),
            Verdict::Queued => None,
            Verdict::Repeated | Verdict::Refused(_) => {
                let seen = format!("`{id}` at {at:?} has a record, the rules say {verdict:?}");
                return Err(broken("a request gets what the plain rules say", seen));
            }
        };
        self.join(at, id, request);
        events.push((
            at,
            Event::Reserved {
                id: id.clone(),
                request: request.clone(),
                fence,
            },
        ));
        // S2 to the letter: the newcomer joins, then the pump runs. It may grant only the newcomer.
        let mut pumped = Expected::new();
        self.pump(at, &mut { STEPS_MAX }, &mut pumped);
        let granted: Vec<_> = pumped
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Granted { id, fence } => Some((id.clone(), *fence)),
                _ => None,
            })
            .collect();
        let newcomer: Vec<_> = fence.map(|fence| (id.clone(), fence)).into_iter().collect();
        demand(
            granted == newcomer,
            "a newcomer's pump grants nobody else",
            || format!("`{id}` came and the pump granted {granted:?}"),
        )
    }

    fn join(&mut self, at: Instant, id: &BookingId, request: &Request) {
        let has_waiting = self.has_waiting(&request.tenant);
        let turn = self.turns.entry(request.tenant.clone()).or_default();
        if !has_waiting {
            *turn = self.virtual_time.max(*turn);
        }
        self.arrivals += 1;
        self.waiting.push(Waiter {
            id: id.clone(),
            request: request.clone(),
            arrival: self.arrivals,
            since: at,
            until: at.after(request.wait),
            passes: 0,
            due: None,
        });
    }

    fn has_waiting(&self, tenant: &Label) -> bool {
        self.waiting
            .iter()
            .any(|waiter| waiter.request.tenant == *tenant)
    }

    fn verdict(&mut self, at: Instant, id: &BookingId, request: &Request) -> Verdict {
        if let Some(known) = self.request_of(id) {
            return if known == request {
                Verdict::Repeated
            } else {
                Verdict::Refused("id-reused")
            };
        }
        if let (Some(forgotten), Some(made)) = (self.forgotten_at, id.made_at())
            && made <= forgotten
        {
            return Verdict::Refused("id-too-old");
        }
        if let Some(why) = self.refused_by_terms(request) {
            return Verdict::Refused(why);
        }
        let turn = self.turns.get(&request.tenant).copied();
        self.join(at, id, request);
        let next = self.unsettled.is_none().then(|| self.next(at)).flatten();
        let is_granted = next.as_ref() == Some(id);
        self.waiting.pop();
        self.arrivals -= 1;
        match turn {
            Some(turn) => self.turns.insert(request.tenant.clone(), turn),
            None => self.turns.remove(&request.tenant),
        };
        if is_granted {
            return Verdict::Granted;
        }
        if request.wait.ms() == 0 {
            let lacks = self.lacks_any(request);
            return Verdict::Refused(if lacks { "over-limit" } else { "others-first" });
        }
        if self.queue_is_full(request) {
            return Verdict::Refused("queue-full");
        }
        Verdict::Queued
    }

    fn request_of(&self, id: &BookingId) -> Option<&Request> {
        let waiter = self.waiting.iter().find(|waiter| waiter.id == *id);
        let holder = self.holders.get(id).map(|holder| &holder.request);
        let past = self.ended.get(id).map(|past| &past.request);
        waiter.map(|waiter| &waiter.request).or(holder).or(past)
    }

    fn end(
        &mut self,
        at: Instant,
        id: &BookingId,
        end: End,
        (outcome, exit_code): (Option<Outcome>, Option<i32>),
        reason: Option<String>,
        events: &mut Expected,
    ) {
        if !self.leave(at, id) {
            return;
        }
        let id = id.clone();
        events.push((
            at,
            Event::Ended {
                id,
                end,
                outcome,
                exit_code,
                reason,
            },
        ));
    }

    /// Takes an id out of the holders or the queue; whether it was there.
    fn leave(&mut self, at: Instant, id: &BookingId) -> bool {
        let (request, fence) = if let Some(holder) = self.holders.remove(id) {
            (holder.request, Some(holder.fence))
        } else if let Some(place) = self.waiting.iter().position(|waiter| waiter.id == *id) {
            (self.waiting.remove(place).request, None)
        } else {
            return false;
        };
        let past = Past { request, fence, at };
        self.ended.insert(id.clone(), past);
        self.ended_in_order.push_back(id.clone());
        self.forget(at);
        true
    }

    fn forget(&mut self, at: Instant) {
        let mut forgotten = BTreeSet::new();
        while let Some(oldest) = self.ended_in_order.front() {
            let is_old = |past: &Past| past.at.after(DAY) <= at;
            if !self.ended.get(oldest).is_some_and(is_old) {
                break;
            }
            if let Some(past) = self.ended.remove(oldest) {
                self.forgotten_at = self.forgotten_at.max(Some(past.at));
                forgotten.insert(past.request.tenant);
            }
            self.ended_in_order.pop_front();
        }
        // Nothing is known of a tenant that nothing remembered or live refers to.
        for tenant in forgotten {
            let waits = self.has_waiting(&tenant);
            let holds = self
                .holders
                .values()
                .any(|holder| holder.request.tenant == tenant);
            let is_past = |past: &Past| past.request.tenant == tenant;
            if !waits && !holds && !self.ended.values().any(is_past) {
                self.turns.remove(&tenant);
            }
        }
    }

    fn change(&mut self, at: Instant, change: &Change, events: &mut Expected) {
        let event = match change.clone() {
            Change::SetLimit { name, limit } => {
                let before = self.limits.insert(name.clone(), limit.clone());
                (before.as_ref() != Some(&limit)).then_some(Event::LimitSet { name, limit })
            }
            Change::DropLimit { name } => {
                self.limits.remove(&name);
                Some(Event::LimitDropped { name })
            }
            Change::SetNode { name, capacity } => {
                let before = self.nodes.insert(name.clone(), capacity);
                (before != Some(capacity)).then_some(Event::NodeSet { name, capacity })
            }
            Change::DropNode { name } => {
                self.nodes.remove(&name);
                Some(Event::NodeDropped { name })
            }
        };
        events.extend(event.map(|event| (at, event)));
    }

    fn bounds_each_tenant(&self) -> bool {
        let mut limits = self.limits.values();
        limits.any(|limit| limit.class.is_none() && limit.tenant == Some(Scope::Each))
    }

    /// A limit on each tenant that an operator declares takes the place of the one that ships.
    fn make_way(&mut self, at: Instant, changes: &[Change], events: &mut Expected) {
        let [_, (name, limit)] = shipped();
        let is_other = |change: &Change| match change {
            Change::SetLimit { name: of, limit } => {
                *of != name && limit.class.is_none() && limit.tenant == Some(Scope::Each)
            }
            _ => false,
        };
        let is_named = |change: &Change| match change {
            Change::SetLimit { name: of, .. } | Change::DropLimit { name: of } => *of == name,
            _ => false,
        };
        let makes_way = self.limits.get(&name) == Some(&limit)
            && changes.iter().any(is_other)
            && !changes.iter().any(is_named);
        if makes_way {
            self.change(at, &Change::DropLimit { name }, events);
        }
    }

    fn tick(&mut self, now: Instant, renewed: &[(BookingId, Instant)], events: &mut Expected) {
        let mut grants_left = STEPS_MAX;
        if let Some(since) = self.unsettled {
            self.pump(since, &mut grants_left, events);
        }
        for _ in 0..STEPS_MAX {
            if self.unsettled.is_some() || grants_left == 0 {
                return;
            }
            let Some((at, kind, id)) = self.next_deadline().filter(|(at, ..)| *at <= now) else {
                return;
            };
            let evidence = renewed.iter().find(|(renewed, _)| *renewed == id);
            let evidence = evidence
                .map(|(_, until)| *until)
                .filter(|until| *until > at);
            match (kind, evidence) {
                (0, Some(expires)) => {
                    if let Some(holder) = self.holders.get_mut(&id) {
                        holder.until = holder.until.max(Some(expires));
                    }
                    events.push((at, Event::Renewed { id, expires }));
                }
                (1, _) => self.overdue(at, &id, events),
                (kind, _) => {
                    let end = if kind == 0 {
                        End::Expired
                    } else {
                        End::WaitOver
                    };
                    self.end(at, &id, end, (None, None), None, events);
                    self.pump(at, &mut grants_left, events);
                }
            }
        }
    }

    /// The earliest deadline: of a plain grant (0), of an execution (1), of a wait (2), then by id.
    fn next_deadline(&self) -> Option<(Instant, u8, BookingId)> {
        let expiries = self
            .holders
            .iter()
            .filter_map(|(id, holder)| Some((holder.until?, holder.kind(), id)));
        let waits = self
            .waiting
            .iter()
            .map(|waiter| (waiter.until, 2, &waiter.id));
        let first = expiries.chain(waits).min();
        first.map(|(at, kind, id)| (at, kind, id.clone()))
    }

    fn resume(&mut self, at: Instant) {
        for holder in self.holders.values_mut() {
            let again = holder.again();
            holder.until = holder.until.map(|until| until.max(at.after(again)));
        }
        for waiter in &mut self.waiting {
            waiter.until = waiter.until.max(at);
        }
        self.unsettled = self.unsettled.map(|since| since.max(at));
    }

    fn release_word(&self, id: &BookingId, fence: Fence) -> &'static str {
        if let Some(holder) = self.holders.get(id) {
            return if holder.fence != fence {
                "stale-fence"
            } else if self.is_execution(id) {
                "is-execution"
            } else {
                "ended"
            };
        }
        match self.ended.get(id) {
            Some(past) if past.fence.is_some_and(|held| held != fence) => "stale-fence",
            Some(_) => "already-ended",
            None if self.is_waiting(id) => "is-queued",
            None => "not-found",
        }
    }

    fn renew_word(&self, id: &BookingId, fence: Fence) -> &'static str {
        match (self.holders.get(id), self.ended.get(id)) {
            (Some(holder), _) if holder.fence == fence && self.is_execution(id) => "is-execution",
            (Some(holder), _) if holder.fence == fence => "renewed",
            (Some(_), _) | (None, Some(_)) => "stale-fence",
            (None, None) if self.is_waiting(id) => "is-queued",
            (None, None) => "not-found",
        }
    }

    fn cancel_word(&self, id: &BookingId) -> &'static str {
        match (self.holders.contains_key(id), self.ended.contains_key(id)) {
            (true, _) if self.is_stopping(id) => "repeated",
            (true, _) if self.is_execution(id) => "stopping",
            (true, _) => "is-granted",
            (false, true) => "already-ended",
            (false, false) if self.is_waiting(id) => "ended",
            (false, false) => "not-found",
        }
    }

    fn force_word(&self, id: &BookingId) -> &'static str {
        if self.ended.contains_key(id) {
            "already-ended"
        } else if self.holders.contains_key(id) || self.is_waiting(id) {
            "ended"
        } else {
            "not-found"
        }
    }

    fn is_waiting(&self, id: &BookingId) -> bool {
        self.waiting.iter().any(|waiter| waiter.id == *id)
    }
}

/// The limits that a ledger begins with, by the numbers of the documentation.
fn shipped() -> [(ObjectName, Limit); 2] {
    let name = |text: &str| ObjectName::new(text).unwrap_or_else(|_| unreachable!("a good name"));
    let of = |class, tenant, slots, weight| Limit {
        slots: Some(slots),
        tenant_queue_max: Some(1_000),
        weight,
        ..Limit::unbounded(class, tenant)
    };
    let each = || Some(Scope::Each);
    [
        (name("default"), of(each(), None, 100, None)),
        (name("tenants"), of(None, each(), 1_000, Some(100))),
    ]
}

fn word_of(answer: &Result<Answer, EngineRefusal>) -> &'static str {
    match answer {
        Ok(Answer::Renewed { .. }) => "renewed",
        Ok(Answer::Booking(reply)) => match reply {
            Reply::Granted(_) => "granted",
            Reply::Queued => "queued",
            Reply::Repeated => "repeated",
            Reply::Ended => "ended",
            Reply::AlreadyEnded => "already-ended",
            Reply::Applied => "applied",
            Reply::Stopping => "stopping",
            Reply::Noted => "noted",
        },
        Err(EngineRefusal::Booking(refusal)) => match refusal {
            Refusal::OverLimit { .. } => "over-limit",
            Refusal::OthersFirst { .. } => "others-first",
            Refusal::QueueFull { .. } | Refusal::TenantQueueFull { .. } => "queue-full",
            Refusal::NeverFits { .. } => "never-fits",
            Refusal::TimeOutOfBounds { field, .. } => field,
            Refusal::Slots => "slots",
            Refusal::IdReused { .. } => "id-reused",
            Refusal::IdTooOld { .. } => "id-too-old",
            Refusal::NotFound => "not-found",
            Refusal::StaleFence { .. } => "stale-fence",
            Refusal::IsGranted => "is-granted",
            Refusal::IsQueued => "is-queued",
            Refusal::IsExecution => "is-execution",
            Refusal::NotAnExecution => "not-an-execution",
            Refusal::RetryOfUnknown => "retry-of-unknown",
            Refusal::RetryOfLive => "retry-of-live",
            _ => "other",
        },
        _ => "other",
    }
}
