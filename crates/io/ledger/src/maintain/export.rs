//! Exports as JSON lines: records byte for byte, and all data for an offline check.
//!
//! ```text
//! {"export":{"version":1,"edge":{"size":0,"hashes":[]}}}   the tree before the first record
//! {"anchor":{"head":512,"lines":"…"}}                      where the first records are pruned
//! {"v":1,"seq":0,…}                                        a record, as it is hashed
//! {"blob":{"sha256":"…","text":"…"}}                       before the record that names it
//! {"pruned":{"seq":0,"leaf":"…"}}                          in place of a payload that is gone
//! {"leaves":["…",…]}                                       after 256 records: their leaf hashes
//! {"checkpoint":"…"}                                       the signed note; the last line
//! ```
//! The leaf hashes identify a changed record; the root only shows that one was changed. An export
//! begins at a whole tile and ends at the first checkpoint at or after the requested end, or at the
//! newest, so that all of it is signed. Records have exactly one export, byte for byte.

use std::collections::BTreeSet;
use std::io::Write;

use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::merkle::Edge;
use bursar_journal::record::blob_refs;
use bursar_journal::tile::{Builder, TILE_WIDTH};
use serde::{Deserialize, Serialize};

use super::{Error, KeptLeaves};
use crate::recover::StoredTiles;
use crate::store::{self, Kept, Reader};

pub(super) const VERSION: u64 = 1;

/// Records read at a time: a tile.
const CHUNK: usize = 256;

/// Range of an export.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exported {
    /// First record.
    pub from: u64,
    /// First record after it.
    pub to: u64,
    /// Number of records of the ledger that no checkpoint signs yet; no export has them.
    pub unsigned: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Line {
    Export { version: u64, edge: Edge },
    Anchor { head: u64, lines: String },
    Blob { sha256: Hash, text: String },
    Pruned { seq: u64, leaf: Hash },
    Leaves(Vec<Hash>),
    Checkpoint(String),
}

/// Writes the records `from` to `to` (not included) to `out`.
pub fn export(
    reader: &dyn Reader,
    from: u64,
    to: u64,
    out: &mut dyn Write,
) -> Result<Exported, Error> {
    let mut checkpoints = reader.checkpoints()?;
    let head = reader.head()?;
    checkpoints.retain(|(size, _)| (1..=head).contains(size));
    let signed = checkpoints.last().ok_or(Error::Unsigned)?.0;
    let from = from.min(signed - 1);
    let from = from - from % u64::from(TILE_WIDTH);
    // Later records, those of the anchor and of the prune, explain the missing payloads.
    let to = if is_pruned(reader, from)? { signed } else { to };
    let to = to.clamp(from + 1, signed);
    let ending = checkpoints.iter().find(|(size, _)| to <= *size);
    let (to, note) = ending.ok_or(Error::Unsigned)?;

    let tree = Builder::resume(&StoredTiles(reader), from / u64::from(TILE_WIDTH));
    let damaged = |_| store::Error::Damaged {
        what: format!("a tile below record {from}"),
    };
    let edge = tree.map_err(damaged)?.edge().clone();
    write(reader, edge, *to, Some(note), out)?;
    Ok(Exported {
        from,
        to: *to,
        unsigned: head - signed,
    })
}

/// Writes the lines of an export of the records after `edge`, up to `to`.
pub(super) fn write(
    reader: &dyn Reader,
    edge: Edge,
    to: u64,
    note: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let from = edge.size();
    write_line(
        out,
        &Line::Export {
            version: VERSION,
            edge,
        },
    )?;
    write_anchor(reader, from, to, out)?;
    write_records(reader, from, to, out)?;
    if let Some(note) = note {
        write_line(out, &Line::Checkpoint(note.to_owned()))?;
    }
    Ok(out.flush()?)
}

fn is_pruned(reader: &dyn Reader, seq: u64) -> Result<bool, Error> {
    let kept = reader.records(seq, 1)?;
    Ok(matches!(kept.as_slice(), [Kept { bytes: None, .. }]))
}

/// Writes the oldest anchored snapshot after which all payloads exist, if some before it do not.
fn write_anchor(reader: &dyn Reader, from: u64, to: u64, out: &mut dyn Write) -> Result<(), Error> {
    for head in reader.anchors()? {
        let is_inside = from < head && head <= to;
        if is_inside && is_pruned(reader, from)? && (head == to || !is_pruned(reader, head)?) {
            if let Some((head, lines)) = reader.anchor(head)? {
                write_line(out, &Line::Anchor { head, lines })?;
            }
            return Ok(());
        }
    }
    Ok(())
}

fn write_records(
    reader: &dyn Reader,
    from: u64,
    to: u64,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let (mut written, mut pruned) = (BTreeSet::new(), KeptLeaves::default());
    let mut next = from;
    while next < to {
        let mut leaves = Vec::with_capacity(CHUNK);
        let chunk = reader.records(next, CHUNK)?;
        if chunk.is_empty() {
            let what = format!("record {next} is missing, so the journal");
            return Err(store::Error::Damaged { what }.into());
        }
        for kept in chunk.into_iter().take_while(|kept| kept.seq < to) {
            next = kept.seq + 1;
            let Some(bytes) = kept.bytes else {
                let leaf = pruned.get(reader, kept.seq)?;
                write_line(
                    out,
                    &Line::Pruned {
                        seq: kept.seq,
                        leaf,
                    },
                )?;
                leaves.push(leaf);
                continue;
            };
            write_blobs(reader, &bytes, &mut written, out)?;
            leaves.push(leaf_hash(&bytes));
            out.write_all(&bytes)?;
            out.write_all(b"\n")?;
        }
        write_line(out, &Line::Leaves(leaves))?;
    }
    Ok(())
}

fn write_blobs(
    reader: &dyn Reader,
    record: &[u8],
    written: &mut BTreeSet<Hash>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    // A damaged record is exported too; the export checks nothing.
    for reference in blob_refs(record).unwrap_or_default() {
        let sha256 = reference.sha256;
        let text = reader
            .blob(&sha256)?
            .and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(text) = text.filter(|_| written.insert(sha256)) {
            write_line(out, &Line::Blob { sha256, text })?;
        }
    }
    Ok(())
}

fn write_line(out: &mut dyn Write, line: &Line) -> Result<(), Error> {
    serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
