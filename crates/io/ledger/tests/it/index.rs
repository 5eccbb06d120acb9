//! The index from subjects to records: it changes no answer, and nothing fails because of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::Node;
use bursar_engine::Reference;
use bursar_engine::codec::decode;
use bursar_engine::spine;
use bursar_engine::subject::subjects_of;
use bursar_ledger::clock::{Clock, MachineClock};
use bursar_ledger::data::{self, Data};
use bursar_ledger::index::{FILE_NAME, Index, Indexer, Pace, Progress, search, search_part};
use bursar_ledger::maintain::{Tokens, backup, restore};
use bursar_ledger::store::sqlite::{SqliteReader, SqliteStore};
use bursar_ledger::store::{Reader, Store as _};
use bursar_units::{Amount, Instant, ObjectName};
use rusqlite::Connection;

use crate::opening::{Quiet, wait_for};
use crate::world::{LEDGER, World, label};

/// A pace at which the file takes many commits.
const SLOW: Pace = Pace {
    records_max: 7,
    subjects_max: usize::MAX,
    records_min: 1,
};

/// A pace at which everything is indexed at once.
const QUICK: Pace = Pace {
    records_max: u64::MAX,
    subjects_max: usize::MAX,
    records_min: 1,
};

#[derive(Debug)]
struct Question {
    subject: Reference,
    records: Range<u64>,
    max: usize,
}

/// Some subjects of the records and some without any, in several ranges, each with the numbers of
/// the records that a scan finds: as many as were asked for, and all in the range.
struct Exam(Vec<(Question, Vec<u64>, Vec<u64>)>);

/// How many subjects are asked for, about.
const ASKED: usize = 50;

impl Exam {
    fn of(reader: &dyn Reader) -> Self {
        let head = reader.head().unwrap();
        let mut subjects = BTreeSet::from(["booking/nobody".to_owned(), "token/root".to_owned()]);
        for kept in reader.records(0, usize::MAX).unwrap() {
            let blob = |sha256: &_| reader.blob(sha256).unwrap();
            let record = kept.bytes.map(|bytes| decode(kept.seq, &bytes, blob));
            let record = record.transpose().unwrap();
            subjects.extend(
                record
                    .iter()
                    .flat_map(subjects_of)
                    .map(|subject| subject.to_string()),
            );
        }
        // The first, and then so many that are spread over the rest.
        let stride = subjects.len().div_ceil(ASKED);
        let subjects = subjects.iter().step_by(stride);
        let mut questions = Vec::new();
        for subject in subjects {
            let subject: Reference = subject.parse().unwrap();
            let third = head / 3;
            for (records, max) in [
                (0..head, usize::MAX),
                (0..head, 1),
                (third..head - third, 2),
                (head..head, 1),
                (0..head, 0),
            ] {
                let subject = subject.clone();
                questions.push(Question {
                    subject,
                    records,
                    max,
                });
            }
        }
        let scanned = |question: Question| {
            let found = question.answer(reader, None);
            let all = Question {
                subject: question.subject.clone(),
                records: question.records.clone(),
                max: usize::MAX,
            };
            (question, found, all.answer(reader, None))
        };
        let exam: Vec<_> = questions.into_iter().map(scanned).collect();
        assert!(exam.iter().any(|(_, found, _)| 1 < found.len()));
        Self(exam)
    }

    /// The index answers as a scan does.
    fn same(&self, reader: &dyn Reader, index: &Index, when: &str) {
        for (question, scanned, _) in &self.0 {
            let found = question.answer(reader, Some(index));
            assert_eq!(found, *scanned, "{when}: {question:?}");
        }
    }

    /// The index shows nothing that a scan does not.
    fn no_more(&self, reader: &dyn Reader, index: &Index, when: &str) {
        for (question, _, all) in &self.0 {
            let found = question.answer(reader, Some(index));
            assert!(found.len() <= question.max, "{when}: {question:?}");
            assert!(found.is_sorted(), "{when}: {question:?}");
            assert!(
                found.iter().all(|seq| all.contains(seq)),
                "{when}: {question:?} has {all:?}, shown were {found:?}"
            );
        }
    }
}

impl Question {
    fn answer(&self, reader: &dyn Reader, index: Option<&Index>) -> Vec<u64> {
        let found = search(reader, index, &self.subject, self.records.clone(), self.max);
        found.unwrap().into_iter().map(|(seq, _)| seq).collect()
    }
}

/// Method: after each of many commits to the index all is asked again.
#[test]
fn a_search_finds_the_same_however_many_records_are_indexed() {
    let mut world = World::sqlite();
    world.live(60);
    let (reader, index) = (world.reader(), index_of(&world));
    let exam = Exam::of(reader.as_ref());
    exam.same(reader.as_ref(), &index, "without a file");
    let mut indexer = Indexer::new(index.clone(), SLOW);
    let mut steps = 0;
    loop {
        let progress = indexer.step(reader.as_ref(), 60).unwrap();
        steps += 1;
        assert_eq!(indexed(&index, reader.as_ref()), (7 * steps).min(60));
        exam.same(reader.as_ref(), &index, &format!("step {steps}"));
        if progress == Progress::CaughtUp {
            break;
        }
    }
    assert_eq!(steps, 9);
    world.live(75);
    let exam = Exam::of(reader.as_ref());
    exam.same(reader.as_ref(), &index, "with records that came later");
    // A start later goes on with the file that is there.
    let before = file_id(&world);
    Indexer::new(index.clone(), SLOW)
        .step(reader.as_ref(), 75)
        .unwrap();
    assert_eq!(indexed(&index, reader.as_ref()), 67);
    assert_eq!(file_id(&world), before);
    exam.same(reader.as_ref(), &index, "after a start");
}

/// Method: a record whose command and events are blobs.
#[test]
fn records_in_blobs_are_indexed_by_what_the_blobs_say() {
    let mut world = World::sqlite();
    world.live(10);
    world.large();
    world.live(15);
    let (reader, index) = (world.reader(), index_of(&world));
    Indexer::new(index.clone(), QUICK)
        .step(reader.as_ref(), 15)
        .unwrap();
    for number in [0, 799] {
        let limit = format!("limit/a-rather-long-name-for-a-limit-10-{number}");
        let limit = limit.parse().unwrap();
        let indexed = index.about(reader.as_ref(), &limit, 0, 9);
        assert_eq!((indexed.seqs, indexed.records), (vec![10], 15));
        let search = |index| search(reader.as_ref(), index, &limit, 0..15, 9).unwrap();
        assert_eq!(search(Some(&index)), search(None));
        assert_eq!(search(None).len(), 1);
    }
}

/// Method: five records may be read, and the last one is wanted.
#[test]
fn what_the_index_passes_over_is_not_read() {
    let mut world = World::sqlite();
    world.live(60);
    let limit = "limit/python".parse().unwrap();
    let (reader, index) = (world.reader(), index_of(&world));
    let part = |index, from: u64| search_part(reader.as_ref(), index, &limit, from..60, 9, 5);
    let scanned = part(None, 10).unwrap();
    assert_eq!((scanned.records.len(), scanned.next), (0, 15));
    Indexer::new(index.clone(), QUICK)
        .step(reader.as_ref(), 60)
        .unwrap();
    let found = part(Some(&index), 0).unwrap();
    assert_eq!((found.records.len(), found.next), (1, 60));
    let found = part(Some(&index), 10).unwrap();
    assert_eq!((found.records.len(), found.next), (0, 60));
}

/// Method: the scan is made impossible by a record that cannot be read.
#[test]
fn a_search_reads_only_the_records_that_the_index_names() {
    let mut world = World::sqlite();
    world.live(60);
    let (reader, index) = (world.reader(), index_of(&world));
    Indexer::new(index.clone(), QUICK)
        .step(reader.as_ref(), 60)
        .unwrap();
    world.tamper("DELETE FROM journal WHERE seq = 30");
    let limit = "limit/python".parse().unwrap();
    let records = 0..60;
    assert!(search(reader.as_ref(), None, &limit, records.clone(), 9).is_err());
    let found = search(reader.as_ref(), Some(&index), &limit, records, 9).unwrap();
    assert_eq!(found.len(), 1);
}

/// Method: records are taken away, emptied and changed before they are indexed.
#[test]
fn unreadable_records_are_passed_over() {
    let mut world = World::sqlite();
    world.live(60);
    world.put(20, b"not a record");
    world.put(59, b"{}");
    let reader = world.reader();
    let exam = Exam::of_readable(reader.as_ref());
    world.tamper("DELETE FROM journal WHERE seq = 30");
    let index = index_of(&world);
    let mut indexer = Indexer::new(index.clone(), SLOW);
    while indexer.step(reader.as_ref(), 60).unwrap() == Progress::Behind {}
    assert_eq!(indexed(&index, reader.as_ref()), 60);
    for (subject, found) in exam {
        let found: Vec<u64> = found.into_iter().filter(|seq| *seq != 30).collect();
        let shown = search(reader.as_ref(), Some(&index), &subject, 0..60, 99).unwrap();
        let shown: Vec<u64> = shown.into_iter().map(|(seq, _)| seq).collect();
        assert_eq!(shown, found, "{subject}");
    }
}

impl Exam {
    /// Each subject but records, with the records about it, where some records cannot be decoded.
    fn of_readable(reader: &dyn Reader) -> Vec<(Reference, Vec<u64>)> {
        let mut found: Vec<(Reference, Vec<u64>)> = Vec::new();
        for kept in reader.records(0, usize::MAX).unwrap() {
            let Ok(record) = decode(kept.seq, &kept.bytes.unwrap(), |_| None) else {
                continue;
            };
            let mut subjects: Vec<Reference> = Vec::new();
            for subject in subjects_of(&record) {
                if !subjects.contains(&subject) && !matches!(subject, Reference::Record(_)) {
                    subjects.push(subject);
                }
            }
            for subject in subjects {
                match found.iter_mut().find(|(known, _)| *known == subject) {
                    Some((_, seqs)) => seqs.push(kept.seq),
                    None => found.push((subject, vec![kept.seq])),
                }
            }
        }
        found
    }
}

#[test]
fn names_of_pruned_records_leave_the_index() {
    let mut world = World::sqlite();
    world.live(600);
    let (reader, index) = (world.reader(), index_of(&world));
    let mut indexer = Indexer::new(index.clone(), QUICK);
    indexer.step(reader.as_ref(), 600).unwrap();
    let file = path(&world);
    let names = |name: &str| {
        let sql = "SELECT count(*) FROM about WHERE subject = ?1";
        let file = Connection::open(&file).unwrap();
        let count: i64 = file.query_row(sql, [name], |row| row.get(0)).unwrap();
        count
    };
    assert!(0 < names("booking/job-1"));
    world.store.prune(512).unwrap();
    assert_eq!(
        indexer.step(reader.as_ref(), 600).unwrap(),
        Progress::CaughtUp
    );
    assert_eq!(names("booking/job-1"), 0);
    assert_eq!(indexed(&index, reader.as_ref()), 600);
    Exam::of(reader.as_ref()).same(reader.as_ref(), &index, "pruned");
    // All that it covers is pruned: it fits by the leaf hash that is left of its last record.
    let half = Index::of(world.directory.path(), LEDGER, 0);
    fs::remove_file(path(&world)).unwrap();
    let mut indexer = Indexer::new(half.clone(), SLOW);
    indexer.step(reader.as_ref(), 600).unwrap();
    assert_eq!(indexed(&half, reader.as_ref()), 519);
    world.live(900);
    world.store.prune(768).unwrap();
    assert_eq!(indexed(&half, reader.as_ref()), 519);
    Exam::of(reader.as_ref()).same(reader.as_ref(), &half, "pruned beyond it");
    indexer.step(reader.as_ref(), 900).unwrap();
    assert_eq!(
        indexed(&half, reader.as_ref()),
        775,
        "begun anew behind them"
    );
}

/// Method: a ledger of which some records are pruned and another is missing.
#[test]
fn a_damaged_and_pruned_ledger_is_indexed_once_and_not_for_ever() {
    let mut world = World::sqlite();
    world.live(600);
    world.store.prune(256).unwrap();
    world.tamper("DELETE FROM journal WHERE seq = 300");
    let (reader, index) = (world.reader(), index_of(&world));
    let mut indexer = Indexer::new(index.clone(), QUICK);
    for _ in 0..2 {
        let done = indexer.step(reader.as_ref(), 600).unwrap();
        assert_eq!(done, Progress::CaughtUp);
        assert_eq!(indexed(&index, reader.as_ref()), 600);
    }
}

#[test]
fn a_commit_to_the_index_takes_a_bounded_number_of_subjects() {
    let mut world = World::sqlite();
    world.large();
    world.large();
    world.live(10);
    let (reader, index) = (world.reader(), index_of(&world));
    let pace = Pace {
        subjects_max: 100,
        ..QUICK
    };
    let mut indexer = Indexer::new(index.clone(), pace);
    for (records, progress) in [
        (5, Progress::Behind),
        (6, Progress::Behind),
        (10, Progress::CaughtUp),
    ] {
        assert_eq!(indexer.step(reader.as_ref(), 10).unwrap(), progress);
        assert_eq!(indexed(&index, reader.as_ref()), records);
    }
}

/// Method: statements of somebody who can write to the file, and whether the answers stay whole.
#[test]
fn a_forged_index_can_hide_records_and_never_invents_any() {
    let whole = [
        // Every record is said to be about every subject.
        "INSERT OR IGNORE INTO about SELECT a.subject, b.seq FROM about a, about b",
        "INSERT INTO about VALUES ('booking/nobody', 5), ('token/root', 9)",
        // Numbers that are none.
        "INSERT INTO about VALUES ('booking/job-1', -1)",
        "INSERT INTO about VALUES ('booking/job-1', 60)",
        "INSERT INTO about VALUES ('booking/job-1', 9223372036854775807)",
        "INSERT INTO about VALUES ('booking/job-1', 'seven')",
        // Another ledger, generation, rule, format, or other records.
        "UPDATE header SET ledger = 'another'",
        "UPDATE header SET generation = 1",
        "UPDATE header SET rule = rule + 1",
        "UPDATE header SET records = 61",
        "UPDATE header SET records = 59",
        "UPDATE header SET records = -1",
        "UPDATE header SET leaf = zeroblob(32)",
        "UPDATE header SET leaf = NULL",
        "UPDATE header SET leaf = 'leaf'",
        "DELETE FROM header",
        "DROP TABLE header",
        "DROP TABLE about",
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 7",
    ];
    let hiding = [
        "DROP TABLE about; CREATE TABLE about (subject, seq);
            INSERT INTO about VALUES ('booking/job-1', 9), ('booking/job-1', 9)",
        "DELETE FROM about",
        "UPDATE OR REPLACE about SET seq = seq + 1",
        "UPDATE OR REPLACE about SET subject = 'booking/job-1' WHERE subject = 'booking/job-2'",
    ];
    let mut world = World::sqlite();
    world.live(60);
    let reader = world.reader();
    let exam = Exam::of(reader.as_ref());
    let statements = whole.map(|sql| (sql, true)).into_iter();
    for (sql, is_whole) in statements.chain(hiding.map(|sql| (sql, false))) {
        let index = index_of(&world);
        let _old = fs::remove_file(path(&world));
        let mut indexer = Indexer::new(index.clone(), QUICK);
        indexer.step(reader.as_ref(), 60).unwrap();
        Connection::open(path(&world))
            .unwrap()
            .execute_batch(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        exam.no_more(reader.as_ref(), &index, sql);
        if is_whole {
            exam.same(reader.as_ref(), &index, sql);
        }
    }
}

/// What somebody does to the file of an index.
type Harm = fn(&Path);

const HARMS: [(&str, Harm); 9] = [
    ("removed", |path| fs::remove_file(path).unwrap()),
    ("empty", |path| fs::write(path, "").unwrap()),
    ("a text", |path| fs::write(path, "x".repeat(9_000)).unwrap()),
    ("cut", |path| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 4_096)
            .unwrap();
    }),
    ("zeroed", |path| {
        let size = fs::metadata(path).unwrap().len();
        fs::write(path, vec![0; usize::try_from(size).unwrap()]).unwrap();
    }),
    ("replaced by a database of others", |path| {
        fs::remove_file(path).unwrap();
        let other = Connection::open(path).unwrap();
        other.execute_batch("CREATE TABLE about (x)").unwrap();
    }),
    ("logging ahead", |path| {
        let file = Connection::open(path).unwrap();
        let sql = "PRAGMA journal_mode = WAL; DELETE FROM header";
        file.execute_batch(sql).unwrap();
    }),
    ("a link to the ledger", |path| {
        fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink(path.with_extension("db"), path).unwrap();
    }),
    ("locked by another process", |path| {
        let file = Connection::open(path).unwrap();
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        // For ever.
        std::mem::forget(file);
    }),
];

/// Method: each harm under the same writer, and before a later one opens the file.
#[test]
fn a_file_that_is_lost_or_damaged_is_made_anew_and_nobody_notices() {
    let mut world = World::sqlite();
    world.live(60);
    let (reader, index) = (world.reader(), index_of(&world));
    let exam = Exam::of(reader.as_ref());
    let ledger = fs::read(world.file()).unwrap();
    for (how, harm) in HARMS {
        for is_later in [false, true] {
            let mut indexer = Indexer::new(index.clone(), QUICK);
            indexer.step(reader.as_ref(), 60).unwrap();
            assert_eq!(indexed(&index, reader.as_ref()), 60, "{how}");
            if is_later {
                indexer = Indexer::new(index.clone(), QUICK);
            }
            harm(&path(&world));
            if !how.starts_with("locked") {
                exam.same(reader.as_ref(), &index, how);
            }
            indexer.step(reader.as_ref(), 60).unwrap();
            assert_eq!(indexed(&index, reader.as_ref()), 60, "{how}");
            exam.same(reader.as_ref(), &index, how);
            let mode = fs::metadata(path(&world)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{how}");
            assert_eq!(fs::read(world.file()).unwrap(), ledger, "{how}");
        }
    }
}

/// Method: each page of the file is scribbled over, one after the other.
#[test]
fn a_damaged_page_invents_no_records_and_the_file_is_made_anew_once_it_is_met() {
    let mut world = World::sqlite();
    world.live(900);
    let (reader, index) = (world.reader(), index_of(&world));
    let exam = Exam::of(reader.as_ref());
    let mut indexer = Indexer::new(index.clone(), QUICK);
    indexer.step(reader.as_ref(), 900).unwrap();
    let good = fs::read(path(&world)).unwrap();
    let pages = good.len() / 4_096;
    assert!(5 < pages, "{pages}");
    for page in 0..pages {
        let mut bytes = good.clone();
        bytes[page * 4_096..][..64].fill(0xff);
        drop(indexer);
        fs::write(path(&world), &bytes).unwrap();
        exam.no_more(reader.as_ref(), &index, &format!("page {page}"));
        indexer = Indexer::new(index.clone(), QUICK);
        indexer.step(reader.as_ref(), 900).unwrap();
        exam.same(reader.as_ref(), &index, &format!("page {page}"));
    }
}

#[test]
fn a_directory_in_the_place_of_the_file_is_an_error_of_the_writer_only() {
    let mut world = World::sqlite();
    world.live(60);
    let (reader, index) = (world.reader(), index_of(&world));
    fs::create_dir(path(&world)).unwrap();
    let mut indexer = Indexer::new(index.clone(), QUICK);
    indexer.step(reader.as_ref(), 60).unwrap_err();
    Exam::of(reader.as_ref()).same(reader.as_ref(), &index, "a directory");
    fs::remove_dir(path(&world)).unwrap();
    indexer.step(reader.as_ref(), 60).unwrap();
    assert_eq!(indexed(&index, reader.as_ref()), 60);
}

/// Method: the files as they are in the middle of a commit, with its journal.
#[test]
fn a_commit_that_was_cut_short_is_taken_back() {
    let mut world = World::sqlite();
    world.live(60);
    let (reader, index) = (world.reader(), index_of(&world));
    let exam = Exam::of(reader.as_ref());
    let mut indexer = Indexer::new(index.clone(), SLOW);
    indexer.step(reader.as_ref(), 60).unwrap();
    drop(indexer);
    let copied = tempfile::tempdir().unwrap();
    let file = Connection::open(path(&world)).unwrap();
    // Pages leave a small cache before the commit.
    file.execute_batch(
        "PRAGMA cache_size = 1; BEGIN; UPDATE header SET records = 60;
        DELETE FROM about; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9000)
        INSERT INTO about SELECT 'booking/of-somebody-else-' || i, i FROM n",
    )
    .unwrap();
    for name in [FILE_NAME, "ledger.index-journal"] {
        fs::copy(world.directory.path().join(name), copied.path().join(name)).unwrap();
    }
    drop(file);
    let kill = || {
        for name in [FILE_NAME, "ledger.index-journal"] {
            fs::copy(copied.path().join(name), world.directory.path().join(name)).unwrap();
        }
    };
    kill();
    exam.same(reader.as_ref(), &index, "before a writer comes");
    Indexer::new(index.clone(), SLOW)
        .step(reader.as_ref(), 60)
        .unwrap();
    assert_eq!(indexed(&index, reader.as_ref()), 14);
    exam.same(reader.as_ref(), &index, "after");
    // A journal that is left is not played into a file that was made anew.
    kill();
    fs::write(path(&world).with_extension("index-wal"), "left").unwrap();
    fs::remove_file(path(&world)).unwrap();
    Indexer::new(index.clone(), SLOW)
        .step(reader.as_ref(), 60)
        .unwrap();
    assert_eq!(indexed(&index, reader.as_ref()), 7);
    exam.same(reader.as_ref(), &index, "with a journal that was left");
}

/// Method: a child process indexes one record a commit and is killed after so many.
#[test]
fn a_kill_at_any_moment_leaves_an_index_that_answers_as_a_scan() {
    let mut world = World::sqlite();
    world.live(120);
    let (reader, index) = (world.reader(), index_of(&world));
    let exam = Exam::of(reader.as_ref());
    for commits in [0, 1, 2, 5, 11, 19, 26, 34] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "index::the_child_that_is_killed", "--nocapture"])
            .current_dir(world.directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_commit = |line: &String| line == "committed";
        let seen = lines.map(Result::unwrap).filter(is_commit).take(commits);
        assert_eq!(seen.count(), commits);
        child.kill().unwrap();
        child.wait().unwrap();
        exam.same(reader.as_ref(), &index, "killed");
    }
    let mut indexer = Indexer::new(index.clone(), QUICK);
    indexer.step(reader.as_ref(), 120).unwrap();
    exam.same(reader.as_ref(), &index, "gone on");
}

/// The other side of the test above, which has a ledger in its directory; no test of its own.
#[test]
fn the_child_that_is_killed() {
    let data = Path::new("");
    let Ok(reader) = SqliteReader::open(&data.join("ledger.db")) else {
        return;
    };
    let pace = Pace {
        records_max: 1,
        subjects_max: usize::MAX,
        records_min: 1,
    };
    loop {
        let mut indexer = Indexer::new(Index::of(data, LEDGER, 0), pace);
        while indexer.step(&reader, 120).unwrap() == Progress::Behind {
            let mut out = std::io::stdout().lock();
            // The parent may have closed its end.
            let _gone = out.write_all(b"committed\n").and_then(|()| out.flush());
        }
        let _absent = fs::remove_file(data.join(FILE_NAME));
    }
}

#[test]
fn a_running_ledger_indexes_behind_its_commits_and_makes_a_deleted_file_anew() {
    let directory = tempfile::tempdir().unwrap();
    let data = open(directory.path());
    set_nodes(&data, 600);
    let (reader, index) = ((data.readers())().unwrap(), data.index());
    let node = "node/node-1".parse().unwrap();
    let wait = |why: &str| {
        let began = std::time::Instant::now();
        while index.about(reader.as_ref(), &node, 0, 9).records < 600 {
            assert!(began.elapsed() < Duration::from_mins(1), "{why}");
            std::thread::yield_now();
        }
        assert_eq!(index.about(reader.as_ref(), &node, 0, 9).seqs.len(), 1);
    };
    wait("nothing was indexed");
    let path = directory.path().join(FILE_NAME);
    fs::remove_file(&path).unwrap();
    wait("a deleted file was not made anew");
    // Another file in its place, which is a good index of another ledger.
    let foreign = World::sqlite();
    Indexer::new(index_of(&foreign), QUICK)
        .step(foreign.reader().as_ref(), 4)
        .unwrap();
    fs::rename(foreign.directory.path().join(FILE_NAME), &path).unwrap();
    wait("a replaced file was not made anew");
    // The same file with the bytes of another.
    Indexer::new(index_of(&foreign), QUICK)
        .step(foreign.reader().as_ref(), 4)
        .unwrap();
    fs::copy(foreign.directory.path().join(FILE_NAME), &path).unwrap();
    wait("a file that was written over was not made anew");
    data.stop();
    assert!(!directory.path().join("ledger.index-journal").exists());
    // The next start takes it up.
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let data = open(directory.path());
    assert!(600 <= data.index().about(reader.as_ref(), &node, 0, 9).records);
    data.stop();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
}

/// Method: the index of a ledger stays beside the backup of it that is restored.
#[test]
fn an_index_of_the_generation_before_a_restore_is_not_used() {
    let mut world = World::sqlite();
    world.live(60);
    world.sign();
    let index = index_of(&world);
    let mut indexer = Indexer::new(index, QUICK);
    indexer.step(world.reader().as_ref(), 60).unwrap();
    drop(indexer);
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");
    backup(&world.file(), &copy).unwrap();
    let data = copies.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::copy(path(&world), data.join(FILE_NAME)).unwrap();
    // Left by a kill in the middle of a commit.
    fs::write(data.join("ledger.index-journal"), "").unwrap();
    let reader = SqliteReader::inspect(&copy).unwrap();
    let keys = world.signer.verifiers();
    let (now, aside) = (Instant::default(), &copies.path().join("aside"));
    restore(&reader, &keys, (&data, aside), now, Tokens::End, |_, _| ()).unwrap();
    let reader = SqliteReader::open(&data.join("ledger.db")).unwrap();
    let restored = Index::of(&data, LEDGER, 1);
    assert_eq!(indexed(&restored, &reader), 0);
    let exam = Exam::of(&reader);
    exam.same(&reader, &restored, "of another generation");
    let mut indexer = Indexer::new(restored.clone(), QUICK);
    let head = reader.head().unwrap();
    indexer.step(&reader, head).unwrap();
    assert_eq!(indexed(&restored, &reader), head);
    exam.same(&reader, &restored, "made anew");
}

/// Method: two ledgers of the same name whose records differ from the fourth on.
#[test]
fn an_index_of_other_records_under_the_same_name_is_not_used() {
    let (mut world, mut other) = (World::sqlite(), World::sqlite());
    world.live(60);
    other.next_id();
    other.live(60);
    Indexer::new(index_of(&other), QUICK)
        .step(other.reader().as_ref(), 60)
        .unwrap();
    fs::rename(path(&other), path(&world)).unwrap();
    let (reader, index) = (world.reader(), index_of(&world));
    assert_eq!(indexed(&index, reader.as_ref()), 0);
    Exam::of(reader.as_ref()).same(reader.as_ref(), &index, "of other records");
    Indexer::new(index.clone(), QUICK)
        .step(reader.as_ref(), 60)
        .unwrap();
    assert_eq!(indexed(&index, reader.as_ref()), 60);
}

fn path(world: &World<SqliteStore>) -> std::path::PathBuf {
    world.directory.path().join(FILE_NAME)
}

fn file_id(world: &World<SqliteStore>) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path(world)).unwrap().ino()
}

fn index_of(world: &World<SqliteStore>) -> Index {
    Index::of(world.directory.path(), LEDGER, 0)
}

fn indexed(index: &Index, reader: &dyn Reader) -> u64 {
    let nobody = "booking/nobody".parse().unwrap();
    index.about(reader, &nobody, 0, 1).records
}

fn set_nodes(data: &Data, count: u64) {
    let command = |number: u64| {
        let name = ObjectName::new(&format!("node-{number}")).unwrap();
        let changes = vec![spine::Change::SetNode(Node::new(name, &Amount::default()))];
        spine::Command::change(changes).into()
    };
    let commands = (0..count).map(command).collect();
    wait_for(data.ledger.submit(label("ada"), commands)).unwrap();
}

fn open(path: &Path) -> Data {
    let clock: Arc<dyn Clock> = Arc::new(MachineClock::default());
    data::open(path, clock, Arc::new(Quiet), |_, _| ()).unwrap()
}
