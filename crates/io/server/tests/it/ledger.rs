//! The ledger: status, records, proofs, the log, copies, keys and pruning.

use bursar_engine::Reference;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::Hash;
use bursar_journal::merkle::verify_inclusion;
use bursar_journal::proof::Proof;
use bursar_journal::tile::tile_hashes;
use bursar_ledger::index::{FILE_NAME, Index, Indexer, Pace, Progress};
use bursar_ledger::store::{Reader as _, Store as _};
use serde_json::json;

use crate::world::{LEDGER, World, user};

async fn key(world: &World) -> VerifierKey {
    let status = world.ask("GET", "/v1/ledger", "").await.json();
    status["key"].as_str().unwrap().parse().unwrap()
}

async fn work(world: &World, count: u64) {
    for n in 0..count {
        let id = format!("job-{n}");
        let fence = world.grant(&id, "python", "acme").await;
        let body = format!(r#"{{"fence":{fence}}}"#);
        world
            .ask("POST", &format!("/v1/bookings/{id}/release"), &body)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_proof_verifies_offline_and_names_its_object() {
    let world = World::new();
    world
        .limit("python", r#"{"class":"python","slots":7}"#)
        .await;
    work(&world, 300).await;
    let key = key(&world).await;
    for (reference, records) in [("booking/job-7", 2), ("limit/python", 1), ("record/3", 1)] {
        let reply = world
            .ask("GET", &format!("/v1/proofs/{reference}"), "")
            .await;
        let proof = Proof::parse(&reply.text()).unwrap();
        assert_eq!(
            (proof.object.as_str(), proof.records.len()),
            (reference, records)
        );
        let checks = proof.verify(&key);
        assert!(checks.iter().all(|check| check.ok), "{checks:?}");
    }
    world
        .ask("GET", "/v1/proofs/booking/job", "")
        .await
        .is_problem("not-found");
    world
        .ask("GET", "/v1/proofs/record/99999", "")
        .await
        .is_problem("not-found");
    world
        .ask("GET", "/v1/proofs/record/x", "")
        .await
        .is_problem("invalid");
    world
        .ask("GET", "/v1/proofs/records/1", "")
        .await
        .is_problem("not-found");
}

/// Method: the same names are given to proofs, to the search and to the function that both use.
#[tokio::test(start_paused = true)]
async fn proofs_and_searches_accept_and_refuse_the_same_objects() {
    let world = World::new();
    world.limit("python", r#"{"class":"py","slots":7}"#).await;
    world.grant("job-1", "py", "victim").await;
    let token = r#"{"name":"ci","roles":["view"],"expires":"30d"}"#;
    assert_eq!(world.ask("POST", "/v1/tokens", token).await.status, 201);
    for right in ["booking/job-1", "limit/python", "token/ci", "record/0"] {
        let proof = world.ask("GET", &format!("/v1/proofs/{right}"), "").await;
        assert_eq!(proof.status, 200, "{right}: {}", proof.text());
        let path = format!("/v1/records?object={right}");
        let found = world.ask("GET", &path, "").await;
        assert_eq!(
            found.json()["items"].as_array().unwrap().len(),
            1,
            "{right}"
        );
    }
    for other in [
        "token/root",
        "booking/victim",
        "booking/py",
        "limit/py",
        "node/python",
    ] {
        let proof = world.ask("GET", &format!("/v1/proofs/{other}"), "").await;
        proof.is_problem("not-found");
        let path = format!("/v1/records?object={other}");
        let found = world.ask("GET", &path, "").await;
        assert_eq!(found.json()["items"], json!([]), "{other}");
    }
    for wrong in [
        "wedding/job-1",
        "bookings/job-1",
        "record/x",
        "limit/Python",
    ] {
        let words = wrong.parse::<Reference>().unwrap_err().to_string();
        for path in [
            format!("/v1/proofs/{wrong}"),
            format!("/v1/records?object={wrong}"),
        ] {
            let refused = world.ask("GET", &path, "").await.json();
            assert_eq!(refused["detail"], words, "{path}");
        }
    }
}

/// Method: the same requests without an index, after each commit to one, and with a damaged one.
#[tokio::test(start_paused = true)]
async fn proofs_and_pages_of_records_are_the_same_with_and_without_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let index = Index::of(directory.path(), LEDGER, 0);
    let world = World::indexed(index.clone());
    world
        .limit("python", r#"{"class":"python","slots":3}"#)
        .await;
    work(&world, 20).await;
    world
        .limit("python", r#"{"class":"python","slots":9}"#)
        .await;
    // This proof signs a checkpoint over all records, so that no later one is signed.
    let last = format!("/v1/proofs/record/{}", world.service.record());
    assert_eq!(world.ask("GET", &last, "").await.status, 200);
    let scanned = answers(&world).await;
    assert_eq!(scanned, naive(&world));
    let pace = Pace {
        records_max: 9,
        subjects_max: usize::MAX,
        records_min: 1,
    };
    let (reader, head) = (world.store.reader().unwrap(), world.service.record() + 1);
    let mut indexer = Indexer::new(index, pace);
    let mut steps = 0;
    while indexer.step(reader.as_ref(), head).unwrap() == Progress::Behind {
        steps += 1;
        assert_eq!(answers(&world).await, scanned, "step {steps}");
    }
    assert!(3 < steps, "{steps}");
    assert_eq!(answers(&world).await, scanned, "all is indexed");
    std::fs::write(directory.path().join(FILE_NAME), "damaged").unwrap();
    assert_eq!(answers(&world).await, scanned, "damaged");
}

/// Method: the last of more records than are read for a page.
#[tokio::test(start_paused = true)]
async fn a_search_with_an_index_needs_one_page_in_any_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let index = Index::of(directory.path(), LEDGER, 0);
    let world = World::indexed(index.clone());
    for batch in 0..21 {
        let operation = |n: u32| {
            format!(
                r#"{{"op":"reserve","id":"{batch}-{n}","class":"c-{batch}-{n}","tenant":"t-{n}"}}"#
            )
        };
        let operations: Vec<String> = (0..1_000).map(operation).collect();
        let body = format!(r#"{{"operations":[{}]}}"#, operations.join(","));
        world.ask("POST", "/v1/bookings", &body).await;
    }
    let (reader, head) = (world.store.reader().unwrap(), world.service.record() + 1);
    assert!(20_000 < head, "{head}");
    let search = async || {
        world
            .ask("GET", "/v1/records?object=booking/20-999", "")
            .await
            .json()
    };
    let page = search().await;
    assert_eq!(page["items"].as_array().unwrap().len(), 0, "{page}");
    assert!(page["nextCursor"].is_string(), "{page}");
    let mut indexer = Indexer::new(index, Pace::RUNNING);
    while indexer.step(reader.as_ref(), head).unwrap() == Progress::Behind {}
    let page = search().await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
    assert!(page["nextCursor"].is_null(), "{page}");
}

const ABOUT: [&str; 5] = [
    "booking/job-3",
    "booking/job-19",
    "limit/python",
    "record/5",
    "node/nobody",
];

/// Reads all pages of some searches with several page sizes, then some proofs.
async fn answers(world: &World) -> Vec<String> {
    let mut answers = Vec::new();
    for (about, limit) in ABOUT
        .iter()
        .flat_map(|about| [(about, 1), (about, 2), (about, 100)])
    {
        let mut cursor = "0".to_owned();
        while !cursor.is_empty() {
            let path = format!("/v1/records?object={about}&limit={limit}&cursor={cursor}");
            let page = world.ask("GET", &path, "").await.json();
            let items = page["items"].as_array().unwrap().iter();
            let seqs: Vec<&serde_json::Value> = items.map(|item| &item["seq"]).collect();
            cursor = page["nextCursor"]
                .as_str()
                .map_or_else(String::new, str::to_owned);
            answers.push(format!("{about} {limit}: {seqs:?} then {cursor:?}"));
        }
    }
    for about in ABOUT {
        let proof = world.ask("GET", &format!("/v1/proofs/{about}"), "").await;
        let records = Proof::parse(&proof.text()).map(|proof| {
            let records = proof.records.iter().map(|record| record.seq);
            records.collect::<Vec<_>>()
        });
        answers.push(format!("{about}: {} {:?}", proof.status, records.ok()));
    }
    answers
}

/// Naive oracle of [`answers`]: a full page ends after its last record, any other at the head.
fn naive(world: &World) -> Vec<String> {
    let reader = world.store.reader().unwrap();
    let kept = reader.records(0, usize::MAX).unwrap();
    let all = |about: &str| -> Vec<u64> {
        let subject: Reference = about.parse().unwrap();
        let is_about = |seq: u64, bytes: &[u8]| {
            let record = bursar_engine::codec::decode(seq, bytes, |_| None).unwrap();
            bursar_engine::subject::is_about(&record, &subject)
        };
        let about = kept
            .iter()
            .filter(|kept| is_about(kept.seq, kept.bytes.as_deref().unwrap()));
        about.map(|kept| kept.seq).collect()
    };
    let head = world.service.record() + 1;
    let mut answers = Vec::new();
    for (about, limit) in ABOUT
        .iter()
        .flat_map(|about| [(about, 1), (about, 2), (about, 100)])
    {
        let mut left = all(about);
        loop {
            let page: Vec<u64> = left.drain(..limit.min(left.len())).collect();
            let next = match page.last() {
                Some(last) if page.len() == limit && last + 1 < head => (last + 1).to_string(),
                _ => String::new(),
            };
            answers.push(format!(
                "{about} {limit}: {:?} then {next:?}",
                json!(page).as_array().unwrap()
            ));
            if next.is_empty() {
                break;
            }
        }
    }
    for about in ABOUT {
        let seqs = all(about);
        answers.push(if seqs.is_empty() {
            format!("{about}: 404 Not Found None")
        } else {
            format!("{about}: 200 OK {:?}", Some(seqs))
        });
    }
    answers
}

/// Method: the ledger runs on its three threads, where a checkpoint is signed only once a second.
#[tokio::test]
async fn an_export_is_signed_up_to_its_last_record() {
    let world = World::threaded();
    for number in 0..3 {
        world.grant(&format!("a-{number}"), "python", "acme").await;
        let last = world.service.record();
        let text = world.ask("GET", "/v1/ledger/export", "").await.text();
        let records = text.lines().filter(|line| line.starts_with(r#"{"v":1,"#));
        assert_eq!(records.count() as u64, last + 1);
        let note = text.lines().last().unwrap();
        assert!(note.starts_with(r#"{"checkpoint":"#), "{note}");
        assert!(note.contains(&format!("\\n{}\\n", last + 1)), "{note}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_gets_proofs_of_its_own_records_only() {
    let world = World::new();
    world
        .limit("python", r#"{"class":"python","slots":1}"#)
        .await;
    let fence = world.grant("mine", "python", "acme").await;
    let wait = r#"{"class":"python","tenant":"zeta","waitMs":60000}"#;
    world.ask("PUT", "/v1/bookings/theirs", wait).await;
    let proof = world
        .ask_as(user(&["acme"]), "GET", "/v1/proofs/booking/mine", "")
        .await;
    assert_eq!(Proof::parse(&proof.text()).unwrap().records.len(), 1);
    // The record of the release also grants the booking of another tenant.
    world
        .ask(
            "POST",
            "/v1/bookings/mine/release",
            &format!(r#"{{"fence":{fence}}}"#),
        )
        .await;
    let refused = world
        .ask_as(user(&["acme"]), "GET", "/v1/proofs/booking/mine", "")
        .await;
    refused.is_problem("not-allowed");
    assert_eq!(
        world.ask("GET", "/v1/proofs/booking/mine", "").await.status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn tiles_match_the_checkpoint_and_full_ones_may_be_cached() {
    let world = World::new();
    work(&world, 200).await;
    let key = key(&world).await;
    world.ask("GET", "/v1/proofs/record/0", "").await;
    let note = world.ask("GET", "/log/checkpoint", "").await.text();
    let checkpoint = Checkpoint::open(&note, &key).unwrap();
    assert_eq!(checkpoint.size, world.service.record() + 1);
    let full = world.ask("GET", "/log/tile/0/000", "").await;
    assert!(
        full.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
    let leaves = tile_hashes(&full.bytes).unwrap();
    assert_eq!(leaves.len(), 256);
    let partial = format!("/log/tile/0/001.p/{}", checkpoint.size - 256);
    let partial = world.ask("GET", &partial, "").await;
    assert_eq!(partial.headers["cache-control"], "no-cache");
    assert_eq!(
        tile_hashes(&partial.bytes).unwrap().len() as u64,
        checkpoint.size - 256
    );
    let entries = world.ask("GET", "/log/tile/entries/000", "").await.bytes;
    let entries = entries_of(&entries);
    assert_eq!(bursar_journal::hash::leaf_hash(entries[9]), leaves[9]);
    let proof = Proof::parse(&world.ask("GET", "/v1/proofs/record/9", "").await.text()).unwrap();
    let root: Hash = checkpoint.root;
    verify_inclusion(
        &leaves[9],
        9,
        checkpoint.size,
        &root,
        &proof.records[0].inclusion,
    )
    .unwrap();
    for wrong in ["0/002", "0/0", "9/000", "0/000.p/0", "x", "0/001"] {
        world
            .ask("GET", &format!("/log/tile/{wrong}"), "")
            .await
            .is_problem("not-found");
    }
}

#[tokio::test(start_paused = true)]
async fn records_are_sentences_paged_and_by_object() {
    let world = World::new();
    work(&world, 20).await;
    let page = world
        .ask("GET", "/v1/records?limit=3&raw=true", "")
        .await
        .json();
    assert_eq!(page["items"][0]["seq"], 0);
    assert!(
        page["items"][0]["summary"][0]
            .as_str()
            .unwrap()
            .starts_with("ledger 0198f3c2")
    );
    assert_eq!(page["items"][0]["raw"]["seq"], 0);
    assert_eq!(page["nextCursor"], "3");
    let own = world
        .ask("GET", "/v1/records?object=booking/job-4", "")
        .await
        .json();
    let summaries: Vec<_> = own["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["summary"][0].clone())
        .collect();
    assert_eq!(summaries.len(), 2, "{own:#}");
    assert_eq!(summaries[0], "job-4 granted: 1 python slot for acme");
    let last = world.service.record();
    let tail = world
        .ask("GET", &format!("/v1/records?from={last}"), "")
        .await
        .json();
    assert_eq!(
        (&tail["items"][0]["seq"], &tail["nextCursor"]),
        (&json!(last), &json!(null))
    );
    world
        .ask("GET", "/v1/records?object=job", "")
        .await
        .is_problem("invalid");
}

/// Method: a record follows the checkpoint each time. There are several tries, because the regular
/// checkpoint of each second may come in between.
#[tokio::test]
async fn a_proof_under_the_newest_checkpoint_signs_no_other() {
    let world = World::threaded();
    world
        .limit("python", r#"{"class":"python","slots":99}"#)
        .await;
    let key = key(&world).await;
    let newest = || world.store.checkpoint(u64::MAX >> 1).unwrap();
    for number in 0..20 {
        world.grant(&format!("a-{number}"), "python", "acme").await;
        let last = world.service.record();
        world
            .ask("GET", &format!("/v1/proofs/record/{last}"), "")
            .await
            .json();
        let signed = newest();
        world.grant(&format!("b-{number}"), "python", "acme").await;
        let reply = world.ask("GET", "/v1/proofs/record/0", "").await;
        let proof = Proof::parse(&reply.text()).unwrap();
        assert!(proof.verify(&key).iter().all(|check| check.ok));
        if Some(&proof.checkpoint) == signed.as_ref() {
            return;
        }
    }
    panic!("a checkpoint was signed for each proof");
}

#[tokio::test(start_paused = true)]
async fn an_export_has_every_record_and_is_noted_when_confirmed() {
    let world = World::new();
    work(&world, 300).await;
    let export = world.ask("GET", "/v1/ledger/export", "").await;
    assert_eq!(export.headers["content-type"], "application/jsonl");
    let text = export.text();
    let records = text
        .lines()
        .filter(|line| line.starts_with(r#"{"v":1,"seq":"#))
        .count() as u64;
    assert_eq!(records, world.service.record() + 1);
    assert!(
        text.lines()
            .last()
            .unwrap()
            .starts_with(r#"{"checkpoint":"#)
    );
    world
        .ask("GET", "/v1/ledger/backup", "")
        .await
        .is_problem("conflict");

    let early = async || {
        let body = r#"{"before":"2027-01-01T00:00:00Z"}"#;
        let early = world.ask("POST", "/v1/ledger/prune", body).await;
        let detail = early.is_problem("conflict")["detail"].clone();
        detail.as_str().unwrap().to_owned()
    };
    let say = async |from: u64, below: u64| {
        let body = json!({"from": from, "below": below}).to_string();
        world.ask("POST", "/v1/ledger/exported", &body).await
    };
    assert!(early().await.contains("0 are exported"));
    assert_eq!(say(256, records).await.json()["below"], 0, "a gap");
    say(0, records + 1).await.is_problem("invalid");
    assert_eq!(say(0, 256).await.json()["below"], 256);
    assert_eq!(say(256, records).await.json()["below"], records);
    let detail = early().await;
    assert!(
        detail.contains("0 records are in an anchored snapshot"),
        "{detail}"
    );
    assert!(
        detail.contains(&format!("{records} are exported")),
        "{detail}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_key_signs_beside_the_old_one_and_a_repeat_is_one_action() {
    let world = World::new();
    let old = key(&world).await;
    let rotate = async || {
        let request =
            http::Request::post("/v1/ledger/rotate-key").header("idempotency-key", "once");
        let router = world.router(crate::world::operator());
        crate::world::send(&router, request.body(axum::body::Body::empty()).unwrap())
            .await
            .json()
    };
    let rotated = rotate().await;
    assert_eq!(rotated["former"], old.to_string());
    assert_ne!(rotated["key"], old.to_string());
    assert_eq!(
        rotate().await["key"],
        rotated["key"],
        "a repeat does not rotate again"
    );
    world.grant("a", "python", "acme").await;
    world.ask("GET", "/v1/proofs/record/0", "").await;
    let note = world.ask("GET", "/log/checkpoint", "").await.text();
    let new: VerifierKey = rotated["key"].as_str().unwrap().parse().unwrap();
    assert!(Checkpoint::open(&note, &new).is_ok() && Checkpoint::open(&note, &old).is_ok());
}

/// Splits a bundle into its entries, each of which follows its size in two bytes.
fn entries_of(mut bundle: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((size, rest)) = bundle.split_first_chunk::<2>() {
        let (record, rest) = rest.split_at(usize::from(u16::from_be_bytes(*size)));
        records.push(record);
        bundle = rest;
    }
    records
}
