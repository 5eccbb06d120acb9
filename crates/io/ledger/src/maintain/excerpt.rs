//! An export as a [`Reader`], so that it can be checked and restored like a store.
//!
//! The file is read once to find the offset of each line; records are read when needed. A line of
//! unknown kind counts as a record, so damage is reported as a damaged record. Surplus lines are
//! found when the export is written again and compared ([`Reader::misspelling`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek as _, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bursar_journal::hash::Hash;
use bursar_journal::merkle::Edge;
use bursar_journal::tile::{TILE_WIDTH, TileId};

use super::export::{self, Line, VERSION};
use crate::durable;
use crate::store::{Error, Kept, Reader, signed_size};

/// Export file.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    file: File,
    edge: Edge,
    /// Positions of the records; `None` for a pruned one.
    records: Vec<Option<Span>>,
    blobs: BTreeMap<Hash, Span>,
    leaves: BTreeMap<u64, Vec<Hash>>,
    anchor: Option<(u64, String)>,
    note: Option<String>,
}

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
        // A note without a size counts as one over all records, and will not verify.
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

    fn misspelling(&self) -> Result<Option<String>, Error> {
        let failed = |source| durable::failed("read", &self.path, source);
        let mut file = self.file.try_clone().map_err(failed)?;
        file.rewind().map_err(failed)?;
        let mut comparison = Comparison {
            file: BufReader::new(file),
            number: 0,
            line: Vec::new(),
            difference: None,
        };
        let (edge, note) = (self.edge.clone(), self.note.as_deref());
        let written = export::write(self, edge, self.next(), note, &mut comparison);
        match (comparison.difference.take(), written) {
            (Some(difference), _) => Ok(Some(difference)),
            (None, Ok(())) => comparison.rest().map_err(failed),
            (None, Err(super::Error::Store(error))) => Err(error),
            (None, Err(error)) => Ok(Some(error.to_string())),
        }
    }
}

/// Compares the lines that are written to it with those of a file, up to the first difference.
struct Comparison<R> {
    file: R,
    number: u64,
    /// Line that is being written.
    line: Vec<u8>,
    difference: Option<String>,
}

impl<R: BufRead> Comparison<R> {
    /// Next line of the file; `None` after the last. A line without a line feed was cut and counts as
    /// none.
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.file.read_until(b'\n', &mut line)?;
        Ok(line.strip_suffix(b"\n").map(<[u8]>::to_vec))
    }

    /// Sentence about a surplus line after the last expected one.
    fn rest(&mut self) -> std::io::Result<Option<String>> {
        if self.file.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let kind = self.next()?.map_or("a cut line", |line| kind_of(&line));
        let number = self.number + 1;
        Ok(Some(format!(
            "line {number} is {kind}, where the export has ended"
        )))
    }

    fn compare(&mut self) -> std::io::Result<()> {
        let expected = std::mem::take(&mut self.line);
        let found = self.next()?;
        self.number += 1;
        if found.as_deref() == Some(&*expected) {
            return Ok(());
        }
        let (number, wanted) = (self.number, kind_of(&expected));
        let difference = match found.as_deref().map(kind_of) {
            None => format!("the file ends before the end of line {number}, {wanted}"),
            Some(kind) if kind == wanted => {
                format!("line {number}, {kind}, is not what the records give")
            }
            Some(kind) => format!("line {number} is {kind}, where an export has {wanted}"),
        };
        self.difference = Some(difference);
        Err(std::io::ErrorKind::InvalidData.into())
    }
}

impl<R: BufRead> Write for Comparison<R> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(part.strip_suffix(b"\n").unwrap_or(part));
            if part.ends_with(b"\n") {
                self.compare()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn kind_of(line: &[u8]) -> &'static str {
    const KINDS: [(&str, &str); 7] = [
        ("{\"v\":", "a record"),
        ("{\"blob\":", "a blob"),
        ("{\"pruned\":", "the hash of a pruned record"),
        ("{\"leaves\":", "the hashes of the records before it"),
        ("{\"anchor\":", "an anchored snapshot"),
        ("{\"checkpoint\":", "a checkpoint"),
        ("{\"export\":", "the header"),
    ];
    let known = KINDS
        .iter()
        .find(|(start, _)| line.starts_with(start.as_bytes()));
    known.map_or("an unknown line", |(_, kind)| kind)
}
