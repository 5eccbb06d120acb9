//! Invariants of the state after every record, checked without the code that maintains them.
//!
//! [`check`] counts everything again from the bookings and applies S3 and S4 to its own numbers. It
//! is linear in the live bookings and skips the inside of the archive, so that a simulator can call
//! it after every record.
//!
//! A limit may be exceeded: it can be lowered below the amount held, and evicts nobody (S1).
//! [`over_limit`] lists the counters above their bounds; a grant must not add to that list.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::{Amount, BookingId, Dimension, Instant, Label, Total};
use thiserror::Error;

use crate::archive::Terms;
use crate::book::{Bookings, Counter, wait_deadline};
use crate::execution::{STOPS_UNTIL_STUCK, Stage};
use crate::limit::{Declared, Kind, LimitUse};
use crate::request::Fence;
use crate::room::{Lane, Waiting};
use crate::{PASSES_UNTIL_DUE, REMEMBERED, REMEMBERED_MAX};

/// A broken invariant.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Broken {
    /// A counter differs from its bookings.
    #[error(
        "the counter of {of} has {kept:?} and {kept_waiting} waiting, its bookings add up to {counted:?} and {counted_waiting} waiting"
    )]
    Counter {
        /// Kind, class and tenant of the counter.
        of: String,
        /// Amount held, by the counter.
        kept: Box<Total>,
        /// Waiting bookings, by the counter.
        kept_waiting: u64,
        /// Amount held, by the bookings.
        counted: Box<Total>,
        /// Waiting bookings.
        counted_waiting: u64,
    },
    /// A pair of class and tenant is missing or left over.
    #[error(
        "{kept} pairs of class and tenant are kept and {counted} in use; they hold {held_count} of {granted_count} grants"
    )]
    Pairs {
        /// Number of pairs in the state.
        kept: usize,
        /// Number of pairs with a granted or queued booking.
        counted: usize,
        /// Number of grants, by the pairs.
        held_count: u64,
        /// Number of grants.
        granted_count: u64,
    },
    /// A booking refers to an unknown class or tenant.
    #[error("the class or tenant of `{id}` is not known")]
    Name {
        /// Booking.
        id: BookingId,
    },
    /// The cached limits of a class and tenant differ from the declared ones.
    #[error(
        "the cached limits of class `{class}`, tenant `{tenant}` differ from the declared ones"
    )]
    Limits {
        /// Class.
        class: Label,
        /// Tenant.
        tenant: Label,
    },
    /// A live booking has no deadline.
    #[error("`{id}` has no deadline at {at:?}")]
    Deadline {
        /// Booking.
        id: BookingId,
        /// Time at which it should be.
        at: Instant,
    },
    /// The number of deadlines differs from that of bookings with one.
    #[error("{live} bookings have a deadline and {deadlines} are kept")]
    Deadlines {
        /// Number of bookings with a deadline.
        live: usize,
        /// Number of deadlines.
        deadlines: usize,
    },
    /// Stage, times and deadline of an execution contradict each other.
    #[error("the stage of execution `{id}` contradicts its times")]
    Execution {
        /// Execution.
        id: BookingId,
    },
    /// One id is in two of queued, granted and ended.
    #[error("`{id}` is in two of queued, granted and ended")]
    TwoStandings {
        /// Booking.
        id: BookingId,
    },
    /// Two bookings share a fence, or a fence was never given out.
    #[error("fence {} of `{id}` belongs to another booking too, or was never given out", fence.0)]
    Fence {
        /// Holder.
        id: BookingId,
        /// Fence.
        fence: Fence,
    },
    /// The waiting room and the queued bookings differ, or a lane is out of order.
    #[error("the waiting room does not hold {id:?} as it should")]
    Room {
        /// Booking; `None` if the numbers of the two differ.
        id: Option<BookingId>,
    },
    /// The number of passes contradicts the position among the due heads.
    #[error("`{id}` was passed {passes} times and is due as {due:?}")]
    Due {
        /// Booking.
        id: BookingId,
        /// Number of passes.
        passes: u32,
        /// Position among the due heads.
        due: Option<u64>,
    },
    /// The archive is too long, or an entry cannot be found.
    #[error("the archive has {length} entries: {wrong}")]
    Archive {
        /// Number of entries.
        length: usize,
        /// Mistake.
        wrong: &'static str,
    },
    /// The room is settled, and a booking could be granted.
    #[error("`{id}` could be granted, and the room is settled")]
    Grantable {
        /// Booking.
        id: BookingId,
    },
}

/// Checks all invariants.
pub fn check(bookings: &Bookings) -> Result<(), Broken> {
    let counts = Counts::of(bookings)?;
    check_counters(bookings, &counts)?;
    check_limits(bookings)?;
    check_deadlines(bookings)?;
    check_executions(bookings)?;
    check_standings(bookings)?;
    check_fences(bookings)?;
    check_room(bookings)?;
    check_due(bookings)?;
    check_archive(bookings)?;
    check_settled(bookings, &counts)
}

/// Counters above a bound of their limit, by the limit's kind, then its value.
pub fn over_limit(bookings: &Bookings) -> Vec<LimitUse> {
    let mut seen = BTreeSet::new();
    let mut over = Vec::new();
    for ((class, tenant), pair) in &bookings.pairs {
        for declared in pair.applied.iter() {
            let kind = declared.limit.kind();
            let Some((c, t)) = bookings.labels(*class, *tenant) else {
                continue;
            };
            if !seen.insert(value_of(kind, c, t)) {
                continue;
            }
            let lane = Lane {
                class: *class,
                tenant: *tenant,
                priority: crate::Priority::default(),
            };
            let counter = bookings.counter(kind, *class, *tenant);
            let nothing = Amount::default();
            let exceeded = counter.used.exceeds(&nothing, &declared.bounds);
            over.extend(exceeded.map(|dimension| {
                (
                    value_of(kind, c, t),
                    bookings.limit_use(declared, dimension, lane),
                )
            }));
        }
    }
    over.sort_by(|a, b| a.0.cmp(&b.0));
    over.into_iter().map(|(_, limit_use)| limit_use).collect()
}

/// Key of a counter: kind of limit, class and tenant.
type Value<'a> = (Kind, Option<&'a Label>, Option<&'a Label>);

fn value_of<'a>(kind: Kind, class: &'a Label, tenant: &'a Label) -> Value<'a> {
    match kind {
        Kind::Everything => (kind, None, None),
        Kind::Tenant => (kind, None, Some(tenant)),
        Kind::Class => (kind, Some(class), None),
        Kind::ClassTenant => (kind, Some(class), Some(tenant)),
    }
}

const KINDS: [Kind; 4] = [
    Kind::Everything,
    Kind::Tenant,
    Kind::Class,
    Kind::ClassTenant,
];

/// Counters, counted from the bookings.
struct Counts<'a>(BTreeMap<Value<'a>, Counter>);

impl<'a> Counts<'a> {
    fn of(bookings: &'a Bookings) -> Result<Self, Broken> {
        let mut counts = Self(BTreeMap::new());
        for (id, granted) in &bookings.granted {
            counts.add(bookings, id, &granted.terms, |counter| {
                counter.used.add(&granted.terms.amount);
            })?;
        }
        for (id, queued) in &bookings.queued {
            counts.add(bookings, id, &queued.terms, |counter| counter.waiting += 1)?;
        }
        Ok(counts)
    }

    fn add(
        &mut self,
        bookings: &'a Bookings,
        id: &BookingId,
        terms: &Terms,
        count: impl Fn(&mut Counter),
    ) -> Result<(), Broken> {
        let labels = bookings.labels(terms.class, terms.tenant);
        let (class, tenant) = labels.ok_or_else(|| Broken::Name { id: id.clone() })?;
        for kind in KINDS {
            count(self.0.entry(value_of(kind, class, tenant)).or_default());
        }
        Ok(())
    }

    fn get(&self, value: Value<'_>) -> Counter {
        self.0.get(&value).cloned().unwrap_or_default()
    }

    /// Whether `used + amount` is above the limit in some dimension.
    fn lacks(
        &self,
        declared: &Declared,
        (class, tenant): (&Label, &Label),
        amount: &Total,
    ) -> bool {
        let used = self
            .get(value_of(declared.limit.kind(), class, tenant))
            .used;
        Dimension::ALL.into_iter().any(|dimension| {
            declared
                .bounds
                .of(dimension)
                .is_some_and(|max| u128::from(max) < used.of(dimension) + amount.of(dimension))
        })
    }
}

fn check_counters(bookings: &Bookings, counts: &Counts<'_>) -> Result<(), Broken> {
    compare(counts, (Kind::Everything, None, None), &bookings.everything)?;
    for (label, class) in bookings.classes.iter() {
        compare(counts, (Kind::Class, Some(label), None), &class.counter)?;
    }
    for (label, tenant) in bookings.tenants.iter() {
        compare(counts, (Kind::Tenant, None, Some(label)), &tenant.counter)?;
    }
    let mut held_count = 0;
    for ((class, tenant), pair) in &bookings.pairs {
        let (class, tenant) = bookings.labels(*class, *tenant).unzip();
        compare(counts, (Kind::ClassTenant, class, tenant), &pair.counter)?;
        held_count += pair.held;
    }
    let counted = counts
        .0
        .keys()
        .filter(|(kind, ..)| *kind == Kind::ClassTenant)
        .count();
    let granted_count = u64::try_from(bookings.granted.len()).unwrap_or(u64::MAX);
    if counted == bookings.pairs.len() && held_count == granted_count {
        return Ok(());
    }
    Err(Broken::Pairs {
        kept: bookings.pairs.len(),
        counted,
        held_count,
        granted_count,
    })
}

fn compare(counts: &Counts<'_>, value: Value<'_>, kept: &Counter) -> Result<(), Broken> {
    let counted = counts.get(value);
    if counted.used == kept.used && counted.waiting == kept.waiting {
        return Ok(());
    }
    let (kind, class, tenant) = value;
    Err(Broken::Counter {
        of: format!("{kind:?}, class {class:?}, tenant {tenant:?}"),
        kept: Box::new(kept.used),
        kept_waiting: kept.waiting,
        counted: Box::new(counted.used),
        counted_waiting: counted.waiting,
    })
}

fn check_limits(bookings: &Bookings) -> Result<(), Broken> {
    for ((class, tenant), pair) in &bookings.pairs {
        let Some((class, tenant)) = bookings.labels(*class, *tenant) else {
            continue;
        };
        let declared = bookings.limits.applied(class, tenant);
        if !declared.iter().eq(pair.applied.iter()) {
            return Err(Broken::Limits {
                class: class.clone(),
                tenant: tenant.clone(),
            });
        }
    }
    Ok(())
}

fn check_deadlines(bookings: &Bookings) -> Result<(), Broken> {
    let holds = bookings
        .granted
        .iter()
        .filter_map(|(id, granted)| granted.deadline(id));
    let live = holds.clone().count() + bookings.queued.len();
    let waits = bookings
        .queued
        .iter()
        .map(|(id, queued)| wait_deadline(id, queued.until));
    for deadline in holds.chain(waits) {
        if !bookings.deadlines.contains(&deadline) {
            return Err(Broken::Deadline {
                id: deadline.id,
                at: deadline.at,
            });
        }
    }
    let deadlines = bookings.deadlines.len();
    if live == deadlines {
        Ok(())
    } else {
        Err(Broken::Deadlines { live, deadlines })
    }
}

/// A plain booking always has a deadline, an execution while it starts or runs. A running one has a
/// start, a stopping one a cause (X1).
fn check_executions(bookings: &Bookings) -> Result<(), Broken> {
    for (id, granted) in &bookings.granted {
        let is_right = match (granted.terms.order(), granted.progress()) {
            (None, None) => granted.until.is_some(),
            (Some(_), Some(progress)) => {
                let is_timed = granted.until.is_some();
                let has_run = progress.started.is_some();
                let is_stopped = progress.stopping.is_some();
                match progress.stage {
                    Stage::Starting => is_timed && !has_run && !is_stopped,
                    Stage::Running => is_timed && has_run && !is_stopped,
                    Stage::Stopping(failed) => {
                        !is_timed && is_stopped && failed < STOPS_UNTIL_STUCK
                    }
                    Stage::Stuck => !is_timed && is_stopped,
                }
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !is_right {
            return Err(Broken::Execution { id: id.clone() });
        }
    }
    Ok(())
}

fn check_standings(bookings: &Bookings) -> Result<(), Broken> {
    let holds_and_waits = bookings
        .queued
        .keys()
        .find(|id| bookings.granted.contains_key(*id));
    let mut live = bookings.granted.keys().chain(bookings.queued.keys());
    match holds_and_waits.or_else(|| live.find(|id| bookings.archive.get(id).is_some())) {
        Some(id) => Err(Broken::TwoStandings { id: id.clone() }),
        None => Ok(()),
    }
}

fn check_fences(bookings: &Bookings) -> Result<(), Broken> {
    let mut seen = BTreeSet::new();
    let wrong = bookings.granted.iter().find(|(_, granted)| {
        let fence = granted.fence;
        fence.0 == 0 || bookings.fence < fence || !seen.insert(fence)
    });
    match wrong {
        Some((id, granted)) => Err(Broken::Fence {
            id: id.clone(),
            fence: granted.fence,
        }),
        None => Ok(()),
    }
}

fn check_room(bookings: &Bookings) -> Result<(), Broken> {
    let mut waiting_count = 0;
    for (lane, queue) in bookings.room.lanes() {
        let mut before = 0;
        for waiting in queue {
            let matches = bookings.queued.get(&waiting.id).is_some_and(|queued| {
                queued.sequence == waiting.sequence
                    && queued.since == waiting.since
                    && queued.terms.amount == waiting.amount
                    && queued.terms.lane() == lane
            });
            if !matches || waiting.sequence <= before || bookings.sequence < waiting.sequence {
                return Err(Broken::Room {
                    id: Some(waiting.id.clone()),
                });
            }
            before = waiting.sequence;
        }
        waiting_count += queue.len();
        if queue.is_empty() {
            return Err(Broken::Room { id: None });
        }
    }
    let agrees_on_empty = bookings.room.is_empty() == bookings.queued.is_empty();
    if waiting_count == bookings.queued.len() && agrees_on_empty {
        Ok(())
    } else {
        Err(Broken::Room { id: None })
    }
}

/// Only heads are passed. A head is due from its hundredth pass until it leaves.
fn check_due(bookings: &Bookings) -> Result<(), Broken> {
    let mut due = BTreeMap::new();
    for (lane, queue) in bookings.room.lanes() {
        for (place, waiting) in queue.iter().enumerate() {
            let is_due = PASSES_UNTIL_DUE <= waiting.passes;
            let is_new = waiting.due.is_none_or(|number| {
                number < bookings.dues && due.insert(number, (lane, waiting.sequence)).is_none()
            });
            let was_passed_behind_head = place > 0 && waiting.passes > 0;
            if was_passed_behind_head || waiting.due.is_some() != is_due || !is_new {
                return Err(Broken::Due {
                    id: waiting.id.clone(),
                    passes: waiting.passes,
                    due: waiting.due,
                });
            }
        }
    }
    let kept = bookings
        .room
        .due_heads()
        .map(|(number, lane, head)| (number, (lane, head.sequence)));
    if kept.eq(due) {
        Ok(())
    } else {
        Err(Broken::Room { id: None })
    }
}

fn check_archive(bookings: &Bookings) -> Result<(), Broken> {
    let archive = &bookings.archive;
    let length = archive.len();
    let broken = |wrong| Err(Broken::Archive { length, wrong });
    if REMEMBERED_MAX < length {
        return broken("they are too many");
    }
    let (oldest, newest) = (archive.front(), archive.iter().next_back());
    if (oldest.is_none(), newest.is_none()) != (length == 0, length == 0) {
        return broken("the number is wrong");
    }
    let (Some(oldest), Some(newest)) = (oldest, newest) else {
        return Ok(());
    };
    if oldest.ended_at().after(REMEMBERED) <= newest.ended_at() {
        return broken("the oldest one is too old");
    }
    let is_found = |ended: &crate::Ended| {
        archive
            .get(ended.id())
            .is_some_and(|found| found.ended_at() == ended.ended_at())
    };
    if is_found(oldest) && is_found(newest) {
        Ok(())
    } else {
        broken("one is not found by its id")
    }
}

/// A settled room has no head that fits and is not shielded, at any time.
fn check_settled(bookings: &Bookings, counts: &Counts<'_>) -> Result<(), Broken> {
    if bookings.is_unsettled() {
        return Ok(());
    }
    let heads: Vec<Head<'_>> = bookings
        .room
        .heads()
        .filter_map(|(lane, waiting)| Head::new(bookings, counts, lane, waiting))
        .collect();
    let due: Vec<&Head<'_>> = heads
        .iter()
        .filter(|head| head.waiting.due.is_some() && !head.lacks_own && head.can_ever_fit)
        .collect();
    let grantable = heads.iter().filter(|head| head.fits).find(|head| {
        !due.iter().any(|other| {
            let is_earlier = head
                .waiting
                .due
                .is_none_or(|mine| other.waiting.due < Some(mine));
            is_earlier && other.is_starved_by(head, counts)
        })
    });
    match grantable {
        Some(head) => Err(Broken::Grantable {
            id: head.waiting.id.clone(),
        }),
        None => Ok(()),
    }
}

/// Head of a lane, with the inputs of the rule.
struct Head<'a> {
    class: &'a Label,
    tenant: &'a Label,
    waiting: &'a Waiting,
    limits: Vec<&'a Declared>,
    fits: bool,
    lacks_own: bool,
    can_ever_fit: bool,
}

impl<'a> Head<'a> {
    fn new(
        bookings: &'a Bookings,
        counts: &Counts<'_>,
        lane: Lane,
        waiting: &'a Waiting,
    ) -> Option<Self> {
        let (class, tenant) = bookings.labels(lane.class, lane.tenant)?;
        let pair = bookings.pairs.get(&(lane.class, lane.tenant))?;
        let limits: Vec<&Declared> = pair.applied.iter().collect();
        let lacks = |limit: &Declared| counts.lacks(limit, (class, tenant), &waiting.amount.into());
        let is_own = |limit: &&&Declared| limit.limit.tenant.is_some();
        Some(Self {
            class,
            tenant,
            waiting,
            fits: !limits.iter().any(|limit| lacks(limit)),
            lacks_own: limits.iter().filter(is_own).any(|limit| lacks(limit)),
            can_ever_fit: limits.iter().all(|limit| is_within(limit, &waiting.amount)),
            limits,
        })
    }

    /// Whether a grant to `other` leaves less than this head needs of a shared counter.
    fn is_starved_by(&self, other: &Self, counts: &Counts<'_>) -> bool {
        let mut both = Total::from(self.waiting.amount);
        both.add(&other.waiting.amount);
        self.limits.iter().any(|limit| {
            let kind = limit.limit.kind();
            value_of(kind, self.class, self.tenant) == value_of(kind, other.class, other.tenant)
                && counts.lacks(limit, (self.class, self.tenant), &both)
        })
    }
}

/// Whether the amount fits the limit when nothing is held.
fn is_within(declared: &Declared, amount: &Amount) -> bool {
    Dimension::ALL.into_iter().all(|dimension| {
        declared
            .bounds
            .of(dimension)
            .is_none_or(|max| amount.of(dimension) <= max)
    })
}
