//! The stream of events: history from the store, then published events, without loss or repeat.
//!
//! A position is a record and the index of an event in it; live events without a record have none.
//! A stream subscribes first, then reads the history up to the head at that moment. If it falls
//! behind, it reads the store again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bursar_client::api::StreamEvent;
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem, nearest};
use bursar_engine::codec::decode_events;
use bursar_engine::event::stream_names;
use bursar_engine::summary::{Data, Notice, notices};
use bursar_engine::{Event, dated};
use bursar_ledger::store::Reader;
use bursar_ledger::view::Published;
use bursar_ledger::writer::Fact;
use bursar_node::market::Resize;
use bursar_units::{Instant, Label, ObjectName};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::sight::{event_tenant, sees_event};
use super::{STREAMS_MAX, Service, unreadable};
use crate::caller::{Caller, Owner};
use crate::{cluster, market, spine};

const HISTORY_CHUNK: usize = 256;
/// Number of past records that an anonymous caller may read, enough for a page that was left open.
const ANONYMOUS_RECORDS_MAX: u64 = 10_000;

/// Position in the stream: the last event that the client has.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) struct Position {
    pub(crate) record: u64,
    /// Index of the event in the record; `None` means all of its events.
    pub(crate) index: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StreamFilter {
    /// Kinds (`booking`) or names (`booking.granted`); empty means all.
    pub(crate) kinds: Vec<String>,
    pub(crate) tenant: Option<Label>,
    /// Namespace of runs and budgets.
    pub(crate) namespace: Option<ObjectName>,
}

#[derive(Clone, Debug)]
pub(crate) enum StreamItem {
    Event {
        /// Record and index, as in `Last-Event-ID`.
        id: String,
        name: &'static str,
        event: StreamEvent,
    },
    /// A live event without a record. It has no position.
    Live {
        name: &'static str,
        event: StreamEvent,
    },
    /// The position was too old: the client must list again.
    Reset {
        /// The stream continues after this record.
        record: u64,
    },
}

pub(crate) struct Stream {
    service: Arc<Service>,
    caller: Arc<Caller>,
    filter: StreamFilter,
    live: Receiver<Published>,
    /// Changed CPU limits, if this node has a market and the client wants and may see them.
    resizes: Option<Receiver<Arc<Resize>>>,
    next: u64,
    /// Records below this one are read from the store.
    history_until: u64,
    /// Number of events of record `next` that the client already has.
    known: u64,
    ready: VecDeque<StreamItem>,
    _permit: OwnedSemaphorePermit,
}

impl Position {
    /// Parses `record.index`, as in `Last-Event-ID`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (record, index) = text.split_once('.')?;
        Some(Self {
            record: record.parse().ok()?,
            index: Some(index.parse().ok()?),
        })
    }
}

impl StreamFilter {
    /// Parses a filter. Unknown kinds are refused, because a typo would give a silent stream.
    pub(crate) fn parse(
        kinds: Option<&str>,
        tenant: Option<Label>,
        namespace: Option<ObjectName>,
    ) -> Result<Self, Problem> {
        let kinds: Vec<String> = kinds
            .into_iter()
            .flat_map(|kinds| kinds.split(','))
            .map(str::to_owned)
            .collect();
        let errors: Vec<_> = kinds.iter().filter_map(|kind| wrong_kind(kind)).collect();
        if errors.is_empty() {
            Ok(Self {
                kinds,
                tenant,
                namespace,
            })
        } else {
            Err(Problem::invalid(errors))
        }
    }

    fn names(&self, name: &str) -> bool {
        let kind = first_part(name);
        let is_kind = |wanted: &String| wanted == kind || wanted == name;
        self.kinds.is_empty() || self.kinds.iter().any(is_kind)
    }

    fn wants(&self, name: &str, tenant: impl FnOnce() -> Option<Label>) -> bool {
        self.names(name) && (self.tenant.is_none() || self.tenant == tenant())
    }

    /// Only runs and budgets have a namespace.
    fn wants_namespace(&self, event: &Event) -> bool {
        self.namespace.as_ref().is_none_or(|wanted| {
            let namespace = match event {
                Event::Cluster(event) => cluster::sight::event_namespace(event),
                _ => None,
            };
            namespace.is_some_and(|namespace| namespace == wanted.as_str())
        })
    }

    /// Changed CPU limits belong to no tenant and no namespace, so such a filter excludes them.
    fn wants_resizes(&self, caller: &Caller) -> bool {
        let is_open = self.tenant.is_none() && self.namespace.is_none();
        self.names(market::stream::RESIZED) && is_open && caller.sees(Owner::Server)
    }
}

impl Service {
    pub(crate) fn follow(
        self: &Arc<Self>,
        caller: Arc<Caller>,
        filter: StreamFilter,
        from: Option<Position>,
    ) -> Result<Stream, Problem> {
        let permit = self.stream_permit()?;
        // Subscribe before reading the head, so that no later record is missed.
        let live = self.ledger.view().stream();
        let head = self.ledger.view().read().spine.head;
        let (next, known) = match from {
            None => (head, 0),
            Some(Position { record, index }) => match index {
                None => (record.saturating_add(1), 0),
                Some(index) => (record, index.saturating_add(1)),
            },
        };
        let agent = self.market.as_ref();
        let agent = agent.filter(|_| filter.wants_resizes(&caller));
        let resizes = agent.map(|agent| agent.resizes());
        let mut stream = Stream {
            resizes,
            service: Arc::clone(self),
            caller,
            filter,
            live,
            next,
            history_until: head,
            known,
            ready: VecDeque::new(),
            _permit: permit,
        };
        let is_far = ANONYMOUS_RECORDS_MAX < head.saturating_sub(next);
        // A position beyond the head is invented, or older than a restore. An anonymous caller may
        // not have the whole store read.
        if next > head || is_far && stream.caller.require_known("read the past").is_err() {
            stream.reset(head);
        }
        Ok(stream)
    }

    /// Takes one of the [`STREAMS_MAX`] permits, for a stream of events or of output.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let detail = format!("all {STREAMS_MAX} streams are in use; try again later");
            Problem {
                retry_after_ms: Some(1_000),
                ..Problem::new(Code::Busy, detail)
            }
        })
    }
}

impl Stream {
    /// Waits for the next item; `None` when the server stops.
    pub(crate) async fn next(&mut self) -> Option<Result<StreamItem, Problem>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            let service = Arc::clone(&self.service);
            let more = tokio::select! {
                more = self.more() => more,
                () = service.stopped() => return None,
            };
            if let Err(problem) = more {
                return Some(Err(problem));
            }
        }
    }

    /// Reads more items, from the store or as they are published. Cancellation-safe: `next` moves
    /// only after the last await.
    async fn more(&mut self) -> Result<(), Problem> {
        if self.next < self.history_until {
            return self.history().await;
        }
        let live = tokio::select! {
            live = self.live.recv() => live,
            resize = resize(self.resizes.as_mut()) => {
                self.push_resize(resize);
                return Ok(());
            }
        };
        match live {
            Ok(published) => {
                for fact in published.iter() {
                    self.take(fact);
                }
            }
            Err(RecvError::Lagged(_)) => {
                self.history_until = self.service.ledger.view().read().spine.head;
            }
            Err(RecvError::Closed) => self.service.stopped().await,
        }
        Ok(())
    }

    /// A slow client misses some changes. The channel closes when the agent ends.
    fn push_resize(&mut self, resize: Result<Arc<Resize>, RecvError>) {
        match resize {
            Ok(resize) => self.ready.push_back(StreamItem::Live {
                name: market::stream::RESIZED,
                event: market::stream::resized(&resize),
            }),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => self.resizes = None,
        }
    }

    async fn history(&mut self) -> Result<(), Problem> {
        let from = self.next;
        let read = self
            .service
            .read_store(move |reader| read_events(reader, from))
            .await?;
        match read {
            Some(records) if records.is_empty() => {
                let detail = format!("record {from} is not in the store");
                return Err(Problem::new(Code::Unavailable, detail));
            }
            Some(records) => {
                for record in &records {
                    self.take(record);
                }
            }
            None => {
                let head = self.service.ledger.view().read().spine.head;
                self.reset(head);
            }
        }
        Ok(())
    }

    fn take(&mut self, record: &Fact) {
        let Fact { seq, time, events } = record;
        let (seq, time) = (*seq, *time);
        if seq < self.next {
            return;
        }
        let state = self.service.ledger.view().read();
        let noticed = notices(time, events).into_iter().zip(dated(time, events));
        for (index, (notice, (at, event))) in (0..).zip(noticed) {
            let Some(name) = notice.stream else { continue };
            let is_new = self.known <= index;
            let known = || event_tenant(&state, at, event);
            let tenant = || notice.tenant.clone().or_else(known);
            let is_wanted =
                is_new && self.filter.wants(name, tenant) && self.filter.wants_namespace(event);
            if is_wanted && sees_event(&state, &self.caller, at, event) {
                self.ready.push_back(item(seq, index, at, name, notice));
            }
        }
        drop(state);
        self.next = seq + 1;
        self.known = 0;
    }

    /// Skips to `head` and sends a reset.
    fn reset(&mut self, head: u64) {
        (self.next, self.history_until, self.known) = (head, head, 0);
        self.ready.push_back(StreamItem::Reset {
            record: head.saturating_sub(1),
        });
    }
}

/// The mistake in a kind or a whole name.
fn wrong_kind(kind: &str) -> Option<FieldError> {
    let mut names = stream_names();
    names.insert(market::stream::RESIZED);
    let kinds: BTreeSet<&str> = names.iter().map(|name| first_part(name)).collect();
    if kinds.contains(kind) || names.contains(kind) {
        return None;
    }
    let first = first_part(kind);
    let (words, near) = if kinds.contains(first) {
        names.retain(|name| first_part(name) == first);
        (&names, nearest(kind, names.iter().copied()))
    } else {
        (&kinds, nearest(first, kinds.iter().copied()))
    };
    let what = if kinds.contains(first) {
        "names"
    } else {
        "kinds"
    };
    let words: Vec<&str> = words.iter().copied().collect();
    let message = format!("has `{kind}`; {what} are {}", words.join(", "));
    Some(FieldError {
        suggestion: near.map(|near| format!("did you mean `{near}`?")),
        ..FieldError::new("kinds", message)
    })
}

/// `booking` of `booking.granted`.
fn first_part(name: &str) -> &str {
    name.split_once('.').map_or(name, |(first, _)| first)
}

/// Never resolves without a market.
async fn resize(resizes: Option<&mut Receiver<Arc<Resize>>>) -> Result<Arc<Resize>, RecvError> {
    match resizes {
        Some(resizes) => resizes.recv().await,
        None => std::future::pending().await,
    }
}

/// Reads a chunk of the history; `None` if it was pruned.
fn read_events(reader: &dyn Reader, from: u64) -> Result<Option<Vec<Fact>>, Problem> {
    let kept = reader
        .records(from, HISTORY_CHUNK)
        .map_err(|error| unreadable(&error))?;
    let mut records = Vec::with_capacity(kept.len());
    for record in kept {
        let Some(bytes) = record.bytes else {
            return Ok(None);
        };
        let blob = |sha256: &bursar_journal::hash::Hash| reader.blob(sha256).ok().flatten();
        let decoded = decode_events(record.seq, &bytes, blob);
        let (time, events) = decoded.map_err(|error| unreadable(&error))?;
        records.push(Fact {
            seq: record.seq,
            time,
            events: Arc::new(events),
        });
    }
    Ok(Some(records))
}

fn item(seq: u64, index: u64, at: Instant, name: &'static str, notice: Notice) -> StreamItem {
    let mut data = facts(&notice.data);
    if let Value::Object(fields) = &mut data {
        for (name, label) in [("class", &notice.class), ("tenant", &notice.tenant)] {
            if let Some(label) = label {
                fields.insert(name.to_owned(), Value::from(label.as_str()));
            }
        }
    }
    let event = StreamEvent {
        at,
        object: notice.object,
        summary: notice.summary,
        data,
    };
    StreamItem::Event {
        id: format!("{seq}.{index}"),
        name,
        event,
    }
}

fn facts(data: &Data) -> Value {
    without_nulls(match data {
        // A number, a word or nothing: it can always be written.
        Data::Booking(data) => serde_json::to_value(data).unwrap_or_default(),
        Data::Market(event) => market::stream::facts(event),
        // An event is written as in the journal.
        Data::Cluster(event) => serde_json::to_value(event).unwrap_or_default(),
        Data::Spine(data) => spine::stream::facts(data),
    })
}

pub(crate) fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, value| !value.is_null());
    }
    value
}
