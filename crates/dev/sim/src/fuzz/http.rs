//! Fuzz target of the HTTP layer: requests as text, sent to the real router over a ledger in memory.
//!
//! An input is several requests, each with request line, headers, an empty line and a body, separated
//! by a line `===`. Time is virtual; every input has its own ledger.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bursar_engine::State;
use bursar_engine::token::Role;
use bursar_ledger::clock::Clock;
use bursar_ledger::data::{Keys, signs_with};
use bursar_ledger::key::{self, Signer};
use bursar_ledger::pipeline::{Ledger, Observe};
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::store::{self, Store as _};
use bursar_ledger::term::{Hand, begin};
use bursar_ledger::writer::Poison;
use bursar_server::metrics::Metrics;
use bursar_server::{Caller, CallerSource, ServerInfo, Service, Via, router};
use bursar_units::Label;
use http::Request;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::clock::Machine;

const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";
/// Timeout of one answer, in virtual time.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum number of requests in one input.
const REQUESTS_MAX: usize = 8;

/// Turns panics and broken invariants of the ledger into panics of the target.
struct PanicOnDefect;

impl Observe for PanicOnDefect {
    fn poisoned(&self, poison: &Poison) {
        #[expect(clippy::panic, reason = "a fuzz target panics if a promise is broken")]
        {
            panic!("deciding panicked: {poison:?}");
        }
    }

    fn store_failed(&self, _: &store::Error) {}

    fn not_leader(&self) {}

    fn store_away(&self, _: &Result<String, store::Error>) {}

    fn committed(&self, _: usize, _: Duration) {}

    fn signed(&self, _: u64) {}

    #[expect(clippy::panic, reason = "a broken invariant ends the run")]
    fn invariant_broken(&self, broken: &bursar_engine::invariants::Broken) {
        panic!("{broken}");
    }
}

/// Sends the requests of an input to the router, one after another.
pub fn requests(bytes: &[u8]) {
    drop(statuses(bytes));
}

/// The same, and returns the status of every answer.
pub fn statuses(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    let parts = text.split("\n===\n").take(REQUESTS_MAX);
    let requests: Vec<_> = parts.filter_map(read_request).collect();
    if requests.is_empty() {
        return Vec::new();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    #[expect(
        clippy::expect_used,
        reason = "without a runtime there is nothing to fuzz"
    )]
    runtime.expect("a runtime can be created").block_on(async {
        let router = service();
        let mut statuses = Vec::new();
        for request in requests {
            statuses.extend(send(&router, request).await);
        }
        statuses
    })
}

async fn send(router: &Router, request: Request<Body>) -> Option<u16> {
    let name = format!("{} {}", request.method(), request.uri());
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, router.clone().oneshot(request)).await;
    let response = answer.ok()?.ok()?;
    let status = response.status();
    assert_ne!(status.as_u16(), 500, "{name} was answered with 500");
    let body = tokio::time::timeout(ANSWER_TIMEOUT, response.into_body().collect()).await;
    // A stream does not end; it is read until the timeout.
    let Ok(Ok(body)) = body else {
        return Some(status.as_u16());
    };
    if status.is_client_error() && !name.starts_with("HEAD") {
        let problem: Result<serde_json::Value, _> = serde_json::from_slice(&body.to_bytes());
        let problem = problem.unwrap_or_default();
        let has_code = problem
            .get("code")
            .is_some_and(serde_json::Value::is_string);
        assert!(has_code, "{name}: {status} without a problem code");
    }
    Some(status.as_u16())
}

fn read_request(text: &str) -> Option<Request<Body>> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, target) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        request = request.header(name, value);
    }
    request.body(Body::from(body.to_owned())).ok()
}

/// A router over a new ledger in memory, called by an operator.
fn service() -> Router {
    let machine = Machine::default();
    let clock: Arc<dyn Clock> = Arc::new(machine);
    let store = MemoryStore::new();
    let signer = signer();
    let hand = |_: &str, _| -> Result<Hand, key::Error> {
        let verifiers = signer
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .verifiers();
        Ok(Hand {
            verifiers,
            sign: signs_with(Arc::clone(&signer), Arc::clone(&clock)),
        })
    };
    let start = State::default();
    let begun = begin(
        Box::new(store.clone()),
        start,
        &clock,
        || LEDGER.to_owned(),
        hand,
        |_, _| {},
    );
    #[expect(
        clippy::expect_used,
        reason = "without a ledger there is nothing to fuzz"
    )]
    let begun = begun.expect("a ledger in memory begins");
    let (ledger, task) = Ledger::inline(begun, Arc::clone(&clock), Arc::new(PanicOnDefect));
    tokio::spawn(task.run());
    let info = ServerInfo {
        version: "0.1.0".to_owned(),
        store: "memory".to_owned(),
        file: None,
        leads_since: clock.wall(),
        node: None,
    };
    let keys = Keys::new(signer, ledger.clone());
    let readers = Arc::new(move || store.reader());
    let service = Service::new(ledger, readers, keys, info, Metrics::default());
    router(Arc::new(service), CallerSource::Fixed(Arc::new(operator())))
}

/// One key for all inputs, because creating a key writes a file.
fn signer() -> Arc<Mutex<Signer>> {
    static SIGNER: OnceLock<Arc<Mutex<Signer>>> = OnceLock::new();
    let make = || {
        let directory = tempfile::tempdir().ok()?;
        let path = directory.path().join(key::FILE_NAME);
        let signer = Signer::create_new(&path, LEDGER, 0).ok()?;
        Some(Arc::new(Mutex::new(signer)))
    };
    #[expect(clippy::expect_used, reason = "without a key there is nothing to fuzz")]
    Arc::clone(SIGNER.get_or_init(|| make().expect("a key can be created")))
}

fn operator() -> Caller {
    #[expect(clippy::expect_used, reason = "a constant that is a label")]
    let name = Label::new("fuzz").expect("a plain word is a label");
    Caller {
        name,
        via: Via::Socket,
        roles: BTreeSet::from([Role::View, Role::Use, Role::Operate]),
        tenants: BTreeSet::new(),
        owners: BTreeSet::new(),
        expires: None,
    }
}
