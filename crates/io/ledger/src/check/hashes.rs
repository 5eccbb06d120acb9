//! Comparison of records with tiles, and of roots with checkpoints.

use std::collections::BTreeMap;
use std::path::Path;

use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::merkle::Edge;
use bursar_journal::tile::{Builder, FullTile, TILE_WIDTH};
use bursar_units::words::{count, number};

use super::fold::Fold;
use super::{Asked, Check, Unsigned};
use crate::data::newest;
use crate::store::{Error, Kept, Reader};

/// Maximum number of remembered records that differ from their tile: more than a tile has.
const SUSPECTS_MAX: usize = 1_024;

/// The recomputed tree, and everything that differs from it.
pub(super) struct Hashes<'a> {
    reader: &'a dyn Reader,
    first: u64,
    tree: Tree,
    leaves: Vec<Hash>,
    /// Records whose hash differs from their tile.
    suspects: Vec<u64>,
    /// Sentence about the first tile that is missing or has other hashes.
    wrong_tile: Option<String>,
    unreadable: Option<(u64, String)>,
    notes: Vec<(u64, String)>,
    seen: Vec<Checkpoint>,
    /// Computed roots at the sizes of the checkpoints.
    roots: BTreeMap<u64, Option<Hash>>,
    pruned: u64,
}

pub(super) struct Verdict {
    pub(super) check: Check,
    /// Lines about records that no signature covers, if these are refused.
    pub(super) gaps: Vec<Check>,
    /// Lines about checkpoints seen before that are not extended.
    pub(super) history: Vec<Check>,
    pub(super) damaged_at: Option<u64>,
    pub(super) newest: Option<Checkpoint>,
    pub(super) joined: Vec<Checkpoint>,
    pub(super) parted: Vec<Checkpoint>,
}

/// A whole tree has tiles; of an excerpt only the edge is known.
enum Tree {
    Whole(Box<Builder>),
    Part(Edge),
}

struct OpenedNotes {
    /// Checkpoints signed by a trusted key, smallest first.
    signed: Vec<Signed>,
    /// Size of the first note without such a signature, with the cause.
    unsigned: Option<(u64, String)>,
    keys: usize,
}

struct Signed {
    checkpoint: Checkpoint,
    fits: bool,
}

impl<'a> Hashes<'a> {
    pub(super) fn start(reader: &'a dyn Reader, seen: &[Checkpoint]) -> Result<Self, Error> {
        let tree = match reader.excerpt() {
            Some(edge) => Tree::Part(edge),
            None => Tree::Whole(Box::default()),
        };
        let notes = reader.checkpoints()?;
        let sizes = notes.iter().map(|(size, _)| *size);
        let sizes = sizes.chain(seen.iter().map(|checkpoint| checkpoint.size));
        let mut roots: BTreeMap<u64, Option<Hash>> = sizes.map(|size| (size, None)).collect();
        if let Some(root) = roots.get_mut(&tree.size()) {
            *root = Some(tree.root());
        }
        Ok(Self {
            reader,
            first: tree.size(),
            tree,
            leaves: Vec::new(),
            suspects: Vec::new(),
            wrong_tile: None,
            unreadable: None,
            notes,
            seen: seen.to_vec(),
            roots,
            pruned: 0,
        })
    }

    pub(super) fn size(&self) -> u64 {
        self.tree.size()
    }

    /// Adds the hash of a record, or the stored hash if its payload was pruned.
    pub(super) fn take(&mut self, kept: &Kept) {
        if self.unreadable.is_some() {
            return;
        }
        let offset = kept.seq % u64::from(TILE_WIDTH);
        if offset == 0 {
            let index = kept.seq / u64::from(TILE_WIDTH);
            self.leaves = self.reader.leaves(index).unwrap_or_default();
        }
        let stored = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.leaves.get(offset))
            .copied();
        let leaf = match (kept.bytes.as_deref().map(leaf_hash), stored) {
            (Some(leaf), Some(stored)) if leaf != stored => {
                if self.suspects.len() < SUSPECTS_MAX {
                    self.suspects.push(kept.seq);
                }
                leaf
            }
            (Some(leaf), _) => leaf,
            (None, Some(stored)) => {
                self.pruned += 1;
                stored
            }
            (None, None) => {
                let why = "its payload was pruned and its hash is not kept".to_owned();
                self.unreadable = Some((kept.seq, why));
                return;
            }
        };
        self.push(leaf);
    }

    pub(super) fn unreadable(&mut self, seq: u64, error: &Error) {
        self.unreadable
            .get_or_insert((seq, format!("it cannot be read: {error}")));
    }

    /// Line about the newest checkpoint beside the key, if there is one: the same check as at a
    /// start. Without a trusted key the announced keys are used.
    pub(super) fn newest_check(
        &self,
        data: &Path,
        note: Result<Option<String>, Error>,
        fold: &Fold,
        keys: &[VerifierKey],
    ) -> Option<Check> {
        let Tree::Whole(builder) = &self.tree else {
            return None;
        };
        // An unreadable record has its own line, and the tree ends there.
        if self.unreadable.is_some() {
            return None;
        }
        let announced = fold.announced.iter().map(|(_, key)| key.clone());
        let announced: Vec<_> = announced.filter(|_| keys.is_empty()).collect();
        let keys = if keys.is_empty() { &announced } else { keys };
        let checked = note.map_err(Into::into).and_then(|note| {
            newest::check_note(data, (note, fold.level()), builder, self.reader, keys)
        });
        let failed = checked.err();
        failed.map(|error| Check::failed("newest", error.to_string()))
    }

    /// Compares the computed roots with the checkpoints that a trusted key has signed.
    pub(super) fn judge(self, announced: &[(u64, VerifierKey)], asked: &Asked<'_>) -> Verdict {
        let opened = self.open_notes(announced, asked);
        let newest = opened.signed.iter().rev().find(|signed| signed.fits);
        let newest = newest.map(|signed| signed.checkpoint.clone());
        let covered = newest.as_ref().map(|checkpoint| checkpoint.size);
        let (detail, damaged_at) = match self.wrong(&opened) {
            Some((detail, damaged_at)) => (Err(detail), damaged_at),
            None => (Ok(self.summary(&opened, covered)), None),
        };
        let is_good = detail.is_ok();
        let check = match detail {
            Ok(detail) => Check::passed("hashes", detail),
            Err(detail) => Check::failed("hashes", detail),
        };
        let gaps = self.gaps(covered).into_iter();
        let gaps = gaps.filter(|_| is_good && asked.unsigned == Unsigned::Refused);
        let (joined, parted): (Vec<_>, Vec<_>) = self
            .seen
            .iter()
            .filter(|seen| covered.is_some_and(|covered| seen.size <= covered))
            .filter(|seen| self.is_reached(seen.size) && is_good)
            .cloned()
            .partition(|seen| self.root_at(seen.size) == Some(seen.root));
        let history = parted.iter().map(|seen| {
            let here = self.root_at(seen.size).unwrap_or(seen.root).short();
            let (size, before) = (number(seen.size), seen.root.short());
            let detail = format!(
                "two histories: the first {size} records have root {here} here, {before} was seen before"
            );
            Check::failed("consistent", detail)
        });
        let history = history.collect();
        Verdict {
            check,
            gaps: gaps.map(|gap| Check::failed("signed", gap)).collect(),
            history,
            damaged_at,
            newest,
            joined,
            parted,
        }
    }

    /// Sentences about the records that no signature covers.
    fn gaps(&self, covered: Option<u64>) -> Vec<String> {
        let (first, size) = (self.first, self.size());
        let mut gaps = Vec::new();
        if size == first {
            gaps.push("there is no record".to_owned());
        }
        match covered {
            None => gaps.push("no checkpoint signs it".to_owned()),
            Some(covered) if covered < size => {
                gaps.push(format!("{} not signed", span(covered.max(first), size)));
            }
            Some(_) => {}
        }
        gaps
    }

    /// Sentence about the first defect, with the first damaged record.
    fn wrong(&self, opened: &OpenedNotes) -> Option<(String, Option<u64>)> {
        if let Some((seq, detail)) = self.damage(&opened.signed) {
            return Some((detail, Some(seq)));
        }
        let size = self.size();
        let signed = self.notes.iter().map(|(signed, _)| *signed).max();
        if let Some(beyond) = signed.filter(|signed| size < *signed) {
            let (beyond, size) = (number(beyond), number(size));
            let detail =
                format!("a checkpoint signs {beyond} records, only {size} are here: it was cut");
            return Some((detail, None));
        }
        if let Some((size, error)) = &opened.unsigned {
            let detail = format!("the checkpoint over {} records: {error}", number(*size));
            return Some((detail, None));
        }
        let misplaced = self.suspects.first().map(|seq| {
            format!(
                "the hash kept of record {} is damaged, the record is good",
                number(*seq)
            )
        });
        let detail = self.wrong_tile.clone().or(misplaced)?;
        Some((detail, None))
    }

    /// Opens each note with a trusted key. Keys announced below it become trusted in turn.
    fn open_notes(&self, announced: &[(u64, VerifierKey)], asked: &Asked<'_>) -> OpenedNotes {
        let mut trusted = asked.keys.to_vec();
        if trusted.is_empty() && asked.unsigned == Unsigned::Named {
            trusted.extend(announced.iter().map(|(_, key)| key.clone()));
        }
        let mut used: Vec<String> = Vec::new();
        let mut signed: Vec<Signed> = Vec::new();
        let mut pending: Vec<&(u64, String)> = self
            .notes
            .iter()
            .filter(|(size, _)| self.is_reached(*size))
            .collect();
        loop {
            let before = pending.len();
            pending.retain(|(size, note)| {
                let opened = trusted.iter().find_map(|key| {
                    Some((
                        Checkpoint::open(note, key)
                            .ok()
                            .filter(|c| c.size == *size)?,
                        key,
                    ))
                });
                let Some((checkpoint, key)) = opened else {
                    return true;
                };
                let key = key.to_string();
                if !used.contains(&key) {
                    used.push(key);
                }
                let fits = self.root_at(*size) == Some(checkpoint.root);
                signed.push(Signed { checkpoint, fits });
                false
            });
            let attested = signed.iter().filter(|signed| signed.fits);
            let attested = attested
                .map(|signed| signed.checkpoint.size)
                .max()
                .unwrap_or(0);
            let below = announced
                .iter()
                .filter(|(seq, _)| *seq < attested)
                .map(|(_, key)| key);
            let learned: Vec<_> = below
                .filter(|key| !trusted.contains(key))
                .cloned()
                .collect();
            if pending.len() == before && learned.is_empty() {
                break;
            }
            trusted.extend(learned);
        }
        signed.sort_by_key(|signed| signed.checkpoint.size);
        let unsigned = pending.first().map(|(size, note)| {
            let error = trusted
                .first()
                .and_then(|key| Checkpoint::open(note, key).err());
            let error = error.map_or("no key to check it with".to_owned(), |e| e.to_string());
            (*size, error)
        });
        OpenedNotes {
            signed,
            unsigned,
            keys: used.len(),
        }
    }

    /// The first record that differs from the signed one, with a sentence.
    fn damage(&self, signed: &[Signed]) -> Option<(u64, String)> {
        let verdict_on = |seq: u64| signed.iter().find(|signed| seq < signed.checkpoint.size);
        let changed = self
            .suspects
            .iter()
            .find(|seq| verdict_on(**seq).is_none_or(|s| !s.fits));
        let changed = changed.map(|seq| {
            let by = match verdict_on(*seq) {
                Some(_) => "checkpoint signs",
                None => "tile holds",
            };
            (
                *seq,
                format!(
                    "record {} does not hash to the value its {by}",
                    number(*seq)
                ),
            )
        });
        let unplaced = signed.iter().position(|signed| !signed.fits).map(|wrong| {
            let before = signed.iter().take(wrong).next_back();
            let from = before.map_or(0, |signed| signed.checkpoint.size);
            let to = signed
                .get(wrong)
                .map_or(from, |signed| signed.checkpoint.size);
            let (first, last) = (number(from), number(to.saturating_sub(1)));
            (
                from,
                format!("records {first} to {last} do not hash to the root that is signed"),
            )
        });
        let cut = self.unreadable.as_ref();
        let cut = cut.map(|(seq, why)| (*seq, format!("record {}: {why}", number(*seq))));
        // A changed record explains a root that does not fit.
        [changed.or(unplaced), cut]
            .into_iter()
            .flatten()
            .min_by_key(|(seq, _)| *seq)
    }

    fn summary(&self, opened: &OpenedNotes, covered: Option<u64>) -> String {
        let mut detail = format!("{} records", number(self.size()));
        if 0 < self.pruned {
            detail = format!("{detail} ({} pruned)", number(self.pruned));
        }
        let Some(covered) = covered else {
            return format!("{detail}, no checkpoint");
        };
        let keys = match opened.keys {
            1 => "one key".to_owned(),
            keys => format!("{keys} keys"),
        };
        let checkpoints = u64::try_from(self.notes.len()).unwrap_or(u64::MAX);
        let checkpoints = count(checkpoints, "checkpoint");
        detail = format!("{detail}, {checkpoints}, {keys}");
        if covered < self.size() {
            detail = format!("{detail}, {} not signed yet", span(covered, self.size()));
        }
        detail
    }

    fn push(&mut self, leaf: Hash) {
        let mut full = Vec::new();
        self.tree.push(leaf, &mut full);
        for tile in full {
            self.compare(&tile);
        }
        if let Some(root) = self.roots.get_mut(&self.tree.size()) {
            *root = Some(self.tree.root());
        }
    }

    fn compare(&mut self, tile: &FullTile) {
        let wrong = match self.reader.full_tile(tile.id) {
            Ok(Some(hashes)) if hashes == tile.hashes => return,
            Ok(Some(_)) => "holds other hashes than its records give",
            Ok(None) => "is missing",
            Err(_) => "cannot be read",
        };
        self.wrong_tile
            .get_or_insert(format!("{} {wrong}, its records are good", tile.id));
    }

    /// An excerpt has no root for checkpoints that end before it begins.
    fn is_reached(&self, size: u64) -> bool {
        self.root_at(size).is_some()
    }

    fn root_at(&self, size: u64) -> Option<Hash> {
        self.roots.get(&size).copied().flatten()
    }
}

impl Tree {
    fn size(&self) -> u64 {
        match self {
            Self::Whole(builder) => builder.size(),
            Self::Part(edge) => edge.size(),
        }
    }

    fn root(&self) -> Hash {
        match self {
            Self::Whole(builder) => builder.root(),
            Self::Part(edge) => edge.root(),
        }
    }

    fn push(&mut self, leaf: Hash, full: &mut Vec<FullTile>) {
        match self {
            Self::Whole(builder) => builder.push(leaf, full),
            Self::Part(edge) => edge.push(leaf),
        }
    }
}

/// Phrase for the records `first..end`, with a verb.
fn span(first: u64, end: u64) -> String {
    match end.saturating_sub(first) {
        1 => format!("record {} is", number(first)),
        _ => format!(
            "records {} to {} are",
            number(first),
            number(end.saturating_sub(1))
        ),
    }
}
