//! Who is granted next, who is passed by it, and who is shielded (S2–S4).
//!
//! ```text
//! key(h)     = (max(0, priority − waited/60 s), turn[tenant], sequence)
//! lacks(h,L) = used(L) + amount(h) > max(L) in some dimension
//! next       = the head with the least key that lacks nothing and is not shielded
//! ```
//! Worked example: limit 4, a head `big` of 4 slots and a lane of small ones of 1 slot. While 1
//! is in use `big` lacks the limit, so small ones are granted and each passes `big`. After 100
//! passes `big` is due, and a small one is granted only where 4 would stay free: never. The
//! four drain, and `big` is granted.

use bursar_units::{Amount, BookingId, Instant};

use crate::Bookings;
use crate::limit::{Applied, Declared, Kind};
use crate::room::{Key, Lane, Waiting};

/// A head that has been passed often enough.
struct Due {
    lane: Lane,
    amount: Amount,
    since: u64,
}

impl Bookings {
    /// The booking that must be granted next, if any can be.
    pub(crate) fn next_grant(&self, at: Instant) -> Option<BookingId> {
        if self.room.is_empty() {
            return None;
        }
        let due = self.due_heads();
        self.room
            .heads()
            .filter(|(lane, head)| self.fits(*lane, &head.amount))
            .filter(|(lane, head)| !self.is_shielded_by(&due, *lane, &head.amount, head.due))
            .min_by_key(|(lane, head)| self.key(at, *lane, head))
            .map(|(_, head)| head.id.clone())
    }

    /// Whether a newcomer would be granted at once. The room is settled, so nobody else can be:
    /// it must be the head of its lane, fit, and not be shielded.
    pub(crate) fn would_grant(&self, lane: Lane, applied: &Applied, amount: &Amount) -> bool {
        !self.room.has_lane(lane)
            && applied.iter().all(|declared| !self.lacks(declared, lane, amount))
            && (self.room.is_empty()
                || !self.is_shielded_by(&self.due_heads(), lane, amount, None))
    }

    /// The lanes whose heads a grant to `granted` passes, in key order: those before it that lack
    /// a shared limit which it uses and lack none of their own tenant.
    pub(crate) fn passed_by(&self, at: Instant, lane: Lane, granted: &Waiting) -> Vec<Lane> {
        let key = self.key(at, lane, granted);
        let mut passed: Vec<(Key, Lane)> = self
            .room
            .heads()
            .filter(|(other, _)| self.may_share(lane, *other))
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
        applied.iter().all(|declared| !self.lacks(declared, lane, amount))
    }

    /// Whether a due head keeps this candidate from being granted.
    pub(crate) fn is_shielded(&self, lane: Lane, waiting: &Waiting) -> bool {
        self.is_shielded_by(&self.due_heads(), lane, &waiting.amount, waiting.due)
    }

    pub(crate) fn key(&self, at: Instant, lane: Lane, waiting: &Waiting) -> Key {
        let turn = self.tenants.get(lane.tenant).turn;
        (waiting.aged(lane.priority, at), turn, waiting.sequence)
    }

    pub(crate) fn lacks(&self, declared: &Declared, lane: Lane, amount: &Amount) -> bool {
        let counter = self.counter(declared.limit.kind(), lane.class, lane.tenant);
        !counter.used.fits(amount, &declared.bounds)
    }

    /// Two lanes share the limit of everything, if there is one, and that of their class.
    fn may_share(&self, a: Lane, b: Lane) -> bool {
        a.class == b.class || self.has_everything_limit(a)
    }

    fn has_everything_limit(&self, lane: Lane) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied.iter().any(|declared| declared.limit.kind() == Kind::Everything)
    }

    fn lacks_shared(&self, user: Lane, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied
            .iter()
            .filter(|declared| is_shared(declared, user, lane))
            .any(|declared| self.lacks(declared, lane, amount))
    }

    fn lacks_own(&self, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied
            .iter()
            .filter(|declared| is_own(declared))
            .any(|declared| self.lacks(declared, lane, amount))
    }

    /// Due heads that shield. One that no amount of patience would let in (its limit was lowered
    /// below it, or paused) shields nothing, or it would stop everybody for as long as it waits.
    fn due_heads(&self) -> Vec<Due> {
        self.room
            .heads()
            .filter_map(|(lane, head)| Some((lane, head, head.due?)))
            .filter(|(lane, head, _)| {
                let applied = self.applied_of(lane.class, lane.tenant);
                let nothing = Amount::default();
                applied.iter().all(|declared| nothing.fits(&head.amount, &declared.bounds))
                    && !self.lacks_own(*lane, &head.amount)
            })
            .map(|(lane, head, since)| Due { lane, amount: head.amount, since })
            .collect()
    }

    fn is_shielded_by(&self, due: &[Due], lane: Lane, amount: &Amount, since: Option<u64>) -> bool {
        due.iter()
            .filter(|head| since.is_none_or(|since| head.since < since))
            .any(|head| self.would_starve(head, lane, amount))
    }

    /// Whether granting `amount` would leave less than the due head needs of a shared limit.
    fn would_starve(&self, head: &Due, lane: Lane, amount: &Amount) -> bool {
        let applied = self.applied_of(lane.class, lane.tenant);
        applied.iter().filter(|declared| is_shared(declared, lane, head.lane)).any(|declared| {
            let counter = self.counter(declared.limit.kind(), lane.class, lane.tenant);
            let mut with_both = counter.used;
            with_both.add(amount);
            !with_both.fits(&head.amount, &declared.bounds)
        })
    }
}

fn is_own(declared: &Declared) -> bool {
    matches!(declared.limit.kind(), Kind::Tenant | Kind::ClassTenant)
}

fn is_shared(declared: &Declared, a: Lane, b: Lane) -> bool {
    match declared.limit.kind() {
        Kind::Everything => true,
        Kind::Class => a.class == b.class,
        Kind::Tenant | Kind::ClassTenant => false,
    }
}
