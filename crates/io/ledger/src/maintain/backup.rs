//! Consistent copy of the whole store in one file, also beside a running server.

use std::path::Path;

use super::Error;
use crate::durable;
use crate::store::sqlite;

/// Copies the ledger file `from` to the new file `to`. The copy has every record that was committed
/// when it began, and not the private key (L11).
pub fn backup(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |source| durable::failed("write", to, source);
    if to.try_exists().map_err(failed)? {
        return Err(Error::Exists {
            path: to.display().to_string(),
        });
    }
    let unfinished = durable::beside(to, ".new");
    durable::remove(&unfinished).map_err(failed)?;
    sqlite::copy(from, &unfinished)?;
    let moved = std::fs::File::open(&unfinished)
        .and_then(|file| file.sync_all())
        .and_then(|()| durable::rename(&unfinished, to));
    Ok(moved.map_err(failed)?)
}
