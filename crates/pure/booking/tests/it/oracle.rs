//! The rules S1–S7, X1 and L5–L6 as plain loops over one list of bookings. Quotes are from the rules.
//!
//! No counters, caches or indexes: every function walks the whole list. There are no records: a
//! pump grants all that can be granted.

use std::collections::{BTreeMap, BTreeSet};

use bursar_booking::execution::{Cause, Exit, Isolation, Order, Verdict};
use bursar_booking::{Bound, End, Limit, Outcome, Priority, Request, Scope};
use bursar_units::{Dimension, Instant, Label};

use crate::make::Asked;

/// Events in order: time, id, event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Happened {
    Queued(u64, String),
    Granted(u64, String, u64),
    Renewed(u64, String, u64),
    Ended(u64, String, End),
    Started(u64, String),
    Adopted(u64, String, u64),
    Stopping(u64, String, Cause),
    StopFailed(u64, String, u32),
    Exited(u64, String, Verdict),
}

/// Answer to a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Told {
    Granted(u64),
    Queued,
    Repeated,
    Stopping,
    Noted,
    Ended,
    AlreadyEnded,
    /// A code and the headline, where there is one: limit, dimension, size, in use, waiting.
    Refused(&'static str, Option<(String, Dimension, u64, u64, u64)>),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Waiting {
        until: u64,
        passes: u32,
        due: Option<u64>,
    },
    Holding {
        fence: u64,
        granted_at: u64,
        /// Deadline.
        until: Option<u64>,
        /// History of an execution.
        way: Option<Way>,
    },
    Ended {
        end: End,
        at: u64,
        fence: Option<u64>,
        said: Said,
        /// History and verdict of an execution.
        way: Option<(Way, Verdict)>,
    },
}

/// History of an execution, which determines its stage.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Way {
    pub(crate) started: Option<(u64, Isolation)>,
    pub(crate) is_adopted: bool,
    pub(crate) stopping: Option<(u64, Cause)>,
    /// Stops that failed; of no interest once it has ended.
    pub(crate) failed: u32,
}

/// Result of the work.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Said {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) is_out_of_memory: bool,
    pub(crate) reason: Option<String>,
}

impl Way {
    /// "Starting → Running; Starting or Running → Stopping → Stuck after 10 failed stops".
    pub(crate) fn stage(&self) -> &'static str {
        match (self.started, self.stopping) {
            (_, Some(_)) if self.failed >= 10 => "stuck",
            (_, Some(_)) => "stopping",
            (Some(_), None) => "running",
            (None, None) => "starting",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Booking {
    pub(crate) id: String,
    pub(crate) request: Request,
    /// Order of an execution.
    pub(crate) order: Option<Order>,
    pub(crate) sequence: u64,
    pub(crate) since: u64,
    pub(crate) state: State,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// Granted and queued bookings, in order of arrival.
    pub(crate) bookings: Vec<Booking>,
    pub(crate) ended: Vec<Booking>,
    pub(crate) limits: BTreeMap<String, Limit>,
    /// CPU in millicores and memory in bytes.
    pub(crate) nodes: BTreeMap<String, (u64, u64)>,
    turns: BTreeMap<Label, u128>,
    virtual_time: u128,
    sequence: u64,
    fence: u64,
    dues: u64,
    pub(crate) forgotten_at: Option<u64>,
    pub(crate) happened: Vec<Happened>,
    /// Rules that applied, so that the test can require each of them.
    pub(crate) met: BTreeSet<&'static str>,
}

impl Oracle {
    pub(crate) fn find(&self, id: &str) -> Option<&Booking> {
        self.bookings
            .iter()
            .chain(&self.ended)
            .find(|booking| booking.id == id)
    }

    /// "reserve = join the waiting room, then pump; still waiting with wait = 0: leave, refuse."
    pub(crate) fn reserve(&mut self, now: u64, asked: &Asked) -> Told {
        let (request, order) = (&asked.booking, &asked.order);
        let id = request.id.as_str();
        if let Some(present) = self.find(id) {
            return if present.request == *request && present.order == *order {
                Told::Repeated
            } else {
                refused("id-reused")
            };
        }
        let made_at = request.id.made_at().map(Instant::ms);
        if made_at.is_some_and(|made_at| self.forgotten_at.is_some_and(|at| made_at <= at)) {
            return refused("id-too-old");
        }
        if let Some(refusal) = self.out_of_bounds(asked) {
            return refusal;
        }
        self.join(now, asked);
        self.pump(now);
        if let State::Holding { fence, .. } = self.find(id).unwrap().state {
            // It was never visible in the queue.
            self.happened
                .retain(|what| !matches!(what, Happened::Queued(_, queued) if queued == id));
            return Told::Granted(fence);
        }
        let joined = self.bookings.pop();
        let is_full = self.applying(request).iter().any(|(_, limit)| {
            self.waiting_under(limit, request) >= limit.queue_max
                || limit
                    .tenant_queue_max
                    .is_some_and(|max| self.waiting_of_tenant(limit, request) >= max)
        });
        if request.wait.ms() == 0 || is_full {
            self.sequence -= 1;
            self.happened.pop();
        }
        if request.wait.ms() == 0 {
            return self.reason_to_wait(request);
        }
        if is_full {
            return refused("queue-full");
        }
        self.bookings.extend(joined);
        Told::Queued
    }

    pub(crate) fn release(&mut self, now: u64, id: &str, with: u64) -> Told {
        match self.find(id).map(|booking| booking.state.clone()) {
            None => refused("not-found"),
            Some(State::Waiting { .. }) => refused("is-queued"),
            Some(State::Holding { fence, .. }) if fence != with => refused("stale-fence"),
            Some(State::Holding { way: Some(_), .. }) => refused("is-execution"),
            Some(State::Holding { .. }) => self.end(now, id, End::Released, Said::default()),
            Some(State::Ended {
                fence: Some(fence), ..
            }) if fence != with => refused("stale-fence"),
            Some(State::Ended { .. }) => Told::AlreadyEnded,
        }
    }

    pub(crate) fn cancel(&mut self, now: u64, id: &str) -> Told {
        match self.find(id).map(|booking| booking.state.clone()) {
            None => refused("not-found"),
            Some(State::Holding { way: Some(_), .. }) => self.stop(now, id, Cause::Cancelled),
            Some(State::Holding { .. }) => refused("is-granted"),
            Some(State::Ended { .. }) => Told::AlreadyEnded,
            Some(State::Waiting { .. }) => self.end(now, id, End::Cancelled, Said::default()),
        }
    }

    pub(crate) fn started(&mut self, now: u64, id: &str, isolation: Isolation) -> Told {
        let (way, until, order) = match self.execution(id) {
            Ok(found) => found,
            Err(told) => return told,
        };
        if way.started.is_some() {
            return Told::Repeated;
        }
        way.started = Some((now, isolation));
        if way.stopping.is_none() {
            *until = Some(now + order.max_time.ms());
        }
        self.happened.push(Happened::Started(now, id.to_owned()));
        Told::Noted
    }

    /// "the unknown ones are adopted (…, charged even above limits), never killed or doubled": one
    /// that waits holds from now on, and no turn is taken, nobody passed; one that was about to
    /// start keeps the fence of its grant.
    pub(crate) fn adopt(
        &mut self,
        now: u64,
        asked: &Asked,
        (fence, isolation): (Option<u64>, Isolation),
    ) -> Told {
        let id = asked.booking.id.as_str();
        let (order, held) = match self.find(id) {
            Some(known) => match known.state {
                State::Holding {
                    fence,
                    granted_at,
                    way: Some(way),
                    ..
                } if way.stage() == "starting" => (known.order.clone(), Some((fence, granted_at))),
                State::Holding { .. } => return Told::Repeated,
                State::Ended { .. } => return Told::AlreadyEnded,
                State::Waiting { .. } => (known.order.clone(), None),
            },
            None => (asked.order.clone(), None),
        };
        let Some(order) = order else {
            return refused("not-an-execution");
        };
        let is_taken = |given: &u64| {
            let held = |booking: &Booking| match booking.state {
                State::Holding { fence, .. } => fence == *given,
                _ => false,
            };
            *given == 0 || self.bookings.iter().any(held)
        };
        let fence = fence.filter(|given| !is_taken(given));
        let fence = fence.unwrap_or(self.fence + 1);
        let (fence, granted_at) = held.unwrap_or((fence, now));
        let state = State::Holding {
            fence,
            granted_at,
            until: Some(now + order.max_time.ms()),
            way: Some(Way {
                started: Some((now, isolation)),
                is_adopted: true,
                ..Way::default()
            }),
        };
        self.fence = self.fence.max(fence);
        let known = self.bookings.iter_mut().find(|booking| booking.id == id);
        if let Some(known) = known {
            known.state = state;
        } else {
            let tenant = asked.booking.tenant.clone();
            self.turns.entry(tenant).or_insert(0);
            self.bookings.push(Booking {
                id: id.to_owned(),
                request: asked.booking.clone(),
                order: Some(order),
                sequence: 0,
                since: now,
                state,
            });
        }
        self.happened
            .push(Happened::Adopted(now, id.to_owned(), fence));
        self.pump(now);
        self.met.insert("adopted");
        Told::Noted
    }

    pub(crate) fn stop_failed(&mut self, now: u64, id: &str, attempt: u32) -> Told {
        let (way, ..) = match self.execution(id) {
            Ok(found) => found,
            Err(told) => return told,
        };
        if way.stopping.is_none() || way.failed >= 10 || attempt != way.failed + 1 {
            return Told::Repeated;
        }
        way.failed = attempt;
        self.happened
            .push(Happened::StopFailed(now, id.to_owned(), attempt));
        Told::Noted
    }

    /// "The slot is freed in the record that says the process is gone, never before".
    pub(crate) fn exited(&mut self, now: u64, id: &str, exit: &Exit) -> Told {
        let (way, ..) = match self.execution(id) {
            Ok(found) => found,
            Err(told) => return told,
        };
        let verdict = match way.stopping.map(|(_, cause)| cause) {
            Some(Cause::Cancelled) => Verdict::Cancelled,
            Some(Cause::TimedOut) => Verdict::TimedOut,
            None if matches!(
                exit,
                Exit::Code(0) | Exit::OutOfMemory { code: Some(0), .. }
            ) =>
            {
                Verdict::Completed
            }
            None if *exit == Exit::Lost => Verdict::Lost,
            Some(Cause::NotStarted) | None => Verdict::Failed,
        };
        let mut said = Said {
            outcome: Some(if verdict == Verdict::Completed {
                Outcome::Ok
            } else {
                Outcome::Failed
            }),
            ..Said::default()
        };
        match exit {
            Exit::Code(code) => said.exit_code = Some(*code),
            Exit::Signal(signal) => said.signal = Some(*signal),
            Exit::OutOfMemory { code, signal } => {
                (said.exit_code, said.signal, said.is_out_of_memory) = (*code, *signal, true);
            }
            Exit::Lost => {}
            Exit::NotStarted(reason) => said.reason = Some(reason.clone()),
        }
        self.end_as(now, id, (End::Released, Some(verdict)), said)
    }

    fn stop(&mut self, now: u64, id: &str, cause: Cause) -> Told {
        let (way, until, _) = self.execution(id).unwrap();
        if way.stopping.is_some() {
            return Told::Repeated;
        }
        way.stopping = Some((now, cause));
        *until = None;
        self.happened
            .push(Happened::Stopping(now, id.to_owned(), cause));
        Told::Stopping
    }

    /// History, deadline and order of an execution that holds a slot.
    fn execution(&mut self, id: &str) -> Result<(&mut Way, &mut Option<u64>, &Order), Told> {
        let found = match self.find(id).map(|booking| booking.state.clone()) {
            None => Some(refused("not-found")),
            Some(State::Waiting { .. }) => Some(refused("is-queued")),
            Some(State::Ended { .. }) => Some(Told::AlreadyEnded),
            Some(State::Holding { way: None, .. }) => Some(refused("not-an-execution")),
            Some(State::Holding { .. }) => None,
        };
        if let Some(told) = found {
            return Err(told);
        }
        let booking = self.bookings.iter_mut().find(|b| b.id == id).unwrap();
        let State::Holding {
            way: Some(way),
            until,
            ..
        } = &mut booking.state
        else {
            panic!("it was seen to hold")
        };
        Ok((way, until, booking.order.as_ref().unwrap()))
    }

    pub(crate) fn force(&mut self, now: u64, id: &str) -> Told {
        match self.find(id).map(|booking| booking.state.clone()) {
            None => refused("not-found"),
            Some(State::Ended { .. }) => Told::AlreadyEnded,
            Some(_) => {
                let reason = Some("why".to_owned());
                let said = Said {
                    reason,
                    ..Said::default()
                };
                self.end(now, id, End::Forced, said)
            }
        }
    }

    /// "deadlines ≤ now are processed first, in order (time, kind, id), each event stamped with
    /// its deadline"; an expiry is the first kind, an execution that is overdue the second.
    pub(crate) fn tick(&mut self, now: u64, renewed_until: &BTreeMap<String, u64>) {
        loop {
            let deadline = |booking: &Booking| match booking.state {
                State::Holding { until, way, .. } => {
                    Some((until?, u8::from(way.is_some()), booking.id.clone()))
                }
                State::Waiting { until, .. } => Some((until, 2, booking.id.clone())),
                State::Ended { .. } => None,
            };
            let next = self.bookings.iter().filter_map(deadline).min();
            let Some((at, kind, id)) = next.filter(|(at, ..)| *at <= now) else {
                return;
            };
            let later = renewed_until.get(&id).copied().filter(|until| *until > at);
            match (kind, later) {
                (0, Some(until)) => {
                    let booking = self.bookings.iter_mut().find(|b| b.id == id).unwrap();
                    let State::Holding { until: ends, .. } = &mut booking.state else {
                        panic!()
                    };
                    *ends = Some(until);
                    self.happened.push(Happened::Renewed(at, id, until));
                    self.met.insert("renewed");
                }
                (0, None) => {
                    self.end(at, &id, End::Expired, Said::default());
                }
                (1, _) => {
                    let (way, ..) = self.execution(&id).unwrap();
                    let cause = if way.started.is_some() {
                        Cause::TimedOut
                    } else {
                        Cause::NotStarted
                    };
                    self.stop(at, &id, cause);
                    self.met.insert("overdue");
                }
                _ => {
                    self.end(at, &id, End::WaitOver, Said::default());
                }
            }
        }
    }

    /// "a holder's deadline is max(expires, resumed + ttl): our own absence never expires anybody."
    /// An execution that starts has its time to start again; one that runs has ten seconds in
    /// which its end can be told.
    pub(crate) fn resume(&mut self, now: u64) {
        for booking in &mut self.bookings {
            let again = match (&booking.state, &booking.order) {
                (State::Holding { way: Some(way), .. }, _) if way.started.is_some() => 10_000,
                (_, Some(order)) => order.start_timeout.ms(),
                (_, None) => booking.request.ttl.ms(),
            };
            match &mut booking.state {
                State::Holding {
                    until: Some(until), ..
                } => *until = (*until).max(now + again),
                State::Waiting { until, .. } => *until = (*until).max(now),
                State::Holding { until: None, .. } | State::Ended { .. } => {}
            }
        }
    }

    fn end(&mut self, at: u64, id: &str, end: End, said: Said) -> Told {
        self.end_as(at, id, (end, None), said)
    }

    fn end_as(&mut self, at: u64, id: &str, how: (End, Option<Verdict>), said: Said) -> Told {
        let (end, verdict) = how;
        let place = self
            .bookings
            .iter()
            .position(|booking| booking.id == id)
            .unwrap();
        let mut booking = self.bookings.remove(place);
        let (fence, way) = match booking.state {
            State::Holding { fence, way, .. } => (Some(fence), way),
            _ => (None, None),
        };
        self.happened.push(match verdict {
            Some(verdict) => Happened::Exited(at, id.to_owned(), verdict),
            None => Happened::Ended(at, id.to_owned(), end),
        });
        self.met.insert(end.word());
        // A queued execution never ran; the result of a forced one is not known.
        let verdict = verdict.unwrap_or(match end {
            End::WaitOver => Verdict::WaitOver,
            _ if fence.is_none() => Verdict::Cancelled,
            _ => Verdict::Lost,
        });
        let way = booking.order.is_some().then(|| {
            let way = way.unwrap_or_default();
            self.met.insert(verdict.word());
            self.met.insert(way.stage());
            (Way { failed: 0, ..way }, verdict)
        });
        booking.state = State::Ended {
            end,
            at,
            fence,
            said,
            way,
        };
        self.ended.push(booking);
        self.forget(at);
        self.pump(at);
        Told::Ended
    }

    /// "Ended bookings are remembered 24 h"; with the last booking of a tenant goes its turn.
    fn forget(&mut self, now: u64) {
        let ended_at = |booking: &Booking| match booking.state {
            State::Ended { at, .. } => at,
            _ => panic!("only what has ended is among the ended"),
        };
        let is_old = |booking: &Booking| ended_at(booking) + 86_400_000 <= now;
        if let Some(newest) = self.ended.iter().filter(|b| is_old(b)).map(ended_at).max() {
            self.forgotten_at = self.forgotten_at.max(Some(newest));
            self.met.insert("forgotten");
            self.ended.retain(|booking| !is_old(booking));
            let (live, ended) = (&self.bookings, &self.ended);
            let is_known = |tenant: &Label| {
                live.iter()
                    .chain(ended)
                    .any(|b| b.request.tenant == *tenant)
            };
            self.turns.retain(|tenant, _| is_known(tenant));
        }
    }

    fn join(&mut self, now: u64, asked: &Asked) {
        let request = &asked.booking;
        // "a tenant with nothing waiting that enters gets turn = max(turn, V)"
        let tenant = &request.tenant;
        let turn = self.turns.entry(tenant.clone()).or_insert(0);
        let is_waiting = |b: &Booking| matches!(b.state, State::Waiting { .. });
        if !self
            .bookings
            .iter()
            .any(|b| b.request.tenant == *tenant && is_waiting(b))
        {
            *turn = (*turn).max(self.virtual_time);
        }
        self.sequence += 1;
        let id = request.id.to_string();
        self.happened.push(Happened::Queued(now, id.clone()));
        self.bookings.push(Booking {
            id,
            request: request.clone(),
            order: asked.order.clone(),
            sequence: self.sequence,
            since: now,
            state: State::Waiting {
                until: now + request.wait.ms(),
                passes: 0,
                due: None,
            },
        });
    }

    /// "Pump: while some head fits and is not shielded, grant the least (aged, turn, seq)".
    pub(crate) fn pump(&mut self, at: u64) {
        loop {
            let heads = self.heads();
            let mut candidates: Vec<&Booking> = Vec::new();
            let mut met = BTreeSet::new();
            for head in &heads {
                if due_of(head).is_some() && !self.could_ever_fit(&head.request) {
                    met.insert("due but hopeless");
                }
                if !self.lacking(&head.request).is_empty() {
                    continue;
                }
                match self.shield_of(&heads, head) {
                    None => candidates.push(head),
                    Some(rule) => {
                        met.insert(rule);
                    }
                }
            }
            let next = candidates.into_iter().min_by_key(|head| self.key(at, head));
            let next = next.map(|head| (head.id.clone(), self.passed_by(at, &heads, head)));
            self.met.extend(met);
            let Some((id, passed)) = next else { return };
            self.pass(&passed);
            self.grant(at, &id);
        }
    }

    fn grant(&mut self, at: u64, id: &str) {
        let booking = self
            .bookings
            .iter()
            .find(|booking| booking.id == id)
            .unwrap();
        let (tenant, slots) = (booking.request.tenant.clone(), booking.request.slots);
        let weight = self.weight(&booking.request);
        if at - booking.since >= 60_000 && booking.request.priority > Priority::Urgent {
            self.met.insert("aged");
        }
        // "then V = max(V, turn[tenant]) and turn[tenant] += ⌊slots·2⁶⁴/weight⌋"
        let turn = self.turns.get_mut(&tenant).unwrap();
        self.virtual_time = self.virtual_time.max(*turn);
        *turn += (u128::from(slots) << 64) / u128::from(weight);
        self.fence += 1;
        let fence = self.fence;
        let booking = self
            .bookings
            .iter_mut()
            .find(|booking| booking.id == id)
            .unwrap();
        let length = match &booking.order {
            Some(order) => order.start_timeout,
            None => booking.request.ttl,
        };
        booking.state = State::Holding {
            fence,
            granted_at: at,
            until: Some(at + length.ms()),
            way: booking.order.as_ref().map(|_| Way::default()),
        };
        self.happened
            .push(Happened::Granted(at, id.to_owned(), fence));
    }

    /// "A grant to r passes every head h with a smaller key that lacks a shared limit (everything,
    /// class) used by r and lacks no limit of its own tenant." In the order of keys.
    fn passed_by(&self, at: u64, heads: &[Booking], granted: &Booking) -> Vec<String> {
        let mut passed: Vec<&Booking> = heads
            .iter()
            .filter(|head| self.key(at, head) < self.key(at, granted))
            .filter(|head| {
                let lacking = self.lacking(&head.request);
                let used_by_granted = self.applying(&granted.request);
                let lacks_shared = lacking.iter().any(|(name, limit)| {
                    limit.tenant.is_none()
                        && used_by_granted.iter().any(|(used, _)| used == name)
                        && (limit.class.is_none() || head.request.class == granted.request.class)
                });
                lacks_shared && lacking.iter().all(|(_, limit)| limit.tenant.is_none())
            })
            .collect();
        passed.sort_by_key(|head| self.key(at, head));
        passed.into_iter().map(|head| head.id.clone()).collect()
    }

    /// "After 100 passes h is due."
    fn pass(&mut self, passed: &[String]) {
        for id in passed {
            self.met.insert("passed");
            let booking = self
                .bookings
                .iter_mut()
                .find(|booking| booking.id == *id)
                .unwrap();
            let State::Waiting { passes, due, .. } = &mut booking.state else {
                panic!()
            };
            *passes += 1;
            if *passes == 100 {
                *due = Some(self.dues);
                self.dues += 1;
                self.met.insert("due");
            }
        }
    }

    /// "r is shielded iff an earlier due head d (it became due before r did, or r is not due),
    /// lacking no own limit, shares a limit L with r and free(L) − amount(r) < amount(d)."
    ///
    /// One that would not fit if nothing at all were held shields nobody.
    fn shield_of(&self, heads: &[Booking], candidate: &Booking) -> Option<&'static str> {
        for other in heads {
            let (Some(theirs), mine) = (due_of(other), due_of(candidate)) else {
                continue;
            };
            if mine.is_some_and(|mine| mine <= theirs) {
                continue;
            }
            let lacks_own = |(_, limit): &(String, Limit)| limit.tenant.is_some();
            if self.lacking(&other.request).iter().any(lacks_own)
                || !self.could_ever_fit(&other.request)
            {
                continue;
            }
            for (name, limit) in self.applying(&candidate.request) {
                let shares = self
                    .applying(&other.request)
                    .iter()
                    .any(|(n, _)| *n == name)
                    && (limit.class.is_none() || candidate.request.class == other.request.class)
                    && (limit.tenant.is_none() || candidate.request.tenant == other.request.tenant);
                let starves = Dimension::ALL.into_iter().any(|dimension| {
                    self.max(&limit, dimension).is_some_and(|max| {
                        let free = i128::from(max)
                            - i128::from(self.used(&limit, &candidate.request, dimension));
                        let after = free - i128::from(candidate.request.amount().of(dimension));
                        after < i128::from(other.request.amount().of(dimension))
                    })
                });
                if shares && starves {
                    return Some(match (&limit.class, &limit.tenant) {
                        (None, None) => "shielded by everything",
                        (Some(_), None) => "shielded by class",
                        _ => "shielded by its own tenant",
                    });
                }
            }
        }
        None
    }

    fn could_ever_fit(&self, request: &Request) -> bool {
        self.applying(request).iter().all(|(_, limit)| {
            Dimension::ALL.into_iter().all(|d| {
                self.max(limit, d)
                    .is_none_or(|max| request.amount().of(d) <= max)
            })
        })
    }

    /// "A lane is (class, tenant, priority), first in first out; only lane heads are candidates."
    fn heads(&self) -> Vec<Booking> {
        let mut heads: BTreeMap<(Label, Label, Priority), Booking> = BTreeMap::new();
        for booking in &self.bookings {
            if let State::Waiting { .. } = booking.state {
                let Request {
                    class,
                    tenant,
                    priority,
                    ..
                } = booking.request.clone();
                let head = heads
                    .entry((class, tenant, priority))
                    .or_insert(booking.clone());
                if booking.sequence < head.sequence {
                    *head = booking.clone();
                }
            }
        }
        heads.into_values().collect()
    }

    /// "aged = max(0, priority − waited/60 s)".
    fn key(&self, at: u64, booking: &Booking) -> (u64, u128, u64) {
        let priority = booking.request.priority.level();
        let aged = priority.saturating_sub((at - booking.since) / 60_000);
        (aged, self.turns[&booking.request.tenant], booking.sequence)
    }

    fn weight(&self, request: &Request) -> u64 {
        let applying = self.applying(request);
        let own = applying
            .iter()
            .find(|(_, l)| l.class.is_none() && l.tenant.is_some());
        own.and_then(|(_, limit)| limit.weight).unwrap_or(100)
    }

    /// At most one limit of each kind, in the order everything, tenant, class, class × tenant.
    pub(crate) fn applying(&self, request: &Request) -> Vec<(String, Limit)> {
        let class = || Some(Scope::Named(request.class.clone()));
        let tenant = || Some(Scope::Named(request.tenant.clone()));
        let each = || Some(Scope::Each);
        let orders: [Vec<(Option<Scope>, Option<Scope>)>; 4] = [
            vec![(None, None)],
            vec![(None, tenant()), (None, each())],
            vec![(class(), None), (each(), None)],
            vec![
                (class(), tenant()),
                (class(), each()),
                (each(), tenant()),
                (each(), each()),
            ],
        ];
        let named = |scopes: &(Option<Scope>, Option<Scope>)| {
            let mut limits = self.limits.iter();
            limits.find(|(_, l)| l.class == scopes.0 && l.tenant == scopes.1)
        };
        let first = |order: &Vec<_>| order.iter().find_map(named);
        orders
            .iter()
            .filter_map(first)
            .map(|(name, limit)| (name.clone(), limit.clone()))
            .collect()
    }

    fn max(&self, limit: &Limit, dimension: Dimension) -> Option<u64> {
        let inventory = |pick: fn(&(u64, u64)) -> u64| self.nodes.values().map(pick).sum::<u64>();
        let of = |bound: Bound, whole: u64| match bound {
            Bound::Exactly(value) => value,
            Bound::Percent(percent) => whole * percent / 100,
        };
        match dimension {
            Dimension::Slots => limit.slots,
            Dimension::Cpu => limit.cpu.map(|bound| of(bound, inventory(|node| node.0))),
            Dimension::Memory => limit
                .memory
                .map(|bound| of(bound, inventory(|node| node.1))),
            Dimension::Gpus => limit.gpus,
        }
    }

    /// Those that the counter of a limit counts together with a request.
    fn together<'a>(
        &'a self,
        limit: &'a Limit,
        request: &'a Request,
    ) -> impl Iterator<Item = &'a Booking> {
        self.bookings.iter().filter(|booking| {
            (limit.class.is_none() || booking.request.class == request.class)
                && (limit.tenant.is_none() || booking.request.tenant == request.tenant)
        })
    }

    fn used(&self, limit: &Limit, request: &Request, dimension: Dimension) -> u64 {
        self.together(limit, request)
            .filter(|booking| matches!(booking.state, State::Holding { .. }))
            .map(|booking| booking.request.amount().of(dimension))
            .sum()
    }

    pub(crate) fn bounds_each_tenant(&self) -> bool {
        self.limits.values().any(is_each_tenant)
    }

    /// Whether the shipped limit on each tenant is there, and makes way for another.
    pub(crate) fn makes_way(&self, limit: &Limit) -> bool {
        is_each_tenant(limit) && self.limits.get("tenants") == Some(&Limit::shipped_for_tenants())
    }

    pub(crate) fn make_way(&mut self, limit: &Limit) {
        if self.makes_way(limit) {
            self.limits.remove("tenants");
        }
    }

    /// "changeable, not deletable": where the last limit on each tenant ended, it is back.
    pub(crate) fn bring_back_tenants(&mut self, was_bounded: bool) {
        if was_bounded && !self.bounds_each_tenant() {
            let shipped = Limit::shipped_for_tenants();
            self.limits.insert("tenants".to_owned(), shipped);
            self.met.insert("tenants came back");
        }
    }

    fn waiting_under(&self, limit: &Limit, request: &Request) -> u64 {
        let waits = |booking: &&Booking| matches!(booking.state, State::Waiting { .. });
        u64::try_from(self.together(limit, request).filter(waits).count()).unwrap()
    }

    fn waiting_of_tenant(&self, limit: &Limit, request: &Request) -> u64 {
        let waits = |booking: &&Booking| {
            matches!(booking.state, State::Waiting { .. })
                && booking.request.tenant == request.tenant
        };
        u64::try_from(self.together(limit, request).filter(waits).count()).unwrap()
    }

    /// The limits that a request lacks: used + amount > max in some dimension.
    fn lacking(&self, request: &Request) -> Vec<(String, Limit)> {
        let mut lacking = self.applying(request);
        lacking.retain(|(_, limit)| {
            Dimension::ALL.into_iter().any(|dimension| {
                self.max(limit, dimension).is_some_and(|max| {
                    self.used(limit, request, dimension) + request.amount().of(dimension) > max
                })
            })
        });
        lacking
    }

    fn headline(
        &self,
        request: &Request,
        binds: impl Fn(&Limit, Dimension, u64) -> bool,
    ) -> Option<(String, Dimension, u64, u64, u64)> {
        let applying = self.applying(request);
        let all = applying.iter().flat_map(|(name, limit)| {
            Dimension::ALL
                .into_iter()
                .map(move |dimension| (name, limit, dimension))
        });
        let bounded = all.filter_map(|(n, l, d)| Some((n, l, d, self.max(l, d)?)));
        let mut binding = bounded.filter(|(_, limit, d, max)| binds(limit, *d, *max));
        let (name, limit, dimension, max) = binding.next()?;
        let used = self.used(limit, request, dimension);
        Some((
            name.clone(),
            dimension,
            max,
            used,
            self.waiting_under(limit, request),
        ))
    }

    fn reason_to_wait(&self, request: &Request) -> Told {
        let full = self.headline(request, |limit, dimension, max| {
            self.used(limit, request, dimension) + request.amount().of(dimension) > max
        });
        match full {
            Some(headline) => Told::Refused("over-limit", Some(headline)),
            None => refused("others-first"),
        }
    }

    fn out_of_bounds(&self, asked: &Asked) -> Option<Told> {
        let request = &asked.booking;
        if request.slots == 0 {
            return Some(refused("slots"));
        }
        let applying = self.applying(request);
        let ttl_max = applying.iter().map(|(_, limit)| limit.ttl_max.ms()).min();
        let ttl_max = ttl_max.unwrap_or(86_400_000).min(86_400_000);
        let wait_max = applying.iter().map(|(_, limit)| limit.wait_max.ms()).min();
        if let Some(order) = &asked.order {
            let hour = 3_600_000;
            for (field, time, least, most) in [
                ("startTimeoutMs", order.start_timeout, 1_000, hour),
                ("maxTimeMs", order.max_time, 1_000, 30 * 24 * hour),
                ("graceMs", order.grace, 0, hour),
            ] {
                if time.ms() < least || most < time.ms() {
                    return Some(refused(field));
                }
            }
            let first = order.retry_of.as_ref().map(|id| self.find(id.as_str()));
            match first.map(|first| first.filter(|first| first.order.is_some())) {
                Some(None) => return Some(refused("retry-of-unknown")),
                Some(Some(first)) if !matches!(first.state, State::Ended { .. }) => {
                    return Some(refused("retry-of-live"));
                }
                _ => {}
            }
        } else if request.ttl.ms() < 1_000 || ttl_max < request.ttl.ms() {
            return Some(refused("ttl"));
        }
        if wait_max.unwrap_or(86_400_000) < request.wait.ms() {
            return Some(refused("wait"));
        }
        // "`max = 0` pauses. amount > max: refused `never-fits`, never queued."
        let never = self.headline(request, |_, dimension, max| {
            max > 0 && request.amount().of(dimension) > max
        });
        never.map(|headline| Told::Refused("never-fits", Some(headline)))
    }
}

fn due_of(booking: &Booking) -> Option<u64> {
    match booking.state {
        State::Waiting { due, .. } => due,
        _ => None,
    }
}

fn refused(code: &'static str) -> Told {
    Told::Refused(code, None)
}

fn is_each_tenant(limit: &Limit) -> bool {
    limit.class.is_none() && limit.tenant == Some(Scope::Each)
}
