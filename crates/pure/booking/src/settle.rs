//! Choice of the next grant, the heads that it passes, and the shield (S2–S4).
//!
//! ```text
//! key(h)     = (max(0, priority − waited/60 s), turn[tenant], sequence)
//! lacks(h,L) = used(L) + amount(h) > max(L) in some dimension
//! next       = the head with the least key that lacks nothing and is not shielded
//! ```
//! Worked example: limit 4, a head `big` of 4 slots and a lane of small ones of 1 slot. While 1
//! is in use `big` lacks the limit, so small ones are granted and each passes `big`. After 100
//! passes `big` is due, and a small one is granted only if 4 slots stay free after it, which never
//! happens. When all slots are free, `big` is granted.

use bursar_units::{Amount, BookingId, Instant, Total};

use crate::Bookings;
use crate::limit::{Applied, Declared, Kind};
use crate::names::NameIndex;
use crate::room::{Key, Lane, Waiting};

/// Smallest amount: a class without room for it has no candidates.
const LEAST: Amount = Amount {
    slots: 1,
    cpu_milli: 0,
    memory_bytes: 0,
    gpus: 0,
};

impl Bookings {
    /// Booking to grant next, if any can be granted.
    pub(crate) fn next_grant(&self, at: Instant) -> Option<BookingId> {
        let mut best: Option<(Key, &Waiting)> = None;
        let mut class: Option<(NameIndex, bool)> = None;
        for (lane, head) in self.room.heads() {
            // Lanes are ordered by class, so a full class is checked once.
            let is_full = match class {
                Some((same, is_full)) if same == lane.class => is_full,
                _ => self.lacks_shared(lane, lane, &LEAST),
            };
            class = Some((lane.class, is_full));
            if is_full {
                continue;
            }
            let key = self.key(at, lane, head);
            if best.is_none_or(|(least, _)| key < least)
                && self.fits(lane, &head.amount)
                && !self.is_shielded(lane, &head.amount, head.due)
            {
                best = Some((key, head));
            }
        }
        best.map(|(_, head)| head.id.clone())
    }

    /// Whether a new request is granted at once: it is the head of its lane, fits, and is not
    /// shielded. In a settled room no other booking can be granted, neither before it nor after it:
    /// it only takes, and a due head that shields keeps what it needs of its own limits. In an
    /// unsettled room waiting bookings come first (L9).
    pub(crate) fn would_grant(&self, lane: Lane, applied: &Applied, amount: &Amount) -> bool {
        !self.is_unsettled()
            && !self.room.has_lane(lane)
            && applied
                .iter()
                .all(|declared| !self.lacks(declared, lane, amount))
            && !self.is_shielded(lane, amount, None)
    }

    /// Lanes whose heads a grant to `granted` passes, in key order: heads before it that lack a
    /// shared limit which it uses, and no limit of their own tenant.
    pub(crate) fn passed_by(&self, at: Instant, lane: Lane, granted: &Waiting) -> Vec<Lane> {
        let key = self.key(at, lane, granted);
        let mut passed: Vec<(Key, Lane)> = self
            .room
            .heads()
            .map(|(other, head)| (self.key(at, other, head), other, head))
            .filter(|(other_key, ..)| *other_key < key)
            .filter(|(_, other, head)| {
                self.lacks_shared(lane, *other, &head.amount)
                    && !self.lacks_own(*other, &head.amount)
            })
            .map(|(other_key, other, _)| (other_key, other))
            .collect();
        passed.sort_unstable_by_key(|(other_key, _)| *other_key);
        passed.into_iter().map(|(_, other)| other).collect()
    }

    /// Whether the amount fits every limit that applies to the lane.
    pub(crate) fn fits(&self, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied
            .iter()
            .all(|declared| !self.lacks(declared, lane, amount))
    }

    /// Whether an earlier due head prevents a grant to this candidate: the head lacks no limit of
    /// its own tenant, and the grant would leave it less than it needs of a limit that counts both.
    pub(crate) fn is_shielded(&self, lane: Lane, amount: &Amount, due: Option<u64>) -> bool {
        self.room
            .due_heads()
            .take_while(|(earlier, ..)| due.is_none_or(|due| *earlier < due))
            .any(|(_, other, head)| {
                self.would_starve(other, &head.amount, lane, amount)
                    && self.can_ever_fit(other, &head.amount)
                    && !self.lacks_own(other, &head.amount)
            })
    }

    pub(crate) fn key(&self, at: Instant, lane: Lane, waiting: &Waiting) -> Key {
        let turn = self.tenants.get(lane.tenant).turn;
        (waiting.aged(lane.priority, at), turn, waiting.sequence)
    }

    pub(crate) fn lacks(&self, declared: &Declared, lane: Lane, amount: &Amount) -> bool {
        let counter = self.counter(declared.limit.kind(), lane.class, lane.tenant);
        !counter.used.fits(amount, &declared.bounds)
    }

    fn lacks_shared(&self, user: Lane, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied
            .iter()
            .filter(|declared| !is_own(declared) && count_together(declared, user, lane))
            .any(|declared| self.lacks(declared, lane, amount))
    }

    fn lacks_own(&self, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied
            .iter()
            .filter(|declared| is_own(declared))
            .any(|declared| self.lacks(declared, lane, amount))
    }

    /// A head that can never fit (its limit was lowered or paused) must not shield: it would stop
    /// all others for as long as it waits.
    fn can_ever_fit(&self, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied
            .iter()
            .all(|declared| Total::ZERO.fits(amount, &declared.bounds))
    }

    /// Whether a grant of `amount` leaves less than the due head needs of a limit that counts both.
    fn would_starve(&self, due: Lane, needs: &Amount, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied
            .iter()
            .filter(|declared| count_together(declared, lane, due))
            .any(|declared| {
                let counter = self.counter(declared.limit.kind(), lane.class, lane.tenant);
                let mut with_both = counter.used;
                with_both.add(amount);
                !with_both.fits(needs, &declared.bounds)
            })
    }
}

fn is_own(declared: &Declared) -> bool {
    matches!(declared.limit.kind(), Kind::Tenant | Kind::ClassTenant)
}

/// Whether a limit has one counter for two lanes.
fn count_together(declared: &Declared, a: Lane, b: Lane) -> bool {
    match declared.limit.kind() {
        Kind::Everything => true,
        Kind::Tenant => a.tenant == b.tenant,
        Kind::Class => a.class == b.class,
        Kind::ClassTenant => a.class == b.class && a.tenant == b.tenant,
    }
}
