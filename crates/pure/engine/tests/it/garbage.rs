//! Invalid bytes are refused and never cause a panic.

use bursar_engine::codec::{decode, decode_events, encode, read_command_text};
use bursar_engine::snapshot;
use proptest::prelude::*;

use crate::script;
use crate::strategies::record;

/// Everything that reads bytes; none may panic, and what reads must write back the same bytes
/// unless its JSON was spelled in another way.
fn read_all(seq: u64, bytes: &[u8]) {
    let none = |_: &_| None;
    drop(decode_events(seq, bytes, none));
    if let Ok(record) = decode(seq, bytes, none) {
        let encoded = encode(&record).expect("what reads can be written");
        assert_eq!(
            decode(seq, &encoded.bytes, none).expect("and read again"),
            record
        );
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(read_command_text(text));
        drop(snapshot::read(text));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Method: any bytes at all.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all(0, &bytes);
    }

    /// Method: any record with a few of its bytes changed, taken out or doubled.
    #[test]
    fn mutated_records_never_panic(
        record in record(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..4),
    ) {
        let mut bytes = encode(&record).unwrap().bytes;
        for (place, byte, how) in edits {
            let place = place.index(bytes.len().max(1));
            mutate(&mut bytes, place, byte, how);
        }
        read_all(record.seq, &bytes);
    }

    /// Method: a real snapshot with one byte changed either reads, and then writes itself, or not.
    #[test]
    fn mutated_snapshots_never_panic(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = snapshot::write(&script::small_state()).unwrap().into_bytes();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(Ok(state)) = String::from_utf8(bytes).map(|text| snapshot::read(&text)) {
            drop(snapshot::write(&state).unwrap());
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, place: usize, byte: u8, how: u8) {
    if bytes.is_empty() {
        return;
    }
    match how {
        0 => bytes[place] = byte,
        1 => drop(bytes.remove(place)),
        2 => bytes.insert(place, byte),
        _ => bytes.truncate(place),
    }
}
