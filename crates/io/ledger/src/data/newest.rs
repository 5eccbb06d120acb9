//! The newest signed checkpoint, in a small file beside the key (L11).
//!
//! A journal that was put back from yesterday extends its own checkpoints. It does not extend this
//! one, which is in another file: so a start notices. A checkpoint is here before anybody sees it,
//! and a restore, which begins a new generation, replaces it.

use std::path::Path;

use bursar_journal::checkpoint::VerifierKey;

use crate::committer::Sign;
use crate::durable;
use crate::recover::{Error, Recovered, check_extends_note};
use crate::store::{self, Reader};

/// The name of the file in a data directory.
pub(crate) const FILE_NAME: &str = "ledger.checkpoint";

/// It is no secret, but nobody else's business.
const MODE: u32 = 0o600;

/// Refuses a journal that does not extend the checkpoint in the file, if there is one.
pub(super) fn check(
    data: &Path,
    recovered: &Recovered,
    reader: &dyn Reader,
    keys: &[VerifierKey],
) -> Result<(), Error> {
    let path = data.join(FILE_NAME);
    match std::fs::read_to_string(&path) {
        Ok(note) => check_extends_note(reader, &recovered.builder, keys, &note).map(drop),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(durable::failed("read", &path, error).into()),
    }
}

/// Signs as `sign` does, and keeps the note before anybody sees it.
pub(super) fn kept_in(data: &Path, mut sign: Sign) -> Sign {
    let data = data.to_owned();
    Box::new(move |size, root| {
        let note = sign(size, root)?;
        keep(&data, &note)?;
        Ok(note)
    })
}

/// Keeps a note in place of the one before it.
pub(crate) fn keep(data: &Path, note: &str) -> Result<(), store::Error> {
    durable::write(&data.join(FILE_NAME), MODE, &[note.as_bytes()])
}
