//! Bodies that are wrong are told everything that is wrong with them.

use bursar_client::api::body::{Body, read};
use bursar_client::api::{
    ApplyRequest, Batch, BookingRequest, CancelRequest, ReleaseRequest, TokenRequest,
};
use bursar_client::{Code, Problem};
use proptest::prelude::{any, proptest};
use serde_json::json;

fn refusal<T: Body>(text: &str) -> Problem {
    match read::<T>(text.as_bytes()) {
        Ok(_) => panic!("{text} was accepted"),
        Err(problem) => *problem,
    }
}

fn sentences<T: Body>(text: &str) -> Vec<String> {
    let problem = refusal::<T>(text);
    assert_eq!(problem.code, Code::Invalid, "{problem:?}");
    problem
        .errors
        .iter()
        .map(bursar_client::problem::FieldError::sentence)
        .collect()
}

#[test]
fn all_mistakes_of_a_reservation_are_named() {
    assert_eq!(
        sentences::<BookingRequest>(
            r#"{"clas": "a b", "slots": -1, "waitMs": 9007199254740992, "priority": "hihg", "ttlMs": "1"}"#
        ),
        [
            "clas is not a field, did you mean `class`?",
            "class is missing",
            "slots must not be negative, 1 to 9007199254740991 is allowed",
            "ttlMs must be a whole number, leave out the quotes: 1",
            "waitMs must be at most 9007199254740991, 0 to 9007199254740991 is allowed",
            "priority is `hihg`, which is not one of its words, did you mean `high`?",
        ]
    );
    assert_eq!(
        sentences::<BookingRequest>(r#"{"class": "a", "slots": 0, "ttlMs": 999}"#),
        [
            "slots must be at least 1",
            "ttlMs must be between 1000 and 86400000"
        ]
    );
    assert_eq!(
        sentences::<BookingRequest>(r#"{"class": "a", "slots": 1.5}"#),
        ["slots must be a whole number"]
    );
    assert_eq!(
        sentences::<BookingRequest>("[]"),
        ["must be an object with fields"]
    );
}

#[test]
fn mistakes_of_a_batch_name_the_operation() {
    assert_eq!(
        sentences::<Batch>(
            r#"{"operations": [{"op": "cancel", "id": "a"}, {"op": "renew", "id": "a"},
                {"op": "relase", "id": "a"}, {"op": "cancel", "id": "a", "fence": 1}, {"id": "é"}]}"#
        ),
        [
            "operations[1].fence is missing",
            "operations[2].op is `relase`, which is not one of its words, did you mean `release`?",
            "operations[3].fence is not a field, fields are op, id",
            "operations[4].op is missing, one of reserve, renew, release, cancel",
        ]
    );
    assert_eq!(
        sentences::<Batch>(r#"{"operations": [{"op": "release", "id": "a"}]}"#),
        ["operations[0].fence is missing"]
    );
    let many = json!({"operations": vec![json!({"op": "cancel", "id": "a"}); 1025]});
    assert_eq!(refusal::<Batch>(&many.to_string()).code, Code::TooLarge);
}

#[test]
fn a_forced_release_needs_its_reason_and_no_fence() {
    assert!(read::<ReleaseRequest>(br#"{"force": true, "reason": "stuck"}"#).is_ok());
    assert_eq!(
        sentences::<ReleaseRequest>(r#"{"force": true, "fence": 3}"#),
        [
            "fence must be left out with `force`",
            "reason is missing: say why, it goes on record"
        ]
    );
    assert_eq!(
        sentences::<ReleaseRequest>(r#"{"fence": 3, "reason": "done"}"#),
        ["reason goes with `force` only"]
    );
}

#[test]
fn a_token_needs_a_role_and_use_needs_a_tenant() {
    assert_eq!(
        sentences::<TokenRequest>(r#"{"name": "ci", "roles": ["use"], "expires": "soon"}"#).len(),
        2
    );
    assert_eq!(
        sentences::<TokenRequest>(r#"{"name": "ci", "roles": []}"#).len(),
        1
    );
    assert_eq!(
        sentences::<TokenRequest>(r#"{"name": "CI", "roles": ["admin"]}"#),
        [
            "name has the character 'C'; allowed are lower-case letters, digits, - and . (not first or last)",
            "roles[0] is `admin`, which is not one of its words, one of view, use, operate",
        ]
    );
}

#[test]
fn what_cannot_be_read_is_malformed_and_says_where() {
    for text in ["{", r#"{"class": "a""#, "nonsense", &"[".repeat(10_000)] {
        let problem = refusal::<BookingRequest>(text);
        assert_eq!(problem.code, Code::Malformed, "{text:.20}");
        assert!(
            problem.detail.contains("line 1 column"),
            "{}",
            problem.detail
        );
    }
    let problem = *read::<BookingRequest>(b"{\"class\": \"\xff\"}").unwrap_err();
    assert_eq!(
        (problem.code, problem.detail.contains("UTF-8")),
        (Code::Malformed, true)
    );
    let large = format!("{{\"class\": \"{}\"}}", "a".repeat(1 << 20));
    assert_eq!(refusal::<BookingRequest>(&large).code, Code::TooLarge);
}

#[test]
fn an_empty_body_is_an_empty_object() {
    assert!(read::<CancelRequest>(b"").is_ok());
    assert_eq!(sentences::<BookingRequest>(""), ["class is missing"]);
}

proptest! {
    #[test]
    fn no_bytes_make_a_body_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read::<BookingRequest>(&bytes);
        let _ = read::<Batch>(&bytes);
        let _ = read::<ApplyRequest>(&bytes);
    }

    #[test]
    fn no_json_makes_a_body_reader_panic(text in r#"(\{|\}|\[|\]|"op"|"id"|"fence"|:|,|1|-|"reserve"|"class"|null){0,30}"#) {
        let _ = read::<BookingRequest>(text.as_bytes());
        let _ = read::<Batch>(text.as_bytes());
    }
}
