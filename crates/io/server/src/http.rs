//! Routes: parse requests into types, and write answers as text.
//!
//! Every answer carries the last record it reflects. Every failure is a problem, also for unknown
//! addresses and methods and for unreadable bodies. Handlers use only the runtime's timer, so that
//! tests can run them on virtual time.

pub(crate) mod call;
mod health;
#[cfg(feature = "schema")]
mod openapi;
mod pages;
pub(crate) mod respond;
mod stream;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use bursar_client::{Code, Problem, nearest};

use crate::auth::CallerSource;
use crate::service::Service;
use crate::{booking, cluster, market, spine};

pub(crate) use health::METRICS_TYPE;
#[cfg(feature = "schema")]
pub(crate) use openapi::Refusals;
#[cfg(feature = "schema")]
pub use openapi::generate;
pub(crate) use respond::busy;

use call::{Call, Open};
use respond::{Handled, Refused};

/// The OpenAPI description of all routes: `openapi.json` in the repository.
pub const DESCRIPTION: &str = include_str!("../../../../openapi.json");

/// Address of a handler. The attribute `route` of the handler declares it.
pub(crate) struct Route {
    /// Path, with its variable parts in braces.
    pub(crate) path: &'static str,
    pub(crate) method: MethodFilter,
    pub(crate) handler: Handler,
    /// Adds the handler to the description.
    #[cfg(feature = "schema")]
    pub(crate) described: fn(openapi::Describing) -> openapi::Describing,
}

/// Handler of a route. Handlers are function pointers, so that the router is compiled once and not
/// for each of them.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Answers authenticated callers.
    Call(fn(Call) -> Handling),
    /// Answers everybody.
    Open(fn(Open) -> Handling),
}

type Handling = Pin<Box<dyn Future<Output = Handled> + Send>>;

impl Handler {
    async fn answer(self, app: App, request: Request) -> Handled {
        match self {
            Self::Call(handle) => handle(Call::read(app, request).await?).await,
            Self::Open(handle) => handle(Open::read(app, request).await).await,
        }
    }
}

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
    routes()
        .fold(Router::new(), |router, route| {
            let handler = route.handler;
            let answer = move |State(app), request| handler.answer(app, request);
            router.route(route.path, on(route.method, answer))
        })
        .fallback(no_such_address)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(app.clone(), finish))
        .with_state(app)
}

fn routes() -> impl Iterator<Item = &'static Route> {
    booking::routes::routes()
        .chain(market::routes::ROUTES)
        .chain(cluster::routes::ROUTES)
        .chain(spine::routes::routes())
        .chain(stream::ROUTES)
        .chain(health::ROUTES)
        .chain(pages::ROUTES)
}

/// Writes problems, sets the record header, and counts requests.
async fn finish(State(app): State<App>, request: Request, next: Next) -> Response {
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
    let near = nearest(path, routes().map(|route| route.path));
    Refused(Box::new(Problem {
        changes: vec!["see /openapi.json for all addresses".to_owned()],
        suggestion: near.map(str::to_owned),
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
