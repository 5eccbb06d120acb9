//! A second implementation, written from the text: it notes events in plain lists, and recomputes every
//! value from them. It is slow on purpose and shares no code with the accounts but the declared types and the
//! calendar, which has an oracle of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::accounts::HORIZON_DEFAULT;
use bursar_budget::calendar::{Schedule, Window};
use bursar_budget::cover::{Bound, Dimension, Reason, Relation, Request, Row, RowState};
use bursar_budget::spec::Sharing;
use bursar_budget::{
    Budget, BudgetId, ClaimId, ClaimLine, Envelope, EnvelopeId, Funded, MeterId, Place, Pool,
    Terms, Work,
};
use bursar_units::{Instant, Label, Millis};

use crate::world::{Event, HOUR};

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) work: Work,
    pub(crate) envelope: EnvelopeId,
    pub(crate) pool: Pool,
    pub(crate) gpus: u64,
    pub(crate) until: Instant,
    pub(crate) overruns: bool,
    from: Instant,
    number: u64,
}

/// Fate of a claim at its promise end (B2).
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    Extended(Instant),
    Overruns,
    Demoted,
}

/// The takes of a request, or the reason and the missing GPUs.
pub(crate) type Planned = Result<Vec<ClaimLine>, (Reason, u64)>;

/// A demotion: work, envelope, pool, GPUs.
pub(crate) type Less = (Work, EnvelopeId, Pool, u64);

/// GPU time that was charged: the milliseconds in the window of each meter, all milliseconds, GPUs.
#[derive(Clone)]
struct Rectangle(BTreeMap<MeterId, u64>, u64, u64);

#[derive(Clone, Default)]
pub(crate) struct Naive {
    pub(crate) budgets: BTreeMap<BudgetId, Budget>,
    pub(crate) claims: Vec<Claim>,
    /// Work, GPUs, number, from.
    pub(crate) unfunded: Vec<(Work, u64, u64, Instant)>,
    rectangles: Vec<Rectangle>,
    /// GPU time of runs that nobody paid.
    pub(crate) unpaid: u128,
    windows: BTreeMap<MeterId, Option<Window>>,
    /// The highest limit in force since the epoch of a meter began; `None`: it had none at some time.
    pub(crate) peaks: BTreeMap<MeterId, Option<u64>>,
    /// Lending pools of envelopes that lend or lent.
    pools: BTreeSet<MeterId>,
    number: u64,
}

impl Naive {
    pub(crate) fn apply(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Set(budget) => {
                self.cut_all(at);
                self.budgets.insert(budget.id(), budget.clone());
                let lending = budget.envelopes.iter().filter(|e| e.lending.is_some());
                let pools = lending.map(|e| MeterId::Lending(budget.envelope_id(e)));
                self.pools.extend(pools);
                let mut declared = self.schedules();
                declared.retain(|meter, _| self.is_there(meter));
                for (meter, schedule) in declared {
                    let old = self.windows.get(&meter).copied().flatten();
                    let new = schedule.current(at);
                    let is_new = budget.id() == meter.budget();
                    let keeps = match (old, new) {
                        (None, _) => true,
                        (Some(_), None) => false,
                        (Some(old), Some(new)) => {
                            old.overlaps(&new) && !(old.end == new.end && new.start <= old.start)
                        }
                    };
                    if is_new {
                        let limit = self.limits(&meter).1;
                        let peak = self.peaks.entry(meter.clone()).or_insert(limit);
                        *peak = limit.and_then(|limit| Some(limit.max((*peak)?)));
                    }
                    if is_new && keeps {
                        self.windows.insert(meter, new);
                    }
                }
                // A promise that ended before it had a deadline ends with the edit.
                for number in 0..self.claims.len() {
                    if self.is_timed(&self.claims[number]) {
                        let claim = &mut self.claims[number];
                        claim.until = claim.until.max(at);
                    }
                }
            }
            Event::Dropped(id) => {
                self.cut_all(at);
                self.budgets.remove(id);
            }
            Event::Closed(closed) => {
                assert_eq!(u128::from(closed.accrued), self.accrued(&closed.meter, at));
                self.cut_all(at);
                for rectangle in &mut self.rectangles {
                    rectangle.0.remove(&closed.meter);
                }
                self.windows.insert(closed.meter.clone(), closed.next);
                let limit = self.limits(&closed.meter).1;
                self.peaks.insert(closed.meter.clone(), limit);
            }
            Event::Funded(work, cause, of, lines) => {
                for line in lines {
                    self.fund(at, work, *cause, *of, line);
                }
            }
            Event::Demoted(work, line) => {
                let claim = self.find(work, &line.envelope, line.pool).unwrap();
                self.shrink(at, claim, line.gpus);
                self.number += 1;
                self.unfunded
                    .push((work.clone(), line.gpus, self.number, at));
            }
            Event::Shut(work, gpus) => self.shut(at, work, *gpus),
        }
    }

    fn fund(&mut self, at: Instant, work: &Work, cause: Funded, of: Option<u64>, line: &ClaimLine) {
        let found = self.find(work, &line.envelope, line.pool);
        match cause {
            Funded::Extension => self.claims[found.unwrap()].until = line.until,
            Funded::Overrun => self.claims[found.unwrap()].overruns = true,
            Funded::Take | Funded::Refund => {
                if let Some(of) = of {
                    let place = self.unfunded.iter().position(|c| c.2 == of).unwrap();
                    self.shrink_unfunded(at, place, line.gpus);
                }
                if let Some(claim) = found {
                    self.cut(at, claim);
                    self.claims[claim].gpus += line.gpus;
                    return;
                }
                self.number += 1;
                self.claims.push(Claim {
                    work: work.clone(),
                    envelope: line.envelope.clone(),
                    pool: line.pool,
                    gpus: line.gpus,
                    until: line.until,
                    overruns: false,
                    from: at,
                    number: self.number,
                });
            }
        }
    }

    fn shut(&mut self, at: Instant, work: &Work, mut gpus: u64) {
        while let Some(place) = self.unfunded.iter().rposition(|claim| claim.0 == *work)
            && 0 < gpus
        {
            let less = gpus.min(self.unfunded[place].1);
            self.shrink_unfunded(at, place, less);
            gpus -= less;
        }
        while let Some(place) = self.claims.iter().rposition(|claim| claim.work == *work)
            && 0 < gpus
        {
            let less = gpus.min(self.claims[place].gpus);
            self.shrink(at, place, less);
            gpus -= less;
        }
    }

    pub(crate) fn find(&self, work: &Work, envelope: &EnvelopeId, pool: Pool) -> Option<usize> {
        let is_it = |c: &Claim| c.work == *work && c.envelope == *envelope && c.pool == pool;
        self.claims.iter().position(is_it)
    }

    fn shrink(&mut self, at: Instant, claim: usize, gpus: u64) {
        self.cut(at, claim);
        self.claims[claim].gpus -= gpus;
        self.claims.retain(|claim| 0 < claim.gpus);
    }

    fn shrink_unfunded(&mut self, at: Instant, place: usize, gpus: u64) {
        let claim = &mut self.unfunded[place];
        self.unpaid += u128::from(claim.1) * u128::from(at.since(claim.3).ms());
        claim.3 = at;
        claim.1 -= gpus;
        self.unfunded.retain(|claim| 0 < claim.1);
    }

    fn cut_all(&mut self, at: Instant) {
        for claim in 0..self.claims.len() {
            self.cut(at, claim);
        }
    }

    /// Ends the rectangle of a claim and begins the next.
    fn cut(&mut self, at: Instant, claim: usize) {
        let state = &self.claims[claim];
        let meters = self.charged(&state.envelope, state.pool).into_iter();
        let in_window = meters.map(|meter| (meter.clone(), self.length(&meter, state.from, at)));
        let length = at.since(state.from).ms();
        let rectangle = Rectangle(in_window.collect(), length, state.gpus);
        self.rectangles.push(rectangle);
        self.claims[claim].from = at;
    }

    /// B1: a take from e is charged to e, every cap naming e, and its pool if Lent.
    pub(crate) fn charged(&self, envelope: &EnvelopeId, pool: Pool) -> BTreeSet<MeterId> {
        let mut meters = BTreeSet::from([MeterId::Envelope(envelope.clone())]);
        for budget in self.budgets.values() {
            for cap in &budget.aggregate_caps {
                if cap.envelopes.contains(envelope) {
                    meters.insert(MeterId::Cap(budget.cap_id(cap)));
                }
            }
        }
        if pool == Pool::Lent {
            meters.insert(MeterId::Lending(envelope.clone()));
        }
        meters
    }

    fn schedules(&self) -> BTreeMap<MeterId, Schedule> {
        let mut list = BTreeMap::new();
        for budget in self.budgets.values() {
            for e in &budget.envelopes {
                let schedule = Schedule {
                    start: e.start,
                    end: e.end,
                    renew: e.renew,
                };
                let id = budget.envelope_id(e);
                list.insert(MeterId::Lending(id.clone()), schedule);
                list.insert(MeterId::Envelope(id), schedule);
            }
            for cap in &budget.aggregate_caps {
                let schedule = Schedule {
                    start: cap.start,
                    end: cap.end,
                    renew: cap.renew,
                };
                list.insert(MeterId::Cap(budget.cap_id(cap)), schedule);
            }
        }
        list
    }

    /// GPU limit and GPU-time limit.
    pub(crate) fn limits(&self, meter: &MeterId) -> (Option<u64>, Option<u64>) {
        let Some(budget) = self.budgets.get(&meter.budget()) else {
            return (None, None);
        };
        let envelope = |id: &EnvelopeId| {
            budget
                .envelopes
                .iter()
                .find(|e| budget.envelope_id(e) == *id)
        };
        let (gpus, hours) = match meter {
            MeterId::Envelope(id) => {
                envelope(id).map_or((None, None), |e| (Some(e.concurrency), e.gpu_hours_max))
            }
            MeterId::Lending(id) => {
                let lending = envelope(id).and_then(|e| e.lending.as_ref());
                lending.map_or((None, None), |l| (l.concurrency_max, l.gpu_hours_max))
            }
            MeterId::Cap(id) => {
                let cap = budget
                    .aggregate_caps
                    .iter()
                    .find(|c| budget.cap_id(c) == *id);
                cap.map_or((None, None), |c| (c.concurrency_max, c.gpu_hours_max))
            }
        };
        (gpus, hours.map(|hours| hours * HOUR))
    }

    fn on(&self, meter: &MeterId) -> impl Iterator<Item = &Claim> {
        self.claims
            .iter()
            .filter(move |claim| self.charged(&claim.envelope, claim.pool).contains(meter))
    }

    pub(crate) fn gpus(&self, meter: &MeterId) -> u64 {
        self.on(meter).map(|claim| claim.gpus).sum()
    }

    pub(crate) fn accrued(&self, meter: &MeterId, now: Instant) -> u128 {
        let area = |length: u64, gpus: u64| u128::from(gpus) * u128::from(length);
        let past = self.rectangles.iter();
        let past = past.map(|r| area(r.0.get(meter).copied().unwrap_or(0), r.2));
        let live = self
            .on(meter)
            .map(|c| area(self.length(meter, c.from, now), c.gpus));
        past.chain(live).sum()
    }

    /// The milliseconds of an interval that lie in the window of a meter.
    fn length(&self, meter: &MeterId, from: Instant, to: Instant) -> u64 {
        let Some(window) = self.window(meter) else {
            return 0;
        };
        let from = window.start.map_or(from, |start| start.max(from));
        window.end.map_or(to, |end| end.min(to)).since(from).ms()
    }

    /// The time limit of a meter that has a window.
    fn time_limit(&self, meter: &MeterId) -> Option<u64> {
        self.limits(meter)
            .1
            .filter(|_| self.window(meter).is_some())
    }

    pub(crate) fn window(&self, meter: &MeterId) -> Option<Window> {
        self.windows.get(meter).copied().flatten()
    }

    /// accrued(t) + Σ w·max(0, min(E, e) − t).
    pub(crate) fn committed(&self, meter: &MeterId, now: Instant) -> u128 {
        let promised = self.on(meter).filter(|claim| !claim.overruns).map(|claim| {
            let length = self.length(meter, now, claim.until);
            u128::from(claim.gpus) * u128::from(length)
        });
        self.accrued(meter, now) + promised.sum::<u128>()
    }

    fn spec(&self, id: &EnvelopeId) -> Option<(&Budget, &Envelope)> {
        let budget = self.budgets.get(&id.budget())?;
        let envelope = budget
            .envelopes
            .iter()
            .find(|e| e.name.as_str() == id.name())?;
        Some((budget, envelope))
    }

    fn parents(&self, owner: &Label) -> BTreeSet<&Label> {
        let budgets = self
            .budgets
            .values()
            .filter(|budget| budget.owner == *owner);
        budgets.flat_map(|budget| &budget.parents).collect()
    }

    fn siblings(&self, owner: &Label) -> BTreeSet<&Label> {
        let parents = self.parents(owner);
        let owners = self.budgets.values().map(|budget| &budget.owner);
        let is_sibling =
            |other: &&Label| *other != owner && !self.parents(other).is_disjoint(&parents);
        owners.filter(is_sibling).collect()
    }

    /// Tier and distance of an owner seen from another (D3).
    fn relation(&self, of: &Label, other: &Label) -> Option<(u8, u32)> {
        if of == other {
            return Some((0, 0));
        }
        if self.siblings(of).contains(other) {
            return Some((1, 0));
        }
        let mut level = self.parents(of);
        for distance in 1..20 {
            if level.contains(other) {
                return Some((2, distance));
            }
            level = level
                .into_iter()
                .flat_map(|owner| self.parents(owner))
                .collect();
        }
        let parents = self.parents(of);
        let aunts: BTreeSet<&Label> = parents.into_iter().flat_map(|p| self.siblings(p)).collect();
        (!self.parents(other).is_disjoint(&aunts)).then_some((3, 0))
    }

    /// The takes of a request, or its reason and the missing GPUs.
    pub(crate) fn plan(&self, now: Instant, request: &Request, horizon: Millis) -> Planned {
        self.trace(now, request, horizon).1
    }

    /// All rows of the walks (D5) and the takes of a request: its groups one after the other, each with
    /// the room that those before it left (D1).
    pub(crate) fn trace(
        &self,
        now: Instant,
        request: &Request,
        horizon: Millis,
    ) -> (Vec<Row>, Planned) {
        let (mut rows, mut takes) = (Vec::new(), Vec::new());
        let (mut reason, mut short) = (None, 0);
        for (number, group) in request.groups.iter().enumerate() {
            let stops = self.stops(now, request, &group.place, horizon);
            let first = rows.len();
            let left = self.walk(
                now,
                request,
                (number, group.gpus),
                stops,
                &mut takes,
                &mut rows,
            );
            short += left;
            if 0 < left && reason.is_none() {
                reason = Some(headline(&rows[first..]));
            }
        }
        let planned = match reason {
            None => Ok(takes),
            Some(reason) => Err((reason, short)),
        };
        (rows, planned)
    }

    /// The rows of a walk in the order of D3, before they are measured.
    fn stops(&self, now: Instant, request: &Request, place: &Place, horizon: Millis) -> Vec<Row> {
        let mut rows = Vec::new();
        for budget in self.budgets.values() {
            let of_flavor = |e: &&Envelope| e.flavor == request.flavor;
            for e in budget.envelopes.iter().filter(of_flavor) {
                let here = e.selector.matches(place);
                let relation = self.relation(&request.owner, &budget.owner);
                let id = budget.envelope_id(e);
                let duration = request.duration.or(e.admission_horizon).unwrap_or(horizon);
                let mut until = now.after(duration);
                until = request
                    .hard_end
                    .map_or(until, |end| until.min(end).max(now));
                let window = self.window(&MeterId::Envelope(id.clone()));
                let end = window
                    .map_or(e.end, |window| window.end)
                    .map_or(u64::MAX, Instant::ms);
                let preference = if until.ms() <= end {
                    (0, end, Reverse(0))
                } else {
                    (1, 0, Reverse(end))
                };
                let away = u32::from(!here);
                let mut add = |key: (u32, u32, u32), owner: Option<&Label>, relation, pool| {
                    let row = Row {
                        group: 0,
                        envelope: id.clone(),
                        owner: budget.owner.clone(),
                        relation,
                        pool,
                        here,
                        state: RowState::Open,
                        room: 0,
                        bound: None,
                        gpus: 0,
                        until: Some(until),
                    };
                    rows.push(((key, owner.cloned(), preference, id.clone()), row));
                };
                let owner = Some(&budget.owner);
                match relation {
                    Some((0, _)) => add((away, 0, 0), owner, Relation::Owner, Pool::Own),
                    Some((1, _)) => add((away, 1, 0), owner, Relation::Sibling, Pool::Family),
                    Some((2, d)) => add((away, 2, d), owner, Relation::Ancestor, Pool::Family),
                    Some(_) => add((2 + away, 0, 0), owner, Relation::Cousin, Pool::Family),
                    None => {}
                }
                let mut sponsors = request.borrowing.sponsors.iter();
                let sponsor = sponsors.position(|s| *s == budget.owner);
                let is_lender = match relation {
                    None => true,
                    Some((0, _)) => false,
                    Some(_) => e.sharing == Sharing::None,
                };
                if let Some(number) = sponsor.filter(|_| is_lender) {
                    let number = u32::try_from(number).unwrap();
                    add((4, number, away), None, Relation::Sponsor, Pool::Lent);
                }
            }
        }
        rows.sort_by(|one, other| one.0.cmp(&other.0));
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Measures the rows of one group and takes from them; the missing GPUs.
    fn walk(
        &self,
        now: Instant,
        request: &Request,
        (group, mut left): (usize, u64),
        stops: Vec<Row>,
        takes: &mut Vec<ClaimLine>,
        rows: &mut Vec<Row>,
    ) -> u64 {
        for mut row in stops {
            row.group = group;
            let (budget, e) = self.spec(&row.envelope).unwrap();
            let own = MeterId::Envelope(row.envelope.clone());
            let mine = request.work.as_ref();
            let mine = mine.and_then(|work| self.find(work, &row.envelope, row.pool));
            let mine = mine.map(|claim| &self.claims[claim]);
            row.state = match row.pool {
                Pool::Family if e.sharing == Sharing::None => RowState::SharingOff,
                Pool::Lent if !request.borrowing.allow => RowState::BorrowOff,
                Pool::Lent if !e.lends_to(&request.owner) => RowState::AclDenied,
                _ if !self.window(&own).is_some_and(|w| w.is_open(now)) => RowState::OutsideWindow,
                _ if budget.paused => RowState::Paused,
                _ if mine.is_some_and(|claim| claim.overruns) => RowState::Overruns,
                _ => RowState::Open,
            };
            if row.state != RowState::Open {
                row.until = None;
            }
            if row.state == RowState::Overruns {
                row.bound = Some(Bound::Meter {
                    meter: own,
                    dimension: Dimension::Hours,
                });
            }
            if let Some(new) = row.until {
                let until = mine.map_or(new, |claim| claim.until);
                row.until = Some(until);
                (row.room, row.bound) =
                    self.room(now, request, (&row.envelope, row.pool), until, takes);
                row.gpus = row.room.min(left);
                left -= row.gpus;
                let same = |take: &&mut ClaimLine| {
                    (&take.envelope, take.pool) == (&row.envelope, row.pool)
                };
                match takes.iter_mut().find(same) {
                    Some(take) => take.gpus += row.gpus,
                    None if row.gpus == 0 => {}
                    None => takes.push(ClaimLine {
                        envelope: row.envelope.clone(),
                        pool: row.pool,
                        gpus: row.gpus,
                        until,
                    }),
                }
            }
            rows.push(row);
        }
        left
    }

    /// D2: the smallest room of the meters, with what the takes before it left, and its bound.
    fn room(
        &self,
        now: Instant,
        request: &Request,
        (envelope, pool): (&EnvelopeId, Pool),
        until: Instant,
        takes: &[ClaimLine],
    ) -> (u64, Option<Bound>) {
        let mut best = (u64::MAX, None);
        let mut meters: Vec<MeterId> = self.charged(envelope, pool).into_iter().collect();
        // Envelope, caps by name, lending pool.
        meters.sort_by_key(|meter| {
            (
                matches!(meter, MeterId::Lending(_)),
                matches!(meter, MeterId::Cap(_)),
                meter.clone(),
            )
        });
        // An empty promise takes nothing where time is limited.
        let limited = meters.iter().find(|meter| self.time_limit(meter).is_some());
        if let Some(meter) = limited.filter(|_| until <= now).cloned() {
            let dimension = Dimension::Hours;
            return (0, Some(Bound::Meter { meter, dimension }));
        }
        for meter in meters {
            let clip = |until: Instant| self.length(&meter, now, until);
            let on = || {
                takes
                    .iter()
                    .filter(|t| self.charged(&t.envelope, t.pool).contains(&meter))
            };
            let mut bounds = |room: u64, dimension| {
                if room < best.0 {
                    let meter = meter.clone();
                    best = (room, Some(Bound::Meter { meter, dimension }));
                }
            };
            if let Some(limit) = self.limits(&meter).0 {
                let used = self.gpus(&meter) + on().map(|t| t.gpus).sum::<u64>();
                bounds(limit.saturating_sub(used), Dimension::Gpus);
            }
            if let Some(limit) = self.time_limit(&meter) {
                let promised: u128 = on()
                    .map(|t| u128::from(t.gpus) * u128::from(clip(t.until)))
                    .sum();
                let committed = self.committed(&meter, now) + promised;
                let room = match (u128::from(limit).checked_sub(committed), clip(until)) {
                    (None, _) => 0,
                    (Some(_), 0) => u64::MAX,
                    (Some(left), length) => u64::try_from(left / u128::from(length)).unwrap(),
                };
                bounds(room, Dimension::Hours);
            }
        }
        if let Some(max) = request.borrowing.gpus_max.filter(|_| pool == Pool::Lent) {
            let work = request.work.as_ref();
            let mine = self.claims.iter().filter(|c| work == Some(&c.work));
            let claimed = mine.filter(|c| c.pool == Pool::Lent).map(|c| c.gpus);
            let planned = takes
                .iter()
                .filter(|t| t.pool == Pool::Lent)
                .map(|t| t.gpus);
            let lent: u64 = claimed.chain(planned).sum();
            if max.saturating_sub(lent) < best.0 {
                best = (max.saturating_sub(lent), Some(Bound::BorrowLimit));
            }
        }
        best
    }

    /// Claims whose meter depletes: t + ⌊(L − committed)/Σ w overrunning⌋, the earliest of all meters.
    pub(crate) fn depletion(&self, now: Instant) -> Option<Instant> {
        let meters: BTreeSet<MeterId> = self
            .claims
            .iter()
            .flat_map(|c| self.charged(&c.envelope, c.pool))
            .collect();
        let instants = meters.iter().filter_map(|meter| {
            let limit = self.time_limit(meter)?;
            let width: u64 = self.on(meter).filter(|c| c.overruns).map(|c| c.gpus).sum();
            let left = u128::from(limit).saturating_sub(self.committed(meter, now));
            let length = left.checked_div(u128::from(width))?;
            let window = self.window(meter)?;
            let from = window.start.map_or(now, |start| start.max(now));
            let at = from.after(Millis::from_ms(u64::try_from(length).unwrap()));
            let end = window.end;
            end.is_none_or(|end| at < end).then_some(at)
        });
        instants.min()
    }

    /// The earliest promise end that needs a decision.
    pub(crate) fn next_promise_end(&self) -> Option<Instant> {
        let timed = self.claims.iter().filter(|claim| self.is_timed(claim));
        timed.map(|claim| claim.until).min()
    }

    fn is_timed(&self, claim: &Claim) -> bool {
        let meters = self.charged(&claim.envelope, claim.pool);
        let is_metered = meters.iter().any(|m| self.time_limit(m).is_some());
        !claim.overruns && (claim.pool != Pool::Own || is_metered)
    }

    /// B2: whether the envelope still permits the claim, and whether one more horizon fits.
    pub(crate) fn promise_end(&self, now: Instant, id: &ClaimId, terms: &Terms) -> Fate {
        let claim = &self.claims[self.find(&id.work, &id.envelope, id.pool).unwrap()];
        let Some((budget, e)) = self.spec(&id.envelope) else {
            return Fate::Demoted;
        };
        let relation = self.relation(&terms.owner, &budget.owner);
        let permits = match id.pool {
            Pool::Own => budget.owner == terms.owner,
            Pool::Family => {
                e.sharing == Sharing::Family && relation.is_some_and(|(tier, _)| 0 < tier)
            }
            Pool::Lent => e.lends_to(&terms.owner),
        };
        if !permits {
            return Fate::Demoted;
        }
        let mut until = now.after(e.admission_horizon.unwrap_or(HORIZON_DEFAULT));
        until = terms.hard_end.map_or(until, |end| until.min(end));
        // Its own promise is over, so the committed time is that of the others and its accrued time.
        assert!(claim.until <= now);
        let fits = self.charged(&id.envelope, id.pool).iter().all(|meter| {
            let more = u128::from(claim.gpus) * u128::from(self.length(meter, now, until));
            let (gpus, time) = (self.limits(meter).0, self.time_limit(meter));
            gpus.is_none_or(|limit| self.gpus(meter) <= limit)
                && time.is_none_or(|time| self.committed(meter, now) + more <= u128::from(time))
        });
        if fits && now < until {
            Fate::Extended(until)
        } else {
            Fate::Overruns
        }
    }

    /// Claims whose promise ends at an instant, in keep order.
    pub(crate) fn ending(&self, now: Instant) -> Vec<ClaimId> {
        let timed = self.claims.iter().filter(|claim| self.is_timed(claim));
        let mut ending: Vec<&Claim> = timed.filter(|claim| claim.until <= now).collect();
        ending.sort_by_key(|claim| keep_order(claim));
        let id = |claim: &&Claim| ClaimId {
            work: claim.work.clone(),
            envelope: claim.envelope.clone(),
            pool: claim.pool,
        };
        ending.iter().map(id).collect()
    }

    /// All overrunning claims on the meters that have no time left, in keep order (B2).
    pub(crate) fn depleted(&self, now: Instant) -> Vec<Less> {
        let is_depleted = |meter: &MeterId| {
            let width: u64 = self.on(meter).filter(|c| c.overruns).map(|c| c.gpus).sum();
            let is_open = self.window(meter).is_some_and(|window| window.is_open(now));
            let limit = self.limits(meter).1.filter(|_| is_open && 0 < width);
            limit.is_some_and(|limit| {
                u128::from(limit) < self.committed(meter, now) + u128::from(width)
            })
        };
        let overruns = self.claims.iter().filter(|claim| claim.overruns);
        let mut list: Vec<&Claim> = overruns
            .filter(|c| self.charged(&c.envelope, c.pool).iter().any(is_depleted))
            .collect();
        list.sort_by_key(|claim| keep_order(claim));
        let less = |c: &&Claim| (c.work.clone(), c.envelope.clone(), c.pool, c.gpus);
        list.iter().map(less).collect()
    }

    /// B6: the takes with the smallest number of the newest Family claims on the owner's envelopes of
    /// the flavor demoted, and these claims.
    pub(crate) fn plan_recalling(
        &self,
        now: Instant,
        request: &Request,
    ) -> Result<(Vec<ClaimLine>, Vec<Less>), (Reason, u64)> {
        let failure = match self.plan(now, request, HORIZON_DEFAULT) {
            Ok(lines) => return Ok((lines, Vec::new())),
            Err(failure) => failure,
        };
        let mut copy = self.clone();
        let mut recalled = Vec::new();
        loop {
            let may_go = |claim: &&Claim| {
                let spec = copy.spec(&claim.envelope);
                let is_own = spec.is_some_and(|(budget, e)| {
                    budget.owner == request.owner && e.flavor == request.flavor
                });
                claim.pool == Pool::Family && is_own
            };
            let newest = copy
                .claims
                .iter()
                .filter(may_go)
                .max_by_key(|claim| claim.number);
            let Some(claim) = newest.cloned() else {
                return Err(failure);
            };
            let place = copy
                .claims
                .iter()
                .position(|other| other.number == claim.number);
            copy.shrink(now, place.unwrap(), claim.gpus);
            recalled.push((claim.work, claim.envelope, claim.pool, claim.gpus));
            if let Ok(lines) = copy.plan(now, request, HORIZON_DEFAULT) {
                return Ok((lines, recalled));
            }
        }
    }

    /// Never-fits: whether empty meters cover the request now, or at the start of the present or the
    /// next window of an envelope that could pay. The run has the same time from each start.
    pub(crate) fn could_ever_cover(&self, now: Instant, request: &Request) -> bool {
        let mut empty = self.clone();
        (empty.claims, empty.rectangles) = (Vec::new(), Vec::new());
        for budget in empty.budgets.values_mut() {
            budget.paused = false;
        }
        let mut starts = BTreeSet::from([now]);
        for budget in self.budgets.values() {
            let is_kin = self.relation(&request.owner, &budget.owner).is_some();
            let is_asked = is_kin || request.borrowing.sponsors.contains(&budget.owner);
            let of_flavor = budget
                .envelopes
                .iter()
                .filter(|e| e.flavor == request.flavor);
            for e in of_flavor.filter(|_| is_asked) {
                let schedule = self.schedules()[&MeterId::Envelope(budget.envelope_id(e))];
                let present = schedule.current(now);
                let next = present.and_then(|window| schedule.current(window.end?));
                starts.extend(
                    [present, next]
                        .into_iter()
                        .flatten()
                        .filter_map(|w| w.start),
                );
            }
        }
        starts
            .into_iter()
            .filter(|start| now <= *start)
            .any(|start| {
                for (meter, schedule) in self.schedules() {
                    empty.windows.insert(meter, schedule.current(start));
                }
                let hard_end = request.hard_end.map(|end| start.after(end.since(now)));
                let moved = Request {
                    hard_end,
                    ..request.clone()
                };
                empty.plan(start, &moved, HORIZON_DEFAULT).is_ok()
            })
    }

    /// The meters to refit when a budget is set or dropped: those that are new or gone, whose limit
    /// fell, whose schedule moved or whose members joined (B4).
    pub(crate) fn tightened(&self, id: &BudgetId, after: Option<&Budget>) -> BTreeSet<MeterId> {
        let mut later = self.clone();
        later.budgets.remove(id);
        later
            .budgets
            .extend(after.map(|budget| (id.clone(), budget.clone())));
        let (before, after) = (self.schedules(), later.schedules());
        let of_budget = |meter: &&MeterId| meter.budget() == *id;
        let all: BTreeSet<&MeterId> = before
            .keys()
            .chain(after.keys())
            .filter(of_budget)
            .collect();
        let falls = |old: Option<u64>, new: Option<u64>| match (old, new) {
            (_, None) => false,
            (old, Some(new)) => old.is_none_or(|old| new < old),
        };
        let is_hit = |meter: &&MeterId| {
            let (old, new) = (self.limits(meter), later.limits(meter));
            let (then, now) = (self.members(meter), later.members(meter));
            before.get(meter) != after.get(meter)
                || falls(old.0, new.0)
                || falls(old.1, new.1)
                || now.iter().any(|member| !then.contains(member))
        };
        all.into_iter().filter(is_hit).cloned().collect()
    }

    /// The members of a cap.
    fn members(&self, meter: &MeterId) -> Vec<EnvelopeId> {
        let caps = self.budgets.values().flat_map(|budget| {
            let caps = budget.aggregate_caps.iter();
            caps.map(|cap| (MeterId::Cap(budget.cap_id(cap)), &cap.envelopes))
        });
        let members = caps.filter(|(cap, _)| cap == meter);
        members.flat_map(|(_, members)| members.clone()).collect()
    }

    /// The declared meters whose window ends at an instant.
    pub(crate) fn edges(&self, now: Instant) -> BTreeSet<MeterId> {
        let ends = |meter: &MeterId| self.window(meter).is_some_and(|w| w.end == Some(now));
        let declared = self.schedules().into_keys();
        declared
            .filter(|meter| self.is_there(meter) && ends(meter))
            .collect()
    }

    /// Caps with a time limit outside their window, and whether it is over.
    pub(crate) fn idle_caps(&self, now: Instant) -> Vec<(MeterId, bool)> {
        let meters = self.schedules().into_keys();
        let caps = meters.filter(|meter| matches!(meter, MeterId::Cap(_)));
        let limited = caps.filter(|meter| self.limits(meter).1.is_some());
        let idle = limited.filter(|m| !self.window(m).is_some_and(|window| window.is_open(now)));
        idle.map(|meter| (meter.clone(), self.window(&meter).is_none()))
            .collect()
    }

    /// A lending pool is there if its envelope lends or lent.
    fn is_there(&self, meter: &MeterId) -> bool {
        !matches!(meter, MeterId::Lending(_)) || self.pools.contains(meter)
    }

    /// B4, on the state before the demotions.
    pub(crate) fn refit(
        &mut self,
        now: Instant,
        meters: &BTreeSet<MeterId>,
        pods: &BTreeMap<Work, u64>,
    ) -> Vec<Less> {
        self.cut_all(now);
        let is_hit = |claim: &Claim, all: &Self| {
            !all.charged(&claim.envelope, claim.pool).is_disjoint(meters)
        };
        let (mut off, on): (Vec<Claim>, Vec<Claim>) = std::mem::take(&mut self.claims)
            .into_iter()
            .partition(|c| is_hit(c, self));
        self.claims = on;
        off.sort_by_key(keep_order);
        let mut demoted = Vec::new();
        for claim in off {
            let mut stays = claim.gpus;
            let step = pods.get(&claim.work).copied().unwrap_or(claim.gpus);
            while 0 < stays && !self.fits(now, &claim, stays) {
                stays = stays.saturating_sub(step);
            }
            if stays < claim.gpus {
                demoted.push((
                    claim.work.clone(),
                    claim.envelope.clone(),
                    claim.pool,
                    claim.gpus - stays,
                ));
            }
            if 0 < stays {
                self.claims.push(Claim {
                    gpus: stays,
                    ..claim
                });
            }
        }
        demoted
    }

    fn fits(&self, now: Instant, claim: &Claim, gpus: u64) -> bool {
        let own = MeterId::Envelope(claim.envelope.clone());
        let is_open = self.spec(&claim.envelope).is_some()
            && self.window(&own).is_some_and(|w| w.is_open(now));
        is_open
            && self
                .charged(&claim.envelope, claim.pool)
                .iter()
                .all(|meter| {
                    let (limit, time) = (self.limits(meter).0, self.time_limit(meter));
                    let length = if claim.overruns {
                        0
                    } else {
                        self.length(meter, now, claim.until)
                    };
                    let more = u128::from(gpus) * u128::from(length);
                    limit.is_none_or(|limit| self.gpus(meter) + gpus <= limit)
                        && time.is_none_or(|time| {
                            self.committed(meter, now) + more <= u128::from(time)
                        })
                })
    }

    /// Debited and unpaid GPU time of all claims, from the lists alone.
    pub(crate) fn total(&self, now: Instant) -> u128 {
        let area = |from: Instant, to: Instant, gpus: u64| {
            u128::from(gpus) * u128::from(to.since(from).ms())
        };
        let past: u128 = self
            .rectangles
            .iter()
            .map(|r| u128::from(r.1) * u128::from(r.2))
            .sum();
        let live: u128 = self.claims.iter().map(|c| area(c.from, now, c.gpus)).sum();
        let unpaid: u128 = self.unfunded.iter().map(|c| area(c.3, now, c.1)).sum();
        past + live + unpaid + self.unpaid
    }
}

/// D5: the reason of a group whose rows did not cover it.
fn headline(rows: &[Row]) -> Reason {
    let is = |state: RowState| rows.iter().any(|row| row.state == state);
    let owners = |is_one: fn(&Row) -> bool| -> BTreeSet<&Label> {
        let lent = rows.iter().filter(|row| row.pool == Pool::Lent);
        lent.filter(|row| is_one(row))
            .map(|row| &row.owner)
            .collect()
    };
    let denying = owners(|row| row.state == RowState::AclDenied);
    let lending = owners(|row| !matches!(row.state, RowState::AclDenied | RowState::BorrowOff));
    let mut bounds = rows.iter().filter_map(|row| row.bound.as_ref());
    if bounds.clone().any(|bound| *bound == Bound::BorrowLimit) {
        return Reason::BorrowLimitExceeded;
    }
    // A sponsor refuses if none of its envelopes lends.
    if denying.difference(&lending).next().is_some() {
        return Reason::AclDenied;
    }
    match bounds.next() {
        Some(Bound::BorrowLimit) => Reason::BorrowLimitExceeded,
        Some(Bound::Meter { meter, dimension }) => match (meter, dimension) {
            (MeterId::Cap(_), _) => Reason::AggregateCapExceeded,
            (_, Dimension::Gpus) => Reason::ConcurrencyCapExceeded,
            (_, Dimension::Hours) => Reason::IntegralCapExceeded,
        },
        None if is(RowState::OutsideWindow) => Reason::OutsideWindow,
        None if is(RowState::Paused) => Reason::BudgetPaused,
        None => Reason::NoEnvelope,
    }
}

/// B4: pool Own, Lent, Family; inside a pool the one funded first.
fn keep_order(claim: &Claim) -> (Option<usize>, u64) {
    let pools = [Pool::Own, Pool::Lent, Pool::Family];
    let pool = pools.iter().position(|pool| *pool == claim.pool);
    (pool, claim.number)
}
