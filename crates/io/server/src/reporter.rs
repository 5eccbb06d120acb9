//! Reports the CPU market of this node to the ledger (M12).
//!
//! After every clearing the agent's state is compared with the ledger's, and the difference is
//! submitted as one command. The agent never waits for the ledger: while the store is unavailable
//! it keeps clearing, and the next comparison reports the sum of the changes. Several reporters may
//! run at once, because a report based on an old revision has no effect.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::Refusal as EngineRefusal;
use bursar_engine::market::{
    Command, Labelled, Mode, ORIGINALS_MAX, Original, Position, Present, Refusal, Report, Settings,
    difference,
};
use bursar_ledger::intake::Failure;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::writer::own_principal;
use bursar_node::market::{self, Acts, Agent, Options, Rules, View, record};
use bursar_units::causes::chain;
use bursar_units::{Instant, ObjectName, PodName};

use crate::log;

/// First pause before a report is sent again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Reports the market of one node.
#[derive(Clone)]
pub struct Reporter {
    ledger: Ledger,
    node: ObjectName,
}

enum Compared {
    Same,
    Reported,
    /// Another report came first: compare again.
    Stale,
    Refused(Refusal),
}

impl Reporter {
    /// Creates the reporter of a node; `None` if its name is not valid in the ledger.
    pub fn new(ledger: &Ledger, node: &str) -> Option<Self> {
        let node = ObjectName::new(node).ok()?;
        let ledger = ledger.clone();
        Some(Self { ledger, node })
    }

    /// Reports until the future is dropped or the agent ends.
    pub async fn run(self, agent: Arc<Agent>) {
        let mut changes = agent.views();
        loop {
            changes.borrow_and_update();
            self.settle(&agent).await;
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves when the ledger has the agent's state, or has refused it. May be dropped at any
    /// moment and called again.
    pub async fn settle(&self, agent: &Agent) {
        let directory = agent.directory();
        self.settle_on(directory, || present(&agent.view())).await;
    }

    /// Reports that the market of this node is off. Does nothing if the ledger has no market of
    /// this node.
    pub async fn settle_off(&self, options: &Options) {
        if self
            .ledger
            .view()
            .read()
            .markets
            .get(self.node.as_str())
            .is_none()
        {
            return;
        }
        let kept = match market::kept(&options.directory) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "{}",
                    log::MARKET_ORIGINALS_UNREADABLE
                );
                return;
            }
        };
        let present = Present {
            settings: settings(&Rules::off(options)),
            labelled: Some(Labelled::default()),
            originals: originals(&kept),
            position: None,
        };
        let directory = &options.directory;
        self.settle_on(directory, || present.clone()).await;
    }

    async fn settle_on(&self, directory: &Path, present: impl Fn() -> Present) {
        let mut pause = PAUSE;
        loop {
            match self.compare(directory, &present()).await {
                Ok(Compared::Same) => return,
                Ok(Compared::Reported) => {
                    pause = PAUSE;
                    continue;
                }
                Ok(Compared::Stale) => {}
                Ok(Compared::Refused(refusal)) => {
                    tracing::warn!(node = %self.node, %refusal, "{}", log::MARKET_REPORT_REFUSED);
                    return;
                }
                Err(failure) => {
                    tracing::warn!(node = %self.node, %failure, "{}", log::MARKET_REPORT_NOT_TAKEN);
                }
            }
            tokio::time::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    fn difference(&self, present: &Present) -> Option<Report> {
        let state = self.ledger.view().read();
        let known = state.markets.get(self.node.as_str());
        difference(&self.node, known, present, self.ledger.now())
    }

    async fn compare(&self, directory: &Path, present: &Present) -> Result<Compared, Failure> {
        let mut report = self.difference(present);
        let is_digest = |report: &Report| report.digest.is_some();
        if report.as_ref().is_some_and(is_digest) && !is_durable(directory).await {
            let position = None;
            report = self.difference(&Present {
                position,
                ..present.clone()
            });
        }
        let Some(report) = report else {
            return Ok(Compared::Same);
        };
        let command = Command::ReportMarket(Box::new(report));
        let submitted = self.ledger.submit(own_principal(), vec![command.into()]);
        let outcomes = submitted.await?;
        let result = outcomes.into_iter().next().map(|outcome| outcome.result);
        Ok(match result {
            Some(Err(EngineRefusal::Market(Refusal::Stale { .. }))) => Compared::Stale,
            Some(Err(EngineRefusal::Market(refusal))) => Compared::Refused(refusal),
            _ => Compared::Reported,
        })
    }
}

/// Syncs an agent's record to disk, and returns whether that worked. The ledger must hold no digest
/// of a line that a power cut could remove.
async fn is_durable(directory: &Path) -> bool {
    let directory = directory.to_owned();
    let synced = tokio::task::spawn_blocking(move || record::sync(&directory)).await;
    match synced {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(error = chain(&error), "{}", log::MARKET_RECORD_NOT_DURABLE);
            false
        }
        Err(_) => false,
    }
}

fn present(view: &View) -> Present {
    if ORIGINALS_MAX < view.originals.len() {
        let count = view.originals.len();
        tracing::warn!(
            count,
            max = ORIGINALS_MAX,
            "{}",
            log::MARKET_TOO_MANY_ORIGINALS
        );
    }
    let clearing = view.clearing.as_ref();
    let labelled = clearing.map(|clearing| Labelled {
        label: clearing.label,
        pods: u64::try_from(clearing.cleared.shares.len()).unwrap_or(u64::MAX),
        need_milli: clearing.cleared.need_milli,
        capacity_milli: clearing.cleared.capacity_milli,
    });
    Present {
        settings: settings(&view.rules),
        labelled: match view.acts {
            Acts::Yes => labelled,
            // No limit is written, so no pod is held back.
            Acts::Told | Acts::Cannot(_) => Some(Labelled::default()),
        },
        originals: originals(&view.originals),
        position: view.position.as_ref().map(|position| Position {
            at: Instant::from_ms(position.at_ms),
            lines: position.lines,
            writes: position.writes,
            head: position.head,
        }),
    }
}

fn settings(rules: &Rules) -> Settings {
    Settings {
        mode: match rules.mode {
            None => Mode::Off,
            Some(market::Mode::Observe) => Mode::Observe,
            Some(market::Mode::Act) => Mode::Act,
        },
        policy: rules.policy,
        text: rules.text.clone(),
    }
}

/// Original limits by pod. The agent accepts only valid pod names, so none is dropped.
fn originals(kept: &BTreeMap<String, Option<u64>>) -> BTreeMap<PodName, Original> {
    let named = kept.iter().filter_map(|(pod, milli)| {
        let pod = PodName::new(pod).ok()?;
        Some((pod, Original { milli: *milli }))
    });
    named.collect()
}
