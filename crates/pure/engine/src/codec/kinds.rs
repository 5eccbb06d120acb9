//! The kinds this program knows, to tell a newer record from a damaged one (L8).

use std::collections::BTreeMap;

use serde_json::value::RawValue;

pub(super) const COMMANDS: &[&str] = &[
    "genesis",
    "level",
    "resume",
    "tick",
    "reserve",
    "release",
    "renew",
    "submit",
    "started",
    "adopt",
    "exited",
    "stopFailed",
    "cancel",
    "force",
    "change",
    "createToken",
    "revokeToken",
    "rotateKey",
    "anchor",
    "prune",
    "restore",
    "reportMarket",
];

pub(super) const EVENTS: &[&str] = &[
    "genesis",
    "level",
    "resumed",
    "reserved",
    "granted",
    "renewed",
    "ended",
    "submitted",
    "started",
    "adopted",
    "stopping",
    "stopFailed",
    "exited",
    "limitSet",
    "limitDropped",
    "nodeSet",
    "nodeDropped",
    "unsettled",
    "tokenCreated",
    "tokenRevoked",
    "keyRotated",
    "anchored",
    "pruned",
    "restored",
    "keyed",
    "marketSet",
    "marketLabelled",
    "originalTaken",
    "originalReturned",
    "marketDigested",
];

/// The first kind in `bytes`, one tagged object or a list of them, that is not known.
pub(super) fn first_unknown(bytes: &[u8], known: &[&str]) -> Option<String> {
    type Tagged<'a> = BTreeMap<String, &'a RawValue>;
    let objects: Vec<Tagged<'_>> = serde_json::from_slice(bytes)
        .or_else(|_| serde_json::from_slice(bytes).map(|object| vec![object]))
        .ok()?;
    objects
        .into_iter()
        .flat_map(BTreeMap::into_keys)
        .find(|kind| !known.contains(&kind.as_str()))
}
