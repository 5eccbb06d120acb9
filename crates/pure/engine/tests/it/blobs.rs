//! Parts that do not fit into a record are stored beside it and checked when read (L9).

use bursar_booking::decide::Change;
use bursar_booking::{Command as BookingCommand, Event as BookingEvent, Fence};
use bursar_engine::codec::{Encoded, Error, Record, decode, decode_events, encode};
use bursar_engine::{Events, spine};
use bursar_journal::hash::Hash;
use bursar_journal::record::{RECORD_BYTES_MAX, blob_refs};
use bursar_units::{BookingId, Instant, Label, ObjectName};

fn record(changes: usize, grants: usize) -> Record {
    let time = Instant::from_ms(1_000);
    let name = |at: usize| ObjectName::new(&format!("limit-{at:05}")).unwrap();
    let id = |at: usize| BookingId::new(&format!("booking-{at:05}")).unwrap();
    let changes: Vec<Change> = (0..changes)
        .map(|at| Change::DropLimit { name: name(at) })
        .collect();
    let events: Events = (0..grants)
        .map(|at| {
            BookingEvent::Granted {
                id: id(at),
                fence: Fence(1),
                of: None,
                t: None,
            }
            .into()
        })
        .collect();
    Record {
        seq: 3,
        time,
        by: Label::new("ada").unwrap(),
        command: spine::Command::change(changes).into(),
        events,
    }
}

fn blob_of(encoded: &Encoded) -> impl Fn(&Hash) -> Option<Vec<u8>> {
    |sha256| {
        encoded
            .blobs
            .iter()
            .find(|blob| blob.sha256 == *sha256)
            .map(|blob| blob.bytes.clone())
    }
}

#[test]
fn only_what_would_not_fit_is_moved_out_the_larger_part_first() {
    for (changes, grants, blobs, cmd_out, ev_out) in [
        (10, 10, 0, false, false),
        (10, 3_000, 1, false, true),
        (3_000, 10, 1, true, false),
        (3_000, 3_000, 2, true, true),
        (1_000, 1_200, 1, false, true),
    ] {
        let record = record(changes, grants);
        let encoded = encode(&record).unwrap();
        let text = String::from_utf8(encoded.bytes.clone()).unwrap();
        assert!(encoded.bytes.len() <= RECORD_BYTES_MAX);
        assert_eq!(encoded.blobs.len(), blobs, "{changes} {grants}");
        assert_eq!(text.contains("\"cmd\":{\"blob\":"), cmd_out);
        assert_eq!(text.contains("\"ev\":{\"blob\":"), ev_out);
        assert_eq!(
            decode(3, &encoded.bytes, blob_of(&encoded)).unwrap(),
            record
        );
        assert_eq!(
            decode_events(3, &encoded.bytes, blob_of(&encoded)).unwrap(),
            (record.time, record.events)
        );
        let named: Vec<Hash> = blob_refs(&encoded.bytes)
            .unwrap()
            .into_iter()
            .map(|blob| blob.sha256)
            .collect();
        let mut kept: Vec<Hash> = encoded.blobs.iter().map(|blob| blob.sha256).collect();
        if cmd_out && ev_out && encoded.blobs[0].bytes.starts_with(b"[") {
            kept.reverse();
        }
        assert_eq!(named, kept);
    }
}

/// Method: one record at the bound to the byte, and one a byte above it.
#[test]
fn a_record_of_exactly_the_bound_stays_whole() {
    let of_length = |length: usize| {
        let reason = "x".repeat(length);
        let id = BookingId::new("a").unwrap();
        Record {
            command: BookingCommand::Force { id, reason }.into(),
            ..record(0, 0)
        }
    };
    let frame = encode(&of_length(0)).unwrap().bytes.len();
    let whole = encode(&of_length(RECORD_BYTES_MAX - frame)).unwrap();
    assert_eq!(
        (whole.bytes.len(), whole.blobs.len()),
        (RECORD_BYTES_MAX, 0)
    );
    let split = encode(&of_length(RECORD_BYTES_MAX - frame + 1)).unwrap();
    assert_eq!(split.blobs.len(), 1);
}

#[test]
fn a_missing_or_damaged_blob_is_named() {
    let encoded = encode(&record(10, 3_000)).unwrap();
    let good = encoded.blobs[0].bytes.clone();
    let sha256 = encoded.blobs[0].sha256;
    let mut flipped = good.clone();
    flipped[100] ^= 1;
    let mut longer = good.clone();
    longer.push(b' ');
    for bytes in [None, Some(flipped), Some(longer), Some(Vec::new())] {
        let error = decode_events(3, &encoded.bytes, |_| bytes.clone()).unwrap_err();
        assert!(matches!(error, Error::Blob { seq: 3, sha256: named } if named == sha256));
        assert_eq!(
            error.to_string(),
            format!("record 3 names blob {sha256}, which is missing or damaged")
        );
    }
    assert!(decode_events(3, &encoded.bytes, |_| Some(good.clone())).is_ok());
}

#[test]
fn an_unknown_kind_inside_a_blob_is_named() {
    let blob = br#"[{"cut":{"id":"a"}}]"#.to_vec();
    let reference = bursar_journal::record::BlobRef::to(&blob);
    let reference = serde_json::to_string(&reference).unwrap();
    let bytes =
        format!(r#"{{"v":1,"seq":3,"t":5,"by":"a","cmd":{{"tick":{{}}}},"ev":{reference}}}"#);
    let error = decode_events(3, bytes.as_bytes(), |_| Some(blob.clone())).unwrap_err();
    assert!(matches!(error, Error::UnknownKind { kind, .. } if kind == "cut"));
}
