//! The CPU market of a node: its agent acts without the ledger, and every process reports the
//! differences between the agent and its own view to the ledger, over a bad network (M12).
//!
//! The agent is simulated: its data survive every crash, as its file does. At the end it restores
//! all limits, and the ledger must have the same state as the agent.

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

const NODE: &str = "w-17";
const PODS: u64 = 6;

/// A node and its agent.
pub(super) struct Market {
    node: Option<ObjectName>,
    present: Present,
    /// Changes of the original of each pod.
    originals: BTreeMap<PodName, Changes>,
    /// Changes of settings and label.
    settings: Changes,
    labels: Changes,
}

/// Number of changes that the agent made, and of those that the ledger recorded.
#[derive(Clone, Copy, Default)]
struct Changes {
    made: u64,
    recorded: u64,
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
            settings: Changes {
                made: 1,
                recorded: 0,
            },
            labels: Changes::default(),
        }
    }
}

impl Market {
    /// One clearing, which may change the state.
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

    /// The agent ends, and restores all limits of the users.
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
            self.originals.entry(pod).or_default().made += 1;
        }
    }

    fn label(&mut self, label: Label, rng: &mut Rng) {
        let before = self
            .present
            .labelled
            .map_or(Label::default(), |is| is.label);
        self.labels.made += u64::from(before != label);
        self.present.labelled = Some(Labelled {
            label,
            pods: rng.below(PODS),
            need_milli: rng.below(3_000),
            capacity_milli: 1_500,
        });
    }

    fn set(&mut self, settings: Settings) {
        self.settings.made += u64::from(self.present.settings != settings);
        self.present.settings = settings;
    }

    /// Counts a recorded change; there are never more than the agent made.
    fn count(&mut self, event: &Event) -> Result<(), Violation> {
        let changes = match event {
            Event::Taken { pod, .. } | Event::Returned { pod, .. } => {
                self.originals.entry(pod.clone()).or_default()
            }
            Event::Set { .. } => &mut self.settings,
            Event::Labelled { .. } => &mut self.labels,
            Event::Digested { .. } => return Ok(()),
        };
        changes.recorded += 1;
        let Changes { made, recorded } = *changes;
        demand(
            recorded <= made,
            "what happened once in a market is on record once",
            || format!("{event:?} is change {recorded} on record of {made}"),
        )
    }

    /// Whether the ledger has the state of the agent.
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
    /// The agent clears, and plans the next clearing until all clients stop.
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

    /// Plans the comparison of a process.
    pub(super) fn plan_report(&mut self, replica: usize) {
        let delay = 2 * self.habits.delay_ms + self.rng.between(10, 500);
        if let Some(one) = self.replicas.get(replica) {
            let report = Action::Report(replica, one.incarnation);
            self.schedule.plan(self.now_ms + delay, report);
        }
    }

    /// A process compares its view with the agent and reports the differences. Reports may be lost,
    /// so it compares again later.
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

    /// Compares the market events of this step with the changes of the agent.
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

    /// Whether the committed state equals that of the agent.
    pub(super) fn market_is_known(&self) -> bool {
        self.market.is_known(self.checker.market(NODE))
    }

    /// Checks that the ledger has the state of the agent after all clients have stopped.
    pub(super) fn check_market_is_known(&self) -> Result<(), Violation> {
        if self.market_is_known() {
            return Ok(());
        }
        let known = self.checker.market(NODE);
        let states = format!("{known:?}, and in truth {:?}", self.market.present);
        Err(broken("the ledger has the picture of the market", states))
    }
}

fn settings(mode: Mode, policy: Policy) -> Settings {
    Settings {
        mode,
        policy,
        text: format!("{} {}", mode.word(), policy.word()),
    }
}
