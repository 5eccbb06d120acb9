//! Limits by counting: which apply, what is used, what is lacking (S1).

use bursar_booking::{Bound, Limit, Request, Scope};
use bursar_units::{Amount, Dimension, Label};

use super::Oracle;

/// A limit that applies to a class and a tenant.
#[derive(Clone, Copy)]
pub(super) struct Applies<'a> {
    pub(super) limit: &'a Limit,
}

impl Applies<'_> {
    /// Whether it counts by tenant, so that others cannot use it up.
    pub(super) fn is_own(self) -> bool {
        self.limit.tenant.is_some()
    }

    /// Whether it has one counter for two requests.
    pub(super) fn is_shared(self, one: &Request, other: &Request) -> bool {
        (self.limit.class.is_none() || one.class == other.class)
            && (self.limit.tenant.is_none() || one.tenant == other.tenant)
    }
}

impl Oracle {
    /// At most one of each kind; whatever names a value beats `each`, the class before the tenant.
    pub(super) fn applying(&self, request: &Request) -> Vec<Applies<'_>> {
        let rank = |scope: &Option<Scope>, label: &Label| match scope {
            None => Some((false, 0)),
            Some(Scope::Named(name)) if name == label => Some((true, 0)),
            Some(Scope::Named(_)) => None,
            Some(Scope::Each) => Some((true, 1)),
        };
        let mut best: [Option<(u32, Applies<'_>)>; 4] = [None; 4];
        for limit in self.limits.values() {
            let ranks = (
                rank(&limit.class, &request.class),
                rank(&limit.tenant, &request.tenant),
            );
            let (Some((by_class, class)), Some((by_tenant, tenant))) = ranks else {
                continue;
            };
            let place = usize::from(by_tenant) + 2 * usize::from(by_class);
            let rank = 2 * class + tenant;
            if let Some(slot) = best.get_mut(place)
                && slot.is_none_or(|(least, _)| rank < least)
            {
                *slot = Some((rank, Applies { limit }));
            }
        }
        best.into_iter()
            .flatten()
            .map(|(_, applies)| applies)
            .collect()
    }

    /// Whether `amount` and what is used are together above the limit.
    pub(super) fn lacks(
        &self,
        applies: Applies<'_>,
        request: &Request,
        amount: &[u128; 4],
    ) -> bool {
        let used = self.used(applies, request);
        Dimension::ALL
            .into_iter()
            .zip(used)
            .zip(amount)
            .any(|((dimension, used), more)| {
                self.bound(applies.limit, dimension)
                    .is_some_and(|most| used + more > most)
            })
    }

    pub(super) fn lacks_any(&self, request: &Request) -> bool {
        let amount = numbers(&request.amount);
        self.applying(request)
            .into_iter()
            .any(|applies| self.lacks(applies, request, &amount))
    }

    pub(super) fn lacks_own(&self, request: &Request) -> bool {
        let amount = numbers(&request.amount);
        self.applying(request)
            .into_iter()
            .any(|applies| applies.is_own() && self.lacks(applies, request, &amount))
    }

    /// Whether it would fit if nobody held anything.
    pub(super) fn could_ever_fit(&self, request: &Request) -> bool {
        self.applying(request).into_iter().all(|applies| {
            Dimension::ALL.into_iter().all(|dimension| {
                self.bound(applies.limit, dimension)
                    .is_none_or(|most| u128::from(request.amount.of(dimension)) <= most)
            })
        })
    }

    /// The first of the request's terms that the program or a limit does not allow.
    pub(super) fn refused_by_terms(&self, request: &Request) -> Option<&'static str> {
        let applying = self.applying(request);
        if !(1..=u64::from(u32::MAX)).contains(&request.amount.slots) {
            return Some("slots");
        }
        let day_ms = super::DAY.ms();
        let ttl_max = applying.iter().map(|applies| applies.limit.ttl_max.ms());
        let ttl_max = ttl_max.min().unwrap_or(day_ms).min(day_ms);
        match request.order() {
            Some(order) => {
                if let Some(why) = self.refused_by_order(order) {
                    return Some(why);
                }
            }
            None if !(1_000..=ttl_max).contains(&request.ttl.ms()) => return Some("ttlMs"),
            None => {}
        }
        let wait_max = applying.iter().map(|applies| applies.limit.wait_max.ms());
        if wait_max.min().unwrap_or(day_ms) < request.wait.ms() {
            return Some("waitMs");
        }
        let exceeds = applying.iter().any(|applies| {
            Dimension::ALL.into_iter().any(|dimension| {
                self.bound(applies.limit, dimension)
                    .is_some_and(|most| 0 < most && most < request.amount.of(dimension).into())
            })
        });
        exceeds.then_some("never-fits")
    }

    pub(super) fn queue_is_full(&self, request: &Request) -> bool {
        self.applying(request).into_iter().any(|applies| {
            let together: Vec<_> = self
                .waiting
                .iter()
                .filter(|waiter| applies.is_shared(request, &waiter.request))
                .collect();
            let of_tenant = together
                .iter()
                .filter(|waiter| waiter.request.tenant == request.tenant);
            let has = |count: usize, max| u64::try_from(count).unwrap_or(u64::MAX) >= max;
            has(together.len(), applies.limit.queue_max)
                || (applies.limit.tenant_queue_max).is_some_and(|max| has(of_tenant.count(), max))
        })
    }

    /// The share of a tenant's turn.
    pub(super) fn weight(&self, request: &Request) -> u64 {
        let own = self
            .applying(request)
            .into_iter()
            .find(|applies| applies.is_own() && applies.limit.class.is_none());
        own.and_then(|applies| applies.limit.weight).unwrap_or(100)
    }

    fn used(&self, applies: Applies<'_>, request: &Request) -> [u128; 4] {
        let mut used = [0; 4];
        for holder in self.holders.values() {
            if applies.is_shared(request, &holder.request) {
                for (sum, more) in used.iter_mut().zip(numbers(&holder.request.amount)) {
                    *sum += more;
                }
            }
        }
        used
    }

    fn bound(&self, limit: &Limit, dimension: Dimension) -> Option<u128> {
        let of_inventory = |bound: Option<Bound>| {
            bound.map(|bound| match bound {
                Bound::Exactly(most) => u128::from(most),
                Bound::Percent(percent) => {
                    let whole: u128 = self
                        .nodes
                        .values()
                        .map(|capacity| u128::from(capacity.of(dimension)))
                        .sum();
                    whole * u128::from(percent) / 100
                }
            })
        };
        match dimension {
            Dimension::Slots => limit.slots.map(u128::from),
            Dimension::Cpu => of_inventory(limit.cpu),
            Dimension::Memory => of_inventory(limit.memory),
            Dimension::Gpus => limit.gpus.map(u128::from),
        }
    }
}

/// An amount as numbers that cannot overflow.
pub(super) fn numbers(amount: &Amount) -> [u128; 4] {
    Dimension::ALL.map(|dimension| u128::from(amount.of(dimension)))
}
