//! Snapshots: the state as lines in a file, so that a start need not fold all records (L12).
//!
//! `<data>/snapshots/<head>.jsonl` begins with `{"head":…,"sha256":…,"edge":…}`, followed by the
//! lines of `engine::snapshot`, which the hash covers. The edge is that of the tree after the last
//! covered record, so a snapshot fits one journal only. A file is whole or absent, and two are kept.
//! A wrong one is reported and skipped, because its state can be folded again.

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

/// Name of the directory in a data directory.
pub const DIRECTORY_NAME: &str = "snapshots";

/// Number of kept snapshots: the newest, and one in case it is wrong.
const KEPT: usize = 2;

/// Records read at a time in the search for the record of an anchored snapshot.
const CHUNK: usize = 256;

/// Directory of snapshots.
#[derive(Clone, Debug)]
pub struct Snapshots {
    directory: PathBuf,
}

/// First line of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Number of covered records.
    pub head: u64,
    /// Hash of its lines, which is the hash of its state.
    pub sha256: Hash,
    /// Edge of the tree over the covered records.
    pub edge: Edge,
}

/// A good snapshot.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// First line.
    pub header: Header,
    /// State.
    pub state: State,
}

/// A skipped snapshot.
#[derive(Debug)]
pub struct Skipped {
    /// Path of the file.
    pub path: PathBuf,
    /// Defect.
    pub reason: Wrong,
}

/// Defect of a snapshot.
#[derive(Debug, Error)]
pub enum Wrong {
    /// The snapshot could not be read.
    #[error("it cannot be read")]
    Read(#[from] store::Error),
    /// The first line is not that of a snapshot.
    #[error("its first line is not that of a snapshot")]
    Header,
    /// The lines are not those that were written.
    #[error("its lines hash to {}, its first line says {}", computed.short(), stated.short())]
    Hash {
        /// Hash in the first line.
        stated: Hash,
        /// Hash of the lines.
        computed: Hash,
    },
    /// The lines are not a state.
    #[error("its lines are not a state")]
    State(#[from] snapshot::Error),
    /// Name, first line and state do not all state the same head.
    #[error("its name, its first line and its state do not agree on the head")]
    Head,
    /// The snapshot covers records that the ledger does not have.
    #[error("it covers {covered} records, the ledger has {records}")]
    Ahead {
        /// Number of covered records.
        covered: u64,
        /// Number of records of the ledger.
        records: u64,
        /// Id and generation of the ledger of the snapshot.
        of: (String, u64),
    },
    /// No record of the ledger has the hash of these lines.
    #[error("the hash of the anchored snapshot over {head} records is not the recorded one")]
    NotAnchored {
        /// Number of covered records.
        head: u64,
    },
    /// The snapshot covers other records than those of the ledger.
    #[error("it covers other records than those of the ledger")]
    OtherRecords,
}

impl Snapshots {
    /// Snapshots of a data directory.
    pub fn of(data: &Path) -> Self {
        Self {
            directory: data.join(DIRECTORY_NAME),
        }
    }

    /// Writes a snapshot, and deletes all but the newest two. `edge` is that of the tree after the
    /// last record in `state`.
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

    /// Newest good snapshot, and the skipped newer ones.
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

    /// All good snapshots, newest first, and the skipped ones.
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

    fn list(&self) -> Result<Vec<(u64, PathBuf)>, store::Error> {
        let failed = |source| durable::failed("read", &self.directory, source);
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let head = name.and_then(|name| name.strip_suffix(".jsonl")?.parse::<u64>().ok());
            files.extend(head.map(|head| (head, path)));
        }
        files.sort_by(|one, other| other.cmp(one));
        Ok(files)
    }

    fn forget_old(&self) -> Result<(), store::Error> {
        self.list()?.iter().skip(KEPT).try_for_each(|(_, path)| {
            durable::remove(path).map_err(|source| durable::failed("remove", path, source))
        })
    }
}

/// State of the newest anchored snapshot whose hash is recorded, and the skipped ones. A start uses
/// it when records below it were pruned (L12, L13).
///
/// The record with the hash comes after the snapshot, is folded at the same start, and is in the
/// tree that is compared with the signed checkpoint.
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

/// Edge of the tree after the first `head` records.
pub(crate) fn edge_at(reader: &dyn Reader, head: u64) -> Result<Edge, Wrong> {
    let tree = Builder::resume(&StoredTiles(reader), head / u64::from(TILE_WIDTH));
    let mut edge = tree.map_err(|_| Wrong::OtherRecords)?.edge().clone();
    let missing = usize::try_from(head - edge.size()).unwrap_or(usize::MAX);
    for kept in reader.records(edge.size(), missing)? {
        edge.push(leaf_hash(&kept.bytes.ok_or(Wrong::OtherRecords)?));
    }
    Ok(edge)
}
