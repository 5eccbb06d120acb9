//! Routes: parse requests into types, and write answers as text.
//!
//! Every answer carries the last record it reflects. Every failure is a problem, also for unknown
//! addresses and methods and for unreadable bodies. Handlers use only the runtime's timer, so that
//! tests can run them on virtual time.

pub(crate) mod call;
mod health;
mod openapi;
mod pages;
pub(crate) mod respond;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use bursar_client::{Code, Problem};
use utoipa_axum::router::OpenApiRouter;

use crate::auth::CallerSource;
use crate::service::Service;
use crate::{booking, market, spine};

pub(crate) use health::METRICS_TYPE;
pub use openapi::description;
pub(crate) use respond::busy;

use respond::Refused;

/// Shared state of the handlers.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

struct Shared {
    service: Arc<Service>,
    callers: CallerSource,
}

impl App {
    fn service(&self) -> &Service {
        &self.0.service
    }
}

/// Creates the router of a service. It is called in process, or by [`crate::listen`] for each
/// connection.
pub fn router(service: Arc<Service>, callers: CallerSource) -> Router {
    let app = App(Arc::new(Shared { service, callers }));
    let (router, _description) = routes().split_for_parts();
    router
        .fallback(no_such_address)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(app.clone(), finish))
        .with_state(app)
}

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::head())
        .merge(booking::routes::routes())
        .merge(market::routes::routes())
        .merge(spine::routes::routes())
        .merge(stream::routes())
        .merge(health::routes())
        .merge(pages::routes())
}

/// Writes problems, sets the record header, and counts requests.
async fn finish(
    axum::extract::State(app): axum::extract::State<App>,
    request: Request,
    next: Next,
) -> Response {
    let uri = request.uri().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let response = respond::finish(response, uri.path(), || app.service().record());
    let route = route.as_ref().map(MatchedPath::as_str);
    app.service()
        .metrics()
        .answered(route, response.status().as_u16());
    response
}

async fn no_such_address(request: Request) -> Refused {
    let path = request.uri().path();
    let known = openapi::paths().iter().map(String::as_str);
    let suggestion = crate::service::nearest_name(path, known);
    Refused(Box::new(Problem {
        changes: vec!["see /openapi.json for all addresses".to_owned()],
        suggestion,
        ..Problem::new(Code::NotFound, "this address does not exist")
    }))
}

async fn no_such_method(request: Request) -> Refused {
    let detail = format!("this path does not accept {}", request.method());
    Refused(Box::new(Problem {
        status: http::StatusCode::METHOD_NOT_ALLOWED.as_u16(),
        changes: vec!["see /openapi.json for the methods of each address".to_owned()],
        ..Problem::new(Code::NotFound, detail)
    }))
}
