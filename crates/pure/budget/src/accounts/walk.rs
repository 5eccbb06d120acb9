//! The walk (D2–D5): plans, traces and failures.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bursar_units::{Instant, Label, Millis};

use super::pad::{Moment, Pad, PadTake};
use super::{Accounts, EnvelopeState};
use crate::claim::{ClaimLine, Pool, Promise, Take};
use crate::cover::{
    Bound, Dimension, Failure, Group, Plan, Reason, Relation, Request, Row, RowState, Trace,
};
use crate::place::Place;
use crate::spec::Sharing;

/// An envelope on the walk.
#[derive(Clone, Copy)]
struct Stop {
    envelope: usize,
    relation: Relation,
    is_here: bool,
}

/// Bound that left the smallest room in a row.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Tight {
    Meter(usize, Dimension),
    BorrowLimit,
}

/// A row, before names are looked up.
struct Seen {
    pool: Pool,
    state: RowState,
    room: u64,
    tight: Option<Tight>,
    until: Instant,
}

/// Observations of the walks of a request, for the headline of a failure.
#[derive(Default)]
struct Findings {
    is_borrow_limited: bool,
    first_open: Option<Tight>,
    is_outside: bool,
    is_paused: bool,
    tight: Vec<(usize, Dimension)>,
    /// Envelopes of sponsors that do not lend to the owner, and those that do.
    denied: Vec<usize>,
    lending: Vec<usize>,
}

/// One request on one pad.
struct Walk<'a> {
    accounts: &'a Accounts,
    request: &'a Request,
    moment: Moment,
    pad: Pad,
    /// GPUs that the work borrows already.
    gpus_lent: u64,
    rows: Option<Vec<Row>>,
}

impl Accounts {
    /// The payers of a request, or the reason why its width is not covered.
    pub fn plan(&self, now: Instant, request: &Request) -> Result<Plan, Failure> {
        self.plan_on(Pad::default(), now, request)
    }

    pub(super) fn plan_on(
        &self,
        pad: Pad,
        now: Instant,
        request: &Request,
    ) -> Result<Plan, Failure> {
        self.walk(pad, Moment::live(now), request, None).0
    }

    /// The same walk, asked to go on to its last row.
    pub fn trace(&self, now: Instant, request: &Request) -> Trace {
        self.trace_at(Moment::live(now), request)
    }

    fn trace_at(&self, moment: Moment, request: &Request) -> Trace {
        let (outcome, rows) = self.walk(Pad::default(), moment, request, Some(Vec::new()));
        let rows = rows.unwrap_or_default();
        Trace { rows, outcome }
    }

    /// The payers of as many pods as are covered one after the other; `None` for none. The last pod
    /// may have fewer GPUs. Used to refund an elastic run (B5).
    pub fn plan_pods(&self, now: Instant, request: &Request, pod_gpus: u64) -> Option<Plan> {
        let mut pad = Pad::default();
        let mut groups = Vec::new();
        'groups: for group in &request.groups {
            let mut left = group.gpus;
            let mut covered: Vec<Take> = Vec::new();
            while 0 < left {
                let gpus = left.min(pod_gpus.max(1));
                let mut walk = self.start_walk(pad.clone(), Moment::live(now), request, None);
                let mut findings = Findings::default();
                let place = group.place.clone();
                let (takes, short) = walk.group(0, &Group { place, gpus }, &mut findings);
                if 0 < short {
                    groups.push(covered);
                    break 'groups;
                }
                for take in takes {
                    merge(&mut covered, take);
                }
                pad = walk.pad;
                left -= gpus;
            }
            groups.push(covered);
        }
        (!pad.takes.is_empty()).then(|| self.to_plan(&pad, groups))
    }

    /// Whether cover could ever succeed: on empty meters, now or at the start of any envelope's next
    /// window. Otherwise the trace of the instant that found most, for the refusal (never-fits). A
    /// paused budget counts as open: a pause ends.
    pub fn could_ever_cover(&self, now: Instant, request: &Request) -> Result<(), Box<Trace>> {
        let empty = |now| Moment {
            now,
            is_empty: true,
        };
        // A run that starts later has the same time until its hard end.
        let left = request.hard_end.map(|hard_end| hard_end.since(now));
        let moved = |at: Instant| Request {
            hard_end: left.map(|left| at.after(left)),
            ..request.clone()
        };
        let mut best = (0, now);
        for at in self.next_starts(now, request) {
            let outcome = self.walk(Pad::default(), empty(at), &moved(at), None).0;
            let Err(failure) = outcome else {
                return Ok(());
            };
            if best.0 < failure.found {
                best = (failure.found, at);
            }
        }
        let (_, at) = best;
        Err(Box::new(self.trace_at(empty(at), &moved(at))))
    }

    /// Now, and the next starts of the windows on the walk, in order.
    fn next_starts(&self, now: Instant, request: &Request) -> BTreeSet<Instant> {
        let walk = self.start_walk(Pad::default(), Moment::live(now), request, None);
        let mut starts = BTreeSet::from([now]);
        for group in &request.groups {
            let _ = walk.stops(&group.place, &mut |stop| {
                let envelope = self.envelopes.get(stop.envelope);
                let own = envelope.and_then(|e| self.meters.get(*e.meters.first()?));
                if let Some(schedule) = own.map(|meter| meter.schedule)
                    && let Some(window) = schedule.current(now)
                {
                    let next = window.end.and_then(|end| schedule.current(end));
                    let next = next.and_then(|window| window.start);
                    let starts_of = [window.start, next].into_iter().flatten();
                    starts.extend(starts_of.filter(|start| now < *start));
                }
                ControlFlow::Continue(())
            });
        }
        starts
    }

    pub(super) fn walk(
        &self,
        pad: Pad,
        moment: Moment,
        request: &Request,
        rows: Option<Vec<Row>>,
    ) -> (Result<Plan, Failure>, Option<Vec<Row>>) {
        let mut walk = self.start_walk(pad, moment, request, rows);
        let mut groups = Vec::with_capacity(request.groups.len());
        let mut failed: Option<Findings> = None;
        let (mut wanted, mut short) = (0_u64, 0_u64);
        for (number, group) in request.groups.iter().enumerate() {
            let mut findings = Findings::default();
            let (takes, missing) = walk.group(number, group, &mut findings);
            wanted = wanted.saturating_add(group.gpus);
            short = short.saturating_add(missing);
            groups.push(takes);
            if 0 < missing && failed.is_none() {
                failed = Some(findings);
            }
        }
        let outcome = match failed {
            Some(findings) => Err(self.failure(&findings, wanted, short)),
            None => Ok(self.to_plan(&walk.pad, groups)),
        };
        (outcome, walk.rows)
    }

    fn start_walk<'a>(
        &'a self,
        pad: Pad,
        moment: Moment,
        request: &'a Request,
        rows: Option<Vec<Row>>,
    ) -> Walk<'a> {
        let state = request.work.as_ref().and_then(|work| self.works.get(work));
        let numbers = state.into_iter().flat_map(|state| &state.claims);
        let claims = numbers.filter_map(|number| self.claims.get(number));
        let lent = claims.filter(|claim| claim.pool == Pool::Lent);
        let gpus_lent = lent.fold(0_u64, |sum, claim| sum.saturating_add(claim.gpus));
        Walk {
            accounts: self,
            request,
            moment,
            pad,
            gpus_lent: if moment.is_empty { 0 } else { gpus_lent },
            rows,
        }
    }

    fn to_plan(&self, pad: &Pad, groups: Vec<Vec<Take>>) -> Plan {
        let line = |take: &PadTake| {
            Some(ClaimLine {
                envelope: self.envelopes.get(take.envelope)?.id.clone(),
                pool: take.pool,
                gpus: take.gpus,
                until: take.until,
            })
        };
        let lines: Vec<ClaimLine> = pad.takes.iter().filter_map(line).collect();
        Plan {
            takes: lines.iter().map(ClaimLine::take).collect(),
            lines,
            groups,
            recalled: Vec::new(),
        }
    }

    /// The headline: the borrow limit if it bound any row; else ACL if a sponsor refused; else the
    /// bound of the first open row; else the window; else the pause; else no envelope (D5).
    fn failure(&self, findings: &Findings, wanted: u64, short: u64) -> Failure {
        let lenders = findings.lending.iter();
        let lenders: BTreeSet<&Label> = lenders.filter_map(|e| self.envelope_owner(*e)).collect();
        // A sponsor refuses if none of its envelopes lends to the owner.
        let refuses = |envelope: &&usize| {
            let owner = self.envelope_owner(**envelope);
            owner.is_some_and(|owner| !lenders.contains(owner))
        };
        let denied: Vec<usize> = findings.denied.iter().filter(refuses).copied().collect();
        let reason = if findings.is_borrow_limited {
            Reason::BorrowLimitExceeded
        } else if !denied.is_empty() {
            Reason::AclDenied
        } else if let Some(tight) = findings.first_open {
            self.reason(tight)
        } else if findings.is_outside {
            Reason::OutsideWindow
        } else if findings.is_paused {
            Reason::BudgetPaused
        } else {
            Reason::NoEnvelope
        };
        let tight: BTreeSet<(usize, Dimension)> = findings.tight.iter().copied().collect();
        let name = |(meter, dimension): (usize, Dimension)| {
            Some((self.meters.get(meter)?.id.clone(), dimension))
        };
        let mut exhausted: Vec<_> = tight.into_iter().filter_map(name).collect();
        exhausted.sort();
        let denied = denied.iter();
        let denied = denied.filter_map(|envelope| Some(self.envelopes.get(*envelope)?.id.clone()));
        Failure {
            reason,
            wanted,
            found: wanted.saturating_sub(short),
            short,
            exhausted,
            denied: denied.collect(),
        }
    }

    fn reason(&self, tight: Tight) -> Reason {
        let Tight::Meter(meter, dimension) = tight else {
            return Reason::BorrowLimitExceeded;
        };
        let meter = self.meters.get(meter).map(|meter| &meter.id);
        meter.map_or(Reason::NoEnvelope, |meter| {
            Reason::of_meter(meter, dimension)
        })
    }
}

impl Walk<'_> {
    /// Covers one group on the pad; returns its takes and the missing GPUs.
    fn group(&mut self, number: usize, group: &Group, findings: &mut Findings) -> (Vec<Take>, u64) {
        let mut left = group.gpus;
        let mut takes = Vec::new();
        let is_trace = self.rows.is_some();
        // The stops do not depend on the pad, so they may be read while the pad changes.
        let stops = Walk {
            pad: Pad::default(),
            rows: None,
            ..*self
        };
        let _ = stops.stops(&group.place, &mut |stop| {
            let seen = self.see(stop);
            let gpus = left.min(seen.room);
            findings.note(stop.envelope, &seen, gpus < left);
            if 0 < gpus {
                self.pad.take(
                    self.accounts,
                    self.moment,
                    PadTake {
                        envelope: stop.envelope,
                        pool: seen.pool,
                        gpus,
                        until: seen.until,
                    },
                );
                if let Some(envelope) = self.accounts.envelopes.get(stop.envelope) {
                    takes.push(Take {
                        envelope: envelope.id.clone(),
                        pool: seen.pool,
                        gpus,
                    });
                }
                left -= gpus;
            }
            self.write_row(number, stop, &seen, gpus);
            if left == 0 && !is_trace {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        (takes, left)
    }

    fn write_row(&mut self, group: usize, stop: Stop, seen: &Seen, gpus: u64) {
        let Some(rows) = &mut self.rows else { return };
        let Some(envelope) = self.accounts.envelopes.get(stop.envelope) else {
            return;
        };
        let Some(declared) = &envelope.declared else {
            return;
        };
        let bound = seen.tight.and_then(|tight| match tight {
            Tight::BorrowLimit => Some(Bound::BorrowLimit),
            Tight::Meter(meter, dimension) => Some(Bound::Meter {
                meter: self.accounts.meters.get(meter)?.id.clone(),
                dimension,
            }),
        });
        let is_open = seen.state == RowState::Open;
        rows.push(Row {
            group,
            envelope: envelope.id.clone(),
            owner: declared.owner_name.clone(),
            relation: stop.relation,
            pool: seen.pool,
            here: stop.is_here,
            state: seen.state,
            room: seen.room,
            bound,
            gpus,
            until: is_open.then_some(seen.until),
        });
    }

    /// State and room of a row.
    fn see(&self, stop: Stop) -> Seen {
        let pool = match stop.relation {
            Relation::Owner => Pool::Own,
            Relation::Sponsor => Pool::Lent,
            Relation::Sibling | Relation::Ancestor | Relation::Cousin => Pool::Family,
        };
        let envelope = self.accounts.envelopes.get(stop.envelope);
        let state = envelope.map_or(RowState::OutsideWindow, |e| self.state(e, pool));
        let until = envelope.map_or(self.moment.now, |e| self.until(e));
        let mut seen = Seen {
            pool,
            state,
            room: 0,
            tight: None,
            until,
        };
        if state == RowState::Open {
            self.measure(stop.envelope, &mut seen);
        }
        seen
    }

    /// Permission first, then the window, then the pause.
    fn state(&self, envelope: &EnvelopeState, pool: Pool) -> RowState {
        let Some(declared) = &envelope.declared else {
            return RowState::OutsideWindow;
        };
        let is_empty = self.moment.is_empty;
        let is_open = match envelope.meters.first() {
            Some(own) if is_empty => self.accounts.meters.get(*own).is_some_and(|meter| {
                let window = meter.schedule.current(self.moment.now);
                window.is_some_and(|window| window.is_open(self.moment.now))
            }),
            _ => self.accounts.is_open(envelope, self.moment.now),
        };
        match pool {
            Pool::Family if declared.spec.sharing == Sharing::None => RowState::SharingOff,
            Pool::Lent if !self.request.borrowing.allow => RowState::BorrowOff,
            Pool::Lent if !declared.spec.lends_to(&self.request.owner) => RowState::AclDenied,
            _ if !is_open => RowState::OutsideWindow,
            _ if declared.is_paused && !is_empty => RowState::Paused,
            _ => RowState::Open,
        }
    }

    /// The smallest room of the meters; ties go by the order of the meters (D5). A take joins the
    /// promise of the claim that is there, and takes nothing where that claim overruns (B2).
    fn measure(&self, envelope: usize, seen: &mut Seen) {
        let (accounts, moment) = (self.accounts, self.moment);
        let work = self.request.work.as_ref().filter(|_| !moment.is_empty);
        let claim = work.and_then(|work| accounts.claim_of(work, envelope, seen.pool));
        match claim.map(|(_, claim)| claim.promise) {
            Some(Promise::Until(until)) => seen.until = until,
            Some(Promise::Overruns(_)) => {
                let own = accounts.envelopes.get(envelope);
                let own = own.and_then(|envelope| envelope.meters.first());
                seen.state = RowState::Overruns;
                seen.tight = own.map(|own| Tight::Meter(*own, Dimension::Hours));
                return;
            }
            _ => {}
        }
        let payer = (envelope, seen.pool);
        let promise = Promise::Until(seen.until);
        let (room, bound) = self.pad.fit(accounts, moment, payer, promise);
        seen.room = room;
        seen.tight = bound.map(|(meter, dimension)| Tight::Meter(meter, dimension));
        // An empty promise would cost nothing, end at once and overrun, so that a depleted meter
        // would fund and demote the same claim for ever.
        if seen.until <= moment.now
            && let Some(meter) = self.time_limited(payer)
        {
            (seen.room, seen.tight) = (0, Some(Tight::Meter(meter, Dimension::Hours)));
            return;
        }
        if let Some(gpus_max) = self.request.borrowing.gpus_max
            && seen.pool == Pool::Lent
        {
            let lent = self.gpus_lent.saturating_add(self.pad.gpus_lent());
            let may_borrow = gpus_max.saturating_sub(lent);
            if may_borrow < seen.room {
                (seen.room, seen.tight) = (may_borrow, Some(Tight::BorrowLimit));
            }
        }
    }

    /// The first meter of a payer with a time limit in force.
    fn time_limited(&self, (envelope, pool): (usize, Pool)) -> Option<usize> {
        self.accounts.charged(envelope, pool).find(|meter| {
            let meter = self.accounts.meters.get(*meter);
            meter.is_some_and(|meter| meter.time_limit_in_force().is_some())
        })
    }

    /// Promise end of a new claim: now + D, never beyond the hard end (B2).
    fn until(&self, envelope: &EnvelopeState) -> Instant {
        let duration = self.request.duration;
        let duration: Millis = duration.unwrap_or_else(|| self.accounts.horizon(envelope));
        let until = self.moment.now.after(duration);
        let hard_end = self.request.hard_end.unwrap_or(until);
        until.min(hard_end).max(self.moment.now)
    }

    /// Visits the envelopes in the order of D3, until the visitor breaks.
    fn stops(
        &self,
        place: &Place,
        visit: &mut dyn FnMut(Stop) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let family = &self.accounts.family;
        let owner = family.find(&self.request.owner);
        if let Some(owner) = owner
            && let Some(kin) = family.kin(owner)
        {
            for is_here in [true, false] {
                self.owner_stops(owner, Relation::Owner, place, is_here, visit)?;
                for sibling in &kin.siblings {
                    self.owner_stops(*sibling, Relation::Sibling, place, is_here, visit)?;
                }
                for ancestor in &kin.ancestors {
                    self.owner_stops(*ancestor, Relation::Ancestor, place, is_here, visit)?;
                }
            }
            for is_here in [true, false] {
                for cousin in &kin.cousins {
                    self.owner_stops(*cousin, Relation::Cousin, place, is_here, visit)?;
                }
            }
        }
        self.sponsor_stops(owner, place, visit)
    }

    fn sponsor_stops(
        &self,
        owner: Option<usize>,
        place: &Place,
        visit: &mut dyn FnMut(Stop) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let family = &self.accounts.family;
        let sponsors = &self.request.borrowing.sponsors;
        for (number, name) in sponsors.iter().enumerate() {
            let is_repeated = sponsors.iter().take(number).any(|other| other == name);
            let Some(sponsor) = family.find(name).filter(|_| !is_repeated) else {
                continue;
            };
            let relation = owner.and_then(|owner| family.relation(owner, sponsor));
            if relation == Some(Relation::Owner) {
                continue;
            }
            for is_here in [true, false] {
                let mut unshared = |stop: Stop| {
                    let envelope = self.accounts.envelopes.get(stop.envelope);
                    let declared = envelope.and_then(|envelope| envelope.declared.as_ref());
                    let is_shared = declared.is_some_and(|d| d.spec.sharing == Sharing::Family);
                    if relation.is_some() && is_shared {
                        return ControlFlow::Continue(());
                    }
                    visit(stop)
                };
                self.owner_stops(sponsor, Relation::Sponsor, place, is_here, &mut unshared)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Envelopes of one owner: those that outlast the promise by earliest end, then the others by
    /// latest end; ties by identity.
    fn owner_stops(
        &self,
        owner: usize,
        relation: Relation,
        place: &Place,
        is_here: bool,
        visit: &mut dyn FnMut(Stop) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let shelves = self.accounts.family.shelves(owner, &self.request.flavor);
        let stop = |envelope: usize| Stop {
            envelope,
            relation,
            is_here,
        };
        let mut matching = shelves
            .filter(|(selector, _)| selector.matches(place) == is_here)
            .flat_map(|(_, envelopes)| envelopes.iter().copied());
        let Some(first) = matching.next() else {
            return ControlFlow::Continue(());
        };
        let Some(second) = matching.next() else {
            return visit(stop(first));
        };
        let mut list: Vec<usize> = [first, second].into_iter().chain(matching).collect();
        list.sort_by_cached_key(|envelope| self.preference(*envelope));
        list.into_iter().try_for_each(|e| visit(stop(e)))
    }

    fn preference(&self, envelope: usize) -> impl Ord + use<> {
        let state = self.accounts.envelopes.get(envelope);
        let own = state.and_then(|e| self.accounts.meters.get(*e.meters.first()?));
        let end = own.and_then(|meter| match meter.window {
            Some(window) if !self.moment.is_empty => window.end,
            _ => match meter.schedule.current(self.moment.now) {
                Some(window) => window.end,
                None => meter.schedule.end,
            },
        });
        let until = state.map(|state| self.until(state));
        let outlasts = end.is_none_or(|end| until <= Some(end));
        let end = end.map_or(u64::MAX, Instant::ms);
        let by_end = if outlasts {
            (Some(end), None)
        } else {
            (None, Some(Reverse(end)))
        };
        (!outlasts, by_end, state.map(|state| state.id.clone()))
    }
}

impl Findings {
    fn note(&mut self, envelope: usize, seen: &Seen, is_short: bool) {
        if seen.pool == Pool::Lent && seen.state != RowState::AclDenied {
            self.lending.push(envelope);
        }
        match seen.state {
            RowState::Open | RowState::Overruns if is_short => {
                self.is_borrow_limited |= seen.tight == Some(Tight::BorrowLimit);
                self.first_open = self.first_open.or(seen.tight);
                if let Some(Tight::Meter(meter, dimension)) = seen.tight {
                    self.tight.push((meter, dimension));
                }
            }
            RowState::AclDenied => self.denied.push(envelope),
            RowState::OutsideWindow => self.is_outside = true,
            RowState::Paused => self.is_paused = true,
            RowState::Open | RowState::Overruns | RowState::SharingOff | RowState::BorrowOff => {}
        }
    }
}

fn merge(takes: &mut Vec<Take>, take: Take) {
    let same = |other: &&mut Take| other.envelope == take.envelope && other.pool == take.pool;
    match takes.iter_mut().find(same) {
        Some(other) => other.gpus = other.gpus.saturating_add(take.gpus),
        None => takes.push(take),
    }
}
