//! Explanations of bookings and limits: the reason, the time, and the changes that would help.
//!
//! An [`Explanation`] uses the functions that decide, so it cannot contradict a decision. It has
//! all holders: every surface must call [`held_by`], which hides those that the caller may not see.
//! Fences are never shown.

mod effect;
mod refused;
mod refused_cluster;
pub mod run;
mod saga;

use bursar_booking::book::CounterView;
use bursar_booking::execution::{self, Cause, Progress};
use bursar_booking::limit::{Declared, Kind};
use bursar_booking::position::{Estimate, Position, Reason};
use bursar_booking::{
    ESTIMATE_RESTS_ON_MIN, End, Ended, Granted, LimitUse, Outcome, Priority, Request, Scope,
    Standing,
};
use bursar_units::{Amount, BookingId, Instant, Label, Millis, ObjectName};

use crate::{State, words};

pub use bursar_plane::WaitsFor;
pub use effect::{Changed, Effect, FieldChange, Mood, Previous, change_effect, limit_texts};
pub use refused::{Refused, refused};
pub use refused_cluster::submitted;
pub use saga::{Saga, Step, StepState, saga};

/// Most holders that are named; the others are counted (S1).
pub const HOLDERS_NAMED_MAX: usize = 3;

/// Explanation of a booking or limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Explanation {
    /// Object that is explained.
    pub object: Object,
    /// Answer in one sentence: lower case, no full stop.
    pub headline: String,
    /// Stage of the object.
    pub stage: Stage,
    /// Category of the wait, if it waits.
    pub waits_for: Option<WaitsFor>,
    /// Reason of the wait, if it waits.
    pub reason: Option<Reason>,
    /// Begin of the stage; `None` for a limit.
    pub since: Option<Instant>,
    /// Numbers behind the headline.
    pub why: Why,
    /// Estimated or known time of the next change, if it waits or holds.
    pub when: Option<When>,
    /// Changes that would help.
    pub changes: Vec<String>,
    /// Remark of its tenant or of an operator.
    pub note: Option<String>,
    /// Steps of an execution.
    pub saga: Option<Saga>,
    /// Last record that it takes into account.
    pub record: u64,
}

/// Object of an explanation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Object {
    /// A booking.
    Booking(BookingId),
    /// A limit.
    Limit(ObjectName),
}

/// Stage of a booking or limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// A queued booking.
    Queued,
    /// A granted booking.
    Granted,
    /// An execution whose process is being started.
    Starting,
    /// An execution whose process runs.
    Running,
    /// An execution whose process is being stopped.
    Stopping,
    /// An execution whose process could not be stopped.
    Stuck,
    /// A booking that has ended.
    Ended,
    /// A limit with room.
    Open,
    /// A limit without room.
    Full,
    /// A limit with a bound of zero.
    Paused,
}

/// Numbers behind a headline.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Why {
    /// Requested amount.
    pub needed: Option<Amount>,
    /// Number of bookings of its class that come before it, if it waits.
    pub ahead: Option<u64>,
    /// Limits that are full, headline first; all limits of the booking, if it holds.
    pub limits: Vec<LimitUse>,
    /// Tenants that hold slots under the first of them, most slots first.
    pub holders: Vec<(Label, u64)>,
}

/// An estimate and its basis.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct When {
    /// Milliseconds from now; `None` without a basis for an estimate.
    pub estimate_ms: Option<u64>,
    /// Basis of the estimate, or the reason why there is none.
    pub rests_on: String,
}

/// Holders, as far as a caller may see them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldBy {
    /// Largest holders that the caller may see.
    pub named: Vec<(Label, u64)>,
    /// Number of other holders.
    pub others: u64,
    /// Slots of the other holders together.
    pub others_slots: u64,
}

impl Stage {
    /// Word for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Granted => "granted",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stuck => "stuck",
            Self::Ended => "ended",
            Self::Open => "open",
            Self::Full => "full",
            Self::Paused => "paused",
        }
    }
}

/// Category of a reason of bookings.
pub const fn waits_for(reason: Reason) -> WaitsFor {
    match reason {
        Reason::LimitPaused => WaitsFor::Budget,
        Reason::LimitFull => WaitsFor::Room,
        Reason::Shielded | Reason::QueueOrder => WaitsFor::Turn,
    }
}

impl When {
    /// `about 40s (rests on the last 200 executions)`, or `unknown (…)`.
    pub fn text(&self) -> String {
        match self.estimate_ms {
            Some(ms) => format!("{} (rests on the {})", words::about(ms), self.rests_on),
            None => format!("unknown ({})", self.rests_on),
        }
    }
}

/// Word of a reason, as in conditions.
pub const fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::LimitPaused => "LimitPaused",
        Reason::LimitFull => "LimitFull",
        Reason::Shielded => "Shielded",
        Reason::QueueOrder => "QueueOrder",
    }
}

/// Largest holders that the caller may see, and the number of all others (S1).
pub fn held_by(holders: &[(Label, u64)], may_see: impl Fn(&Label) -> bool) -> HeldBy {
    let mut held_by = HeldBy {
        named: Vec::new(),
        others: 0,
        others_slots: 0,
    };
    for (tenant, slots) in holders {
        if held_by.named.len() < HOLDERS_NAMED_MAX && may_see(tenant) {
            held_by.named.push((tenant.clone(), *slots));
        } else {
            held_by.others += 1;
            held_by.others_slots = held_by.others_slots.saturating_add(*slots);
        }
    }
    held_by
}

/// Explains a booking; `None` if it is not known.
pub fn booking(state: &State, now: Instant, id: &BookingId) -> Option<Explanation> {
    let request = state.bookings.request(id)?;
    let explained = ExplainedBooking {
        state,
        now,
        id,
        request: &request,
    };
    Some(match state.bookings.standing(id)? {
        Standing::Queued { since, .. } => {
            explained.queued(since, state.bookings.position(now, id)?)
        }
        Standing::Granted(granted) => match granted.progress() {
            None => explained.granted(granted),
            Some(progress) => explained.executing(granted, progress),
        },
        Standing::Ended(ended) => explained.ended(ended),
    })
}

/// Explains a limit; `None` if it is not declared. Of several counters it shows the fullest one
/// that the caller may see.
pub fn limit(
    state: &State,
    name: &ObjectName,
    may_see: impl Fn(&CounterView<'_>) -> bool,
) -> Option<Explanation> {
    let declared = state.bookings.limit(name.as_str())?;
    let mut counters = state.bookings.counters_of(declared);
    counters.retain(may_see);
    let fullest = fullest(counters, declared);
    let uses = fullest
        .as_ref()
        .map(|counter| counter.limits.clone())
        .unwrap_or_default();
    let limit_stage = match uses.first() {
        Some(tightest) if tightest.size == 0 => Stage::Paused,
        Some(tightest) if tightest.size <= tightest.in_use => Stage::Full,
        _ => Stage::Open,
    };
    let changes = match limit_stage {
        Stage::Paused => vec![format!("raise limit {name} above 0")],
        Stage::Full => vec!["bookings that are given back".to_owned(), raise(name)],
        _ => Vec::new(),
    };
    let (class, tenant) = fullest
        .as_ref()
        .map_or((None, None), |c| (c.class, c.tenant));
    Some(Explanation {
        object: Object::Limit(name.clone()),
        headline: limit_headline(declared, limit_stage, fullest.as_ref()),
        stage: limit_stage,
        waits_for: None,
        reason: None,
        since: None,
        why: Why {
            needed: None,
            ahead: None,
            limits: uses,
            holders: holders(state, declared.limit.kind(), class, tenant),
        },
        when: None,
        changes,
        note: None,
        saga: None,
        record: last_record(state),
    })
}

struct ExplainedBooking<'a> {
    state: &'a State,
    now: Instant,
    id: &'a BookingId,
    request: &'a Request,
}

impl ExplainedBooking<'_> {
    fn queued(&self, since: Instant, position: Position) -> Explanation {
        let Position {
            ahead,
            reason,
            limits,
            estimate,
        } = position;
        let when = match reason {
            Reason::LimitPaused => When {
                estimate_ms: None,
                rests_on: "a paused limit grants nothing".to_owned(),
            },
            _ => when(self.state, estimate, &self.request.class),
        };
        let headline = format!(
            "{} waits{}",
            self.id,
            self.waiting_words(reason, limits.first(), ahead, &when)
        );
        Explanation {
            headline,
            waits_for: Some(waits_for(reason)),
            reason: Some(reason),
            since: Some(since),
            changes: self.helpful_changes(reason, &limits),
            why: Why {
                needed: Some(self.request.amount()),
                ahead: Some(ahead),
                holders: self.holders(limits.first()),
                limits,
            },
            when: Some(when),
            ..self.at_stage(Stage::Queued)
        }
    }

    fn granted(&self, granted: &Granted) -> Explanation {
        let held = words::length(self.now.since(granted.granted_at));
        let left = self.left(granted);
        let what = words::amount(&self.request.amount(), Some(&self.request.class));
        Explanation {
            headline: format!(
                "{} holds {what} for {held} so far, expires in {} unless renewed",
                self.id,
                words::length(left)
            ),
            since: Some(granted.granted_at),
            why: self.why_held(),
            when: Some(When {
                estimate_ms: Some(left.ms()),
                rests_on: format!("ttl of {}", words::length(self.request.ttl)),
            }),
            changes: vec![
                "release it with its fence".to_owned(),
                "renew it to keep it longer".to_owned(),
            ],
            ..self.at_stage(Stage::Granted)
        }
    }

    fn executing(&self, granted: &Granted, progress: &Progress) -> Explanation {
        let left = words::length(self.left(granted));
        let slots = words::slots(self.request.slots, Some(&self.request.class));
        let since = |at: Instant| words::length(self.now.since(at));
        let (started, stopping) = (progress.started, progress.stopping);
        let adopted = if progress.is_adopted {
            "; it was found running after a restore"
        } else {
            ""
        };
        let began = match progress.stage {
            execution::Stage::Starting => granted.granted_at,
            execution::Stage::Running => started.map_or(granted.granted_at, |(at, _)| at),
            _ => stopping.map_or(granted.granted_at, |(at, _)| at),
        };
        let cause = stopping.map_or("", |(_, cause)| cause_words(cause));
        let (stage, predicate, changes) = match progress.stage {
            execution::Stage::Starting => (
                Stage::Starting,
                format!("is being started for {}, {left} left", since(began)),
                vec!["cancel it".to_owned()],
            ),
            execution::Stage::Running => (
                Stage::Running,
                format!("runs for {} so far, {left} left{adopted}", since(began)),
                vec!["cancel it".to_owned()],
            ),
            execution::Stage::Stopping(0) => (
                Stage::Stopping,
                format!("is being stopped for {}: {cause}", since(began)),
                Vec::new(),
            ),
            execution::Stage::Stopping(failed) => (
                Stage::Stopping,
                format!(
                    "is being stopped for {}: {cause}, {} failed",
                    since(began),
                    words::count(failed.into(), "stop")
                ),
                Vec::new(),
            ),
            execution::Stage::Stuck => (
                Stage::Stuck,
                format!(
                    "is stuck for {}: {cause}, {} failed, it keeps {slots}",
                    since(began),
                    words::count(execution::STOPS_UNTIL_STUCK.into(), "stop")
                ),
                vec!["end its process, or force-release it as an operator".to_owned()],
            ),
        };
        Explanation {
            headline: format!("{} {predicate}", self.id),
            since: Some(began),
            why: self.why_held(),
            changes,
            ..self.at_stage(stage)
        }
    }

    fn why_held(&self) -> Why {
        let limits = self.state.bookings.limits_for(self.request);
        Why {
            needed: Some(self.request.amount()),
            ahead: None,
            holders: self.holders(limits.first()),
            limits,
        }
    }

    fn left(&self, granted: &Granted) -> Millis {
        let until = granted.until.unwrap_or(self.now);
        until.since(self.now)
    }

    fn ended(&self, ended: &Ended) -> Explanation {
        Explanation {
            headline: format!("{} ended: {}", self.id, self.end_words(ended)),
            since: Some(ended.ended_at()),
            why: Why {
                needed: Some(self.request.amount()),
                ..Why::default()
            },
            changes: vec!["ask again under a new id".to_owned()],
            ..self.at_stage(Stage::Ended)
        }
    }

    fn at_stage(&self, stage: Stage) -> Explanation {
        Explanation {
            object: Object::Booking(self.id.clone()),
            headline: String::new(),
            stage,
            waits_for: None,
            reason: None,
            since: None,
            why: Why::default(),
            when: None,
            changes: Vec::new(),
            note: self.state.bookings.note(self.id).map(str::to_owned),
            saga: saga(&self.state.bookings, self.now, self.id),
            record: last_record(self.state),
        }
    }

    /// Text after `job-7 waits`.
    fn waiting_words(
        &self,
        reason: Reason,
        first: Option<&LimitUse>,
        ahead: u64,
        when: &When,
    ) -> String {
        if let (Reason::LimitPaused, Some(paused)) = (reason, first) {
            let nothing = words::value_of(paused.dimension, 0);
            return format!(": limit {} is paused ({nothing})", paused.name);
        }
        let for_what = match reason {
            Reason::LimitPaused | Reason::LimitFull => match self.request.slots {
                1 => format!("for a {} slot", self.request.class),
                slots => format!("for {}", words::slots(slots, Some(&self.request.class))),
            },
            Reason::Shielded => "for its turn, a larger request before it is due".to_owned(),
            Reason::QueueOrder => "for its turn".to_owned(),
        };
        let in_use = first.map(|of| format!("{} in use", self.in_use_words(of)));
        let ahead = match ahead {
            0 => "nobody ahead".to_owned(),
            _ => format!("{} ahead", words::number(ahead)),
        };
        let about = when.estimate_ms.is_some().then(|| when.text());
        let parts: Vec<String> = [in_use, Some(ahead), about].into_iter().flatten().collect();
        format!(" {for_what}: {}", parts.join(", "))
    }

    /// Only a limit of the class needs no name.
    fn in_use_words(&self, of: &LimitUse) -> String {
        let used = words::used(of);
        match self.kind_of(&of.name) {
            Some(Kind::Class) => used,
            _ => format!("{used} of limit {}", of.name),
        }
    }

    fn helpful_changes(&self, reason: Reason, limits: &[LimitUse]) -> Vec<String> {
        let raises = limits.iter().map(|of| raise(&of.name));
        let mut changes: Vec<String> = match reason {
            Reason::LimitPaused => raises.map(|raise| format!("{raise} above 0")).collect(),
            Reason::LimitFull => raises.collect(),
            Reason::Shielded | Reason::QueueOrder => Vec::new(),
        };
        changes.dedup();
        if reason == Reason::LimitFull && self.request.slots > 1 {
            changes.push("ask for fewer slots under a new id".to_owned());
        }
        if matches!(reason, Reason::Shielded | Reason::QueueOrder) {
            changes.push("those ahead being served".to_owned());
            if self.request.priority > Priority::Urgent {
                changes.push("ask with a higher priority under a new id".to_owned());
            }
        }
        changes
    }

    fn holders(&self, first: Option<&LimitUse>) -> Vec<(Label, u64)> {
        let kind = first.and_then(|of| self.kind_of(&of.name));
        let kind = kind.unwrap_or(Kind::Class);
        let (class, tenant) = (&self.request.class, &self.request.tenant);
        holders(self.state, kind, Some(class), Some(tenant))
    }

    fn kind_of(&self, limit: &ObjectName) -> Option<Kind> {
        Some(self.state.bookings.limit(limit.as_str())?.limit.kind())
    }

    fn end_words(&self, ended: &Ended) -> String {
        let waited = |until: Instant| words::length(until.since(ended.queued_at()));
        let held = ended
            .granted()
            .map(|(at, _)| words::length(ended.ended_at().since(at)));
        let after = held
            .as_ref()
            .map(|held| format!(" after {held}"))
            .unwrap_or_default();
        match ended.end() {
            End::Released if ended.course().is_some() => execution_words(ended, &after),
            End::Released => format!("released{after}{}", outcome_words(ended)),
            End::Expired => {
                format!(
                    "expired{after}, not renewed within {}",
                    words::length(self.request.ttl)
                )
            }
            End::Forced => {
                let reason = ended.reason().unwrap_or("no reason given");
                format!("taken by an operator{after}: {reason}")
            }
            End::Cancelled => format!("cancelled after waiting {}", waited(ended.ended_at())),
            End::WaitOver => format!(
                "never granted in the {} it would wait",
                waited(ended.ended_at())
            ),
        }
    }
}

fn execution_words(ended: &Ended, after: &str) -> String {
    let Some(course) = ended.course() else {
        return String::new();
    };
    let how = words::exit(
        ended.exit_code(),
        course.signal,
        course.is_out_of_memory,
        ended.reason(),
    );
    words::came_out(course.verdict, after, &how)
}

const fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Cancelled => "somebody asked for it",
        Cause::TimedOut => "it ran for as long as it may",
        Cause::NotStarted => "it did not start in time",
    }
}

fn outcome_words(ended: &Ended) -> String {
    let outcome = match ended.outcome() {
        Some(Outcome::Ok) => ", ok",
        Some(Outcome::Failed) => ", failed",
        None => "",
    };
    let code = ended.exit_code().map(|code| format!(", exit code {code}"));
    format!("{outcome}{}", code.unwrap_or_default())
}

fn when(state: &State, estimate: Option<Estimate>, class: &Label) -> When {
    let is_held = || {
        let holders = state.bookings.holders(Some(class));
        holders.iter().any(|(_, slots)| *slots > 0)
    };
    match estimate {
        Some(Estimate { ms, rests_on }) => When {
            estimate_ms: Some(ms),
            rests_on: format!("last {rests_on} executions"),
        },
        None => When {
            estimate_ms: None,
            rests_on: if is_held() {
                format!("fewer than {ESTIMATE_RESTS_ON_MIN} {class} bookings have ended")
            } else {
                format!("nothing holds a {class} slot")
            },
        },
    }
}

/// Fullest counter of a limit, with its tightest bound first.
struct Fullest<'a> {
    class: Option<&'a Label>,
    tenant: Option<&'a Label>,
    limits: Vec<LimitUse>,
}

fn fullest<'a>(counters: Vec<CounterView<'a>>, declared: &Declared) -> Option<Fullest<'a>> {
    let uses = |used: Amount, waiting: u64| -> Vec<LimitUse> {
        let mut uses: Vec<LimitUse> = declared.uses(&used, waiting).collect();
        // A stable sort: of two equally full dimensions the first one leads.
        uses.sort_by(|a, b| tighter(b, a));
        uses
    };
    let idle = Fullest {
        class: None,
        tenant: None,
        limits: uses(Amount::default(), 0),
    };
    counters
        .into_iter()
        .map(|counter| Fullest {
            class: counter.class,
            tenant: counter.tenant,
            limits: uses(counter.used, counter.waiting),
        })
        .reduce(
            |best, next| match (best.limits.first(), next.limits.first()) {
                (Some(a), Some(b)) if tighter(a, b).is_lt() => next,
                _ => best,
            },
        )
        .or(Some(idle))
}

/// Orders by use over bound: a/b < c/d iff a·d < c·b. A bound of zero is the fullest.
fn tighter(a: &LimitUse, b: &LimitUse) -> std::cmp::Ordering {
    let cross = |x: &LimitUse, y: &LimitUse| u128::from(x.in_use) * u128::from(y.size);
    (a.size == 0)
        .cmp(&(b.size == 0))
        .then(cross(a, b).cmp(&cross(b, a)))
}

fn limit_headline(declared: &Declared, stage: Stage, fullest: Option<&Fullest<'_>>) -> String {
    let name = &declared.limit.name;
    let Some((counter, tightest)) = fullest.and_then(|c| Some((c, c.limits.first()?))) else {
        return format!("limit {name} bounds nothing");
    };
    let whose = value_words(declared, counter);
    let waiting = match tightest.waiting {
        0 => String::new(),
        waiting => format!(", {} waiting", words::number(waiting)),
    };
    if stage == Stage::Paused {
        let nothing = words::value_of(tightest.dimension, 0);
        return format!("limit {name} is paused ({nothing}){waiting}");
    }
    let over = give_back(tightest).map(|give_back| {
        let give_back = words::value(tightest.dimension, give_back);
        format!(", no grant until {give_back} have been given back")
    });
    format!(
        "limit {name} is {}{whose}: {} in use{waiting}{}",
        stage.word(),
        words::used(tightest),
        over.unwrap_or_default()
    )
}

/// Class and tenant of a counter, if the limit has one for each value.
fn value_words(declared: &Declared, counter: &Fullest<'_>) -> String {
    let is_each = |scope: &Option<Scope>| *scope == Some(Scope::Each);
    let labels: Vec<&str> = [
        counter.class.filter(|_| is_each(&declared.limit.class)),
        counter.tenant.filter(|_| is_each(&declared.limit.tenant)),
    ]
    .into_iter()
    .flatten()
    .map(Label::as_str)
    .collect();
    if labels.is_empty() {
        String::new()
    } else {
        format!(" for {}", labels.join(" of "))
    }
}

/// Amount to give back before the smallest grant fits; `None` if use is not above the bound.
fn give_back(of: &LimitUse) -> Option<u64> {
    (of.size < of.in_use).then(|| of.in_use - of.size + 1)
}

/// Holders under a limit of that kind, most slots first.
fn holders(
    state: &State,
    kind: Kind,
    class: Option<&Label>,
    tenant: Option<&Label>,
) -> Vec<(Label, u64)> {
    let of_class = matches!(kind, Kind::Class | Kind::ClassTenant);
    let of_tenant = matches!(kind, Kind::Tenant | Kind::ClassTenant);
    let is_known = (!of_class || class.is_some()) && (!of_tenant || tenant.is_some());
    if !is_known {
        return Vec::new();
    }
    state
        .bookings
        .holders(class.filter(|_| of_class))
        .into_iter()
        .filter(|(holder, _)| !of_tenant || Some(*holder) == tenant)
        .map(|(holder, slots)| (holder.clone(), slots))
        .collect()
}

fn raise(limit: &ObjectName) -> String {
    format!("raise limit {limit}")
}

fn last_record(state: &State) -> u64 {
    state.spine.head.saturating_sub(1)
}
