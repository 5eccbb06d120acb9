//! The CPU market of a node beside the ledger: its agent changes things and asks nobody, and every
//! process tells the ledger what differs from its own view, over the same bad network (M12).
//!
//! The agent is played: what it keeps outlives every crash, as its file does. At the end it gives
//! everything back, and the ledger must have its picture.

use std::collections::BTreeMap;

use bursar_engine::market::{
    Command, Event, Known, Labelled, Mode, Original, Position, Present, Settings, difference,
};
use bursar_journal::hash::sha256;
use bursar_market::clear::{Mode as Label, Policy};
use bursar_units::{Instant, ObjectName, PodName};

use super::World;
use super::action::Action;
use crate::rng::Rng;
use crate::violation::{Violation, broken, demand};

/// The node.
const NODE: &str = "w-17";
/// How many pods come and go.
const PODS: u64 = 6;

/// A node and its agent.
pub(super) struct Market {
    node: Option<ObjectName>,
    present: Present,
    /// How often the original of each pod has changed.
    originals: BTreeMap<PodName, Changes>,
    /// How often settings and label have changed.
    settings: Changes,
    labels: Changes,
}

/// How often something has changed, in truth and in the ledger.
#[derive(Clone, Copy, Default)]
struct Changes {
    seen: u64,
    told: u64,
}

impl Default for Market {
    fn default() -> Self {
        Self {
            node: ObjectName::new(NODE).ok(),
            present: Present {
                settings: settings(Mode::Observe, Policy::Proportional),
                labelled: None,
                originals: BTreeMap::new(),
                position: None,
            },
            originals: BTreeMap::new(),
            settings: Changes { seen: 1, told: 0 },
            labels: Changes::default(),
        }
    }
}

impl Market {
    /// One clearing: some of what the ledger is to know may change.
    fn clear(&mut self, rng: &mut Rng, now_ms: u64) {
        let position = self.present.position.as_ref();
        let (lines, writes) = position.map_or((0, 0), |last| (last.lines, last.writes));
        let lines = lines + 1;
        self.present.position = Some(Position {
            at: Instant::from_ms(now_ms),
            lines,
            writes: writes + rng.below(3),
            head: sha256(&lines.to_be_bytes()),
        });
        if rng.once_in(3)
            && let Some(label) = rng.pick(&Label::ALL)
        {
            self.label(*label, rng);
        }
        if rng.once_in(12)
            && let Some(mode) = rng.pick(&[Mode::Observe, Mode::Act])
            && let Some(policy) = rng.pick(&Policy::ALL)
        {
            self.set(settings(*mode, *policy));
        }
        for _ in 0..rng.below(4) {
            let Ok(pod) = PodName::new(&format!("pod-{}", rng.below(PODS))) else {
                continue;
            };
            let original = rng
                .once_in(2)
                .then(|| Some(rng.between(1, 3) * 100))
                .map(|milli| Original { milli });
            self.keep(pod, original);
        }
    }

    /// The agent ends, and everything is as its users wrote it.
    fn give_back(&mut self) {
        let kept: Vec<PodName> = self.present.originals.keys().cloned().collect();
        for pod in kept {
            self.keep(pod, None);
        }
    }

    fn keep(&mut self, pod: PodName, original: Option<Original>) {
        let before = match original {
            Some(original) => self.present.originals.insert(pod.clone(), original),
            None => self.present.originals.remove(&pod),
        };
        if before != original {
            self.originals.entry(pod).or_default().seen += 1;
        }
    }

    fn label(&mut self, label: Label, rng: &mut Rng) {
        let before = self
            .present
            .labelled
            .map_or(Label::default(), |is| is.label);
        self.labels.seen += u64::from(before != label);
        self.present.labelled = Some(Labelled {
            label,
            pods: rng.below(PODS),
            need_milli: rng.below(3_000),
            capacity_milli: 1_500,
        });
    }

    fn set(&mut self, settings: Settings) {
        self.settings.seen += u64::from(self.present.settings != settings);
        self.present.settings = settings;
    }

    /// Counts what the ledger was told, which never is more than there was.
    fn count(&mut self, event: &Event) -> Result<(), Violation> {
        let changes = match event {
            Event::Taken { pod, .. } | Event::Returned { pod, .. } => {
                self.originals.entry(pod.clone()).or_default()
            }
            Event::Set { .. } => &mut self.settings,
            Event::Labelled { .. } => &mut self.labels,
            Event::Digested { .. } => return Ok(()),
        };
        changes.told += 1;
        let Changes { seen, told } = *changes;
        demand(
            told <= seen,
            "what happened once in a market is on record once",
            || format!("{event:?} is change {told} on record of {seen}"),
        )
    }

    /// Whether the ledger knows what there is.
    fn is_known(&self, known: Option<&Known>) -> bool {
        let Some(known) = known else {
            return false;
        };
        let label = self.present.labelled.map_or(known.label, |is| is.label);
        known.rules == Some(self.present.settings.rules())
            && known.label == label
            && known.originals == self.present.originals
    }
}

impl World<'_> {
    /// The agent clears, and will clear again until everybody stops.
    pub(super) fn clear_market(&mut self) {
        if self.is_stopping {
            self.market.give_back();
        } else {
            self.market.clear(&mut self.rng, self.now_ms);
            let later = self.now_ms.max(self.quiet_until_ms);
            let later = later + self.rng.between(50, 2_000);
            self.schedule.plan(later, Action::Clear);
        }
        for replica in 0..self.replicas.len() {
            self.plan_report(replica);
        }
    }

    /// A process will compare, if it lives until then.
    pub(super) fn plan_report(&mut self, replica: usize) {
        let delay = 2 * self.habits.delay_ms + self.rng.between(10, 500);
        if let Some(one) = self.replicas.get(replica) {
            let report = Action::Report(replica, one.incarnation);
            self.schedule.plan(self.now_ms + delay, report);
        }
    }

    /// A process compares its view with the agent's picture, tells what differs, and, as nobody
    /// knows whether that arrives, compares again.
    pub(super) fn report_market(&mut self, replica: usize) {
        let process = self.replicas.get(replica);
        let process = process.and_then(|one| one.process.as_ref());
        let (Some(process), Some(node)) = (process, &self.market.node) else {
            return;
        };
        if process.is_over() {
            return;
        }
        let report = {
            let state = process.ledger.view().read();
            let known = state.markets.get(NODE);
            difference(node, known, &self.market.present, process.ledger.now())
        };
        let Some(report) = report else {
            return;
        };
        self.tally.add("reports on a market", 1);
        let command = Command::ReportMarket(Box::new(report));
        let count = self.replicas.len();
        let to = if self.rng.once_in(4) {
            self.rng.place(count)
        } else {
            replica
        };
        self.send_result(to, vec![command.into()]);
        self.plan_report(replica);
    }

    /// What the ledger was told in this step, against what happened.
    pub(super) fn check_market(&mut self) -> Result<(), Violation> {
        for event in self.checker.take_market() {
            let word = match event {
                Event::Digested { .. } => "digests of a market on record",
                _ => "changes of a market on record",
            };
            self.tally.add(word, 1);
            self.market.count(&event)?;
        }
        Ok(())
    }

    /// Whether the ledger has the agent's picture.
    pub(super) fn market_is_known(&self) -> bool {
        self.market.is_known(self.checker.market(NODE))
    }

    /// After everybody stopped the ledger has the agent's picture.
    pub(super) fn check_market_is_known(&self) -> Result<(), Violation> {
        if self.market_is_known() {
            return Ok(());
        }
        let known = self.checker.market(NODE);
        let seen = format!("{known:?}, and in truth {:?}", self.market.present);
        Err(broken("the ledger has the picture of the market", seen))
    }
}

fn settings(mode: Mode, policy: Policy) -> Settings {
    Settings {
        mode,
        policy,
        text: format!("{} {}", mode.word(), policy.word()),
    }
}
