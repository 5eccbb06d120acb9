//! Tokens from files that only their owner can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use thiserror::Error;

/// Token of a caller. Never printed.
#[derive(Clone)]
pub struct BearerToken(HeaderValue);

/// Error of a token file.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file could not be read.
    #[error("cannot read token file {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Other users can read the file.
    #[error("token file {path} can be read by others (mode {mode:o}); `chmod 600 {path}` and make a new token", path = path.display())]
    Mode {
        /// Path of the file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file does not hold a token.
    #[error("token file {} does not hold one token of visible characters", path.display())]
    Form {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Maximum size of a token file; tokens have less than a hundred bytes.
const BYTES_MAX: usize = 4_096;

impl BearerToken {
    /// Reads a file that only its owner may read, mode 0600 or less.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let read = |source| TokenError::Read {
            path: path.to_owned(),
            source,
        };
        let mode = std::fs::metadata(path).map_err(read)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Mode {
                path: path.to_owned(),
                mode,
            });
        }
        let bytes = std::fs::read(path).map_err(read)?;
        let text = std::str::from_utf8(&bytes)
            .ok()
            .filter(|text| text.len() <= BYTES_MAX);
        text.and_then(|text| Self::new(text.trim()))
            .ok_or_else(|| TokenError::Form {
                path: path.to_owned(),
            })
    }

    /// Makes a token from its secret; `None` unless all characters are visible ASCII.
    pub fn new(secret: &str) -> Option<Self> {
        let is_visible = !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic());
        let mut value = HeaderValue::from_str(&format!("Bearer {secret}")).ok()?;
        value.set_sensitive(true);
        is_visible.then_some(Self(value))
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerToken(hidden)")
    }
}
