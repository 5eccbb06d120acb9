//! Calls of the spine: declared objects, nodes, tokens and the ledger.

use bursar_journal::tile::Path as TilePath;
use bursar_units::{BookingId, ObjectName};
use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::calls::{Mode, call, path};
use super::exchange::Call;
use super::{Client, Download, Error, Query};
use crate::api::{
    ApplyAnswer, ApplyRequest, Explanation, ExportLedger, ExportedAnswer, ExportedRequest, Health,
    Identity, LedgerStatus, ListAnswer, ListRecords, Node, PruneAnswer, PruneRequest, RecordView,
    RotateKeyAnswer, RotateKeyRequest, Token, TokenCreated, TokenRequest,
};
use crate::object::Object;

/// Declared objects.
impl Client {
    /// Declares several objects, all or none.
    pub async fn apply(&self, objects: &[Object], mode: Mode) -> Result<ApplyAnswer, Error> {
        let objects: Vec<Value> = objects.iter().map(Object::to_value).collect();
        self.post("/v1/apply", &mode.query(), &ApplyRequest { objects })
            .await
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<ListAnswer<Node>, Error> {
        self.all("/v1/nodes", &Query::new()).await
    }

    /// One node.
    pub async fn node(&self, name: &ObjectName) -> Result<Node, Error> {
        self.get(&format!("/v1/nodes/{name}"), &Query::new()).await
    }

    /// Declares one node.
    pub async fn put_node(&self, node: &Node, mode: Mode) -> Result<ApplyAnswer, Error> {
        self.put(
            &format!("/v1/nodes/{}", node.metadata.name),
            &mode.query(),
            node,
        )
        .await
    }

    /// Removes a node.
    pub async fn delete_node(&self, name: &ObjectName, mode: Mode) -> Result<ApplyAnswer, Error> {
        self.delete(&format!("/v1/nodes/{name}"), &mode.query())
            .await
    }
}

/// Explanations, identities and health.
impl Client {
    /// Explanation of the state of an object.
    pub async fn explain(&self, kind: &str, name: &str) -> Result<Explanation, Error> {
        self.get(&path(&["v1", "explain", kind, name]), &Query::new())
            .await
    }

    /// Identity of the caller.
    pub async fn identity(&self) -> Result<Identity, Error> {
        self.get("/v1/identity", &Query::new()).await
    }

    /// All tokens, without their secrets.
    pub async fn tokens(&self) -> Result<ListAnswer<Token>, Error> {
        self.all("/v1/tokens", &Query::new()).await
    }

    /// Creates a token. Repeats with the same key create one token; its secret is shown once.
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

    /// Health of the process.
    pub async fn health(&self) -> Result<Health, Error> {
        self.get("/healthz", &Query::new()).await
    }

    /// Readiness of the server.
    pub async fn ready(&self) -> Result<Health, Error> {
        self.get("/readyz", &Query::new()).await
    }
}

/// The ledger.
impl Client {
    /// Status of the ledger.
    pub async fn ledger(&self) -> Result<LedgerStatus, Error> {
        self.get("/v1/ledger", &Query::new()).await
    }

    /// One page of records, oldest first.
    pub async fn records(&self, filter: &ListRecords) -> Result<ListAnswer<RecordView>, Error> {
        self.get("/v1/records", &Query::of(filter)).await
    }

    /// Proof of an object as one file, for `bursar audit verify`.
    pub async fn proof(&self, kind: &str, id: &str) -> Result<String, Error> {
        self.text(&path(&["v1", "proofs", kind, id])).await
    }

    /// Newest signed checkpoint, a signed note.
    pub async fn checkpoint(&self) -> Result<String, Error> {
        self.text("/log/checkpoint").await
    }

    /// Tile of the tree, or bundle of records.
    pub async fn tile(&self, tile: &TilePath) -> Result<Bytes, Error> {
        let call = Call::new(Method::GET, format!("/log/{tile}"));
        self.fetch_bytes(&call).await
    }

    /// Stored records.
    pub async fn export(&self, records: &ExportLedger) -> Result<Download, Error> {
        let query = Query::of(records);
        self.download(&call(Method::GET, "/v1/ledger/export", &query))
            .await
    }

    /// Confirms that an export is safely stored, so that its records may be pruned.
    pub async fn exported(&self, request: &ExportedRequest) -> Result<ExportedAnswer, Error> {
        self.post("/v1/ledger/exported", &Query::new(), request)
            .await
    }

    /// Whole store as one file.
    pub async fn backup(&self) -> Result<Download, Error> {
        self.download(&Call::new(Method::GET, "/v1/ledger/backup".to_owned()))
            .await
    }

    /// Deletes payloads. Repeats with the same key are one action.
    pub async fn prune(
        &self,
        key: &BookingId,
        request: &PruneRequest,
        mode: Mode,
    ) -> Result<PruneAnswer, Error> {
        self.post_once("/v1/ledger/prune", key, &mode.query(), request)
            .await
    }

    /// Changes the signing key. Repeats with the same key are one action.
    pub async fn rotate_key(&self, key: &BookingId, mode: Mode) -> Result<RotateKeyAnswer, Error> {
        let path = "/v1/ledger/rotate-key";
        self.post_once(path, key, &mode.query(), &RotateKeyRequest {})
            .await
    }
}
