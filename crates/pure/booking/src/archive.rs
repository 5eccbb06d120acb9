//! Ended bookings, remembered for a day and at most a million of them (L6).
//!
//! An entry takes about 80 bytes beside its id: rare fields are boxed. Copies of the state share
//! segments, so a snapshot of a million entries costs as much as one of a thousand.

use std::collections::VecDeque;
use std::sync::Arc;

use bursar_units::index::Positions;
use bursar_units::{Amount, BookingId, Instant, Millis};

use crate::execution::{Course, Order};
use crate::names::NameIndex;
use crate::request::{End, Fence, Outcome, Priority};
use crate::room::Lane;

const SEGMENT_LENGTH: usize = 1_024;

/// A booking that has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_field_names, reason = "its three times are named alike")]
pub struct Ended {
    id: BookingId,
    pub(crate) class: NameIndex,
    pub(crate) tenant: NameIndex,
    slots: u32,
    ttl_ms: u32,
    wait_ms: u32,
    priority: Priority,
    end: End,
    outcome: Option<Outcome>,
    rare: Option<Box<Rare>>,
    fence: u64,
    queued_at: Instant,
    granted_at: Instant,
    ended_at: Instant,
}

/// Fields that most bookings leave at their default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Rare {
    cpu_milli: u64,
    memory_bytes: u64,
    gpus: u64,
    /// Slots, ttl and wait where one of them needs more than 32 bits.
    wide: Option<(u64, Millis, Millis)>,
    extras: Option<Box<Extras>>,
    exit_code: Option<i32>,
    reason: Option<String>,
    course: Option<Box<Course>>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    pub(crate) class: NameIndex,
    pub(crate) tenant: NameIndex,
    pub(crate) amount: Amount,
    pub(crate) priority: Priority,
    pub(crate) ttl: Millis,
    pub(crate) wait: Millis,
    pub(crate) extras: Option<Box<Extras>>,
}

/// Rare terms that no limit counts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Extras {
    pub(crate) execution_id: Option<BookingId>,
    pub(crate) cpu_limit_milli: Option<u64>,
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) order: Option<Order>,
    /// The remark that somebody made.
    pub(crate) note: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) end: End,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<String>,
    pub(crate) course: Option<Box<Course>>,
    pub(crate) queued_at: Instant,
    /// Time and fence of the grant, if there was one.
    pub(crate) granted: Option<(Instant, Fence)>,
    pub(crate) ended_at: Instant,
}

impl Terms {
    /// Length of a grant before any renewal: the ttl, or the start timeout of an execution.
    pub(crate) fn first_length(&self) -> Millis {
        self.order().map_or(self.ttl, |order| order.start_timeout)
    }

    pub(crate) fn order(&self) -> Option<&Order> {
        self.extras.as_ref()?.order.as_ref()
    }

    pub(crate) fn note(&self) -> Option<&str> {
        self.extras.as_ref()?.note.as_deref()
    }

    pub(crate) fn set_note(&mut self, note: Option<String>) {
        if note.is_some() {
            self.extras.get_or_insert_default().note = note;
        }
    }

    pub(crate) fn lane(&self) -> Lane {
        Lane {
            class: self.class,
            tenant: self.tenant,
            priority: self.priority,
        }
    }
}

impl Ended {
    pub(crate) fn new(id: BookingId, terms: Terms, ending: Ending) -> Self {
        let narrow = |value: u64| u32::try_from(value).ok();
        let Terms {
            amount: Amount { slots, .. },
            ttl,
            wait,
            ..
        } = terms;
        let numbers = narrow(slots).zip(narrow(ttl.ms())).zip(narrow(wait.ms()));
        let ((slots_narrow, ttl_ms), wait_ms) = numbers.unwrap_or_default();
        let rare = Rare {
            wide: numbers.is_none().then_some((slots, ttl, wait)),
            cpu_milli: terms.amount.cpu_milli,
            memory_bytes: terms.amount.memory_bytes,
            gpus: terms.amount.gpus,
            extras: terms.extras,
            exit_code: ending.exit_code,
            reason: ending.reason,
            course: ending.course,
        };
        let (granted_at, fence) = ending.granted.unwrap_or_default();
        Self {
            id,
            class: terms.class,
            tenant: terms.tenant,
            slots: slots_narrow,
            ttl_ms,
            wait_ms,
            priority: terms.priority,
            end: ending.end,
            outcome: ending.outcome,
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            fence: fence.0,
            queued_at: ending.queued_at,
            granted_at,
            ended_at: ending.ended_at,
        }
    }

    /// Id, chosen by the client.
    pub fn id(&self) -> &BookingId {
        &self.id
    }

    /// Kind of end.
    pub fn end(&self) -> End {
        self.end
    }

    /// Outcome that the holder reported.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Exit code of the work.
    pub fn exit_code(&self) -> Option<i32> {
        self.rare.as_ref()?.exit_code
    }

    /// History of an execution; `None` for a plain booking.
    pub fn course(&self) -> Option<&Course> {
        self.rare.as_ref()?.course.as_deref()
    }

    /// Order of an execution; `None` for a plain booking.
    pub fn order(&self) -> Option<&Order> {
        self.rare.as_ref()?.extras.as_ref()?.order.as_ref()
    }

    /// Reason of a forced end or of a failed start.
    pub fn reason(&self) -> Option<&str> {
        self.rare.as_ref()?.reason.as_deref()
    }

    /// The remark that somebody made.
    pub fn note(&self) -> Option<&str> {
        let extras = self.rare.as_ref()?.extras.as_ref()?;
        extras.note.as_deref()
    }

    /// Time of the request.
    pub fn queued_at(&self) -> Instant {
        self.queued_at
    }

    /// Time and fence of the grant, if there was one; fences start at 1.
    pub fn granted(&self) -> Option<(Instant, Fence)> {
        (self.fence != 0).then_some((self.granted_at, Fence(self.fence)))
    }

    /// Time of the end.
    pub fn ended_at(&self) -> Instant {
        self.ended_at
    }

    pub(crate) fn terms(&self) -> Terms {
        let rare = self.rare.as_deref();
        let narrow = || {
            let (ttl, wait) = (self.ttl_ms.into(), self.wait_ms.into());
            (
                self.slots.into(),
                Millis::from_ms(ttl),
                Millis::from_ms(wait),
            )
        };
        let (slots, ttl, wait) = rare.and_then(|rare| rare.wide).unwrap_or_else(narrow);
        Terms {
            class: self.class,
            tenant: self.tenant,
            amount: Amount {
                slots,
                cpu_milli: rare.map_or(0, |rare| rare.cpu_milli),
                memory_bytes: rare.map_or(0, |rare| rare.memory_bytes),
                gpus: rare.map_or(0, |rare| rare.gpus),
            },
            priority: self.priority,
            ttl,
            wait,
            extras: rare.and_then(|rare| rare.extras.clone()),
        }
    }
}

/// Remembered ends, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Archive {
    segments: VecDeque<Arc<Vec<Ended>>>,
    /// Number of forgotten entries at the front of the first segment.
    forgotten_in_first: usize,
    /// Position of the first entry of the first segment; positions wrap around at 2³².
    first_position: u32,
    length: usize,
    positions: Positions,
}

impl Archive {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn get(&self, id: &BookingId) -> Option<&Ended> {
        let position = self
            .positions
            .find(id.as_str(), |position| self.id_at(position))?;
        self.at(position)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Ended> {
        let skip = self.forgotten_in_first;
        self.segments
            .iter()
            .enumerate()
            .flat_map(move |(at, segment)| segment.iter().skip(if at == 0 { skip } else { 0 }))
    }

    pub(crate) fn front(&self) -> Option<&Ended> {
        self.segments.front()?.get(self.forgotten_in_first)
    }

    pub(crate) fn push(&mut self, ended: Ended) {
        let id = ended.id.clone();
        match self.segments.back_mut() {
            Some(last) if last.len() < SEGMENT_LENGTH => Arc::make_mut(last).push(ended),
            _ => {
                let mut segment = Vec::with_capacity(SEGMENT_LENGTH);
                segment.push(ended);
                self.segments.push_back(Arc::new(segment));
            }
        }
        let offset = self.forgotten_in_first + self.length;
        self.length += 1;
        let position = self
            .first_position
            .wrapping_add(u32::try_from(offset).unwrap_or(u32::MAX));
        let (segments, first) = (&self.segments, self.first_position);
        self.positions.insert(id.as_str(), position, |position| {
            Some(entry(segments, first, position)?.id.as_str())
        });
    }

    pub(crate) fn pop(&mut self) -> Option<Ended> {
        let ended = self.front()?.clone();
        let skipped = u32::try_from(self.forgotten_in_first).unwrap_or(u32::MAX);
        self.positions
            .remove(ended.id.as_str(), self.first_position.wrapping_add(skipped));
        self.forgotten_in_first += 1;
        self.length -= 1;
        if self.forgotten_in_first == SEGMENT_LENGTH {
            self.segments.pop_front();
            self.forgotten_in_first = 0;
            let step = u32::try_from(SEGMENT_LENGTH).unwrap_or(u32::MAX);
            self.first_position = self.first_position.wrapping_add(step);
        }
        Some(ended)
    }

    pub(crate) fn set_note(&mut self, id: &BookingId, text: &str) {
        let position = self
            .positions
            .find(id.as_str(), |position| self.id_at(position));
        let offset = position.map(|position| position.wrapping_sub(self.first_position));
        let offset = offset.and_then(|offset| usize::try_from(offset).ok());
        let ended = offset.and_then(|offset| {
            let segment = self.segments.get_mut(offset / SEGMENT_LENGTH)?;
            Arc::make_mut(segment).get_mut(offset % SEGMENT_LENGTH)
        });
        if let Some(ended) = ended {
            let rare = ended.rare.get_or_insert_default();
            rare.extras.get_or_insert_default().note = Some(text.to_owned());
        }
    }

    fn at(&self, position: u32) -> Option<&Ended> {
        entry(&self.segments, self.first_position, position)
    }

    fn id_at(&self, position: u32) -> Option<&str> {
        Some(self.at(position)?.id.as_str())
    }
}

fn entry(segments: &VecDeque<Arc<Vec<Ended>>>, first: u32, position: u32) -> Option<&Ended> {
    let offset = usize::try_from(position.wrapping_sub(first)).ok()?;
    segments
        .get(offset / SEGMENT_LENGTH)?
        .get(offset % SEGMENT_LENGTH)
}
