//! `/v1/events`: server-sent events.

use std::io;
use std::time::Duration;

use bursar_client::Problem;
use bursar_client::api::{SIGNED_OUT, StreamEvents};
use bursar_schema::route;
use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http::header::CACHE_CONTROL;

use super::Route;
use super::call::Call;
use super::respond::Handled;
use crate::service::{Position, Stream, StreamFilter, StreamItem};

/// Time without an event after which a comment shows that the stream is alive.
const COMMENT_AFTER: Duration = Duration::from_secs(15);

pub(super) const ROUTES: &[Route] = &[stream_events::ROUTE];

/// Committed events, as server-sent events.
///
/// `id` is `record.index`; sent back as `Last-Event-ID` it resumes without loss or repeat. If that
/// position is too old, the stream begins with a `reset` event: list again, then continue reading.
/// A stream ends within a second after its caller's token ends, with the event `signed-out`, which
/// gives the reason. `pod.resized` is a live event without a record: it has no `id`, and slow
/// readers may miss it. Events of records are never lost.
#[route(get, path = "/v1/events", tag = "events",
    params(StreamEvents, ("Last-Event-ID" = Option<String>, Header), MinRecord),
    responses((status = 200, body = String, content_type = "text/event-stream"), Refusals))]
async fn stream_events(call: Call) -> Handled {
    let mut reading = call.reading().min_record();
    let last = reading.header::<Position>("Last-Event-ID");
    let query: StreamEvents = reading.query();
    let filter = StreamFilter::parse(query.kinds.as_deref(), query.tenant, query.ns);
    let filter = reading.take(filter);
    let from = query.from.map(|record| Position {
        record,
        index: None,
    });
    let filter = reading.end(filter).await?;
    let stream = call
        .shared_service()
        .follow(call.caller.clone(), filter, last.or(from))?;
    let mut response = call.pieces("text/event-stream", pieces(stream), |problem| {
        Some(Bytes::from(signed_out(problem)))
    });
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn pieces(stream: Stream) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send {
    // A first comment shows clients at once that they are connected.
    let begun = stream::once(async { Ok(Bytes::from_static(b": bursar\n\n")) });
    let items = stream::unfold(stream, |mut stream| async move {
        let text = match tokio::time::timeout(COMMENT_AFTER, stream.next()).await {
            Err(_) => Ok(Bytes::from_static(b": alive\n\n")),
            Ok(None) => return None,
            Ok(Some(Ok(item))) => Ok(Bytes::from(text(&item))),
            Ok(Some(Err(problem))) => Err(io::Error::other(problem)),
        };
        Some((text, stream))
    });
    futures_util::StreamExt::chain(begun, items)
}

fn signed_out(problem: &Problem) -> String {
    let data = serde_json::to_string(problem).unwrap_or_default();
    format!("event: {SIGNED_OUT}\ndata: {data}\n\n")
}

fn text(item: &StreamItem) -> String {
    match item {
        StreamItem::Event { id, name, event } => {
            let data = serde_json::to_string(event).unwrap_or_default();
            format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
        }
        StreamItem::Live { name, event } => {
            let data = serde_json::to_string(event).unwrap_or_default();
            format!("event: {name}\ndata: {data}\n\n")
        }
        StreamItem::Reset { record } => {
            format!("event: reset\ndata: {{\"record\":{record}}}\n\n")
        }
    }
}
