//! Recorder of decisions, refusals too: it wraps the `decide` of the engine.

use std::cell::RefCell;

use bursar_engine::{Answer, Command, Events, Refusal, State, decide, plan, spine};
use bursar_units::Instant;

/// Number of decisions between two comparisons with a dry run.
const PLANNED_ONCE_IN: u64 = 16;

#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// Number of its record; without a record, that of the next one.
    pub(super) seq: u64,
    pub(super) now: Instant,
    pub(super) command: Command,
    pub(super) result: Result<Answer, Refusal>,
    /// Whether it has a record.
    pub(super) is_recorded: bool,
    /// Whether its dry run had the same result; `None` without a dry run.
    pub(super) as_planned: Option<bool>,
    /// The time of the world at its `now`; set by [`take_decisions`].
    pub(super) world_ms: u64,
}

thread_local! {
    // `Decide` is a plain function, so decisions are stored here. Each world has its own thread.
    static DECISIONS: RefCell<Vec<Decided>> = const { RefCell::new(Vec::new()) };
}

/// The engine's `decide`; stores every decision.
pub(super) fn decide_and_record(
    state: &mut State,
    now: Instant,
    command: &Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    let seq = state.spine.head;
    let is_planned = (seq + now.ms()).is_multiple_of(PLANNED_ONCE_IN);
    // A plan copies only the part of the state that it needs, without deadlines: no ticks.
    let is_time = matches!(
        command,
        Command::Spine(spine::Command::Tick { .. } | spine::Command::Resume { .. })
    );
    let planned = (is_planned && !is_time).then(|| plan(state, now, command));
    let result = decide(state, now, command, events);
    let as_planned = planned.map(|(answer, planned, _)| answer == result && planned == *events);
    let decided = Decided {
        seq,
        now,
        command: command.clone(),
        result: result.clone(),
        is_recorded: !events.is_empty(),
        as_planned,
        world_ms: 0,
    };
    DECISIONS.with_borrow_mut(|decisions| decisions.push(decided));
    result
}

/// Takes the decisions since the last call, at this time of the world and of the ledger.
/// A batch keeps the time of its opening, so a decision may have an earlier time.
pub(super) fn take_decisions(world_ms: u64, now: Instant) -> Vec<Decided> {
    let mut decisions = DECISIONS.with_borrow_mut(std::mem::take);
    for decided in &mut decisions {
        decided.world_ms = world_ms.saturating_sub(now.since(decided.now).ms());
    }
    decisions
}
