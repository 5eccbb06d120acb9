//! Tokens: who may do what (design 80, 4.6).

use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{LABEL, lifetime, token_name};
use super::fields::object;
use super::{instant, word};
use crate::shape::Shape;

pub use bursar_engine::token::Role;

/// A token, without its secret.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its name, which is also the caller's.
    #[schema(value_type = String)]
    pub name: ObjectName,
    /// What it lets its bearer do.
    #[schema(value_type = Vec<word::Role>)]
    pub roles: Vec<Role>,
    /// As whom.
    #[schema(value_type = Vec<String>)]
    pub tenants: Vec<Label>,
    /// When it was made.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Instant,
    /// Until when it is good.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Instant,
}

object! {
    /// The body of `POST /v1/tokens`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TokenRequest {
        /// Its name, which is also the caller's.
        #[schema(value_type = String, max_length = 253)]
        required name "name": ObjectName = Shape::Text(token_name);
        /// What it lets its bearer do; at least one.
        #[schema(value_type = Vec<word::Role>, min_items = 1)]
        required roles "roles": Vec<Role> = Shape::List(&Shape::Word(&Role::WORDS));
        /// As whom; needed by `use`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        defaulted tenants "tenants": Vec<Label> = Shape::List(&LABEL), Vec::new();
        /// How long it is good, as in `90d`, which it is unless told.
        #[schema(example = "90d")]
        optional expires "expires": String = Shape::Text(|text| lifetime(text).map(drop));
    }
}

/// A new token, with its secret.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenCreated {
    /// The token.
    #[serde(flatten)]
    pub token: Token,
    /// What its bearer sends. Shown this once: only its hash is kept.
    pub secret: String,
    /// The last ledger record this answer reflects.
    pub record: u64,
    /// True where nothing was changed; then there is no secret either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Who the caller is to the server: `GET /v1/identity`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The caller's name: the token's, the Unix user's, or `anonymous`.
    pub name: String,
    /// How it is known: `token`, `socket` or `anonymous`.
    pub via: String,
    /// What it may do.
    #[schema(value_type = Vec<word::Role>)]
    pub roles: Vec<Role>,
    /// As whom.
    #[schema(value_type = Vec<String>)]
    pub tenants: Vec<Label>,
    /// Until when, where that ends.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "instant::optional"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Instant>,
}
