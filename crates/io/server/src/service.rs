//! What can be asked, without any transport: callers and API types in, API types or a problem out.
//!
//! It decides nothing. Each call checks who asks, turns the request into a command, submits it,
//! and turns the engine's word into an answer; reads are functions of the committed view (L3).

mod events;
mod explaining;
pub(crate) mod health;
pub(crate) mod nearest;
pub(crate) mod proofs;
pub(crate) mod refusal;
pub(crate) mod sight;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bursar_client::{Code, Problem};
use bursar_engine::{Command, Events, Refusal, State, plan};
use bursar_ledger::data::Keys;
use bursar_ledger::index::Index;
use bursar_ledger::intake::Outcome;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::store::{self, Reader};
use bursar_node::market::Agent;
use bursar_units::Instant;
use bursar_units::causes::chain;
use tokio::sync::{Semaphore, watch};

pub(crate) use crate::booking::bookings::missing_tenant;
pub use crate::booking::bookings::{BookingFilter, Cursor, LONG_POLL_MAX, LookAt};
pub use crate::booking::executions::{ExecutionFilter, Logs, LogsFrom, OwnUser};
pub use crate::market::{Since, executions_to_share, node_market};
pub use crate::spine::declared::{Asked, Write};
pub use crate::spine::ledgers::{Chunks, RecordFilter};
pub(crate) use events::without_nulls;
pub use events::{Position, Stream, StreamFilter, StreamItem};
pub(crate) use explaining::EXPLAINED;
pub(crate) use nearest::nearest as nearest_name;
pub use proofs::LogFile;
pub(crate) use proofs::no_subject;
pub use refusal::of_failure;

use crate::caller::Caller;
use crate::log;
use crate::metrics::Metrics;

/// How long a write may take to become durable before its caller is told that nobody knows.
pub const DURABLE_WITHIN: Duration = Duration::from_secs(25);
/// How long a read waits for the record it was asked to reflect.
const RECORD_WITHIN: Duration = Duration::from_secs(25);
/// How long the store may take to say that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// Streams of events and output that may be open at once.
pub const STREAMS_MAX: usize = 1_000;

/// Opens a reader of the store, for one thread.
pub type Readers = Arc<dyn Fn() -> Result<Box<dyn Reader>, store::Error> + Send + Sync>;

/// What a server says of itself.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The program's version.
    pub version: String,
    /// Which kind of store holds the ledger.
    pub store: String,
    /// The file it is in, where there is one.
    pub file: Option<PathBuf>,
    /// When this process began to lead.
    pub leads_since: Instant,
}

/// An answer that is not a problem.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// The HTTP status.
    pub status: u16,
    /// The last record it reflects.
    pub record: u64,
    /// What is answered.
    pub body: T,
}

/// Whether a write is real.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// It is.
    Real,
    /// Only what would happen is answered; nothing is changed.
    DryRun,
}

/// Everything that can be asked.
pub struct Service {
    pub(crate) ledger: Ledger,
    pub(crate) readers: Readers,
    pub(crate) index: Option<Index>,
    pub(crate) keys: Keys,
    pub(crate) info: ServerInfo,
    pub(crate) metrics: Metrics,
    pub(crate) made: crate::spine::tokens::Made,
    pub(crate) streams: Arc<Semaphore>,
    /// Whoever has it plays the market's record back, which is work for a whole processor.
    pub(crate) playing_back: Arc<Semaphore>,
    pub(crate) executing: Option<crate::booking::executions::Executing>,
    pub(crate) market: Option<Arc<Agent>>,
    pub(crate) stopping: watch::Sender<bool>,
}

impl Service {
    /// A service over a ledger that runs.
    pub fn new(
        ledger: Ledger,
        readers: Readers,
        keys: Keys,
        info: ServerInfo,
        metrics: Metrics,
    ) -> Self {
        Self {
            ledger,
            readers,
            index: None,
            keys,
            info,
            metrics,
            made: crate::spine::tokens::Made::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            playing_back: Arc::new(Semaphore::new(1)),
            executing: None,
            market: None,
            stopping: watch::Sender::new(false),
        }
    }

    /// The same with an index, which makes proofs and searches of records quick.
    #[must_use]
    pub fn indexed(self, index: Index) -> Self {
        Self {
            index: Some(index),
            ..self
        }
    }

    /// The ledger beneath.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the server says of itself.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The last committed record.
    pub fn record(&self) -> u64 {
        last_record(&self.ledger.view().read())
    }

    /// Ends streams and long polls; what is being written still is.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Resolves when streams and long polls should end.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as this service, so an error cannot come.
        let _stopped = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Waits until the view has reached a record: read your writes.
    pub async fn reach(&self, record: u64) -> Result<(), Problem> {
        let mut head = self.ledger.view().head();
        let reached = head.wait_for(|head| record < *head);
        if let Ok(Ok(_)) = tokio::time::timeout(RECORD_WITHIN, reached).await {
            return Ok(());
        }
        let last = self.record();
        let detail = format!("record {record} is not here yet, the last is {last}");
        Err(Problem::new(Code::Unavailable, detail))
    }

    /// Commands of one caller, decided in order; resolves when they are durable.
    pub(crate) async fn submit(
        &self,
        caller: &Caller,
        commands: Vec<Command>,
    ) -> Result<Vec<Outcome>, Problem> {
        let submitted = self.ledger.submit(caller.name.clone(), commands);
        match tokio::time::timeout(DURABLE_WITHIN, submitted).await {
            Ok(Ok(mut outcomes)) => {
                // A good renewal is answered before its batch is durable (S7): the records that it
                // was decided behind may be lost, so no answer names one that is not committed.
                let committed = self.record();
                for outcome in &mut outcomes {
                    outcome.record = outcome.record.min(committed);
                }
                Ok(outcomes)
            }
            Ok(Err(failure)) => Err(of_failure(&failure)),
            Err(_) => Err(of_failure(&bursar_ledger::intake::Failure::OutcomeUnknown)),
        }
    }

    /// One command, and what it came to.
    pub(crate) async fn submit_one(
        &self,
        caller: &Caller,
        command: Command,
    ) -> Result<Outcome, Problem> {
        let mut outcomes = self.submit(caller, vec![command]).await?;
        outcomes
            .pop()
            .ok_or_else(|| Problem::new(Code::Internal, "a command had no outcome"))
    }

    /// A command tried out: its outcome, and a copy of the small problem as it would leave it.
    pub(crate) fn plan(&self, command: &Command) -> (Outcome, State) {
        let now = self.ledger.now();
        let (result, events, after) = plan(&self.ledger.view().read(), now, command);
        (planned(&after, now, result, events), after)
    }

    /// Reads the store on a thread that may block.
    pub(crate) async fn read_store<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Reader) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let readers = Arc::clone(&self.readers);
        let task = move || read(readers().map_err(|error| unreadable(&error))?.as_ref());
        tokio::task::spawn_blocking(task)
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Internal, "reading the store panicked")))
    }
}

/// The outcome of a command that was only tried out.
pub(crate) fn planned(
    after: &State,
    time: Instant,
    result: Result<bursar_engine::Answer, Refusal>,
    events: Events,
) -> Outcome {
    Outcome {
        record: last_record(after),
        time,
        result,
        events: Arc::new(events),
    }
}

/// The last record a state covers.
pub(crate) fn last_record(state: &State) -> u64 {
    state.spine.head.saturating_sub(1)
}

/// A store that could not be read.
pub(crate) fn unreadable(error: &dyn std::error::Error) -> Problem {
    tracing::error!(error = chain(error), "{}", log::STORE_UNREADABLE);
    Problem::new(
        Code::Unavailable,
        format!("the store could not be read: {}", chain(error)),
    )
}
