//! The ledger as its operator sees it.

use bursar_units::Instant;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::an_instant;
use super::fields::object;
use super::instant;
use crate::shape::{Shape, WHOLE};

/// How the ledger stands: `GET /v1/ledger`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerStatus {
    /// Its own id, a UUID.
    pub ledger: String,
    /// Raised by every restore.
    pub generation: u64,
    /// How many records it has.
    pub records: u64,
    /// The first record whose payload is still there; 0 unless pruned.
    pub pruned_below: u64,
    /// When the last record was made.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_record_at: Option<Instant>,
    /// The newest signed checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The verifier key that signs now, as text.
    pub key: String,
    /// Former keys that still sign beside it, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<String>,
    /// Which kind of store holds it: `sqlite` or `memory`.
    pub store: String,
    /// Bytes it takes there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Since when this process leads.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub leads_since: Option<Instant>,
}

/// A signed checkpoint, in short.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// How many records it covers.
    pub records: u64,
    /// The root over them, in hexadecimal.
    pub root: String,
    /// When it was signed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub signed_at: Option<Instant>,
}

/// That a record is in the signed ledger, by hashes alone: `GET /log/inclusion/{record}`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inclusion {
    /// The number of the record.
    pub record: u64,
    /// Its leaf hash, in hexadecimal (RFC 6962).
    pub leaf: String,
    /// The hashes from the leaf up to the root, in hexadecimal.
    pub inclusion: Vec<String>,
    /// How many records the checkpoint covers.
    pub records: u64,
    /// The signed checkpoint, a C2SP signed note.
    pub checkpoint: String,
    /// The verifier keys that sign, newest first, as text.
    pub keys: Vec<String>,
}

/// One record, for people: `GET /v1/records`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordView {
    /// Its number.
    pub seq: u64,
    /// When it was made; absent where its payload was pruned.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Instant>,
    /// Who asked; absent where the record names what the caller may not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What it is about, as in `booking/job-1`, of all that the caller may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// What followed, one sentence for each event that the caller may see.
    pub summary: Vec<String>,
    /// The record itself, as stored; for operators, and for a tenant where it names nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub raw: Option<Box<serde_json::value::RawValue>>,
}

object! {
    /// The body of `POST /v1/ledger/prune`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PruneRequest {
        /// Payloads of records made before this are forgotten.
        #[serde(with = "instant")]
        #[schema(value_type = String, format = DateTime)]
        required before "before": Instant = Shape::Text(an_instant);
    }
}

object! {
    /// The body of `POST /v1/ledger/exported`: an export that its maker has safe.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ExportedRequest {
        /// The first record in it.
        required from "from": u64 = WHOLE;
        /// The first record after those in it that a checkpoint in it signs.
        required below "below": u64 = WHOLE;
    }
}

/// What was exported.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedAnswer {
    /// All records below this one are in some export, and may be pruned as far as that goes.
    pub below: u64,
    /// The last ledger record this answer reflects.
    pub record: u64,
}

/// The answer to a prune.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneAnswer {
    /// The first record that keeps its payload.
    pub below: u64,
    /// How many payloads were forgotten.
    pub pruned: u64,
    /// The last ledger record this answer reflects.
    pub record: u64,
    /// True where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// The body, which may be empty, of `POST /v1/ledger/rotate-key`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateKeyRequest {}

/// The answer to a change of keys.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotateKeyAnswer {
    /// The verifier key that signs from now on, as text.
    pub key: String,
    /// The key before it, as text.
    pub former: String,
    /// Until when both sign.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub both_until: Instant,
    /// The last ledger record this answer reflects.
    pub record: u64,
    /// True where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}
