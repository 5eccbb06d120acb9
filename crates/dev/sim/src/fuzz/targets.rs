//! The fuzz targets: every function that turns external bytes into types.

use bursar_client::object::{File, Object, read_files};
use bursar_engine::codec::{Record, decode, decode_events, encode};
use bursar_engine::{State, snapshot, summary};
use bursar_journal::checkpoint::{Checkpoint, Name, SigningKey, VerifierKey};
use bursar_journal::hash::Hash;
use bursar_journal::merkle::{inclusion_root, verify_consistency};
use bursar_journal::proof::Proof;
use bursar_journal::tile::{Path, tile_bytes, tile_hashes};
use bursar_units::{BookingId, Label, Millis, ObjectName, quantity};

use super::market;

/// A function that accepts any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its corpus.
    pub name: &'static str,
    /// The function. It panics if a promise is broken.
    pub run: fn(&[u8]),
}

/// All targets, sorted by name.
pub const TARGETS: &[Target] = &[
    target("body", bursar_server::fuzz::fuzz_target),
    target("cgroup", market::cgroup_files),
    target("checkpoint", checkpoint),
    target("cpus", market::processor_lists),
    target("hierarchy", market::hierarchies),
    target("http", super::http::requests),
    target("kubepods", market::kubernetes_names),
    target("market", market::market_file),
    target("market_record", market::market_record),
    target("objects", objects),
    target("originals", market::market_originals),
    target("proof", proof),
    target("record", record),
    target("snapshot", snapshot_lines),
    target("tile", tile),
    target("units", units),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// A stored record. The text after a line feed is the blob that the record refers to.
pub fn record(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let line = parts.next().unwrap_or_default();
    let blob = parts.next().map(<[u8]>::to_vec);
    let find = |_: &Hash| blob.clone();
    let seq = stated_seq(line);
    drop(bursar_journal::record::blob_refs(line));
    drop(decode_events(seq, line, find));
    let Ok(record) = decode(seq, line, find) else {
        return;
    };
    let mut state = State::default();
    state.apply_record(record.time, &record.events);
    drop(summary::notices(record.time, &record.events));
    round_trip(&record);
}

/// A decoded record is encoded and decoded to the same record.
fn round_trip(record: &Record) {
    let Ok(encoded) = encode(record) else { return };
    let find = |sha256: &Hash| {
        let blob = encoded.blobs.iter().find(|blob| blob.sha256 == *sha256);
        blob.map(|blob| blob.bytes.clone())
    };
    let again = decode(record.seq, &encoded.bytes, find).ok();
    assert_eq!(
        again.as_ref(),
        Some(record),
        "a record survives a round trip"
    );
}

/// Sequence number in the text of a record, so that decoding does not fail on a wrong position.
fn stated_seq(line: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(line);
    let number = text.split_once("\"seq\":").map(|(_, rest)| rest);
    let digits: String = number
        .unwrap_or_default()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}

/// The lines of a snapshot. Lines that no state would write may give a wrong state but no panic:
/// a snapshot is trusted only by its hash.
pub fn snapshot_lines(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(state) = snapshot::read(text) {
        drop(snapshot::write(&state));
        let _deadline = state.next_deadline();
    }
}

/// Quantities, durations and names.
pub fn units(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for part in text.lines() {
        if let Ok(milli) = quantity::cpu_milli(part) {
            let again = quantity::cpu_milli(&quantity::format_cpu(milli));
            assert_eq!(again, Ok(milli), "{part}");
        }
        if let Ok(memory) = quantity::memory_bytes(part) {
            let again = quantity::memory_bytes(&quantity::format_memory(memory));
            assert_eq!(again, Ok(memory), "{part}");
        }
        if let Ok(length) = part.parse::<Millis>() {
            let again = length.to_string().parse::<Millis>();
            assert_eq!(again.ok(), Some(length), "{part}");
        }
        if let Ok(id) = BookingId::new(part) {
            let _made = id.made_at();
            assert_eq!(id.as_str(), part);
        }
        drop(Label::new(part));
        drop(ObjectName::new(part));
        drop(part.parse::<Hash>());
    }
}

/// A file of objects, as `apply` reads it.
pub fn objects(bytes: &[u8]) {
    let file = |bytes: Vec<u8>| File {
        name: "input.yaml".to_owned(),
        bytes,
    };
    match read_files(&[file(bytes.to_vec())]) {
        Ok(objects) => {
            let again = read_files(&[file(Object::to_yaml(&objects).into_bytes())]);
            assert_eq!(again.ok(), Some(objects), "objects survive a round trip");
        }
        Err(mistakes) => {
            drop(mistakes.to_problem());
            drop(mistakes.to_string());
        }
    }
}

/// A proof file, verified with a key that did not sign it.
pub fn proof(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(proof) = Proof::parse(&text) else {
        return;
    };
    if let Ok(name) = Name::ledger("0198f3c2-0000-7000-8000-000000000000", 0) {
        drop(proof.verify(&SigningKey::from_seed(name, [7; 32]).verifier()));
    }
    let again = proof
        .to_text()
        .ok()
        .and_then(|text| Proof::parse(&text).ok());
    assert_eq!(again, Some(proof), "a proof survives a round trip");
}

/// A signed checkpoint, and the text form of keys.
pub fn checkpoint(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(name) = Name::ledger("0198f3c2-0000-7000-8000-000000000000", 0) {
        let key = SigningKey::from_seed(name, [7; 32]);
        if let Ok(checkpoint) = Checkpoint::open(&text, &key.verifier()) {
            let again = Checkpoint::open(&checkpoint.sign([&key]), &key.verifier());
            assert_eq!(again, Ok(checkpoint), "a checkpoint survives a round trip");
        }
    }
    for part in text.lines() {
        drop(part.parse::<VerifierKey>());
        drop(part.parse::<SigningKey>());
        drop(part.parse::<Name>());
    }
}

/// The path of a tile, its bytes, and proofs made of arbitrary hashes.
pub fn tile(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(path) = text.parse::<Path>() {
        assert_eq!(path.to_string().parse::<Path>(), Ok(path), "{text}");
    }
    let Ok(hashes) = tile_hashes(bytes) else {
        return;
    };
    assert_eq!(tile_bytes(&hashes), bytes, "a tile survives a round trip");
    let (Some(first), Some(last)) = (hashes.first(), hashes.last()) else {
        return;
    };
    let number = |hash: &Hash| {
        hash.0
            .iter()
            .take(8)
            .fold(0, |n, byte| n << 8 | u64::from(*byte))
    };
    let (index, size) = (number(first), number(last));
    drop(inclusion_root(first, index, size, &hashes));
    drop(verify_consistency(index, first, size, last, &hashes));
}
