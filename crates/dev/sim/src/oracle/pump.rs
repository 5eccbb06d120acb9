//! The queue by the plain loop of S3 and S4.
//!
//! ```text
//! while some head fits and is not shielded: grant the least (aged, turn, arrival)
//! ```

use bursar_booking::{Event, Fence};
use bursar_units::{BookingId, Instant};

use super::limits::numbers;
use super::{Expected, Holder, Oracle, Waiter, Way};

type Key = (u64, u128, u64);

impl Oracle {
    /// Grants while anyone can be granted and the record has room.
    pub(super) fn pump(&mut self, at: Instant, grants_left: &mut usize, events: &mut Expected) {
        while let Some(id) = self.next(at) {
            if *grants_left == 0 {
                if self.unsettled.is_none() {
                    self.unsettled = Some(at);
                    events.push((at, Event::Unsettled { more: true }));
                }
                return;
            }
            let fence = self.grant(at, &id);
            events.push((at, Event::Granted { id, fence }));
            *grants_left -= 1;
        }
        if self.unsettled.take().is_some() {
            events.push((at, Event::Unsettled { more: false }));
        }
    }

    /// Who is granted next.
    pub(super) fn next(&self, at: Instant) -> Option<BookingId> {
        let heads = self.heads();
        let due = heads.iter().filter(|head| head.due.is_some());
        let due: Vec<&Waiter> = due.copied().collect();
        heads
            .into_iter()
            .filter(|head| !self.lacks_any(&head.request) && !self.is_shielded(head, &due))
            .min_by_key(|head| self.key(at, head))
            .map(|head| head.id.clone())
    }

    fn heads(&self) -> Vec<&Waiter> {
        let same_lane = |one: &Waiter, other: &Waiter| {
            one.request.class == other.request.class
                && one.request.tenant == other.request.tenant
                && one.request.priority == other.request.priority
        };
        let mut heads: Vec<&Waiter> = Vec::new();
        for waiter in &self.waiting {
            if !heads.iter().any(|head| same_lane(head, waiter)) {
                heads.push(waiter);
            }
        }
        heads
    }

    fn key(&self, at: Instant, waiter: &Waiter) -> Key {
        let minutes = at.since(waiter.since).ms() / 60_000;
        let aged = waiter.request.priority.level().saturating_sub(minutes);
        let turn = self.turns.get(&waiter.request.tenant).copied();
        (aged, turn.unwrap_or(0), waiter.arrival)
    }

    /// An earlier due head that lacks nothing of its own would be left with too little.
    fn is_shielded(&self, candidate: &Waiter, due: &[&Waiter]) -> bool {
        due.iter().any(|due| {
            let is_earlier = match (due.due, candidate.due) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(theirs), Some(ours)) => theirs < ours,
            };
            is_earlier
                && !self.lacks_own(&due.request)
                && self.could_ever_fit(&due.request)
                && self.would_starve(due, candidate)
        })
    }

    fn would_starve(&self, due: &Waiter, candidate: &Waiter) -> bool {
        let mut both = numbers(&due.request.amount);
        for (sum, more) in both.iter_mut().zip(numbers(&candidate.request.amount)) {
            *sum += more;
        }
        self.applying(&candidate.request)
            .into_iter()
            .any(|applies| {
                applies.is_shared(&candidate.request, &due.request)
                    && self.lacks(applies, &candidate.request, &both)
            })
    }

    fn grant(&mut self, at: Instant, id: &BookingId) -> Fence {
        let Some(place) = self.waiting.iter().position(|waiter| waiter.id == *id) else {
            return Fence(0);
        };
        let granted = self.waiting.remove(place);
        self.note_passes(at, &granted);
        let weight = u128::from(self.weight(&granted.request));
        let step_floor = (u128::from(granted.request.amount.slots) << 64) / weight;
        let turn = self
            .turns
            .entry(granted.request.tenant.clone())
            .or_default();
        self.virtual_time = self.virtual_time.max(*turn);
        *turn += step_floor;
        self.fence += 1;
        let fence = Fence(self.fence);
        let mut holder = Holder {
            request: granted.request,
            fence,
            until: None,
            way: Way::default(),
        };
        holder.until = Some(at.after(holder.again()));
        self.holders.insert(granted.id, holder);
        fence
    }

    /// Every head before it that lacks a shared limit it uses, and nothing of its own, is passed.
    fn note_passes(&mut self, at: Instant, granted: &Waiter) {
        let key = self.key(at, granted);
        let lacks_shared = |head: &Waiter| {
            let amount = numbers(&head.request.amount);
            self.applying(&head.request).into_iter().any(|applies| {
                !applies.is_own()
                    && applies.is_shared(&head.request, &granted.request)
                    && self.lacks(applies, &head.request, &amount)
            })
        };
        let mut passed: Vec<(Key, BookingId)> = self
            .heads()
            .into_iter()
            .map(|head| (self.key(at, head), head))
            .filter(|(other, _)| *other < key)
            .filter(|(_, head)| lacks_shared(head) && !self.lacks_own(&head.request))
            .map(|(other, head)| (other, head.id.clone()))
            .collect();
        passed.sort();
        for (_, id) in passed {
            let Some(waiter) = self.waiting.iter_mut().find(|waiter| waiter.id == id) else {
                continue;
            };
            waiter.passes += 1;
            if waiter.passes == 100 {
                waiter.due = Some(self.dues);
                self.dues += 1;
            }
        }
    }
}
