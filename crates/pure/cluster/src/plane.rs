//! The cluster as a plane of the engine.

use bursar_plane::{Class, Decided, Due, Lane, Notice, Plane, Reference, Steps};
use bursar_units::{BookingId, Instant};

use crate::clusters::Clusters;
use crate::fact::Fact;
use crate::invariants::Broken;
use crate::pass::Starting;
use crate::{Change, Command, Event, Refusal, Reply, sentence};

impl Plane for Clusters {
    type Command = Command;
    type Event = Event;
    type Change = Change;
    type Fact = Fact;
    type Reply = Reply;
    type Refusal = Refusal;
    type Broken = Broken;
    type Data = Box<Event>;

    const STREAMS: &'static [&'static str] = &[
        "budget.changed",
        "budget.removed",
        "envelope.near",
        "envelope.exhausted",
        "envelope.renewed",
        "lease.opened",
        "lease.closed",
        "policy.changed",
        "run.submitted",
        "run.edited",
        "run.funded",
        "run.demoted",
        "run.started",
        "run.ending",
        "run.ended",
    ];

    fn lane(command: &Command) -> Lane {
        match command {
            Command::CancelRun { .. }
            | Command::RotateEnvelope { .. }
            | Command::RunStarted { .. }
            | Command::RunExited { .. }
            | Command::SetPolicy(_) => Lane::Control,
        }
    }

    fn is_result(command: &Command) -> bool {
        match command {
            Command::RunStarted { .. } | Command::RunExited { .. } => true,
            Command::CancelRun { .. } | Command::RotateEnvelope { .. } | Command::SetPolicy(_) => {
                false
            }
        }
    }

    fn decide(
        &mut self,
        now: Instant,
        command: &Command,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        self.answer(now, command, out)
    }

    fn apply(&mut self, at: Instant, event: &Event) {
        Self::apply(self, at, event);
    }

    fn next_deadline(&self, class: Class) -> Option<Instant> {
        self.next_of(class).map(|(at, _)| at)
    }

    fn owed_last(&self) -> Option<Instant> {
        self.owed
    }

    fn tick(
        &mut self,
        due: Due,
        _: &dyn Fn(&Reference) -> Option<Instant>,
        steps: &mut Steps,
        out: &mut Decided<Event>,
    ) {
        self.carry_out(due, steps, out);
    }

    fn finish(&mut self, due: Due, steps: &mut Steps, out: &mut Decided<Event>) {
        let starting = match due.class {
            None => Starting::Allowed,
            Some(_) => Starting::Forbidden,
        };
        Self::finish(self, starting, due.until, &mut steps.grants, out);
        if !out.is_empty() && starting == Starting::Allowed {
            self.note_near(out.time(), out);
        }
    }

    fn resume(&mut self, at: Instant) {
        Self::resume(self, at);
    }

    fn check_changes(&self, now: Instant, changes: &[&Change]) -> Result<(), Refusal> {
        self.check_all(now, changes)
    }

    fn change(&mut self, at: Instant, change: &Change, out: &mut Decided<Event>) {
        self.declare(at, change, out);
    }

    fn settle(&mut self, at: Instant, out: &mut Decided<Event>) {
        self.pass(at, out);
    }

    fn facts(&self, _level: u64) -> impl Iterator<Item = Fact> {
        Self::facts(self)
    }

    fn restore(&mut self, fact: Fact) {
        Self::restore(self, fact);
    }

    fn check(&self, now: Instant) -> Result<(), Broken> {
        Self::check(self, now)
    }

    /// A pass reads all waiting runs, all meters of their families and all nodes.
    fn sketch(&self, _: &[&Command]) -> Self {
        self.clone()
    }

    fn time(event: &Event) -> Option<Instant> {
        event.time()
    }

    fn notice(_: Instant, event: &Event, _: &[&Event]) -> Notice<Box<Event>> {
        sentence::notice(event)
    }

    fn subjects(event: &Event) -> impl Iterator<Item = Reference> {
        let mut subjects: Vec<Reference> = Vec::new();
        subjects.extend(event.who().map(|who| Reference::Run(who.run)));
        let envelope = |id: &bursar_budget::EnvelopeId| {
            Reference::new(bursar_plane::Kind::Envelope, id.as_str()).ok()
        };
        match event {
            Event::BudgetSet(budget) => {
                subjects.push(Reference::Budget(sentence::scoped(&budget.id())));
            }
            Event::BudgetDropped { budget } => {
                subjects.push(Reference::Budget(sentence::scoped(budget)));
            }
            Event::EpochClosed { epoch, .. } => subjects.extend(meter_subjects(&epoch.meter)),
            Event::MeterNear { near, .. } => subjects.extend(meter_subjects(&near.meter)),
            Event::RunFunded { claims, .. } | Event::RunDemoted { claims, .. } => {
                subjects.extend(claims.iter().filter_map(|claim| envelope(&claim.envelope)));
            }
            Event::LeasesOpened {
                record,
                first,
                pods,
                ..
            } => {
                let mut number = *first;
                for pod in pods {
                    let id = BookingId::new(&format!("lease-{record}.{number}")).ok();
                    subjects.extend(id.map(Reference::Lease));
                    number += pod.width();
                }
            }
            _ => {}
        }
        subjects.into_iter()
    }

    fn declared(change: &Change) -> Reference {
        match change {
            Change::SetBudget(budget) => Reference::Budget(sentence::scoped(&budget.id())),
            Change::DropBudget { budget } => Reference::Budget(sentence::scoped(budget)),
            Change::SetRun(run) | Change::StartRun(run) => Reference::Run(run.id()),
        }
    }
}

/// The budget that declares a meter, and the envelope of one.
fn meter_subjects(meter: &bursar_budget::MeterId) -> Vec<Reference> {
    use bursar_budget::MeterId;
    let budget = Reference::Budget(sentence::scoped(&meter.budget()));
    let envelope = match meter {
        MeterId::Envelope(id) | MeterId::Lending(id) => {
            Reference::new(bursar_plane::Kind::Envelope, id.as_str()).ok()
        }
        MeterId::Cap(_) => None,
    };
    std::iter::once(budget).chain(envelope).collect()
}
