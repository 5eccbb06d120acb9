//! The columns of bookings and limits.

use bursar_client::api::{
    Booking, End, ExecutionOutcome, ExecutionState, Limit, LimitStatus, Priority, State,
};
use bursar_engine::words::{self, about, number};
use bursar_units::quantity::{format_cpu, format_memory};
use bursar_units::{Dimension, Millis};

use crate::layout::{Column, Look, Meaning, Shown, number_or_dash};
use crate::list::Listed;
use crate::time::{distance, length};

/// Use from which a limit is nearly full.
const NEAR_PERCENT: u128 = 80;

impl Listed for Booking {
    const KIND: &'static str = "booking";
    const NONE: &'static str = "no bookings";
    const FIRST: &'static str = "`bursar booking reserve python --id job-1` makes one";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<Booking>] = &[
            Column::of_text("BOOKING", Shown::Always, |row, _| row.id.to_string()),
            Column::of_text("CLASS", Shown::Always, |row, _| shown(row.class.as_ref())),
            Column::of_text("TENANT", Shown::Room(2), |row, _| {
                shown(row.tenant.as_ref())
            }),
            Column {
                also: |row| vec![row.state.word().to_owned()],
                meaning: |row| Some(state_meaning(row)),
                ..Column::of_text("STATE", Shown::Always, |row, _| state_word(row).to_owned())
            },
            Column::of_count("SLOTS", Shown::Room(1), |row, _| number_or_dash(row.slots)),
            Column::of_count("WAITED", Shown::Room(4), waited),
            Column::of_count("RAN", Shown::Room(5), ran),
            Column::of_text("OUTCOME", Shown::Room(3), outcome),
            Column::of_text("PRIORITY", Shown::Wide, |row, _| {
                row.priority.map_or("", Priority::word).to_owned()
            }),
            Column::of_count("CPU", Shown::Wide, |row, _| {
                row.cpu_milli.map(format_cpu).unwrap_or_default()
            }),
            Column::of_count("MEMORY", Shown::Wide, |row, _| {
                row.memory_bytes.map(format_memory).unwrap_or_default()
            }),
            Column::of_count("GPUS", Shown::Wide, |row, _| number_or_dash(row.gpus)),
            Column::of_count("AHEAD", Shown::Wide, |row, _| number_or_dash(row.ahead)),
            Column::of_count("FENCE", Shown::Wide, |row, _| {
                row.fence.map(|fence| fence.to_string()).unwrap_or_default()
            }),
            Column::of_text("EXPIRES", Shown::Wide, |row, look| {
                row.expires_at.map(|at| look.moment(at)).unwrap_or_default()
            }),
            Column::of_count("AGE", Shown::Wide, |row, look| {
                row.queued_at.map(|at| look.age(at)).unwrap_or_default()
            }),
            Column::of_text("EXECUTION", Shown::Wide, |row, _| {
                shown(row.execution_id.as_ref())
            }),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        self.id.to_string()
    }

    fn is_past(&self) -> bool {
        self.state == State::Ended
    }
}

impl Listed for Limit {
    const KIND: &'static str = "limit";
    const NONE: &'static str = "no limits";
    const FIRST: &'static str = "`bursar limit set python --class python --slots 100` makes one";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<Limit>] = &[
            Column::of_text("LIMIT", Shown::Always, |row, _| {
                row.metadata.name.to_string()
            }),
            Column::of_text("CLASS", Shown::Always, |row, _| {
                row.spec.class.clone().unwrap_or_default()
            }),
            Column::of_text("TENANT", Shown::Always, |row, _| {
                row.spec.tenant.clone().unwrap_or_default()
            }),
            Column {
                also: |row| row.spec.slots.iter().map(u64::to_string).collect(),
                meaning: fullness,
                ..Column::of_text("SLOTS", Shown::Always, |row, look| {
                    bounded(row, look, Dimension::Slots)
                })
            },
            Column::of_count("WAITING", Shown::Room(1), |row, _| {
                number_or_dash(row.status.as_ref().map(|status| status.waiting))
            }),
            Column::of_text("LONGEST WAIT", Shown::Room(2), |row, look| {
                let since = row.status.as_ref().and_then(|status| status.waiting_since);
                since.map_or_else(String::new, |since| distance(look.now.since(since)))
            }),
            Column::of_text("CPU", Shown::Wide, |row, look| {
                bounded(row, look, Dimension::Cpu)
            }),
            Column::of_text("MEMORY", Shown::Wide, |row, look| {
                bounded(row, look, Dimension::Memory)
            }),
            Column::of_text("GPUS", Shown::Wide, |row, look| {
                bounded(row, look, Dimension::Gpus)
            }),
            Column::of_count("MAX QUEUE", Shown::Wide, |row, _| {
                number_or_dash(row.spec.max_queue)
            }),
            Column::of_count("MAX OF TENANT", Shown::Wide, |row, _| {
                number_or_dash(row.spec.max_queue_per_tenant)
            }),
            Column::of_count("MAX WAIT", Shown::Wide, |row, _| {
                row.spec.max_wait.clone().unwrap_or_default()
            }),
            Column::of_count("MAX TTL", Shown::Wide, |row, _| {
                row.spec.max_ttl.clone().unwrap_or_default()
            }),
            Column::of_count("WEIGHT", Shown::Wide, |row, _| {
                number_or_dash(row.spec.weight)
            }),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        self.metadata.name.to_string()
    }
}

/// Colour of a full or nearly full limit.
fn fullness(row: &Limit) -> Option<Meaning> {
    let status = row.status.as_ref()?;
    let (size, used) = (status.bounds.slots?, status.in_use.slots);
    let is_near = u128::from(used) * 100 >= u128::from(size) * NEAR_PERCENT;
    match (size <= used, is_near) {
        (true, _) => Some(Meaning::Bad),
        (false, true) => Some(Meaning::Waiting),
        (false, false) => None,
    }
}

/// Size and use of a limit in one dimension.
fn bounded(row: &Limit, look: &Look, dimension: Dimension) -> String {
    let Some(status) = &row.status else {
        return String::new();
    };
    let (Some(size), used) = size_and_use(status, dimension) else {
        return String::new();
    };
    let word = |value| amount(dimension, value);
    let is_each = |name: &Option<String>| name.as_deref() == Some("each");
    if is_each(&row.spec.class) || is_each(&row.spec.tenant) {
        return format!("{} each", word(size));
    }
    let bar = look.bar(used, size);
    format!("{bar}  {}/{}", word(used), word(size))
}

/// Size of a limit, if it bounds the dimension, and its use.
pub(super) fn size_and_use(status: &LimitStatus, dimension: Dimension) -> (Option<u64>, u64) {
    let (bounds, in_use) = (&status.bounds, &status.in_use);
    match dimension {
        Dimension::Slots => (bounds.slots, in_use.slots),
        Dimension::Cpu => (bounds.cpu_milli, in_use.cpu_milli),
        Dimension::Memory => (bounds.memory_bytes, in_use.memory_bytes),
        Dimension::Gpus => (bounds.gpus, in_use.gpus),
    }
}

pub(crate) fn amount(dimension: Dimension, value: u64) -> String {
    match dimension {
        Dimension::Slots | Dimension::Gpus => number(value),
        Dimension::Cpu => format_cpu(value),
        Dimension::Memory => format_memory(value),
    }
}

/// State of a booking; of an ended one its end, of a running execution its stage.
pub(crate) fn state_word(row: &Booking) -> &'static str {
    match (row.state, row.end, &row.execution) {
        (State::Ended, Some(end), _) => end.word(),
        (State::Granted, _, Some(course)) => course.state.word(),
        (state, _, _) => state.word(),
    }
}

fn state_meaning(row: &Booking) -> Meaning {
    let course = row.execution.as_ref().map(|course| course.state);
    match (row.state, row.end) {
        (State::Granted, _) if course == Some(ExecutionState::Stuck) => Meaning::Bad,
        (State::Queued, _) => Meaning::Waiting,
        (State::Granted, _) | (State::Ended, Some(End::Released)) => Meaning::Good,
        (State::Ended, Some(End::Cancelled)) => Meaning::Dim,
        (State::Ended, _) => Meaning::Bad,
    }
}

fn waited(row: &Booking, look: &Look) -> String {
    let Some(queued) = row.queued_at else {
        return String::new();
    };
    match row.granted_at.or(row.ended_at) {
        Some(until) => length(until.since(queued)),
        None => distance(look.now.since(queued)),
    }
}

fn ran(row: &Booking, look: &Look) -> String {
    let Some(granted) = row.granted_at else {
        return String::new();
    };
    match row.ended_at {
        Some(ended) => length(ended.since(granted)),
        None => distance(look.now.since(granted)),
    }
}

/// Outcome of an execution, with its exit code or signal.
pub(crate) fn outcome_words(row: &Booking) -> Option<String> {
    let course = row.execution.as_ref()?;
    let outcome = match course.outcome? {
        ExecutionOutcome::WaitOver => "never granted in time".to_owned(),
        outcome => outcome.word().replace('-', " "),
    };
    Some(outcome + &words::exit(row.exit_code, course.signal, course.out_of_memory, None))
}

/// Outcome of a booking; of a queued one its place and estimate.
fn outcome(row: &Booking, _: &Look) -> String {
    if let Some(outcome) = outcome_words(row) {
        // The text after the colon is too wide for a column.
        let short = outcome.split(": ").next().unwrap_or_default();
        return short.to_owned();
    }
    match (row.state, row.outcome) {
        (State::Queued, _) => match (row.ahead, row.estimate_ms) {
            (None, _) => String::new(),
            (Some(ahead), None) => format!("{} ahead", number(ahead)),
            (Some(ahead), Some(ms)) => format!("{} ahead, {}", number(ahead), about(ms)),
        },
        (_, Some(outcome)) => match row.exit_code {
            None | Some(0) => outcome.word().to_owned(),
            Some(code) => format!("{}, exit {code}", outcome.word()),
        },
        _ => String::new(),
    }
}

fn shown(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

pub(crate) fn lasting(ms: u64) -> String {
    words::length(Millis::from_ms(ms))
}
