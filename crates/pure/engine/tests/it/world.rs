//! An engine driven as the server drives it: deadlines first, then the command, then the record.

use std::collections::BTreeMap;

use bursar_booking::decide::Change;
use bursar_booking::execution::{self, Adoption, Exit, Isolation, Order};
use bursar_booking::{
    Command as BookingCommand, Fence, Limit, Request, Scope, Standing, Submission,
};
use bursar_engine::codec::{Record, encode};
use bursar_engine::invariants::{Mark, check_record};
use bursar_engine::market::{self, Mode, Present, Settings, difference};
use bursar_engine::{Answer, Command, Events, FORMAT, Refusal, State, decide, spine};
use bursar_journal::hash::Hash;
use bursar_market::clear::Policy;
use bursar_units::{BookingId, Instant, Label, Millis, ObjectName, PodName};

/// 16 November 2026, 10:00 UTC: the example organisation's now.
pub(crate) const START_MS: u64 = 1_794_823_200_000;

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) now: Instant,
    /// The bytes of every record, from record 0.
    pub(crate) journal: Vec<Vec<u8>>,
    /// Deadlines of holders that have renewed.
    pub(crate) evidence: BTreeMap<BookingId, Instant>,
}

impl World {
    /// A started ledger.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            state: State::default(),
            now: Instant::from_ms(START_MS),
            journal: Vec::new(),
            evidence: BTreeMap::new(),
        };
        let ledger = "0198f3c2-1a2b-7abc-8def-0123456789ab".to_owned();
        let format = FORMAT;
        world
            .run(spine::Command::Genesis { ledger, format })
            .expect("a ledger begins");
        world
    }

    pub(crate) fn run(&mut self, command: impl Into<Command>) -> Result<Answer, Refusal> {
        self.tick();
        self.commit(command).map(|(answer, _)| answer)
    }

    /// Events of a command that must not be refused.
    pub(crate) fn events(&mut self, command: impl Into<Command>) -> Events {
        self.tick();
        self.commit(command).expect("it is taken").1
    }

    pub(crate) fn advance(&mut self, ms: u64) {
        self.now = self.now.after(Millis::from_ms(ms));
        self.tick();
    }

    /// Ticks until no deadline is due.
    pub(crate) fn tick(&mut self) {
        while self.state.next_deadline().is_some_and(|at| at <= self.now) {
            let renewed = self
                .state
                .bookings
                .due(self.now)
                .filter_map(|due| Some((due.id.clone(), *self.evidence.get(&due.id)?)))
                .collect();
            let before = self.state.spine.head;
            self.commit(spine::Command::Tick {
                renewed,
                until: None,
                class: None,
            })
            .expect("time is never refused");
            assert!(
                before < self.state.spine.head,
                "a deadline that has passed makes a record"
            );
        }
    }

    /// Decides and writes a record, without a tick first.
    pub(crate) fn commit(
        &mut self,
        command: impl Into<Command>,
    ) -> Result<(Answer, Events), Refusal> {
        let command = command.into();
        let before = Mark::of(&self.state);
        let mut events = Events::new();
        let answer = decide(&mut self.state, self.now, &command, &mut events)?;
        if !events.is_empty() {
            let seq = self.state.spine.head;
            self.state.spine.head += 1;
            check_record(before, self.now, &events, &self.state).expect("a step keeps the rules");
            let by = Label::new("ada").unwrap();
            let events = events.clone();
            let record = Record {
                seq,
                time: self.now,
                by,
                command,
                events,
            };
            self.journal
                .push(encode(&record).expect("a record can be written").bytes);
        }
        Ok((answer, events))
    }

    pub(crate) fn fence(&self, name: &str) -> Fence {
        match self.state.bookings.standing(&id(name)) {
            Some(Standing::Granted(granted)) => granted.fence,
            _ => Fence(0),
        }
    }

    pub(crate) fn release(&mut self, name: &str) -> Result<Answer, Refusal> {
        let fence = self.fence(name);
        self.run(BookingCommand::Release {
            id: id(name),
            fence,
            outcome: None,
            exit_code: None,
        })
    }
}

pub(crate) fn id(text: &str) -> BookingId {
    BookingId::new(text).unwrap()
}

pub(crate) fn pod(text: &str) -> PodName {
    PodName::new(text).unwrap()
}

/// Settings of that mode; those with another cooldown have another hash.
pub(crate) fn settings(mode: Mode, policy: Policy, cooldown_us: u64) -> Settings {
    Settings {
        mode,
        policy,
        text: format!(
            r#"{{"mode":"{}","policy":"{}","cooldownUs":{cooldown_us}}}"#,
            mode.word(),
            policy.word()
        ),
    }
}

/// What an agent reports that differs from what a state knows; nothing where both agree.
pub(crate) fn market_report(
    state: &State,
    node: &str,
    is: &Present,
    now: Instant,
) -> Option<Command> {
    let report = difference(&name(node), state.markets.get(node), is, now)?;
    Some(market::Command::ReportMarket(Box::new(report)).into())
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

pub(crate) fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// A request for one slot of a minute that does not wait; the command that asks for it names it.
pub(crate) fn request(class: &str, tenant: &str) -> Request {
    Request {
        ttl: Millis::from_secs(60),
        ..Request::new(id("unnamed"), label(class), label(tenant))
    }
}

/// The same with a wait of an hour.
pub(crate) fn patient(class: &str, tenant: &str) -> Request {
    Request {
        wait: Millis::from_hours(1),
        ..request(class, tenant)
    }
}

pub(crate) fn reserve(name: &str, request: Request) -> Command {
    let id = id(name);
    BookingCommand::Reserve(Request { id, ..request }).into()
}

/// Order with defaults.
pub(crate) fn order() -> Order {
    Order {
        work: Hash([0xAB; 32]),
        pids: None,
        start_timeout: execution::START_TIMEOUT_DEFAULT,
        max_time: execution::MAX_TIME_DEFAULT,
        grace: execution::GRACE_DEFAULT,
        retry_of: None,
    }
}

/// The booking of an execution, which has no ttl.
fn of_execution(name: &str, request: Request) -> Request {
    Request {
        id: id(name),
        ttl: Millis::ZERO,
        ..request
    }
}

/// Submits an execution.
pub(crate) fn submit_order(name: &str, request: Request, order: Order) -> Command {
    let booking = of_execution(name, request);
    BookingCommand::Submit(Submission { booking, order }).into()
}

/// Submits an execution of one slot that does not wait.
pub(crate) fn submit(name: &str, class: &str, tenant: &str) -> Command {
    submit_order(name, request(class, tenant), order())
}

pub(crate) fn started(name: &str) -> Command {
    let (id, isolation) = (id(name), Isolation::Cgroup);
    BookingCommand::Started { id, isolation }.into()
}

/// Reports an execution as running under that fence.
pub(crate) fn adopt(
    name: &str,
    request: Request,
    fence: Option<Fence>,
    isolation: Isolation,
) -> Command {
    let booking = of_execution(name, Request { fence, ..request });
    let order = Some(order());
    let found = Adoption {
        booking,
        order,
        isolation,
    };
    BookingCommand::Adopt(found).into()
}

pub(crate) fn exited(name: &str, exit: Exit) -> Command {
    let id = id(name);
    BookingCommand::Exited { id, exit }.into()
}

pub(crate) fn stop_failed(name: &str, attempt: u32) -> Command {
    let id = id(name);
    BookingCommand::StopFailed { id, attempt }.into()
}

pub(crate) fn cancel(name: &str) -> Command {
    BookingCommand::Cancel { id: id(name) }.into()
}

pub(crate) fn force(name: &str, reason: &str) -> Command {
    let (id, reason) = (id(name), reason.to_owned());
    BookingCommand::Force { id, reason }.into()
}

pub(crate) fn note(name: &str, text: &str) -> Command {
    let (id, text) = (id(name), text.to_owned());
    BookingCommand::Note { id, text }.into()
}

/// A limit on a class, of the same name.
pub(crate) fn limit_of(class: &str, slots: u64) -> Limit {
    let scope = Some(Scope::Named(label(class)));
    Limit {
        slots: Some(slots),
        ..Limit::unbounded(name(class), scope, None)
    }
}

pub(crate) fn set_limit(limit: Limit) -> Command {
    change([Change::SetLimit(limit)])
}

pub(crate) fn change(
    changes: impl IntoIterator<Item = impl Into<bursar_engine::Change>>,
) -> Command {
    spine::Command::change(changes).into()
}
