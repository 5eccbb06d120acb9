//! `bursar ledger tail`: records as sentences.

use bursar_client::Client;
use bursar_client::api::{ListAnswer, ListRecords, PAGE_MAX, PageSize, RecordView};
use bursar_engine::{Kind, Reference, words};

use crate::command::read_reference;
use crate::command::watch::Changes;
use crate::failure::{Failure, Stop, not_a_list};
use crate::grammar::Format;
use crate::layout::{Look, Meaning, labelled_within};
use crate::session::Session;

/// Number of records without `--from`.
const LAST: u64 = 20;
/// Least width of the column of record numbers.
const NUMBER: usize = 7;
/// Least width of the column of callers.
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
    let reference = reference
        .map(|text| read_reference(text, &Kind::ALL))
        .transpose()?;
    let client = session.client().await?;
    let mut changes = if watch {
        Some(Changes::open(&client).await?)
    } else {
        None
    };
    let head = client.ledger().await?.records;
    let first = from.unwrap_or_else(|| match &reference {
        // One object rarely has many records.
        Some(_) => 0,
        None => head.saturating_sub(LAST),
    });
    let fetch = async |start: &PageStart| {
        let page = ListRecords {
            limit: Some(PageSize(PAGE_MAX)),
            object: reference.clone(),
            ..start.query()
        };
        Ok(client.records(&page).await?)
    };
    let mut start = PageStart::Record(first);
    let mut shown = Vec::new();
    loop {
        let take = |records: Vec<RecordView>| {
            if watch || !session.for_programs() {
                return records.iter().try_for_each(|record| print(session, record));
            }
            shown.extend(records);
            Ok(())
        };
        start = read(start, fetch, take).await?;
        match &mut changes {
            Some(changes) => changes.changed().await?,
            None if session.for_programs() => return session.print_value(&shown),
            None => return Ok(()),
        }
    }
}

/// All records about an object.
pub(in crate::command) async fn history(
    client: &Client,
    object: &Reference,
) -> Result<Vec<RecordView>, Stop> {
    let fetch = async |start: &PageStart| {
        let page = ListRecords {
            limit: Some(PageSize(PAGE_MAX)),
            object: Some(object.clone()),
            ..start.query()
        };
        Ok(client.records(&page).await?)
    };
    let mut all = Vec::new();
    let take = |records| {
        all.extend(records);
        Ok(())
    };
    read(PageStart::Record(0), fetch, take).await?;
    Ok(all)
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum PageStart {
    Record(u64),
    Cursor(String),
}

impl PageStart {
    fn query(&self) -> ListRecords {
        let mut query = ListRecords::default();
        match self {
            Self::Record(record) => query.from = Some(*record),
            Self::Cursor(cursor) => query.cursor = Some(cursor.clone()),
        }
        query
    }
}

/// Reads to the end and returns the start of the next page. An empty page may not be the last: the
/// server scans a bounded number of records per page.
async fn read(
    mut start: PageStart,
    fetch: impl AsyncFn(&PageStart) -> Result<ListAnswer<RecordView>, Stop>,
    mut take: impl FnMut(Vec<RecordView>) -> Result<(), Stop>,
) -> Result<PageStart, Stop> {
    loop {
        let page = fetch(&start).await?;
        let next = page.next_cursor.map(PageStart::Cursor);
        let is_last = next.is_none() || next.as_ref() == Some(&start);
        // The last page has no cursor; the next one starts after its last record.
        let after = page.items.last();
        let after = after.map(|record| PageStart::Record(record.seq.saturating_add(1)));
        start = next.or(after).unwrap_or(start);
        take(page.items)?;
        if is_last {
            return Ok(start);
        }
    }
}

fn print(session: &mut Session, record: &RecordView) -> Result<(), Stop> {
    match session.common.output {
        Format::Json | Format::Yaml => session.print_line(record),
        Format::Name => session.console.data(&format!("record/{}\n", record.seq)),
        Format::Csv => Err(not_a_list().into()),
        Format::Table | Format::Wide => {
            let text = text(record, &session.look(), session.console.columns());
            session.print(&text)
        }
    }
}

/// `48,102  Mon 16 Nov 10:00:01  ada  limit python changed…`, each sentence on its own lines.
pub(in crate::command) fn text(record: &RecordView, look: &Look, columns: usize) -> String {
    let number = words::number(record.seq);
    let Some(at) = record.at else {
        return format!(
            "{number:>NUMBER$}  {}\n",
            look.paint(Meaning::Dim, "pruned: only its hash is kept")
        );
    };
    let by = record.by.as_deref().unwrap_or("-");
    let head = format!(
        "{number:>NUMBER$}  {}  {by:<CALLER$}  ",
        look.to_the_second(at)
    );
    if record.summary.is_empty() {
        return labelled_within(&head, "", columns);
    }
    let indent = " ".repeat(head.chars().count());
    let heads = std::iter::once(&head).chain(std::iter::repeat(&indent));
    let lines = heads.zip(&record.summary);
    lines
        .map(|(head, sentence)| labelled_within(head, sentence, columns))
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::cell::Cell;

    use bursar_client::api::{ListAnswer, RecordView, instant};
    use bursar_units::Instant;

    use super::{PageStart, read, text};
    use crate::layout::{Look, WIDTH};

    fn record(seq: u64) -> RecordView {
        RecordView {
            seq,
            at: None,
            by: None,
            about: Vec::new(),
            summary: Vec::new(),
            raw: None,
        }
    }

    /// Reads a ledger of `count` records with pages of ten; returns the `wanted` records that were
    /// taken, and the start of the next page.
    async fn taken(count: u64, wanted: &[u64], from: PageStart) -> (Vec<u64>, PageStart) {
        let pages = Cell::new(0);
        let fetch = async |start: &PageStart| {
            pages.set(pages.get() + 1);
            assert!(pages.get() < 100, "it never ends");
            let first = match start {
                PageStart::Record(record) => *record,
                PageStart::Cursor(cursor) => cursor.parse().unwrap(),
            };
            let until = (first + 10).min(count);
            let found = wanted.iter().filter(|seq| (first..until).contains(seq));
            Ok(ListAnswer {
                items: found.map(|seq| record(*seq)).collect(),
                next_cursor: (until < count).then(|| until.to_string()),
                record: count,
            })
        };
        let mut all = Vec::new();
        let end = read(from, fetch, |records| {
            all.extend(records.iter().map(|record| record.seq));
            Ok(())
        });
        let end = end.await.unwrap();
        (all, end)
    }

    #[tokio::test]
    async fn a_page_without_a_record_is_not_the_end() {
        let wanted = [3, 47, 58];
        let (all, end) = taken(65, &wanted, PageStart::Record(0)).await;
        assert_eq!(all, wanted);
        // New records are read from there, and none twice.
        let later = [3, 47, 58, 66];
        assert_eq!(taken(70, &later, end).await.0, [66]);
        let (all, end) = taken(59, &wanted, PageStart::Record(0)).await;
        assert_eq!(
            (all.as_slice(), &end),
            (&wanted[..], &PageStart::Record(59))
        );
        assert!(taken(59, &wanted, end).await.0.is_empty());
    }

    #[tokio::test]
    async fn a_repeated_cursor_is_the_end() {
        let fetch = async |_: &PageStart| {
            Ok(ListAnswer {
                items: Vec::new(),
                next_cursor: Some("5".to_owned()),
                record: 9,
            })
        };
        let end = read(PageStart::Record(0), fetch, |_| Ok(())).await.unwrap();
        assert_eq!(end, PageStart::Cursor("5".to_owned()));
    }

    /// Records in `docs/market.md`, which a script without a machine cannot make.
    const SHOWN: [(u64, &str, &str); 2] = [
        (
            17,
            "2026-11-16T10:00:05Z",
            "web on w-17 takes part: it came with a limit of 900m, which is kept",
        ),
        (
            18,
            "2026-11-16T10:04:10Z",
            "w-17: congested, was uncongested: 3 pods need 2550m, 1500m can be shared",
        ),
    ];

    fn shown(columns: usize) -> String {
        let look = Look {
            now: Instant::from_ms(0),
            zone: jiff::tz::TimeZone::UTC,
            utf8: true,
            color: false,
        };
        let records = SHOWN.iter().map(|(seq, at, sentence)| RecordView {
            at: Some(instant::parse(at).unwrap()),
            by: Some("bursar".to_owned()),
            summary: vec![(*sentence).to_owned()],
            ..record(*seq)
        });
        records.map(|one| text(&one, &look, columns)).collect()
    }

    #[test]
    fn long_sentences_wrap_below_their_start() {
        for columns in [80, WIDTH] {
            let text = shown(columns);
            assert!(
                text.lines().all(|line| line.chars().count() <= columns),
                "{text}"
            );
        }
        let guide = include_str!("../../../../../../../docs/market.md");
        let text = shown(WIDTH);
        assert!(guide.contains(&format!("```\n{text}```\n")), "{text}");
    }
}
