//! A ledger with a past, made through the real engine: what most tests here look at.

use std::path::Path;

use bursar_engine::booking::decide::Change;
use bursar_engine::booking::limit::{Limit, Scope};
use bursar_engine::booking::{self, Fence, Request, Standing};
use bursar_engine::codec::{Record, encode};
use bursar_engine::{Command, Events, FORMAT, LEVEL, State, decide, snapshot, spine};
use bursar_journal::hash::leaf_hash;
use bursar_journal::tile::Builder;
use bursar_ledger::check::{Asked, Report, check};
use bursar_ledger::key::Signer;
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::store::sqlite::SqliteStore;
use bursar_ledger::store::{Append, Appended, Reader, Store, Term};
use bursar_units::{BookingId, Instant, Label, Millis, ObjectName};
use tempfile::TempDir;

/// The id of every ledger here.
pub(crate) const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";

/// A ledger under test, and what the server would hold of it.
pub(crate) struct World<S> {
    pub(crate) store: S,
    pub(crate) state: State,
    pub(crate) builder: Builder,
    pub(crate) signer: Signer,
    pub(crate) now: Instant,
    pub(crate) directory: TempDir,
    term: Term,
    batch: Append,
    bookings: u64,
}

impl World<MemoryStore> {
    pub(crate) fn memory() -> Self {
        Self::with(tempfile::tempdir().unwrap(), |_| MemoryStore::new())
    }
}

impl World<SqliteStore> {
    pub(crate) fn sqlite() -> Self {
        let open = |data: &Path| SqliteStore::open(&data.join("ledger.db")).unwrap();
        Self::with(tempfile::tempdir().unwrap(), open)
    }

    /// The ledger file.
    pub(crate) fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("ledger.db")
    }

    /// Puts other bytes in the place of a record.
    pub(crate) fn put(&self, seq: u64, bytes: &[u8]) {
        let sql = "UPDATE journal SET bytes = ?2 WHERE seq = ?1";
        let file = rusqlite::Connection::open(self.file()).unwrap();
        assert_eq!(
            file.execute(sql, rusqlite::params![i64::try_from(seq).unwrap(), bytes])
                .unwrap(),
            1
        );
    }

    /// Changes the file behind everybody's back.
    pub(crate) fn tamper(&self, sql: &str) -> usize {
        rusqlite::Connection::open(self.file())
            .unwrap()
            .execute(sql, [])
            .unwrap()
    }
}

impl<S: Store> World<S> {
    /// A ledger of four records: it has begun, and named its key and a limit.
    fn with(directory: TempDir, open: impl FnOnce(&Path) -> S) -> Self {
        let mut store = open(directory.path());
        let signer = new_key(&directory.path().join("ledger.key"), 0);
        let mut world = Self {
            term: store.lead().unwrap(),
            store,
            state: State::default(),
            builder: Builder::new(),
            now: Instant::from_ms(1_794_823_200_000),
            directory,
            batch: Append::default(),
            bookings: 0,
            signer,
        };
        world.run(spine::Command::Genesis {
            ledger: LEDGER.to_owned(),
            format: FORMAT,
        });
        let key = world.signer.verifier().to_string();
        world.run(spine::Command::RotateKey {
            key,
            idempotency: None,
        });
        world.run(spine::Command::Level { n: LEVEL });
        let limit = Limit {
            slots: Some(7),
            ..Limit::unbounded(
                ObjectName::known("python"),
                Some(Scope::Named(label("python"))),
                None,
            )
        };
        world.run(spine::Command::change(vec![Change::SetLimit(limit)]));
        world
    }

    /// Decides a command, which must have an effect, and keeps its record for the next commit.
    pub(crate) fn run(&mut self, command: impl Into<Command>) -> Events {
        let command = command.into();
        let mut events = Events::new();
        decide(&mut self.state, self.now, &command, &mut events).unwrap();
        assert!(!events.is_empty());
        self.record(command, events.clone());
        events
    }

    /// Keeps a record that nobody decided.
    pub(crate) fn record(&mut self, command: Command, events: Events) {
        let (seq, time) = (self.state.spine.head, self.now);
        let record = encode(&Record {
            seq,
            time,
            by: label("ada"),
            command,
            events,
        })
        .unwrap();
        self.builder
            .push(leaf_hash(&record.bytes), &mut self.batch.tiles);
        self.batch.records.push(record);
        self.state.spine.head += 1;
    }

    /// Books, releases and lets time pass until there are `records`, and commits them.
    pub(crate) fn live(&mut self, records: u64) {
        while self.state.spine.head < records {
            self.now = self.now.after(Millis::from_ms(700));
            if self
                .state
                .next_deadline()
                .is_some_and(|deadline| deadline <= self.now)
            {
                self.run(spine::Command::tick(Vec::new()));
            } else if self.bookings % 3 == 2 && self.release_one() {
                self.bookings += 1;
            } else {
                let id = self.next_id();
                let tenant = if self.bookings.is_multiple_of(2) {
                    "blue"
                } else {
                    "red"
                };
                self.run(booking::Command::Reserve(request(
                    id, "python", tenant, 60_000,
                )));
            }
        }
        self.commit();
    }

    /// A record whose command and events are both too large for it.
    pub(crate) fn large(&mut self) {
        let changes = (0..800).map(|number| {
            let tenant = Some(Scope::Named(label(&format!(
                "tenant-{}-{number}",
                self.state.spine.head
            ))));
            let head = self.state.spine.head;
            let name = format!("a-rather-long-name-for-a-limit-{head}-{number}");
            Change::SetLimit(Limit {
                slots: Some(number),
                ..Limit::unbounded(ObjectName::new(&name).unwrap(), None, tenant)
            })
        });
        let command = spine::Command::change(changes);
        self.run(command);
        assert_eq!(self.batch.records.last().unwrap().blobs.len(), 2);
    }

    pub(crate) fn commit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        assert_eq!(
            self.store.append(self.term, &batch).unwrap(),
            Appended::Done
        );
        self.term.head = self.state.spine.head;
    }

    /// Signs what is committed.
    pub(crate) fn sign(&mut self) {
        let note = self
            .signer
            .sign(self.now, self.builder.size(), self.builder.root());
        std::fs::write(self.directory.path().join("ledger.checkpoint"), &note).unwrap();
        self.store
            .put_checkpoint(self.builder.size(), &note)
            .unwrap();
    }

    /// Binds a snapshot of the present state into the ledger.
    pub(crate) fn anchor(&mut self) {
        let (head, lines) = (self.state.spine.head, snapshot::write(&self.state).unwrap());
        self.store.put_anchor(head, &lines).unwrap();
        let sha256 = snapshot::hash(&self.state).unwrap();
        self.run(spine::Command::Anchor {
            record: head - 1,
            sha256,
        });
        self.commit();
    }

    pub(crate) fn reader(&self) -> Box<dyn Reader> {
        self.store.reader().unwrap()
    }

    pub(crate) fn check(&self) -> Report {
        examine(self.reader().as_ref(), &self.signer)
    }

    pub(crate) fn next_id(&mut self) -> BookingId {
        self.bookings += 1;
        BookingId::new(&format!("job-{}", self.bookings)).unwrap()
    }

    fn release_one(&mut self) -> bool {
        let bookings = &self.state.bookings;
        let held = bookings
            .live_ids(None)
            .find_map(|id| match bookings.standing(id) {
                Some(Standing::Granted(granted)) => Some((id.clone(), granted.fence)),
                _ => None,
            });
        let Some((id, fence)) = held else {
            return false;
        };
        self.run(release(id, fence));
        true
    }
}

/// A key of the ledger in its place.
pub(crate) fn new_key(path: &Path, generation: u64) -> Signer {
    let signer = Signer::create_new(path, LEDGER, generation).unwrap();
    signer.promote_new().unwrap();
    signer
}

/// Checks with one trusted key and everything else off.
pub(crate) fn examine(reader: &dyn Reader, signer: &Signer) -> Report {
    let keys = signer.verifiers();
    let asked = Asked {
        keys: &keys,
        ..Asked::default()
    };
    check(reader, &asked, |_, _| ()).unwrap()
}

/// The lines of a report as `ledger check` shows them.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let line = |check: &bursar_ledger::check::Check| {
        format!(
            "{} {}: {}",
            if check.ok { "ok" } else { "FAIL" },
            check.name,
            check.detail
        )
    };
    report.checks.iter().map(line).collect()
}

pub(crate) fn request(id: BookingId, class: &str, tenant: &str, wait_ms: u64) -> Request {
    Request {
        wait: Millis::from_ms(wait_ms),
        ..Request::new(id, label(class), label(tenant))
    }
}

pub(crate) fn release(id: BookingId, fence: Fence) -> booking::Command {
    booking::Command::Release {
        id,
        fence,
        outcome: None,
        exit_code: None,
    }
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}
