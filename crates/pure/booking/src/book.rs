//! The state of the plane and the fold over its events.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bursar_units::{Amount, BookingId, Instant, Label, Millis, Total};

use crate::archive::{Archive, Ended, Ending, Terms};
use crate::execution::{
    self, ADOPTION, Adoption, Course, Order, Progress, STOPS_UNTIL_STUCK, Stage, Verdict,
};
use crate::limit::{Applied, Declared, Kind, Limit, LimitUse, Limits};
use crate::names::{NameIndex, Names};
use crate::request::{End, Fence, Outcome, Request, Submission};
use crate::room::{Lane, Room, Waiting, turn_step_floor};
use crate::{ESTIMATE_RESTS_ON_MAX, Event, REMEMBERED, REMEMBERED_MAX};

/// All bookings, limits and counters.
#[derive(Clone, Debug, Default)]
pub struct Bookings {
    pub(crate) limits: Limits,
    pub(crate) everything: Counter,
    pub(crate) classes: Names<Class>,
    pub(crate) tenants: Names<Tenant>,
    pub(crate) pairs: BTreeMap<(NameIndex, NameIndex), Pair>,
    pub(crate) room: Room,
    pub(crate) queued: BTreeMap<BookingId, Queued>,
    pub(crate) granted: BTreeMap<BookingId, Granted>,
    pub(crate) archive: Archive,
    pub(crate) deadlines: BTreeSet<Deadline>,
    /// The end of the newest forgotten booking: an unknown id made before it is too old (L6).
    pub(crate) forgotten_at: Option<Instant>,
    /// The last fence given out.
    pub(crate) fence: Fence,
    /// No fence below this one is given out any more: the first of the present generation.
    pub(crate) fences_from: Fence,
    /// V of S3.
    pub(crate) virtual_time: u128,
    pub(crate) sequence: u64,
    pub(crate) dues: u64,
    /// The time at which the pump ran out of its record and goes on, whenever it does (L1, L9).
    pub(crate) unsettled: Option<Instant>,
}

/// What is held and how many wait, under one value of one kind of limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) used: Total,
    pub(crate) waiting: u64,
}

/// What is known of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    pub(crate) counter: Counter,
    /// How long the last bookings were held, oldest first: what an estimate rests on (S8).
    pub(crate) held_ms: VecDeque<u64>,
}

/// What is known of a tenant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenant {
    pub(crate) counter: Counter,
    /// Where it stands in start-time fair queueing (S3).
    pub(crate) turn: u128,
}

/// A class and tenant of which something is held or waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) counter: Counter,
    pub(crate) held: u64,
    pub(crate) applied: Applied,
}

/// A booking that waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Queued {
    pub(crate) terms: Terms,
    pub(crate) sequence: u64,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

/// A booking that holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted {
    pub(crate) terms: Terms,
    /// The number that proves it.
    pub fence: Fence,
    /// When it was asked for.
    pub queued_at: Instant,
    /// When it was granted.
    pub granted_at: Instant,
    /// When time itself ends it: a plain booking unless the holder shows life before, an
    /// execution in its present stage. One that is being stopped has no such moment.
    pub until: Option<Instant>,
    /// How often the ledger has recorded that the holder showed life.
    pub renewals: u64,
    pub(crate) progress: Option<Box<Progress>>,
}

impl Queued {
    pub(crate) fn standing(&self) -> Standing<'_> {
        Standing::Queued {
            since: self.since,
            until: self.until,
        }
    }
}

impl Granted {
    /// Where an execution stands; `None` of a plain booking.
    pub fn progress(&self) -> Option<&Progress> {
        self.progress.as_deref()
    }

    pub(crate) fn deadline(&self, id: &BookingId) -> Option<Deadline> {
        let kind = match self.progress {
            None => DeadlineKind::Expiry,
            Some(_) => DeadlineKind::Overdue,
        };
        let (at, id) = (self.until?, id.clone());
        Some(Deadline { at, kind, id })
    }
}

/// A moment at which time itself changes something, in the order in which they are processed.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Deadline {
    /// When.
    pub at: Instant,
    /// What then happens; an expiry frees what a wait that ends at the same time may get.
    pub kind: DeadlineKind,
    /// To which booking.
    pub id: BookingId,
}

/// What happens at a deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum DeadlineKind {
    /// A grant ends unless it was renewed.
    Expiry,
    /// An execution has not started, or runs, for as long as it may.
    Overdue,
    /// A wait is over.
    WaitOver,
}

/// What is held of a class, and what of it waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClassUse {
    /// Slots held.
    pub slots_in_use: u64,
    /// Bookings that wait.
    pub waiting: u64,
    /// Since when the one that waits longest does.
    pub oldest: Option<Instant>,
}

/// What is known of a booking.
#[derive(Clone, Debug)]
pub enum Standing<'a> {
    /// It waits.
    Queued {
        /// Since when.
        since: Instant,
        /// Until when it will.
        until: Instant,
    },
    /// It holds.
    Granted(&'a Granted),
    /// It has ended and is remembered.
    Ended(&'a Ended),
}

impl Bookings {
    /// The state at the beginning: the shipped limit and nothing else.
    pub fn new() -> Self {
        let mut bookings = Self::default();
        bookings.limits.set(&Limit::shipped());
        bookings
    }

    /// Folds one event in. It cannot fail: what makes no sense changes nothing.
    pub fn apply(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Reserved(request) => self.reserve(at, request, None),
            Event::Submitted(Submission { booking, order }) => {
                self.reserve(at, booking, Some(order));
            }
            Event::Granted { id, fence, .. } => self.grant_queued(at, id, *fence),
            Event::Renewed { id, expires, .. } => self.renew(id, *expires),
            Event::Ended {
                id,
                end,
                outcome,
                exit_code,
                reason,
                ..
            } => self.end(
                at,
                id,
                How {
                    end: *end,
                    outcome: *outcome,
                    exit_code: *exit_code,
                    reason: reason.clone(),
                    verdict: match end {
                        End::Cancelled => Verdict::Cancelled,
                        // What never held a slot never ran, whoever took it out of the queue.
                        End::Forced if self.queued.contains_key(id) => Verdict::Cancelled,
                        End::WaitOver => Verdict::WaitOver,
                        // Whatever else ends an execution does so without knowing how it fared.
                        End::Released | End::Expired | End::Forced => Verdict::Lost,
                    },
                    signal: None,
                    is_out_of_memory: false,
                },
            ),
            Event::Started { id, isolation } => {
                self.progress(id, |order, progress| {
                    progress.started = Some((at, *isolation));
                    if progress.stage != Stage::Starting {
                        return None;
                    }
                    progress.stage = Stage::Running;
                    execution::until(order, Stage::Running, at)
                });
            }
            Event::Adopted(adoption) => self.adopt(at, adoption),
            Event::Stopping { id, cause, .. } => {
                self.progress(id, |_, progress| {
                    progress.stopping = Some((at, *cause));
                    progress.stage = Stage::Stopping(0);
                    None
                });
            }
            Event::StopFailed { id, attempt } => {
                self.progress(id, |_, progress| {
                    progress.stage = match *attempt {
                        STOPS_UNTIL_STUCK.. => Stage::Stuck,
                        failed => Stage::Stopping(failed),
                    };
                    None
                });
            }
            Event::Exited {
                id,
                verdict,
                exit_code,
                signal,
                is_out_of_memory,
                reason,
            } => self.end(
                at,
                id,
                How {
                    end: End::Released,
                    outcome: verdict.outcome(),
                    exit_code: *exit_code,
                    reason: reason.clone(),
                    verdict: *verdict,
                    signal: *signal,
                    is_out_of_memory: *is_out_of_memory,
                },
            ),
            Event::LimitSet(limit) => {
                self.limits.set(limit);
                self.refresh_applied();
            }
            Event::LimitDropped { name } => {
                self.limits.drop(name);
                self.refresh_applied();
            }
            Event::Unsettled { more, .. } => self.unsettled = more.then_some(at),
        }
    }

    /// What is known of an id.
    pub fn standing(&self, id: &BookingId) -> Option<Standing<'_>> {
        if let Some(granted) = self.granted.get(id) {
            return Some(Standing::Granted(granted));
        }
        if let Some(queued) = self.queued.get(id) {
            return Some(queued.standing());
        }
        self.archive.get(id).map(Standing::Ended)
    }

    /// What was asked for under an id.
    pub fn request(&self, id: &BookingId) -> Option<Request> {
        let terms = match (self.granted.get(id), self.queued.get(id)) {
            (Some(granted), _) => granted.terms.clone(),
            (None, Some(queued)) => queued.terms.clone(),
            (None, None) => self.archive.get(id)?.terms(),
        };
        self.request_of(id, terms)
    }

    /// What is to be run, or was run, under an id; `None` for a plain booking.
    pub fn order(&self, id: &BookingId) -> Option<&Order> {
        match (self.granted.get(id), self.queued.get(id)) {
            (Some(granted), _) => granted.terms.order(),
            (None, Some(queued)) => queued.terms.order(),
            (None, None) => self.archive.get(id)?.order(),
        }
    }

    /// Ids that hold or wait, in order, from the first above `after`.
    pub fn live_ids(&self, after: Option<&BookingId>) -> impl Iterator<Item = &BookingId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = || (after.map_or(Unbounded, Excluded), Unbounded);
        let mut granted = self
            .granted
            .range::<BookingId, _>(from())
            .map(|(id, _)| id)
            .peekable();
        let mut queued = self
            .queued
            .range::<BookingId, _>(from())
            .map(|(id, _)| id)
            .peekable();
        std::iter::from_fn(move || match (granted.peek(), queued.peek()) {
            (Some(holds), Some(waits)) if waits < holds => queued.next(),
            (Some(_), _) => granted.next(),
            (None, _) => queued.next(),
        })
    }

    /// Remembered ends, newest first.
    pub fn ended(&self) -> impl Iterator<Item = &Ended> {
        self.archive.iter().rev()
    }

    /// How many hold, wait and are remembered.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.granted.len(), self.queued.len(), self.archive.len())
    }

    /// The class of an ended booking, as text.
    pub fn ended_labels(&self, ended: &Ended) -> Option<(&Label, &Label)> {
        Some((
            self.classes.label(ended.class)?,
            self.tenants.label(ended.tenant)?,
        ))
    }

    /// The limits, by name.
    pub fn limits(&self) -> impl Iterator<Item = &Declared> {
        self.limits.iter()
    }

    /// One limit.
    pub fn limit(&self, name: &str) -> Option<&Declared> {
        self.limits.get(name)
    }

    /// The next moment at which time itself changes something.
    pub fn next_deadline(&self) -> Option<&Deadline> {
        self.deadlines.first()
    }

    /// Deadlines that have passed at `now`, in order.
    pub fn due(&self, now: Instant) -> impl Iterator<Item = &Deadline> {
        self.deadlines
            .iter()
            .take_while(move |deadline| deadline.at <= now)
    }

    /// Whether grants are still due before any other command (L9).
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.is_some()
    }

    /// The last fence given out.
    pub fn last_fence(&self) -> Fence {
        self.fence
    }

    /// Gives out no fence below `first` any more (S5): a new generation of the ledger begins.
    pub fn begin_fences(&mut self, first: Fence) {
        self.fences_from = self.fences_from.max(first);
    }

    /// What the limit's counter for a class and tenant holds, how many wait under it, and its
    /// bound in every dimension that has one. `None` for a value nobody uses.
    pub fn counter_use(&self, declared: &Declared, class: &Label, tenant: &Label) -> Vec<LimitUse> {
        let (used, waiting) = self
            .counter_by_labels(declared.limit.kind(), class, tenant)
            .map_or((Amount::default(), 0), |counter| {
                (counter.used.shown(), counter.waiting)
            });
        bursar_units::Dimension::ALL
            .into_iter()
            .filter_map(|dimension| {
                Some(LimitUse {
                    name: declared.limit.name.clone(),
                    dimension,
                    size: declared.bounds.of(dimension)?,
                    in_use: used.of(dimension),
                    waiting,
                })
            })
            .collect()
    }

    /// Whether a tenant holds slots of a class, or waits for some.
    pub fn is_used_by(&self, class: &Label, tenant: &Label) -> bool {
        let counter = self.counter_by_labels(Kind::ClassTenant, class, tenant);
        counter.is_some_and(|counter| !counter.used.shown().is_zero() || counter.waiting > 0)
    }

    /// Every value under a limit that has something held or waiting: its class and tenant (as
    /// far as the limit tells them apart), what is held, and how many wait. Sorted by name.
    pub fn counters_of(&self, declared: &Declared) -> Vec<CounterView<'_>> {
        let speaks = |scope: &Option<crate::Scope>, label: &Label| match scope {
            Some(crate::Scope::Named(name)) => name == label,
            _ => true,
        };
        let (class, tenant) = (&declared.limit.class, &declared.limit.tenant);
        let view = |class, tenant, counter: &Counter| CounterView {
            class,
            tenant,
            used: counter.used.shown(),
            waiting: counter.waiting,
        };
        let mut counters: Vec<CounterView<'_>> = match declared.limit.kind() {
            Kind::Everything => vec![view(None, None, &self.everything)],
            Kind::Class => self
                .classes
                .iter()
                .filter(|(label, _)| speaks(class, label))
                .map(|(label, entry)| view(Some(label), None, &entry.counter))
                .collect(),
            Kind::Tenant => self
                .tenants
                .iter()
                .filter(|(label, _)| speaks(tenant, label))
                .map(|(label, entry)| view(None, Some(label), &entry.counter))
                .collect(),
            Kind::ClassTenant => self
                .pairs
                .iter()
                .filter_map(|((c, t), pair)| {
                    Some((self.classes.label(*c)?, self.tenants.label(*t)?, pair))
                })
                .filter(|(c, t, _)| speaks(class, c) && speaks(tenant, t))
                .map(|(c, t, pair)| view(Some(c), Some(t), &pair.counter))
                .collect(),
        };
        counters.retain(|counter| {
            let applies = |c: &Label, t: &Label| {
                self.limits
                    .applied(c, t)
                    .iter()
                    .any(|applied| applied.limit.name == declared.limit.name)
            };
            let absent = Label::new("-").ok();
            let class = counter.class.or(absent.as_ref());
            let tenant = counter.tenant.or(absent.as_ref());
            let in_use = !counter.used.is_zero() || counter.waiting > 0;
            let everything = declared.limit.kind() == Kind::Everything;
            everything || in_use && class.zip(tenant).is_some_and(|(c, t)| applies(c, t))
        });
        counters.sort_by(|a, b| (a.class, a.tenant).cmp(&(b.class, b.tenant)));
        counters
    }

    /// Tenants that hold slots, in all or in one class: most slots first, then by name.
    pub fn holders(&self, class: Option<&Label>) -> Vec<(&Label, u64)> {
        let mut holders: Vec<(&Label, u64)> = match class {
            None => self
                .tenants
                .iter()
                .map(|(l, t)| (l, t.counter.used.shown().slots))
                .collect(),
            Some(class) => self
                .pairs
                .iter()
                .filter(|((c, _), _)| self.classes.label(*c) == Some(class))
                .filter_map(|((_, t), pair)| {
                    Some((self.tenants.label(*t)?, pair.counter.used.shown().slots))
                })
                .collect(),
        };
        holders.retain(|(_, slots)| *slots > 0);
        holders.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        holders
    }

    /// The classes of which something is held or waits. Read off the counters and the heads of the
    /// lanes, so that it costs the same however many hold and wait.
    pub fn by_class(&self) -> BTreeMap<&Label, ClassUse> {
        let live = |class: &Class| !class.counter.used.is_zero() || class.counter.waiting > 0;
        let live = self.classes.iter().filter(|(_, class)| live(class));
        let mut classes: BTreeMap<&Label, ClassUse> = live
            .map(|(label, class)| {
                let class_use = ClassUse {
                    slots_in_use: class.counter.used.shown().slots,
                    waiting: class.counter.waiting,
                    oldest: None,
                };
                (label, class_use)
            })
            .collect();
        for (lane, head) in self.room.heads() {
            let class = self.classes.label(lane.class);
            if let Some(class) = class.and_then(|label| classes.get_mut(label)) {
                class.oldest = class.oldest.into_iter().chain([head.since]).min();
            }
        }
        classes
    }

    /// A copy of the small problem: limits, counters and the waiting room, and of the bookings
    /// that hold or have ended only those named. For plans (L3).
    #[must_use]
    pub fn sketch(&self, ids: &[BookingId]) -> Self {
        let mut sketch = Self {
            limits: self.limits.clone(),
            everything: self.everything.clone(),
            classes: self.classes.clone(),
            tenants: self.tenants.clone(),
            pairs: self.pairs.clone(),
            room: self.room.clone(),
            queued: self.queued.clone(),
            granted: BTreeMap::new(),
            archive: Archive::default(),
            deadlines: BTreeSet::new(),
            forgotten_at: self.forgotten_at,
            fence: self.fence,
            fences_from: self.fences_from,
            virtual_time: self.virtual_time,
            sequence: self.sequence,
            dues: self.dues,
            unsettled: self.unsettled,
        };
        for id in ids {
            if let Some((id, granted)) = self.granted.get_key_value(id) {
                sketch.granted.insert(id.clone(), granted.clone());
            } else if let Some(ended) = self.archive.get(id) {
                sketch.archive.push(ended.clone());
            }
        }
        sketch
    }

    fn reserve(&mut self, at: Instant, request: &Request, order: Option<&Order>) {
        let id = &request.id;
        if self.standing(id).is_some() {
            return;
        }
        let terms = self.take_terms(request, order);
        let lane = terms.lane();
        // The pair comes first, so that its limits are looked up once.
        self.pair_mut(&terms);
        self.sequence += 1;
        self.enter(terms.tenant);
        let waiting = Waiting {
            sequence: self.sequence,
            id: id.clone(),
            amount: terms.amount,
            since: at,
            passes: 0,
            due: None,
        };
        if let Some(fence) = request.fence {
            self.admit(at, lane, &waiting);
            self.hold(at, id, terms, fence, at);
        } else {
            self.count_waiting(&terms, 1);
            self.room.join(lane, waiting);
            let until = at.after(request.wait);
            self.deadlines.insert(wait_deadline(id, until));
            let queued = Queued {
                terms,
                sequence: self.sequence,
                since: at,
                until,
            };
            self.queued.insert(id.clone(), queued);
        }
    }

    fn grant_queued(&mut self, at: Instant, id: &BookingId, fence: Fence) {
        let Some((id, queued)) = self.queued.remove_entry(id) else {
            return;
        };
        let lane = queued.terms.lane();
        self.deadlines.remove(&wait_deadline(&id, queued.until));
        if let Some(waiting) = self.room.leave(lane, queued.sequence) {
            self.admit(at, lane, &waiting);
        }
        self.count_waiting(&queued.terms, -1);
        self.hold(at, &id, queued.terms, fence, queued.since);
    }

    /// One that runs holds at once, whatever the limits say and whoever waits: it takes no turn and
    /// passes nobody, for it was granted in records that were lost. One that was about to start
    /// holds already. Every adoption that is decided has a fence.
    fn adopt(&mut self, at: Instant, adoption: &Adoption) {
        let request = &adoption.booking;
        let Some(fence) = request.fence else {
            return;
        };
        let id = &request.id;
        if let Some(queued) = self.queued.remove(id) {
            self.deadlines.remove(&wait_deadline(id, queued.until));
            self.room.leave(queued.terms.lane(), queued.sequence);
            self.count_waiting(&queued.terms, -1);
            self.hold(at, id, queued.terms, fence, queued.since);
        } else if self.standing(id).is_none() {
            let terms = self.take_terms(request, adoption.order.as_ref());
            self.hold(at, id, terms, fence, at);
        } else if self.wanted(id) != Some(execution::Wanted::Start) {
            return;
        }
        self.progress(id, |order, progress| {
            progress.stage = Stage::Running;
            progress.started = Some((at, adoption.isolation));
            progress.is_adopted = true;
            execution::until(order, Stage::Running, at)
        });
    }

    fn hold(&mut self, at: Instant, id: &BookingId, terms: Terms, fence: Fence, since: Instant) {
        self.charge(&terms);
        self.fence = self.fence.max(fence);
        let progress = terms.order().map(|_| Box::new(Progress::BEGINNING));
        let granted = Granted {
            until: Some(at.after(terms.first_length())),
            terms,
            fence,
            queued_at: since,
            granted_at: at,
            renewals: 0,
            progress,
        };
        self.deadlines.extend(granted.deadline(id));
        self.granted.insert(id.clone(), granted);
    }

    /// Moves an execution on, and its deadline with it.
    fn progress(
        &mut self,
        id: &BookingId,
        change: impl FnOnce(&Order, &mut Progress) -> Option<Instant>,
    ) {
        let Some(granted) = self.granted.get_mut(id) else {
            return;
        };
        let before = granted.deadline(id);
        let Granted {
            terms,
            until,
            progress,
            ..
        } = granted;
        if let Some((order, progress)) = terms.order().zip(progress.as_deref_mut()) {
            *until = change(order, progress);
        }
        if let Some(before) = before {
            self.deadlines.remove(&before);
        }
        self.deadlines.extend(granted.deadline(id));
    }

    fn renew(&mut self, id: &BookingId, expires: Instant) {
        let Some(granted) = self.granted.get_mut(id) else {
            return;
        };
        if let Some(before) = granted.deadline(id) {
            self.deadlines.remove(&before);
        }
        granted.until = granted.until.max(Some(expires));
        granted.renewals += 1;
        self.deadlines.extend(granted.deadline(id));
    }

    fn end(&mut self, at: Instant, id: &BookingId, how: How) {
        let mut progress = None;
        let (id, terms, queued_at, granted) =
            if let Some((id, granted)) = self.granted.remove_entry(id) {
                if let Some(deadline) = granted.deadline(&id) {
                    self.deadlines.remove(&deadline);
                }
                self.discharge(&granted.terms);
                self.note_held(granted.terms.class, at.since(granted.granted_at));
                progress = granted.progress;
                let held = Some((granted.granted_at, granted.fence));
                (id, granted.terms, granted.queued_at, held)
            } else if let Some((id, queued)) = self.queued.remove_entry(id) {
                self.deadlines.remove(&wait_deadline(&id, queued.until));
                self.count_waiting(&queued.terms, -1);
                self.drop_idle_pair(&queued.terms);
                self.room.leave(queued.terms.lane(), queued.sequence);
                (id, queued.terms, queued.since, None)
            } else {
                return;
            };
        let progress = progress.as_deref();
        let course = terms.order().map(|_| {
            Box::new(Course {
                verdict: how.verdict,
                started: progress.and_then(|progress| progress.started),
                stopping: progress.and_then(|progress| progress.stopping),
                signal: how.signal,
                is_out_of_memory: how.is_out_of_memory,
                is_adopted: progress.is_some_and(|progress| progress.is_adopted),
            })
        });
        let ending = Ending {
            end: how.end,
            outcome: how.outcome,
            exit_code: how.exit_code,
            reason: how.reason,
            course,
            queued_at,
            granted,
            ended_at: at,
        };
        self.archive.push(Ended::new(id, terms, ending));
        self.forget(at, REMEMBERED_MAX);
    }

    /// Forgets ends that are a day old or more than so many (L6).
    fn forget(&mut self, at: Instant, count_max: usize) {
        while let Some(oldest) = self.archive.front() {
            let is_old = oldest.ended_at().after(REMEMBERED) <= at;
            if !is_old && self.archive.len() <= count_max {
                return;
            }
            if let Some(ended) = self.archive.pop() {
                self.forgotten_at = self.forgotten_at.max(Some(ended.ended_at()));
                self.classes.give(ended.class);
                self.tenants.give(ended.tenant);
            }
        }
    }

    /// The engine was away until now: no deadline may fall into its absence (L5).
    pub fn resume(&mut self, at: Instant) {
        let Self {
            granted,
            queued,
            deadlines,
            unsettled,
            ..
        } = self;
        // What the pump still owes is granted in the new term, not in the absence.
        *unsettled = unsettled.map(|since| since.max(at));
        deadlines.clear();
        for (id, holder) in granted {
            let stage = holder.progress().map(|progress| progress.stage);
            let at_least = match stage {
                None | Some(Stage::Starting) => at.after(holder.terms.first_length()),
                // It ran on without us, and what is late is late; but how it ended comes first.
                Some(_) => at.after(ADOPTION),
            };
            holder.until = holder.until.map(|until| until.max(at_least));
            deadlines.extend(holder.deadline(id));
        }
        for (id, waiting) in queued {
            waiting.until = waiting.until.max(at);
            deadlines.insert(wait_deadline(id, waiting.until));
        }
    }

    /// A tenant with nothing waiting that enters starts at the present, not in its past (S3).
    fn enter(&mut self, tenant: NameIndex) {
        let virtual_time = self.virtual_time;
        if let Some(entry) = self.tenants.get_mut(tenant)
            && entry.counter.waiting == 0
        {
            entry.turn = entry.turn.max(virtual_time);
        }
    }

    /// The turn and the passes that a grant costs; the room no longer holds the granted one.
    fn admit(&mut self, at: Instant, lane: Lane, waiting: &Waiting) {
        if !self.room.is_empty() {
            for passed in self.passed_by(at, lane, waiting) {
                if self.room.pass(passed, self.dues) {
                    self.dues += 1;
                }
            }
        }
        let weight = self.applied_of(lane.class, lane.tenant).weight();
        if let Some(tenant) = self.tenants.get_mut(lane.tenant) {
            self.virtual_time = self.virtual_time.max(tenant.turn);
            tenant.turn = tenant
                .turn
                .saturating_add(turn_step_floor(&waiting.amount, weight));
        }
    }

    pub(crate) fn charge(&mut self, terms: &Terms) {
        self.pair_mut(terms).held += 1;
        self.each_counter(terms, |counter| counter.used.add(&terms.amount));
    }

    fn discharge(&mut self, terms: &Terms) {
        self.each_counter(terms, |counter| counter.used.take(&terms.amount));
        let pair = self.pair_mut(terms);
        pair.held = pair.held.saturating_sub(1);
        self.drop_idle_pair(terms);
    }

    /// One joins or one leaves; the pair stays, since a leaver may be about to hold.
    pub(crate) fn count_waiting(&mut self, terms: &Terms, change: i64) {
        self.pair_mut(terms);
        self.each_counter(terms, |counter| {
            counter.waiting = counter.waiting.saturating_add_signed(change);
        });
    }

    fn each_counter(&mut self, terms: &Terms, mut change: impl FnMut(&mut Counter)) {
        change(&mut self.everything);
        if let Some(tenant) = self.tenants.get_mut(terms.tenant) {
            change(&mut tenant.counter);
        }
        if let Some(class) = self.classes.get_mut(terms.class) {
            change(&mut class.counter);
        }
        if let Some(pair) = self.pairs.get_mut(&(terms.class, terms.tenant)) {
            change(&mut pair.counter);
        }
    }

    fn pair_mut(&mut self, terms: &Terms) -> &mut Pair {
        let key = (terms.class, terms.tenant);
        let Self {
            pairs,
            limits,
            classes,
            tenants,
            ..
        } = self;
        pairs.entry(key).or_insert_with(|| {
            let labels = classes.label(terms.class).zip(tenants.label(terms.tenant));
            let applied = labels
                .map(|(c, t)| limits.applied(c, t))
                .unwrap_or_default();
            Pair {
                applied,
                ..Pair::default()
            }
        })
    }

    fn drop_idle_pair(&mut self, terms: &Terms) {
        let key = (terms.class, terms.tenant);
        if self
            .pairs
            .get(&key)
            .is_some_and(|pair| pair.held == 0 && pair.counter.waiting == 0)
        {
            self.pairs.remove(&key);
        }
    }

    fn note_held(&mut self, class: NameIndex, held: Millis) {
        if let Some(class) = self.classes.get_mut(class) {
            class.held_ms.push_back(held.ms());
            if class.held_ms.len() > ESTIMATE_RESTS_ON_MAX {
                class.held_ms.pop_front();
            }
        }
    }

    /// Percentages of limits follow the sum of the nodes (S1).
    pub(crate) fn set_inventory(&mut self, total: Total) {
        self.limits.set_inventory(total);
        self.refresh_applied();
    }

    fn refresh_applied(&mut self) {
        let Self {
            pairs,
            limits,
            classes,
            tenants,
            ..
        } = self;
        for ((class, tenant), pair) in pairs {
            let labels = classes.label(*class).zip(tenants.label(*tenant));
            pair.applied = labels
                .map(|(c, t)| limits.applied(c, t))
                .unwrap_or_default();
        }
    }

    pub(crate) fn applied_of(&self, class: NameIndex, tenant: NameIndex) -> Cow<'_, Applied> {
        if let Some(pair) = self.pairs.get(&(class, tenant)) {
            return Cow::Borrowed(&pair.applied);
        }
        let labels = self.classes.label(class).zip(self.tenants.label(tenant));
        Cow::Owned(
            labels
                .map(|(c, t)| self.limits.applied(c, t))
                .unwrap_or_default(),
        )
    }

    pub(crate) fn counter(&self, kind: Kind, class: NameIndex, tenant: NameIndex) -> &Counter {
        match kind {
            Kind::Everything => &self.everything,
            Kind::Tenant => &self.tenants.get(tenant).counter,
            Kind::Class => &self.classes.get(class).counter,
            Kind::ClassTenant => self
                .pairs
                .get(&(class, tenant))
                .map_or(&NOTHING, |pair| &pair.counter),
        }
    }

    pub(crate) fn counter_by_labels(
        &self,
        kind: Kind,
        class: &Label,
        tenant: &Label,
    ) -> Option<&Counter> {
        match kind {
            Kind::Everything => Some(&self.everything),
            Kind::Tenant => Some(&self.tenants.get(self.tenants.find(tenant)?).counter),
            Kind::Class => Some(&self.classes.get(self.classes.find(class)?).counter),
            Kind::ClassTenant => {
                let key = (self.classes.find(class)?, self.tenants.find(tenant)?);
                Some(&self.pairs.get(&key)?.counter)
            }
        }
    }

    /// What was asked for, of the terms that were kept of it.
    pub(crate) fn request_of(&self, id: &BookingId, terms: Terms) -> Option<Request> {
        let extras = terms.extras.map(|extras| *extras).unwrap_or_default();
        Some(Request {
            id: id.clone(),
            class: self.classes.label(terms.class)?.clone(),
            tenant: self.tenants.label(terms.tenant)?.clone(),
            slots: terms.amount.slots,
            cpu_milli: terms.amount.cpu_milli,
            memory_bytes: terms.amount.memory_bytes,
            gpus: terms.amount.gpus,
            priority: terms.priority,
            ttl: terms.ttl,
            wait: terms.wait,
            execution_id: extras.execution_id,
            cpu_limit_milli: extras.cpu_limit_milli,
            memory_limit_bytes: extras.memory_limit_bytes,
            fence: None,
        })
    }
}

/// How a booking ends, and the execution under it if there is one.
struct How {
    end: End,
    outcome: Option<Outcome>,
    exit_code: Option<i32>,
    reason: Option<String>,
    verdict: Verdict,
    signal: Option<i32>,
    is_out_of_memory: bool,
}

/// One counter under a limit, for tables.
#[derive(Clone, Debug)]
pub struct CounterView<'a> {
    /// The class it counts, where the limit tells classes apart.
    pub class: Option<&'a Label>,
    /// The tenant it counts, where the limit tells tenants apart.
    pub tenant: Option<&'a Label>,
    /// What is held.
    pub used: Amount,
    /// How many wait.
    pub waiting: u64,
}

static NOTHING: Counter = Counter {
    used: Total::ZERO,
    waiting: 0,
};

pub(crate) fn wait_deadline(id: &BookingId, at: Instant) -> Deadline {
    Deadline {
        at,
        kind: DeadlineKind::WaitOver,
        id: id.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_units::{BookingId, Instant, Label};

    use crate::{Bookings, End, Event, Fence, Request};

    /// Method: the bound itself is a parameter of the step that keeps it, so that a few ends and a
    /// small bound show what a million and one would.
    #[test]
    fn of_too_many_ends_the_oldest_are_forgotten() {
        let mut bookings = Bookings::new();
        let id = |number: u64| BookingId::new(&number.to_string()).unwrap();
        let label = |text| Label::new(text).unwrap();
        for number in 1..=3_000 {
            let now = Instant::from_ms(number);
            let request = Request {
                fence: Some(Fence(number)),
                ..Request::new(id(number), label("python"), label("a"))
            };
            bookings.apply(now, &Event::Reserved(request));
            let ended = Event::Ended {
                id: id(number),
                end: End::Released,
                outcome: None,
                exit_code: None,
                reason: None,
                t: None,
            };
            bookings.apply(now, &ended);
        }
        assert_eq!(bookings.counts(), (0, 0, 3_000));
        bookings.forget(Instant::from_ms(3_000), 1_100);
        assert_eq!(bookings.counts(), (0, 0, 1_100));
        assert_eq!(bookings.forgotten_at, Some(Instant::from_ms(1_900)));
        let known = |number| bookings.standing(&id(number)).is_some();
        assert!(!known(1) && !known(1_900) && known(1_901) && known(2_048) && known(3_000));
        crate::invariants::check(&bookings).unwrap();
    }
}
