//! `bursar ledger tail`: records as sentences.

use bursar_client::api::{PAGE_MAX, RecordView};
use bursar_client::client::Query;
use bursar_engine::words;

use super::super::Reference;
use super::super::watch::Changes;
use crate::failure::{Failure, Stop};
use crate::grammar::Format;
use crate::layout::{Look, Meaning};
use crate::session::Session;

/// How many records are shown without `--from`.
const LAST: u64 = 20;
/// How wide the column of record numbers is at least.
const NUMBER: usize = 7;
/// How wide the column of callers is at least.
const CALLER: usize = 8;

pub(super) async fn run(
    session: &mut Session,
    reference: Option<&str>,
    watch: bool,
    from: Option<u64>,
) -> Result<(), Stop> {
    if watch && session.is_virtual() {
        return Err(Failure::usage("a scenario has no end to watch for: leave out `-w`").into());
    }
    let kinds = ["booking", "limit", "node", "pod"];
    let reference = reference
        .map(|text| Reference::read(text, &kinds))
        .transpose()?;
    let client = session.client().await?;
    let mut changes = if watch {
        Some(Changes::open(&client).await?)
    } else {
        None
    };
    let head = client.ledger().await?.records;
    let mut next = from.unwrap_or_else(|| match &reference {
        // Of one thing all is shown: its whole life is rarely long.
        Some(_) => 0,
        None => head.saturating_sub(LAST),
    });
    let mut shown = Vec::new();
    loop {
        loop {
            let query = Query::new().with("from", next).with("limit", PAGE_MAX);
            let page = client
                .records(&query.with_some("object", reference.as_ref()))
                .await?;
            let Some(last) = page.items.last().map(|record| record.seq) else {
                next = next.max(page.record.saturating_add(1));
                break;
            };
            next = last.saturating_add(1);
            if watch || !session.for_programs() {
                page.items
                    .iter()
                    .try_for_each(|record| print(session, record))?;
            } else {
                shown.extend(page.items);
            }
        }
        match &mut changes {
            Some(changes) => changes.changed().await?,
            None if session.for_programs() => return session.print_value(&shown),
            None => return Ok(()),
        }
    }
}

fn print(session: &mut Session, record: &RecordView) -> Result<(), Stop> {
    match session.common.output {
        Format::Json | Format::Yaml => session.print_line(record),
        Format::Name => session.console.data(&format!("record/{}\n", record.seq)),
        Format::Table | Format::Wide => {
            let text = text(record, &session.look());
            session.print(&text)
        }
    }
}

/// `48,102  Mon 16 Nov 10:00:01  ada  limit python changed…`, one line per sentence.
fn text(record: &RecordView, look: &Look) -> String {
    let number = words::number(record.seq);
    let Some(at) = record.at else {
        return format!(
            "{number:>NUMBER$}  {}\n",
            look.paint(Meaning::Dim, "pruned: only its hash is kept")
        );
    };
    let by = record.by.as_deref().unwrap_or("-");
    let head = format!(
        "{number:>NUMBER$}  {}  {by:<CALLER$}",
        look.to_the_second(at)
    );
    let indent = " ".repeat(head.chars().count());
    let lines = record.summary.iter().enumerate().map(|(at, sentence)| {
        let head = if at == 0 { &head } else { &indent };
        format!("{head}  {sentence}\n")
    });
    let text: String = lines.collect();
    if text.is_empty() {
        format!("{head}\n")
    } else {
        text
    }
}
