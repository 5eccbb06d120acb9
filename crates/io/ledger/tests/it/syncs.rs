//! The order of writes and syncs, read from the system calls of a process: nothing durable is lost
//! when the power fails. A killed process cannot show that, because the system keeps what the
//! process wrote.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use bursar_engine::codec::Encoded;
use bursar_ledger::store::sqlite::{FILE_NAME, SqliteStore};
use bursar_ledger::store::{Append, Appended, Store as _, Term};

/// Bytes of the header of a write-ahead log. No other write to the log is as long.
const LOG_HEADER_BYTES: u64 = 32;

/// Appends in which the log must have started again.
const APPENDS_MAX: u32 = 2_000;

/// Method: appends of about a megabyte follow each other without a pause. Each one that is done is
/// noted in a file, which stands for the answer to a caller in the trace of this process.
#[test]
fn a_log_under_a_busy_writer_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("ledger.db-wal");
    let mut answers = File::create(directory.path().join("answers")).unwrap();
    let mut store = SqliteStore::open(&directory.path().join(FILE_NAME)).unwrap();
    let mut term = store.lead().unwrap();
    let first = starts(&log);
    for _ in 0..APPENDS_MAX {
        let append = append_after(term);
        assert_eq!(store.append(term, &append).unwrap(), Appended::Done);
        answers.write_all(b"done").unwrap();
        term.head += append.records.len() as u64;
        if starts(&log) != first {
            // Closing the store copies the rest on this thread.
            return fs::write(directory.path().join("end"), "end").unwrap();
        }
    }
    panic!("{} bytes of log", fs::metadata(log).unwrap().len());
}

/// Method: the test above runs once more, in a process whose system calls are recorded.
#[test]
fn a_commit_is_synced_before_its_answer_and_copied_and_synced_before_the_log_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-s", "0", "--seccomp-bpf", "-e", "signal=none"])
        .args(["-e", "trace=write,pwrite64,fsync,fdatasync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "syncs::a_log_under_a_busy_writer_starts_again"])
        .output()
        .unwrap_or_else(|error| panic!("strace, of the package `strace`: {error}"));
    assert!(output.status.success(), "{output:?}");
    let mut seen = Seen::default();
    let trace = fs::read_to_string(trace).unwrap();
    let is_open = |line: &&str| file_of(line) != "end";
    for line in trace.lines().take_while(is_open) {
        seen.take(line);
    }
    assert!(seen.answers > 0, "the trace shows no answer");
    assert_eq!(seen.starts, 2, "the trace shows no log that started again");
    assert!(seen.ledger.written > 0, "the trace shows no copied page");
}

/// What the calls so far have made of the two files.
#[derive(Default)]
struct Seen {
    log: Syncs,
    ledger: Syncs,
    starts: u32,
    answers: u32,
    /// The thread that answers, which is the one that commits.
    committer: Option<String>,
    /// Calls of threads that have not returned yet.
    under_way: BTreeMap<String, String>,
    /// The file that each thread has synced last.
    synced: BTreeMap<String, &'static str>,
}

/// Writes to a file, and how many of them a finished sync covers.
#[derive(Default)]
struct Syncs {
    written: u64,
    synced: u64,
    /// Writes before the sync that is under way, by thread.
    covered: BTreeMap<String, u64>,
}

impl Seen {
    fn take(&mut self, line: &str) {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if call.starts_with("<... ") {
            let begun = self.under_way.remove(thread).unwrap();
            self.end(thread, &begun);
        } else if call.contains("<unfinished") {
            self.begin(thread, call);
            self.under_way.insert(thread.to_owned(), call.to_owned());
        } else if call.contains('(') {
            self.begin(thread, call);
            self.end(thread, call);
        }
    }

    fn begin(&mut self, thread: &str, call: &str) {
        let is_write = call.contains("write");
        match file_of(call) {
            "answers" => {
                let Syncs {
                    written, synced, ..
                } = self.log;
                assert_eq!(written, synced, "answered before a sync: {call}");
                self.answers += 1;
                self.committer = Some(thread.to_owned());
            }
            "ledger.db-wal" if is_write => {
                if bytes_of(call) == LOG_HEADER_BYTES {
                    let Syncs {
                        written, synced, ..
                    } = self.ledger;
                    assert_eq!(written, synced, "the log started again before a sync");
                    self.starts += 1;
                }
                self.log.written += 1;
            }
            "ledger.db" if is_write => {
                // Until the first answer the file is made, and led for the first time.
                if self.answers > 0 {
                    assert_ne!(self.committer.as_deref(), Some(thread), "inside a commit");
                    let synced = self.synced.get(thread).copied();
                    assert_eq!(synced, Some("log"), "copied from a log before its sync");
                }
                self.ledger.written += 1;
            }
            "ledger.db-wal" => self.log.begin(thread),
            "ledger.db" => self.ledger.begin(thread),
            _ => {}
        }
    }

    fn end(&mut self, thread: &str, call: &str) {
        if call.contains("write") {
            return;
        }
        let (name, syncs) = match file_of(call) {
            "ledger.db-wal" => ("log", &mut self.log),
            "ledger.db" => ("ledger", &mut self.ledger),
            _ => return,
        };
        syncs.synced = syncs.synced.max(syncs.covered.remove(thread).unwrap());
        self.synced.insert(thread.to_owned(), name);
    }
}

impl Syncs {
    fn begin(&mut self, thread: &str) {
        self.covered.insert(thread.to_owned(), self.written);
    }
}

/// The name of the file in a call such as `write(4</tmp/x/answers>, ""..., 4) = 4`.
fn file_of(call: &str) -> &str {
    let path = call
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'));
    let path = path.map_or("", |(path, _)| path);
    path.rsplit_once('/').map_or("", |(_, name)| name)
}

/// The third argument of a write.
fn bytes_of(call: &str) -> u64 {
    let argument = call.split(", ").nth(2).unwrap();
    let digits = argument
        .split(|letter: char| !letter.is_ascii_digit())
        .next();
    digits.unwrap().parse().unwrap()
}

/// How often the log was started again, by its header.
fn starts(log: &Path) -> u32 {
    let mut header = [0; 16];
    File::open(log).unwrap().read_exact(&mut header).unwrap();
    u32::from_be_bytes(header[12..].try_into().unwrap())
}

fn append_after(term: Term) -> Append {
    let record = |seq| Encoded {
        seq,
        bytes: vec![b'x'; 60_000],
        blobs: Vec::new(),
    };
    Append {
        records: (term.head..term.head + 16).map(record).collect(),
        tiles: Vec::new(),
    }
}
