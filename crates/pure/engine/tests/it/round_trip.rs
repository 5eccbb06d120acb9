//! Records read back as they were written, with numbers that every JSON reader can hold (L7).

use bursar_engine::codec::{decode, decode_events, encode};
use bursar_engine::{Command, Event};
use bursar_units::INTEGER_MAX;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::strategies::{
    booking_command, booking_event, market_command, market_event, record, spine_command,
    spine_event,
};

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
        let (time, events) = decode_events(record.seq, &encoded.bytes, blob).unwrap();
        prop_assert_eq!((time, &events), (record.time, &record.events));
        let again = encode(&decode(record.seq, &encoded.bytes, blob).unwrap()).unwrap();
        prop_assert_eq!(again, encoded);
    }

    /// Method: the bytes of a plane's command are those of the command that holds it; both read back,
    /// and are written again byte for byte.
    #[test]
    fn every_command_of_a_plane_is_written_and_read_as_it_is_without_its_plane(
        spine in spine_command(),
        booking in booking_command(),
        market in market_command(),
    ) {
        round_trips::<_, Command>(&spine)?;
        round_trips::<_, Command>(&booking)?;
        round_trips::<_, Command>(&market)?;
    }

    /// Method: the same for events.
    #[test]
    fn every_event_of_a_plane_is_written_and_read_as_it_is_without_its_plane(
        spine in spine_event(),
        booking in booking_event(),
        market in market_event(),
    ) {
        round_trips::<_, Event>(&spine)?;
        round_trips::<_, Event>(&booking)?;
        round_trips::<_, Event>(&market)?;
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

fn round_trips<P, W>(of_plane: &P) -> Result<(), TestCaseError>
where
    P: Clone + std::fmt::Debug + PartialEq + Serialize + DeserializeOwned,
    W: From<P> + std::fmt::Debug + PartialEq + Serialize + DeserializeOwned,
{
    let bytes = serde_json::to_string(of_plane).unwrap();
    let alone: P = serde_json::from_str(&bytes).unwrap();
    prop_assert_eq!(&alone, of_plane);
    let whole: W = serde_json::from_str(&bytes).unwrap();
    prop_assert_eq!(&whole, &W::from(alone));
    prop_assert_eq!(serde_json::to_string(&whole).unwrap(), bytes);
    Ok(())
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
