//! Lists of records, as sentences.

use std::collections::BTreeSet;
use std::ops::Range;

use bursar_client::Problem;
use bursar_client::api::{ListAnswer, RecordView};
use bursar_engine::Reference;
use bursar_engine::summary::notices;
use bursar_engine::{Event, codec, dated};
use bursar_journal::hash::Hash;
use bursar_ledger::index::{Index, search_part};
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::store::{Kept, Reader};
use bursar_units::Instant;
use serde_json::value::RawValue;

use crate::caller::Caller;
use crate::service::proofs::READ_BYTES;
use crate::service::sight::{may_read_bytes, sees_event};
use crate::service::{Answer, Service, last_record, unreadable};

/// Records read for one page, not counting those that the index skips.
const READ_MAX: u64 = 20_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct RecordFilter {
    pub(crate) from: u64,
    /// Only records about this object, such as `booking/job-1`.
    pub(crate) object: Option<Reference>,
    pub(crate) is_raw: bool,
}

impl Service {
    pub(crate) async fn records(
        &self,
        caller: &Caller,
        filter: RecordFilter,
        limit: usize,
    ) -> Result<Answer<ListAnswer<RecordView>>, Problem> {
        self.may_list(caller, filter.object.as_ref(), filter.is_raw)?;
        let page = Page {
            ledger: self.ledger.clone(),
            index: self.index.clone(),
            caller: caller.clone(),
            object: filter.object,
            is_raw: filter.is_raw,
            limit,
        };
        let body = self
            .read_store(move |reader| page.read(reader, filter.from))
            .await?;
        Ok(Answer::ok(body.record, body))
    }

    /// Refuses a caller that may not read this list. A search may read the whole store, so anonymous
    /// callers may not search.
    fn may_list(
        &self,
        caller: &Caller,
        object: Option<&Reference>,
        is_raw: bool,
    ) -> Result<(), Problem> {
        match object {
            Some(object) if is_raw || !caller.sees_all() => self.may_prove(caller, object),
            Some(_) => caller.require_known("search records"),
            None if is_raw => caller.require_operate(READ_BYTES),
            None => caller.require_view("read records"),
        }
    }
}

struct Page {
    ledger: Ledger,
    index: Option<Index>,
    caller: Caller,
    object: Option<Reference>,
    is_raw: bool,
    limit: usize,
}

impl Page {
    fn read(&self, reader: &dyn Reader, from: u64) -> Result<ListAnswer<RecordView>, Problem> {
        // The view limits the list: a record in the store but not in the view is not public yet.
        let head = self.ledger.view().read().spine.head;
        let (read, next) = match &self.object {
            Some(object) => self.search(reader, object, from..head)?,
            None => self.list(reader, from..head)?,
        };
        let items = read.into_iter().map(|kept| self.view(reader, kept));
        let items = items.collect::<Result<_, _>>()?;
        let next_cursor = (next < head).then(|| next.to_string());
        let record = last_record(&self.ledger.view().read());
        Ok(ListAnswer {
            items,
            next_cursor,
            record,
        })
    }

    /// Reads up to `limit` records of a range. Returns them and the start of the next page.
    fn list(&self, reader: &dyn Reader, records: Range<u64>) -> Result<(Vec<Kept>, u64), Problem> {
        let wanted = usize::try_from(records.end.saturating_sub(records.start));
        let max = wanted.unwrap_or(self.limit).min(self.limit);
        let read = reader.records(records.start, max);
        let read = read.map_err(|error| unreadable(&error))?;
        let next = read.last().map_or(records.end, |last| last.seq + 1);
        Ok((read, next))
    }

    /// Like [`Self::list`], for the records about an object.
    fn search(
        &self,
        reader: &dyn Reader,
        object: &Reference,
        records: Range<u64>,
    ) -> Result<(Vec<Kept>, u64), Problem> {
        let index = self.index.as_ref();
        let found = search_part(reader, index, object, records, self.limit, READ_MAX);
        let kept = |(seq, bytes)| Kept {
            seq,
            bytes: Some(bytes),
        };
        let found = found.map_err(|error| unreadable(&error))?;
        Ok((found.records.into_iter().map(kept).collect(), found.next))
    }

    fn view(&self, reader: &dyn Reader, kept: Kept) -> Result<RecordView, Problem> {
        let seq = kept.seq;
        let Some(bytes) = kept.bytes else {
            let summary = vec!["its payload was pruned".to_owned()];
            return Ok(RecordView {
                seq,
                at: None,
                by: None,
                about: Vec::new(),
                summary,
                raw: None,
            });
        };
        let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
        let record = codec::decode(seq, &bytes, blob).map_err(|error| unreadable(&error))?;
        let state = self.ledger.view().read();
        let events = || dated(record.time, &record.events);
        let sees = |(at, event): &(Instant, &Event)| sees_event(&state, &self.caller, *at, event);
        let noticed = events().zip(notices(record.time, &record.events));
        let noticed = noticed.filter(|(event, _)| sees(event));
        let summary = noticed.map(|(_, notice)| notice.summary).collect();
        let visible = events().filter(sees);
        let about: BTreeSet<String> = visible
            .flat_map(|(_, event)| event.subjects())
            .map(|subject| subject.to_string())
            .collect();
        let may_read = may_read_bytes(&state, &self.caller, &record);
        let raw = (self.is_raw && may_read).then(|| String::from_utf8(bytes).ok());
        let raw = raw.flatten();
        Ok(RecordView {
            seq,
            at: Some(record.time),
            by: (may_read || self.caller.sees_all()).then(|| record.by.to_string()),
            about: about.into_iter().collect(),
            summary,
            raw: raw.and_then(|raw| RawValue::from_string(raw).ok()),
        })
    }
}
