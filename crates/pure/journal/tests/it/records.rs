//! The bounds of a record and the framing of an export.

use bursar_journal::hash::sha256;
use bursar_journal::record::{
    BlobRef, Error, RECORD_BYTES_MAX, blob_refs, read_entries, write_entry,
};

#[test]
fn a_record_of_65535_bytes_fits_and_one_more_does_not() {
    let size = RECORD_BYTES_MAX + 1;
    let mut bundle = Vec::new();
    assert_eq!(
        write_entry(&mut bundle, &vec![b' '; size]),
        Err(Error::TooLong { size })
    );
    assert!(bundle.is_empty());
    assert_eq!(
        write_entry(&mut bundle, &vec![b' '; RECORD_BYTES_MAX]),
        Ok(())
    );
}

#[test]
fn a_bundle_gives_back_its_records_and_nothing_else() {
    let records = [vec![], b"{}".to_vec(), vec![b'x'; RECORD_BYTES_MAX]];
    let mut bundle = Vec::new();
    for record in &records {
        write_entry(&mut bundle, record).unwrap();
    }
    assert_eq!(bundle[..4], [0, 0, 0, 2]);
    assert_eq!(read_entries(&bundle).unwrap(), records);
    assert_eq!(read_entries(&bundle[..1]), Err(Error::Cut { place: 0 }));
    assert_eq!(
        read_entries(&bundle[..bundle.len() - 1]),
        Err(Error::Cut { place: 2 })
    );
    assert_eq!(read_entries(&[0; 2 * 256]).unwrap().len(), 256);
    assert_eq!(read_entries(&[0; 2 * 257]), Err(Error::TooMany));
}

#[test]
fn a_blob_stands_in_a_record_as_hash_and_size() {
    let blob = BlobRef::to(b"[1,2,3]");
    let text = format!(r#"{{"blob":"{}","size":7}}"#, sha256(b"[1,2,3]"));
    assert_eq!(serde_json::to_string(&blob).unwrap(), text);
    assert_eq!(serde_json::from_str::<BlobRef>(&text).unwrap(), blob);
    let more = text.replace('}', r#","note":1}"#);
    assert!(serde_json::from_str::<BlobRef>(&more).is_err());
}

#[test]
fn a_record_names_the_blobs_in_place_of_its_command_and_its_events_and_no_others() {
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
