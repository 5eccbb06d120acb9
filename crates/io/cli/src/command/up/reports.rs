//! Reports of this machine's CPU market to the ledger (M12).

use std::sync::Arc;
use std::time::Duration;

use bursar_ledger::pipeline::Ledger;
use bursar_node::market::{Agent, Options};
use bursar_server::Reporter;
use tokio::task::JoinSet;

use crate::log;

/// Time limit of the first and of the last report. After it, later reports or the next start bring
/// the ledger up to date.
const WITHIN: Duration = Duration::from_secs(2);

pub(super) struct Reports {
    reporter: Option<Reporter>,
    source: Source,
}

enum Source {
    Agent(Arc<Agent>),
    /// The market is off.
    Off(Box<Options>),
}

impl Reports {
    pub(super) fn new(ledger: &Ledger, agent: Option<&Arc<Agent>>, options: Options) -> Self {
        let reporter = Reporter::new(ledger, &options.node);
        if reporter.is_none() {
            tracing::warn!(node = options.node, "{}", log::MARKET_NODE_HAS_NO_NAME);
        }
        Self {
            reporter,
            source: match agent {
                Some(agent) => Source::Agent(Arc::clone(agent)),
                None => Source::Off(Box::new(options)),
            },
        }
    }

    /// Sends the first report, then reports until the returned tasks are dropped.
    pub(super) async fn begin(&self) -> JoinSet<()> {
        self.settle().await;
        let mut tasks = JoinSet::new();
        if let (Some(reporter), Source::Agent(agent)) = (&self.reporter, &self.source) {
            tasks.spawn(reporter.clone().run(Arc::clone(agent)));
        }
        tasks
    }

    /// Reports the present state. Called at the end after all limits were restored.
    pub(super) async fn settle(&self) {
        let Some(reporter) = &self.reporter else {
            return;
        };
        let report = async {
            match &self.source {
                Source::Agent(agent) => reporter.settle(agent).await,
                Source::Off(options) => reporter.settle_off(options).await,
            }
        };
        if tokio::time::timeout(WITHIN, report).await.is_err() {
            tracing::warn!("{}", log::MARKET_LEDGER_BEHIND);
        }
    }
}
