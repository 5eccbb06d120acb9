//! An engine driven as the server drives it: deadlines first, then the command, then the record.

use std::collections::BTreeMap;

use bursar_booking::decide::Change;
use bursar_booking::execution::{self, Digest, Exit, Isolation, Order};
use bursar_booking::{Extras, Fence, Limit, Priority, Request, Scope, Standing};
use bursar_engine::codec::{Record, encode};
use bursar_engine::invariants::{Mark, check_record};
use bursar_engine::market::{Mode, Present, Settings, difference};
use bursar_engine::{Answer, Command, Events, Refusal, State, decide};
use bursar_market::clear::Policy;
use bursar_units::{Amount, BookingId, Instant, Label, Millis, ObjectName, PodName};

/// 16 November 2026, 10:00 UTC: the example organisation's now.
pub(crate) const START_MS: u64 = 1_794_823_200_000;

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) now: Instant,
    /// The bytes of every record, from record 0.
    pub(crate) journal: Vec<Vec<u8>>,
    /// Until when holders have shown life.
    pub(crate) evidence: BTreeMap<BookingId, Instant>,
}

impl World {
    /// A ledger that has begun.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            state: State::default(),
            now: Instant::from_ms(START_MS),
            journal: Vec::new(),
            evidence: BTreeMap::new(),
        };
        let ledger = "0198f3c2-1a2b-7abc-8def-0123456789ab".to_owned();
        world
            .run(Command::Genesis { ledger })
            .expect("a ledger begins");
        world
    }

    pub(crate) fn run(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.tick();
        self.commit(command).map(|(answer, _)| answer)
    }

    /// The events of a command that must be taken.
    pub(crate) fn events(&mut self, command: Command) -> Events {
        self.tick();
        self.commit(command).expect("it is taken").1
    }

    pub(crate) fn advance(&mut self, ms: u64) {
        self.now = self.now.after(Millis::from_ms(ms));
        self.tick();
    }

    /// Lets time act until nothing is due.
    pub(crate) fn tick(&mut self) {
        while self.state.next_deadline().is_some_and(|at| at <= self.now) {
            let renewed = self
                .state
                .bookings
                .due(self.now)
                .filter_map(|due| Some((due.id.clone(), *self.evidence.get(&due.id)?)))
                .collect();
            let before = self.state.head;
            self.commit(Command::Tick { renewed })
                .expect("time is never refused");
            assert!(
                before < self.state.head,
                "a deadline that has passed makes a record"
            );
        }
    }

    /// Decides and makes a record, without letting time act first.
    pub(crate) fn commit(&mut self, command: Command) -> Result<(Answer, Events), Refusal> {
        let before = Mark::of(&self.state);
        let mut events = Events::new();
        let answer = decide(&mut self.state, self.now, &command, &mut events)?;
        if !events.is_empty() {
            let seq = self.state.head;
            self.state.head += 1;
            check_record(before, &events, &self.state).expect("a step keeps the rules");
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
        self.run(Command::Release {
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
    let report = difference(state.markets.get(node), is, now)?;
    Some(Command::ReportMarket {
        node: name(node),
        report: Box::new(report),
    })
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

pub(crate) fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// A request for one slot of a minute that does not wait.
pub(crate) fn request(class: &str, tenant: &str) -> Request {
    Request {
        class: label(class),
        tenant: label(tenant),
        amount: Amount {
            slots: 1,
            ..Amount::default()
        },
        priority: Priority::Normal,
        ttl: Millis::from_secs(60),
        wait: Millis::ZERO,
        extras: None,
    }
}

/// The same, waiting for an hour.
pub(crate) fn patient(class: &str, tenant: &str) -> Request {
    Request {
        wait: Millis::from_hours(1),
        ..request(class, tenant)
    }
}

pub(crate) fn reserve(name: &str, request: Request) -> Command {
    Command::Reserve {
        id: id(name),
        request,
    }
}

/// What an order that names nothing gets, for some work.
pub(crate) fn order() -> Order {
    Order {
        work: Digest([0xAB; 32]),
        pids: None,
        start_timeout: execution::START_TIMEOUT_DEFAULT,
        max_time: execution::MAX_TIME_DEFAULT,
        grace: execution::GRACE_DEFAULT,
        retry_of: None,
    }
}

/// A request under which something is to be run.
pub(crate) fn with_order(request: Request, order: Order) -> Request {
    Request {
        ttl: Millis::ZERO,
        extras: Some(Box::new(Extras {
            order: Some(order),
            ..Extras::default()
        })),
        ..request
    }
}

/// Submits an execution of one slot that does not wait.
pub(crate) fn submit(name: &str, class: &str, tenant: &str) -> Command {
    reserve(name, with_order(request(class, tenant), order()))
}

pub(crate) fn started(name: &str) -> Command {
    Command::Started {
        id: id(name),
        isolation: Isolation::Cgroup,
    }
}

pub(crate) fn exited(name: &str, exit: Exit) -> Command {
    Command::Exited { id: id(name), exit }
}

pub(crate) fn stop_failed(name: &str, attempt: u32) -> Command {
    Command::StopFailed {
        id: id(name),
        attempt,
    }
}

pub(crate) fn cancel(name: &str) -> Command {
    Command::Cancel { id: id(name) }
}

pub(crate) fn limit_of(class: &str, slots: u64) -> Limit {
    let scope = Some(Scope::Named(label(class)));
    Limit {
        slots: Some(slots),
        ..Limit::unbounded(scope, None)
    }
}

pub(crate) fn set_limit(limit: &str, declared: Limit) -> Command {
    Command::Change {
        changes: vec![Change::SetLimit {
            name: name(limit),
            limit: declared,
        }],
    }
}
