//! What is written reads back the same, and keeps to the numbers that every reader can hold (L7).

use bursar_engine::codec::{decode, decode_events, encode};
use bursar_units::INTEGER_MAX;
use proptest::prelude::*;
use serde_json::Value;

use crate::strategies::record;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Method: any record of any command and any events, through bytes and back.
    #[test]
    fn every_record_reads_back_as_it_was_written(record in record()) {
        let encoded = encode(&record).unwrap();
        let blob = |sha256: &_| {
            encoded.blobs.iter().find(|blob| blob.sha256 == *sha256).map(|blob| blob.bytes.clone())
        };
        prop_assert_eq!(&decode(record.seq, &encoded.bytes, blob).unwrap(), &record);
        prop_assert_eq!(&decode_events(record.seq, &encoded.bytes, blob).unwrap(), &record.events);
        let again = encode(&decode(record.seq, &encoded.bytes, blob).unwrap()).unwrap();
        prop_assert_eq!(again, encoded);
    }

    /// Method: walk the JSON of any record.
    #[test]
    fn a_record_has_no_float_no_null_and_no_integer_above_the_bound(record in record()) {
        let encoded = encode(&record).unwrap();
        for bytes in encoded.blobs.iter().map(|blob| &blob.bytes).chain([&encoded.bytes]) {
            let value: Value = serde_json::from_slice(bytes).unwrap();
            prop_assert!(is_plain(&value), "{value}");
        }
    }
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => {
            number.is_i64() && number.as_i64() <= i64::try_from(INTEGER_MAX).ok()
        }
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(fields) => fields.values().all(is_plain),
    }
}
