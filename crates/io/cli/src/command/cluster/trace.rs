//! The walk over the envelopes that may pay for a run, as a table.

use bursar_client::api::cluster::CoverRow;
use bursar_client::{Code, Problem};
use bursar_engine::cluster::budget::cover::{Bound, Dimension, RowState};
use bursar_engine::cluster::budget::{MeterId, Pool};
use bursar_engine::words;

use crate::failure::{Failure, Stop};
use crate::layout::{Column, Look, Shown, escaped_line, table};

/// A row with the room of its bounds: all of it in the walk on empty meters, otherwise the rest.
struct Payer {
    row: CoverRow,
    is_empty: bool,
}

const COLUMNS: &[Column<Payer>] = &[
    Column::of_text("ENVELOPE", Shown::Always, |payer, _| {
        payer.row.envelope.to_string()
    }),
    Column::of_text("RELATION", Shown::Always, |payer, _| {
        payer.row.relation.word().to_owned()
    }),
    Column::of_count("PAYS AT MOST", Shown::Always, |payer, _| {
        words::number(payer.row.room)
    }),
    Column::of_text("BOUND BY", Shown::Always, |payer, _| bound_words(payer)),
];

/// A refusal with the walk, its note and the way out.
pub(in crate::command) fn refused(stop: Stop) -> Stop {
    let Stop::Failed(mut failure) = stop else {
        return stop;
    };
    let Some(problem) = failure.problem.as_deref() else {
        return Stop::Failed(failure);
    };
    if !problem.trace.is_empty() {
        failure.body = body(problem);
    }
    if failure.hint.is_none() {
        failure.hint = hint(problem);
    }
    Failure { ..*failure }.into()
}

/// The first ways out. A run that would wait was refused because of a flag.
fn hint(problem: &Problem) -> Option<String> {
    if problem.code == Code::WouldWait {
        let change = problem.changes.first()?;
        return Some(escaped_line(change).replace("`now`", "`--now`"));
    }
    let changes = problem.changes.iter().map(|text| escaped_line(text));
    match changes.take(2).collect::<Vec<_>>().as_slice() {
        [] => None,
        [first] => Some(first.to_string()),
        [first, second, ..] => Some(format!("{first}, or {second}")),
    }
}

fn body(problem: &Problem) -> String {
    let look = Look {
        now: bursar_units::Instant::from_ms(0),
        zone: jiff::tz::TimeZone::UTC,
        utf8: true,
        color: false,
    };
    let is_empty = problem.code == Code::NeverFits;
    let rows = first_of_each(&problem.trace).into_iter();
    let payers: Vec<Payer> = rows.map(|row| Payer { row, is_empty }).collect();
    let table = table(COLUMNS, &payers, &look, false);
    let lines = table.lines().map(str::to_owned);
    let note = problem.note.as_ref();
    let note = note.map(|note| format!("note: {}", escaped_line(note)));
    let mut text = String::new();
    for line in lines.chain(note) {
        text.extend(["  ", &line, "\n"]);
    }
    text
}

/// The first row of each envelope and right: the later groups of a run find what earlier ones left.
fn first_of_each(rows: &[CoverRow]) -> Vec<CoverRow> {
    let mut first: Vec<CoverRow> = Vec::new();
    for row in rows {
        let is_same = |known: &&CoverRow| known.envelope == row.envelope && known.pool == row.pool;
        if !first.iter().any(|known| is_same(&known)) {
            first.push(row.clone());
        }
    }
    first
}

/// `concurrency 32 (ConcurrencyCapExceeded)`.
fn bound_words(payer: &Payer) -> String {
    let row = &payer.row;
    match row.state {
        RowState::Open => {}
        RowState::SharingOff => return "it does not share".to_owned(),
        RowState::AclDenied => return "it does not lend to the owner (ACLDenied)".to_owned(),
        RowState::BorrowOff => return "the run does not allow borrowing".to_owned(),
        RowState::OutsideWindow => return "outside its window (OutsideWindow)".to_owned(),
        RowState::Paused => return "its budget is paused (BudgetPaused)".to_owned(),
        RowState::Overruns => return "the run overruns it".to_owned(),
    }
    let room = if payer.is_empty {
        format!(" {}", words::number(row.room))
    } else {
        String::new()
    };
    match &row.bound {
        None => String::new(),
        Some(Bound::BorrowLimit) => format!("maxBorrowGPUs{room} (BorrowLimitExceeded)"),
        Some(Bound::Meter { meter, dimension }) => meter_words(meter, *dimension, row, &room),
    }
}

fn meter_words(meter: &MeterId, dimension: Dimension, row: &CoverRow, room: &str) -> String {
    let lent = row.pool == Pool::Lent;
    match (meter, dimension) {
        (MeterId::Envelope(_), Dimension::Gpus) => {
            format!("concurrency{room} (ConcurrencyCapExceeded)")
        }
        (MeterId::Envelope(_), Dimension::Hours) => "maxGPUHours (IntegralCapExceeded)".to_owned(),
        (MeterId::Lending(_), Dimension::Gpus) if lent => {
            format!("lending.maxConcurrency{room} (ConcurrencyCapExceeded)")
        }
        (MeterId::Lending(_), Dimension::Gpus) => "lending (ConcurrencyCapExceeded)".to_owned(),
        (MeterId::Lending(_), Dimension::Hours) => {
            "lending.maxGPUHours (IntegralCapExceeded)".to_owned()
        }
        (MeterId::Cap(cap), Dimension::Gpus) => {
            format!("GPUs{room} of cap {cap} (AggregateCapExceeded)")
        }
        (MeterId::Cap(cap), Dimension::Hours) => {
            format!("hours of cap {cap} (AggregateCapExceeded)")
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_client::api::cluster::CoverRow;
    use bursar_client::{Code, Problem};

    use super::body;

    fn row(envelope: &str, relation: &str, more: &str) -> CoverRow {
        let text = format!(
            r#"{{"group":0,"envelope":"{envelope}","owner":"org:bio","relation":"{relation}",
                "pool":"own","here":true,"gpus":0,{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_refusal_shows_each_envelope_once_with_its_bound() {
        let bound = r#""state":"open","room":32,"bound":{"meter":{"meter":"bio/q4/h100","dimension":"gpus"}}"#;
        let own = row("bio/q4/h100", "own", bound);
        let mut again = own.clone();
        again.group = 1;
        let mut problem = Problem::new(Code::NeverFits, "");
        problem.trace = vec![own, again];
        problem.note = Some("org:bio has no family, and the run names no sponsor".to_owned());
        let expected = "  ENVELOPE     RELATION  PAYS AT MOST  BOUND BY
  bio/q4/h100  own                 32  concurrency 32 (ConcurrencyCapExceeded)
  note: org:bio has no family, and the run names no sponsor\n";
        assert_eq!(body(&problem), expected);
        problem.trace = vec![row("a/b/c", "sibling", r#""state":"sharing-off","room":0"#)];
        assert!(body(&problem).contains("  a/b/c     sibling              0  it does not share\n"));
    }
}
