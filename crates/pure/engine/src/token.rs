//! Access tokens and roles.

use std::collections::{BTreeMap, BTreeSet};

use bursar_journal::hash::Hash;
use bursar_units::{Instant, Label, ObjectName, vocabulary};
use serde::{Deserialize, Serialize};

vocabulary! {
    /// Role of a caller.
    pub enum Role {
        /// Reads everything.
        View = "view",
        /// Acts for the tenants and owners of the token.
        Use = "use",
        /// Changes budgets, limits, nodes and tokens, and acts for any tenant and owner.
        Operate = "operate",
    }
}

/// An access token, without its secret.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Token {
    /// Name, which is also that of the caller.
    pub name: ObjectName,
    /// Hash of the secret.
    pub sha256: Hash,
    /// Roles.
    pub roles: BTreeSet<Role>,
    /// Tenants that the caller may act for.
    pub tenants: BTreeSet<Label>,
    /// Owners that the caller may act as. Absent: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub owners: BTreeSet<Label>,
    /// Time of expiry.
    pub expires: Instant,
    /// Time of creation, in snapshots only; of an event it is the time of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Instant>,
}

/// Tokens that were not revoked.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    by_name: BTreeMap<ObjectName, (Token, Instant)>,
    by_hash: BTreeMap<Hash, ObjectName>,
}

impl Tokens {
    /// Token whose secret has this hash, expired or not.
    pub fn with_hash(&self, sha256: &Hash) -> Option<&Token> {
        self.get(self.by_hash.get(sha256)?.as_str())
    }

    /// Token of that name, expired or not.
    pub fn get(&self, name: &str) -> Option<&Token> {
        self.by_name.get(name).map(|(token, _)| token)
    }

    /// Tokens with their times of creation, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Token, Instant)> {
        self.by_name
            .values()
            .map(|(token, created)| (token, *created))
    }

    pub(crate) fn insert(&mut self, token: &Token, created: Instant) {
        self.remove(&token.name);
        self.by_hash.insert(token.sha256, token.name.clone());
        self.by_name
            .insert(token.name.clone(), (token.clone(), created));
    }

    pub(crate) fn remove(&mut self, name: &ObjectName) {
        if let Some((token, _)) = self.by_name.remove(name) {
            self.by_hash.remove(&token.sha256);
        }
    }
}
