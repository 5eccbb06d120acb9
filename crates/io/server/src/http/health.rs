//! Routes for liveness, readiness, metrics and the caller's identity.

use axum::extract::State;
use bursar_client::Problem;
use bursar_client::api::{Health, Identity};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::call::Call;
use super::respond::{Handled, bytes, json};
use crate::service::Answer;

/// Media type of metrics, as Prometheus requests it. The agent sends it too.
pub(crate) const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(get_metrics))
        .routes(routes!(get_identity))
}

/// Reports that the process answers. Needs no token.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, body = Health)))]
async fn healthz(State(app): State<App>) -> Handled {
    json(health(&app))
}

/// Reports whether commands are accepted: the store answers and this server may write.
#[utoipa::path(get, path = "/readyz", tag = "server",
    responses((status = 200, body = Health),
              (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn readyz(State(app): State<App>) -> Handled {
    app.service().ready().await?;
    json(health(&app))
}

/// Counters and gauges as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
async fn get_metrics(call: Call) -> Handled {
    call.reading().end(Some(())).await?;
    call.caller.require_view("read metrics")?;
    let text = call.service().metrics_text().await?;
    Ok(bytes(METRICS_TYPE, text))
}

/// Name, roles and tenants of the caller.
#[utoipa::path(get, path = "/v1/identity", tag = "server", responses((status = 200, body = Identity)))]
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
