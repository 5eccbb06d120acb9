//! Tells the ledger what the CPU market of this node did (M12).
//!
//! After every clearing the agent's picture is compared with the ledger's, and what differs goes
//! there as one command. The agent waits for none of this: while the store is away it works on,
//! and the first comparison afterwards finds what came of it, once. Any number of reporters may be
//! at work: a report that builds on what is past leaves no trace.

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
use bursar_ledger::writer::SELF;
use bursar_node::market::{self, Acts, Agent, Options, Rules, View, record};
use bursar_units::causes::chain;
use bursar_units::{Instant, Label, ObjectName, PodName};

use crate::log;

/// How long the first pause is before a report is sent again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Whoever reports for one node.
#[derive(Clone)]
pub struct Reporter {
    ledger: Ledger,
    node: ObjectName,
}

/// What came of a comparison.
enum Compared {
    /// Both agree.
    Same,
    /// They did not, and the ledger has been told.
    Told,
    /// Somebody else has told it meanwhile: compare again.
    Past,
    /// The ledger does not take it, for this reason.
    Refused(Refusal),
}

impl Reporter {
    /// A reporter for a node; `None` where its name is none that the ledger could hold.
    pub fn new(ledger: &Ledger, node: &str) -> Option<Self> {
        let node = ObjectName::new(node).ok()?;
        let ledger = ledger.clone();
        Some(Self { ledger, node })
    }

    /// Reports until it is dropped.
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

    /// Resolves when the ledger knows what the agent shows, or does not take it. May be dropped at
    /// any moment, and called again.
    pub async fn settle(&self, agent: &Agent) {
        let directory = agent.directory();
        self.settle_on(directory, || present(&agent.view())).await;
    }

    /// The same where no agent is at work, because nobody is to look. A ledger that never heard of
    /// a market here hears nothing of this either.
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
                Ok(Compared::Told) => {
                    pause = PAUSE;
                    continue;
                }
                Ok(Compared::Past) => {}
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

    /// What the ledger does not know of this.
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
        #[expect(clippy::expect_used, reason = "a constant that is a label")]
        let by = Label::new(SELF).expect("the program's own name is a label");
        let outcomes = self.ledger.submit(by, vec![command.into()]).await?;
        let result = outcomes.into_iter().next().map(|outcome| outcome.result);
        Ok(match result {
            Some(Err(EngineRefusal::Market(Refusal::Stale { .. }))) => Compared::Past,
            Some(Err(EngineRefusal::Market(refusal))) => Compared::Refused(refusal),
            _ => Compared::Told,
        })
    }
}

/// Makes an agent's record durable, and says whether it is: the ledger must hold no digest of a line
/// that a power cut could take away.
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

/// What an agent shows, as the ledger has it.
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
            // Where no limit is written nobody has less than it had, whatever a clearing says.
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

/// Limits by the names of pods; the agent takes no other names in.
fn originals(kept: &BTreeMap<String, Option<u64>>) -> BTreeMap<PodName, Original> {
    let named = kept.iter().filter_map(|(pod, milli)| {
        let pod = PodName::new(pod).ok()?;
        Some((pod, Original { milli: *milli }))
    });
    named.collect()
}
