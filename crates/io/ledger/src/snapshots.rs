//! Snapshots: the state as lines in a file, so that a start need not fold everything (L12).
//!
//! `<data>/snapshots/<head>.jsonl` begins with `{"head":…,"sha256":…,"edge":…}` and goes on with
//! the lines of `engine::snapshot`, which the hash covers. The edge is that of the tree after the
//! last record covered, so a snapshot belongs to one journal and no other. A file is whole or
//! absent, two are kept, and one that is wrong in any way is reported and passed over: everything
//! in it can be folded again.

use std::path::{Path, PathBuf};

use bursar_engine::codec::decode_events;
use bursar_engine::{Event, State, snapshot, spine};
use bursar_journal::hash::{Hash, leaf_hash, sha256};
use bursar_journal::merkle::Edge;
use bursar_journal::tile::{Builder, TILE_WIDTH};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::durable;
use crate::recover::StoredTiles;
use crate::store::{self, Reader};

/// The name of the directory in a data directory.
pub const DIRECTORY_NAME: &str = "snapshots";

/// How many are kept: the newest, and one in case that one is wrong.
const KEPT: usize = 2;

/// Records that are searched at a time for the one that binds an anchored snapshot.
const CHUNK: usize = 256;

/// The directory of snapshots.
#[derive(Clone, Debug)]
pub struct Snapshots {
    directory: PathBuf,
}

/// What a snapshot says of itself.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// How many records it covers.
    pub head: u64,
    /// The hash of its lines, which is the hash of its state.
    pub sha256: Hash,
    /// The edge of the tree over the records it covers.
    pub edge: Edge,
}

/// A good snapshot.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says of itself.
    pub header: Header,
    /// The state it holds.
    pub state: State,
}

/// A snapshot that was passed over.
#[derive(Debug)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// Why.
    pub reason: Wrong,
}

/// Why a snapshot is wrong.
#[derive(Debug, Error)]
pub enum Wrong {
    /// It could not be read.
    #[error("it cannot be read")]
    Read(#[from] store::Error),
    /// The first line is not that of a snapshot.
    #[error("its first line is not that of a snapshot")]
    Header,
    /// The lines are not those that were written.
    #[error("its lines hash to {}, its first line says {}", computed.short(), stated.short())]
    Hash {
        /// As the first line has it.
        stated: Hash,
        /// Of the lines that are there.
        computed: Hash,
    },
    /// The lines are no state.
    #[error("its lines are not a state")]
    State(#[from] snapshot::Error),
    /// Name, first line and state do not all state the same head.
    #[error("its name, its first line and its state do not agree on the head")]
    Head,
    /// It covers records that the ledger does not have.
    #[error("it covers {covered} records, the ledger has {records}")]
    Ahead {
        /// Records covered.
        covered: u64,
        /// Records there are.
        records: u64,
        /// The ledger and the generation of it that it was taken of.
        of: (String, u64),
    },
    /// The ledger holds no record that binds these lines.
    #[error("the anchored snapshot over {head} records is not the one that is on record")]
    NotAnchored {
        /// How many records it covers.
        head: u64,
    },
    /// It was taken of other records than these.
    #[error("it was taken of other records than the ledger's")]
    OtherRecords,
}

impl Snapshots {
    /// The snapshots of a data directory.
    pub fn of(data: &Path) -> Self {
        Self {
            directory: data.join(DIRECTORY_NAME),
        }
    }

    /// Writes a snapshot, and forgets all but the newest two. `edge` is that of the tree after
    /// the last record in `state`.
    pub fn write(&self, state: &State, edge: &Edge) -> Result<Header, Wrong> {
        let lines = snapshot::write(state)?;
        let header = Header {
            head: state.spine.head,
            sha256: sha256(lines.as_bytes()),
            edge: edge.clone(),
        };
        let first = serde_json::to_string(&header).map_err(|_| Wrong::Header)?;
        let failed = |source| durable::failed("create", &self.directory, source);
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        let path = self.directory.join(format!("{}.jsonl", state.spine.head));
        durable::write(&path, 0o600, &[first.as_bytes(), b"\n", lines.as_bytes()])?;
        self.forget_old()?;
        Ok(header)
    }

    /// The newest snapshot that is good, and those that were passed over on the way to it.
    pub fn load(
        &self,
        reader: &dyn Reader,
    ) -> Result<(Option<Loaded>, Vec<Skipped>), store::Error> {
        let mut skipped = Vec::new();
        for (head, path) in self.list()? {
            match read(&path, head, reader) {
                Ok(loaded) => return Ok((Some(loaded), skipped)),
                Err(reason) => skipped.push(Skipped { path, reason }),
            }
        }
        Ok((None, skipped))
    }

    /// All snapshots that are good, newest first, and those that are not.
    pub fn load_all(
        &self,
        reader: &dyn Reader,
    ) -> Result<(Vec<Loaded>, Vec<Skipped>), store::Error> {
        let (mut good, mut skipped) = (Vec::new(), Vec::new());
        for (head, path) in self.list()? {
            match read(&path, head, reader) {
                Ok(loaded) => good.push(loaded),
                Err(reason) => skipped.push(Skipped { path, reason }),
            }
        }
        Ok((good, skipped))
    }

    /// The files that are named like snapshots, newest first.
    fn list(&self) -> Result<Vec<(u64, PathBuf)>, store::Error> {
        let failed = |source| durable::failed("read", &self.directory, source);
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let head = name.and_then(|name| name.strip_suffix(".jsonl")?.parse::<u64>().ok());
            found.extend(head.map(|head| (head, path)));
        }
        found.sort_by(|one, other| other.cmp(one));
        Ok(found)
    }

    fn forget_old(&self) -> Result<(), store::Error> {
        self.list()?.iter().skip(KEPT).try_for_each(|(_, path)| {
            durable::remove(path).map_err(|source| durable::failed("remove", path, source))
        })
    }
}

/// The newest anchored snapshot of the store that is the one on record, and those that are not:
/// where a start goes on when records below it were pruned (L12, L13).
///
/// The record that binds it comes after it, is folded at the same start, and stands in the tree
/// that the signed checkpoint is checked against.
pub(crate) fn load_anchored(
    reader: &dyn Reader,
    file: &Path,
) -> Result<(Option<State>, Vec<Skipped>), store::Error> {
    let mut skipped = Vec::new();
    for head in reader.anchors()?.into_iter().rev() {
        match read_anchored(reader, head) {
            Ok(state) => return Ok((Some(state), skipped)),
            Err(reason) => skipped.push(Skipped {
                path: file.to_owned(),
                reason,
            }),
        }
    }
    Ok((None, skipped))
}

fn read_anchored(reader: &dyn Reader, head: u64) -> Result<State, Wrong> {
    let wrong = || Wrong::NotAnchored { head };
    let (_, lines) = reader.anchor(head)?.ok_or_else(wrong)?;
    let sha256 = sha256(lines.as_bytes());
    let is_bound = |event: &Event| {
        matches!(event, Event::Spine(spine::Event::Anchored { record, sha256: bound })
            if *record == head.saturating_sub(1) && *bound == sha256)
    };
    let mut next = head;
    loop {
        let chunk = reader.records(next, CHUNK)?;
        let last = chunk.last().ok_or_else(wrong)?.seq;
        for kept in chunk {
            let bytes = kept.bytes.ok_or_else(wrong)?;
            let blob = |sha256: &Hash| reader.blob(sha256).ok().flatten();
            let (_, events) = decode_events(kept.seq, &bytes, blob).map_err(|_| wrong())?;
            if events.iter().any(is_bound) {
                let state = snapshot::read(&lines)?;
                return if state.spine.head == head {
                    Ok(state)
                } else {
                    Err(Wrong::Head)
                };
            }
        }
        next = last + 1;
    }
}

fn read(path: &Path, head: u64, reader: &dyn Reader) -> Result<Loaded, Wrong> {
    let bytes = std::fs::read(path).map_err(|source| durable::failed("read", path, source))?;
    let text = String::from_utf8(bytes).map_err(|_| Wrong::Header)?;
    let (first, lines) = text.split_once('\n').ok_or(Wrong::Header)?;
    let header: Header = serde_json::from_str(first).map_err(|_| Wrong::Header)?;
    let computed = sha256(lines.as_bytes());
    if computed != header.sha256 {
        return Err(Wrong::Hash {
            stated: header.sha256,
            computed,
        });
    }
    let state = snapshot::read(lines)?;
    if header.head != head || state.spine.head != head {
        return Err(Wrong::Head);
    }
    let records = reader.head()?;
    if records < head {
        return Err(Wrong::Ahead {
            covered: head,
            records,
            of: (state.spine.ledger, state.spine.generation),
        });
    }
    if edge_at(reader, head)? != header.edge {
        return Err(Wrong::OtherRecords);
    }
    Ok(Loaded { header, state })
}

/// The edge of the journal's tree after its first `head` records.
pub(crate) fn edge_at(reader: &dyn Reader, head: u64) -> Result<Edge, Wrong> {
    let tree = Builder::resume(&StoredTiles(reader), head / u64::from(TILE_WIDTH));
    let mut edge = tree.map_err(|_| Wrong::OtherRecords)?.edge().clone();
    let missing = usize::try_from(head - edge.size()).unwrap_or(usize::MAX);
    for kept in reader.records(edge.size(), missing)? {
        edge.push(leaf_hash(&kept.bytes.ok_or(Wrong::OtherRecords)?));
    }
    Ok(edge)
}
