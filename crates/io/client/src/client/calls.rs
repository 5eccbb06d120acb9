//! The calls of the API (design 80, 4.1).

use std::time::Duration;

use bursar_journal::tile::Path as TilePath;
use bursar_units::{BookingId, Instant, Millis, ObjectName};
use bytes::Bytes;
use http::{HeaderName, Method, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::exchange::Call;
use super::query::escape;
use super::{Client, Download, Error, Query};
use crate::api::{
    ApplyAnswer, ApplyRequest, Booking, BookingRequest, CancelRequest, Execution, ExecutionRequest,
    Explanation, ExportedAnswer, ExportedRequest, Health, IDEMPOTENCY_HEADER, Identity,
    LedgerStatus, Limit, ListAnswer, Node, NodeMarket, PAGE_MAX, PruneAnswer, PruneRequest,
    RecordView, ReleaseRequest, RenewRequest, RestoreAnswer, RestoreRequest, RotateKeyAnswer,
    RotateKeyRequest, Token, TokenCreated, TokenRequest, instant,
};
use crate::object::Object;

/// Whether to do a thing or only say what would be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Do it.
    Do,
    /// Answer as if it were done, and change nothing.
    DryRun,
}

impl Mode {
    /// A dry run if that was asked for.
    pub const fn dry_run_if(asked: bool) -> Self {
        if asked { Self::DryRun } else { Self::Do }
    }

    fn query(self) -> Query {
        match self {
            Self::Do => Query::new(),
            Self::DryRun => Query::new().with("dryRun", true),
        }
    }
}

/// Bookings.
impl Client {
    /// Asks for slots under an id; the same id and request again answers as it stands.
    pub async fn reserve(
        &self,
        id: &BookingId,
        request: &BookingRequest,
        mode: Mode,
    ) -> Result<Booking, Error> {
        self.put(&format!("/v1/bookings/{id}"), &mode.query(), request)
            .await
    }

    /// How a booking stands.
    pub async fn booking(&self, id: &BookingId) -> Result<Booking, Error> {
        self.get(&format!("/v1/bookings/{id}"), &Query::new()).await
    }

    /// How a booking stands once it no longer waits, or after that long at the latest.
    pub async fn booking_wait(&self, id: &BookingId, wait: Duration) -> Result<Booking, Error> {
        self.get_waiting(&format!("/v1/bookings/{id}"), wait).await
    }

    /// How a booking stands, and in `held` whether a fence is still its present one (S5).
    pub async fn booking_fence(&self, id: &BookingId, fence: u64) -> Result<Booking, Error> {
        self.get(
            &format!("/v1/bookings/{id}"),
            &Query::new().with("fence", fence),
        )
        .await
    }

    /// Shows life.
    pub async fn renew(
        &self,
        id: &BookingId,
        request: &RenewRequest,
        mode: Mode,
    ) -> Result<Booking, Error> {
        self.post(&format!("/v1/bookings/{id}/renew"), &mode.query(), request)
            .await
    }

    /// Gives slots back.
    pub async fn release(
        &self,
        id: &BookingId,
        request: &ReleaseRequest,
        mode: Mode,
    ) -> Result<Booking, Error> {
        self.post(
            &format!("/v1/bookings/{id}/release"),
            &mode.query(),
            request,
        )
        .await
    }

    /// Gives up a wait.
    pub async fn cancel(&self, id: &BookingId, mode: Mode) -> Result<Booking, Error> {
        let path = format!("/v1/bookings/{id}/cancel");
        self.post(&path, &mode.query(), &CancelRequest {}).await
    }

    /// One page of bookings; filters are `class`, `tenant`, `state`, `execution` and so on.
    pub async fn bookings(&self, query: &Query) -> Result<ListAnswer<Booking>, Error> {
        self.get("/v1/bookings", query).await
    }

    /// All bookings of a filter, page after page.
    pub async fn all_bookings(&self, query: &Query) -> Result<ListAnswer<Booking>, Error> {
        self.all("/v1/bookings", query).await
    }
}

/// Executions.
impl Client {
    /// Has a program run under an id; the same id and request again answers as it stands.
    pub async fn submit(
        &self,
        id: &BookingId,
        request: &ExecutionRequest,
        mode: Mode,
    ) -> Result<Execution, Error> {
        self.put(&format!("/v1/executions/{id}"), &mode.query(), request)
            .await
    }

    /// How an execution stands.
    pub async fn execution(&self, id: &BookingId) -> Result<Execution, Error> {
        self.get(&format!("/v1/executions/{id}"), &Query::new())
            .await
    }

    /// How an execution stands once it is in another state, or after that long at the latest.
    pub async fn execution_wait(&self, id: &BookingId, wait: Duration) -> Result<Execution, Error> {
        self.get_waiting(&format!("/v1/executions/{id}"), wait)
            .await
    }

    /// Has an execution stopped, whatever it is doing.
    pub async fn cancel_execution(&self, id: &BookingId, mode: Mode) -> Result<Execution, Error> {
        let path = format!("/v1/executions/{id}/cancel");
        self.post(&path, &mode.query(), &CancelRequest {}).await
    }

    /// All executions of a filter, page after page.
    pub async fn all_executions(&self, query: &Query) -> Result<ListAnswer<Execution>, Error> {
        self.all("/v1/executions", query).await
    }
}

/// Declared objects.
impl Client {
    /// Declares several objects, all or none.
    pub async fn apply(&self, objects: &[Object], mode: Mode) -> Result<ApplyAnswer, Error> {
        let objects: Vec<Value> = objects.iter().map(Object::to_value).collect();
        self.post("/v1/apply", &mode.query(), &ApplyRequest { objects })
            .await
    }

    /// All limits.
    pub async fn limits(&self) -> Result<ListAnswer<Limit>, Error> {
        self.all("/v1/limits", &Query::new()).await
    }

    /// One limit.
    pub async fn limit(&self, name: &ObjectName) -> Result<Limit, Error> {
        self.get(&format!("/v1/limits/{name}"), &Query::new()).await
    }

    /// Declares one limit; with a `resourceVersion`, only if that is its present one.
    pub async fn put_limit(&self, limit: &Limit, mode: Mode) -> Result<ApplyAnswer, Error> {
        let target = format!(
            "/v1/limits/{}{}",
            limit.metadata.name,
            mode.query().as_str()
        );
        let call = Call::new(Method::PUT, target).json(limit);
        let call = match &limit.metadata.resource_version {
            Some(version) => call.header(header::IF_MATCH, version),
            None => call,
        };
        self.fetch(&call).await
    }

    /// Removes a limit.
    pub async fn delete_limit(&self, name: &ObjectName, mode: Mode) -> Result<ApplyAnswer, Error> {
        self.delete(&format!("/v1/limits/{name}"), &mode.query())
            .await
    }

    /// All machines.
    pub async fn nodes(&self) -> Result<ListAnswer<Node>, Error> {
        self.all("/v1/nodes", &Query::new()).await
    }

    /// One machine.
    pub async fn node(&self, name: &ObjectName) -> Result<Node, Error> {
        self.get(&format!("/v1/nodes/{name}"), &Query::new()).await
    }

    /// Declares one machine.
    pub async fn put_node(&self, node: &Node, mode: Mode) -> Result<ApplyAnswer, Error> {
        self.put(
            &format!("/v1/nodes/{}", node.metadata.name),
            &mode.query(),
            node,
        )
        .await
    }

    /// Removes a machine.
    pub async fn delete_node(&self, name: &ObjectName, mode: Mode) -> Result<ApplyAnswer, Error> {
        self.delete(&format!("/v1/nodes/{name}"), &mode.query())
            .await
    }
}

/// The node market.
impl Client {
    /// How a node's CPU is divided, as of its last clearing.
    pub async fn market(&self, node: &ObjectName) -> Result<NodeMarket, Error> {
        self.get(&format!("/v1/nodes/{node}/market"), &Query::new())
            .await
    }

    /// How it was divided at the last clearing before a time of the last day.
    pub async fn market_at(&self, node: &ObjectName, at: Instant) -> Result<NodeMarket, Error> {
        let query = Query::new().with("at", instant::format(at));
        self.get(&format!("/v1/nodes/{node}/market"), &query).await
    }

    /// Puts back the limits that users wrote, and stops acting on that node.
    pub async fn restore_node(
        &self,
        node: &ObjectName,
        mode: Mode,
    ) -> Result<RestoreAnswer, Error> {
        let path = format!("/v1/nodes/{node}/restore");
        self.post(&path, &mode.query(), &RestoreRequest {}).await
    }
}

/// Answers and identities.
impl Client {
    /// Why something is as it is.
    pub async fn explain(&self, kind: &str, name: &str) -> Result<Explanation, Error> {
        self.get(&path(&["v1", "explain", kind, name]), &Query::new())
            .await
    }

    /// Who the caller is to the server.
    pub async fn identity(&self) -> Result<Identity, Error> {
        self.get("/v1/identity", &Query::new()).await
    }

    /// All tokens, without their secrets.
    pub async fn tokens(&self) -> Result<ListAnswer<Token>, Error> {
        self.all("/v1/tokens", &Query::new()).await
    }

    /// Makes a token. The key makes repeats of one command one token; its secret is told once.
    pub async fn create_token(
        &self,
        key: &BookingId,
        request: &TokenRequest,
        mode: Mode,
    ) -> Result<TokenCreated, Error> {
        self.post_once("/v1/tokens", key, &mode.query(), request)
            .await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, name: &ObjectName, mode: Mode) -> Result<ApplyAnswer, Error> {
        self.delete(&format!("/v1/tokens/{name}"), &mode.query())
            .await
    }

    /// Whether the server lives.
    pub async fn health(&self) -> Result<Health, Error> {
        self.get("/healthz", &Query::new()).await
    }

    /// Whether the server can be used.
    pub async fn ready(&self) -> Result<Health, Error> {
        self.get("/readyz", &Query::new()).await
    }
}

/// The ledger.
impl Client {
    /// How the ledger stands.
    pub async fn ledger(&self) -> Result<LedgerStatus, Error> {
        self.get("/v1/ledger", &Query::new()).await
    }

    /// One page of records, oldest first; filters are `from` and `object`.
    pub async fn records(&self, query: &Query) -> Result<ListAnswer<RecordView>, Error> {
        self.get("/v1/records", query).await
    }

    /// The proof of a thing as one file, for `bursar audit verify`.
    pub async fn proof(&self, kind: &str, id: &str) -> Result<String, Error> {
        self.text(&path(&["v1", "proofs", kind, id])).await
    }

    /// The newest signed checkpoint, a signed note.
    pub async fn checkpoint(&self) -> Result<String, Error> {
        self.text("/log/checkpoint").await
    }

    /// A tile of the tree, or a bundle of records.
    pub async fn tile(&self, tile: &TilePath) -> Result<Bytes, Error> {
        let call = Call::new(Method::GET, format!("/log/{tile}"));
        self.fetch_bytes(&call).await
    }

    /// Records as they are stored; `format`, `from` and `to` say which and how.
    pub async fn export(&self, query: &Query) -> Result<Download, Error> {
        self.download(&Call::new(
            Method::GET,
            format!("/v1/ledger/export{}", query.as_str()),
        ))
        .await
    }

    /// Says that an export is safe, so that what is in it may be pruned.
    pub async fn exported(&self, request: &ExportedRequest) -> Result<ExportedAnswer, Error> {
        self.post("/v1/ledger/exported", &Query::new(), request)
            .await
    }

    /// The whole store, as one file.
    pub async fn backup(&self) -> Result<Download, Error> {
        self.download(&Call::new(Method::GET, "/v1/ledger/backup".to_owned()))
            .await
    }

    /// Forgets payloads. The key makes repeats of one command one action.
    pub async fn prune(
        &self,
        key: &BookingId,
        request: &PruneRequest,
        mode: Mode,
    ) -> Result<PruneAnswer, Error> {
        self.post_once("/v1/ledger/prune", key, &mode.query(), request)
            .await
    }

    /// Signs with a new key from now on. The key makes repeats of one command one action.
    pub async fn rotate_key(&self, key: &BookingId, mode: Mode) -> Result<RotateKeyAnswer, Error> {
        let path = "/v1/ledger/rotate-key";
        self.post_once(path, key, &mode.query(), &RotateKeyRequest {})
            .await
    }
}

impl Client {
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<T, Error> {
        self.fetch(&Call::new(Method::GET, format!("{path}{}", query.as_str())))
            .await
    }

    /// A look for which the server waits until what is looked at changes.
    async fn get_waiting<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<T, Error> {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let query = Query::new().with("wait", Millis::from_ms(ms));
        let target = format!("{path}{}", query.as_str());
        self.fetch(&Call::new(Method::GET, target).wait(wait)).await
    }

    async fn put<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        body: &B,
    ) -> Result<T, Error> {
        let target = format!("{path}{}", query.as_str());
        self.fetch(&Call::new(Method::PUT, target).json(body)).await
    }

    async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        body: &B,
    ) -> Result<T, Error> {
        let target = format!("{path}{}", query.as_str());
        self.fetch(&Call::new(Method::POST, target).json(body))
            .await
    }

    async fn post_once<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        key: &BookingId,
        query: &Query,
        body: &B,
    ) -> Result<T, Error> {
        let header = HeaderName::from_static(IDEMPOTENCY_HEADER);
        let call = Call::new(Method::POST, format!("{path}{}", query.as_str())).json(body);
        self.fetch(&call.header(header, key.as_str())).await
    }

    async fn delete<T: DeserializeOwned>(&self, path: &str, query: &Query) -> Result<T, Error> {
        self.fetch(&Call::new(
            Method::DELETE,
            format!("{path}{}", query.as_str()),
        ))
        .await
    }

    async fn text(&self, path: &str) -> Result<String, Error> {
        let bytes = self
            .fetch_bytes(&Call::new(Method::GET, path.to_owned()))
            .await?;
        String::from_utf8(bytes.into()).map_err(|_| self.protocol(format!("{path} is not text")))
    }

    /// All pages of a list, as of the record of the first.
    async fn all<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<ListAnswer<T>, Error> {
        let query = query.clone().with("limit", PAGE_MAX);
        let mut list: ListAnswer<T> = self.get(path, &query).await?;
        while let Some(cursor) = list.next_cursor.take() {
            let page: ListAnswer<T> = self
                .get(path, &query.clone().with("cursor", cursor))
                .await?;
            list.items.extend(page.items);
            list.next_cursor = page.next_cursor;
        }
        Ok(list)
    }
}

/// A path of parts that may hold any character.
fn path(parts: &[&str]) -> String {
    let mut path = String::new();
    for part in parts {
        path.push('/');
        escape(part, &mut path);
    }
    path
}
