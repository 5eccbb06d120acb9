//! The proof file: its checks and its errors.

use bursar_journal::checkpoint::{Checkpoint, Name, SigningKey, VerifierKey};
use bursar_journal::hash::leaf_hash;
use bursar_journal::merkle::prove_inclusion;
use bursar_journal::proof::{Check, Error, PROOF_BYTES_MAX, Proof, Proven};
use bursar_journal::record::{BlobRef, RECORD_BYTES_MAX};
use bursar_journal::tile::Builder;

use crate::store::NoTiles;

const BLOB: &str = r#"[{"granted":"job-1"}]"#;

fn key() -> SigningKey {
    let name = Name::ledger("0198f3c2-0000-7000-8000-000000000000", 1).unwrap();
    SigningKey::from_seed(name, [7; 32])
}

fn verifier() -> VerifierKey {
    key().verifier()
}

/// The record with a number; every fifth has its events in a blob.
fn record(seq: u64) -> String {
    if seq.is_multiple_of(5) {
        let blob = serde_json::to_string(&BlobRef::to(BLOB.as_bytes())).unwrap();
        return format!(r#"{{"v":1,"seq":{seq},"t":7,"by":"ada","cmd":{{}},"ev":{blob}}}"#);
    }
    format!(r#"{{"v":1,"seq":{seq},"t":7,"by":"ada","cmd":{{}},"ev":[{{"k":"\"ß\""}}]}}"#)
}

/// The proof of some records of a ledger of 20.
pub(crate) fn proof(seqs: &[u64]) -> Proof {
    let mut builder = Builder::new();
    (0..20).for_each(|seq| builder.push(leaf_hash(record(seq).as_bytes()), &mut Vec::new()));
    let checkpoint = Checkpoint {
        origin: key().name().clone(),
        size: builder.size(),
        root: builder.root(),
    };
    let proven = |seq: &u64| Proven {
        seq: *seq,
        leaf: leaf_hash(record(*seq).as_bytes()),
        bytes: record(*seq),
        blobs: if seq.is_multiple_of(5) {
            vec![BLOB.to_owned()]
        } else {
            Vec::new()
        },
        inclusion: prove_inclusion(&builder.over(&NoTiles), *seq, 20).unwrap(),
    };
    Proof {
        v: 1,
        object: "booking/job-1".to_owned(),
        checkpoint: checkpoint.sign([&key()]),
        keys: vec![verifier()],
        records: seqs.iter().map(proven).collect(),
    }
}

/// The lines of the output.
fn lines(proof: &Proof) -> Vec<String> {
    let line = |check: Check| {
        format!(
            "{} {}: {}",
            if check.ok { "ok" } else { "FAIL" },
            check.name,
            check.detail
        )
    };
    proof.verify(&verifier()).into_iter().map(line).collect()
}

fn signed_line() -> String {
    format!(
        "ok signed: checkpoint 20 by bursar/0198f3c2…/1+{}",
        verifier().id()
    )
}

#[test]
fn a_valid_proof_lists_its_checks() {
    let check = |seqs: &[u64], expected: &[&str]| {
        let lines = lines(&Proof::parse(&proof(seqs).to_text().unwrap()).unwrap());
        assert_eq!(lines[0], signed_line());
        assert_eq!(lines[1..], *expected);
    };
    check(&[7], &["ok included: record 7 is in that ledger"]);
    check(
        &[6, 7, 8],
        &["ok included: records 6 to 8 are in that ledger"],
    );
    check(
        &[1, 3, 19],
        &["ok included: 3 records from 1 to 19 are in that ledger"],
    );
    check(
        &[5],
        &[
            "ok included: record 5 is in that ledger",
            "ok blobs: 1 blob is as the records say",
        ],
    );
    check(
        &[4, 5, 10],
        &[
            "ok included: 3 records from 4 to 10 are in that ledger",
            "ok blobs: 2 blobs are as the records say",
        ],
    );
}

#[test]
fn large_numbers_are_grouped() {
    let mut proof = proof(&[7]);
    let root = leaf_hash(proof.records[0].bytes.as_bytes());
    let checkpoint = Checkpoint {
        origin: key().name().clone(),
        size: 1_048_230,
        root,
    };
    proof.checkpoint = checkpoint.sign([&key()]);
    assert!(lines(&proof)[0].starts_with("ok signed: checkpoint 1,048,230 by "));
}

#[test]
fn an_edited_record_differs_from_the_signed_leaf() {
    let mut proof = proof(&[6, 7, 8]);
    let held = proof.records[1].leaf.short();
    proof.records[1].bytes = record(7).replace("ada", "eve");
    let computed = leaf_hash(proof.records[1].bytes.as_bytes()).short();
    let expected =
        format!("FAIL included: record 7 hashes to {computed}, the signed ledger holds {held}");
    assert_eq!(lines(&proof), [signed_line(), expected.clone()]);

    proof.records[2].bytes = record(8).replace("ada", "eve");
    assert_eq!(lines(&proof)[1], format!("{expected}, and 1 more"));
}

#[test]
fn a_record_that_was_never_in_the_ledger_leads_to_another_root() {
    let mut proof = proof(&[7]);
    proof.records[0].bytes = record(7).replace("ada", "eve");
    proof.records[0].leaf = leaf_hash(proof.records[0].bytes.as_bytes());
    let line = &lines(&proof)[1];
    assert!(
        line.starts_with("FAIL included: record 7 leads to root "),
        "{line}"
    );
    assert!(line.contains("…, the signed root is "), "{line}");
}

#[test]
fn a_record_in_the_wrong_place_is_refused() {
    let mut outside = proof(&[7]);
    outside.records[0].seq = 20;
    assert_eq!(
        lines(&outside)[1],
        "FAIL included: record 20 is after the signed 20"
    );

    let mut cut = proof(&[7]);
    cut.records[0].inclusion.pop();
    assert_eq!(
        lines(&cut)[1],
        "FAIL included: record 7: a proof of 4 hashes has the wrong length"
    );
    assert_eq!(
        lines(&proof(&[8, 7]))[1],
        "FAIL included: record 7 stands after record 8"
    );
    assert_eq!(
        lines(&proof(&[7, 7]))[1],
        "FAIL included: record 7 stands after record 7"
    );
    assert_eq!(
        lines(&proof(&[]))[1],
        "FAIL included: the proof holds no record"
    );
}

#[test]
fn without_a_signature_by_the_pinned_key_every_check_fails() {
    let stranger = SigningKey::from_seed(key().name().clone(), [8; 32]);
    let checks = proof(&[7]).verify(&stranger.verifier());
    assert!(checks.iter().all(|check| !check.ok));
    assert!(
        checks[0]
            .detail
            .starts_with("not signed by bursar/0198f3c2…/1+")
    );
    assert_eq!(checks[1].detail, "no signed root to compare with");
}

#[test]
fn a_checkpoint_of_another_ledger_is_named() {
    let mut other = proof(&[7]);
    let opened = Checkpoint::open(&other.checkpoint, &verifier()).unwrap();
    let fork = Checkpoint {
        origin: "bursar/fork/2".parse().unwrap(),
        ..opened
    };
    other.checkpoint = fork.sign([&key()]);
    let expected = format!(
        "ok signed: checkpoint 20 of bursar/fork/2 by bursar/0198f3c2…/1+{}",
        verifier().id()
    );
    assert_eq!(lines(&other)[0], expected);
}

#[test]
fn blobs_must_be_those_that_the_record_refers_to() {
    let short = BlobRef::to(BLOB.as_bytes()).sha256.short();
    let mut missing = proof(&[5]);
    missing.records[0].blobs.clear();
    assert_eq!(
        lines(&missing)[2],
        format!("FAIL blobs: record 5 refers to blob {short} of 21 bytes, which is not here")
    );
    let mut changed = proof(&[5]);
    changed.records[0].blobs[0] = BLOB.replace("job-1", "job-2");
    assert!(lines(&changed)[2].starts_with("FAIL blobs: record 5 refers to blob "));
    let mut more = proof(&[6]);
    more.records[0].blobs.push(BLOB.to_owned());
    assert_eq!(
        lines(&more)[2],
        format!("FAIL blobs: record 6 does not refer to blob {short} of 21 bytes")
    );
    // A list of events is not a reference, even if it holds just a hash and a number.
    let mut list = proof(&[6]);
    list.records[0].bytes = format!(r#"{{"cmd":{{}},"ev":["{}",21]}}"#, list.records[0].leaf);
    assert_eq!(lines(&list).len(), 2);
    let mut unreadable = proof(&[6]);
    unreadable.records[0].bytes.pop();
    assert!(lines(&unreadable)[2].starts_with("FAIL blobs: record 6 is not readable as JSON: "));
}

/// The name of the object is the only part that the signature does not cover.
#[test]
fn every_flipped_bit_of_a_proof_file_is_rejected() {
    let text = proof(&[4, 5]).to_text().unwrap();
    let object = text.find("booking/job-1").unwrap();
    let object = object..object + "booking/job-1".len();
    for bit in 0..text.len() * 8 {
        let mut bytes = text.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let Ok(changed) = String::from_utf8(bytes) else {
            continue;
        };
        let Ok(parsed) = Proof::parse(&changed) else {
            continue;
        };
        let accepted = parsed.verify(&verifier()).iter().all(|check| check.ok);
        assert!(
            !accepted || object.contains(&(bit / 8)),
            "bit {bit}: {changed}"
        );
    }
}

#[test]
fn a_file_is_refused_unless_it_is_spelled_as_written() {
    let text = proof(&[4, 5]).to_text().unwrap();
    let read = Proof::parse(&text).unwrap();
    assert_eq!(read, proof(&[4, 5]));
    assert_eq!(Proof::parse(&format!("{text}\n")).unwrap(), read);

    for other in [
        format!(" {text}"),
        format!("{text}\n\n"),
        text.replacen("\"v\":1,", "\"v\": 1,", 1),
        text.replacen("ß", "\\u00df", 1),
        text.replacen("\"keys\":[", "\"keys\":[ ", 1),
    ] {
        assert!(
            matches!(Proof::parse(&other), Err(Error::Spelling)),
            "{other}"
        );
    }
    for other in [
        text.replacen("\"v\":1,", "\"v\":1,\"note\":1,", 1),
        text.replacen("\"seq\":4,", "\"seq\":4,\"note\":1,", 1),
        text.replacen("\"seq\":4,", "\"seq\":4.0,", 1),
        text.replacen("\"seq\":4,", "\"seq\":-4,", 1),
        text.replacen("\"seq\":4,", "\"seq\":4,\"seq\":4,", 1),
        format!("{text}{text}"),
        text[..text.len() - 1].to_owned(),
        "[".repeat(100_000),
        "{}".to_owned(),
        String::new(),
    ] {
        assert!(
            matches!(Proof::parse(&other), Err(Error::Read { .. })),
            "{other}"
        );
    }
    let newer = text.replacen("\"v\":1,", "\"v\":2,\"note\":1,", 1);
    assert!(matches!(
        Proof::parse(&newer),
        Err(Error::Version { version: 2 })
    ));
}

#[test]
fn everything_in_a_file_is_bounded() {
    let check = |change: &dyn Fn(&mut Proof)| {
        let mut proof = proof(&[4]);
        change(&mut proof);
        let parsed = Proof::parse(&proof.to_text().unwrap());
        assert!(
            matches!(parsed, Err(Error::TooLarge { .. })),
            "{:?}",
            parsed.map(drop)
        );
        // A value that was not read from a file can be verified too.
        assert!(!proof.verify(&verifier()).is_empty());
    };
    check(&|proof| proof.object = "x".repeat(513));
    check(&|proof| proof.checkpoint = "x".repeat(65_537));
    check(&|proof| proof.keys = vec![verifier(); 17]);
    check(&|proof| proof.records = vec![proof.records[0].clone(); 10_001]);
    check(&|proof| proof.records[0].bytes = "x".repeat(RECORD_BYTES_MAX + 1));
    check(&|proof| proof.records[0].inclusion = vec![proof.records[0].leaf; 65]);
    check(&|proof| proof.records[0].blobs = vec!["x".repeat(PROOF_BYTES_MAX)]);
}
