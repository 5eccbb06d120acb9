//! `/v1/ledger`, `/v1/records`, `/v1/proofs` and `/log`.

use std::io;

use bursar_client::Problem;
use bursar_client::api::{
    ExportedAnswer, ExportedRequest, Inclusion, LedgerStatus, ListAnswer, PruneAnswer,
    PruneRequest, RecordView, RotateKeyAnswer, RotateKeyRequest,
};
use bursar_engine::{Kind, Reference};
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::App;
use crate::http::call::Call;
use crate::http::respond::{Handled, bytes, json};
use crate::service::{Chunks, RecordFilter, no_subject};

/// What never changes may be kept for a year, which is the longest that means anything.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const NOT_AT_ALL: HeaderValue = HeaderValue::from_static("no-cache");

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get_ledger))
        .routes(routes!(list_records))
        .routes(routes!(export_ledger))
        .routes(routes!(note_exported))
        .routes(routes!(backup_ledger))
        .routes(routes!(prune_ledger))
        .routes(routes!(rotate_key))
        .routes(routes!(get_proof))
        .routes(routes!(get_checkpoint))
        .routes(routes!(get_inclusion))
        .routes(routes!(get_tile))
}

/// How the ledger stands.
#[utoipa::path(get, path = "/v1/ledger", tag = "ledger", params(("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = LedgerStatus),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn get_ledger(call: Call) -> Handled {
    call.reading().min_record().end(Some(())).await?;
    json(call.service().status().await?)
}

/// Records as sentences, oldest first.
///
/// Callers with `use` alone read the records of their own bookings, by `object`. Anonymous callers
/// do not search. What is stored holds fences: `raw` is for operators, and for a tenant of its own
/// bookings.
#[utoipa::path(get, path = "/v1/records", tag = "ledger",
    params(("from" = Option<u64>, Query, description = "The first record; `cursor` means the same"),
           ("cursor" = Option<String>, Query), ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000),
           ("object" = Option<String>, Query, description = "Only records about this, as in `booking/job-1`"),
           ("raw" = Option<bool>, Query, description = "Add each record as it is stored"),
           ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = ListAnswer<RecordView>),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn list_records(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let (cursor, from) = (reading.query::<u64>("cursor"), reading.query("from"));
    if reading.text("cursor").and(reading.text("from")).is_some() {
        reading.mistake("from", "goes without `cursor`");
    }
    let filter = RecordFilter {
        from: cursor.or(from).unwrap_or(0),
        object: reading.query("object"),
        is_raw: reading.flag("raw"),
    };
    let page = reading.page();
    let filter = reading.end(Some(filter)).await?;
    json(call.service().records(&call.caller, filter, page).await?)
}

/// Records as JSON lines, with all that is needed to check them offline: the last line is a
/// checkpoint over all of them. For operators.
#[utoipa::path(get, path = "/v1/ledger/export", tag = "ledger",
    params(("from" = Option<u64>, Query), ("to" = Option<u64>, Query), ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = String, content_type = "application/jsonl"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn export_ledger(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let (from, to) = (reading.query("from"), reading.query("to"));
    reading.end(Some(())).await?;
    let chunks = call.shared_service().export(&call.caller, from, to).await?;
    Ok(call.pieces("application/jsonl", pieces(chunks), |_| None))
}

/// Says that an export is safe where it was written: what is in it may be pruned.
#[utoipa::path(post, path = "/v1/ledger/exported", tag = "ledger", request_body = ExportedRequest,
    responses((status = 200, body = ExportedAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn note_exported(call: Call) -> Handled {
    let mut reading = call.reading();
    let request = reading.body();
    let request: ExportedRequest = reading.end(request).await?;
    json(call.service().exported(&call.caller, request).await?)
}

/// The whole store in one file, consistent as of when it began. The signing key is not in it.
#[utoipa::path(get, path = "/v1/ledger/backup", tag = "ledger",
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn backup_ledger(call: Call) -> Handled {
    call.reading().end(Some(())).await?;
    let chunks = call.shared_service().backup(&call.caller)?;
    Ok(call.pieces("application/octet-stream", pieces(chunks), |_| None))
}

/// Forgets payloads of records made before a time; every proof still verifies.
#[utoipa::path(post, path = "/v1/ledger/prune", tag = "ledger",
    params(("dryRun" = Option<bool>, Query), ("Idempotency-Key" = Option<String>, Header, description = "Repeats with this key are one action, for 24 hours")),
    request_body = PruneRequest,
    responses((status = 200, body = PruneAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn prune_ledger(call: Call) -> Handled {
    let mut reading = call.reading();
    let (key, mode) = (reading.idempotency_key(), reading.mode());
    let request = reading.body();
    let request: PruneRequest = reading.end(request).await?;
    let service = call.service();
    json(service.prune(&call.caller, request, key, mode).await?)
}

/// Signs with a further key from now on; the old one accompanies it for thirty days.
#[utoipa::path(post, path = "/v1/ledger/rotate-key", tag = "ledger",
    params(("dryRun" = Option<bool>, Query), ("Idempotency-Key" = Option<String>, Header)),
    request_body = Option<RotateKeyRequest>,
    responses((status = 200, body = RotateKeyAnswer),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn rotate_key(call: Call) -> Handled {
    let mut reading = call.reading();
    let (key, mode) = (reading.idempotency_key(), reading.mode());
    let body = reading.body_or_empty();
    let RotateKeyRequest {} = reading.end(body).await?;
    json(call.service().rotate_key(&call.caller, key, mode).await?)
}

/// The proof file of a record, a booking, a limit, a node, a pod or a token, to be checked offline.
///
/// It holds the records as they are stored, with their fences: for operators, and for a tenant of
/// its own bookings.
#[utoipa::path(get, path = "/v1/proofs/{kind}/{id}", tag = "ledger",
    params(("kind" = String, Path, description = "`record`, `booking`, `limit`, `node`, `pod` or `token`"), ("id" = String, Path), ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = Object),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
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
#[utoipa::path(get, path = "/log/checkpoint", tag = "log",
    responses((status = 200, body = String, content_type = "text/plain"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn get_checkpoint(call: Call) -> Handled {
    call.reading().end(Some(())).await?;
    let mut response = bytes(
        "text/plain; charset=utf-8",
        call.service().checkpoint().await?,
    );
    response.headers_mut().insert(CACHE_CONTROL, NOT_AT_ALL);
    Ok(response)
}

/// The hashes that show that a record is under the newest checkpoint, without the record.
#[utoipa::path(get, path = "/log/inclusion/{record}", tag = "log", params(("record" = u64, Path), ("minRecord" = Option<u64>, Query)),
    responses((status = 200, body = Inclusion),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn get_inclusion(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let record = reading.part("record");
    let record = reading.end(record).await?;
    json(call.service().inclusion(record).await?)
}

/// A tile of the tree, as C2SP tlog-tiles names them: `0/x001/234`, `entries/000.p/17`.
///
/// Entries are the records as they are stored, which hold fences: they are for operators.
#[utoipa::path(get, path = "/log/tile/{*path}", tag = "log", params(("path" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
              (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused, and why")))]
async fn get_tile(call: Call) -> Handled {
    let mut reading = call.reading();
    let path = reading.part("path");
    let path = reading.end(path).await?;
    let file = call.service().log_file(&call.caller, path).await?;
    let mut response = bytes("application/octet-stream", file.bytes);
    let cache = if file.is_final { FOR_EVER } else { NOT_AT_ALL };
    response.headers_mut().insert(CACHE_CONTROL, cache);
    Ok(response)
}

fn pieces(chunks: Chunks) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(chunks, |mut chunks| async move {
        chunks.next().await.map(|chunk| (chunk, chunks))
    })
}
