//! Path, method and headers of every call.

use std::time::Duration;

use bursar_booking::Limit as Bounds;
use bursar_client::api::{
    BookingRequest, ExportLedger, ExportedRequest, Limit, LimitSpec, ListBookings, ListRecords,
    Node, Page, PruneRequest, ReleaseRequest, RenewRequest, TokenRequest,
};
use bursar_client::client::Mode;
use bursar_client::object::Object;
use bursar_units::{BookingId, Instant, Label, ObjectName};
use serde_json::json;

use crate::fake::{Reply, within};

#[tokio::test]
async fn calls_have_their_paths_and_methods() {
    let (client, log) = within(|_| Reply::Json(200, json!({})));
    let id = BookingId::new("job:1").unwrap();
    let name = ObjectName::new("python").unwrap();
    let request = BookingRequest::new(Label::new("python").unwrap());
    // The answers are empty, so all of these fail after they were sent.
    let _ = client.reserve(&id, &request, Mode::Do).await;
    let _ = client.booking(&id).await;
    let _ = client.booking_wait(&id, Duration::from_millis(1_500)).await;
    let _ = client.booking_fence(&id, 8).await;
    let _ = client
        .renew(
            &id,
            &RenewRequest {
                fence: 8,
                ttl_ms: None,
            },
            Mode::Do,
        )
        .await;
    let _ = client
        .release(&id, &ReleaseRequest::default(), Mode::dry_run_if(true))
        .await;
    let _ = client.cancel(&id, Mode::dry_run_if(false)).await;
    let _ = client
        .bookings(
            &ListBookings {
                tenant: Some(Label::new("ä&b").unwrap()),
                ..ListBookings::default()
            },
            &Page::default(),
        )
        .await;
    let limit = Bounds::unbounded(name.clone(), None, None);
    let object = Object::Limit {
        resource_version: None,
        limit,
    };
    let _ = client.apply(&[object], Mode::DryRun).await;
    let mut limit = Limit::new(name.clone(), LimitSpec::default());
    limit.metadata.resource_version = Some("48102".to_owned());
    let _ = client.put_limit(&limit, Mode::Do).await;
    let _ = client.limit(&name).await;
    let _ = client.delete_limit(&name, Mode::DryRun).await;
    let _ = client
        .put_node(
            &Node::new(name.clone(), std::collections::BTreeMap::default()),
            Mode::Do,
        )
        .await;
    let _ = client.node(&name).await;
    let _ = client.delete_node(&name, Mode::Do).await;
    let _ = client.market(&name).await;
    let _ = client.restore_node(&name, Mode::DryRun).await;
    let _ = client.explain("booking", "job/1").await;
    let token = TokenRequest {
        name: name.clone(),
        roles: Vec::new(),
        tenants: Vec::new(),
        owners: Vec::new(),
        expires: None,
    };
    let _ = client.create_token(&id, &token, Mode::Do).await;
    let _ = client.revoke_token(&name, Mode::Do).await;
    let _ = client.identity().await;
    let _ = client.health().await;
    let _ = client.ready().await;
    let _ = client.ledger().await;
    let _ = client
        .records(&ListRecords {
            from: Some(7),
            ..ListRecords::default()
        })
        .await;
    let _ = client.proof("record", "48102").await;
    let _ = client.checkpoint().await;
    let _ = client.tile(&"tile/0/x001/067".parse().unwrap()).await;
    let _ = client
        .export(&ExportLedger {
            from: Some(3),
            to: Some(9),
        })
        .await;
    let _ = client
        .exported(&ExportedRequest { from: 0, below: 7 })
        .await;
    let _ = client.backup().await;
    let _ = client
        .prune(
            &id,
            &PruneRequest {
                before: Instant::from_ms(0),
            },
            Mode::Do,
        )
        .await;
    let _ = client.rotate_key(&id, Mode::Do).await;
    assert_eq!(
        log.lines(),
        [
            "PUT /v1/bookings/job:1",
            "GET /v1/bookings/job:1",
            "GET /v1/bookings/job:1?wait=1s500ms",
            "GET /v1/bookings/job:1?fence=8",
            "POST /v1/bookings/job:1/renew",
            "POST /v1/bookings/job:1/release?dryRun=true",
            "POST /v1/bookings/job:1/cancel",
            "GET /v1/bookings?tenant=%C3%A4%26b",
            "POST /v1/apply?dryRun=true",
            "PUT /v1/limits/python",
            "GET /v1/limits/python",
            "DELETE /v1/limits/python?dryRun=true",
            "PUT /v1/nodes/python",
            "GET /v1/nodes/python",
            "DELETE /v1/nodes/python",
            "GET /v1/nodes/python/market",
            "POST /v1/nodes/python/restore?dryRun=true",
            "GET /v1/explain/booking/job%2F1",
            "POST /v1/tokens",
            "DELETE /v1/tokens/python",
            "GET /v1/identity",
            "GET /healthz",
            "GET /readyz",
            "GET /v1/ledger",
            "GET /v1/records?from=7",
            "GET /v1/proofs/record/48102",
            "GET /log/checkpoint",
            "GET /log/tile/0/x001/067",
            "GET /v1/ledger/export?from=3&to=9",
            "POST /v1/ledger/exported",
            "GET /v1/ledger/backup",
            "POST /v1/ledger/prune",
            "POST /v1/ledger/rotate-key",
        ]
    );
    for call in log.all() {
        let takes_key = call.line.ends_with("tokens") && call.line.starts_with("POST")
            || call.line.contains("prune")
            || call.line.contains("rotate");
        assert_eq!(
            call.header("idempotency-key").is_some(),
            takes_key,
            "{}",
            call.line
        );
        let takes_match = call.line == "PUT /v1/limits/python";
        assert_eq!(
            call.header("if-match"),
            takes_match.then_some("48102"),
            "{}",
            call.line
        );
    }
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let (client, log) = within(|seen| {
        let next = if seen.line.contains("cursor=a%2Fb") {
            json!(null)
        } else {
            json!("a/b")
        };
        let item = json!({"id": "x", "state": "granted"});
        Reply::Json(
            200,
            json!({"items": [item.clone(), item], "nextCursor": next, "record": 9}),
        )
    });
    let list = client
        .all_bookings(&ListBookings {
            class: Some(Label::new("python").unwrap()),
            ..ListBookings::default()
        })
        .await
        .unwrap();
    assert_eq!(
        (list.items.len(), list.next_cursor, list.record),
        (4, None, 9)
    );
    assert_eq!(
        log.lines()[1],
        "GET /v1/bookings?class=python&limit=1000&cursor=a%2Fb"
    );
}

#[tokio::test]
async fn a_download_is_read_in_chunks() {
    let (client, _) = within(|_| Reply::Text(200, "{}\n{}\n"));
    let mut export = client.export(&ExportLedger::default()).await.unwrap();
    assert_eq!(export.chunk().await.unwrap().unwrap(), "{}\n{}\n");
    assert!(export.chunk().await.unwrap().is_none());
}
