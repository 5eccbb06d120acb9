//! The machine that runs work: processes on virtual time, and the truth about them.
//!
//! It is told what to do by whoever leads. While anything of an id is there it starts it at most
//! once; what was stopped before it began never will (X2). Of two terms it obeys the newer, so
//! that a stale leader begins nothing (X6). The checker believes it, and not the ledger, about
//! who is alive.

use std::collections::BTreeMap;

use bursar_booking::Fence;
use bursar_booking::execution::Exit;
use bursar_units::{BookingId, Millis};

use crate::rng::Rng;

/// The machine.
#[derive(Debug, Default)]
pub(super) struct Host {
    places: BTreeMap<BookingId, Place>,
    /// What became of those whose place was cleaned.
    past: BTreeMap<(BookingId, Fence), Exit>,
    /// The newest term that it has seen.
    term: u64,
}

/// All there is of an id: it begins then, ends then, and so.
#[derive(Debug)]
struct Place {
    fence: Fence,
    begins_ms: u64,
    ends_ms: u64,
    exit: Exit,
    /// So many stops it does not hear.
    deaf: u32,
}

/// What a look at an id shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Seen {
    Absent,
    /// It will run from then on.
    Beginning(u64),
    /// It runs until then, if nobody stops it.
    Running(u64),
    Gone(Exit),
}

impl Host {
    /// Whether it does what somebody of that term says.
    pub(super) fn obeys(&mut self, term: u64) -> bool {
        self.term = self.term.max(term);
        self.term == term
    }

    pub(super) fn look(&self, id: &BookingId, now_ms: u64) -> Seen {
        match self.places.get(id) {
            None => Seen::Absent,
            Some(place) if now_ms < place.begins_ms => Seen::Beginning(place.begins_ms),
            Some(place) if now_ms < place.ends_ms => Seen::Running(place.ends_ms),
            Some(place) => Seen::Gone(place.exit.clone()),
        }
    }

    /// The ids of which something is there.
    pub(super) fn ids(&self) -> impl Iterator<Item = &BookingId> {
        self.places.keys()
    }

    /// Whether a process lives, or will yet begin to.
    pub(super) fn is_alive(&self, id: &BookingId, fence: Fence, now_ms: u64) -> bool {
        let place = self.places.get(id);
        place.is_some_and(|place| place.fence == fence && now_ms < place.ends_ms)
    }

    /// Those that run.
    pub(super) fn running(&self, now_ms: u64) -> Vec<BookingId> {
        let runs = |place: &Place| place.begins_ms <= now_ms && now_ms < place.ends_ms;
        let running = self.places.iter().filter(|(_, place)| runs(place));
        running.map(|(id, _)| id.clone()).collect()
    }

    /// What became of an id under a grant, where it is over.
    pub(super) fn exit_of(&self, id: &BookingId, fence: Fence) -> Option<&Exit> {
        let place = self.places.get(id).filter(|place| place.fence == fence);
        let past = self.past.get(&(id.clone(), fence));
        place.map(|place| &place.exit).or(past)
    }

    /// Begins a process, or finds that it cannot; when there is more to see.
    pub(super) fn start(
        &mut self,
        id: &BookingId,
        fence: Fence,
        now_ms: u64,
        rng: &mut Rng,
    ) -> u64 {
        let place = Place::draw(fence, now_ms, rng);
        let next_ms = place.begins_ms;
        self.places.entry(id.clone()).or_insert(place);
        next_ms
    }

    /// Asks a process to end; by when it will, or `None` where it does not hear.
    pub(super) fn stop(
        &mut self,
        id: &BookingId,
        fence: Fence,
        grace: Millis,
        now_ms: u64,
        rng: &mut Rng,
    ) -> Option<u64> {
        let place = self
            .places
            .entry(id.clone())
            .or_insert_with(|| Place::never(fence, now_ms));
        if now_ms < place.begins_ms {
            *place = Place::never(place.fence, now_ms);
        } else if now_ms < place.ends_ms {
            if place.deaf > 0 {
                place.deaf -= 1;
                return None;
            }
            let ends_ms = now_ms + rng.below(grace.ms() + 1);
            if ends_ms < place.ends_ms {
                place.ends_ms = ends_ms;
                // Some take a stop as a wish and end well, most just end, some must be killed.
                place.exit = match rng.below(4) {
                    0 => Exit::Code(0),
                    1 => Exit::Signal(9),
                    _ => Exit::Signal(15),
                };
            }
        }
        Some(place.ends_ms)
    }

    /// Removes what is left of an id whose process is gone.
    pub(super) fn clean(&mut self, id: &BookingId) {
        if let Some(place) = self.places.remove(id) {
            self.past.insert((id.clone(), place.fence), place.exit);
        }
    }

    /// The grant under which something of an id is there.
    pub(super) fn fence_of(&self, id: &BookingId) -> Option<Fence> {
        self.places.get(id).map(|place| place.fence)
    }

    /// All processes die with the machine, and nobody knows how; what had not begun has not.
    pub(super) fn reboot(&mut self, now_ms: u64) {
        self.places.retain(|_, place| place.begins_ms <= now_ms);
        for place in self.places.values_mut() {
            place.lose(now_ms);
        }
    }

    /// Whoever watched a process is killed, and the process with it.
    pub(super) fn lose(&mut self, id: &BookingId, now_ms: u64) {
        if let Some(place) = self.places.get_mut(id) {
            place.lose(now_ms);
        }
    }

    /// Somebody at the machine sees to it that every process hears.
    pub(super) fn heal(&mut self) {
        for place in self.places.values_mut() {
            place.deaf = 0;
        }
    }
}

impl Place {
    fn draw(fence: Fence, now_ms: u64, rng: &mut Rng) -> Self {
        if rng.once_in(25) {
            let reason = "no such file".to_owned();
            return Self {
                exit: Exit::NotStarted(reason),
                ..Self::never(fence, now_ms)
            };
        }
        let longest_ms = if rng.once_in(12) { 6_000 } else { 200 };
        let delay_ms = rng.below(longest_ms);
        let deaf = match rng.below(16) {
            0 | 1 => 1 + u32::try_from(rng.below(3)).unwrap_or(0),
            2 => u32::MAX,
            _ => 0,
        };
        let length_ms = match rng.below(6) {
            _ if deaf == u32::MAX => rng.between(60_000, 1_200_000),
            0 => rng.between(1, 60_000),
            1 => rng.between(1, 300),
            _ => rng.between(1, 4_000),
        };
        let exit = match rng.below(8) {
            0 => Exit::Signal(11),
            1 => Exit::OutOfMemory {
                code: None,
                signal: Some(9),
            },
            2 => Exit::Code(7),
            _ => Exit::Code(0),
        };
        let begins_ms = now_ms + delay_ms;
        Self {
            fence,
            begins_ms,
            ends_ms: begins_ms + length_ms,
            exit,
            deaf,
        }
    }

    /// One that never begins.
    fn never(fence: Fence, now_ms: u64) -> Self {
        let reason = "stopped before it started".to_owned();
        Self {
            fence,
            begins_ms: now_ms,
            ends_ms: now_ms,
            exit: Exit::NotStarted(reason),
            deaf: 0,
        }
    }

    fn lose(&mut self, now_ms: u64) {
        if now_ms < self.ends_ms {
            self.ends_ms = now_ms;
            self.exit = Exit::Lost;
        }
    }
}
