//! What the ledger hears of the market of this machine, from the first word to the last (M12).

use std::sync::Arc;
use std::time::Duration;

use bursar_ledger::pipeline::Ledger;
use bursar_node::market::{Agent, Options};
use bursar_server::Reporter;
use tokio::task::JoinSet;

use crate::log;

/// How long the first and the last word may take. Whatever is not said by then is said when the
/// ledger takes it, or by the next start.
const WITHIN: Duration = Duration::from_secs(2);

/// Who tells the ledger, and of what.
pub(super) struct Reports {
    reporter: Option<Reporter>,
    source: Source,
}

/// What there is to tell.
enum Source {
    /// What an agent shows.
    Agent(Arc<Agent>),
    /// That nobody looks.
    Nobody(Box<Options>),
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
                None => Source::Nobody(Box::new(options)),
            },
        }
    }

    /// Says the first word, and goes on until what is returned is dropped.
    pub(super) async fn begin(&self) -> JoinSet<()> {
        self.settle().await;
        let mut tasks = JoinSet::new();
        if let (Some(reporter), Source::Agent(agent)) = (&self.reporter, &self.source) {
            tasks.spawn(reporter.clone().run(Arc::clone(agent)));
        }
        tasks
    }

    /// Says the last word, once everything is put back.
    pub(super) async fn settle(&self) {
        let Some(reporter) = &self.reporter else {
            return;
        };
        let told = async {
            match &self.source {
                Source::Agent(agent) => reporter.settle(agent).await,
                Source::Nobody(options) => reporter.settle_off(options).await,
            }
        };
        if tokio::time::timeout(WITHIN, told).await.is_err() {
            tracing::warn!("{}", log::MARKET_LEDGER_BEHIND);
        }
    }
}
