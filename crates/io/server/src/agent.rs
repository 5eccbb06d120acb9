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
use bursar_node::market::{Agent, View, silent_ms};
use tokio::net::TcpListener;

use crate::listen;
use crate::metrics::market;

/// Connections at once: a few who watch. What is left of descriptors is for cgroups.
pub const CONNECTIONS_MAX: usize = 32;
/// The media type of metrics, as Prometheus asks for them.
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, agent: Arc<Agent>) {
    listen::serve_alone(listener, &routes(agent), CONNECTIONS_MAX).await;
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

/// That no clearing came for too long.
fn silence(view: &View, now_ms: u64) -> Option<String> {
    let (_, clear_ms) = view.every_ms;
    let last_ms = view.cleared_ms.unwrap_or(view.at_ms);
    let silent_ms = silent_ms(last_ms, clear_ms, now_ms)?;
    Some(format!("no clearing for {}s", silent_ms / 1_000))
}
