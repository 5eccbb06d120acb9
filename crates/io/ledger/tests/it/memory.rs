//! The ways in which the memory store goes wrong on demand, for the simulator (L2).

use bursar_engine::codec::Encoded;
use bursar_ledger::store::memory::{Fault, MemoryStore};
use bursar_ledger::store::{Append, Appended, Error, Store as _, Term};

#[test]
fn each_fault_does_what_it_says_and_only_once() {
    let (mut store, term) = begun();
    let head = |store: &mut MemoryStore| store.reopen().unwrap();
    store.inject(Fault::Error);
    assert!(store.append(term, &one(0)).is_err());
    assert_eq!(head(&mut store), 0);
    store.inject(Fault::Refuse);
    assert_eq!(store.append(term, &one(0)).unwrap(), Appended::Refused);
    assert_eq!(head(&mut store), 0);
    store.inject(Fault::CommitThenError);
    assert!(store.append(term, &one(0)).is_err());
    assert_eq!(head(&mut store), 1);
    assert_eq!(
        store.append(Term { head: 1, ..term }, &one(1)).unwrap(),
        Appended::Done
    );
}

#[test]
fn a_hanging_write_lands_before_the_store_is_reopened_or_never() {
    let (mut store, term) = begun();
    store.inject(Fault::Hang);
    assert!(store.append(term, &one(0)).is_err());
    assert_eq!(store.reader().unwrap().head().unwrap(), 0);
    assert_eq!(store.land(), Appended::Done);
    assert_eq!(store.reopen().unwrap(), 1);

    let term = Term { head: 1, ..term };
    store.inject(Fault::Hang);
    assert!(store.append(term, &one(1)).is_err());
    assert_eq!(store.reopen().unwrap(), 1);
    assert_eq!(store.land(), Appended::Refused);

    store.inject(Fault::Hang);
    assert!(store.append(term, &one(1)).is_err());
    store.clone().lead().unwrap();
    assert_eq!(
        store.land(),
        Appended::Refused,
        "another term leads by then"
    );
    assert_eq!(store.reopen().unwrap(), 1);
}

#[test]
fn a_full_disk_takes_no_write_until_there_is_space_again() {
    let (mut store, term) = begun();
    store.set_free_bytes(Some(0));
    let full = |error: Error| matches!(error, Error::Full { .. });
    assert!(full(store.append(term, &one(0)).unwrap_err()));
    assert!(full(store.lead().unwrap_err()));
    assert!(full(store.reopen().unwrap_err()));
    assert!(full(store.put_checkpoint(0, "note").unwrap_err()));
    assert!(full(store.put_anchor(0, "lines").unwrap_err()));
    assert!(full(store.prune(0).unwrap_err()));
    assert!(full(store.note_exported(0).unwrap_err()));
    assert_eq!(store.free_bytes(), Some(0));
    store.set_free_bytes(None);
    assert_eq!(store.append(term, &one(0)).unwrap(), Appended::Done);
}

fn begun() -> (MemoryStore, Term) {
    let mut store = MemoryStore::new();
    let term = store.lead().unwrap();
    (store, term)
}

fn one(seq: u64) -> Append {
    Append {
        records: vec![Encoded {
            seq,
            bytes: b"x".to_vec(),
            blobs: vec![],
        }],
        tiles: vec![],
    }
}
