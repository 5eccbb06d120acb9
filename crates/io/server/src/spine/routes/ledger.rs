//! `/v1/ledger`, `/v1/records`, `/v1/proofs` and `/log`.

use std::io;

use bursar_client::api::query::no_subject;
use bursar_client::api::{
    ExportLedger, ExportedRequest, ListRecords, PruneRequest, RotateKeyRequest,
};
use bursar_engine::{Kind, Reference};
use bursar_schema::route;
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::HeaderValue;
use http::header::CACHE_CONTROL;

use crate::http::Route;
use crate::http::call::{Call, page_size};
use crate::http::respond::{Handled, bytes, json};
use crate::service::{Chunks, RecordFilter};

/// For files that never change; caches keep nothing longer than a year.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

pub(crate) const ROUTES: &[Route] = &[
    get_ledger::ROUTE,
    list_records::ROUTE,
    export_ledger::ROUTE,
    note_exported::ROUTE,
    backup_ledger::ROUTE,
    prune_ledger::ROUTE,
    rotate_key::ROUTE,
    get_proof::ROUTE,
    get_checkpoint::ROUTE,
    get_inclusion::ROUTE,
    get_tile::ROUTE,
];

/// Status of the ledger.
#[route(get, path = "/v1/ledger", tag = "ledger", params(MinRecord),
    responses((status = 200, body = LedgerStatus), Refusals))]
async fn get_ledger(call: Call) -> Handled {
    call.reading().min_record().end(Some(())).await?;
    json(call.service().status().await?)
}

/// Records as sentences, oldest first.
///
/// Callers with only the role `use` can read the records of their own bookings, by `object`.
/// Anonymous callers cannot search. Stored records contain fences, so `raw` is for operators, and for
/// a tenant about its own bookings.
#[route(get, path = "/v1/records", tag = "ledger",
    params(ListRecords, MinRecord),
    responses((status = 200, body = ListAnswer<RecordView>), Refusals))]
async fn list_records(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let query: ListRecords = reading.query();
    let filter = RecordFilter {
        from: reading.cursor(query.cursor).or(query.from).unwrap_or(0),
        object: query.object,
        is_raw: query.raw.unwrap_or_default(),
    };
    let page = page_size(query.limit);
    let filter = reading.end(Some(filter)).await?;
    json(call.service().records(&call.caller, filter, page).await?)
}

/// Records as JSON lines that can be checked offline: the last line is a checkpoint over all of
/// them. For operators.
#[route(get, path = "/v1/ledger/export", tag = "ledger",
    params(ExportLedger, MinRecord),
    responses((status = 200, body = String, content_type = "application/jsonl"), Refusals))]
async fn export_ledger(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let ExportLedger { from, to } = reading.query();
    reading.end(Some(())).await?;
    let chunks = call.shared_service().export(&call.caller, from, to).await?;
    Ok(call.pieces("application/jsonl", pieces(chunks), |_| None))
}

/// Confirms that an export is stored safely, so that its records may be pruned.
#[route(post, path = "/v1/ledger/exported", tag = "ledger", request_body = ExportedRequest,
    responses((status = 200, body = ExportedAnswer), Refusals))]
async fn note_exported(call: Call) -> Handled {
    let mut reading = call.reading();
    let request = reading.body();
    let request: ExportedRequest = reading.end(request).await?;
    json(call.service().exported(&call.caller, request).await?)
}

/// The whole store in one file, consistent as of the start of the copy. The signing key is not in it.
#[route(get, path = "/v1/ledger/backup", tag = "ledger",
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), Refusals))]
async fn backup_ledger(call: Call) -> Handled {
    call.reading().end(Some(())).await?;
    let chunks = call.shared_service().backup(&call.caller)?;
    Ok(call.pieces("application/octet-stream", pieces(chunks), |_| None))
}

/// Erases the payloads of records made before a time. Existing proofs still verify.
#[route(post, path = "/v1/ledger/prune", tag = "ledger",
    params(DryRun, ("Idempotency-Key" = Option<String>, Header, description = "Repeats with the same key within 24 hours are one action")),
    request_body = PruneRequest,
    responses((status = 200, body = PruneAnswer), Refusals))]
async fn prune_ledger(call: Call) -> Handled {
    let mut reading = call.reading();
    let (key, mode) = (reading.idempotency_key(), reading.mode());
    let request = reading.body();
    let request: PruneRequest = reading.end(request).await?;
    let service = call.service();
    json(service.prune(&call.caller, request, key, mode).await?)
}

/// Signs with a new key from now on. The old key signs too for thirty days.
#[route(post, path = "/v1/ledger/rotate-key", tag = "ledger",
    params(DryRun, ("Idempotency-Key" = Option<String>, Header)),
    request_body = Option<RotateKeyRequest>,
    responses((status = 200, body = RotateKeyAnswer), Refusals))]
async fn rotate_key(call: Call) -> Handled {
    let mut reading = call.reading();
    let (key, mode) = (reading.idempotency_key(), reading.mode());
    let body = reading.body_or_empty();
    let RotateKeyRequest {} = reading.end(body).await?;
    json(call.service().rotate_key(&call.caller, key, mode).await?)
}

/// Proof file of a record, a booking, a limit, a node, a pod or a token, for checks offline.
///
/// It contains the stored records with their fences, so it is for operators, and for a tenant about
/// its own bookings.
#[route(get, path = "/v1/proofs/{kind}/{id}", tag = "ledger",
    params(("kind" = String, Path, description = "`record`, `booking`, `limit`, `node`, `pod` or `token`"), ("id" = String, Path), MinRecord),
    responses((status = 200, body = Object), Refusals))]
async fn get_proof(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let (kind, id) = (reading.part::<String>("kind"), reading.part::<String>("id"));
    let subject = kind.zip(id).and_then(|(kind, id)| {
        let subject = Reference::of(&kind, &id, &Kind::ALL);
        reading.take(subject.map_err(|error| no_subject("kind", "id", &error)))
    });
    let subject = reading.end(subject).await?;
    let text = call.service().proof(&call.caller, &subject).await?;
    Ok(bytes("application/json", text + "\n"))
}

/// The newest signed checkpoint, a C2SP signed note.
#[route(get, path = "/log/checkpoint", tag = "log",
    responses((status = 200, body = String, content_type = "text/plain"), Refusals))]
async fn get_checkpoint(call: Call) -> Handled {
    call.reading().end(Some(())).await?;
    let mut response = bytes(
        "text/plain; charset=utf-8",
        call.service().checkpoint().await?,
    );
    response.headers_mut().insert(CACHE_CONTROL, NO_CACHE);
    Ok(response)
}

/// Hashes that prove that a record is under the newest checkpoint, without the record itself.
#[route(get, path = "/log/inclusion/{record}", tag = "log", params(("record" = u64, Path), MinRecord),
    responses((status = 200, body = Inclusion), Refusals))]
async fn get_inclusion(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let record = reading.part("record");
    let record = reading.end(record).await?;
    json(call.service().inclusion(record).await?)
}

/// A tile of the tree, named as in C2SP tlog-tiles: `0/x001/234`, `entries/000.p/17`.
///
/// Entries are the stored records with their fences, so they are for operators.
#[route(get, path = "/log/tile/{*path}", tag = "log", params(("path" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), Refusals))]
async fn get_tile(call: Call) -> Handled {
    let mut reading = call.reading();
    let path = reading.part("path");
    let path = reading.end(path).await?;
    let file = call.service().log_file(&call.caller, path).await?;
    let mut response = bytes("application/octet-stream", file.bytes);
    let cache = if file.is_final { IMMUTABLE } else { NO_CACHE };
    response.headers_mut().insert(CACHE_CONTROL, cache);
    Ok(response)
}

fn pieces(chunks: Chunks) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(chunks, |mut chunks| async move {
        chunks.next().await.map(|chunk| (chunk, chunks))
    })
}
