//! The stream of events, which goes on by itself after a loss (design 80, 4.5).
//!
//! The position of the last event is kept and sent when the stream is opened again, so nothing is
//! lost and nothing comes twice. Where the server no longer has that position it says so once
//! ([`StreamItem::Reset`]): list again, the stream goes on.

use std::collections::VecDeque;
use std::time::Duration;

use http::{HeaderName, Method, header};
use tokio::time::{sleep, timeout};

use super::exchange::{Call, is_worth_repeating};
use super::sse::{Parser, RawEvent};
use super::{Client, Download, Error, Pause, Query};
use crate::api::{SIGNED_OUT, StreamEvent};

/// How long a stream may be silent: three of the comments that keep it open are missing then.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// The name of the event that says: too old a position.
const RESET: &str = "reset";

/// Where an event stands: its record, and its place in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct EventId {
    /// The record.
    pub record: u64,
    /// The place in it.
    pub index: u64,
}

/// What a stream says.
#[derive(Debug)]
pub enum StreamItem {
    /// Something happened.
    Event {
        /// Where it stands.
        id: EventId,
        /// Its name, as in `booking.granted`.
        name: String,
        /// What happened.
        event: StreamEvent,
    },
    /// Something is told as it happens and is not on record, as in `pod.resized`: it has no place,
    /// and may be lost to whoever reads slowly.
    Passing {
        /// Its name.
        name: String,
        /// What happened.
        event: StreamEvent,
    },
    /// Events were missed: list again.
    Reset,
    /// The stream broke and will be opened again by the next call.
    Interrupted(Error),
}

/// Events as they happen.
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
    /// Opens the stream; `kinds` and `from` say which events. Fails if it cannot be opened now.
    pub async fn events(&self, query: Query) -> Result<EventStream, Error> {
        let mut stream = EventStream {
            client: self.clone(),
            query,
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
    /// The next thing the stream says; `Err` where opening it again makes no sense.
    ///
    /// May be dropped and called again: no event is lost.
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

    /// Takes what comes next into `waiting`.
    async fn read(&mut self) -> Result<(), Error> {
        let Some((download, parser)) = &mut self.open else {
            return Ok(());
        };
        let Ok(chunk) = timeout(SILENCE_MAX, download.chunk()).await else {
            let server = self.client.server().to_owned();
            return Err(Error::Timeout {
                server,
                after: SILENCE_MAX,
            });
        };
        let Some(bytes) = chunk? else {
            self.open = None;
            return Ok(());
        };
        (self.pause, self.is_broken) = (Pause::new(), false);
        let events = parser.push(&bytes);
        let events = events.map_err(|_| self.client.protocol("an event without end".to_owned()))?;
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
            // The stream ends here. Opening it again is refused, and says why.
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
                .protocol(format!("an event {:?} it cannot have", raw.name)));
        };
        // A server that repeats itself after a loss is not repeated to the reader.
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
