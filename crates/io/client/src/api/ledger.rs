//! Status and maintenance of the ledger.

use bursar_engine::Reference;
use bursar_units::Instant;
use serde::{Deserialize, Serialize};

use super::body::an_instant;
use super::fields::object;
use super::instant;
use super::query::{PageSize, query};
use crate::ToSchema;
use crate::shape::{Shape, WHOLE};

/// Status of the ledger: the answer of `GET /v1/ledger`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerStatus {
    /// Id of the ledger, a UUID.
    pub ledger: String,
    /// Generation, raised by every restore.
    pub generation: u64,
    /// Number of records.
    pub records: u64,
    /// First record that still has its payload; 0 unless pruned.
    pub pruned_below: u64,
    /// Time of the last record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_record_at: Option<Instant>,
    /// Newest signed checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// Verifier key of the present signing key, as text.
    pub key: String,
    /// Verifier keys of former keys that still sign too, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<String>,
    /// Kind of store: `sqlite` or `memory`.
    pub store: String,
    /// Size in the store, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Time at which this process became the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub leads_since: Option<Instant>,
}

/// Summary of a signed checkpoint.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Number of covered records.
    pub records: u64,
    /// Root hash over them, in hexadecimal.
    pub root: String,
    /// Time of the signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub signed_at: Option<Instant>,
}

/// Proof by hashes that a record is in the signed ledger: the answer of `GET /log/inclusion/{record}`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inclusion {
    /// Number of the record.
    pub record: u64,
    /// Leaf hash of the record, in hexadecimal (RFC 6962).
    pub leaf: String,
    /// Hashes from the leaf up to the root, in hexadecimal.
    pub inclusion: Vec<String>,
    /// Number of records that the checkpoint covers.
    pub records: u64,
    /// Signed checkpoint, a C2SP signed note.
    pub checkpoint: String,
    /// Verifier keys of the signing keys, newest first, as text.
    pub keys: Vec<String>,
}

/// One record as shown by `GET /v1/records`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordView {
    /// Number of the record.
    pub seq: u64,
    /// Time of the record; absent if its payload was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Instant>,
    /// Principal of the command; absent if the record names objects that the caller may not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Objects of the record that the caller may see, as in `booking/job-1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// One sentence for each event that the caller may see.
    pub summary: Vec<String>,
    /// The stored record; for operators, and for a tenant if the record names no other tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub raw: Option<Box<serde_json::value::RawValue>>,
}

object! {
    /// The body of `POST /v1/ledger/prune`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PruneRequest {
        /// Payloads of records before this time are deleted.
        #[serde(with = "instant")]
        #[schema(value_type = String, format = DateTime)]
        required before "before": Instant = Shape::Text(an_instant);
    }
}

object! {
    /// The body of `POST /v1/ledger/exported`: confirms that an export is safely stored.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ExportedRequest {
        /// First record of the export.
        required from "from": u64 = WHOLE;
        /// First record after those that a checkpoint in the export signs.
        required below "below": u64 = WHOLE;
    }
}

/// Answer to a confirmed export.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedAnswer {
    /// All records below this one are in some export and may be pruned.
    pub below: u64,
    /// Last ledger record that this answer reflects.
    pub record: u64,
}

/// Answer to a prune.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneAnswer {
    /// First record that keeps its payload.
    pub below: u64,
    /// Number of deleted payloads.
    pub pruned: u64,
    /// Last ledger record that this answer reflects.
    pub record: u64,
    /// True for a dry run: nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// The body of `POST /v1/ledger/rotate-key`, which may be empty.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateKeyRequest {}

/// Answer to a change of keys.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotateKeyAnswer {
    /// Verifier key of the new signing key, as text.
    pub key: String,
    /// Verifier key of the key before it, as text.
    pub former: String,
    /// Time until which both keys sign.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub both_until: Instant,
    /// Last ledger record that this answer reflects.
    pub record: u64,
    /// True for a dry run: nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

query! {
    /// Filter of records.
    pub struct ListRecords {
        /// First record; `cursor` is an alias.
        from "from": u64, Excludes "cursor";
        /// `nextCursor` of the previous page.
        cursor "cursor": String;
        /// Maximum number of items.
        limit "limit": PageSize;
        /// Only records about this object, such as `booking/job-1`.
        object "object": Reference;
        /// Include each record as it is stored.
        raw "raw": bool;
    }
}

query! {
    /// Records of an export.
    pub struct ExportLedger {
        /// First record.
        from "from": u64;
        /// First record that is not exported.
        to "to": u64;
    }
}
