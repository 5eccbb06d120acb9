//! Independent check of limits and ends, counted from the events alone, for `ledger check`.
//!
//! It shares no code with the counters of the planes. It has the open bookings in one map and their
//! sums in another, and at each grant searches all limits for those that apply (S1).

mod meters;
mod money;

use std::collections::BTreeMap;

use bursar_booking::execution::Adoption;
use bursar_booking::limit::Kind;
use bursar_booking::{Event as Booking, Limit, Request, Scope, Standing, Submission};
use bursar_units::words::{count, number};
use bursar_units::{Amount, BookingId, Instant, Label, ObjectName, Total};

use crate::{Event, State, cluster, spine};
use money::Money;

/// Result of one check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Subject of the check.
    pub name: &'static str,
    /// Whether the check passed.
    pub is_good: bool,
    /// Numbers, or the first violation.
    pub detail: String,
}

/// Counts for the checks.
#[derive(Default)]
pub struct Tally {
    open: BTreeMap<BookingId, Open>,
    used: BTreeMap<Value, Total>,
    limits: BTreeMap<ObjectName, Limit>,
    nodes: BTreeMap<ObjectName, Amount>,
    money: Money,
    ended: u64,
    changes: u64,
    /// First grant above a bound.
    above: Option<String>,
    /// First booking that begins, is granted or ends in the wrong state.
    wrong: Option<String>,
}

/// A granted or queued booking.
struct Open {
    class: Label,
    tenant: Label,
    amount: Amount,
    is_granted: bool,
}

/// Class and tenant of a sum; `None` is all of them.
type Value = (Option<Label>, Option<Label>);

impl Finding {
    fn passed(name: &'static str, detail: String) -> Self {
        Self {
            name,
            is_good: true,
            detail,
        }
    }

    fn failed(name: &'static str, detail: String) -> Self {
        Self {
            name,
            is_good: false,
            detail,
        }
    }
}

impl Tally {
    /// Counts of an initial state.
    pub fn of(state: &State) -> Self {
        let bookings = &state.bookings;
        let limits = bookings
            .limits()
            .map(|declared| (declared.limit.name.clone(), declared.limit.clone()));
        let nodes = state.spine.inventory.iter();
        let nodes = nodes.map(|node| (node.name.clone(), node.capacity()));
        let mut tally = Self {
            limits: limits.collect(),
            nodes: nodes.collect(),
            money: Money::of(state),
            ..Self::default()
        };
        for id in bookings.live_ids(None) {
            if let Some(request) = bookings.request(id) {
                tally.begin(0, &request);
                if matches!(bookings.standing(id), Some(Standing::Granted(_))) {
                    tally.charge(id);
                }
            }
        }
        tally
    }

    /// Counts an event of that time.
    pub fn take(&mut self, seq: u64, at: Instant, event: &Event) {
        match event {
            Event::Booking(event) => self.take_booking(seq, event),
            Event::Spine(spine::Event::NodeSet(node)) => {
                self.changes += 1;
                self.nodes.insert(node.name.clone(), node.capacity());
                self.money.set_node(node);
            }
            Event::Spine(spine::Event::NodeDropped { name }) => {
                self.changes += 1;
                self.nodes.remove(name);
                self.money.drop_node(name);
            }
            Event::Cluster(event) => {
                self.changes += u64::from(is_change(event));
                self.money.take(seq, at, event);
            }
            Event::Spine(_) | Event::Market(_) => {}
        }
    }

    /// Ends a record: the sums of money and the meters are checked after every one.
    pub fn end_record(&mut self, seq: u64) {
        self.money.end_record(seq);
    }

    /// Results for the state after the events.
    pub fn findings(&self, state: &State) -> Vec<Finding> {
        let money = self.money.finding(state);
        let others = [self.limits_check(), self.bookings_check(state)];
        money.into_iter().chain(others).collect()
    }

    fn take_booking(&mut self, seq: u64, event: &Booking) {
        match event {
            Booking::Reserved(request)
            | Booking::Submitted(Submission {
                booking: request, ..
            }) => {
                self.begin(seq, request);
                if request.fence.is_some() {
                    self.grant(seq, &request.id);
                }
            }
            Booking::Granted { id, .. } => self.grant(seq, id),
            // An adoption may exceed a limit. An execution that was starting is charged already.
            Booking::Adopted(Adoption {
                booking: request, ..
            }) => {
                self.changes += 1;
                if !self.open.contains_key(&request.id) {
                    self.begin(seq, request);
                }
                let _is_new = self.charge(&request.id);
            }
            Booking::Ended { id, .. } | Booking::Exited { id, .. } => self.end(seq, id),
            Booking::LimitSet(limit) => {
                self.changes += 1;
                self.limits.insert(limit.name.clone(), limit.clone());
            }
            Booking::LimitDropped { name } => {
                self.changes += 1;
                self.limits.remove(name);
            }
            Booking::Renewed { .. }
            | Booking::Started { .. }
            | Booking::Stopping { .. }
            | Booking::StopFailed { .. }
            | Booking::Noted { .. }
            | Booking::Unsettled { .. } => {}
        }
    }

    fn limits_check(&self) -> Finding {
        if let Some(detail) = self.above.as_ref().or_else(|| self.money.above()) {
            return Finding::failed("limits", detail.clone());
        }
        let changes = count(self.changes, "change");
        // A lowered limit, or a node that shrank, may be below its use: only grants are checked.
        let what = if self.money.is_begun() {
            "no grant above the bound of an envelope, cap, pool, slot limit or node"
        } else {
            "no grant above the bound of a slot limit"
        };
        Finding::passed("limits", format!("{what}, {changes}"))
    }

    /// Checks that every booking has ended once or is in the state.
    fn bookings_check(&self, state: &State) -> Finding {
        let standing = |id: &BookingId| match state.bookings.standing(id) {
            Some(Standing::Granted(_)) => Some(true),
            Some(Standing::Queued { .. }) => Some(false),
            _ => None,
        };
        let is_held = |(id, open): &(&BookingId, &Open)| standing(id) == Some(open.is_granted);
        let held = self.open.iter().filter(is_held);
        let (active, waiting): (Vec<_>, Vec<_>) = held.partition(|(_, open)| open.is_granted);
        let (granted, queued, _) = state.bookings.counts();
        let lost = self.open.len() - active.len() - waiting.len();
        let unknown = granted + queued - active.len() - waiting.len();
        let length = |of: usize| number(u64::try_from(of).unwrap_or(u64::MAX));
        let mut detail = format!(
            "{} ended once, {} active",
            number(self.ended),
            length(active.len())
        );
        if !waiting.is_empty() {
            detail = format!("{detail}, {} waiting", length(waiting.len()));
        }
        detail = format!("{detail}, {} without an end", length(lost + unknown));
        match &self.wrong {
            Some(wrong) => Finding::failed("bookings", wrong.clone()),
            None if lost + unknown == 0 => Finding::passed("bookings", detail),
            None => Finding::failed("bookings", detail),
        }
    }

    fn begin(&mut self, seq: u64, request: &Request) {
        let id = &request.id;
        let open = Open {
            class: request.class.clone(),
            tenant: request.tenant.clone(),
            amount: request.amount(),
            is_granted: false,
        };
        if self.open.insert(id.clone(), open).is_some() {
            self.note_wrong(seq, id, "begins again before it has ended");
        }
    }

    fn grant(&mut self, seq: u64, id: &BookingId) {
        self.changes += 1;
        if !self.charge(id) {
            self.note_wrong(seq, id, "is granted when it does not wait");
            return;
        }
        if self.above.is_none() {
            self.above = self
                .exceeded_bound(id)
                .map(|what| format!("record {}: {what}", number(seq)));
        }
    }

    fn charge(&mut self, id: &BookingId) -> bool {
        let Some(open) = self.open.get_mut(id).filter(|open| !open.is_granted) else {
            return false;
        };
        open.is_granted = true;
        let amount = open.amount;
        for value in open.values() {
            self.used.entry(value).or_default().add(&amount);
        }
        true
    }

    fn end(&mut self, seq: u64, id: &BookingId) {
        self.changes += 1;
        self.ended += 1;
        let Some(open) = self.open.remove(id) else {
            self.note_wrong(seq, id, "ends when it is not active");
            return;
        };
        for value in open.values().into_iter().filter(|_| open.is_granted) {
            if let Some(used) = self.used.get_mut(&value) {
                used.take(&open.amount);
                if used.is_zero() {
                    self.used.remove(&value);
                }
            }
        }
    }

    /// First limit that a granted booking exceeds.
    fn exceeded_bound(&self, id: &BookingId) -> Option<String> {
        let open = self.open.get(id)?;
        let mut inventory = Total::ZERO;
        self.nodes
            .values()
            .for_each(|capacity| inventory.add(capacity));
        let kinds = [
            Kind::Everything,
            Kind::Tenant,
            Kind::Class,
            Kind::ClassTenant,
        ];
        kinds
            .into_iter()
            .zip(open.values())
            .find_map(|(kind, value)| {
                let of_kind = self.limits.iter().filter(|(_, limit)| limit.kind() == kind);
                let applying =
                    of_kind.filter_map(|(name, limit)| Some((open.rank(limit)?, name, limit)));
                let (_, name, limit) = applying.min_by_key(|(rank, _, _)| *rank)?;
                let used = self.used.get(&value).copied().unwrap_or_default();
                let bounds = limit.bounds_on(&inventory);
                let dimension = used.exceeds(&Amount::default(), &bounds).next()?;
                let (size, in_use) = (
                    bounds.of(dimension).unwrap_or(0),
                    used.shown().of(dimension),
                );
                let (size, in_use) = (number(size), number(in_use));
                let word = dimension.word();
                Some(format!(
                    "limit {name} has {in_use} {word} in use, its bound is {size}"
                ))
            })
    }

    fn note_wrong(&mut self, seq: u64, id: &BookingId, what: &str) {
        self.wrong
            .get_or_insert(format!("record {}: booking {id} {what}", number(seq)));
    }
}

/// Whether an event changes the GPUs or the limit of a meter.
fn is_change(event: &cluster::Event) -> bool {
    matches!(
        event,
        cluster::Event::BudgetSet(_)
            | cluster::Event::BudgetDropped { .. }
            | cluster::Event::RunFunded { .. }
            | cluster::Event::RunDemoted { .. }
            | cluster::Event::LeasesClosed { .. }
    )
}

impl Open {
    /// Sums that count it, in the order of the kinds of limit.
    fn values(&self) -> [Value; 4] {
        let (class, tenant) = (Some(self.class.clone()), Some(self.tenant.clone()));
        [
            (None, None),
            (None, tenant.clone()),
            (class.clone(), None),
            (class, tenant),
        ]
    }

    /// Rank of a limit, the lowest goes first: both named, class named, tenant named, each. `None`
    /// if it does not apply.
    fn rank(&self, limit: &Limit) -> Option<u8> {
        let is_named = |scope: &Option<Scope>, label: &Label| match scope {
            Some(Scope::Named(name)) if name == label => Some(true),
            Some(Scope::Named(_)) => None,
            Some(Scope::Each) | None => Some(false),
        };
        let class = is_named(&limit.class, &self.class)?;
        let tenant = is_named(&limit.tenant, &self.tenant)?;
        Some(match (class, tenant) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) => 2,
            (false, false) => 3,
        })
    }
}
