//! Proofs: records with all that shows that they are in the signed ledger.

use bursar_client::api::Inclusion;
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::codec;
use bursar_engine::token::Role;
use bursar_engine::{Reference, reference};
use bursar_journal::hash::{Hash, leaf_hash};
use bursar_journal::merkle::prove_inclusion;
use bursar_journal::proof::{PROOF_BYTES_MAX, PROOF_RECORDS_MAX, PROOF_VERSION, Proof, Proven};
use bursar_journal::record::{BlobRef, blob_refs, write_entry};
use bursar_journal::tile::{Builder, Path as TilePath, TILE_WIDTH, TileId, Tiles as _, tile_bytes};
use bursar_ledger::index::{Index, search};
use bursar_ledger::recover::StoredTiles;
use bursar_ledger::store::Reader;
use bursar_units::INTEGER_MAX;
use bursar_units::causes::chain;

use super::nearest::nearest;
use super::{Answer, Service, of_failure, sight, unreadable};
use crate::booking::bookings;
use crate::caller::Caller;

/// What reading the bytes of records is called where it is refused.
pub(crate) const READ_BYTES: &str = "read records as they are stored, with their fences,";

/// A file of the log, and whether it will ever change.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether it may be kept for ever.
    pub is_final: bool,
}

impl Service {
    /// The proof file of a record, a booking, a limit, a node, a pod or a token.
    pub async fn proof(&self, caller: &Caller, object: &Reference) -> Result<String, Problem> {
        self.may_prove(caller, object)?;
        let keys = self.verifier_keys();
        // Signing is the store's own work, once a second: it is only asked for where the newest
        // checkpoint does not cover what is to be proven.
        let covered = self.try_prove(object, self.tree().await?).await?;
        let proof = if let Some(proof) = covered {
            proof
        } else {
            let signed = self.try_prove(object, self.signed_tree().await?).await?;
            signed.ok_or_else(|| Problem::new(Code::Internal, "a checkpoint is missing"))?
        };
        let proof = Proof { keys, ..proof };
        self.hide_others(caller, &proof)?;
        proof
            .to_text()
            .map_err(|error| Problem::new(Code::Internal, chain(&error)))
    }

    /// The newest signed checkpoint.
    pub async fn checkpoint(&self) -> Result<String, Problem> {
        let note = self.read_store(|reader| {
            reader
                .checkpoint(INTEGER_MAX)
                .map_err(|error| unreadable(&error))
        });
        let unsigned = || Problem::new(Code::NotFound, "no checkpoint was signed yet");
        note.await?.ok_or_else(unsigned)
    }

    /// That a record is under the newest checkpoint, shown by hashes alone.
    pub async fn inclusion(&self, record: u64) -> Result<Answer<Inclusion>, Problem> {
        let keys = self
            .verifier_keys()
            .iter()
            .map(ToString::to_string)
            .collect();
        let builder = self.tree().await?;
        let read = self.read_store(move |reader| included(reader, &builder, record));
        let body = Inclusion {
            keys,
            ..read.await?
        };
        Ok(Answer {
            status: 200,
            record: self.record(),
            body,
        })
    }

    /// A tile, or the records of one.
    pub async fn log_file(&self, caller: &Caller, path: TilePath) -> Result<LogFile, Problem> {
        if let TilePath::Entries(_) = path {
            caller.require_operate(READ_BYTES)?;
        }
        let builder = self.tree().await?;
        self.read_store(move |reader| match path {
            TilePath::Tile(id) => tile(reader, &builder, id),
            TilePath::Entries(id) => entries(reader, &builder, id),
        })
        .await
    }

    /// Refuses a caller that may not have the bytes of this object's records. They hold fences, so
    /// they are for operators, and for the tenant of a booking; whether a record is all its own
    /// [`Self::hide_others`] finds out.
    pub(crate) fn may_prove(&self, caller: &Caller, object: &Reference) -> Result<(), Problem> {
        match object {
            _ if caller.may_operate() => Ok(()),
            Reference::Record(_) if caller.roles.contains(&Role::Use) => Ok(()),
            Reference::Booking(id) => {
                let state = self.ledger.view().read();
                match state.bookings.request(id).map(|request| request.tenant) {
                    Some(tenant) if caller.may_act_as(&tenant) => Ok(()),
                    Some(tenant) if caller.sees_tenant(&tenant) => {
                        caller.require_operate(READ_BYTES)
                    }
                    _ => Err(bookings::no_booking(&state, caller, id)),
                }
            }
            _ => caller.require_operate(READ_BYTES),
        }
    }

    /// A record is proven whole or not at all, and it may name what others hold: a release and
    /// the next grants are one record.
    fn hide_others(&self, caller: &Caller, proof: &Proof) -> Result<(), Problem> {
        if caller.may_operate() {
            return Ok(());
        }
        let state = self.ledger.view().read();
        let is_own = |proven: &Proven| {
            let blob = |sha256: &Hash| {
                let bytes = proven.blobs.iter().map(String::as_bytes);
                bytes
                    .map(<[u8]>::to_vec)
                    .find(|blob| bursar_journal::hash::sha256(blob) == *sha256)
            };
            codec::decode(proven.seq, proven.bytes.as_bytes(), blob)
                .is_ok_and(|record| sight::may_read_bytes(&state, caller, &record))
        };
        match proof.records.iter().find(|proven| !is_own(proven)) {
            None => Ok(()),
            Some(proven) => {
                let what = format!("have record {} proven, which names others too,", proven.seq);
                caller.require_operate(&what)
            }
        }
    }

    /// The proof under the newest checkpoint, if that covers all records of the object.
    async fn try_prove(
        &self,
        object: &Reference,
        builder: Builder,
    ) -> Result<Option<Proof>, Problem> {
        let (object, index) = (object.clone(), self.index.clone());
        self.read_store(move |reader| {
            let note = reader
                .checkpoint(builder.size())
                .map_err(|error| unreadable(&error))?;
            let found = find(reader, index.as_ref(), &object, builder.size())?;
            let size = note.as_deref().and_then(size_of).unwrap_or(0);
            match note.filter(|_| found.last().is_some_and(|(last, _)| *last < size)) {
                Some(note) => prove(reader, &builder, &object, found, (size, note)).map(Some),
                None => Ok(None),
            }
        })
        .await
    }

    /// The tree over all records, under a checkpoint.
    pub(crate) async fn signed_tree(&self) -> Result<Builder, Problem> {
        let signed = self
            .ledger
            .on_store(|committer| committer.checkpoint().map(|_| committer.builder().clone()));
        signed
            .await
            .map_err(|failure| of_failure(&failure))?
            .map_err(|error| unreadable(&error))
    }

    async fn tree(&self) -> Result<Builder, Problem> {
        let tree = self
            .ledger
            .on_store(|committer| committer.builder().clone());
        tree.await.map_err(|failure| of_failure(&failure))
    }
}

/// Why a text names nothing that records are about, in the words that every surface uses, with the
/// fields that have its kind and its name.
pub(crate) fn no_subject(kind_field: &str, name_field: &str, error: &reference::Error) -> Problem {
    let words = error.to_string();
    match error {
        reference::Error::Kind { kind, kinds } => {
            let kinds = kinds.iter().map(|kind| kind.word());
            Problem {
                suggestion: nearest(kind, kinds),
                errors: vec![FieldError::new(kind_field, words.clone())],
                ..Problem::new(Code::NotFound, words)
            }
        }
        _ => Problem {
            errors: vec![FieldError::new(name_field, words.clone())],
            ..Problem::new(Code::Invalid, words)
        },
    }
}

/// The records of an object, below `size`.
fn find(
    reader: &dyn Reader,
    index: Option<&Index>,
    object: &Reference,
    size: u64,
) -> Result<Vec<(u64, Vec<u8>)>, Problem> {
    let found = search(reader, index, object, 0..size, PROOF_RECORDS_MAX + 1)
        .map_err(|error| unreadable(&error))?;
    if found.len() > PROOF_RECORDS_MAX {
        let detail =
            format!("{object} has more than {PROOF_RECORDS_MAX} records, prove them one by one");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    match object {
        // It is there, and has no payload.
        Reference::Record(seq) if found.is_empty() && *seq < size => Err(pruned(*seq)),
        _ if found.is_empty() => {
            let detail = format!("the ledger has no record of {object}");
            Err(Problem::new(Code::NotFound, detail))
        }
        _ => Ok(found),
    }
}

fn prove(
    reader: &dyn Reader,
    builder: &Builder,
    object: &Reference,
    found: Vec<(u64, Vec<u8>)>,
    (size, checkpoint): (u64, String),
) -> Result<Proof, Problem> {
    let internal = |what: String| Problem::new(Code::Internal, what);
    let stored = StoredTiles(reader);
    let tiles = builder.over(&stored);
    let mut total = 0_usize;
    let mut records = Vec::with_capacity(found.len());
    for (seq, bytes) in found {
        let inclusion =
            prove_inclusion(&tiles, seq, size).map_err(|error| internal(chain(&error)))?;
        let blobs = blobs(reader, seq, &bytes)?;
        total += bytes.len() + blobs.iter().map(String::len).sum::<usize>();
        if total > PROOF_BYTES_MAX {
            let detail = format!("the proof would be larger than {PROOF_BYTES_MAX} bytes");
            return Err(Problem::new(Code::TooLarge, detail));
        }
        let leaf = leaf_hash(&bytes);
        let bytes =
            String::from_utf8(bytes).map_err(|_| internal(format!("record {seq} is not text")))?;
        records.push(Proven {
            seq,
            leaf,
            bytes,
            blobs,
            inclusion,
        });
    }
    Ok(Proof {
        v: PROOF_VERSION,
        object: object.to_string(),
        checkpoint,
        keys: Vec::new(),
        records,
    })
}

/// The hashes from a record up to the root of the newest checkpoint.
fn included(reader: &dyn Reader, builder: &Builder, record: u64) -> Result<Inclusion, Problem> {
    let internal = |error: &dyn std::error::Error| Problem::new(Code::Internal, chain(error));
    let note = reader
        .checkpoint(builder.size())
        .map_err(|error| unreadable(&error))?;
    let size = note.as_deref().and_then(size_of).unwrap_or(0);
    let Some(checkpoint) = note.filter(|_| record < size) else {
        let detail = format!("record {record} is not signed yet: {size} records are");
        return Err(Problem::new(Code::NotFound, detail));
    };
    let stored = StoredTiles(reader);
    let tiles = builder.over(&stored);
    let inclusion = prove_inclusion(&tiles, record, size).map_err(|error| internal(&error))?;
    let width = u64::from(TILE_WIDTH);
    let tile = TileId::in_tree(0, record / width, size).ok_or_else(|| beyond(size))?;
    let leaves = tiles.tile(tile).map_err(|error| internal(&error))?;
    let place = usize::try_from(record % width).ok();
    let leaf = place.and_then(|place| leaves.get(place));
    Ok(Inclusion {
        record,
        leaf: leaf.ok_or_else(|| beyond(size))?.to_string(),
        inclusion: inclusion.iter().map(ToString::to_string).collect(),
        records: size,
        checkpoint,
        keys: Vec::new(),
    })
}

/// How many records a note of ours signs.
fn size_of(note: &str) -> Option<u64> {
    note.lines().nth(1)?.parse().ok()
}

fn blobs(reader: &dyn Reader, seq: u64, bytes: &[u8]) -> Result<Vec<String>, Problem> {
    let refs = blob_refs(bytes).map_err(|error| unreadable(&error))?;
    let read = |of: BlobRef| {
        let bytes = reader
            .blob(&of.sha256)
            .map_err(|error| unreadable(&error))?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| pruned(seq))
    };
    refs.into_iter().map(read).collect()
}

fn pruned(seq: u64) -> Problem {
    let detail =
        format!("the payload of record {seq} was pruned; look in the export that was made before");
    Problem::new(Code::Gone, detail)
}

fn tile(reader: &dyn Reader, builder: &Builder, id: TileId) -> Result<LogFile, Problem> {
    if let Some(hashes) = reader
        .full_tile(full(id)?)
        .map_err(|error| unreadable(&error))?
    {
        let hashes: Vec<Hash> = hashes.into_iter().take(usize::from(id.width())).collect();
        return Ok(LogFile {
            bytes: tile_bytes(&hashes),
            is_final: true,
        });
    }
    let hashes = builder.partial(id).ok_or_else(|| beyond(builder.size()))?;
    let hashes: Vec<Hash> = hashes
        .iter()
        .copied()
        .take(usize::from(id.width()))
        .collect();
    // A tile of a given width is the same for ever, only fewer will ask for it.
    Ok(LogFile {
        bytes: tile_bytes(&hashes),
        is_final: false,
    })
}

/// The records of a tile, each with its length before it, as C2SP tlog-tiles has them.
fn entries(reader: &dyn Reader, builder: &Builder, id: TileId) -> Result<LogFile, Problem> {
    let first = id.index().saturating_mul(u64::from(TILE_WIDTH));
    let width = u64::from(id.width());
    if builder.size() < first.saturating_add(width) {
        return Err(beyond(builder.size()));
    }
    let kept = reader
        .records(first, usize::from(id.width()))
        .map_err(|error| unreadable(&error))?;
    let mut bytes = Vec::new();
    for record in kept {
        let payload = record.bytes.ok_or_else(|| pruned(record.seq))?;
        write_entry(&mut bytes, &payload).map_err(|error| {
            Problem::new(Code::Internal, format!("record {}: {error}", record.seq))
        })?;
    }
    Ok(LogFile {
        bytes,
        is_final: id.is_full(),
    })
}

fn full(id: TileId) -> Result<TileId, Problem> {
    TileId::full(id.level(), id.index())
        .ok_or_else(|| Problem::new(Code::NotFound, "there is no such tile"))
}

fn beyond(size: u64) -> Problem {
    let detail = format!("there is no such tile of a ledger of {size} records");
    Problem::new(Code::NotFound, detail)
}
