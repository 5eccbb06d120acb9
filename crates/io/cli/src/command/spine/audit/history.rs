//! Checkpoints seen of a ledger, and proofs that they are one history.
//!
//! A checkpoint is remembered until a consistency proof shows that a larger one extends it. The
//! proof comes from the tiles of a server or from the records of an export.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bursar_client::Client;
use bursar_engine::words;
use bursar_journal::checkpoint::Checkpoint;
use bursar_journal::hash::Hash;
use bursar_journal::merkle::{ProveError, VerifyError, prove_consistency, verify_consistency};
use bursar_journal::tile::{Path as TilePath, TileId, Tiles, tile_hashes};
use bursar_units::causes::chain;

use crate::failure::{Failure, Stop, exit};
use crate::pins::{Pins, two_histories};
use crate::session::Session;

/// Most tiles of a consistency proof: two for each level, at both ends.
const TILES_MAX: usize = 32;

/// Remembers a checkpoint, deletes those that it is proven to extend (`joined`), and marks those of
/// another history (`parted`).
pub(super) fn remember(
    session: &mut Session,
    checkpoint: &Checkpoint,
    joined: &[Checkpoint],
    parted: &[Checkpoint],
) {
    let Some(pins) = Pins::of(&session.environment) else {
        return;
    };
    match pins.see(checkpoint, joined, parted) {
        Ok(0) => {}
        Ok(forgotten) => {
            let forgotten = u64::try_from(forgotten).unwrap_or(u64::MAX);
            session.aside(&format!(
                "warning: {} of this ledger deleted: too many are kept without a consistency proof; verify an export to prove them\n",
                words::count(forgotten, "old checkpoint")
            ));
        }
        Err(failure) => session.warn_unless(Err(failure)),
    }
}

/// Proves, with the server's tiles, that the checkpoint of a proof and those seen before are one
/// history.
pub(super) async fn join(session: &mut Session, client: &Client, note: &str) -> Result<(), Stop> {
    let Some(pins) = Pins::of(&session.environment) else {
        return Ok(());
    };
    // `audit verify` verifies the file itself; here only checkpoints of a trusted key count.
    let Some(checkpoint) = signed(session, note) else {
        return Ok(());
    };
    remember(session, &checkpoint, &[], &[]);
    let origin = checkpoint.origin.as_str();
    let mut seen: Vec<Checkpoint> = pins
        .seen(origin)
        .into_iter()
        .map(|seen| seen.checkpoint)
        .collect();
    seen.sort_by_key(|seen| Reverse(seen.size));
    let largest = seen.first().map_or(0, |seen| seen.size);
    let mut newest = checkpoint.clone();
    if newest.size < largest {
        // A larger checkpoint was seen, so the server must have one unless it was rolled back.
        let note = client.checkpoint().await?;
        let signed = signed(session, &note).filter(|signed| signed.origin == newest.origin);
        newest = signed
            .filter(|signed| newest.size < signed.size)
            .unwrap_or(newest);
    }
    // From the newest down, each is compared with the next larger one that is proven to be of the
    // server's history, so that a kept checkpoint extends every deleted one.
    let mut extended = vec![newest.clone()];
    let mut parted = Vec::new();
    for old in seen.iter().filter(|seen| seen.size <= newest.size) {
        let new = extended.last().unwrap_or(&newest);
        if old == new {
            continue;
        }
        match is_extended(client, old, new).await {
            Ok(true) => extended.push(old.clone()),
            Ok(false) => parted.push(old.clone()),
            Err(why) => session.aside(&format!(
                "warning: not proven that {} extend the {} seen before, both checkpoints are kept: {why}\n",
                words::count(new.size, "record"),
                words::number(old.size)
            )),
        }
    }
    remember(session, &newest, &extended, &parted);
    let known = || two_histories(&pins.seen(origin), &[]).map(|check| check.detail);
    let detail = if newest.size < largest {
        Some(format!(
            "the server has {} signed, {} were seen: it was rolled back",
            words::count(newest.size, "record"),
            words::number(largest)
        ))
    } else {
        parted
            .first()
            .map(|old| conflict(old, &newest))
            .or_else(known)
    };
    match detail {
        None => Ok(()),
        Some(detail) => Err(Failure::new(exit::UNVERIFIED, detail)
            .hint(hint(session))
            .into()),
    }
}

/// The checkpoint of a note, if a key that is trusted for its ledger has signed it.
fn signed(session: &Session, note: &str) -> Option<Checkpoint> {
    let trusted = super::trusted(session, note, None).ok()?;
    let opened = Checkpoint::open(note, &trusted.key).ok();
    opened.filter(|opened| trusted.is_of(opened))
}

/// Message about two checkpoints of different histories.
pub(super) fn conflict(one: &Checkpoint, other: &Checkpoint) -> String {
    let (size, other_size) = (words::number(one.size), words::number(other.size));
    let (root, other_root) = (one.root.short(), other.root.short());
    if one.size == other.size {
        return format!(
            "two histories: {size} records were signed with root {root} and with root {other_root}"
        );
    }
    format!(
        "two histories: {size} records were signed with root {root}, and {other_size} with root {other_root} do not agree with them"
    )
}

/// Hint for two histories.
pub(super) fn hint(session: &Session) -> String {
    let kept = Pins::of(&session.environment)
        .map(|pins| session.environment.shown(&pins.checkpoints_path()));
    format!(
        "keep the files and show them to the operator; what was seen before stays in {}",
        kept.unwrap_or_default()
    )
}

/// True if the server's tiles prove that `new` extends `old`, false if they prove that it does not.
async fn is_extended(client: &Client, old: &Checkpoint, new: &Checkpoint) -> Result<bool, String> {
    let mut fetched = Fetched::default();
    let proof = loop {
        match prove_consistency(&fetched, old.size, new.size) {
            Ok(proof) => break proof,
            Err(ProveError::Read {
                source: Missing(id),
                ..
            }) if fetched.0.len() < TILES_MAX => {
                let bytes = client
                    .tile(&TilePath::Tile(id))
                    .await
                    .map_err(|error| chain(&error))?;
                let hashes = tile_hashes(&bytes).map_err(|error| error.to_string())?;
                fetched.0.insert(id, hashes);
            }
            Err(error) => return Err(chain(&error)),
        }
    };
    match verify_consistency(old.size, &old.root, new.size, &new.root, &proof) {
        Ok(()) => Ok(true),
        Err(VerifyError::Root { .. }) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Default)]
struct Fetched(BTreeMap<TileId, Vec<Hash>>);

#[derive(Debug, thiserror::Error)]
#[error("{0} was not fetched")]
struct Missing(TileId);

impl Tiles for Fetched {
    type Error = Missing;

    fn tile(&self, id: TileId) -> Result<Vec<Hash>, Missing> {
        self.0.get(&id).cloned().ok_or(Missing(id))
    }
}
