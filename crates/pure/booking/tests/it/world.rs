//! Random worlds: commands for the bookings and for the oracle, and a comparison of the results.

use std::collections::{BTreeMap, BTreeSet};

use bursar_booking::decide::{Change, Events};
use bursar_booking::execution::{Adoption, Exit, Isolation, Order, Progress, Stage};
use bursar_booking::fact::Fact;
use bursar_booking::limit::DEFAULT_NAME;
use bursar_booking::{
    Bookings, Bound, Brief, ClassUse, Command, End, Event, Fence, Limit, Priority, Refusal,
    Request, Standing, Submission, invariants,
};
use bursar_plane::{Inventory, Node, Plane as _};
use bursar_units::{Amount, BookingId, Label, Millis};
use proptest::prelude::*;

use crate::make::{
    Ask as _, Asked, LEVEL, Reply, at, change as change_all, decided, id, name, order, release,
    request, scope, sized, slots_limit, stage_word, tick, unbounded, uuid_id, with_order,
};
use crate::oracle::{Booking, Happened, Oracle, Said, State, Told, Way};

/// One step of a world.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Reserve(Asked, Naming),
    /// Submits an execution, perhaps as a retry of the n-th.
    Submit(Asked, Naming, Option<usize>),
    /// The executor says that the n-th runs.
    Started(usize, Isolation),
    /// The executor found the n-th, or one that nobody knows, running after a restore; its fence is
    /// not known, the last one, or so much above it.
    Adopt(Option<usize>, Asked, Option<u64>, Isolation),
    /// The executor says that the n-th is gone.
    Exited(usize, Exit),
    /// The executor says that a stop of the n-th failed: the next, or one that is wrong by so much.
    StopFailed(usize, u32),
    /// So many stops of the n-th fail, one after another.
    StopsFailed(usize, u32),
    /// Asks again under the n-th id, perhaps with another wait.
    Repeat(usize, bool),
    /// Gives the n-th back, with its fence or one that is wrong by that much.
    Release(usize, u64),
    Cancel(usize),
    Force(usize),
    Renew(usize),
    /// Takes and gives back one slot so often: what passes a large request.
    Churn(u64, Request),
    SetLimit(usize, Limit),
    DropLimit(usize),
    SetNode(u64, u64, u64),
    DropNode(u64),
    Advance(u64),
    Resume,
    /// Writes a snapshot and restores it.
    Restore,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Naming {
    Plain,
    UuidMadeAgo(u64),
}

/// The world under test.
pub(crate) struct World {
    bookings: Bookings,
    /// State from the recorded events alone.
    view: Bookings,
    inventory: Inventory,
    oracle: Oracle,
    renewed_until: BTreeMap<String, u64>,
    /// All requests, each under an id of its own.
    asked: Vec<Asked>,
    /// Each booking that holds or waits, as the events before say it: what was asked for, when it
    /// was asked for and when it was granted.
    lives: BTreeMap<BookingId, (Request, u64, Option<u64>)>,
    now: u64,
}

/// Runs the steps and returns the rules that applied.
pub(crate) fn run(steps: &[Step]) -> BTreeSet<&'static str> {
    let mut world = World::new();
    for step in steps {
        world.step(step);
        world.compare();
    }
    world.compare_with_view();
    world.oracle.met
}

impl World {
    fn new() -> Self {
        let mut oracle = Oracle::default();
        oracle
            .limits
            .insert(DEFAULT_NAME.to_owned(), Limit::shipped());
        Self {
            bookings: Bookings::new(),
            view: Bookings::new(),
            inventory: Inventory::default(),
            oracle,
            renewed_until: BTreeMap::new(),
            asked: Vec::new(),
            lives: BTreeMap::new(),
            now: 1_000_000_000_000,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Reserve(asked, naming) => {
                let number = u64::try_from(self.asked.len()).unwrap();
                let id = match naming {
                    Naming::Plain => id(&format!("b{number:05}")),
                    Naming::UuidMadeAgo(ago) => uuid_id(self.now - ago, number),
                };
                let asked = asked.named(&id);
                self.reserve(&asked);
                self.asked.push(asked);
            }
            Step::Submit(asked, naming, retry_of) => {
                let mut asked = asked.clone();
                if let Some(first) = retry_of.and_then(|nth| self.nth(nth)) {
                    asked.order.as_mut().unwrap().retry_of = Some(first.booking.id);
                }
                self.step(&Step::Reserve(asked, *naming));
            }
            Step::Started(nth, isolation) => {
                let Some(id) = self.nth_id(*nth) else {
                    return;
                };
                let isolation = *isolation;
                let told = self.oracle.started(self.now, id.as_str(), isolation);
                self.expect(&told, &Command::Started { id, isolation });
            }
            Step::Adopt(nth, asked, above, isolation) => {
                let known = nth.and_then(|nth| self.nth_id(nth));
                let is_known = known.is_some();
                let new = || id(&format!("b{:05}", self.asked.len()));
                let found = asked.named(&known.unwrap_or_else(new));
                if !is_known {
                    self.asked.push(found.clone());
                }
                let fence = above.map(|above| self.bookings.last_fence().0 + above);
                let told = self.oracle.adopt(self.now, &found, (fence, *isolation));
                self.expect(&told, &found.adoption(fence, *isolation));
            }
            Step::Exited(nth, exit) => {
                let Some(id) = self.nth_id(*nth) else {
                    return;
                };
                let exit = exit.clone();
                let told = self.oracle.exited(self.now, id.as_str(), &exit);
                self.expect(&told, &Command::Exited { id, exit });
            }
            Step::StopFailed(nth, wrong) => {
                let Some(id) = self.nth_id(*nth) else {
                    return;
                };
                let failed = match self.oracle.find(id.as_str()).map(|booking| &booking.state) {
                    Some(State::Holding { way: Some(way), .. }) => way.failed,
                    _ => 0,
                };
                let attempt = (failed + 1).saturating_sub(*wrong);
                let told = self.oracle.stop_failed(self.now, id.as_str(), attempt);
                self.expect(&told, &Command::StopFailed { id, attempt });
            }
            Step::StopsFailed(nth, count) => {
                for _ in 0..*count {
                    self.step(&Step::StopFailed(*nth, 0));
                }
            }
            Step::Repeat(nth, same) => {
                let Some(mut asked) = self.nth(*nth) else {
                    return;
                };
                if !same {
                    asked.booking.wait = Millis::from_ms(asked.booking.wait.ms() + 1);
                }
                self.reserve(&asked);
            }
            Step::Release(nth, wrong) => {
                let Some(id) = self.nth_id(*nth) else {
                    return;
                };
                self.release(&id, *wrong);
            }
            Step::Cancel(nth) => {
                let Some(id) = self.nth_id(*nth) else {
                    return;
                };
                let told = self.oracle.cancel(self.now, id.as_str());
                self.expect(&told, &Command::Cancel { id });
            }
            Step::Force(nth) => {
                let Some(id) = self.nth_id(*nth) else {
                    return;
                };
                let reason = "why".to_owned();
                let told = self.oracle.force(self.now, id.as_str());
                self.expect(&told, &Command::Force { id, reason });
            }
            Step::Renew(nth) => self.renew(*nth),
            Step::Churn(count, request) => {
                for _ in 0..*count {
                    let id = id(&format!("c{:05}", self.asked.len()));
                    let asked = request.named(&id);
                    self.reserve(&asked);
                    self.asked.push(asked);
                    self.release(&id, 0);
                }
            }
            Step::SetLimit(which, limit) => self.set_limit(*which, limit),
            Step::DropLimit(which) => {
                let was_bounded = self.oracle.bounds_each_tenant();
                if self.oracle.limits.remove(&limit_name(*which)).is_some() {
                    self.oracle.bring_back_tenants(was_bounded);
                    let change = Change::DropLimit {
                        name: name(&limit_name(*which)),
                    };
                    self.change(&change);
                }
            }
            Step::SetNode(number, cpu_milli, memory_bytes) => {
                let node = format!("node-{number}");
                self.oracle
                    .nodes
                    .insert(node.clone(), (*cpu_milli, *memory_bytes));
                let capacity = Amount {
                    cpu_milli: *cpu_milli,
                    memory_bytes: *memory_bytes,
                    ..Amount::default()
                };
                self.inventory.set(Node::new(name(&node), &capacity));
                self.inventory_changed();
            }
            Step::DropNode(number) => {
                let node = format!("node-{number}");
                if self.oracle.nodes.remove(&node).is_some() {
                    self.inventory.remove(&name(&node));
                    self.inventory_changed();
                }
            }
            Step::Advance(ms) => {
                self.now += ms;
                self.tick();
            }
            Step::Resume => {
                // The server was absent for ten minutes and processes no deadline before it resumes.
                self.now += 600_000;
                self.bookings.resume(at(self.now));
                self.view.resume(at(self.now));
                self.oracle.resume(self.now);
                self.oracle.met.insert("resumed");
                self.renewed_until.clear();
                self.tick();
            }
            Step::Restore => {
                self.compare_with_view();
                self.bookings = self.read_back();
            }
        }
    }

    fn read_back(&self) -> Bookings {
        let mut restored = Bookings::blank();
        restored.take_inventory(&self.inventory);
        for fact in self.bookings.facts(LEVEL) {
            restored.restore(fact);
        }
        restored
    }

    fn nth(&self, nth: usize) -> Option<Asked> {
        // The newest are the likeliest to be alive.
        let back = nth % self.asked.len().clamp(1, 12);
        self.asked.iter().rev().nth(back).cloned()
    }

    fn nth_id(&self, nth: usize) -> Option<BookingId> {
        self.nth(nth).map(|asked| asked.booking.id)
    }

    fn reserve(&mut self, asked: &Asked) {
        let told = self.oracle.reserve(self.now, asked);
        self.expect(&told, &asked.clone().command());
    }

    fn release(&mut self, id: &BookingId, wrong: u64) {
        let fence = match self.oracle.find(id.as_str()).map(|booking| &booking.state) {
            Some(
                State::Holding { fence, .. }
                | State::Ended {
                    fence: Some(fence), ..
                },
            ) => *fence,
            _ => 0,
        };
        let fence = fence + wrong;
        let told = self.oracle.release(self.now, id.as_str(), fence);
        self.expect(&told, &release(id.clone(), Fence(fence)));
    }

    /// A renewal changes nothing until the deadline.
    fn renew(&mut self, nth: usize) {
        let Some(Request { id, ttl, .. }) = self.nth(nth).map(|asked| asked.booking) else {
            return;
        };
        let state = self
            .oracle
            .find(id.as_str())
            .map(|booking| booking.state.clone());
        let fence = match state {
            Some(State::Holding { fence, .. }) => fence,
            _ => 1,
        };
        let command = Command::Renew {
            id: id.clone(),
            fence: Fence(fence),
            ttl: None,
        };
        let (answer, events) = decided(&mut self.bookings, self.now, &command);
        assert_eq!(events, []);
        match state {
            None => assert_eq!(answer, Err(Refusal::NotFound)),
            Some(State::Waiting { .. }) => assert_eq!(answer, Err(Refusal::IsQueued)),
            Some(State::Ended { end, .. }) => {
                assert_eq!(answer, Err(Refusal::StaleFence { end: Some(end) }));
            }
            Some(State::Holding { way: Some(_), .. }) => {
                assert_eq!(answer, Err(Refusal::IsExecution));
                // A renewal of a booking without a ttl must not count.
                self.renewed_until
                    .insert(id.to_string(), self.now + 1_000_000);
            }
            Some(State::Holding { .. }) => {
                let until = self.now + ttl.ms();
                let expires = at(until);
                assert_eq!(answer, Ok(Reply::Renewed { expires }));
                self.renewed_until.insert(id.to_string(), until);
            }
        }
    }

    fn set_limit(&mut self, which: usize, limit: &Limit) {
        let text = limit_name(which);
        let limit = &Limit {
            name: name(&text),
            ..limit.clone()
        };
        let scopes = |limit: &Limit| (limit.class.clone(), limit.tenant.clone());
        let taken = self
            .oracle
            .limits
            .iter()
            .find(|(n, l)| **n != text && scopes(l) == scopes(limit))
            .filter(|_| !self.oracle.makes_way(limit));
        let change = Change::SetLimit(limit.clone());
        if let Some((other, _)) = taken {
            let mut events = Events::new(at(self.now), 0);
            let answer = change_all(&mut self.bookings, self.now, &[change], &mut events);
            assert_eq!(events.into_list(), [], "a refusal leaves no trace");
            let names = |a: &str, b: &str| BTreeSet::from([a.to_owned(), b.to_owned()]);
            let Err(Refusal::SameScopes { name, other: seen }) = answer else {
                panic!("two limits of one scope: {answer:?}")
            };
            assert_eq!(names(name.as_str(), seen.as_str()), names(&text, other));
            self.oracle.met.insert("same scopes");
            return;
        }
        let was_bounded = self.oracle.bounds_each_tenant();
        self.oracle.make_way(limit);
        self.oracle.limits.insert(text, limit.clone());
        self.oracle.bring_back_tenants(was_bounded);
        self.change(&change);
    }

    fn inventory_changed(&mut self) {
        self.bookings.take_inventory(&self.inventory);
        self.view.take_inventory(&self.inventory);
        self.changed(&[]);
    }

    fn change(&mut self, change: &Change) {
        self.changed(std::slice::from_ref(change));
    }

    fn changed(&mut self, changes: &[Change]) {
        self.oracle.pump(self.now);
        let mut events = Events::new(at(self.now), 0);
        let answer = change_all(&mut self.bookings, self.now, changes, &mut events);
        assert_eq!(answer, Ok(()));
        self.fold(&events.into_list());
        if !invariants::over_limit(&self.bookings).is_empty() {
            self.oracle.met.insert("lowered below what is held");
        }
    }

    fn tick(&mut self) {
        self.oracle.tick(self.now, &self.renewed_until);
        while self.bookings.is_unsettled() || self.bookings.due(at(self.now)).next().is_some() {
            let mut events = Events::new(at(self.now), 0);
            let renewed = |id: &BookingId| self.renewed_until.get(id.as_str()).copied().map(at);
            tick(&mut self.bookings, self.now, renewed, &mut events);
            self.fold(&events.into_list());
        }
    }

    /// A reply shows the booking as the command left it.
    fn check_shown(&self, command: &Command, answer: &Result<bursar_booking::Reply, Refusal>) {
        use bursar_booking::Reply::{AlreadyEnded, Ended, Repeated, Stopping};
        if let Ok(Repeated(shown) | Stopping(shown) | Ended(shown) | AlreadyEnded(shown)) = answer {
            let id = command.id();
            assert_eq!(
                moments(&shown.standing()),
                moments(&self.bookings.standing(id).unwrap())
            );
            assert_eq!(shown.order(), self.bookings.order(id));
            let tenant = self.bookings.request(id).map(|request| request.tenant);
            assert_eq!(Some(shown.tenant()), tenant.as_ref());
        }
    }

    fn expect(&mut self, told: &Told, command: &Command) {
        let over_before = invariants::over_limit(&self.bookings);
        let mut events = Events::new(at(self.now), 0);
        let answer = self.bookings.decide(at(self.now), command, &mut events);
        let events = events.into_list();
        self.check_shown(command, &answer);
        let answer = answer.map(Reply::from);
        self.oracle.met.insert(word(told));
        assert_eq!(told_by(&answer), *told, "at {}", self.now);
        if answer.is_err() {
            assert!(events.is_empty(), "a refusal leaves no trace");
        }
        let is_adoption = |event: &Event| matches!(event, Event::Adopted { .. });
        let may_exceed = events.iter().any(is_adoption);
        self.fold(&events);
        if may_exceed {
            return;
        }
        for over in invariants::over_limit(&self.bookings) {
            let was = over_before.iter().any(|before| {
                (&before.name, before.dimension) == (&over.name, over.dimension)
                    && over.in_use <= before.in_use
            });
            assert!(was, "no grant leads above a limit: {over:?}");
        }
    }

    /// Applies a record to the view, and compares its events with those of the oracle.
    fn fold(&mut self, events: &[Event]) {
        let mut happened = Vec::new();
        let now = at(self.now);
        for event in events {
            assert_ne!(event.time(), Some(now), "the record says it already");
            let when = event.time().unwrap_or(now);
            self.check_brief(when.ms(), event);
            self.view.apply(when, event);
            happened.extend(happened_in(when.ms(), event));
            // A record ends without grantable bookings.
            match invariants::check(&self.view) {
                Ok(()) | Err(invariants::Broken::Grantable { .. }) => {}
                Err(broken) => panic!("after {event:?}: {broken}"),
            }
        }
        let rest = self
            .oracle
            .happened
            .split_off(happened.len().min(self.oracle.happened.len()));
        assert_eq!(happened, self.oracle.happened);
        self.oracle.happened = rest;
    }

    /// An event describes its booking as the events before it do.
    fn check_brief(&mut self, when: u64, event: &Event) {
        let (id, of, end) = match event {
            Event::Reserved(request)
            | Event::Submitted(Submission {
                booking: request, ..
            })
            | Event::Adopted(Adoption {
                booking: request, ..
            }) => {
                let granted_at = request.fence.map(|_| when);
                let life = (request.clone(), when, granted_at);
                let life = self.lives.entry(request.id.clone()).or_insert(life);
                life.2 = life.2.or(granted_at);
                return;
            }
            Event::Granted { id, of, .. }
            | Event::Started { id, of, .. }
            | Event::Stopping { id, of, .. }
            | Event::StopFailed { id, of, .. } => (id, of, None),
            Event::Ended { id, end, of, .. } => (id, of, Some(*end)),
            Event::Exited { id, of, .. } => (id, of, Some(End::Released)),
            _ => return,
        };
        let (request, asked_at, granted_at) = self.lives[id].clone();
        let expected = Brief {
            class: request.class,
            tenant: request.tenant,
            slots: request.slots,
            cpu_milli: request.cpu_milli,
            memory_bytes: request.memory_bytes,
            gpus: request.gpus,
            waited: Millis::from_ms(granted_at.unwrap_or(when) - asked_at),
            held: granted_at
                .filter(|_| end.is_some())
                .map(|granted_at| Millis::from_ms(when - granted_at)),
            allowed: match end {
                Some(End::Expired) => Some(request.ttl),
                Some(End::WaitOver) => Some(request.wait),
                _ => None,
            },
        };
        assert_eq!(of.as_deref(), Some(&expected), "{event:?}");
        match event {
            Event::Granted { id, .. } => self.lives.get_mut(id).unwrap().2 = Some(when),
            _ if end.is_some() => drop(self.lives.remove(id)),
            _ => {}
        }
    }

    fn compare_classes(&self) {
        let mut classes: BTreeMap<&Label, ClassUse> = BTreeMap::new();
        for booking in &self.oracle.bookings {
            let class = classes.entry(&booking.request.class).or_default();
            if let State::Waiting { .. } = booking.state {
                class.waiting += 1;
                class.oldest = class.oldest.into_iter().chain([at(booking.since)]).min();
            } else {
                class.slots_in_use += booking.request.slots;
            }
        }
        // One that was found running may have asked for no slot at all.
        let is_used = |_: &&Label, class: &mut ClassUse| *class != ClassUse::default();
        classes.retain(is_used);
        let mut found = self.bookings.by_class();
        found.retain(is_used);
        assert_eq!(found, classes);
    }

    fn compare(&mut self) {
        assert_eq!(self.oracle.happened, [], "the oracle saw more happen");
        invariants::check(&self.bookings).unwrap();
        assert!(
            self.read_back().facts(LEVEL).eq(self.bookings.facts(LEVEL)),
            "a state reads back the same"
        );
        self.compare_classes();
        let mut waiting = BTreeMap::new();
        for fact in self.bookings.facts(LEVEL) {
            if let Fact::Queued {
                request,
                until,
                passes,
                due,
                ..
            } = fact
            {
                waiting.insert(
                    request.id,
                    State::Waiting {
                        until: until.ms(),
                        passes,
                        due,
                    },
                );
            }
        }
        for asked in self.asked.iter().rev().take(40) {
            let id = &asked.booking.id;
            let state = self.standing(id, &waiting);
            assert_eq!(
                state,
                self.oracle.find(id.as_str()).map(|b| b.state.clone()),
                "{id}"
            );
        }
        let waits = |booking: &&Booking| matches!(booking.state, State::Waiting { .. });
        let waiting = self.oracle.bookings.iter().filter(waits).count();
        let holding = self.oracle.bookings.len() - waiting;
        assert_eq!(
            self.bookings.counts(),
            (holding, waiting, self.oracle.ended.len())
        );
    }

    fn compare_with_view(&self) {
        let folded = self.view.facts(LEVEL);
        assert!(
            folded.eq(self.bookings.facts(LEVEL)),
            "the fold of the records is the state"
        );
    }

    fn standing(&self, id: &BookingId, waiting: &BTreeMap<BookingId, State>) -> Option<State> {
        Some(match self.bookings.standing(id)? {
            Standing::Queued { .. } => waiting.get(id)?.clone(),
            Standing::Granted(granted) => State::Holding {
                fence: granted.fence.0,
                granted_at: granted.granted_at.ms(),
                until: granted.until.map(bursar_units::Instant::ms),
                way: granted.progress().map(way_of),
            },
            Standing::Ended(ended) => State::Ended {
                end: ended.end(),
                at: ended.ended_at().ms(),
                fence: ended.granted().map(|(_, fence)| fence.0),
                said: Said {
                    outcome: ended.outcome(),
                    exit_code: ended.exit_code(),
                    signal: ended.course().and_then(|course| course.signal),
                    is_out_of_memory: ended.course().is_some_and(|course| course.is_out_of_memory),
                    reason: ended.reason().map(str::to_owned),
                },
                way: ended.course().map(|course| {
                    let way = Way {
                        started: course.started.map(|(when, how)| (when.ms(), how)),
                        is_adopted: course.is_adopted,
                        stopping: course.stopping.map(|(when, cause)| (when.ms(), cause)),
                        failed: 0,
                    };
                    (way, course.verdict)
                }),
            },
        })
    }
}

/// What has happened to an execution, as the bookings have it; its stage must follow from that.
fn way_of(progress: &Progress) -> Way {
    let way = Way {
        started: progress.started.map(|(when, how)| (when.ms(), how)),
        is_adopted: progress.is_adopted,
        stopping: progress.stopping.map(|(when, cause)| (when.ms(), cause)),
        failed: match progress.stage {
            Stage::Starting | Stage::Running => 0,
            Stage::Stopping(failed) => failed,
            Stage::Stuck => 10,
        },
    };
    assert_eq!(way.stage(), stage_word(progress.stage));
    way
}

fn happened_in(when: u64, event: &Event) -> Option<Happened> {
    Some(match event {
        Event::Reserved(booking) | Event::Submitted(Submission { booking, .. }) => {
            let id = booking.id.to_string();
            match booking.fence {
                None => Happened::Queued(when, id),
                Some(fence) => Happened::Granted(when, id, fence.0),
            }
        }
        Event::Granted { id, fence, .. } => Happened::Granted(when, id.to_string(), fence.0),
        Event::Renewed { id, expires, .. } => Happened::Renewed(when, id.to_string(), expires.ms()),
        Event::Ended { id, end, .. } => Happened::Ended(when, id.to_string(), *end),
        Event::Started { id, .. } => Happened::Started(when, id.to_string()),
        Event::Adopted(Adoption { booking, .. }) => {
            Happened::Adopted(when, booking.id.to_string(), booking.fence.unwrap().0)
        }
        Event::Stopping { id, cause, .. } => Happened::Stopping(when, id.to_string(), *cause),
        Event::StopFailed { id, attempt, .. } => {
            Happened::StopFailed(when, id.to_string(), *attempt)
        }
        Event::Exited { id, verdict, .. } => Happened::Exited(when, id.to_string(), *verdict),
        _ => return None,
    })
}

/// What a standing says of its times and its fence, and where an execution is.
fn moments(standing: &bursar_booking::Standing<'_>) -> String {
    use bursar_booking::Standing;
    match standing {
        Standing::Queued { since, until } => format!("{since:?} {until:?}"),
        Standing::Granted(granted) => format!(
            "{:?} {:?} {:?} {:?} {:?}",
            granted.fence,
            granted.queued_at,
            granted.granted_at,
            granted.until,
            granted.progress()
        ),
        Standing::Ended(ended) => format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            ended.end(),
            ended.outcome(),
            ended.exit_code(),
            ended.reason(),
            ended.granted(),
            ended.ended_at(),
            ended.course()
        ),
    }
}

fn told_by(answer: &Result<Reply, Refusal>) -> Told {
    let headline = |limits: &[bursar_booking::LimitUse]| {
        let first = limits.first().expect("a refusal by limits names one");
        Some((
            first.name.to_string(),
            first.dimension,
            first.size,
            first.in_use,
            first.waiting,
        ))
    };
    let refused = |code| Told::Refused(code, None);
    match answer {
        Ok(Reply::Granted(fence)) => Told::Granted(fence.0),
        Ok(Reply::Queued) => Told::Queued,
        Ok(Reply::Repeated) => Told::Repeated,
        Ok(Reply::Ended) => Told::Ended,
        Ok(Reply::AlreadyEnded) => Told::AlreadyEnded,
        Ok(Reply::Stopping) => Told::Stopping,
        Ok(Reply::Recorded) => Told::Noted,
        Ok(Reply::Renewed { .. } | Reply::Noted) => panic!("no booking is answered so"),
        Err(Refusal::OverLimit { limits }) => Told::Refused("over-limit", headline(limits)),
        Err(Refusal::NeverFits { limits }) => Told::Refused("never-fits", headline(limits)),
        Err(Refusal::OthersFirst { .. }) => refused("others-first"),
        Err(Refusal::QueueFull { .. } | Refusal::TenantQueueFull { .. }) => refused("queue-full"),
        Err(Refusal::TimeOutOfBounds { field: "ttlMs", .. }) => refused("ttl"),
        Err(Refusal::TimeOutOfBounds {
            field: "waitMs", ..
        }) => refused("wait"),
        Err(Refusal::TimeOutOfBounds { field, .. }) => refused(field),
        Err(Refusal::Slots) => refused("slots"),
        Err(Refusal::IdReused { .. }) => refused("id-reused"),
        Err(Refusal::IdTooOld { .. }) => refused("id-too-old"),
        Err(Refusal::NotFound) => refused("not-found"),
        Err(Refusal::StaleFence { .. }) => refused("stale-fence"),
        Err(Refusal::IsGranted) => refused("is-granted"),
        Err(Refusal::IsQueued) => refused("is-queued"),
        Err(Refusal::IsExecution) => refused("is-execution"),
        Err(Refusal::NotAnExecution) => refused("not-an-execution"),
        Err(Refusal::RetryOfUnknown) => refused("retry-of-unknown"),
        Err(Refusal::RetryOfLive) => refused("retry-of-live"),
        Err(other) => panic!("no booking is refused so: {other:?}"),
    }
}

fn word(told: &Told) -> &'static str {
    match told {
        Told::Granted(_) => "granted at once",
        Told::Queued => "queued",
        Told::Repeated => "repeated",
        Told::Stopping => "asked to stop",
        Told::Noted => "noted",
        Told::Ended => "ended",
        Told::AlreadyEnded => "already ended",
        Told::Refused(code, _) => code,
    }
}

fn limit_name(which: usize) -> String {
    if which == 0 {
        DEFAULT_NAME.to_owned()
    } else {
        format!("limit-{which}")
    }
}

/// Any steps, between two classes and three tenants, under small limits.
pub(crate) fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    (
        proptest::collection::vec(any_limit_step(), 1..5),
        proptest::collection::vec(any_step(), 1..50),
    )
        .prop_map(|(limits, steps)| limits.into_iter().chain(steps).collect())
}

/// Steps after large requests were passed until they are due, or nearly so.
///
/// Of `size` slots one is held, so that a request for all of them waits while small ones pass it.
pub(crate) fn shield_steps() -> impl Strategy<Value = Vec<Step>> {
    let shared = prop::sample::select(vec!["", "each", "python"]);
    let who = || prop::sample::select(vec!["ann", "bob", "cyd"]);
    let own = prop_oneof![1 => Just(None), 2 => (0..3_u64).prop_map(Some)];
    let hopeless = prop::bool::weighted(0.1);
    let tail = proptest::collection::vec(any_step(), 1..25);
    let makers = (shared, 4..7_u64, own, hopeless);
    (makers, (who(), who(), who(), who()), 98..104_u64, tail).prop_map(
        |((shared, size, own, hopeless), (holder, first, second, passing), count, tail)| {
            let reserve = |tenant, slots, priority, wait| {
                let (ttl, wait) = (Millis::from_hours(1), Millis::from_secs(wait));
                let request = Request {
                    priority,
                    ttl,
                    wait,
                    ..request("python", tenant)
                };
                sized(request, slots)
            };
            let mut steps = vec![Step::SetLimit(1, slots_limit(shared, "", size))];
            if shared == "each" {
                steps = vec![Step::SetLimit(0, slots_limit(shared, "", size))];
            }
            if let Some(more) = own {
                steps.push(Step::SetLimit(2, slots_limit("", "each", size + more)));
            }
            for (tenant, slots, priority, wait) in [
                (holder, 1, Priority::Normal, 0),
                (first, size, Priority::High, 7_200),
                (second, size, Priority::Urgent, 7_200),
            ] {
                let request = reserve(tenant, slots, priority, wait);
                steps.push(Step::Reserve(request.into(), Naming::Plain));
            }
            steps.push(Step::Churn(count, reserve(passing, 1, Priority::Batch, 0)));
            if hopeless {
                let Some(Step::SetLimit(which, limit)) = steps.first().cloned() else {
                    panic!()
                };
                steps.push(Step::SetLimit(
                    which,
                    Limit {
                        slots: Some(size - 1),
                        ..limit
                    },
                ));
            }
            steps.extend(tail);
            steps
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let nth = 0..12_usize;
    prop_oneof![
        24 => (any_request(), any_naming()).prop_map(|(request, naming)| Step::Reserve(request.into(), naming)),
        2 => (nth.clone(), prop::bool::weighted(0.7)).prop_map(|(n, same)| Step::Repeat(n, same)),
        10 => (nth.clone(), prop_oneof![9 => Just(0), 1 => 1..3_u64]).prop_map(|(n, w)| Step::Release(n, w)),
        3 => nth.clone().prop_map(Step::Cancel),
        2 => nth.clone().prop_map(Step::Force),
        3 => nth.prop_map(Step::Renew),
        1 => (1..4_u64, any_request()).prop_map(|(count, request)| Step::Churn(count, request)),
        4 => any_limit_step(),
        1 => (1..8_usize).prop_map(Step::DropLimit),
        2 => (0..3_u64, 0..5_u64, 0..5_u64).prop_map(|(n, cpu, memory)| Step::SetNode(n, cpu * 1_000, memory * 100)),
        1 => (0..3_u64).prop_map(Step::DropNode),
        8 => (0..90_000_u64).prop_map(Step::Advance),
        2 => (0..20_000_000_u64).prop_map(Step::Advance),
        1 => (86_000_000..90_000_000_u64).prop_map(Step::Advance),
        1 => Just(Step::Resume),
        2 => Just(Step::Restore),
    ]
}

/// Any steps, most of them of executions and of what becomes of the newest ones.
pub(crate) fn execution_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![2 => execution_step(), 1 => any_step()];
    (
        proptest::collection::vec(any_limit_step(), 0..3),
        proptest::collection::vec(step, 1..60),
    )
        .prop_map(|(limits, steps)| limits.into_iter().chain(steps).collect())
}

fn execution_step() -> impl Strategy<Value = Step> {
    let nth = 0..4_usize;
    let wrong = prop_oneof![3 => Just(0), 1 => 0..3_u32];
    prop_oneof![
        8 => any_submission(),
        6 => (nth.clone(), any_isolation()).prop_map(|(n, isolation)| Step::Started(n, isolation)),
        4 => (nth.clone(), any_exit()).prop_map(|(n, exit)| Step::Exited(n, exit)),
        2 => (nth.clone(), wrong).prop_map(|(n, wrong)| Step::StopFailed(n, wrong)),
        2 => any_adoption(),
        2 => (nth.clone(), 8..12_u32).prop_map(|(n, count)| Step::StopsFailed(n, count)),
        3 => nth.prop_map(Step::Cancel),
        4 => (0..150_000_u64).prop_map(Step::Advance),
        1 => Just(Step::Resume),
    ]
}

fn any_submission() -> impl Strategy<Value = Step> {
    let retry_of = prop_oneof![6 => Just(None), 1 => (0..12_usize).prop_map(Some)];
    let times = (
        prop_oneof![30 => 1_000..120_000_u64, 10 => 600_000..3_600_000_u64, 1 => 900..1_000_u64],
        prop_oneof![30 => 1_000..120_000_u64, 10 => 600_000..9_000_000_u64, 1 => 2_591_999_990..2_592_000_010_u64],
        prop_oneof![30 => 0..30_000_u64, 1 => 3_599_990..3_600_010_u64],
    );
    (any_request(), any_naming(), times, retry_of).prop_map(
        |(request, naming, (start_timeout, max_time, grace), retry_of)| {
            let order = Order {
                start_timeout: Millis::from_ms(start_timeout),
                max_time: Millis::from_ms(max_time),
                grace: Millis::from_ms(grace),
                ..order()
            };
            Step::Submit(with_order(request, order), naming, retry_of)
        },
    )
}

fn any_adoption() -> impl Strategy<Value = Step> {
    let nth = prop_oneof![1 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    let above = prop_oneof![1 => Just(None), 1 => (0..3_u64).prop_map(Some)];
    (nth, any_submission(), above, any_isolation()).prop_map(
        |(nth, submission, above, isolation)| {
            let Step::Submit(asked, ..) = submission else {
                panic!("a submission submits")
            };
            Step::Adopt(nth, asked, above, isolation)
        },
    )
}

fn any_isolation() -> impl Strategy<Value = Isolation> {
    prop_oneof![Just(Isolation::Cgroup), Just(Isolation::None)]
}

fn any_exit() -> impl Strategy<Value = Exit> {
    let reason = "no such file".to_owned();
    prop_oneof![
        3 => Just(Exit::Code(0)),
        1 => (-2..3_i32).prop_map(Exit::Code),
        1 => (1..16_i32).prop_map(Exit::Signal),
        1 => (proptest::option::of(-1..2_i32), proptest::option::of(1..16_i32))
            .prop_map(|(code, signal)| Exit::OutOfMemory { code, signal }),
        1 => Just(Exit::Lost),
        1 => Just(Exit::NotStarted(reason)),
    ]
}

fn any_naming() -> impl Strategy<Value = Naming> {
    prop_oneof![
        1 => Just(Naming::Plain),
        1 => prop_oneof![Just(0), 0..100_000_000_u64].prop_map(Naming::UuidMadeAgo),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let wait = prop_oneof![
        8 => Just(0),
        6 => 1..120_000_u64,
        8 => 600_000..7_200_000_u64,
        1 => 86_000_000..87_000_000_u64,
    ];
    let ttl =
        prop_oneof![12 => 1_000..60_000_u64, 12 => 600_000..7_200_000_u64, 1 => 900..1_000_u64];
    let slots = prop_oneof![30 => 1..5_u64, 1 => Just(0), 1 => 5..9_u64];
    let more = prop_oneof![
        2 => Just((0, 0, 0)),
        1 => (0..4_u64, 0..4_u64, 0..3_u64),
    ];
    let priority = prop::sample::select(Priority::ALL.to_vec());
    (0..2_usize, 0..3_usize, slots, more, priority, ttl, wait).prop_map(
        |(class, tenant, slots, (cpu, memory, gpus), priority, ttl, wait)| Request {
            slots,
            cpu_milli: cpu * 500,
            memory_bytes: memory * 50,
            gpus,
            priority,
            ttl: Millis::from_ms(ttl),
            wait: Millis::from_ms(wait),
            ..request(["java", "python"][class], ["ann", "bob", "cyd"][tenant])
        },
    )
}

fn any_limit_step() -> impl Strategy<Value = Step> {
    let class = prop::sample::select(vec!["", "each", "java", "python"]);
    let tenant = prop::sample::select(vec!["", "each", "ann", "bob"]);
    let plain =
        (1..8_usize, class, tenant, any_bounds()).prop_map(|(which, class, tenant, limit)| {
            let limit = Limit {
                class: scope(class),
                tenant: scope(tenant),
                ..limit
            };
            let weight = limit
                .weight
                .filter(|_| limit.class.is_none() && limit.tenant.is_some());
            Step::SetLimit(which, Limit { weight, ..limit })
        });
    let shipped = any_bounds().prop_map(|limit| {
        let limit = Limit {
            class: scope("each"),
            tenant: None,
            weight: None,
            ..limit
        };
        Step::SetLimit(0, limit)
    });
    prop_oneof![6 => plain, 1 => shipped]
}

/// A limit of everything with bounds in any dimension.
fn any_bounds() -> impl Strategy<Value = Limit> {
    let share = || {
        prop_oneof![
            6 => Just(None),
            1 => (0..4_u64).prop_map(|value| Some(Bound::Exactly(value * 500))),
            1 => prop::sample::select(vec![33, 50, 100]).prop_map(|percent| Some(Bound::Percent(percent))),
        ]
    };
    let slots = prop_oneof![2 => Just(None), 1 => Just(Some(0)), 2 => (1..4_u64).prop_map(Some), 8 => (4..9_u64).prop_map(Some)];
    let gpus = prop_oneof![6 => Just(None), 1 => (0..4_u64).prop_map(Some)];
    let queue_max = prop_oneof![5 => Just(10_000), 1 => 0..4_u64];
    let of_tenant = prop_oneof![14 => Just(None), 1 => (0..3_u64).prop_map(Some)];
    let wait_max = prop_oneof![12 => Just(86_400_000), 1 => 60_000..4_000_000_u64];
    let ttl_max = prop_oneof![12 => Just(86_400_000), 1 => 60_000..4_000_000_u64];
    let weight = prop_oneof![1 => Just(None), 3 => prop::sample::select(vec![1, 3, 100, 700, 1_000]).prop_map(Some)];
    (
        slots,
        share(),
        share(),
        gpus,
        (queue_max, of_tenant),
        wait_max,
        ttl_max,
        weight,
    )
        .prop_map(
            |(
                slots,
                cpu,
                memory,
                gpus,
                (queue_max, tenant_queue_max),
                wait_max,
                ttl_max,
                weight,
            )| Limit {
                slots,
                cpu,
                memory,
                gpus,
                queue_max,
                tenant_queue_max,
                wait_max: Millis::from_ms(wait_max),
                ttl_max: Millis::from_ms(ttl_max),
                weight,
                ..unbounded("", "")
            },
        )
}
