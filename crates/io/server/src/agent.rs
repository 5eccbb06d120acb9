//! HTTP endpoints of an agent without a server: `/metrics`, `/healthz` and `/readyz`.
//!
//! The agent is ready while it clears, and not ready after it has missed several clearings.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bursar_ledger::clock::{Clock as _, MachineClock};
use bursar_node::market::{Agent, View, silent_ms};
use tokio::net::TcpListener;

use crate::http::METRICS_TYPE;
use crate::listen;
use crate::metrics::market;

/// Limit on connections. Monitoring needs few, and cgroup counters need the descriptors.
pub const CONNECTIONS_MAX: usize = 32;

/// Serves until the future is dropped.
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
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ready(State(agent): State<Arc<Agent>>) -> Response {
    let now_ms = MachineClock::default().wall().ms();
    match silence(&agent.view(), now_ms) {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason + "\n").into_response(),
    }
}

fn silence(view: &View, now_ms: u64) -> Option<String> {
    let clear_ms = view.interval_ms;
    let last_ms = view.cleared_ms.unwrap_or(view.at_ms);
    let silent_ms = silent_ms(last_ms, clear_ms, now_ms)?;
    Some(format!("no clearing for {}s", silent_ms / 1_000))
}
