//! The machine that runs work: processes on virtual time, and the truth about them.
//!
//! It does what the process of the newest term says, so that a stale leader begins nothing (X6).
//! While anything of an id is there, it starts the id at most once; an execution that was stopped
//! before it began never begins (X2). The checker believes this machine, and not the ledger, about
//! the processes that live.

use std::collections::BTreeMap;

use bursar_booking::Fence;
use bursar_booking::execution::Exit;
use bursar_units::{BookingId, Millis};

use crate::rng::Rng;

/// The machine.
#[derive(Debug)]
pub(super) struct Host {
    rng: Rng,
    places: BTreeMap<BookingId, Place>,
    /// Exits of the executions whose place was cleaned.
    past: BTreeMap<(BookingId, Fence), Exit>,
    /// The newest term.
    term: u64,
    effects: Vec<Effect>,
}

/// An effect on the machine that the world has yet to check or count.
#[derive(Debug)]
pub(super) enum Effect {
    /// A process was started under a grant; `again` if the grant had one before.
    Started {
        id: BookingId,
        fence: Fence,
        again: bool,
    },
    /// The rest of an execution was removed.
    Cleaned { id: BookingId, fence: Fence },
    /// A process without a slot was ended.
    EndedAfterForce,
    /// A process of an older term was not obeyed.
    NotObeyed,
}

/// Everything that is there of an id.
#[derive(Debug)]
struct Place {
    fence: Fence,
    begins_ms: u64,
    ends_ms: u64,
    exit: Exit,
    /// Number of stops that the process ignores.
    deaf: u32,
}

/// The state of an id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Seen {
    Absent,
    /// It runs from then on.
    Beginning(u64),
    /// It runs until then, if nobody stops it.
    Running(u64),
    Gone(Exit),
}

impl Host {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            rng,
            places: BTreeMap::new(),
            past: BTreeMap::new(),
            term: 0,
            effects: Vec::new(),
        }
    }

    /// Obeys the process of a term from now on, and none of an older one.
    pub(super) fn obey(&mut self, term: u64) {
        self.term = self.term.max(term);
    }

    /// Whether it does what the process of that term says.
    pub(super) fn obeys(&mut self, term: u64) -> bool {
        let obeys = self.term == term;
        if !obeys {
            self.effects.push(Effect::NotObeyed);
        }
        obeys
    }

    /// The effects since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
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

    /// Whether a process lives, or will yet begin.
    pub(super) fn is_alive(&self, id: &BookingId, fence: Fence, now_ms: u64) -> bool {
        let place = self.places.get(id);
        place.is_some_and(|place| place.fence == fence && now_ms < place.ends_ms)
    }

    /// The ids whose process runs.
    pub(super) fn running(&self, now_ms: u64) -> Vec<BookingId> {
        let runs = |place: &Place| place.begins_ms <= now_ms && now_ms < place.ends_ms;
        let running = self.places.iter().filter(|(_, place)| runs(place));
        running.map(|(id, _)| id.clone()).collect()
    }

    /// The exit of an id under a grant, if it has or will have one.
    pub(super) fn exit_of(&self, id: &BookingId, fence: Fence) -> Option<&Exit> {
        let place = self.places.get(id).filter(|place| place.fence == fence);
        let past = self.past.get(&(id.clone(), fence));
        place.map(|place| &place.exit).or(past)
    }

    /// Begins a process, unless something of the grant is there. The rest of an earlier grant of
    /// the same id goes first, as on a real machine.
    pub(super) fn start(&mut self, id: &BookingId, fence: Fence, now_ms: u64) {
        let earlier = self.places.get(id).filter(|place| place.fence != fence);
        if earlier.is_some_and(|place| place.ends_ms <= now_ms) {
            self.remove(id);
        }
        if self.places.contains_key(id) {
            return;
        }
        let again = self.exit_of(id, fence).is_some();
        let place = Place::draw(fence, now_ms, &mut self.rng);
        self.places.insert(id.clone(), place);
        let id = id.clone();
        self.effects.push(Effect::Started { id, fence, again });
    }

    /// Asks a process to end: the time of its end, or `None` if it ignores the stop. An id that
    /// holds its slot under `grant` and was not started never will be.
    pub(super) fn stop(
        &mut self,
        id: &BookingId,
        grant: Option<Fence>,
        grace: Millis,
        now_ms: u64,
    ) -> Option<u64> {
        if let (Some(fence), false) = (grant, self.places.contains_key(id)) {
            let never = Place::never(fence, now_ms);
            self.places.insert(id.clone(), never);
        }
        let Some(place) = self.places.get_mut(id) else {
            return Some(now_ms);
        };
        if now_ms < place.begins_ms {
            *place = Place::never(place.fence, now_ms);
        } else if now_ms < place.ends_ms {
            if place.deaf > 0 {
                place.deaf -= 1;
                return None;
            }
            if grant.is_none() {
                self.effects.push(Effect::EndedAfterForce);
            }
            let ends_ms = now_ms + self.rng.below(grace.ms() + 1);
            if ends_ms < place.ends_ms {
                place.ends_ms = ends_ms;
                // Some take a stop as a wish and end well, most just end, some must be killed.
                place.exit = match self.rng.below(4) {
                    0 => Exit::Code(0),
                    1 => Exit::Signal(9),
                    _ => Exit::Signal(15),
                };
            }
        }
        Some(place.ends_ms)
    }

    /// Ends and removes the rest of an id; returns whether that worked.
    pub(super) fn clean(&mut self, id: &BookingId, now_ms: u64) -> bool {
        let Some(place) = self.places.get_mut(id) else {
            return true;
        };
        if now_ms < place.begins_ms {
            *place = Place::never(place.fence, now_ms);
        } else if now_ms < place.ends_ms {
            if place.deaf > 0 {
                place.deaf -= 1;
                return false;
            }
            (place.ends_ms, place.exit) = (now_ms, Exit::Signal(9));
            self.effects.push(Effect::EndedAfterForce);
        }
        let (id, fence) = (id.clone(), place.fence);
        self.remove(&id);
        self.effects.push(Effect::Cleaned { id, fence });
        true
    }

    /// All processes die with the machine, and nobody knows how. Those that had not begun never
    /// were.
    pub(super) fn reboot(&mut self, now_ms: u64) {
        self.places.retain(|_, place| place.begins_ms <= now_ms);
        for place in self.places.values_mut() {
            place.lose(now_ms);
        }
    }

    /// The shim of a process is killed, and the process with it.
    pub(super) fn lose(&mut self, id: &BookingId, now_ms: u64) {
        if let Some(place) = self.places.get_mut(id) {
            place.lose(now_ms);
        }
    }

    /// From now on every process obeys a stop.
    pub(super) fn heal(&mut self) {
        for place in self.places.values_mut() {
            place.deaf = 0;
        }
    }

    fn remove(&mut self, id: &BookingId) {
        if let Some(place) = self.places.remove(id) {
            self.past.insert((id.clone(), place.fence), place.exit);
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

    /// A place of an execution that never begins.
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
