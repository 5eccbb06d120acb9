//! Exports in the layout of tlog-tiles: `checkpoint`, `tile/<level>/…`, `tile/entries/…`.
//!
//! Any reader of C2SP transparency logs can read it. Pruned records have their hashes in the tiles
//! and no bundle of entries.

use std::path::Path;

use bursar_journal::hash::leaf_hash;
use bursar_journal::record::write_entry;
use bursar_journal::tile::{
    Builder, FullTile, LEVEL_MAX, Path as Name, TILE_WIDTH, TileId, tile_bytes,
};
use bursar_units::INTEGER_MAX;

use super::{Error, KeptLeaves};
use crate::durable;
use crate::store::{Reader, signed_size};

/// Writes the ledger up to its newest checkpoint to a new directory, and returns the number of
/// records.
pub fn export_tiles(reader: &dyn Reader, directory: &Path) -> Result<u64, Error> {
    let newest = reader.checkpoint(INTEGER_MAX)?;
    let Some((size, note)) = newest.and_then(|note| Some((signed_size(&note)?, note))) else {
        return Err(Error::Unsigned);
    };
    let mut builder = Builder::new();
    let (mut full, mut pruned) = (Vec::new(), KeptLeaves::default());
    while builder.size() < size {
        let first = builder.size();
        let Some(tile) = TileId::in_tree(0, first / u64::from(TILE_WIDTH), size) else {
            break;
        };
        let mut bundle = Some(Vec::new());
        for kept in reader.records(first, usize::from(tile.width()))? {
            let leaf = if let Some(bytes) = kept.bytes {
                bundle = bundle.and_then(|mut bundle| {
                    write_entry(&mut bundle, &bytes).ok()?;
                    Some(bundle)
                });
                leaf_hash(&bytes)
            } else {
                bundle = None;
                pruned.get(reader, kept.seq)?
            };
            builder.push(leaf, &mut full);
        }
        if builder.size() == first {
            let what = format!("record {first} is missing, so the journal");
            return Err(crate::store::Error::Damaged { what }.into());
        }
        if let Some(bundle) = bundle {
            write(directory, Name::Entries(tile), &bundle)?;
        }
        for FullTile { id, hashes } in full.drain(..) {
            write(directory, Name::Tile(id), &tile_bytes(&hashes))?;
        }
    }
    for level in 0..=LEVEL_MAX {
        let width = u64::from(TILE_WIDTH);
        let index = width
            .checked_pow(level + 1)
            .map_or(0, |records| size / records);
        let edge = TileId::in_tree(level, index, size).filter(|id| !id.is_full());
        if let Some((id, hashes)) = edge.and_then(|id| Some((id, builder.partial(id)?))) {
            write(directory, Name::Tile(id), &tile_bytes(hashes))?;
        }
    }
    durable::write(&directory.join("checkpoint"), 0o644, &[note.as_bytes()])?;
    Ok(size)
}

fn write(directory: &Path, name: Name, bytes: &[u8]) -> Result<(), Error> {
    let path = directory.join(name.to_string());
    let parent = durable::directory(&path);
    let made = std::fs::create_dir_all(parent);
    made.map_err(|source| durable::failed("create", parent, source))?;
    // After a power failure the tiles are exported again; only the checkpoint, written last, must
    // be durable.
    std::fs::write(&path, bytes).map_err(|source| durable::failed("write", &path, source))?;
    Ok(())
}
