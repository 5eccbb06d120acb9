//! One world: replicas, clients, operators, a network and a store, all from one seed.
//!
//! A step is one scheduled action. Whatever a step brings to light goes to the [`checker`], which
//! knows what was promised; a [`Violation`] ends the world. When its steps are used up everybody
//! stops, time runs out, and nothing may be held.

mod action;
mod checker;
mod client;
mod decided;
mod habits;
mod operator;
mod replica;
mod trouble;

use std::collections::BTreeMap;
use std::sync::PoisonError;

use bursar_booking::{Fence, Refusal as BookingRefusal, Reply, Standing};
use bursar_engine::{Answer, Command, Refusal, snapshot};
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::store::memory::MemoryStore;
use bursar_units::{Instant, Label, Millis};

use self::action::{Action, Schedule};
use self::checker::Checker;
use self::client::{Client, Deed, Lease, Phase, Sight};
use self::habits::{Habits, Load};
use self::replica::{Committed, Process, Shape, StartError};
use crate::clock::Machine;
use crate::rng::Rng;
use crate::summary::Tally;
use crate::trace::Trace;
use crate::violation::{Violation, broken, demand};

/// Steps that a world may take after everybody stopped.
const WIND_DOWN_STEPS_MAX: u64 = 20_000;
/// An absence of the ledger that is longer than this counts (L5). A process that only stood still
/// notices by deadlines that are late by more than this.
const ABSENCE: Millis = Millis::from_secs(5);
/// How often whole states are compared: once in so many publications.
const COMPARE_ONCE_IN: u64 = 16;

/// A world.
pub struct World<'a> {
    rng: Rng,
    habits: Habits,
    now_ms: u64,
    schedule: Schedule,
    store: MemoryStore,
    checker: Checker,
    replicas: Vec<Replica>,
    clients: Vec<Client>,
    requests: BTreeMap<u64, Sent>,
    request_count: u64,
    lease_count: u64,
    newest_delivered: u64,
    newest_answered: u64,
    /// The newest term.
    epoch: u64,
    /// Until then nobody wants anything new.
    quiet_until_ms: u64,
    is_stopping: bool,
    tally: &'a mut Tally,
    trace: &'a mut Trace,
}

/// A machine and the process on it.
struct Replica {
    machine: Machine,
    process: Option<Process>,
    /// Counts processes, so that what was planned for a dead one is dropped.
    incarnation: u64,
    /// Until then it sleeps or stalls.
    busy_until_ms: u64,
    /// The time of the ledger when it went away, and how much of its end it does not notice.
    away_from: Option<(Instant, Millis)>,
    build_at_ms: Option<u64>,
    /// When it starts, where it is not running.
    start_at_ms: Option<u64>,
    snapshot: Option<String>,
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
    pub fn new(seed: u64, tally: &'a mut Tally, trace: &'a mut Trace) -> Self {
        let mut rng = Rng::new(seed);
        let habits = Habits::draw(&mut rng);
        let store = MemoryStore::new();
        Self {
            rng,
            now_ms: 0,
            schedule: Schedule::default(),
            checker: Checker::new(store.clone()),
            store,
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
            habits,
            tally,
            trace,
        }
    }

    /// Runs it to its end.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.begin()?;
        let mut steps = 0;
        while steps < self.habits.steps && self.step()? {
            steps += 1;
        }
        self.wind_down()
    }

    fn begin(&mut self) -> Result<(), Violation> {
        let habits = &self.habits;
        let shape = if habits.is_whole {
            "worlds stepped in one place"
        } else {
            "worlds stepped in three"
        };
        self.tally.add(shape, 1);
        self.tally
            .add("worlds with two leaders", u64::from(habits.replicas > 1));
        for number in 0..habits.clients {
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
        if self.habits.trouble_ms > 0 {
            self.schedule.plan(self.habits.trouble_ms, Action::Trouble);
        }
        Ok(())
    }

    /// One step; whether there was one to take.
    fn step(&mut self) -> Result<bool, Violation> {
        let (at_ms, action) = loop {
            match self.schedule.next() {
                Some((at_ms, action)) if self.is_idle(at_ms, &action) => {}
                Some(next) => break next,
                None => return Ok(false),
            }
        };
        self.now_ms = self.now_ms.max(at_ms);
        for replica in &self.replicas {
            replica.machine.set_world(self.now_ms);
        }
        self.trace.step(format!("{:>10} ms  {action}", self.now_ms));
        self.tally.add("steps", 1);
        self.tally.add(action.word(), 1);
        self.act(action)?;
        for number in 0..self.replicas.len() {
            self.let_answers_out(number, usize::MAX)?;
        }
        Ok(true)
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
                    return self.resolve(replica);
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

    /// Everybody stops; time runs out; nothing is held.
    fn wind_down(&mut self) -> Result<(), Violation> {
        self.trace.step("everybody stops".to_owned());
        self.is_stopping = true;
        self.free_disk();
        for client in &mut self.clients {
            for lease in &mut client.leases {
                lease.phase = Phase::Over;
            }
        }
        let mut steps = 0;
        loop {
            while self.step()? {
                steps += 1;
                demand(steps < WIND_DOWN_STEPS_MAX, "a world comes to rest", || {
                    format!("it still moves after {steps} steps")
                })?;
            }
            let (holding, waiting) = self.checker.oracle().counts();
            if holding + waiting == 0 {
                break;
            }
            // Nobody leads: somebody must, for what is held to come back.
            let is_led = self.replicas.iter().any(|replica| {
                replica
                    .process
                    .as_ref()
                    .is_some_and(|process| process.epoch == self.epoch && !process.is_over())
            });
            if is_led {
                break;
            }
            self.plan_start(0, self.now_ms);
        }
        self.checker.check_empty()?;
        self.checker.refold()?;
        for replica in &self.replicas {
            if let Some(process) = &replica.process {
                self.checker
                    .check_same(&process.view().read(), "the view at the end")?;
            }
        }
        Ok(())
    }

    // The network.

    /// Sends something on its way: lost, doubled, delayed.
    fn post(&mut self, action: &Action) {
        if !self.is_stopping && self.rng.per_mille(self.habits.lost_per_mille) {
            let is_answer = matches!(action, Action::Answer { .. } | Action::Sight { .. });
            let word = if is_answer {
                "answers lost"
            } else {
                "messages lost"
            };
            self.tally.add(word, 1);
            self.trace.note("lost");
            return;
        }
        let copies = if self.rng.per_mille(self.habits.lost_per_mille) {
            self.tally.add("messages doubled", 1);
            2
        } else {
            1
        };
        for _ in 0..copies {
            let delay = self.rng.below(self.habits.delay_ms + 1);
            // Now and then one takes much longer than all others.
            let delay = if self.rng.once_in(200) {
                delay * 50
            } else {
                delay
            };
            self.schedule.plan(self.now_ms + delay, action.clone());
        }
    }

    fn send(&mut self, client: Option<usize>, leases: Vec<usize>, commands: Vec<Command>) {
        let by = match client.and_then(|number| self.clients.get(number)) {
            Some(client) => client.name.clone(),
            None => match Label::new("operator") {
                Ok(name) => name,
                Err(_) => return,
            },
        };
        let replica = client.and_then(|number| self.clients.get(number));
        let replica = replica.map_or(0, |client| client.replica);
        self.request_count += 1;
        let request = self.request_count;
        self.trace.note(&words_of(request, &commands));
        self.tally.add(
            "batches of several operations",
            u64::from(commands.len() > 1),
        );
        self.requests.insert(
            request,
            Sent {
                client,
                by,
                leases,
                commands,
            },
        );
        self.post(&Action::Deliver { request, replica });
    }

    fn deliver(&mut self, request: u64, replica: usize) {
        if request < self.newest_delivered {
            self.tally.add("messages out of order", 1);
        }
        self.newest_delivered = self.newest_delivered.max(request);
        let Some(sent) = self.requests.get(&request) else {
            return;
        };
        let process = self
            .replicas
            .get(replica)
            .and_then(|replica| replica.process.as_ref());
        let Some(process) = process else {
            // Nobody listens; the client finds out by waiting, and tries the other one.
            self.trace.note("nobody listens");
            let client = sent.client;
            self.turn_elsewhere(client);
            return;
        };
        let outbox = std::sync::Arc::clone(&process.outbox);
        process.push(Submission {
            by: sent.by.clone(),
            commands: sent.commands.clone(),
            reply: Box::new(move |result| {
                let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
                outbox.push((request, result));
            }),
        });
        let delay = self.rng.below(3);
        self.plan_build(replica, self.now_ms + delay);
    }

    /// Lets at most `most` answers out of a process.
    fn let_answers_out(&mut self, replica: usize, most: usize) -> Result<(), Violation> {
        let Some(process) = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref())
        else {
            return Ok(());
        };
        let leader = (process.epoch == self.epoch).then(|| process.now());
        let mut outbox = process
            .outbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let leaving: Vec<_> = outbox.drain(..).take(most).collect();
        drop(outbox);
        for (request, result) in leaving {
            if let Some(sent) = self.requests.get(&request) {
                self.checker
                    .check_answers(&sent.commands, &result, leader, self.now_ms)?;
            }
            self.tally_answer(&result);
            self.post(&Action::Answer { request, result });
        }
        Ok(())
    }

    fn tally_answer(&mut self, result: &Result<Vec<Outcome>, Failure>) {
        let word = match result {
            Ok(_) => "answer: outcomes",
            Err(Failure::OutcomeUnknown) => "answer: outcome unknown",
            Err(Failure::NotLeader) => "answer: not leader",
            Err(Failure::Unavailable) => "answer: unavailable",
            Err(Failure::DiskLow) => "answer: disk low",
            Err(_) => "answer: other failure",
        };
        self.tally.add(word, 1);
    }

    // The clients.

    fn arrive(&mut self, client: usize) {
        if self.is_stopping {
            return;
        }
        if self.now_ms < self.quiet_until_ms {
            let later = self.quiet_until_ms + self.rng.below(200);
            self.schedule.plan(later, Action::Arrive(client));
            return;
        }
        let later = self.now_ms + self.rng.between(1, self.habits.arrive_ms);
        self.schedule.plan(later, Action::Arrive(client));
        if self.rng.once_in(10) {
            self.send_nonsense(client);
            return;
        }
        let count = match self.habits.load {
            Load::Crowd => self.rng.between(1, 12),
            _ if self.rng.once_in(12) => self.rng.between(2, 5),
            _ => 1,
        };
        let mut asked = Vec::new();
        for _ in 0..count {
            self.lease_count += 1;
            let drawn = Lease::draw(&mut self.rng, &self.habits, self.lease_count, self.now_ms);
            let (Some(lease), Some(owner)) = (drawn, self.clients.get_mut(client)) else {
                return;
            };
            asked.push((owner.leases.len(), lease.reserve()));
            owner.leases.push(lease);
        }
        for (lease, _) in &asked {
            let nap = self.rng.between(200, 4_000);
            self.plan_wake(client, *lease, self.now_ms + nap);
        }
        let (leases, commands) = asked.into_iter().unzip();
        self.send(Some(client), leases, commands);
    }

    fn send_nonsense(&mut self, client: usize) {
        let Some(owner) = self.clients.get(client) else {
            return;
        };
        let lease = self.rng.place(owner.leases.len());
        if let Some(command) = owner
            .leases
            .get(lease)
            .map(|lease| lease.nonsense(&mut self.rng))
        {
            self.send(Some(client), vec![lease], vec![command]);
        }
    }

    fn wake(&mut self, client: usize, lease: usize) {
        let Some(owner) = self.clients.get_mut(client) else {
            return;
        };
        let replica = owner.replica;
        let Some(one) = owner.leases.get_mut(lease) else {
            return;
        };
        let nap = match one.wake(&mut self.rng, self.now_ms) {
            Deed::Nothing => return,
            Deed::Look(nap) => {
                self.post(&Action::Look {
                    client,
                    lease,
                    replica,
                });
                nap
            }
            Deed::Send(command, nap) => {
                self.send(Some(client), vec![lease], vec![command]);
                nap
            }
        };
        self.plan_wake(client, lease, self.now_ms + nap);
    }

    fn plan_wake(&mut self, client: usize, lease: usize, at_ms: u64) {
        if let Some(one) = self.lease_mut(client, lease) {
            one.wake_at_ms = Some(at_ms);
            self.schedule.plan(at_ms, Action::Wake { client, lease });
        }
    }

    fn lease_mut(&mut self, client: usize, lease: usize) -> Option<&mut Lease> {
        self.clients.get_mut(client)?.leases.get_mut(lease)
    }

    fn answer(&mut self, request: u64, result: Result<Vec<Outcome>, Failure>) {
        if request < self.newest_answered {
            self.tally.add("answers out of order", 1);
        }
        self.newest_answered = self.newest_answered.max(request);
        let Some(sent) = self.requests.get(&request) else {
            return;
        };
        let Some(client) = sent.client else { return };
        let outcomes = match result {
            Ok(outcomes) => outcomes,
            Err(Failure::NotLeader | Failure::Unavailable) => {
                self.turn_elsewhere(Some(client));
                return;
            }
            Err(_) => return,
        };
        let told: Vec<_> = sent
            .leases
            .iter()
            .copied()
            .zip(sent.commands.clone())
            .collect();
        for ((lease, command), outcome) in told.into_iter().zip(outcomes) {
            self.told(client, lease, &command, &outcome);
        }
    }

    /// The word of the engine on one command.
    #[expect(
        clippy::match_same_arms,
        reason = "each arm is a rule of the protocol, and their order matters"
    )]
    fn told(&mut self, client: usize, lease: usize, command: &Command, outcome: &Outcome) {
        let (now_ms, rng) = (self.now_ms, &mut self.rng);
        let Some(one) = self
            .clients
            .get_mut(client)
            .and_then(|owner| owner.leases.get_mut(lease))
        else {
            return;
        };
        if one.phase == Phase::Over {
            return;
        }
        one.record = one.record.max(outcome.record);
        let is_reserve = matches!(command, Command::Reserve { .. });
        match &outcome.result {
            Ok(Answer::Booking(Reply::Granted(fence))) => {
                one.hold(rng, *fence, now_ms);
                self.plan_wake(client, lease, now_ms);
            }
            Ok(Answer::Booking(Reply::Queued | Reply::Repeated)) if one.phase == Phase::Asking => {
                one.phase = Phase::Waiting;
            }
            Ok(Answer::Booking(Reply::Ended | Reply::AlreadyEnded)) => one.phase = Phase::Over,
            Err(Refusal::Booking(BookingRefusal::IsGranted)) => one.phase = Phase::Waiting,
            Err(Refusal::Booking(BookingRefusal::IdReused { .. } | BookingRefusal::IsQueued)) => {}
            // A refusal leaves no trace; one may try again under the same id.
            Err(_) if is_reserve && one.phase == Phase::Asking && rng.once_in(3) => {}
            Err(_) if is_reserve && one.phase != Phase::Asking => {}
            // A wrong fence that was sent on purpose says nothing of the right one.
            Err(_) if is_other_fence(command, one.fence) => {}
            Err(_) => one.phase = Phase::Over,
            Ok(_) => {}
        }
    }

    fn turn_elsewhere(&mut self, client: Option<usize>) {
        let count = self.replicas.len();
        if let Some(owner) = client.and_then(|number| self.clients.get_mut(number)) {
            owner.replica = (owner.replica + 1) % count;
        }
    }

    fn look(&mut self, client: usize, lease: usize, replica: usize) -> Result<(), Violation> {
        let process = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref());
        let known = self
            .clients
            .get(client)
            .and_then(|owner| owner.leases.get(lease));
        let (Some(process), Some(one)) = (process, known) else {
            self.turn_elsewhere(Some(client));
            return Ok(());
        };
        let state = process.view().read();
        self.checker.check_view(&state)?;
        if state.head <= one.record {
            // Read your writes: the view is not there yet, and the reader waits for it.
            self.tally.add("reads that waited for their record", 1);
            return Ok(());
        }
        let sight = match state.bookings.standing(&one.id) {
            None => Sight::Unknown,
            Some(Standing::Queued { .. }) => Sight::Queued,
            Some(Standing::Granted(granted)) => Sight::Held(granted.fence),
            Some(Standing::Ended(ended)) => Sight::Ended(ended.end()),
        };
        match &sight {
            Sight::Held(fence) => self.checker.check_seen_held(&one.id, *fence)?,
            Sight::Ended(end) => self.checker.check_seen_ended(&one.id, *end)?,
            Sight::Unknown | Sight::Queued => {}
        }
        let head = state.head;
        drop(state);
        self.post(&Action::Sight {
            client,
            lease,
            sight,
            head,
        });
        Ok(())
    }

    fn see(&mut self, client: usize, lease: usize, sight: &Sight, head: u64) {
        let (now_ms, rng) = (self.now_ms, &mut self.rng);
        let Some(one) = self
            .clients
            .get_mut(client)
            .and_then(|owner| owner.leases.get_mut(lease))
        else {
            return;
        };
        one.record = one.record.max(head.saturating_sub(1));
        match sight {
            Sight::Held(fence) if one.phase == Phase::Waiting => {
                one.hold(rng, *fence, now_ms);
                self.plan_wake(client, lease, now_ms);
            }
            Sight::Ended(_) => one.phase = Phase::Over,
            // It was forgotten, or a stale replica does not know it yet: ask again.
            Sight::Unknown if one.phase == Phase::Waiting => one.phase = Phase::Asking,
            Sight::Queued | Sight::Held(_) | Sight::Unknown => {}
        }
    }

    // The replicas.

    fn is_awake(&mut self, replica: usize, action: &Action) -> bool {
        let Some(one) = self.replicas.get_mut(replica) else {
            return false;
        };
        if self.now_ms < one.busy_until_ms {
            if matches!(action, Action::Build(..)) {
                one.build_at_ms = Some(one.busy_until_ms);
            }
            self.schedule.plan(one.busy_until_ms, action.clone());
            self.trace.note("still away");
            return false;
        }
        true
    }

    /// Whether an action has lost its purpose: its process is gone, or an earlier turn did it all.
    fn is_idle(&self, at_ms: u64, action: &Action) -> bool {
        let (replica, incarnation) = match action {
            Action::Wake { client, lease } => {
                let known = self
                    .clients
                    .get(*client)
                    .and_then(|one| one.leases.get(*lease));
                return known.is_none_or(|one| one.wake_at_ms != Some(at_ms));
            }
            Action::Build(replica, incarnation)
            | Action::Commit(replica, incarnation)
            | Action::Publish(replica, incarnation)
            | Action::Resolve(replica, incarnation) => (*replica, *incarnation),
            _ => return false,
        };
        self.replicas.get(replica).is_none_or(|one| {
            let is_build = matches!(action, Action::Build(..));
            let has_turn = !is_build || one.build_at_ms == Some(at_ms);
            one.process.is_none() || one.incarnation != incarnation || !has_turn
        })
    }

    fn plan_build(&mut self, replica: usize, at_ms: u64) {
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        if one.build_at_ms.is_some_and(|planned| planned <= at_ms) {
            return;
        }
        one.build_at_ms = Some(at_ms);
        self.schedule
            .plan(at_ms, Action::Build(replica, one.incarnation));
    }

    /// Plans the engine's next turn for when time itself wants it.
    fn plan_deadline(&mut self, replica: usize) {
        let process = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref());
        let Some(process) = process.filter(|process| !process.is_over()) else {
            return;
        };
        // While the store is busy the batch stays open, and time has had its say in it.
        if matches!(&process.shape, Shape::Staged(staged) if !staged.can_send()) {
            return;
        }
        if let Some(deadline) = process.next_deadline() {
            let wait = deadline.since(process.now()).ms().max(1);
            let late = if self.rng.once_in(4) {
                self.rng.below(300)
            } else {
                0
            };
            self.plan_build(replica, self.now_ms + wait + late);
        }
    }

    fn build(&mut self, replica: usize) -> Result<(), Violation> {
        let most = if self.rng.once_in(3) { 1 } else { usize::MAX };
        let now_ms = self.now_ms;
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        one.build_at_ms = None;
        let away_from = one.away_from.take();
        let Some(process) = one.process.as_mut() else {
            return Ok(());
        };
        let decisions = match &mut process.shape {
            Shape::Staged(staged) => {
                staged.build(most, now_ms)?;
                if most == 1 {
                    Checker::check_working(staged.writer.working())?;
                }
                None
            }
            Shape::Whole(whole) => Some(whole.step(now_ms)?),
        };
        let now = process.now();
        let is_leader = process.epoch == self.epoch;
        if let Some((from, slack)) = away_from
            && is_leader
            && now.since(from) > ABSENCE
        {
            self.checker.was_away(from, now.before(slack));
        }
        if let Some(decisions) = decisions {
            self.checker.about_to_commit(&decisions);
            let decisions = if is_leader { decisions } else { Vec::new() };
            self.checker.follow(&decisions, now_ms, self.tally)?;
            return self.after_whole_step(replica);
        }
        self.after_build(replica)
    }

    fn after_build(&mut self, replica: usize) -> Result<(), Violation> {
        if self.crash_here(replica)? {
            return Ok(());
        }
        let latency = self.rng.one_of([0, 1, 3, 20]);
        self.send_on(replica, latency);
        let again = self.rng.between(1, 5);
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        if let Some(Process {
            shape: Shape::Staged(staged),
            ..
        }) = &one.process
            && staged.has_more()
        {
            self.plan_build(replica, self.now_ms + again);
        }
        self.plan_deadline(replica);
        Ok(())
    }

    /// Hands the open batch to the store, where that is free.
    fn send_on(&mut self, replica: usize, latency_ms: u64) {
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        let incarnation = one.incarnation;
        if let Some(Process {
            shape: Shape::Staged(staged),
            ..
        }) = &mut one.process
            && staged.send()
        {
            let action = Action::Commit(replica, incarnation);
            self.schedule.plan(self.now_ms + latency_ms, action);
        }
    }

    fn after_whole_step(&mut self, replica: usize) -> Result<(), Violation> {
        self.note_end_of_term(replica);
        let Some(process) = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref())
        else {
            return Ok(());
        };
        self.checker.check_view(&process.view().read())?;
        if self.rng.once_in(COMPARE_ONCE_IN) {
            self.checker
                .check_same(&process.view().read(), "the view")?;
        }
        if self.crash_between_answers(replica)? || self.crash_here(replica)? {
            return Ok(());
        }
        // A store that was away is asked again.
        let retry = self.rng.between(50, 400);
        if self.disk_is_full() {
            self.plan_build(replica, self.now_ms + retry);
        }
        self.plan_deadline(replica);
        Ok(())
    }

    fn commit(&mut self, replica: usize) -> Result<(), Violation> {
        if self.crash_here(replica)? {
            return Ok(());
        }
        let (now_ms, incarnation) = (self.now_ms, self.incarnation(replica));
        let is_leader = self.is_leader(replica);
        let Some(staged) = self.staged(replica) else {
            return Ok(());
        };
        let decisions = staged.in_flight().to_vec();
        let committed = staged.commit();
        self.checker.about_to_commit(&decisions);
        match committed {
            None => return Ok(()),
            Some(Committed::Done) => {
                // A stale leader cannot write, but it refuses by what it knows.
                if is_leader {
                    self.checker.follow(&decisions, now_ms, self.tally)?;
                }
                let later = now_ms + self.rng.one_of([0, 1, 10]);
                self.schedule
                    .plan(later, Action::Publish(replica, incarnation));
            }
            Some(Committed::Refused) => {
                self.trace.note("refused");
                self.note_end_of_term(replica);
            }
            Some(Committed::Unknown) => {
                self.trace.note("outcome unknown");
                if self.rng.once_in(2) {
                    // Should it be one that hangs, it may yet be done.
                    let later = now_ms + self.rng.below(300);
                    self.schedule.plan(later, Action::Land);
                }
                let later = now_ms + self.rng.below(400);
                self.schedule
                    .plan(later, Action::Resolve(replica, incarnation));
            }
        }
        self.checker.follow(&[], now_ms, self.tally)?;
        if self.crash_here(replica)? {
            return Ok(());
        }
        let latency = self.rng.below(10);
        self.send_on(replica, latency);
        Ok(())
    }

    fn publish(&mut self, replica: usize) -> Result<(), Violation> {
        let Some(staged) = self.staged(replica) else {
            return Ok(());
        };
        staged.publish();
        if self.crash_between_answers(replica)? {
            return Ok(());
        }
        self.compare(replica)?;
        if self.rng.once_in(self.habits.crash_once_in) && !self.is_stopping {
            self.let_answers_out(replica, usize::MAX)?;
            self.tally.add("crash: after publish", 1);
            self.crash(replica);
            return Ok(());
        }
        if self.rng.once_in(50)
            && let Some(staged) = self.staged(replica)
        {
            staged.checkpoint();
        }
        self.plan_build(replica, self.now_ms);
        Ok(())
    }

    /// What readers and the engine see against what is committed.
    fn compare(&mut self, replica: usize) -> Result<(), Violation> {
        let is_whole_look = self.rng.once_in(COMPARE_ONCE_IN);
        let Some(process) = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref())
        else {
            return Ok(());
        };
        let state = process.view().read();
        self.checker.check_view(&state)?;
        if is_whole_look {
            self.checker.check_same(&state, "the view")?;
            if let Shape::Staged(staged) = &process.shape
                && staged.has_nothing_uncommitted()
            {
                self.checker
                    .check_same(staged.writer.working(), "the working state")?;
            }
        }
        Ok(())
    }

    fn resolve(&mut self, replica: usize) -> Result<(), Violation> {
        let (now_ms, incarnation) = (self.now_ms, self.incarnation(replica));
        let Some(staged) = self.staged(replica) else {
            return Ok(());
        };
        let resolved = staged.resolve();
        let (is_unknown, is_over) = (staged.is_unknown(), staged.is_over());
        match resolved {
            Some(true) => self.tally.add("unknown outcomes that were committed", 1),
            Some(false) => self.tally.add("unknown outcomes that were not", 1),
            None => {}
        }
        if is_unknown {
            let later = now_ms + self.rng.between(50, 400);
            self.schedule
                .plan(later, Action::Resolve(replica, incarnation));
        }
        if is_over {
            self.note_end_of_term(replica);
            return Ok(());
        }
        if resolved.is_some() {
            self.compare(replica)?;
            self.plan_build(replica, now_ms);
        }
        Ok(())
    }

    fn start(&mut self, replica: usize) -> Result<(), Violation> {
        let is_leading = |process: &Process| process.epoch == self.epoch && !process.is_over();
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        one.start_at_ms = None;
        if one.process.as_ref().is_some_and(is_leading) {
            return Ok(());
        }
        if self.now_ms < one.busy_until_ms {
            // Nothing starts on a machine that sleeps.
            let later = one.busy_until_ms;
            self.plan_start(replica, later);
            return Ok(());
        }
        let from_snapshot = one.snapshot.clone().filter(|_| self.rng.once_in(2));
        self.epoch += 1;
        let begun = Process::start(
            &self.store,
            &one.machine,
            from_snapshot.as_deref(),
            self.habits.is_whole,
            self.epoch,
        );
        self.checker.begins_anew();
        let (records, before) = (self.checker.head(), self.checker.time());
        self.checker.follow(&[], self.now_ms, self.tally)?;
        self.checker.was_away(before, self.checker.time());
        let started = match begun {
            Ok(started) => started,
            Err(StartError::Broken(violation)) => return Err(violation),
            Err(StartError::Away) => {
                self.trace.note("the store is away");
                self.plan_start(replica, self.now_ms + 200);
                return Ok(());
            }
        };
        self.checker
            .check_recovered(&started.state, &started.root)?;
        if records > 0 {
            let word = if from_snapshot.is_some() {
                "recovered from a snapshot"
            } else {
                "recovered from record 0"
            };
            self.tally.add(word, 1);
        }
        if let Some(one) = self.replicas.get_mut(replica) {
            one.incarnation += 1;
            one.build_at_ms = None;
            one.away_from = None;
            one.busy_until_ms = 0;
            one.process = Some(started.process);
        }
        self.plan_build(replica, self.now_ms);
        Ok(())
    }

    /// A process that may not write any more starts again, after a while.
    fn note_end_of_term(&mut self, replica: usize) {
        let process = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref());
        if process.is_some_and(Process::is_over) {
            if process.is_some_and(|process| process.epoch < self.epoch) {
                self.tally.add("stale leader refused", 1);
            }
            // Two that never let go of each other would do nothing else.
            let patience_ms = if self.replicas.len() > 1 {
                90_000
            } else {
                5_000
            };
            let later = self.now_ms + self.rng.between(10, patience_ms);
            self.plan_start(replica, later);
        }
    }

    fn plan_start(&mut self, replica: usize, at_ms: u64) {
        let Some(one) = self.replicas.get_mut(replica) else {
            return;
        };
        if one.start_at_ms.is_none() {
            one.start_at_ms = Some(at_ms);
            self.schedule.plan(at_ms, Action::Start(replica));
        }
    }

    fn is_leader(&self, replica: usize) -> bool {
        let process = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref());
        process.is_some_and(|process| process.epoch == self.epoch)
    }

    fn incarnation(&self, replica: usize) -> u64 {
        self.replicas.get(replica).map_or(0, |one| one.incarnation)
    }

    fn staged(&mut self, replica: usize) -> Option<&mut replica::Staged> {
        match &mut self.replicas.get_mut(replica)?.process.as_mut()?.shape {
            Shape::Staged(staged) => Some(staged),
            Shape::Whole(_) => None,
        }
    }

    fn take_snapshot(&mut self, replica: usize) -> Result<(), Violation> {
        let Some(one) = self.replicas.get_mut(replica) else {
            return Ok(());
        };
        if let Some(process) = &one.process {
            let text = snapshot::write(&process.view().read());
            let text =
                text.map_err(|error| broken("every state can be written", error.to_string()))?;
            one.snapshot = Some(text);
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
        }
    }
}

fn is_other_fence(command: &Command, fence: Option<Fence>) -> bool {
    match command {
        Command::Release { fence: sent, .. } | Command::Renew { fence: sent, .. } => {
            fence != Some(*sent)
        }
        _ => false,
    }
}

fn words_of(request: u64, commands: &[Command]) -> String {
    let word = |command: &Command| match command {
        Command::Reserve { id, request } => format!("reserve {id} {:?}", request.amount.slots),
        Command::Release { id, fence, .. } => format!("release {id} {}", fence.0),
        Command::Renew { id, fence, .. } => format!("renew {id} {}", fence.0),
        Command::Cancel { id } => format!("cancel {id}"),
        Command::Force { id, .. } => format!("force {id}"),
        Command::Change { changes } => format!("change {changes:?}"),
        other => format!("{other:?}"),
    };
    let words: Vec<_> = commands.iter().map(word).collect();
    format!("request {request}: {}", words.join(", "))
}
