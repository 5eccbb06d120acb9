//! What an agent without a server answers: `/metrics`, `/healthz` and `/readyz`.
//!
//! It is ready while it clears: one that is silent for several clearings is not.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bursar_ledger::clock::{Clock as _, MachineClock};
use bursar_node::market::{Agent, View};
use tokio::net::TcpListener;

use crate::metrics::market;

/// After so many clearings that did not come it is not ready.
const SILENT_CLEARINGS: u64 = 3;
/// The media type of metrics, as Prometheus asks for them.
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, agent: Arc<Agent>) -> std::io::Result<()> {
    axum::serve(listener, routes(agent)).await
}

fn routes(agent: Arc<Agent>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(agent)
}

async fn metrics(State(agent): State<Arc<Agent>>) -> Response {
    match market::text(&agent.view()) {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ready(State(agent): State<Arc<Agent>>) -> Response {
    let now_ms = MachineClock::default().wall().ms();
    match silence(&agent.view(), now_ms) {
        None => "ok\n".into_response(),
        Some(words) => (StatusCode::SERVICE_UNAVAILABLE, words + "\n").into_response(),
    }
}

/// For how long nothing came, if that is too long. Before the first clearing the first look counts.
fn silence(view: &View, now_ms: u64) -> Option<String> {
    let (_, clear_ms) = view.every_ms;
    let silent_ms = now_ms.saturating_sub(view.at_ms);
    let is_silent = silent_ms > clear_ms.saturating_mul(SILENT_CLEARINGS).max(1_000);
    is_silent.then(|| format!("no clearing for {}s", silent_ms / 1_000))
}
