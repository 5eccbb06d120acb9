//! Proofs that records are in the signed ledger, and the files of the log.

use bursar_client::api::Inclusion;
use bursar_client::{Code, Problem};
use bursar_engine::Reference;
use bursar_engine::codec;
use bursar_engine::token::Role;
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

use super::{Answer, Service, of_failure, sight, unreadable};
use crate::booking::bookings;
use crate::caller::Caller;

/// The action of reading stored records, for [`Caller::require_operate`].
pub(crate) const READ_BYTES: &str = "read records as they are stored, with their fences,";

#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    pub(crate) bytes: Vec<u8>,
    /// True if clients may cache the file for ever.
    pub(crate) is_final: bool,
}

impl Service {
    pub(crate) async fn proof(
        &self,
        caller: &Caller,
        object: &Reference,
    ) -> Result<String, Problem> {
        self.may_prove(caller, object)?;
        let keys = self.keys.verifiers();
        // The store signs once a second by itself. An extra checkpoint is requested only if the
        // newest one does not cover the records.
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

    pub(crate) async fn checkpoint(&self) -> Result<String, Problem> {
        let note = self.read_store(|reader| {
            reader
                .checkpoint(INTEGER_MAX)
                .map_err(|error| unreadable(&error))
        });
        let unsigned = || Problem::new(Code::NotFound, "no checkpoint was signed yet");
        note.await?.ok_or_else(unsigned)
    }

    /// Proves with hashes alone that a record is under the newest checkpoint.
    pub(crate) async fn inclusion(&self, record: u64) -> Result<Answer<Inclusion>, Problem> {
        let keys = self.keys.verifiers();
        let keys = keys.iter().map(ToString::to_string).collect();
        let builder = self.tree().await?;
        let read = self.read_store(move |reader| included(reader, &builder, record));
        let body = Inclusion {
            keys,
            ..read.await?
        };
        Ok(Answer::ok(self.record(), body))
    }

    pub(crate) async fn log_file(
        &self,
        caller: &Caller,
        path: TilePath,
    ) -> Result<LogFile, Problem> {
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

    /// Refuses a caller that may not read the bytes of an object's records. They contain fences, so
    /// only operators and the tenant of a booking may. [`Self::hide_others`] checks each record.
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

    /// Refuses a proof with a record that names bookings of others. A release and the grants that
    /// follow are one record, and a proof contains the whole record.
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
                let seq = proven.seq;
                let action = format!("read a proof of record {seq}, which names other tenants,");
                caller.require_operate(&action)
            }
        }
    }

    /// Creates a proof under the newest checkpoint; `None` if that does not cover all records.
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

    /// Signs a checkpoint over all records and returns their tree.
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
            format!("{object} has more than {PROOF_RECORDS_MAX} records; prove them one by one");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    match object {
        // The record exists, but its payload was pruned.
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
    let internal = |detail: String| Problem::new(Code::Internal, detail);
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
    let index = usize::try_from(record % width).ok();
    let leaf = index.and_then(|index| leaves.get(index));
    Ok(Inclusion {
        record,
        leaf: leaf.ok_or_else(|| beyond(size))?.to_string(),
        inclusion: inclusion.iter().map(ToString::to_string).collect(),
        records: size,
        checkpoint,
        keys: Vec::new(),
    })
}

/// The number of records under a checkpoint: its second line.
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
    let full = TileId::full(id.level(), id.index())
        .ok_or_else(|| Problem::new(Code::NotFound, "there is no such tile"))?;
    let stored = reader.full_tile(full).map_err(|error| unreadable(&error))?;
    // A partial tile never changes either, but clients soon ask for a wider one.
    let is_final = stored.is_some();
    let hashes = stored.or_else(|| Some(builder.partial(id)?.to_vec()));
    let mut hashes = hashes.ok_or_else(|| beyond(builder.size()))?;
    hashes.truncate(usize::from(id.width()));
    let bytes = tile_bytes(&hashes);
    Ok(LogFile { bytes, is_final })
}

/// Reads the records of a tile, each after its length, in the format of C2SP tlog-tiles.
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

fn beyond(size: u64) -> Problem {
    let detail = format!("a ledger of {size} records has no such tile");
    Problem::new(Code::NotFound, detail)
}
