//! The walk over the envelopes that may pay for a run, as a table.

use bursar_client::api::cluster::ListBudgets;
use bursar_client::object::Object;
use bursar_client::{Client, Code, Problem};
use bursar_engine::cluster::budget::cover::{Bound, Dimension, Relation, Row, RowState};
use bursar_engine::cluster::budget::{MeterId, Pool};
use bursar_engine::words;

use crate::failure::{Failure, Stop};
use crate::layout::{Column, Look, Shown, escaped_line, table};

/// A row with the room of its bounds: all of it in the walk on empty meters, otherwise the rest.
struct Payer {
    row: Row,
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

/// A refusal with the walk, the missing payers and the way out.
pub(super) async fn refused(client: &Client, stop: Stop, object: &Object) -> Stop {
    let Stop::Failed(mut failure) = stop else {
        return stop;
    };
    let Some(problem) = failure.problem.as_deref() else {
        return Stop::Failed(failure);
    };
    if !problem.trace.is_empty() {
        let has_relatives = has_relatives(client, object).await;
        failure.body = body(problem, object, has_relatives);
    }
    if failure.hint.is_none() {
        failure.hint = hint(&problem.changes);
    }
    Failure { ..*failure }.into()
}

/// The first ways out; the flag that refuses to wait is the first of all.
fn hint(changes: &[String]) -> Option<String> {
    let changes = changes.iter().map(|text| escaped_line(text).into_owned());
    match changes.take(2).collect::<Vec<_>>().as_slice() {
        [] => None,
        [first, ..] if first.contains("`now`") => Some(first.replace("`now`", "`--now`")),
        [first] => Some(first.clone()),
        [first, second, ..] => Some(format!("{first}, or {second}")),
    }
}

/// Whether the owner of a run has a family; also if that cannot be known.
async fn has_relatives(client: &Client, object: &Object) -> bool {
    let Object::Run { spec, .. } = object else {
        return true;
    };
    let filter = ListBudgets {
        owner: spec.owner.clone(),
        ..ListBudgets::default()
    };
    let Ok(budgets) = client.budgets(&filter).await else {
        return true;
    };
    let statuses = budgets.items.iter().map(|budget| budget.status.as_deref());
    let mut families = statuses.map(|status| status.is_none_or(|status| !status.family.is_empty()));
    spec.owner.is_none() || families.any(|is_some| is_some)
}

fn body(problem: &Problem, object: &Object, has_relatives: bool) -> String {
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
    let note = note(&problem.trace, object, has_relatives).map(|note| format!("note: {note}"));
    let mut text = String::new();
    for line in lines.chain(note) {
        text.extend(["  ", &line, "\n"]);
    }
    text
}

/// The first row of each envelope and right: the later groups of a run find what earlier ones left.
fn first_of_each(rows: &[Row]) -> Vec<Row> {
    let mut first: Vec<Row> = Vec::new();
    for row in rows {
        let is_same = |known: &&Row| known.envelope == row.envelope && known.pool == row.pool;
        if !first.iter().any(|known| is_same(&known)) {
            first.push(row.clone());
        }
    }
    first
}

/// Kinds of payers that the walk did not find.
fn note(rows: &[Row], object: &Object, has_relatives: bool) -> Option<String> {
    let Object::Run { spec, .. } = object else {
        return None;
    };
    let has = |relations: &[Relation]| rows.iter().any(|row| relations.contains(&row.relation));
    let owner = spec.owner.as_ref();
    let owner = owner.or_else(|| {
        let own = rows.iter().find(|row| row.relation == Relation::Owner);
        own.map(|row| &row.owner)
    });
    let owner = owner.map_or("its owner", bursar_units::Label::as_str);
    let has_family = has(&[Relation::Sibling, Relation::Ancestor, Relation::Cousin]);
    let no_family = if has_relatives {
        format!("no relative of {owner} has an envelope of {}", spec.flavor)
    } else {
        format!("{owner} has no family")
    };
    let funding = spec.funding.as_ref();
    let names_sponsor = funding.is_some_and(|funding| !funding.sponsors.is_empty());
    match (has_family, names_sponsor) {
        (false, false) => Some(format!("{no_family}, and the run names no sponsor")),
        (false, true) => Some(no_family),
        (true, false) => Some("the run names no sponsor".to_owned()),
        (true, true) => None,
    }
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

fn meter_words(meter: &MeterId, dimension: Dimension, row: &Row, room: &str) -> String {
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

    use bursar_client::object::{File, Object, read_files};
    use bursar_client::{Code, Problem};
    use bursar_engine::cluster::budget::cover::Row;

    use super::body;

    fn run() -> Object {
        let text = "apiVersion: bursar.dev/v1alpha1\nkind: Run\nmetadata: {name: fold-xl}\n\
                    spec: {owner: 'org:bio', flavor: h100, totalGPUs: 40, podGPUs: 8}\n";
        let file = File {
            name: "fold-xl.yaml".to_owned(),
            bytes: text.into(),
        };
        read_files(&[file]).unwrap().pop().unwrap()
    }

    fn row(envelope: &str, relation: &str, more: &str) -> Row {
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
        let expected = "  ENVELOPE     RELATION  PAYS AT MOST  BOUND BY
  bio/q4/h100  own                 32  concurrency 32 (ConcurrencyCapExceeded)
  note: org:bio has no family, and the run names no sponsor\n";
        assert_eq!(body(&problem, &run(), false), expected);
        problem.trace = vec![row("a/b/c", "sibling", r#""state":"sharing-off","room":0"#)];
        assert!(
            body(&problem, &run(), false)
                .contains("  a/b/c     sibling              0  it does not share\n")
        );
    }
}
