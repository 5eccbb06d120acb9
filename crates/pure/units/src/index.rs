//! A hash map for look-ups by random id, without iteration (L10).
//!
//! With a million ids a look-up takes 1.9 µs in a `BTreeMap` and 0.3 µs here. The order of a hash map
//! depends on its seed; without iteration that order cannot affect any output, so the seed may be
//! random, which prevents chosen collisions.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::HashTable;

/// A map with `get`, `insert` and `remove` only.
#[derive(Clone, Debug)]
pub struct Index<K, V> {
    hasher: Seed,
    table: HashTable<(K, V)>,
}

#[expect(
    clippy::disallowed_types,
    reason = "a random seed is safe without iteration, and prevents chosen collisions"
)]
type Seed = std::collections::hash_map::RandomState;

impl<K: Eq + Hash, V> Default for Index<K, V> {
    fn default() -> Self {
        Self {
            hasher: Seed::default(),
            table: HashTable::new(),
        }
    }
}

impl<K: Eq + Hash, V> Index<K, V> {
    /// The value of `key`.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        self.table
            .find(hash, |(k, _)| k.borrow() == key)
            .map(|(_, value)| value)
    }

    /// The mutable value of `key`.
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        self.table
            .find_mut(hash, |(k, _)| k.borrow() == key)
            .map(|(_, value)| value)
    }

    /// Sets the value of `key` and returns the old one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(present) = self.get_mut(&key) {
            return Some(std::mem::replace(present, value));
        }
        let hash = self.hasher.hash_one(&key);
        self.table
            .insert_unique(hash, (key, value), |(k, _)| self.hasher.hash_one(k));
        None
    }

    /// Removes `key` and returns its value.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let entry = self
            .table
            .find_entry(hash, |(k, _)| k.borrow() == key)
            .ok()?;
        Some(entry.remove().0.1)
    }
}

/// Number of tables of [`Positions`].
const SHARDS: usize = 256;

/// A hash set of positions in a table that holds the keys, for tables too large to store keys twice.
///
/// A hash table that grows moves all its entries at once, and reads each key for it: with half a
/// million keys that takes 80 ms. Therefore the set consists of many tables, which grow one by one.
/// Copies share the tables that have not changed since.
#[derive(Clone, Debug)]
pub struct Positions {
    hasher: Seed,
    shards: [Arc<HashTable<u32>>; SHARDS],
}

impl Default for Positions {
    fn default() -> Self {
        Self {
            hasher: Seed::default(),
            shards: std::array::from_fn(|_| Arc::default()),
        }
    }
}

impl Positions {
    /// The position of `key`; `key_at` reads the key at a position.
    pub fn find<'a>(&self, key: &str, key_at: impl Fn(u32) -> Option<&'a str>) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let table = self.shards.get(shard(hash))?;
        table
            .find(hash, |position| key_at(*position) == Some(key))
            .copied()
    }

    /// Adds the position of a `key` that is not in the set.
    pub fn insert<'a>(
        &mut self,
        key: &str,
        position: u32,
        key_at: impl Fn(u32) -> Option<&'a str>,
    ) {
        let hash = self.hasher.hash_one(key);
        let rehash = |position: &u32| key_at(*position).map_or(0, |key| self.hasher.hash_one(key));
        if let Some(table) = self.shards.get_mut(shard(hash)) {
            Arc::make_mut(table).insert_unique(hash, position, rehash);
        }
    }

    /// Removes the position of `key`.
    pub fn remove(&mut self, key: &str, position: u32) {
        let hash = self.hasher.hash_one(key);
        let Some(table) = self.shards.get_mut(shard(hash)) else {
            return;
        };
        if let Ok(entry) = Arc::make_mut(table).find_entry(hash, |present| *present == position) {
            entry.remove();
        }
    }
}

/// Table of a hash. The tables themselves use the first and the last bits of a hash.
fn shard(hash: u64) -> usize {
    let [_, byte, ..] = hash.to_be_bytes();
    usize::from(byte)
}
