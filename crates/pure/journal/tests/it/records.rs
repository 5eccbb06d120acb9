//! The bounds of a record and the framing of an export.

use bursar_journal::hash::sha256;
use bursar_journal::record::{
    BlobRef, Error, RECORD_BYTES_MAX, check_size, read_entries, write_entry,
};

#[test]
fn a_record_of_65535_bytes_fits_and_one_more_does_not() {
    assert_eq!(check_size(&vec![b' '; RECORD_BYTES_MAX]), Ok(()));
    let size = RECORD_BYTES_MAX + 1;
    assert_eq!(check_size(&vec![b' '; size]), Err(Error::TooLong { size }));

    let mut bundle = Vec::new();
    assert_eq!(
        write_entry(&mut bundle, &vec![b' '; size]),
        Err(Error::TooLong { size })
    );
    assert!(bundle.is_empty());
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
