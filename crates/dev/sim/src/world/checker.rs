//! Follows the store and checks every record once.
//!
//! It keeps a copy of the committed state, made by deciding every command again. The states and
//! answers of replicas, clients and recoveries are compared with it. It does not check that a
//! decision follows the rules: the tests of `bursar-booking` do so with a naive oracle.

use std::collections::BTreeMap;

use bursar_booking::execution::{Cause, Exit, Verdict};
use bursar_booking::fact::Fact;
use bursar_booking::invariants::over_limit;
use bursar_booking::{
    End, Event as BookingEvent, Fence, LimitUse, Reply, Request, Standing, Submission,
};
use bursar_cluster::{Clusters, ProcessId, Run, Stage};
use bursar_engine::codec::{Record, decode, decode_events, encode};
use bursar_engine::invariants::{self, Mark};
use bursar_engine::market::{Event as MarketEvent, Known};
use bursar_engine::{
    Answer, Command, Event, Events, State, dated, decide, snapshot, spine, summary,
};
use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::tile::Builder;
use bursar_ledger::intake::{Failure, Outcome};
use bursar_ledger::store::Reader as _;
use bursar_ledger::store::memory::MemoryStore;
use bursar_units::{BookingId, Instant, ScopedName};

use super::bookkeeper::Bookkeeper;
use super::decided::Decided;
use crate::summary::Tally;
use crate::violation::{Violation, broken, demand};

/// Number of records between two folds of the whole ledger.
const REFOLD_EVERY: u64 = 512;
/// Number of records between two round trips of a snapshot.
const SNAPSHOT_EVERY: u64 = 128;
/// The clock of a term begins one millisecond after its first record, so it may be early by that.
const EARLY_MS: u64 = 1;

/// The committed state, and the facts that must hold over time.
pub(super) struct Checker {
    store: MemoryStore,
    shadow: State,
    tree: Builder,
    last_fence: Fence,
    grants: BTreeMap<BookingId, Fence>,
    ends: BTreeMap<BookingId, (End, Instant)>,
    /// Time of the world until which a holder was promised its slots.
    promises: BTreeMap<BookingId, u64>,
    /// Time of the world when a record of that number was last decided.
    decided_ms: BTreeMap<u64, u64>,
    /// Absences in the time of the ledger: no grant may expire within one.
    absences: Vec<(Instant, Instant)>,
    /// Recorded exits that were not yet compared with the machine.
    gone: Vec<Gone>,
    /// Recorded market events that were not yet compared with the agent.
    market: Vec<MarketEvent>,
    books: Bookkeeper,
    /// Processes whose leases were closed and that were not yet compared with the executor; `None`
    /// without any cluster event.
    closed: Option<Vec<ProcessId>>,
}

/// The exit of a process in the ledger.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub(super) id: BookingId,
    pub(super) fence: Fence,
    verdict: Verdict,
    exit_code: Option<i32>,
    signal: Option<i32>,
    is_out_of_memory: bool,
    reason: Option<String>,
}

impl Gone {
    /// Whether the machine has the same exit.
    pub(super) fn tells(&self, truth: &Exit) -> bool {
        if self.is_out_of_memory != matches!(truth, Exit::OutOfMemory { .. }) {
            return false;
        }
        let is_called_lost = self.verdict == Verdict::Lost;
        let said = (self.exit_code, self.signal, self.reason.as_deref());
        match truth {
            Exit::Code(code) => said == (Some(*code), None, None) && !is_called_lost,
            Exit::Signal(signal) => said == (None, Some(*signal), None) && !is_called_lost,
            Exit::OutOfMemory { code, signal } => said == (*code, *signal, None) && !is_called_lost,
            Exit::NotStarted(reason) => said == (None, None, Some(reason)) && !is_called_lost,
            Exit::Lost => said == (None, None, None) && self.verdict != Verdict::Completed,
        }
    }
}

impl Checker {
    pub(super) fn new(store: MemoryStore) -> Self {
        Self {
            store,
            shadow: State::default(),
            tree: Builder::new(),
            last_fence: Fence::default(),
            grants: BTreeMap::new(),
            ends: BTreeMap::new(),
            promises: BTreeMap::new(),
            decided_ms: BTreeMap::new(),
            absences: Vec::new(),
            gone: Vec::new(),
            market: Vec::new(),
            books: Bookkeeper::default(),
            closed: None,
        }
    }

    /// Number of checked records.
    pub(super) fn head(&self) -> u64 {
        self.shadow.spine.head
    }

    /// Time of the last checked record.
    pub(super) fn time(&self) -> Instant {
        self.shadow.spine.time
    }

    /// Number of bookings that hold, and of those that wait.
    pub(super) fn counts(&self) -> (usize, usize) {
        let (holding, waiting, _) = self.shadow.bookings.counts();
        (holding, waiting)
    }

    pub(super) fn live(&self) -> Vec<BookingId> {
        self.shadow.bookings.live_ids(None).cloned().collect()
    }

    /// The newest ids that are remembered, ended ones included.
    pub(super) fn known(&self) -> Vec<BookingId> {
        let ended = self.shadow.bookings.ended().take(8);
        let ended = ended.map(|ended| ended.id().clone());
        self.live().into_iter().chain(ended).collect()
    }

    /// Whether an id holds its slots under that fence.
    pub(super) fn holds(&self, id: &BookingId, fence: Fence) -> bool {
        let standing = self.shadow.bookings.standing(id);
        matches!(standing, Some(Standing::Granted(granted)) if granted.fence == fence)
    }

    /// The same, or an operator forced its end: then its process may still be alive.
    pub(super) fn holds_or_was_forced(&self, id: &BookingId, fence: Fence) -> bool {
        let was_forced = self.end_of(id) == Some(End::Forced);
        self.holds(id, fence) || was_forced && self.grants.get(id) == Some(&fence)
    }

    /// Exits that were recorded since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.gone)
    }

    /// Market events that were recorded since the last call.
    pub(super) fn take_market(&mut self) -> Vec<MarketEvent> {
        std::mem::take(&mut self.market)
    }

    /// Processes whose leases were closed since the last call; `None` without any cluster event.
    pub(super) fn take_closed(&mut self) -> Option<Vec<ProcessId>> {
        self.closed.take()
    }

    /// The cluster in the ledger.
    pub(super) fn clusters(&self) -> &Clusters {
        &self.shadow.clusters
    }

    /// Names of the runs that have not ended.
    pub(super) fn live_runs(&self) -> Vec<ScopedName> {
        let runs = self.shadow.clusters.runs();
        let live = runs.filter(|run| run.stage != Stage::Ended);
        live.map(|run| run.run.id()).collect()
    }

    /// The newest run of a name, as submitted.
    pub(super) fn run(&self, name: &ScopedName) -> Option<Run> {
        Some(self.shadow.clusters.run_named(name)?.run)
    }

    /// The market of a node in the ledger.
    pub(super) fn market(&self, node: &str) -> Option<&Known> {
        self.shadow.markets.get(node)
    }

    /// A term begins after the committed records: decision times of later records are removed.
    pub(super) fn begins_anew(&mut self) {
        let last = self.shadow.spine.time;
        for (_, until) in &mut self.absences {
            *until = last.min(*until);
        }
    }

    /// Stores an absence of the ledger.
    pub(super) fn was_away(&mut self, from: Instant, until: Instant) {
        self.absences.push((from, until));
    }

    /// Stores the times of decisions whose batch is about to be committed.
    pub(super) fn about_to_commit(&mut self, decisions: &[Decided]) {
        for decided in decisions.iter().filter(|decided| decided.is_recorded) {
            self.decided_ms.insert(decided.seq, decided.world_ms);
        }
    }

    /// Checks the new records of the store, with the decisions that led to them where those are
    /// known.
    pub(super) fn follow(
        &mut self,
        decisions: &[Decided],
        world_ms: u64,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        for decided in decisions {
            demand(
                decided.as_planned != Some(false),
                "a dry run says what the command then does",
                || format!("{:?} at {:?}", decided.command, decided.now),
            )?;
            tally.add("dry runs compared", u64::from(decided.as_planned.is_some()));
            if decided.seq != self.shadow.spine.head {
                continue;
            }
            if decided.is_recorded {
                if self.is_level()? {
                    return Ok(());
                }
                self.next_record(decided.world_ms, tally)?;
            } else {
                self.check_unrecorded(decided)?;
                tally.add("unrecorded answers compared", 1);
                tally.answer(&decided.result);
            }
        }
        while !self.is_level()? {
            let decided_ms = self.decided_ms.get(&self.shadow.spine.head).copied();
            self.next_record(decided_ms.unwrap_or(world_ms), tally)?;
        }
        Ok(())
    }

    /// Checks a state that a reader could see: it contains only records of the store, unchanged.
    pub(super) fn check_view(&self, view: &State) -> Result<(), Violation> {
        demand(
            view.spine.head <= self.shadow.spine.head,
            "a reader never sees the uncommitted",
            || {
                format!(
                    "the view covers {} records, the store {}",
                    view.spine.head, self.shadow.spine.head
                )
            },
        )
    }

    /// Checks a working state, which may be ahead of the store.
    pub(super) fn check_working(working: &State) -> Result<(), Violation> {
        invariants::check(working).map_err(|broke| {
            broken(
                "the engine's invariants hold while it works",
                broke.to_string(),
            )
        })
    }

    /// Checks that a state with the head of the committed state equals it.
    pub(super) fn check_same(&self, state: &State, whose: &'static str) -> Result<(), Violation> {
        if state.spine.head != self.shadow.spine.head {
            return Ok(());
        }
        let (theirs, ours) = (hash(state)?, hash(&self.shadow)?);
        demand(
            theirs == ours,
            "states at the same head have the same hash",
            || {
                format!(
                    "{whose} differs at head {}: {}",
                    state.spine.head,
                    difference(state, &self.shadow)
                )
            },
        )
    }

    /// Checks the state and the tree of a recovery.
    pub(super) fn check_recovered(&self, state: &State, root: &Hash) -> Result<(), Violation> {
        demand(
            state.spine.head == self.shadow.spine.head && *root == self.tree.root(),
            "a recovery finds every committed record",
            || {
                format!(
                    "it found {} records of {}",
                    state.spine.head, self.shadow.spine.head
                )
            },
        )?;
        self.check_same(state, "the recovered state")
    }

    /// Checks answers that leave: the record of each is in the store. `leader` is the time of the
    /// ledger if the process leads.
    pub(super) fn check_answers(
        &mut self,
        commands: &[Command],
        result: &Result<Vec<Outcome>, Failure>,
        leader: Option<Instant>,
        world_ms: u64,
    ) -> Result<(), Violation> {
        let Ok(outcomes) = result else { return Ok(()) };
        demand(
            outcomes.len() == commands.len(),
            "every operation of a batch has its own answer",
            || {
                format!(
                    "{} answers to {} operations",
                    outcomes.len(),
                    commands.len()
                )
            },
        )?;
        for (command, outcome) in commands.iter().zip(outcomes) {
            self.check_answer(command, outcome, leader, world_ms)?;
        }
        Ok(())
    }

    /// Checks a booking that a reader saw as held.
    pub(super) fn check_seen_held(&self, id: &BookingId, fence: Fence) -> Result<(), Violation> {
        let known = self.grants.get(id).copied();
        demand(
            known == Some(fence),
            "a reader never sees a grant that is not committed",
            || format!("`{id}` was shown as held under {fence:?}, the store says {known:?}"),
        )
    }

    /// Checks a booking that a reader saw as ended.
    pub(super) fn check_seen_ended(&self, id: &BookingId, end: End) -> Result<(), Violation> {
        let known = self.end_of(id);
        demand(
            known == Some(end),
            "a reader never sees an end that is not committed",
            || format!("`{id}` was shown as {end:?}, the store says {known:?}"),
        )
    }

    /// Folds all checked records again, from the first.
    pub(super) fn refold(&self) -> Result<(), Violation> {
        let mut state = State::default();
        let mut tree = Builder::new();
        let mut tiles = Vec::new();
        let count = usize::try_from(self.shadow.spine.head).unwrap_or(usize::MAX);
        for kept in read(&self.store, 0, count)? {
            let bytes = kept.bytes.unwrap_or_default();
            tree.push(leaf_hash(&bytes), &mut tiles);
            let blob = |sha256: &Hash| self.store.blob(sha256).ok().flatten();
            let (time, events) = decode_events(kept.seq, &bytes, blob)
                .map_err(|error| broken("every record can be folded", error.to_string()))?;
            state.apply_record(time, &events);
        }
        demand(
            tree.root() == self.tree.root(),
            "what was committed never changes",
            || "the tree over the records has another root than it had".to_owned(),
        )?;
        self.check_same(&state, "a fold from record 0")
    }

    /// Checks that nothing is held and nothing waits after all clients have stopped.
    pub(super) fn check_empty(&self) -> Result<(), Violation> {
        let (holding, waiting) = self.counts();
        demand(
            (holding, waiting) == (0, 0),
            "when everybody has stopped, every slot comes back",
            || format!("{holding} hold and {waiting} wait"),
        )
    }

    fn is_level(&self) -> Result<bool, Violation> {
        let head = self.store.head().map_err(|error| unreadable(&error))?;
        demand(
            self.shadow.spine.head <= head,
            "what was committed never goes away",
            || {
                format!(
                    "the store holds {head} records, {} were there",
                    self.shadow.spine.head
                )
            },
        )?;
        Ok(head == self.shadow.spine.head)
    }

    fn next_record(&mut self, decided_ms: u64, tally: &mut Tally) -> Result<(), Violation> {
        let seq = self.shadow.spine.head;
        let kept = read(&self.store, seq, 1)?;
        let bytes = kept
            .into_iter()
            .next()
            .and_then(|kept| kept.bytes)
            .unwrap_or_default();
        let blob = |sha256: &Hash| self.store.blob(sha256).ok().flatten();
        let record = decode(seq, &bytes, blob)
            .map_err(|error| broken("every record can be read", error.to_string()))?;
        self.tree.push(leaf_hash(&bytes), &mut Vec::new());
        let (mark, over) = (Mark::of(&self.shadow), over_limit(&self.shadow.bookings));
        let dues_before = dues(&self.shadow);
        self.redecide(&record, &bytes)?;
        let became_due = dues(&self.shadow) - dues_before;
        tally.add("heads that became due", became_due);
        self.check_state(mark, &record, &over)?;
        self.note(&record, decided_ms, tally)?;
        Self::check_texts(&record)?;
        tally.record(&record);
        if seq.is_multiple_of(SNAPSHOT_EVERY) {
            invariants::check_snapshot(&self.shadow).map_err(|broke| {
                broken("a snapshot reads back as the same state", broke.to_string())
            })?;
        }
        if seq % REFOLD_EVERY == REFOLD_EVERY - 1 {
            tally.add("refolds from record 0", 1);
            self.refold()?;
        }
        Ok(())
    }

    /// Checks that `decide` on the recorded command gives the recorded bytes (L7).
    fn redecide(&mut self, record: &Record, bytes: &[u8]) -> Result<(), Violation> {
        let mut events = Events::new();
        let answer = decide(&mut self.shadow, record.time, &record.command, &mut events);
        self.shadow.spine.head += 1;
        let again = Record {
            events,
            ..record.clone()
        };
        let encoded = encode(&again)
            .map(|encoded| encoded.bytes)
            .unwrap_or_default();
        demand(
            answer.is_ok() && encoded == bytes,
            "deciding a recorded command again gives the same bytes",
            || {
                let stored = String::from_utf8_lossy(bytes).into_owned();
                format!("{}, then {answer:?} with {:?}", stored, again.events)
            },
        )
    }

    fn check_state(
        &self,
        mark: Mark,
        record: &Record,
        over_before: &[LimitUse],
    ) -> Result<(), Violation> {
        invariants::check_record(mark, record.time, &record.events, &self.shadow)
            .and_then(|()| invariants::check(&self.shadow))
            .map_err(|broke| {
                broken(
                    "the engine's invariants hold after every record",
                    broke.to_string(),
                )
            })?;
        let declares = |event: &Event| {
            matches!(
                event,
                Event::Booking(BookingEvent::LimitSet { .. } | BookingEvent::LimitDropped { .. })
                    | Event::Spine(
                        bursar_engine::spine::Event::NodeSet(_)
                            | bursar_engine::spine::Event::NodeDropped { .. }
                    )
            )
        };
        if record.events.iter().any(declares) {
            return Ok(());
        }
        let was_over = |now: &LimitUse| {
            over_before.iter().any(|before| {
                (&before.name, before.dimension) == (&now.name, now.dimension)
                    && now.in_use <= before.in_use
            })
        };
        let risen = over_limit(&self.shadow.bookings)
            .into_iter()
            .find(|now| !was_over(now));
        match risen {
            Some(now) => Err(broken(
                "no grant raises a counter above its bound",
                format!("{now:?}"),
            )),
            None => Ok(()),
        }
    }

    /// Checks that an answer without a record is the answer of the committed state.
    fn check_unrecorded(&mut self, decided: &Decided) -> Result<(), Violation> {
        let mut events = Events::new();
        let answer = decide(&mut self.shadow, decided.now, &decided.command, &mut events);
        demand(
            events.is_empty() && answer == decided.result,
            "an answer without a record is what the committed state gives",
            || {
                format!(
                    "{:?} at {:?}: the answer was {:?}, deciding again gives {answer:?} with {events:?}",
                    decided.command, decided.now, decided.result
                )
            },
        )
    }

    /// Stores the events of a record, and checks the promises that span several records.
    fn note(
        &mut self,
        record: &Record,
        decided_ms: u64,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        for (at, event) in dated(record.time, &record.events) {
            let event = match event {
                Event::Booking(event) => event,
                Event::Market(event) => {
                    self.market.push(event.clone());
                    continue;
                }
                Event::Cluster(event) => {
                    let gone = self.books.note(at, event, tally)?;
                    self.closed.get_or_insert_default().extend(gone);
                    continue;
                }
                Event::Spine(event) => {
                    let is_cordon = self.cordons_leases(event);
                    tally.add("nodes with leases cordoned", u64::from(is_cordon));
                    continue;
                }
            };
            match event {
                BookingEvent::Reserved(Request {
                    id,
                    fence: Some(fence),
                    ..
                })
                | BookingEvent::Submitted(Submission {
                    booking:
                        Request {
                            id,
                            fence: Some(fence),
                            ..
                        },
                    ..
                })
                | BookingEvent::Granted { id, fence, .. } => {
                    let late_ms = record.time.since(at).ms();
                    self.note_grant(id, *fence, decided_ms.saturating_sub(late_ms), tally)?;
                }
                BookingEvent::Ended { id, end, .. } => {
                    if *end == End::Expired {
                        self.check_expiry(id, at, decided_ms)?;
                    }
                    self.note_end(id, *end, at, tally);
                }
                BookingEvent::Started { id, .. } => {
                    self.promises.remove(id);
                }
                BookingEvent::Stopping { id, cause, .. } if *cause != Cause::Cancelled => {
                    self.check_expiry(id, at, decided_ms)?;
                }
                BookingEvent::Exited {
                    id,
                    verdict,
                    exit_code,
                    signal,
                    is_out_of_memory,
                    reason,
                    ..
                } => {
                    self.gone.push(Gone {
                        id: id.clone(),
                        fence: self.grants.get(id).copied().unwrap_or_default(),
                        verdict: *verdict,
                        exit_code: *exit_code,
                        signal: *signal,
                        is_out_of_memory: *is_out_of_memory,
                        reason: reason.clone(),
                    });
                    self.note_end(id, End::Released, at, tally);
                }
                _ => {}
            }
        }
        let accounts = self.shadow.clusters.accounts();
        self.books.check(self.shadow.spine.time, accounts)
    }

    /// Whether an event cordons a node with leases.
    fn cordons_leases(&self, event: &spine::Event) -> bool {
        let spine::Event::NodeSet(node) = event else {
            return false;
        };
        let mut leased = self.shadow.clusters.nodes().all_leased();
        node.unschedulable && leased.any(|(name, _, _)| *name == node.name)
    }

    fn end_of(&self, id: &BookingId) -> Option<End> {
        self.ends.get(id).map(|(end, _)| *end)
    }

    fn note_end(&mut self, id: &BookingId, end: End, at: Instant, tally: &mut Tally) {
        self.promises.remove(id);
        self.ends.insert(id.clone(), (end, at));
        if let Some(Standing::Ended(ended)) = self.shadow.bookings.standing(id)
            && let Some(course) = ended.course()
        {
            tally.verdict(course.verdict);
        }
    }

    fn note_grant(
        &mut self,
        id: &BookingId,
        fence: Fence,
        since_ms: u64,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        let last = std::mem::replace(&mut self.last_fence, fence);
        demand(
            last < fence,
            "a fence is never given twice, and rises",
            || format!("`{id}` got {fence:?} after {last:?}"),
        )?;
        let bookings = &self.shadow.bookings;
        let length_ms = bookings.request(id).map_or(0, |request| {
            let start_timeout = bookings.order(id).map(|order| order.start_timeout);
            start_timeout.unwrap_or(request.ttl).ms()
        });
        // A grant that ended in the same record promised nothing.
        let before = self.grants.insert(id.clone(), fence);
        // An id contains the time of its client's clock: if that was ahead, the id looks too young.
        let looks_young = match (id.made_at(), self.ends.get(id)) {
            (Some(made_at), Some((_, ended_at))) => *ended_at < made_at,
            (made_at, _) => made_at.is_none(),
        };
        demand(
            before.is_none() || looks_young,
            "an id is granted at most once",
            || format!("`{id}` was granted as {before:?} and again under {fence:?}"),
        )?;
        tally.add(
            "forgotten ids granted again after a day",
            u64::from(before.is_some()),
        );
        self.promise(id, since_ms + length_ms);
        Ok(())
    }

    fn promise(&mut self, id: &BookingId, until_ms: u64) {
        let promised = self.promises.entry(id.clone()).or_default();
        *promised = until_ms.max(*promised);
    }

    fn check_expiry(&self, id: &BookingId, at: Instant, decided_ms: u64) -> Result<(), Violation> {
        let promised = self.promises.get(id).copied().unwrap_or(0);
        demand(
            promised <= decided_ms + EARLY_MS,
            "nobody expires or is stopped before the time it was promised",
            || format!("`{id}` did at {decided_ms} ms of the world, promised was {promised} ms"),
        )?;
        let absence = self
            .absences
            .iter()
            .find(|(from, until)| *from < at && at <= *until);
        demand(
            absence.is_none(),
            "our own absence never expires or stops anybody",
            || format!("`{id}` did at {at:?}, we were away {absence:?}"),
        )
    }

    fn check_answer(
        &mut self,
        command: &Command,
        outcome: &Outcome,
        leader: Option<Instant>,
        world_ms: u64,
    ) -> Result<(), Violation> {
        let is_renewal = matches!(outcome.result, Ok(Answer::Booking(Reply::Renewed { .. })));
        demand(
            is_renewal || outcome.record < self.shadow.spine.head,
            "no answer leaves before its record is durable",
            || {
                format!(
                    "{command:?} was answered as of record {}, the store holds {}",
                    outcome.record, self.shadow.spine.head
                )
            },
        )?;
        let (Some(id), Ok(answer)) = (command.booking_id(), &outcome.result) else {
            return Ok(());
        };
        match answer {
            Answer::Booking(Reply::Granted(fence)) => self.check_seen_held(id, *fence),
            Answer::Booking(Reply::Ended(_) | Reply::AlreadyEnded(_)) => demand(
                self.ends.contains_key(id),
                "every end that was answered is on record",
                || format!("`{id}` was answered as ended"),
            ),
            Answer::Booking(
                Reply::Queued | Reply::Repeated(_) | Reply::Stopping(_) | Reply::Recorded,
            ) => demand(
                self.shadow.bookings.standing(id).is_some(),
                "every request that was answered is on record",
                || format!("`{id}` was answered as known"),
            ),
            Answer::Booking(Reply::Renewed { expires }) => {
                // Only the leader can promise. A stale leader does not know that it is one (S7).
                if let Some(now) = leader {
                    self.promise(id, world_ms + expires.since(now).ms());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that every event has a text of one line.
    fn check_texts(record: &Record) -> Result<(), Violation> {
        for notice in summary::notices(record.time, &record.events) {
            let sentence = &notice.summary;
            demand(
                !sentence.is_empty() && !sentence.contains('\n'),
                "every event has a sentence of one line",
                || format!("{sentence:?}"),
            )?;
        }
        Ok(())
    }
}

fn read(
    store: &MemoryStore,
    from: u64,
    most: usize,
) -> Result<Vec<bursar_ledger::store::Kept>, Violation> {
    store
        .records(from, most)
        .map_err(|error| unreadable(&error))
}

fn unreadable(error: &bursar_ledger::store::Error) -> Violation {
    broken("the store can be read", error.to_string())
}

/// Number of queue heads that are due (S4).
fn dues(state: &State) -> u64 {
    match state.bookings.facts(state.spine.level).next() {
        Some(Fact::Totals { dues, .. }) => dues,
        _ => 0,
    }
}

fn hash(state: &State) -> Result<Hash, Violation> {
    snapshot::hash(state).map_err(|error| broken("every state can be written", error.to_string()))
}

fn difference(one: &State, other: &State) -> String {
    let (one, other) = (snapshot::write(one), snapshot::write(other));
    let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
    let mut lines = one.lines().zip(other.lines());
    let first = lines.find(|(one, other)| one != other);
    first.map_or_else(
        || "one has more lines".to_owned(),
        |(one, other)| format!("`{one}` against `{other}`"),
    )
}
