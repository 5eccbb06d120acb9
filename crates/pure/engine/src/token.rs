//! Who may do what (design 80, 4.6).

use std::collections::{BTreeMap, BTreeSet};

use bursar_journal::hash::Hash;
use bursar_units::{Instant, Label, ObjectName, vocabulary};
use serde::{Deserialize, Serialize};

vocabulary! {
    /// What a caller may do.
    pub enum Role {
        /// Read everything.
        View = "view",
        /// Act as the tenants listed.
        Use = "use",
        /// Change limits, nodes and tokens, and act as anyone.
        Operate = "operate",
    }
}

/// Proof of identity, without its secret.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Token {
    /// Its name, which is also the caller's.
    pub name: ObjectName,
    /// The hash of its secret.
    pub sha256: Hash,
    /// What it lets its bearer do.
    pub roles: BTreeSet<Role>,
    /// As whom.
    pub tenants: BTreeSet<Label>,
    /// Until when.
    pub expires: Instant,
    /// When it was made. Only in a snapshot: of an event the record's time says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Instant>,
}

/// All tokens that were not revoked.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    by_name: BTreeMap<ObjectName, (Token, Instant)>,
    by_hash: BTreeMap<Hash, ObjectName>,
}

impl Tokens {
    /// The token whose secret has this hash, expired or not.
    pub fn with_hash(&self, sha256: &Hash) -> Option<&Token> {
        self.get(self.by_hash.get(sha256)?.as_str())
    }

    /// The token of that name, expired or not.
    pub fn get(&self, name: &str) -> Option<&Token> {
        self.by_name.get(name).map(|(token, _)| token)
    }

    /// All of them with when each was made, by name.
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
