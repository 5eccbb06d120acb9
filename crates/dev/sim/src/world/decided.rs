//! Every decision as it is made, refusals too: the real `decide`, with somebody listening.

use std::cell::RefCell;

use bursar_engine::{Answer, Command, Events, Refusal, State, decide, plan, spine};
use bursar_units::Instant;

/// How often a decision is compared with its own dry run: once in so many.
const PLANNED_ONCE_IN: u64 = 16;

/// One decision.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// The number that its record got, or would have got.
    pub(super) seq: u64,
    pub(super) now: Instant,
    pub(super) command: Command,
    pub(super) result: Result<Answer, Refusal>,
    /// Whether it has a record.
    pub(super) is_recorded: bool,
    /// Whether its dry run said the same; `None` where none was made.
    pub(super) as_planned: Option<bool>,
    /// The time of the world at its `now`, filled in by whoever takes it.
    pub(super) world_ms: u64,
}

thread_local! {
    // `Decide` is a plain function, so what it heard waits here. One world, one thread.
    static HEARD: RefCell<Vec<Decided>> = const { RefCell::new(Vec::new()) };
}

/// The engine's `decide`, overheard.
pub(super) fn overheard(
    state: &mut State,
    now: Instant,
    command: &Command,
    events: &mut Events,
) -> Result<Answer, Refusal> {
    let seq = state.spine.head;
    let is_planned = (seq + now.ms()).is_multiple_of(PLANNED_ONCE_IN);
    // A plan copies the small problem, without deadlines: time itself is not planned.
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
    HEARD.with_borrow_mut(|heard| heard.push(decided));
    result
}

/// Takes what was heard since the last call, when the time of the world and of the ledger is this.
/// A batch keeps the time of its opening, so a decision may be older than the moment it is made.
pub(super) fn heard(world_ms: u64, now: Instant) -> Vec<Decided> {
    let mut heard = HEARD.with_borrow_mut(std::mem::take);
    for decided in &mut heard {
        decided.world_ms = world_ms.saturating_sub(now.since(decided.now).ms());
    }
    heard
}
