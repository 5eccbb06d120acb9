//! Bookings as a plane of the engine.

use bursar_plane::{
    Class, Decided, Due, Inventory, Lane, Notice, Plane, Reference, STEPS_PER_RECORD_MAX, Steps,
};
use bursar_units::Instant;

use crate::decide::{self, Change, Refusal, Reply};
use crate::fact::Fact;
use crate::invariants::{self, Broken};
use crate::sentence::{self, Data};
use crate::{Bookings, Command, Event, Submission};

impl Plane for Bookings {
    type Command = Command;
    type Event = Event;
    type Change = Change;
    type Fact = Fact;
    type Reply = Reply;
    type Refusal = Refusal;
    type Broken = Broken;
    type Data = Data;

    const STREAMS: &'static [&'static str] = &[
        "booking.granted",
        "booking.queued",
        "booking.refused",
        "booking.released",
        "booking.expired",
        "booking.cancelled",
        "booking.noted",
        "execution.started",
        "execution.stopping",
        "execution.stuck",
        "execution.adopted",
        "limit.changed",
    ];

    fn lane(command: &Command) -> Lane {
        match command {
            Command::Reserve(_) | Command::Submit(_) | Command::Note { .. } => Lane::Work,
            Command::Release { .. }
            | Command::Renew { .. }
            | Command::Started { .. }
            | Command::Adopt(_)
            | Command::Exited { .. }
            | Command::StopFailed { .. }
            | Command::Cancel { .. }
            | Command::Force { .. } => Lane::Control,
        }
    }

    fn is_result(command: &Command) -> bool {
        match command {
            Command::Started { .. }
            | Command::Adopt(_)
            | Command::Exited { .. }
            | Command::StopFailed { .. } => true,
            Command::Reserve(_)
            | Command::Submit(_)
            | Command::Release { .. }
            | Command::Renew { .. }
            | Command::Cancel { .. }
            | Command::Force { .. }
            | Command::Note { .. } => false,
        }
    }

    fn life(command: &Command, reply: &Reply) -> Option<(Reference, Instant)> {
        match reply {
            Reply::Renewed { expires } => {
                Some((Reference::Booking(command.id().clone()), *expires))
            }
            _ => None,
        }
    }

    fn decide(
        &mut self,
        now: Instant,
        command: &Command,
        out: &mut Decided<Event>,
    ) -> Result<Reply, Refusal> {
        decide::decide(self, now, command, out)
    }

    fn apply(&mut self, at: Instant, event: &Event) {
        Self::apply(self, at, event);
    }

    /// All deadlines of bookings are patience deadlines, also the longest run time of an execution.
    fn next_deadline(&self, class: Class) -> Option<Instant> {
        match class {
            Class::Clock => None,
            Class::Patience => self.deadlines.first().map(|deadline| deadline.at),
        }
    }

    fn owed_since(&self) -> Option<Instant> {
        self.unsettled
    }

    fn overdue(&self, now: Instant) -> impl Iterator<Item = Reference> {
        self.due(now)
            .map(|deadline| Reference::Booking(deadline.id.clone()))
    }

    fn tick(
        &mut self,
        due: Due,
        alive_until: &dyn Fn(&Reference) -> Option<Instant>,
        steps: &mut Steps,
        out: &mut Decided<Event>,
    ) {
        if due.includes(Class::Patience) {
            decide::tick(self, due.until, alive_until, steps, out);
        }
    }

    fn resume(&mut self, at: Instant) {
        Self::resume(self, at);
    }

    fn check_changes(&self, _: Instant, changes: &[&Change]) -> Result<(), Refusal> {
        decide::check_changes(self, changes)
    }

    /// A limit of an operator on each tenant replaces the shipped one, which comes back when the
    /// operator removes that limit.
    fn implied(&self, changes: &[&Change]) -> [Vec<Change>; 2] {
        let ends = decide::replaces_shipped(self, changes);
        let all: Vec<&Change> = ends.iter().chain(changes.iter().copied()).collect();
        let begins = decide::brings_back_shipped(self, &all);
        [ends.into_iter().collect(), begins.into_iter().collect()]
    }

    fn change(&mut self, at: Instant, change: &Change, out: &mut Decided<Event>) {
        if let Some(event) = decide::change_event(self, change) {
            decide::emit(self, at, event, out);
        }
    }

    fn settle(&mut self, at: Instant, out: &mut Decided<Event>) {
        decide::settle(self, at, &mut { STEPS_PER_RECORD_MAX }, out);
    }

    fn take_inventory(&mut self, inventory: &Inventory) {
        self.set_inventory(inventory.total());
    }

    fn facts(&self, level: u64) -> impl Iterator<Item = Fact> {
        Self::facts(self, level)
    }

    fn restore(&mut self, fact: Fact) {
        Self::restore(self, fact);
    }

    fn check(&self, _now: Instant) -> Result<(), Broken> {
        invariants::check(self)
    }

    fn sketch(&self, commands: &[&Command]) -> Self {
        // An adoption compares its fence with those of all holders.
        let is_adoption = |command: &&Command| matches!(command, Command::Adopt(_));
        if commands.iter().any(is_adoption) {
            return self.clone();
        }
        let retried = commands.iter().filter_map(|command| match command {
            Command::Submit(Submission { order, .. }) => order.retry_of.as_ref(),
            _ => None,
        });
        let ids = commands.iter().map(|command| command.id()).chain(retried);
        Self::sketch(self, &ids.cloned().collect::<Vec<_>>())
    }

    fn time(event: &Event) -> Option<Instant> {
        event.time()
    }

    fn notice(at: Instant, event: &Event, record: &[&Event]) -> Notice<Data> {
        sentence::notice(at, event, record)
    }

    fn subjects(event: &Event) -> impl Iterator<Item = Reference> {
        let subject = match event {
            Event::LimitSet(limit) => Some(Reference::Limit(limit.name.clone())),
            Event::LimitDropped { name } => Some(Reference::Limit(name.clone())),
            event => event.booking().cloned().map(Reference::Booking),
        };
        subject.into_iter()
    }

    fn declared(change: &Change) -> Reference {
        match change {
            Change::SetLimit(limit) => Reference::Limit(limit.name.clone()),
            Change::DropLimit { name } => Reference::Limit(name.clone()),
        }
    }

    fn ends(event: &Event) -> Option<Reference> {
        event.ends().cloned().map(Reference::Booking)
    }
}
