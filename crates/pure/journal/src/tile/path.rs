//! The paths of tiles in an export and under `/log/`, as in C2SP tlog-tiles.
//!
//! The index has groups of three digits, all but the last with the prefix `x`: tile 1,234,067 of level
//! 0 is `tile/0/x001/x234/067`. A partial tile has its width: `tile/1/000.p/17`. `tile/entries/…`
//! holds the records of a tile of level 0. Each tile has exactly one path; any other spelling is
//! refused.

use std::fmt;
use std::str::FromStr;

use crate::tile::{LEVEL_MAX, TILE_WIDTH, TileId};

/// A file of the export layout other than `checkpoint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Hashes of the tree.
    Tile(TileId),
    /// The records of a tile of level 0.
    Entries(TileId),
}

/// Error of a text that is not the path of a tile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the path of a tile, for example `tile/0/x001/234` or `tile/1/000.p/17`")]
pub struct NotAPath;

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tile(id) => write!(formatter, "tile/{}/", id.level)?,
            Self::Entries(_) => formatter.write_str("tile/entries/")?,
        }
        let (Self::Tile(id) | Self::Entries(id)) = self;
        let digits = id.index.to_string();
        let width = digits.len().next_multiple_of(3);
        let digits = format!("{digits:0>width$}");
        let mut rest = digits.as_str();
        while let Some((group, after)) = rest.split_at_checked(3)
            && !after.is_empty()
        {
            write!(formatter, "x{group}/")?;
            rest = after;
        }
        formatter.write_str(rest)?;
        if id.is_full() {
            Ok(())
        } else {
            write!(formatter, ".p/{}", id.width)
        }
    }
}

impl FromStr for Path {
    type Err = NotAPath;

    fn from_str(text: &str) -> Result<Self, NotAPath> {
        let path = read(text).ok_or(NotAPath)?;
        // Formatting it again finds leading zeros, signs and missing digits.
        if path.to_string() == text {
            Ok(path)
        } else {
            Err(NotAPath)
        }
    }
}

impl fmt::Display for TileId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Path::Tile(*self).fmt(formatter)
    }
}

/// Parses leniently; `from_str` then compares with the only spelling.
fn read(text: &str) -> Option<Path> {
    let (level, rest) = text.strip_prefix("tile/")?.split_once('/')?;
    let (index, width) = match rest.split_once(".p/") {
        Some((index, width)) => (index, width.parse().ok()?),
        None => (rest, TILE_WIDTH),
    };
    let digits: String = index.chars().filter(char::is_ascii_digit).collect();
    let index = digits.parse().ok()?;
    if level == "entries" {
        return TileId::new(0, index, width).map(Path::Entries);
    }
    let level = level.parse().ok().filter(|level| *level <= LEVEL_MAX)?;
    TileId::new(level, index, width).map(Path::Tile)
}
