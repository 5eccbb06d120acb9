//! Routes for liveness, readiness, metrics and the caller's identity.

#![expect(clippy::unused_async, reason = "all handlers have one form")]

use bursar_client::api::Health;
use bursar_schema::route;

use super::call::{Call, Open};
use super::respond::{Handled, bytes, json};
use super::{App, Route};
use crate::service::Answer;

/// Media type of metrics, as Prometheus requests it. The agent sends it too.
pub(crate) const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) const ROUTES: &[Route] = &[
    healthz::ROUTE,
    readyz::ROUTE,
    get_metrics::ROUTE,
    get_identity::ROUTE,
];

/// Reports that the process answers. Needs no token.
#[route(get, path = "/healthz", tag = "server", responses((status = 200, body = Health)))]
async fn healthz(open: Open) -> Handled {
    json(health(&open.app))
}

/// Reports whether commands are accepted: the store answers and this server may write.
#[route(get, path = "/readyz", tag = "server",
    responses((status = 200, body = Health),
              (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn readyz(open: Open) -> Handled {
    open.app.service().ready().await?;
    json(health(&open.app))
}

/// Counters and gauges as Prometheus text.
#[route(get, path = "/metrics", tag = "server",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
async fn get_metrics(call: Call) -> Handled {
    call.reading().end(Some(())).await?;
    call.caller.require_view("read metrics")?;
    let text = call.service().metrics_text().await?;
    Ok(bytes(METRICS_TYPE, text))
}

/// Name, roles, tenants and owners of the caller.
#[route(get, path = "/v1/identity", tag = "server", responses((status = 200, body = Identity)))]
async fn get_identity(call: Call) -> Handled {
    call.reading().min_record().end(Some(())).await?;
    json(call.service().identity(&call.caller))
}

fn health(app: &App) -> Answer<Health> {
    let service = app.service();
    let record = service.record();
    let body = Health {
        status: "ok".to_owned(),
        version: service.info.version.clone(),
        record: Some(record),
        now_ms: Some(service.ledger().now().ms()),
    };
    Answer::ok(record, body)
}
