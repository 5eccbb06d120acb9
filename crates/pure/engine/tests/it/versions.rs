//! A record of a newer version is distinguished from a damaged one (L8).

use std::error::Error as _;

use bursar_engine::codec::{Error, decode, decode_events};

fn read(bytes: &str) -> Error {
    decode(7, bytes.as_bytes(), |_| None).expect_err("it must not read")
}

fn fold(bytes: &str) -> Result<bursar_engine::Events, Error> {
    decode_events(7, bytes.as_bytes(), |_| None).map(|(_, events)| events)
}

fn framed(cmd: &str, ev: &str) -> String {
    format!(r#"{{"v":1,"seq":7,"t":5,"by":"ada","cmd":{cmd},"ev":{ev}}}"#)
}

#[test]
fn an_unknown_kind_of_event_stops_the_fold_and_is_named() {
    let bytes = framed(
        r#"{"cancel":{"id":"a"}}"#,
        r#"[{"granted":{"id":"a","fence":1}},{"cut":{"id":"a"}}]"#,
    );
    let message = "record 7 needs a newer bursar: it holds `cut`, which this one does not know";
    assert_eq!(read(&bytes).to_string(), message);
    assert_eq!(fold(&bytes).unwrap_err().to_string(), message);
}

#[test]
fn an_unknown_kind_of_command_does_not_stop_the_fold() {
    let bytes = framed(
        r#"{"lease":{"id":"a"}}"#,
        r#"[{"granted":{"id":"a","fence":1}}]"#,
    );
    assert!(matches!(read(&bytes), Error::UnknownKind { seq: 7, kind } if kind == "lease"));
    assert_eq!(fold(&bytes).unwrap().len(), 1);
}

#[test]
fn a_newer_frame_is_named_even_where_its_fields_are_new() {
    for frame in [
        r#"{"v":2,"seq":7,"t":5,"by":"ada","cmd":{"tick":{}},"ev":[]}"#,
        r#"{"v":2,"seq":7,"time":"later","who":null,"did":[1.5]}"#,
    ] {
        let message = "record 7 needs a newer bursar: its frame has version 2";
        assert_eq!(read(frame).to_string(), message);
        assert_eq!(fold(frame).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_newer_format_of_the_ledger_says_so() {
    let bytes = framed(
        r#"{"genesis":{"ledger":"x","format":2}}"#,
        r#"[{"genesis":{"ledger":"x","format":2}}]"#,
    );
    for error in [read(&bytes), fold(&bytes).unwrap_err()] {
        let source = error.source().expect("the cause is kept").to_string();
        assert_eq!(source, "the ledger has format 2 and needs a newer bursar");
    }
}

#[test]
fn a_record_in_the_wrong_place_says_where_it_belongs() {
    let bytes = framed(r#"{"tick":{}}"#, "[]").replace("\"seq\":7", "\"seq\":8");
    assert_eq!(read(&bytes).to_string(), "record 7 has the number 8");
}

#[test]
fn a_new_field_is_refused_and_named_rather_than_ignored() {
    let bytes = framed(
        r#"{"tick":{}}"#,
        r#"[{"granted":{"id":"a","fence":1,"node":"n"}}]"#,
    );
    let error = fold(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "record 7 cannot be read by this version of bursar"
    );
    assert!(
        error
            .source()
            .unwrap()
            .to_string()
            .contains("unknown field `node`")
    );
}

#[test]
fn a_number_has_one_spelling() {
    for (fence, reads) in [
        ("9007199254740991", true),
        ("9007199254740992", false),
        ("\"9007199254740992\"", true),
        ("\"18446744073709551615\"", true),
        ("\"18446744073709551616\"", false),
        ("\"9007199254740991\"", false),
        ("\"09007199254740992\"", false),
        ("\"+9007199254740992\"", false),
        ("1.0", false),
        ("-1", false),
        ("null", false),
    ] {
        let bytes = framed(
            r#"{"tick":{}}"#,
            &format!(r#"[{{"granted":{{"id":"a","fence":{fence}}}}}]"#),
        );
        assert_eq!(fold(&bytes).is_ok(), reads, "{fence}");
    }
}
