//! A ledger in memory on virtual time, and a caller of its router in process.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bursar_engine::State;
use bursar_engine::token::Role;
use bursar_ledger::clock::Clock;
use bursar_ledger::data::{Keys, signs_with};
use bursar_ledger::index::Index;
use bursar_ledger::key::Signer;
use bursar_ledger::pipeline::{Ledger, Observe};
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::store::{self, Store as _};
use bursar_ledger::term::{Begun, Hand, begin};
use bursar_ledger::writer::Poison;
use bursar_node::executor::Executor;
use bursar_node::market::Agent;
use bursar_server::metrics::Metrics;
use bursar_server::{Caller, CallerSource, OwnUser, ServerInfo, Service, Via, router};
use bursar_units::{Instant, Label, Millis};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt as _;

/// Monday 16 November 2026, 10:00 UTC.
pub(crate) const NOW_MS: u64 = 1_794_823_200_000;

const STORE_FILE: &str = "ledger.db";

pub(crate) const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";

/// A service over a ledger in memory.
pub(crate) struct World {
    pub(crate) service: Arc<Service>,
    pub(crate) store: MemoryStore,
    pub(crate) ledger: Ledger,
    operators: Router,
    directory: TempDir,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

/// The runtime's clock, which runs on virtual time.
pub(crate) struct RuntimeClock(pub(crate) tokio::time::Instant);

pub(crate) struct Quiet;

impl Clock for RuntimeClock {
    fn wall(&self) -> Instant {
        Instant::from_ms(NOW_MS).after(self.monotonic())
    }

    fn monotonic(&self) -> Millis {
        Millis::from_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

impl Observe for Quiet {
    fn poisoned(&self, poison: &Poison) {
        panic!("{poison:?}");
    }
    fn store_failed(&self, _: &store::Error) {}
    fn not_leader(&self) {}
    fn store_away(&self, _: &Result<String, store::Error>) {}
    fn committed(&self, _: usize, _: Duration) {}
    fn signed(&self, _: u64) {}
    fn invariant_broken(&self, _: &bursar_engine::invariants::Broken) {}
}

impl World {
    /// Creates a ledger that runs as a task, for tests on paused time.
    pub(crate) fn new() -> Self {
        Self::inline(None, |service| service)
    }

    /// Like [`World::new`], with an executor and a file name of the store.
    pub(crate) fn executing(executor: Arc<dyn Executor>) -> Self {
        Self::inline(Some(STORE_FILE), |service| {
            service.executing(executor, OwnUser::Everyone)
        })
    }

    /// Like [`World::new`], with an index of records.
    pub(crate) fn indexed(index: Index) -> Self {
        Self::inline(None, |service| service.indexed(index))
    }

    /// Like [`World::new`], with the agent of a market.
    pub(crate) fn sharing_cpu(agent: Arc<Agent>) -> Self {
        Self::inline(None, |service| service.sharing_cpu(agent))
    }

    fn inline(file: Option<&str>, change: impl FnOnce(Service) -> Service) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        Self::with(&clock, file, change, |begun, clock| {
            let (ledger, task) = Ledger::inline(begun, clock, Arc::new(Quiet));
            tokio::spawn(task.run());
            ledger
        })
    }

    /// Creates a ledger whose store never answers.
    pub(crate) fn stuck() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        Self::with(
            &clock,
            None,
            |service| service,
            |begun, clock| {
                let (ledger, task) = Ledger::inline(begun, clock, Arc::new(Quiet));
                // Kept and never run, so that every request waits.
                std::mem::forget(task);
                ledger
            },
        )
    }

    /// Creates a ledger on its three threads, for tests with real connections.
    pub(crate) fn threaded() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(bursar_ledger::clock::MachineClock::default());
        Self::with(
            &clock,
            None,
            |service| service,
            |begun, clock| Ledger::start(begun, clock, Arc::new(Quiet)).unwrap().0,
        )
    }

    fn with(
        clock: &Arc<dyn Clock>,
        file: Option<&str>,
        change: impl FnOnce(Service) -> Service,
        start: impl FnOnce(Begun, Arc<dyn Clock>) -> Ledger,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("ledger.key");
        let store = MemoryStore::new();
        let mut signer = None;
        let hand = |id: &str, generation| {
            let made = Signer::create_new(&key, id, generation)?;
            made.promote_new()?;
            let verifiers = made.verifiers();
            let shared = Arc::new(Mutex::new(made));
            signer = Some(Arc::clone(&shared));
            Ok(Hand {
                verifiers,
                sign: signs_with(shared, Arc::clone(clock)),
            })
        };
        let id = || LEDGER.to_owned();
        let begun = begin(
            Box::new(store.clone()),
            State::default(),
            clock,
            id,
            hand,
            |_, _| {},
        )
        .unwrap();
        let ledger = start(begun, Arc::clone(clock));
        let keys = Keys::new(signer.unwrap(), ledger.clone());
        let readers = store.clone();
        let info = ServerInfo {
            version: "0.1.0".to_owned(),
            store: "memory".to_owned(),
            file: file.map(|file| directory.path().join(file)),
            leads_since: clock.wall(),
            node: None,
        };
        let readers = Arc::new(move || readers.reader());
        let service = Service::new(ledger.clone(), readers, keys, info, Metrics::default());
        let service = Arc::new(change(service));
        let source = CallerSource::Fixed(Arc::new(operator()));
        let operators = router(Arc::clone(&service), source);
        Self {
            service,
            store,
            ledger,
            operators,
            directory,
        }
    }

    /// The file that a backup copies; it exists only if a test creates it.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join(STORE_FILE)
    }

    /// Creates the router of one caller.
    pub(crate) fn router(&self, caller: Caller) -> Router {
        router(
            Arc::clone(&self.service),
            CallerSource::Fixed(Arc::new(caller)),
        )
    }

    /// Sends a request of an operator.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        send(&self.operators, request).await
    }

    /// Sends a request of a caller.
    pub(crate) async fn ask_as(
        &self,
        caller: Caller,
        method: &str,
        path: &str,
        body: &str,
    ) -> Reply {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        send(&self.router(caller), request).await
    }

    pub(crate) async fn limit(&self, name: &str, spec: &str) -> Reply {
        self.ask(
            "PUT",
            &format!("/v1/limits/{name}"),
            &limit_body(name, spec),
        )
        .await
    }

    /// Reserves a slot for a tenant and returns its fence.
    pub(crate) async fn grant(&self, id: &str, class: &str, tenant: &str) -> u64 {
        let body = format!(r#"{{"class":"{class}","tenant":"{tenant}"}}"#);
        let reply = self.ask("PUT", &format!("/v1/bookings/{id}"), &body).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["fence"].as_u64().unwrap()
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.bytes)))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).unwrap()
    }

    /// Checks that the reply is a well-formed problem of this code.
    #[track_caller]
    pub(crate) fn is_problem(&self, code: &str) -> Value {
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem:#}");
        assert_eq!(problem["status"], self.status.as_u16(), "{problem:#}");
        assert_eq!(problem["type"], format!("/problems/{code}"));
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty()),
            "{problem:#}"
        );
        assert!(problem["instance"].is_string(), "{problem:#}");
        assert!(self.headers.contains_key("bursar-record"));
        problem
    }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes().to_vec();
    Reply {
        status: parts.status,
        headers: parts.headers,
        bytes,
    }
}

pub(crate) fn limit_body(name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"bursar.dev/v1alpha1","kind":"Limit","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
    )
}

pub(crate) fn caller(name: &str, roles: &[Role], tenants: &[&str]) -> Caller {
    let label = |text: &&str| Label::new(text).unwrap();
    Caller {
        name: label(&name),
        via: Via::Socket,
        roles: roles.iter().copied().collect(),
        tenants: tenants.iter().map(label).collect::<BTreeSet<_>>(),
        owners: BTreeSet::new(),
        expires: None,
    }
}

pub(crate) fn operator() -> Caller {
    caller("ada", &[Role::Operate], &["ada"])
}

pub(crate) fn user(tenants: &[&str]) -> Caller {
    caller("app", &[Role::Use], tenants)
}

pub(crate) fn viewer() -> Caller {
    caller("eve", &[Role::View], &[])
}
