//! Newest signed checkpoint, in a small file beside the key (L11).
//!
//! An older copy of the journal extends its own checkpoints, but not the one in this file, so a
//! start notices the copy. A checkpoint is written here before it is published. A restore, which
//! begins a new generation, replaces it.

use std::path::Path;

use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::tile::Builder;
use bursar_units::INTEGER_MAX;

use crate::committer::Sign;
use crate::durable;
use crate::recover::{Error, Recovered, check_extends_note};
use crate::store::{self, Reader};

pub(crate) const FILE_NAME: &str = "ledger.checkpoint";

const MODE: u32 = 0o600;

/// Refuses a journal that does not extend the checkpoint in the file, or whose file is lost.
pub(super) fn check(
    data: &Path,
    recovered: &Recovered,
    reader: &dyn Reader,
    keys: &[VerifierKey],
) -> Result<(), Error> {
    let Recovered { state, builder } = recovered;
    check_note(
        data,
        (read(data)?, state.spine.level),
        builder,
        reader,
        keys,
    )
}

/// Signs with `sign`, and stores the note before it is published.
pub(super) fn kept_in(data: &Path, mut sign: Sign) -> Sign {
    let data = data.to_owned();
    Box::new(move |size, root| {
        let note = sign(size, root)?;
        keep(&data, &note)?;
        Ok(note)
    })
}

/// Note in the file, if there is one. Beside a writer it must be read before the head.
pub(crate) fn read(data: &Path) -> Result<Option<String>, store::Error> {
    let path = data.join(FILE_NAME);
    match std::fs::read(&path) {
        // Binary content fails the check of the signature.
        Ok(note) => Ok(Some(String::from_utf8_lossy(&note).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(durable::failed("read", &path, error)),
    }
}

/// Refuses records that do not extend the note. Since level 1 the file is written before a server
/// listens, so a missing file was lost.
pub(crate) fn check_note(
    data: &Path,
    (note, level): (Option<String>, u64),
    builder: &Builder,
    reader: &dyn Reader,
    keys: &[VerifierKey],
) -> Result<(), Error> {
    let refused = |reason: String| Error::Checkpoint {
        path: data.join(FILE_NAME).display().to_string(),
        reason,
    };
    let Some(note) = note else {
        // The file is written before the store has a checkpoint. After an interrupted first start
        // there is neither, and no checkpoint was published.
        let is_lost = level > 0 && reader.checkpoint(INTEGER_MAX)?.is_some();
        if is_lost {
            return Err(refused("it is missing".to_owned()));
        }
        return Ok(());
    };
    let mut opened = keys.iter().map(|key| Checkpoint::open(&note, key));
    if !opened.clone().any(|opened| opened.is_ok()) {
        let reason = opened.find_map(Result::err).map(|error| error.to_string());
        let no_key = || "there is no key to check it with".to_owned();
        return Err(refused(reason.unwrap_or_else(no_key)));
    }
    check_extends_note(reader, builder, keys, &note).map(drop)
}

pub(crate) fn keep(data: &Path, note: &str) -> Result<(), store::Error> {
    durable::write(&data.join(FILE_NAME), MODE, &[note.as_bytes()])
}
