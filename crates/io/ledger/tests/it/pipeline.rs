//! The running pipeline: what is answered is durable, and trouble has exactly three outcomes.
//!
//! Method: the real threads over a store in memory that fails on demand, or over SQLite in a
//! temporary directory. Waiting is for answers, never for time.

use bursar_engine::Reference;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_engine::booking::{self, Fence, Outcome as Said, Reply, Request, Standing};
use bursar_engine::{Answer, Command, Events, Refusal, State, decide, snapshot};
use bursar_journal::checkpoint::{Name, SigningKey};
use bursar_ledger::clock::{Clock, Moment, TermClock};
use bursar_ledger::data;
use bursar_ledger::intake::{Failure, Intake, LANE_LENGTH_MAX, Outcome, Submission};
use bursar_ledger::pipeline::{Ledger, Observe, Running};
use bursar_ledger::store::memory::{Fault, MemoryStore};
use bursar_ledger::store::{Append, Appended, Error as StoreError, Reader, Store, Term};
use bursar_ledger::term::{Begun, Hand, begin};
use bursar_ledger::writer::{Decide, Poison, Writer};
use bursar_units::{BookingId, Instant, Label, Millis};

use crate::world::LEDGER;

/// Clocks that stand where they are put.
#[derive(Default)]
struct Hands {
    wall: AtomicU64,
    monotonic: AtomicU64,
}

impl Hands {
    fn at(wall: u64) -> Arc<Self> {
        let hands = Self::default();
        hands.wall.store(wall, Ordering::SeqCst);
        Arc::new(hands)
    }

    fn pass(&self, ms: u64) {
        self.wall.fetch_add(ms, Ordering::SeqCst);
        self.monotonic.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn wall(&self) -> Instant {
        Instant::from_ms(self.wall.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Millis {
        Millis::from_ms(self.monotonic.load(Ordering::SeqCst))
    }
}

/// Remembers what it was told.
#[derive(Default)]
struct Notes {
    poisoned: Mutex<Vec<Poison>>,
    failures: AtomicU64,
}

impl Observe for Notes {
    fn poisoned(&self, poison: &Poison) {
        self.poisoned.lock().unwrap().push(poison.clone());
    }

    fn store_failed(&self, _: &bursar_ledger::store::Error) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }

    fn not_leader(&self) {}

    fn store_away(&self, _: &Result<String, bursar_ledger::store::Error>) {}

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}

    fn invariant_broken(&self, _: &bursar_engine::invariants::Broken) {}
}

struct World {
    ledger: Ledger,
    running: Running,
    store: MemoryStore,
    hands: Arc<Hands>,
    notes: Arc<Notes>,
}

const MORNING: u64 = 1_794_823_200_000;

fn world_on(store: &MemoryStore, hands: &Arc<Hands>, decide: Decide) -> World {
    world_of(Box::new(store.clone()), store, hands, decide)
}

fn world_of(
    boxed: Box<dyn Store>,
    store: &MemoryStore,
    hands: &Arc<Hands>,
    decide: Decide,
) -> World {
    let clock: Arc<dyn Clock> = Arc::clone(hands) as Arc<dyn Clock>;
    let hand = |ledger: &str, generation| {
        let key = SigningKey::from_seed(Name::ledger(ledger, generation).unwrap(), [7; 32]);
        let verifiers = vec![key.verifier()];
        let sign = Box::new(move |size, root| {
            let origin = key.name().clone();
            Ok(bursar_journal::checkpoint::Checkpoint { origin, size, root }.sign([&key]))
        });
        Ok(Hand { verifiers, sign })
    };
    let begun = begin(
        boxed,
        State::default(),
        &clock,
        || LEDGER.to_owned(),
        hand,
        |_, _| {},
    );
    let begun = begun.unwrap();
    let writer = Writer::new(begun.writer.working().clone(), decide);
    let begun = Begun { writer, ..begun };
    let notes = Arc::new(Notes::default());
    let observe = Arc::clone(&notes) as Arc<dyn Observe>;
    let (ledger, running) = Ledger::start(begun, clock, observe).unwrap();
    World {
        ledger,
        running,
        store: store.clone(),
        hands: Arc::clone(hands),
        notes,
    }
}

fn world() -> World {
    world_on(&MemoryStore::new(), &Hands::at(MORNING), decide)
}

impl World {
    fn ask(&self, by: &str, commands: Vec<Command>) -> Result<Vec<Outcome>, Failure> {
        ask(&self.ledger, by, commands)
    }

    fn one(&self, command: Command) -> Result<Result<Answer, Refusal>, Failure> {
        self.ask("ada", vec![command])
            .map(|mut outcomes| outcomes.remove(0).result)
    }

    fn granted(&self, id: &str) -> Fence {
        let Ok(Ok(Answer::Booking(Reply::Granted(fence)))) = self.one(reserve(id)) else {
            panic!("{id} was not granted")
        };
        fence
    }

    fn holds(&self, id: &str) -> bool {
        let view = self.ledger.view().read();
        matches!(
            view.bookings.standing(&name(id)),
            Some(Standing::Granted(_))
        )
    }
}

fn ask(ledger: &Ledger, by: &str, commands: Vec<Command>) -> Result<Vec<Outcome>, Failure> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let reply = Box::new(move |result| tell.send(result).unwrap());
    ledger.push(Submission {
        by: Label::new(by).unwrap(),
        commands,
        reply,
    });
    told.recv_timeout(Duration::from_mins(1)).unwrap()
}

fn name(id: &str) -> BookingId {
    BookingId::new(id).unwrap()
}

fn reserve(id: &str) -> Command {
    let label = |text| Label::new(text).unwrap();
    let request = Request::new(name(id), label("python"), label("acme"));
    booking::Command::Reserve(request).into()
}

fn release(id: &str, fence: Fence) -> Command {
    let release = booking::Command::Release {
        id: name(id),
        fence,
        outcome: Some(Said::Ok),
        exit_code: None,
    };
    release.into()
}

#[test]
fn what_was_answered_is_found_after_the_process_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let clock: Arc<dyn Clock> = Hands::at(MORNING);
        data::open(
            directory.path(),
            clock,
            Arc::new(Notes::default()),
            |_, _| {},
        )
        .unwrap()
    };
    let first = open();
    let mut ended = 0;
    for turn in 0..500 {
        let id = format!("job-{turn}");
        let outcome = ask(&first.ledger, "ada", vec![reserve(&id)])
            .unwrap()
            .remove(0);
        let Ok(Answer::Booking(Reply::Granted(fence))) = outcome.result else {
            panic!("{outcome:?}")
        };
        if turn % 10 != 0 {
            ask(&first.ledger, "ada", vec![release(&id, fence)]).unwrap();
            ended += 1;
        }
    }
    let before = snapshot::hash(&first.ledger.view().read()).unwrap();
    // Threads keep the lock and the file: a copy of the files is what a dead machine leaves.
    let copy = tempfile::tempdir().unwrap();
    for file in [
        "ledger.checkpoint",
        "ledger.db",
        "ledger.db-wal",
        "ledger.key",
    ] {
        std::fs::copy(directory.path().join(file), copy.path().join(file)).unwrap();
    }
    first.stop();
    let clock: Arc<dyn Clock> = Hands::at(MORNING + 3_600_000);
    let second = data::open(copy.path(), clock, Arc::new(Notes::default()), |_, _| {}).unwrap();
    assert_eq!(
        second.ledger.view().read().bookings.counts(),
        (50, 0, ended)
    );
    assert_ne!(
        snapshot::hash(&second.ledger.view().read()).unwrap(),
        before,
        "Resume is new"
    );
    second.stop();
    let third = open();
    assert_eq!(third.ledger.view().read().bookings.counts(), (50, 0, ended));
    third.stop();
}

#[test]
fn an_unknown_outcome_is_said_to_be_so_and_what_is_there_counts() {
    for (fault, is_there) in [(Fault::Error, false), (Fault::CommitThenError, true)] {
        let world = world();
        world.granted("before");
        world.store.inject(fault);
        assert_eq!(
            world.one(reserve("job")),
            Err(Failure::OutcomeUnknown),
            "{fault:?}"
        );
        assert!(world.notes.failures.load(Ordering::SeqCst) > 0);
        // Repeating is always safe: a fresh grant, or the one that is there.
        let repeated = loop {
            match world.one(reserve("job")) {
                Err(Failure::Unavailable | Failure::OutcomeUnknown) => std::thread::yield_now(),
                other => break other.unwrap().unwrap(),
            }
        };
        assert_eq!(
            matches!(repeated, Answer::Booking(Reply::Repeated(_))),
            is_there,
            "{fault:?}"
        );
        assert!(world.holds("job") && world.holds("before"));
        world.running.stop();
    }
}

#[test]
fn a_leader_that_was_replaced_says_so_and_writes_nothing_more() {
    let old = world();
    old.granted("mine");
    let new = world_on(&old.store, &old.hands, decide);
    assert_eq!(old.one(reserve("late")), Err(Failure::NotLeader));
    assert_eq!(old.one(reserve("later")), Err(Failure::NotLeader));
    assert!(new.holds("mine") && !new.holds("late"));
    new.granted("late");
    old.running.stop();
    new.running.stop();
}

#[test]
fn a_panic_in_deciding_is_kept_aside_and_costs_nobody_else() {
    fn brittle(
        state: &mut State,
        now: Instant,
        command: &Command,
        events: &mut Events,
    ) -> Result<Answer, Refusal> {
        let result = decide(state, now, command, events);
        let poisons = command
            .booking_id()
            .is_some_and(|id| id.as_str() == "poison");
        assert!(!poisons, "a defect");
        result
    }
    let world = world_on(&MemoryStore::new(), &Hands::at(MORNING), brittle);
    world.granted("before");
    assert_eq!(world.one(reserve("poison")), Err(Failure::Internal));
    assert!(
        !world.holds("poison"),
        "what a panic left behind is not believed"
    );
    world.granted("after");
    let poisoned = world.notes.poisoned.lock().unwrap();
    assert_eq!(poisoned.len(), 1);
    assert!(poisoned[0].message.contains("a defect"));
    drop(poisoned);
    world.running.stop();
}

#[test]
fn a_nearly_full_disk_takes_what_gives_back_and_nothing_else() {
    let world = world();
    let fence = world.granted("held");
    world.store.set_free_bytes(Some(100 << 20));
    // The store is looked at once a second, between two batches.
    while world.one(reserve("more")) != Err(Failure::DiskLow) {
        std::thread::yield_now();
    }
    assert!(matches!(world.one(release("held", fence)), Ok(Ok(_))));
    world.store.set_free_bytes(None);
    while world.one(reserve("again")) == Err(Failure::DiskLow) {
        std::thread::yield_now();
    }
    assert!(world.holds("again"));
    world.running.stop();
}

#[test]
fn a_full_work_lane_is_busy_while_releases_and_renewals_go_through() {
    let intake = Intake::default();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let push = |by: &str, command: Command| {
        let answers = Arc::clone(&answers);
        let reply = Box::new(move |result| answers.lock().unwrap().push(result));
        intake.push(Submission {
            by: Label::new(by).unwrap(),
            commands: vec![command],
            reply,
        });
    };
    for turn in 0..LANE_LENGTH_MAX {
        push(&format!("p{}", turn % 64), reserve("job"));
    }
    assert!(answers.lock().unwrap().is_empty());
    push("other", reserve("one-too-many"));
    assert_eq!(answers.lock().unwrap().pop(), Some(Err(Failure::Busy)));
    for _ in 0..1_000 {
        push("holder", release("job", Fence(1)));
    }
    assert_eq!(intake.waiting(), (1_000, LANE_LENGTH_MAX));
    for _ in 0..100 {
        push("holder", release("job", Fence(1)));
    }
    let slowed = answers.lock().unwrap().drain(..).collect::<Vec<_>>();
    assert_eq!(
        slowed,
        vec![Err(Failure::SlowDown); 76],
        "1,024 of one principal may wait"
    );
    let first = intake.take(4_096);
    assert!(first.iter().take(1_024).all(|s| matches!(
        s.commands[0],
        Command::Booking(booking::Command::Release { .. })
    )));
    assert_eq!(first.len(), 4_096);
}

#[test]
fn a_good_renewal_holds_over_its_deadline_and_an_old_one_does_not() {
    let world = world();
    let fence = world.granted("held");
    let renew = |fence| booking::Command::Renew {
        id: name("held"),
        fence,
        ttl: None,
    };
    world.hands.pass(50_000);
    let Ok(Ok(Answer::Booking(Reply::Renewed { expires }))) = world.one(renew(fence).into()) else {
        panic!()
    };
    assert_eq!(expires, world.ledger.now().after(Millis::from_secs(60)));
    assert_eq!(
        world.ledger.alive_until(&Reference::Booking(name("held"))),
        Some(expires)
    );
    assert!(matches!(world.one(renew(Fence(99)).into()), Ok(Err(_))));
    // The first deadline passes without the booking: life was shown.
    world.hands.pass(11_000);
    world.granted("tick");
    assert!(world.holds("held"));
    // The second one is not renewed.
    world.hands.pass(50_000);
    world.granted("tock");
    assert!(!world.holds("held"));
    world.running.stop();
}

#[test]
fn our_own_absence_expires_nobody() {
    let world = world();
    world.granted("held");
    // The process stood still for an hour: nobody could renew.
    world.hands.pass(3_600_000);
    world.granted("later");
    assert!(world.holds("held"));
    world.hands.pass(60_000);
    world.granted("much-later");
    assert!(
        !world.holds("held"),
        "a ttl after we were back, it is its own fault"
    );
    world.running.stop();
}

#[test]
fn time_never_goes_back_and_leaps_only_forward() {
    let hands = Hands::at(1_000_000);
    let mut term = TermClock::begin(hands.as_ref(), Instant::from_ms(2_000_000));
    assert_eq!(
        term.now(hands.as_ref()),
        Instant::from_ms(2_000_000),
        "not before the last record"
    );
    hands.pass(10);
    assert_eq!(term.now(hands.as_ref()), Instant::from_ms(2_000_010));
    let steady = term.look(hands.as_ref());
    assert!(!steady.jumped, "it was behind from the start");
    hands.wall.fetch_add(3_600_000, Ordering::SeqCst);
    let forward = Moment {
        now: Instant::from_ms(4_600_010),
        wall: Instant::from_ms(4_600_010),
        jumped: true,
    };
    assert_eq!(term.look(hands.as_ref()), forward, "forward with the wall");
    assert_eq!(term.now(hands.as_ref()), forward.now);
    hands.wall.fetch_sub(3_600_000, Ordering::SeqCst);
    let back = Moment {
        wall: Instant::from_ms(1_000_010),
        ..forward
    };
    assert_eq!(term.look(hands.as_ref()), back, "never back");
    assert_eq!(term.now(hands.as_ref()), back.now);
    let known = term.look(hands.as_ref());
    assert!(!known.jumped, "a jump is reported once");
    hands.wall.fetch_add(4_999, Ordering::SeqCst);
    let drifted = term.look(hands.as_ref());
    assert!(!drifted.jumped, "five seconds are no jump");
}

/// A store that stands still in an append until it is let go.
struct Gate {
    store: MemoryStore,
    entered: std::sync::mpsc::SyncSender<()>,
    leave: std::sync::mpsc::Receiver<()>,
    is_shut: Arc<std::sync::atomic::AtomicBool>,
}

impl Store for Gate {
    fn lead(&mut self) -> Result<Term, StoreError> {
        self.store.lead()
    }

    fn append(&mut self, term: Term, append: &Append) -> Result<Appended, StoreError> {
        if self.is_shut.load(Ordering::SeqCst) {
            self.entered.send(()).unwrap();
            self.leave.recv().unwrap();
        }
        self.store.append(term, append)
    }

    fn reopen(&mut self) -> Result<u64, StoreError> {
        self.store.reopen()
    }

    fn put_checkpoint(&mut self, size: u64, note: &str) -> Result<(), StoreError> {
        self.store.put_checkpoint(size, note)
    }

    fn put_anchor(&mut self, head: u64, lines: &str) -> Result<(), StoreError> {
        self.store.put_anchor(head, lines)
    }

    fn prune(&mut self, below: u64) -> Result<u64, StoreError> {
        self.store.prune(below)
    }

    fn note_exported(&mut self, below: u64) -> Result<(), StoreError> {
        self.store.note_exported(below)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.reader()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.store.free_bytes()
    }
}

#[test]
fn a_good_renewal_is_answered_while_the_store_stands_still_and_nothing_else_is() {
    let (enter, entered) = std::sync::mpsc::sync_channel(1);
    let (let_go, leave) = std::sync::mpsc::sync_channel(1);
    let is_shut = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let store = MemoryStore::new();
    let gate = Gate {
        store: store.clone(),
        entered: enter,
        leave,
        is_shut: Arc::clone(&is_shut),
    };
    let world = world_of(Box::new(gate), &store, &Hands::at(MORNING), decide);
    let fence = world.granted("held");
    is_shut.store(true, Ordering::SeqCst);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    world.ledger.push(Submission {
        by: Label::new("ada").unwrap(),
        commands: vec![reserve("slow")],
        reply: Box::new(move |result| tell.send(result).unwrap()),
    });
    entered.recv().unwrap();
    let renew = booking::Command::Renew {
        id: name("held"),
        fence,
        ttl: None,
    };
    assert!(matches!(
        world.one(renew.into()),
        Ok(Ok(Answer::Booking(Reply::Renewed { .. })))
    ));
    assert!(told.try_recv().is_err(), "its record is not durable yet");
    assert!(!world.holds("slow"), "nor does a reader see it");
    is_shut.store(false, Ordering::SeqCst);
    let_go.send(()).unwrap();
    assert!(told.recv().unwrap().is_ok());
    world.running.stop();
}

#[test]
fn a_clock_that_jumps_expires_nobody_who_could_not_know() {
    let world = world();
    world.granted("held");
    world.hands.pass(59_000);
    // The wall clock leaps over the deadline; the holder had a second left.
    world.hands.wall.fetch_add(6_000, Ordering::SeqCst);
    world.granted("after");
    assert!(world.holds("held"), "it has its ttl again");
    world.hands.pass(60_000);
    world.granted("later");
    assert!(!world.holds("held"));
    world.running.stop();
}

/// Method: the last record only carries out a deadline, later than its instant; then the wall clock
/// is set back between two terms.
#[test]
fn the_times_of_records_never_go_back_although_events_are_earlier_than_their_record() {
    let old = world();
    old.granted("held");
    old.hands.pass(62_000);
    let unknown = old.one(release("unknown", Fence(9)));
    assert!(matches!(unknown, Ok(Err(_))), "{unknown:?}");
    assert!(!old.holds("held"));
    old.running.stop();
    old.hands.wall.fetch_sub(30_000, Ordering::SeqCst);
    let new = world_on(&old.store, &old.hands, decide);
    new.granted("next");
    new.running.stop();

    let records = old.store.reader().unwrap().records(0, 100).unwrap();
    let times = records.into_iter().map(|record| {
        let bytes = record.bytes.unwrap();
        let decoded = bursar_engine::codec::decode(record.seq, &bytes, |_| None);
        decoded.unwrap().time
    });
    let times: Vec<Instant> = times.collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn stopping_ends_while_the_store_is_away_or_led_by_another_and_deadlines_are_due() {
    let world = world();
    world.granted("held");
    world.store.set_free_bytes(Some(0));
    assert_eq!(world.one(reserve("more")), Err(Failure::OutcomeUnknown));
    world.hands.pass(120_000);
    world.running.stop();

    let old = self::world();
    old.granted("held");
    let new = world_on(&old.store, &old.hands, decide);
    assert_eq!(old.one(reserve("late")), Err(Failure::NotLeader));
    old.hands.pass(120_000);
    assert_eq!(old.one(reserve("later")), Err(Failure::NotLeader));
    old.running.stop();
    new.running.stop();
}

#[test]
fn a_principal_with_much_work_waiting_can_still_give_back() {
    let intake = Intake::default();
    let push = |command: Command| {
        let refused = Arc::new(Mutex::new(None));
        let tell = Arc::clone(&refused);
        intake.push(Submission {
            by: Label::new("ada").unwrap(),
            commands: vec![command],
            reply: Box::new(move |result| *tell.lock().unwrap() = Some(result)),
        });
        refused.lock().unwrap().take()
    };
    while push(reserve("job")).is_none() {}
    assert_eq!(
        push(release("job", Fence(1))),
        None,
        "it waits in its own lane"
    );
}

#[test]
fn what_is_put_back_comes_first_again() {
    let intake = Intake::default();
    for turn in 0..3 {
        intake.push(Submission {
            by: Label::new("ada").unwrap(),
            commands: vec![reserve(&format!("job-{turn}"))],
            reply: Box::new(drop),
        });
    }
    let mut taken = intake.take(3);
    let first = taken.remove(0);
    assert_eq!(first.commands, [reserve("job-0")]);
    intake.put_back(taken);
    assert_eq!(intake.waiting(), (0, 2));
    let order: Vec<Command> = intake
        .take(9)
        .into_iter()
        .flat_map(|s| s.commands)
        .collect();
    assert_eq!(order, [reserve("job-1"), reserve("job-2")]);
}
