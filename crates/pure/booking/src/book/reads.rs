//! Reads of bookings and limits, and the description of a booking in an event.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::{BookingId, Instant, Label};

use super::{Bookings, Deadline, Standing};
use crate::archive::{Archive, Ended, Terms};
use crate::execution::Order;
use crate::limit::Declared;
use crate::request::{End, Fence, Request};
use crate::{Brief, Event};

impl Bookings {
    /// State of a booking; `None` for an unknown id.
    pub fn standing(&self, id: &BookingId) -> Option<Standing<'_>> {
        if let Some(granted) = self.granted.get(id) {
            return Some(Standing::Granted(granted));
        }
        if let Some(queued) = self.queued.get(id) {
            return Some(queued.standing());
        }
        self.archive.get(id).map(Standing::Ended)
    }

    /// Request of a booking.
    pub fn request(&self, id: &BookingId) -> Option<Request> {
        let terms = match (self.granted.get(id), self.queued.get(id)) {
            (Some(granted), _) => granted.terms.clone(),
            (None, Some(queued)) => queued.terms.clone(),
            (None, None) => self.archive.get(id)?.terms(),
        };
        self.request_of(id, terms)
    }

    /// Order of an execution; `None` for a plain booking.
    pub fn order(&self, id: &BookingId) -> Option<&Order> {
        match (self.granted.get(id), self.queued.get(id)) {
            (Some(granted), _) => granted.terms.order(),
            (None, Some(queued)) => queued.terms.order(),
            (None, None) => self.archive.get(id)?.order(),
        }
    }

    /// The remark on a booking.
    pub fn note(&self, id: &BookingId) -> Option<&str> {
        match (self.granted.get(id), self.queued.get(id)) {
            (Some(granted), _) => granted.terms.note(),
            (None, Some(queued)) => queued.terms.note(),
            (None, None) => self.archive.get(id)?.note(),
        }
    }

    /// Ids of granted and queued bookings, in order, from the first above `after`.
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

    /// Numbers of granted, queued and remembered bookings.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.granted.len(), self.queued.len(), self.archive.len())
    }

    /// Class and tenant of an ended booking.
    pub fn ended_labels(&self, ended: &Ended) -> Option<(&Label, &Label)> {
        Some((
            self.classes.label(ended.class)?,
            self.tenants.label(ended.tenant)?,
        ))
    }

    /// Limits, by name.
    pub fn limits(&self) -> impl Iterator<Item = &Declared> {
        self.limits.iter()
    }

    /// Limit of that name.
    pub fn limit(&self, name: &str) -> Option<&Declared> {
        self.limits.get(name)
    }

    /// Earliest deadline.
    pub fn next_deadline(&self) -> Option<&Deadline> {
        self.deadlines.first()
    }

    /// Deadlines that have passed at `now`, in order.
    pub fn due(&self, now: Instant) -> impl Iterator<Item = &Deadline> {
        self.deadlines
            .iter()
            .take_while(move |deadline| deadline.at <= now)
    }

    /// Whether grants are owed, which come before any other command (L9).
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.is_some()
    }

    /// The last fence given out.
    pub fn last_fence(&self) -> Fence {
        self.fence
    }

    /// Copy for plans (L3): limits, counters and the waiting room; of granted and ended bookings
    /// only those in `ids`.
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

    /// Describes the booking of an event that has not been applied yet.
    pub(crate) fn describe(&self, at: Instant, event: &mut Event) {
        let ends = match event {
            Event::Ended { end, .. } => Some(*end),
            Event::Exited { .. } => Some(End::Released),
            _ => None,
        };
        if let Some((id, of)) = event.brief_mut() {
            *of = self.brief(at, id, ends).map(Box::new);
        }
    }

    fn brief(&self, at: Instant, id: &BookingId, ends: Option<End>) -> Option<Brief> {
        let past;
        let (terms, waited, held) = match (self.granted.get(id), self.queued.get(id)) {
            (Some(granted), _) => {
                let waited = granted.granted_at.since(granted.queued_at);
                (&granted.terms, waited, Some(at.since(granted.granted_at)))
            }
            (None, Some(queued)) => (&queued.terms, at.since(queued.since), None),
            (None, None) => {
                let ended = self.archive.get(id)?;
                past = ended.terms();
                let until = ended.granted().map_or(ended.ended_at(), |(at, _)| at);
                (&past, until.since(ended.queued_at()), None)
            }
        };
        let amount = &terms.amount;
        Some(Brief {
            class: self.classes.label(terms.class)?.clone(),
            tenant: self.tenants.label(terms.tenant)?.clone(),
            slots: amount.slots,
            cpu_milli: amount.cpu_milli,
            memory_bytes: amount.memory_bytes,
            gpus: amount.gpus,
            waited,
            held: held.filter(|_| ends.is_some()),
            allowed: match ends {
                Some(End::Expired) => Some(terms.ttl),
                Some(End::WaitOver) => Some(terms.wait),
                _ => None,
            },
        })
    }
}
