//! The size limit of a record and the framing of an export.

use bursar_journal::hash::sha256;
use bursar_journal::record::{BlobRef, RECORD_BYTES_MAX, TooLong, blob_refs, write_entry};

#[test]
fn a_record_of_65535_bytes_fits_and_one_more_does_not() {
    let size = RECORD_BYTES_MAX + 1;
    let mut bundle = Vec::new();
    assert_eq!(
        write_entry(&mut bundle, &vec![b' '; size]),
        Err(TooLong { size })
    );
    assert!(bundle.is_empty());
    assert_eq!(
        write_entry(&mut bundle, &vec![b' '; RECORD_BYTES_MAX]),
        Ok(())
    );
}

#[test]
fn a_bundle_has_each_record_behind_its_size_in_two_bytes() {
    let largest = vec![b'x'; RECORD_BYTES_MAX];
    let mut bundle = Vec::new();
    for record in [b"".as_slice(), b"{}", &largest] {
        write_entry(&mut bundle, record).unwrap();
    }
    let expected = [b"\0\0\0\x02{}\xff\xff".as_slice(), &largest].concat();
    assert_eq!(bundle, expected);
}

#[test]
fn a_blob_is_referred_to_by_hash_and_size() {
    let blob = BlobRef::to(b"[1,2,3]");
    let text = format!(r#"{{"blob":"{}","size":7}}"#, sha256(b"[1,2,3]"));
    assert_eq!(serde_json::to_string(&blob).unwrap(), text);
    assert_eq!(serde_json::from_str::<BlobRef>(&text).unwrap(), blob);
    let more = text.replace('}', r#","note":1}"#);
    assert!(serde_json::from_str::<BlobRef>(&more).is_err());
}

#[test]
fn a_record_refers_to_the_blobs_of_its_command_and_events_only() {
    let (cmd, ev) = (BlobRef::to(b"{}"), BlobRef::to(b"[]"));
    let text = |blob: &BlobRef| serde_json::to_string(blob).unwrap();
    let named = |cmd: &str, ev: &str| {
        let record = format!(r#"{{"v":1,"cmd":{cmd},"ev":{ev}}}"#);
        blob_refs(record.as_bytes()).unwrap()
    };
    assert_eq!(named(&text(&cmd), &text(&ev)), [cmd, ev]);
    assert_eq!(named("{}", &text(&ev)), [ev]);
    assert_eq!(named(&text(&cmd), "[]"), [cmd]);
    let list = format!(r#"["{}",2]"#, ev.sha256);
    assert_eq!(named(&format!("[{}]", text(&cmd)), &list), []);
    assert_eq!(blob_refs(b"{}").unwrap(), []);
    assert!(blob_refs(b"").is_err());
}
