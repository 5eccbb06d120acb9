//! The API without a transport: takes callers and API types, returns API types or a problem.
//!
//! The service decides nothing. A call checks the caller's rights, turns the request into a command,
//! submits it, and turns the engine's result into an answer. Reads use the committed view (L3).

mod events;
mod explaining;
pub(crate) mod health;
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

pub(crate) use crate::booking::bookings::{Cursor, missing_tenant};
pub use crate::booking::executions::OwnUser;
pub(crate) use crate::booking::executions::{Logs, LogsFrom};
pub use crate::market::executions_to_share;
pub(crate) use crate::spine::declared::{ObjectChange, WriteOptions};
pub(crate) use crate::spine::ledgers::{Chunks, RecordFilter};
pub(crate) use events::{Position, Stream, StreamFilter, StreamItem, without_nulls};
pub(crate) use explaining::EXPLAINED;
pub use refusal::of_failure;

use crate::caller::Caller;
use crate::log;
use crate::metrics::Metrics;

/// Time for a write to become durable; after it the outcome is answered as unknown.
pub(crate) const DURABLE_WITHIN: Duration = Duration::from_secs(25);
/// Time that a read waits for the record that it must reflect.
const RECORD_WITHIN: Duration = Duration::from_secs(25);
const READY_WITHIN: Duration = Duration::from_secs(2);
/// Limit on open streams of events and of execution output.
pub const STREAMS_MAX: usize = 1_000;

/// Opens a reader of the store, for one thread.
pub type Readers = Arc<dyn Fn() -> Result<Box<dyn Reader>, store::Error> + Send + Sync>;

/// Facts about this server.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Version of the program.
    pub version: String,
    /// Kind of the store.
    pub store: String,
    /// File of the store, if it has one.
    pub file: Option<PathBuf>,
    /// Start of this process's term.
    pub leads_since: Instant,
    /// Name of the node of the machine that it runs on; runs on other nodes are simulated.
    pub node: Option<String>,
}

/// A successful answer.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// HTTP status.
    pub status: u16,
    /// Last record that the answer reflects.
    pub record: u64,
    /// Body of the answer.
    pub body: T,
}

impl<T> Answer<T> {
    pub(crate) fn ok(record: u64, body: T) -> Self {
        Self {
            status: 200,
            record,
            body,
        }
    }

    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            status: self.status,
            record: self.record,
            body: convert(self.body),
        }
    }
}

/// Real write or dry run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteMode {
    /// The change is made.
    Real,
    /// The answer says what would happen; nothing is changed.
    DryRun,
}

/// The operations of the API.
pub struct Service {
    pub(crate) ledger: Ledger,
    pub(crate) readers: Readers,
    pub(crate) index: Option<Index>,
    pub(crate) keys: Keys,
    pub(crate) info: ServerInfo,
    pub(crate) metrics: Metrics,
    pub(crate) secrets: crate::spine::tokens::SecretCache,
    pub(crate) streams: Arc<Semaphore>,
    /// One permit: replaying the market's record uses a whole processor.
    pub(crate) replay: Arc<Semaphore>,
    pub(crate) executing: Option<crate::booking::executions::ExecutorSettings>,
    pub(crate) market: Option<Arc<Agent>>,
    pub(crate) stopping: watch::Sender<bool>,
}

impl Service {
    /// Creates a service over a running ledger.
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
            secrets: crate::spine::tokens::SecretCache::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            replay: Arc::new(Semaphore::new(1)),
            executing: None,
            market: None,
            stopping: watch::Sender::new(false),
        }
    }

    /// Adds an index, which makes proofs and searches of records fast.
    #[must_use]
    pub fn indexed(self, index: Index) -> Self {
        Self {
            index: Some(index),
            ..self
        }
    }

    /// The ledger of this service.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The counters of this server.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Number of the last committed record.
    pub fn record(&self) -> u64 {
        last_record(&self.ledger.view().read())
    }

    /// Ends streams and long polls. Writes in progress continue.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Resolves when streams and long polls should end.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as this service, so this cannot fail.
        let _stopped = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Waits until the view has reached a record, so that clients read their own writes.
    pub(crate) async fn reach(&self, record: u64) -> Result<(), Problem> {
        let mut head = self.ledger.view().head();
        let reached = head.wait_for(|head| record < *head);
        if let Ok(Ok(_)) = tokio::time::timeout(RECORD_WITHIN, reached).await {
            return Ok(());
        }
        let last = self.record();
        let detail = format!("record {record} is not committed yet; the last one is {last}");
        Err(Problem::new(Code::Unavailable, detail))
    }

    /// Submits commands of one caller, which are decided in order. Resolves when they are durable.
    pub(crate) async fn submit(
        &self,
        caller: &Caller,
        commands: Vec<Command>,
    ) -> Result<Vec<Outcome>, Problem> {
        let submitted = self.ledger.submit(caller.name.clone(), commands);
        match tokio::time::timeout(DURABLE_WITHIN, submitted).await {
            Ok(Ok(mut outcomes)) => {
                // A successful renewal is answered before its batch is durable (S7). The records
                // before it may still be lost, so the answer names a committed record only.
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

    /// Runs a command on a sketch of the state; returns its outcome and the changed sketch.
    pub(crate) fn plan(&self, command: &Command) -> (Outcome, State) {
        let now = self.ledger.now();
        let (result, events, after) = plan(&self.ledger.view().read(), now, command);
        (planned(&after, now, result, events), after)
    }

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

pub(crate) fn last_record(state: &State) -> u64 {
    state.spine.head.saturating_sub(1)
}

pub(crate) fn unreadable(error: &dyn std::error::Error) -> Problem {
    tracing::error!(error = chain(error), "{}", log::STORE_UNREADABLE);
    Problem::new(
        Code::Unavailable,
        format!("the store could not be read: {}", chain(error)),
    )
}
