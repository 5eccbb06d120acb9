//! One world: replicas, clients, operators, a network, a store, a machine and its CPU market, and a
//! cluster with budgets and runs, all from one seed.
//!
//! A step is one scheduled action. Between two steps the runners of all processes run, as tasks on
//! a runtime whose paused time is the time of the world: it advances to the next action or to the
//! next timer of a runner. After each step the `checker` compares all visible states and answers with
//! the promises of the ledger; a [`Violation`] ends the world. After the last step all clients stop,
//! time runs on to the last deadline, and nothing may be held.

mod action;
mod bookkeeper;
mod checker;
mod client;
mod clients;
mod cluster;
mod decided;
mod executor;
mod habits;
mod host;
mod market;
mod network;
mod operator;
mod replica;
mod replicas;
mod runner;
mod trouble;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bursar_engine::Command;
use bursar_ledger::store::memory::MemoryStore;
use bursar_units::{Instant, Label, Millis};
use tokio::runtime::{Builder, Runtime};

use self::action::{Action, Schedule};
use self::checker::Checker;
use self::client::{Client, Phase};
use self::cluster::Cluster;
use self::executor::SharedHost;
use self::habits::Habits;
use self::host::Host;
use self::market::Market;
use self::replica::Process;
use self::runner::RunnerTask;
use crate::clock::Machine;
use crate::rng::Rng;
use crate::summary::Tally;
use crate::trace::Trace;
use crate::violation::{Violation, broken, demand};

/// The most steps after all clients have stopped.
const WIND_DOWN_STEPS_MAX: u64 = 20_000;
/// An absence of the ledger that is longer than this counts (L5). A process that only stood still
/// notices by deadlines that are late by more than this.
const ABSENCE: Millis = Millis::from_secs(5);
/// A world without a scheduled action is at rest when no runner submits anything for so long: it is
/// longer than every pause of a runner and every process that ignores its stops.
const REST_MS: u64 = 1_800_000;
/// Number of publications between two comparisons of whole states, on average.
const COMPARE_ONCE_IN: u64 = 16;

/// A world.
pub struct World<'a> {
    rng: Rng,
    habits: Habits,
    now_ms: u64,
    schedule: Schedule,
    store: MemoryStore,
    host: SharedHost,
    market: Market,
    cluster: Cluster,
    checker: Checker,
    replicas: Vec<Replica>,
    clients: Vec<Client>,
    requests: BTreeMap<u64, Sent>,
    request_count: u64,
    lease_count: u64,
    newest_delivered: u64,
    newest_answered: u64,
    epoch: u64,
    /// No client sends a new request before this time.
    quiet_until_ms: u64,
    is_stopping: bool,
    /// Time that passes at once before the next step.
    skip_ms: u64,
    /// The last field to be dropped: all others may hold tasks.
    runtime: Runtime,
    tally: &'a mut Tally,
    trace: &'a mut Trace,
}

/// A machine and the process on it.
struct Replica {
    machine: Machine,
    process: Option<Process>,
    /// Number of the process: actions that were planned for an earlier one are dropped.
    incarnation: u64,
    /// Time until which it sleeps or stalls.
    busy_until_ms: u64,
    /// The time of the ledger when it went away, and the part of the absence that it cannot notice.
    away_from: Option<(Instant, Millis)>,
    build_at_ms: Option<u64>,
    /// Time of its next start, if it is not running.
    start_at_ms: Option<u64>,
    snapshot: Option<String>,
    runner: Option<RunnerTask>,
}

/// A request as it was sent.
struct Sent {
    /// `None` is an operator.
    client: Option<usize>,
    by: Label,
    leases: Vec<usize>,
    commands: Vec<Command>,
}

impl<'a> World<'a> {
    /// The world of a seed.
    pub fn new(seed: u64, tally: &'a mut Tally, trace: &'a mut Trace) -> Result<Self, Violation> {
        let mut rng = Rng::new(seed);
        let habits = Habits::draw(&mut rng);
        let store = MemoryStore::new();
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| broken("a runtime starts", error.to_string()))?;
        let beginning = runtime.block_on(async { tokio::time::Instant::now() });
        Ok(Self {
            now_ms: 0,
            schedule: Schedule::default(),
            checker: Checker::new(store.clone()),
            store,
            host: SharedHost::new(Host::new(rng.split()), beginning),
            market: Market::default(),
            cluster: Cluster::default(),
            replicas: (0..habits.replicas).map(|_| Replica::new()).collect(),
            clients: Vec::new(),
            requests: BTreeMap::new(),
            request_count: 0,
            lease_count: 0,
            newest_delivered: 0,
            newest_answered: 0,
            epoch: 0,
            quiet_until_ms: 0,
            is_stopping: false,
            skip_ms: 0,
            runtime,
            rng,
            habits,
            tally,
            trace,
        })
    }

    /// Runs the world to its end.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.begin()?;
        let mut steps = 0;
        while steps < self.habits.steps && self.step()? {
            steps += 1;
        }
        self.wind_down()
    }

    fn begin(&mut self) -> Result<(), Violation> {
        self.tally.add(
            "worlds with two leaders",
            u64::from(self.habits.replicas > 1),
        );
        for number in 0..self.habits.clients {
            let name = Label::new(&format!("client-{number}"));
            let name = name.map_err(|error| broken("a name is a label", error.to_string()))?;
            self.clients.push(Client {
                name,
                leases: Vec::new(),
                replica: 0,
            });
            self.schedule
                .plan(self.rng.below(200), Action::Arrive(number));
        }
        self.plan_start(0, 0);
        self.schedule.plan(5, Action::Operate);
        self.schedule.plan(5, Action::Clear);
        self.schedule.plan(6, Action::Use);
        if self.habits.trouble_ms > 0 {
            self.schedule.plan(self.habits.trouble_ms, Action::Trouble);
        }
        Ok(())
    }

    /// One step; returns whether there was one to take.
    fn step(&mut self) -> Result<bool, Violation> {
        let Some(action) = self.wait()? else {
            return Ok(false);
        };
        self.trace.step(format!("{:>10} ms  {action}", self.now_ms));
        self.tally.add("steps", 1);
        self.tally.add(action.word(), 1);
        self.act(action)?;
        for number in 0..self.replicas.len() {
            self.let_answers_out(number, usize::MAX)?;
            self.check_intake(number)?;
        }
        self.check_gone()?;
        self.check_market()?;
        self.check_cluster()?;
        Ok(true)
    }

    /// Lets the runners run until the next action is due; `None` when the world is at rest.
    fn wait(&mut self) -> Result<Option<Action>, Violation> {
        loop {
            let next_ms = loop {
                match self.schedule.peek() {
                    Some((at_ms, action)) if self.is_idle(at_ms, action) => {}
                    next => break next.map(|(at_ms, _)| at_ms),
                }
                self.schedule.pop();
            };
            let is_due = self.sleep(next_ms.unwrap_or(self.now_ms + REST_MS));
            self.check_effects()?;
            if is_due {
                return Ok(next_ms.and_then(|_| self.schedule.pop()));
            }
            self.plan_results();
        }
    }

    /// Lets time pass until `until_ms`, or until a submission; returns whether that time has come.
    fn sleep(&mut self, until_ms: u64) -> bool {
        let skip = Duration::from_millis(std::mem::take(&mut self.skip_ms));
        let ledgers = self.replicas.iter().filter_map(|one| one.process.as_ref());
        let mut submitted: Vec<_> = ledgers
            .map(|process| Box::pin(process.ledger.submitted()))
            .collect();
        let host = self.host.clone();
        let (now_ms, is_due) = self.runtime.block_on(async {
            if !skip.is_zero() {
                tokio::time::advance(skip).await;
            }
            let mut due = pin!(host.sleep_until(until_ms));
            let is_due = poll_fn(|context| {
                for one in &mut submitted {
                    if one.as_mut().poll(context).is_ready() {
                        return Poll::Ready(false);
                    }
                }
                due.as_mut().poll(context).map(|()| true)
            });
            let is_due = is_due.await;
            (host.now_ms(), is_due)
        });
        self.now_ms = now_ms;
        for replica in &self.replicas {
            replica.machine.set_world(now_ms);
        }
        is_due
    }

    fn act(&mut self, action: Action) -> Result<(), Violation> {
        match action {
            Action::Arrive(client) => self.arrive(client),
            Action::Wake { client, lease } => self.wake(client, lease),
            Action::Deliver { request, replica } => self.deliver(request, replica),
            Action::Answer { request, result } => self.answer(request, result),
            Action::Look {
                client,
                lease,
                replica,
            } => return self.look(client, lease, replica),
            Action::Sight {
                client,
                lease,
                sight,
                head,
            } => self.see(client, lease, &sight, head),
            Action::Build(replica, _) => {
                if self.is_awake(replica, &action) {
                    return self.build(replica);
                }
            }
            Action::Commit(replica, _) => {
                if self.is_awake(replica, &action) {
                    return self.commit(replica);
                }
            }
            Action::Publish(replica, _) => {
                if self.is_awake(replica, &action) {
                    return self.publish(replica);
                }
            }
            Action::Resolve(replica, _) => {
                if self.is_awake(replica, &action) {
                    self.resolve(replica);
                }
            }
            Action::Clear => self.clear_market(),
            Action::Report(replica, _) => {
                if self.is_awake(replica, &action) {
                    self.report_market(replica);
                }
            }
            Action::Use => self.use_cluster(),
            Action::Keep(replica, _) => {
                if self.is_awake(replica, &action) {
                    self.keep_processes(replica);
                }
            }
            Action::Start(replica) => return self.start(replica),
            Action::Trouble => return self.trouble(),
            Action::Operate => self.operate(),
            Action::Land => return self.land(),
            Action::FreeDisk => self.free_disk(),
        }
        Ok(())
    }

    /// Stops all clients, lets all deadlines pass, and checks that nothing is held.
    fn wind_down(&mut self) -> Result<(), Violation> {
        self.trace.step("everybody stops".to_owned());
        self.is_stopping = true;
        self.host.lock().heal();
        self.free_disk();
        for client in &mut self.clients {
            for lease in &mut client.leases {
                lease.phase = Phase::Over;
            }
        }
        self.clear_market();
        self.plan_keeps();
        let mut steps = 0;
        loop {
            while self.step()? {
                steps += 1;
                demand(steps < WIND_DOWN_STEPS_MAX, "a world comes to rest", || {
                    format!("it still moves after {steps} steps")
                })?;
            }
            let (holding, waiting) = self.checker.counts();
            let is_told = self.market_is_known();
            let is_empty = self.host.lock().ids().next().is_none();
            if is_told && holding + waiting == 0 && is_empty && self.runs_are_over() {
                break;
            }
            // Without a leader, no held slot would be freed.
            let is_led = self.replicas.iter().any(|replica| {
                replica
                    .process
                    .as_ref()
                    .is_some_and(|process| process.epoch == self.epoch && !process.is_over())
            });
            if is_led && self.runs_are_over() {
                break;
            }
            if is_led {
                // A run started after the last comparison.
                self.plan_keeps();
            } else {
                self.plan_start(0, self.now_ms);
            }
        }
        self.checker.check_empty()?;
        self.check_machine_is_empty()?;
        self.check_market_is_known()?;
        self.check_runs_are_over()?;
        self.checker.refold()?;
        for replica in &self.replicas {
            if let Some(process) = &replica.process {
                self.checker
                    .check_same(&process.ledger.view().read(), "the view at the end")?;
            }
        }
        Ok(())
    }
}

impl Replica {
    fn new() -> Self {
        Self {
            machine: Machine::default(),
            process: None,
            incarnation: 0,
            busy_until_ms: 0,
            away_from: None,
            build_at_ms: None,
            start_at_ms: None,
            snapshot: None,
            runner: None,
        }
    }
}
