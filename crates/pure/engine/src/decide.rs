//! Decisions, for the server, dry runs, scenarios, the simulator and the check alike.

use bursar_booking::{Bookings, decide as rules};
use bursar_cluster::Clusters;
use bursar_journal::hash::sha256;
use bursar_plane::{Class, Decided, Did, Due, Plane, Reference, Steps};
use bursar_units::{BookingId, Instant};
use thiserror::Error;

use crate::explain::{Changed, Previous};
use crate::market::Markets;
use crate::{Change, Command, Event, Events, State, cluster, market, spine};

/// Result of a command that was not refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// Reply to a booking command.
    Booking(rules::Reply),
    /// The run as a command left it, and whether the command changed it.
    Run {
        /// The run.
        run: Box<cluster::Shown>,
        /// Whether the command changed it.
        changed: bool,
    },
    /// Changes of declared objects, one for each that the command names, in its order.
    Changed(Vec<Changed>),
    /// The command was done and is recorded.
    Done,
    /// Nothing changed: the state was so already, or the same idempotency key was used before.
    Unchanged,
}

/// Reason of a refusal.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Refusal {
    /// By the rules of bookings.
    #[error(transparent)]
    Booking(#[from] rules::Refusal),
    /// By the rules of markets.
    #[error(transparent)]
    Market(#[from] market::Refusal),
    /// By the rules of the cluster.
    #[error(transparent)]
    Cluster(#[from] cluster::Refusal),
    /// By the rules of the spine.
    #[error(transparent)]
    Spine(#[from] spine::Refusal),
}

impl From<Did> for Answer {
    fn from(did: Did) -> Self {
        match did {
            Did::Done => Self::Done,
            Did::Unchanged => Self::Unchanged,
        }
    }
}

impl From<cluster::Reply> for Answer {
    fn from(reply: cluster::Reply) -> Self {
        match reply {
            cluster::Reply::Run { run, changed } => Self::Run { run, changed },
            cluster::Reply::Done => Self::Done,
            cluster::Reply::Unchanged => Self::Unchanged,
        }
    }
}

/// Answers a command. Applies its events to `state` and pushes them; a refusal changes nothing. The
/// caller adds one to the head when it writes the record.
pub fn decide(
    state: &mut State,
    now: Instant,
    command: &Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    match command {
        Command::Booking(command) => {
            let mut out = state.decided(now);
            let reply = state.bookings.decide(now, command, &mut out)?;
            state.take_over::<Bookings>(out, events);
            Ok(Answer::Booking(reply))
        }
        Command::Market(command) => {
            let mut out = state.decided(now);
            let did = state.markets.decide(now, command, &mut out)?;
            state.take_over::<Markets>(out, events);
            Ok(did.into())
        }
        Command::Cluster(command) => decide_cluster(state, now, command, events),
        Command::Spine(command) => decide_spine(state, now, command, events),
    }
}

/// Decides a command to the cluster. The spine keeps its idempotency key, if it has one.
fn decide_cluster(
    state: &mut State,
    now: Instant,
    command: &cluster::Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    let key = match command {
        cluster::Command::RotateEnvelope {
            envelope,
            idempotency,
            ..
        } => idempotency.as_ref().map(|key| {
            let body = sha256(format!("rotate-envelope {envelope}").as_bytes());
            (key, body)
        }),
        _ => None,
    };
    if let Some((key, body)) = key
        && state.spine.is_repeat(now, Some(key), body)?
    {
        return Ok(Answer::Unchanged);
    }
    let mut out = state.decided(now);
    let reply = state.clusters.decide(now, command, &mut out)?;
    state.take_over::<Clusters>(out, events);
    if let Some((key, body)) = key {
        let mut out = state.decided(now);
        state.spine.keyed(now, Some(key), body, &mut out);
        state.take_over_spine(out, events);
    }
    Ok(reply.into())
}

/// Decides a command to the spine, or one that concerns all planes.
fn decide_spine(
    state: &mut State,
    now: Instant,
    command: &spine::Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    match command {
        spine::Command::Level { n } if *n <= state.spine.level => Ok(Answer::Unchanged),
        spine::Command::Level { .. } => {
            of_spine(state, now, command, events)?;
            let shipped = rules::missing_shipped(&state.bookings);
            let shipped: Vec<Change> = shipped.into_iter().map(Change::Booking).collect();
            change(state, now, &shipped, events)?;
            Ok(Answer::Done)
        }
        spine::Command::Tick {
            renewed,
            until,
            class,
        } => {
            let due = Due {
                until: until.unwrap_or(now).min(now),
                class: *class,
            };
            tick(state, now, due, renewed, events);
            Ok(Answer::Done)
        }
        spine::Command::Change { changes, expect } => {
            check_versions(state, expect)?;
            let previous: Vec<Previous> = changes
                .iter()
                .map(|change| Previous::of(state, change))
                .collect();
            change(state, now, changes, events)?;
            let subjects = events.iter().flat_map(Event::subjects).collect();
            let changed = changes.iter().zip(previous);
            let changed = changed
                .map(|(change, previous)| Changed::new(change, previous, events, &subjects, state));
            Ok(Answer::Changed(changed.collect()))
        }
        spine::Command::Restore {
            fence,
            replaces,
            end_tokens,
            ..
        } => {
            let first_fence = fence.map(|least| least.max(state.bookings.next_fence()));
            let event = state.spine.restored(first_fence, *replaces, *end_tokens);
            emit(state, now, event.into(), events);
            Ok(Answer::Done)
        }
        command => of_spine(state, now, command, events),
    }
}

/// Decides a command that concerns the spine alone, and lets the other planes follow.
fn of_spine(
    state: &mut State,
    now: Instant,
    command: &spine::Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    let mut out = state.decided(now);
    let did = state.spine.decide(now, command, &mut out)?;
    state.take_over_spine(out, events);
    Ok(did.into())
}

/// Object that a renewal keeps alive, with the new deadline (S7).
pub fn life(command: &Command, answer: &Answer) -> Option<(Reference, Instant)> {
    match (command, answer) {
        (Command::Booking(command), Answer::Booking(reply)) => Bookings::life(command, reply),
        _ => None,
    }
}

/// Decides a command on a sketch of the state: the same answer as [`decide`], the events, and the
/// sketch after it. `state` does not change.
pub fn plan(
    state: &State,
    now: Instant,
    command: &Command,
) -> (Result<Answer, Refusal>, Events, State) {
    let mut sketch = state.sketch(std::slice::from_ref(command));
    let mut events = Events::new();
    let answer = decide(&mut sketch, now, command, &mut events);
    (answer, events, sketch)
}

/// Processes deadlines of all planes in order: the plane with the earliest deadline acts up to the
/// earliest deadline of another plane.
fn tick(
    state: &mut State,
    now: Instant,
    due: Due,
    renewed: &[(BookingId, Instant)],
    events: &mut Events,
) {
    let alive_until = |object: &Reference| {
        let Reference::Booking(id) = object else {
            return None;
        };
        let renewal = renewed.iter().find(|(renewed, _)| renewed == id);
        renewal.map(|(_, alive_until)| *alive_until)
    };
    let mut steps = Steps::FULL;
    loop {
        let next = [
            next_of(&state.spine, due),
            next_of(&state.bookings, due),
            next_of(&state.markets, due),
            next_of(&state.clusters, due),
        ];
        let Some((plane, first)) = earliest(next).filter(|(_, first)| *first <= due.until) else {
            break;
        };
        let others = next.iter().enumerate().filter(|(index, _)| *index != plane);
        let until = others
            .filter_map(|(_, next)| *next)
            .fold(due.until, Instant::min)
            .max(first);
        let due = Due { until, ..due };
        let before = events.len();
        match plane {
            0 => {
                let mut out = state.decided(now);
                state.spine.tick(due, &alive_until, &mut steps, &mut out);
                state.take_over_spine(out, events);
            }
            1 => {
                let mut out = state.decided(now);
                Plane::tick(&mut state.bookings, due, &alive_until, &mut steps, &mut out);
                state.take_over::<Bookings>(out, events);
            }
            2 => {
                let mut out = state.decided(now);
                state.markets.tick(due, &alive_until, &mut steps, &mut out);
                state.take_over::<Markets>(out, events);
            }
            _ => {
                let mut out = state.decided(now);
                state.clusters.tick(due, &alive_until, &mut steps, &mut out);
                state.take_over::<Clusters>(out, events);
            }
        }
        // The record is full.
        if events.len() == before {
            break;
        }
    }
    let mut out = state.decided(now);
    Plane::finish(&mut state.clusters, due, &mut steps, &mut out);
    state.take_over::<Clusters>(out, events);
}

/// Time of the next action of a plane. Grants that are owed come before every deadline, but not in
/// a tick of one class, which grants nothing (L5).
fn next_of<P: Plane>(plane: &P, due: Due) -> Option<Instant> {
    let classes = Class::ALL.into_iter().filter(|class| due.includes(*class));
    let deadline = classes.filter_map(|class| plane.next_deadline(class)).min();
    match plane.owed_since() {
        Some(_) if due.class.is_none() => Some(Instant::default()),
        _ => deadline,
    }
}

/// Index and time of the earliest; at equal times the first plane.
fn earliest(next: [Option<Instant>; 4]) -> Option<(usize, Instant)> {
    let next = next.into_iter().enumerate();
    let next = next.filter_map(|(plane, at)| Some((plane, at?)));
    next.min_by_key(|(plane, at)| (*at, *plane))
}

/// Refuses if an object has another version than the caller expects.
fn check_versions(state: &State, expect: &[(Reference, String)]) -> Result<(), Refusal> {
    for (object, expected) in expect {
        let present = state.version(object);
        let is_any = expected == "*" && present.is_some();
        if !is_any && present.as_ref() != Some(expected) {
            let refusal = spine::Refusal::Version {
                object: object.clone(),
                expected: expected.clone(),
                present,
            };
            return Err(refusal.into());
        }
    }
    Ok(())
}

/// Changes declared objects: checks all, emits all, then settles.
fn change(
    state: &mut State,
    now: Instant,
    changes: &[Change],
    events: &mut Events,
) -> Result<(), Refusal> {
    let (mut of_spine, mut of_bookings, mut of_clusters) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::Cluster(change) => of_clusters.push(change),
            Change::Spine(change) => of_spine.push(change),
            Change::Booking(change) => of_bookings.push(change),
            Change::Market(change) => match *change {},
        }
    }
    let [before, after] = state.bookings.implied(&of_bookings);
    state.spine.check_changes(now, &of_spine)?;
    let all: Vec<&rules::Change> = before.iter().chain(of_bookings.iter().copied()).collect();
    state.bookings.check_changes(now, &all)?;
    check_clusters(state, now, &of_spine, &of_clusters)?;
    let before = before.into_iter().map(Change::Booking);
    let after = after.into_iter().map(Change::Booking);
    for change in before.chain(changes.iter().cloned()).chain(after) {
        match change {
            Change::Spine(change) => {
                let mut out = state.decided(now);
                state.spine.change(now, &change, &mut out);
                state.take_over_spine(out, events);
            }
            Change::Booking(change) => {
                let mut out = state.decided(now);
                Plane::change(&mut state.bookings, now, &change, &mut out);
                state.take_over::<Bookings>(out, events);
            }
            Change::Cluster(change) => {
                let mut out = state.decided(now);
                Plane::change(&mut state.clusters, now, &change, &mut out);
                state.take_over::<Clusters>(out, events);
            }
            Change::Market(change) => match change {},
        }
    }
    let mut out = state.decided(now);
    Plane::settle(&mut state.bookings, now, &mut out);
    state.take_over::<Bookings>(out, events);
    if !of_spine.is_empty() {
        state.clusters.stir();
    }
    let mut out = state.decided(now);
    Plane::settle(&mut state.clusters, now, &mut out);
    state.take_over::<Clusters>(out, events);
    Ok(())
}

/// Checks the changes to budgets and runs on the nodes that the same command leaves, and that no node
/// with leases is removed.
fn check_clusters(
    state: &State,
    now: Instant,
    of_spine: &[&spine::Change],
    changes: &[&cluster::Change],
) -> Result<(), Refusal> {
    for change in of_spine {
        if let spine::Change::DropNode { name } = change {
            state.clusters.check_node_drop(name)?;
        }
    }
    if of_spine.is_empty() || changes.iter().all(|change| change.run().is_none()) {
        return Ok(state.clusters.check_changes(now, changes)?);
    }
    let mut clusters = state.clusters.clone();
    for change in of_spine {
        match change {
            spine::Change::SetNode(node) => clusters.take_node(&node.name, Some(node)),
            spine::Change::DropNode { name } => clusters.take_node(name, None),
        }
    }
    Ok(clusters.check_on_scratch(now, changes)?)
}

fn emit(state: &mut State, at: Instant, event: Event, events: &mut Events) {
    state.apply(at, &event);
    events.push(event);
}

impl State {
    /// No events yet, of the next record.
    fn decided<E>(&self, now: Instant) -> Decided<E> {
        Decided::new(now, self.spine.head)
    }

    /// Adds the events of a plane, which has applied them already.
    fn take_over<P: Plane>(&mut self, out: Decided<P::Event>, events: &mut Events)
    where
        Event: From<P::Event>,
    {
        let now = out.time();
        for event in out.into_list() {
            let at = P::time(&event).unwrap_or(now);
            self.spine.time = self.spine.time.max(at);
            events.push(event.into());
        }
    }

    /// Adds the events of the spine, and applies them to the other planes.
    fn take_over_spine(&mut self, out: Decided<spine::Event>, events: &mut Events) {
        let now = out.time();
        for event in out.into_list() {
            self.spine.time = self.spine.time.max(now);
            self.follow_spine(now, &event);
            events.push(event.into());
        }
    }
}
