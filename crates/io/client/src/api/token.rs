//! Tokens: identities with roles, tenants and owners.

use bursar_units::{Instant, Label, ObjectName};
use serde::{Deserialize, Serialize};

use super::body::{LABEL, lifetime, token_name};
use super::fields::object;
use super::instant;
use crate::ToSchema;
use crate::shape::Shape;

pub use bursar_engine::token::Role;

/// A token, without its secret.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Name; also the name of the caller.
    #[schema(value_type = String)]
    pub name: ObjectName,
    /// Roles of the bearer.
    #[schema(value_type = Vec<crate::api::word::Role>)]
    pub roles: Vec<Role>,
    /// Tenants that the bearer may act as.
    #[schema(value_type = Vec<String>)]
    pub tenants: Vec<Label>,
    /// Owners that the bearer may act as.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub owners: Vec<Label>,
    /// Time of creation.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Instant,
    /// Time of expiry.
    #[serde(with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Instant,
}

object! {
    /// The body of `POST /v1/tokens`.
    #[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TokenRequest {
        /// Name; also the name of the caller.
        #[schema(value_type = String, max_length = 253)]
        required name "name": ObjectName = Shape::Text(token_name);
        /// Roles of the bearer; at least one.
        #[schema(value_type = Vec<crate::api::word::Role>, min_items = 1)]
        required roles "roles": Vec<Role> = Shape::List(&Shape::Word(&Role::WORDS));
        /// Tenants that the bearer may act as; `use` requires a tenant or an owner.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        defaulted tenants "tenants": Vec<Label> = Shape::List(&LABEL), Vec::new();
        /// Owners that the bearer may act as; only an operator may name others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        defaulted owners "owners": Vec<Label> = Shape::List(&LABEL), Vec::new();
        /// Lifetime; default `90d`.
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
    /// Secret that the bearer sends. It is shown only once: the server keeps its hash.
    pub secret: String,
    /// Last ledger record that this answer reflects.
    pub record: u64,
    /// True for a dry run: nothing was changed, and there is no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Identity of the caller: the answer of `GET /v1/identity`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Name of the token or of the Unix user, or `anonymous`.
    pub name: String,
    /// Authentication: `token`, `socket` or `anonymous`.
    pub via: String,
    /// Roles of the caller.
    #[schema(value_type = Vec<crate::api::word::Role>)]
    pub roles: Vec<Role>,
    /// Tenants that the bearer may act as.
    #[schema(value_type = Vec<String>)]
    pub tenants: Vec<Label>,
    /// Owners that the bearer may act as.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub owners: Vec<Label>,
    /// Time of expiry, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(with = "instant::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Instant>,
}
