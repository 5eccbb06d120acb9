//! Stream of events, which reconnects after a loss.
//!
//! The position of the last event is sent when the stream is opened again, so no event is lost or
//! repeated. If the server no longer has that position, it sends one [`StreamItem::Reset`]: the
//! reader lists again, and the stream goes on.

use std::collections::VecDeque;
use std::time::Duration;

use http::{HeaderName, Method, header};
use tokio::time::{sleep, timeout};

use super::exchange::{Call, is_worth_repeating};
use super::sse::{Parser, RawEvent};
use super::{Client, Download, Error, Pause, Query};
use crate::api::{SIGNED_OUT, StreamEvent, StreamEvents};

/// Maximum silence of a stream: three keep-alive comments are missing then.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Name of the event for a position that is too old.
const RESET: &str = "reset";

/// Position of an event: its record, and its index in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct EventId {
    /// Number of the record.
    pub record: u64,
    /// Index in the record.
    pub index: u64,
}

/// Item of a stream.
#[derive(Debug)]
pub enum StreamItem {
    /// A recorded event.
    Event {
        /// Position.
        id: EventId,
        /// Name, as in `booking.granted`.
        name: String,
        /// Data.
        event: StreamEvent,
    },
    /// A live-only event, as in `pod.resized`. It is not recorded, has no position, and a slow
    /// reader may miss it.
    Passing {
        /// Name.
        name: String,
        /// Data.
        event: StreamEvent,
    },
    /// Events were missed; the reader has to list again.
    Reset,
    /// The stream broke; the next call opens it again.
    Interrupted(Error),
}

/// Stream of events.
pub struct EventStream {
    client: Client,
    query: Query,
    last: Option<EventId>,
    open: Option<(Download, Parser)>,
    waiting: VecDeque<StreamItem>,
    pause: Pause,
    is_broken: bool,
}

impl std::str::FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (record, index) = text.split_once('.').ok_or(())?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| ());
        Ok(Self {
            record: number(record)?,
            index: number(index)?,
        })
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.record, self.index)
    }
}

impl Client {
    /// Opens the stream. Fails if it cannot be opened now.
    pub async fn events(&self, filter: &StreamEvents) -> Result<EventStream, Error> {
        let mut stream = EventStream {
            client: self.clone(),
            query: Query::of(filter),
            last: None,
            open: None,
            waiting: VecDeque::new(),
            pause: Pause::new(),
            is_broken: false,
        };
        stream.connect().await?;
        Ok(stream)
    }
}

impl EventStream {
    /// Next item; `Err` if opening the stream again cannot help.
    ///
    /// Cancellation-safe: no event is lost.
    pub async fn next(&mut self) -> Result<StreamItem, Error> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Ok(item);
            }
            if self.open.is_none() {
                if std::mem::replace(&mut self.is_broken, true) {
                    sleep(self.pause.next()).await;
                }
                if let Err(error) = self.connect().await {
                    return interrupted(error);
                }
            }
            if let Err(error) = self.read().await {
                self.open = None;
                return interrupted(error);
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let target = format!("/v1/events{}", self.query.as_str());
        let mut call = Call::new(Method::GET, target).header(header::ACCEPT, "text/event-stream");
        if let Some(last) = self.last {
            call = call.header(HeaderName::from_static("last-event-id"), &last.to_string());
        }
        let download = self.client.download_once(&call).await?;
        self.open = Some((download, Parser::default()));
        Ok(())
    }

    /// Reads the next chunk into `waiting`.
    async fn read(&mut self) -> Result<(), Error> {
        let Some((download, parser)) = &mut self.open else {
            return Ok(());
        };
        let Ok(chunk) = timeout(SILENCE_MAX, download.chunk()).await else {
            return Err(self.client.timed_out(SILENCE_MAX));
        };
        let Some(bytes) = chunk? else {
            self.open = None;
            return Ok(());
        };
        (self.pause, self.is_broken) = (Pause::new(), false);
        let events = parser.push(&bytes);
        let events = events.map_err(|_| self.client.protocol("an event is too long".to_owned()))?;
        for event in events {
            self.take(&event)?;
        }
        Ok(())
    }

    fn take(&mut self, raw: &RawEvent) -> Result<(), Error> {
        let id = raw.id.as_deref().and_then(|id| id.parse::<EventId>().ok());
        if raw.name == RESET {
            self.last = id.or(self.last);
            self.waiting.push_back(StreamItem::Reset);
            return Ok(());
        }
        if raw.name == SIGNED_OUT {
            // The stream ends here. The refusal of the next attempt to open it has the cause.
            return Ok(());
        }
        let event: Option<StreamEvent> = serde_json::from_str(&raw.data).ok();
        if let (None, Some(event)) = (&raw.id, &event) {
            self.waiting.push_back(StreamItem::Passing {
                name: raw.name.clone(),
                event: event.clone(),
            });
            return Ok(());
        }
        let (Some(id), Some(event)) = (id, event) else {
            return Err(self
                .client
                .protocol(format!("the event {:?} cannot be read", raw.name)));
        };
        // After a loss the server may repeat events.
        if self.last.is_none_or(|last| last < id) {
            self.last = Some(id);
            self.waiting.push_back(StreamItem::Event {
                id,
                name: raw.name.clone(),
                event,
            });
        }
        Ok(())
    }
}

fn interrupted(error: Error) -> Result<StreamItem, Error> {
    if is_worth_repeating(&error) || matches!(error, Error::Timeout { .. }) {
        Ok(StreamItem::Interrupted(error))
    } else {
        Err(error)
    }
}
