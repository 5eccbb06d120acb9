//! Files and directories that are not as they should be: each error names the file and the way out.

use std::fs;
use std::path::{Path, PathBuf};

use bursar_ledger::store::sqlite::{SqliteReader, SqliteStore};
use bursar_ledger::store::{Error, Reader as _};

use crate::world::World;

#[test]
fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let error = SqliteStore::open(&missing.join("ledger.db")).unwrap_err();
    assert!(
        matches!(&error, Error::NoDirectory { path } if *path == shown(&missing)),
        "{error}"
    );
    assert!(SqliteReader::open(&missing.join("ledger.db")).is_err());
    assert!(SqliteReader::inspect(&missing.join("ledger.db")).is_err());
    assert!(!missing.exists());
}

#[test]
fn what_is_not_a_ledger_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.db");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    let cases = [
        ("empty", Vec::new(), "it is empty"),
        (
            "text",
            b"not a database at all, but longer than a header is ".repeat(9),
            "it has no SQLite header",
        ),
        (
            "database",
            fs::read(other).unwrap(),
            "another program made it",
        ),
    ];
    for (name, bytes, reason) in cases {
        let path = directory.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let errors = [
            SqliteStore::open(&path).unwrap_err(),
            SqliteReader::open(&path).unwrap_err(),
            SqliteReader::inspect(&path).unwrap_err(),
        ];
        for error in errors {
            let Error::NotALedger {
                path: named,
                reason: found,
            } = &error
            else {
                panic!("{error}")
            };
            assert_eq!((named, *found), (&shown(&path), reason));
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    let error = SqliteStore::open(directory.path()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NotALedger {
                reason: "it is not a file",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let world = closed();
    rusqlite::Connection::open(world.path())
        .unwrap()
        .pragma_update(None, "user_version", 7)
        .unwrap();
    for error in [
        SqliteStore::open(&world.path()).unwrap_err(),
        SqliteReader::inspect(&world.path()).unwrap_err(),
    ] {
        assert!(
            matches!(
                error,
                Error::NewerFormat {
                    found: 7,
                    known: 1,
                    ..
                }
            ),
            "{error}"
        );
    }
}

/// Method: one bit of each byte of the header is turned. Whatever opens all the same (free pages,
/// counters, versions of writers) still holds the same records.
#[test]
fn a_flipped_header_is_an_error_that_names_the_file_or_changes_nothing() {
    let world = closed();
    let good = fs::read(world.path()).unwrap();
    let mut refused = 0;
    for place in 0..100 {
        let mut bytes = good.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(world.path(), &bytes).unwrap();
        let records =
            SqliteReader::inspect(&world.path()).and_then(|reader| reader.records(0, 1_000));
        match records {
            Ok(records) => assert_eq!(records.len(), 60, "byte {place}"),
            Err(error) => {
                refused += 1;
                let chain = format!("{error} {:?}", std::error::Error::source(&error));
                assert!(
                    chain.contains(&shown(&world.path())),
                    "byte {place}: {chain}"
                );
            }
        }
    }
    assert!(20 < refused, "{refused}");
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let world = closed();
    let good = fs::read(world.path()).unwrap();
    for size in (0..good.len()).step_by(1_000) {
        fs::write(world.path(), &good[..size]).unwrap();
        let error = SqliteStore::open(&world.path()).unwrap_err();
        assert!(
            error.to_string().contains(&shown(&world.path())),
            "{size}: {error}"
        );
    }
    fs::write(world.path(), &good).unwrap();
    SqliteStore::open(&world.path()).unwrap();
}

#[test]
fn missing_last_records_are_noticed_at_the_start() {
    let world = closed();
    let sql = "DELETE FROM journal WHERE 50 <= seq";
    rusqlite::Connection::open(world.path())
        .unwrap()
        .execute(sql, [])
        .unwrap();
    let error = SqliteStore::open(&world.path()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// Method: the files of a ledger whose server was killed, with records in the write-ahead log,
/// and those of one that was closed; before and after a look at them.
#[test]
fn inspecting_a_file_leaves_no_trace() {
    let mut world = World::sqlite();
    world.live(60);
    let killed = tempfile::tempdir().unwrap();
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        fs::copy(world.directory.path().join(name), killed.path().join(name)).unwrap();
    }
    assert!(
        0 < fs::metadata(killed.path().join("ledger.db-wal"))
            .unwrap()
            .len()
    );
    let closed = closed();
    for data in [killed.path(), closed.directory.path()] {
        let before = contents(data);
        let reader = SqliteReader::inspect(&data.join("ledger.db")).unwrap();
        assert_eq!(reader.head().unwrap(), 60);
        assert_eq!(reader.records(0, 100).unwrap().len(), 60);
        assert_eq!(contents(data), before, "while it is open");
        drop(reader);
        assert_eq!(contents(data), before, "after it");
    }
    let live = SqliteReader::inspect(&world.file()).unwrap();
    world.live(70);
    assert_eq!(
        live.head().unwrap(),
        70,
        "beside a writer it sees what is committed"
    );
}

#[test]
fn odd_characters_in_a_path_are_no_trouble() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("größe ?mode=memory&x=%41#.db");
    drop(SqliteStore::open(&path).unwrap());
    assert!(path.is_file());
    assert_eq!(SqliteReader::open(&path).unwrap().head().unwrap(), 0);
    assert_eq!(SqliteReader::inspect(&path).unwrap().head().unwrap(), 0);
}

/// A ledger of 60 records, closed in good order.
fn closed() -> Closed {
    let mut world = World::sqlite();
    world.live(60);
    let World {
        store, directory, ..
    } = world;
    drop(store);
    assert!(!directory.path().join("ledger.db-wal").exists());
    Closed { directory }
}

struct Closed {
    directory: tempfile::TempDir,
}

impl Closed {
    fn path(&self) -> PathBuf {
        self.directory.path().join("ledger.db")
    }
}

fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
