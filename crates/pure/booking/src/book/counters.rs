//! Counters: what is held and how many wait, under everything, each class, each tenant and each
//! pair.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bursar_units::{Amount, Label, Total};

use super::{Bookings, Class, ClassUse, Counter, Pair};
use crate::archive::Terms;
use crate::limit::{Applied, Declared, Kind, LimitUse};
use crate::names::NameIndex;

/// One counter of a limit.
#[derive(Clone, Debug)]
pub struct CounterView<'a> {
    /// Class, if the limit has a counter for each class or names one.
    pub class: Option<&'a Label>,
    /// Tenant, if the limit has a counter for each tenant or names one.
    pub tenant: Option<&'a Label>,
    /// Amount held.
    pub used: Amount,
    /// Number of waiting bookings.
    pub waiting: u64,
}

static NOTHING: Counter = Counter {
    used: Total::ZERO,
    waiting: 0,
};

impl Bookings {
    pub(crate) fn charge(&mut self, terms: &Terms) {
        self.pair_mut(terms).held += 1;
        self.each_counter(terms, |counter| counter.used.add(&terms.amount));
    }

    pub(super) fn discharge(&mut self, terms: &Terms) {
        self.each_counter(terms, |counter| counter.used.take(&terms.amount));
        let pair = self.pair_mut(terms);
        pair.held = pair.held.saturating_sub(1);
        self.drop_idle_pair(terms);
    }

    /// Keeps the pair even when its last booking leaves: a grant may follow.
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

    pub(super) fn pair_mut(&mut self, terms: &Terms) -> &mut Pair {
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
            let applied = labels.map(|(c, t)| limits.applied(c, t));
            Pair {
                applied: applied.unwrap_or_default(),
                ..Pair::default()
            }
        })
    }

    pub(super) fn drop_idle_pair(&mut self, terms: &Terms) {
        let key = (terms.class, terms.tenant);
        if self
            .pairs
            .get(&key)
            .is_some_and(|pair| pair.held == 0 && pair.counter.waiting == 0)
        {
            self.pairs.remove(&key);
        }
    }

    /// Sets the total of the nodes, which percentages of limits refer to (S1).
    pub(crate) fn set_inventory(&mut self, total: Total) {
        self.limits.set_inventory(total);
        self.refresh_applied();
    }

    pub(super) fn refresh_applied(&mut self) {
        let Self {
            pairs,
            limits,
            classes,
            tenants,
            ..
        } = self;
        for ((class, tenant), pair) in pairs {
            let labels = classes.label(*class).zip(tenants.label(*tenant));
            let applied = labels.map(|(c, t)| limits.applied(c, t));
            pair.applied = applied.unwrap_or_default();
        }
    }

    pub(crate) fn applied_of(&self, class: NameIndex, tenant: NameIndex) -> Cow<'_, Applied> {
        if let Some(pair) = self.pairs.get(&(class, tenant)) {
            return Cow::Borrowed(&pair.applied);
        }
        let labels = self.labels(class, tenant);
        let applied = labels.map(|(c, t)| self.limits.applied(c, t));
        Cow::Owned(applied.unwrap_or_default())
    }

    pub(crate) fn labels(&self, class: NameIndex, tenant: NameIndex) -> Option<(&Label, &Label)> {
        self.classes.label(class).zip(self.tenants.label(tenant))
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

    /// Use of a limit's counter for a class and tenant, in every dimension that the limit bounds.
    pub fn counter_use(&self, declared: &Declared, class: &Label, tenant: &Label) -> Vec<LimitUse> {
        let (used, waiting) = self
            .counter_by_labels(declared.limit.kind(), class, tenant)
            .map_or((Amount::default(), 0), |counter| {
                (counter.used.shown(), counter.waiting)
            });
        declared.uses(&used, waiting).collect()
    }

    /// Whether a tenant has granted or queued bookings of a class.
    pub fn is_used_by(&self, class: &Label, tenant: &Label) -> bool {
        let counter = self.counter_by_labels(Kind::ClassTenant, class, tenant);
        counter.is_some_and(|counter| !counter.used.shown().is_zero() || counter.waiting > 0)
    }

    /// Counters of a limit that have a granted or queued booking, by class and tenant.
    pub fn counters_of(&self, declared: &Declared) -> Vec<CounterView<'_>> {
        let applies_to = |scope: &Option<crate::Scope>, label: &Label| match scope {
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
                .filter(|(label, _)| applies_to(class, label))
                .map(|(label, entry)| view(Some(label), None, &entry.counter))
                .collect(),
            Kind::Tenant => self
                .tenants
                .iter()
                .filter(|(label, _)| applies_to(tenant, label))
                .map(|(label, entry)| view(None, Some(label), &entry.counter))
                .collect(),
            Kind::ClassTenant => self
                .pairs
                .iter()
                .filter_map(|((c, t), pair)| Some((self.labels(*c, *t)?, pair)))
                .filter(|((c, t), _)| applies_to(class, c) && applies_to(tenant, t))
                .map(|((c, t), pair)| view(Some(c), Some(t), &pair.counter))
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

    /// Tenants that hold slots, of all classes or of one: most slots first, then by name.
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

    /// Use of each class with granted or queued bookings. Reads counters and heads of lanes only,
    /// so the cost does not grow with the number of bookings.
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
}
