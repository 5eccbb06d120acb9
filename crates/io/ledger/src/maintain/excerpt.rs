//! An export as something to read from: what checks and restores a store does the same for it.
//!
//! The file is read once to know where each line is; records are read from it when wanted. A line
//! that is nothing else counts as a record: a damaged one then shows as what it is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bursar_journal::hash::Hash;
use bursar_journal::merkle::Edge;
use bursar_journal::tile::{TILE_WIDTH, TileId};

use super::export::{Line, VERSION};
use crate::durable;
use crate::store::{Error, Kept, Reader, signed_size};

/// An export file.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    file: File,
    edge: Edge,
    /// Where each record is, from the first on; `None` for a pruned one.
    records: Vec<Option<Span>>,
    blobs: BTreeMap<Hash, Span>,
    leaves: BTreeMap<u64, Vec<Hash>>,
    anchor: Option<(u64, String)>,
    note: Option<String>,
}

/// A line of the file, or the text inside one.
#[derive(Clone, Copy, Debug)]
struct Span {
    offset: u64,
    size: usize,
}

impl Export {
    /// Opens an export; `None` if the file does not begin like one.
    pub fn open(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |source| durable::failed("read", path, source);
        let file = File::open(path).map_err(failed)?;
        let mut lines = BufReader::new(file.try_clone().map_err(failed)?);
        let mut line = Vec::new();
        let mut offset = 0;
        let mut export: Option<Self> = None;
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line).map_err(failed)?;
            if read == 0 {
                return Ok(export);
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let span = Span {
                offset,
                size: text.len(),
            };
            offset += u64::try_from(read).unwrap_or(u64::MAX);
            match export.as_mut() {
                Some(export) => export.take(text, span),
                None => match Self::begin(path, &file, text)? {
                    Some(begun) => export = Some(begun),
                    None => return Ok(None),
                },
            }
        }
    }

    fn begin(path: &Path, file: &File, first: &[u8]) -> Result<Option<Self>, Error> {
        let Ok(Line::Export { version, edge }) = serde_json::from_slice(first) else {
            return Ok(None);
        };
        let shown = path.display().to_string();
        if version != VERSION {
            let known = i64::try_from(VERSION).unwrap_or(i64::MAX);
            let found = i64::try_from(version).unwrap_or(i64::MAX);
            return Err(Error::NewerFormat {
                path: shown,
                found,
                known,
            });
        }
        let file = file
            .try_clone()
            .map_err(|source| durable::failed("read", path, source))?;
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            edge,
            records: Vec::new(),
            blobs: BTreeMap::new(),
            leaves: BTreeMap::new(),
            anchor: None,
            note: None,
        }))
    }

    fn take(&mut self, text: &[u8], span: Span) {
        let is_other = !text.starts_with(b"{\"v\":");
        match is_other
            .then(|| serde_json::from_slice(text).ok())
            .flatten()
        {
            Some(Line::Pruned { leaf, .. }) => {
                let index = self.next() / u64::from(TILE_WIDTH);
                self.leaves.entry(index).or_default().push(leaf);
                self.records.push(None);
            }
            Some(Line::Blob { sha256, .. }) => {
                self.blobs.insert(sha256, span);
            }
            Some(Line::Leaves(leaves)) => {
                let index = self.next().saturating_sub(1) / u64::from(TILE_WIDTH);
                self.leaves.insert(index, leaves);
            }
            Some(Line::Anchor { head, lines }) => self.anchor = Some((head, lines)),
            Some(Line::Checkpoint(note)) => self.note = Some(note),
            Some(Line::Export { .. }) | None => self.records.push(Some(span)),
        }
    }

    /// The number of the record that comes next.
    fn next(&self) -> u64 {
        self.edge.size() + u64::try_from(self.records.len()).unwrap_or(u64::MAX)
    }

    fn bytes(&self, span: Span) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; span.size];
        let read = self.file.read_exact_at(&mut bytes, span.offset);
        read.map_err(|source| durable::failed("read", &self.path, source))?;
        Ok(bytes)
    }
}

impl Reader for Export {
    fn head(&self) -> Result<u64, Error> {
        Ok(self.next())
    }

    fn records(&self, from: u64, max: usize) -> Result<Vec<Kept>, Error> {
        let skipped = from.saturating_sub(self.edge.size());
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let spans = self.records.iter().skip(skipped).take(max);
        let kept = spans.zip(from.max(self.edge.size())..).map(|(span, seq)| {
            let bytes = span.map(|span| self.bytes(span)).transpose()?;
            Ok(Kept { seq, bytes })
        });
        kept.collect()
    }

    fn blob(&self, sha256: &Hash) -> Result<Option<Vec<u8>>, Error> {
        let Some(span) = self.blobs.get(sha256) else {
            return Ok(None);
        };
        match serde_json::from_slice(&self.bytes(*span)?) {
            Ok(Line::Blob { text, .. }) => Ok(Some(text.into_bytes())),
            _ => Ok(None),
        }
    }

    fn full_tile(&self, id: TileId) -> Result<Option<Vec<Hash>>, Error> {
        let leaves = self.leaves.get(&id.index()).filter(|_| id.level() == 0);
        Ok(leaves
            .filter(|leaves| leaves.len() == usize::from(TILE_WIDTH))
            .cloned())
    }

    fn leaves(&self, index: u64) -> Result<Vec<Hash>, Error> {
        Ok(self.leaves.get(&index).cloned().unwrap_or_default())
    }

    fn checkpoint(&self, size: u64) -> Result<Option<String>, Error> {
        let mut all = self.checkpoints()?;
        all.retain(|(stated, _)| *stated <= size);
        Ok(all.pop().map(|(_, note)| note))
    }

    fn checkpoints(&self) -> Result<Vec<(u64, String)>, Error> {
        // A note that states no size is taken to be about the end, where it will not verify.
        let note = self
            .note
            .iter()
            .map(|note| (signed_size(note).unwrap_or(self.next()), note.clone()));
        Ok(note.collect())
    }

    fn anchors(&self) -> Result<Vec<u64>, Error> {
        Ok(self.anchor.iter().map(|(head, _)| *head).collect())
    }

    fn anchor(&self, head: u64) -> Result<Option<(u64, String)>, Error> {
        Ok(self.anchor.clone().filter(|(anchor, _)| *anchor <= head))
    }

    fn exported(&self) -> Result<u64, Error> {
        Ok(self.next())
    }

    fn excerpt(&self) -> Option<Edge> {
        Some(self.edge.clone())
    }
}
