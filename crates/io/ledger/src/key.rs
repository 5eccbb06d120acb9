//! Key that signs checkpoints, in a file that only its owner can read (L11).
//!
//! ```text
//! PRIVATE+KEY+bursar/0198f3c2-…/0+7b1e22aa+AW…      the key
//! PRIVATE+KEY+bursar/0198f3c2-…/0+0c55d1f0+AT… until 1797415200000
//! ```
//! The first line is the key. Later lines are earlier keys, which sign too until the stated
//! instant, thirty days after their replacement. The file may be a mounted secret; it is only
//! written when a key is created or replaced.
//!
//! The key of a new ledger is in `ledger.key.new` until record 0 is durable. A `ledger.key` without
//! a ledger is left of a lost one and never begins a second history under its name.
//!
//! A new key is in `ledger.key.next` until its record is in the ledger, so a key in the key file is
//! always recorded, and a recorded key is always in a file.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bursar_journal::checkpoint::{Checkpoint, KeyError, Name, SigningKey, VerifierKey};
use bursar_journal::hash::Hash;
use bursar_units::{Instant, Millis};
use thiserror::Error;

use crate::{durable, store};

/// Name of the file in a data directory.
pub const FILE_NAME: &str = "ledger.key";

/// Name of the file while the ledger of the key has no durable record.
pub const NEW_FILE_NAME: &str = "ledger.key.new";

/// Time for which a replaced key still signs, so that clients that pinned it can learn the new one.
pub const BOTH_SIGN: Millis = Millis::from_hours(30 * 24);

const MODE: u32 = 0o600;

/// Error of the signing key.
#[derive(Debug, Error)]
pub enum Error {
    /// The file could not be read or written.
    #[error("the signing key cannot be read or written")]
    File(#[from] store::Error),
    /// Others can read the file.
    #[error(
        "{path} can be read by others (mode {mode:o}); run `chmod 600 {path}`, then consider `bursar ledger rotate-key`"
    )]
    Exposed {
        /// Path of the file.
        path: String,
        /// Permissions.
        mode: u32,
    },
    /// The file does not hold a key.
    #[error(
        "line {line} of {path} is not a key; restore the file from where you keep your secrets"
    )]
    Form {
        /// Path of the file.
        path: String,
        /// Line, from 1.
        line: usize,
        /// Cause.
        #[source]
        source: KeyError,
    },
    /// The key is that of another ledger or generation.
    #[error("{path} holds the key of {found}, this ledger is {expected}")]
    OtherLedger {
        /// Path of the file.
        path: String,
        /// Origin of the key.
        found: String,
        /// Expected origin.
        expected: String,
    },
    /// A ledger that has records has no key file.
    #[error(
        "{path} is missing, and the ledger has records that it signed; put the key back from where \
         you keep your secrets, or restore a backup as a new generation with `bursar ledger restore`"
    )]
    KeyMissing {
        /// Path of the file.
        path: String,
    },
    /// There is a key, or a checkpoint, but no ledger.
    #[error(
        "{path} is there, but no ledger: the store was lost or moved; put `ledger.db` back, or restore \
         the newest `ledger.rescue….db` or backup with `bursar ledger restore`; to begin a new ledger, \
         use another directory"
    )]
    LedgerMissing {
        /// Path of the file that is left.
        path: String,
    },
    /// No random bytes are available.
    #[error("the system gave no random bytes for a key")]
    Random {
        /// Cause.
        #[source]
        source: getrandom::Error,
    },
    /// The ledger id is not valid in the name of a key.
    #[error("the id of the ledger is not valid in the name of a key")]
    Name {
        /// Cause.
        #[source]
        source: KeyError,
    },
}

/// Signer of the checkpoints of one generation of a ledger.
#[derive(Clone, Debug)]
pub struct Signer {
    path: PathBuf,
    key: SigningKey,
    /// Earlier keys, with the end of their signing.
    earlier: Vec<(SigningKey, Instant)>,
}

impl Error {
    pub(crate) fn ledger_missing(left: &Path) -> Self {
        Self::LedgerMissing {
            path: left.display().to_string(),
        }
    }
}

impl Signer {
    /// Creates the key of a new ledger, in a file beside `path` until [`Self::promote_new`].
    pub fn create_new(path: &Path, ledger: &str, generation: u64) -> Result<Self, Error> {
        let name = Name::ledger(ledger, generation).map_err(|source| Error::Name { source })?;
        let signer = Self {
            path: path.to_owned(),
            key: random_key(name)?,
            earlier: Vec::new(),
        };
        signer.write(&path.with_file_name(NEW_FILE_NAME))?;
        Ok(signer)
    }

    /// Key of [`Self::create_new`], if it is not in its place yet.
    pub fn load_new(path: &Path) -> Result<Option<Self>, Error> {
        let new = Self::load(&path.with_file_name(NEW_FILE_NAME))?;
        Ok(new.map(|new| Self {
            path: path.to_owned(),
            ..new
        }))
    }

    /// Puts a new key in its place. The first record of its ledger must be durable.
    pub fn promote_new(&self) -> Result<(), Error> {
        let failed = |source| durable::failed("write", &self.path, source);
        let new = self.path.with_file_name(NEW_FILE_NAME);
        Ok(durable::rename(&new, &self.path).map_err(failed)?)
    }

    /// Reads the key file; `None` if there is none.
    pub fn load(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |source| Error::File(durable::failed("read", path, source));
        if !path.try_exists().map_err(failed)? {
            return Ok(None);
        }
        let mode = std::fs::metadata(path)
            .map_err(failed)?
            .permissions()
            .mode()
            & 0o777;
        let shown = path.display().to_string();
        if mode & 0o077 != 0 {
            return Err(Error::Exposed { path: shown, mode });
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let mut keys = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let wrong = |source| Error::Form {
                path: shown.clone(),
                line: number,
                source,
            };
            keys.push(read_line(line).map_err(wrong)?);
        }
        let mut keys = keys.into_iter();
        match keys.next() {
            Some((key, None)) => {
                let earlier = keys
                    .filter_map(|(key, until)| Some((key, until?)))
                    .collect();
                Ok(Some(Self {
                    path: path.to_owned(),
                    key,
                    earlier,
                }))
            }
            _ => Err(Error::Form {
                path: shown,
                line: 1,
                source: KeyError::PrivateForm,
            }),
        }
    }

    /// Reads the key of a ledger that must have one: a new key could not continue the history that
    /// a lost one signed.
    pub fn load_for(path: &Path, ledger: &str, generation: u64) -> Result<Self, Error> {
        let missing = || Error::KeyMissing {
            path: path.display().to_string(),
        };
        let signer = Self::load(path)?.ok_or_else(missing)?;
        let expected = Name::ledger(ledger, generation).map_err(|source| Error::Name { source })?;
        if *signer.origin() != expected {
            return Err(Error::OtherLedger {
                path: path.display().to_string(),
                found: signer.origin().to_string(),
                expected: expected.to_string(),
            });
        }
        Ok(signer)
    }

    /// Makes a new key, with which this one still signs for thirty days. Nothing is written.
    pub fn rotate(&self, now: Instant) -> Result<Self, Error> {
        let key = match self.load_next()? {
            // The outcome of its record was unknown: it may be recorded, now or later.
            Some(waiting) => waiting.key,
            None => random_key(self.key.name().clone())?,
        };
        let replaced = (self.key.clone(), now.after(BOTH_SIGN));
        let alive = self
            .earlier
            .iter()
            .filter(|(_, until)| now < *until)
            .cloned();
        Ok(Self {
            path: self.path.clone(),
            key,
            earlier: std::iter::once(replaced).chain(alive).collect(),
        })
    }

    /// Pending key that will replace this one, if any.
    pub fn load_next(&self) -> Result<Option<Self>, Error> {
        let next = Self::load(&next_to(&self.path))?;
        Ok(next.map(|next| Self {
            path: self.path.clone(),
            ..next
        }))
    }

    /// Stores this key as the pending one.
    pub fn keep_next(&self) -> Result<(), Error> {
        self.write(&next_to(&self.path))
    }

    /// Puts the pending key in its place. Its record must be in the ledger.
    pub fn promote_next(&self) -> Result<(), Error> {
        let failed = |source| durable::failed("write", &self.path, source);
        Ok(durable::rename(&next_to(&self.path), &self.path).map_err(failed)?)
    }

    /// Deletes the pending key. It must never be recorded.
    pub fn forget_next(&self) -> Result<(), Error> {
        let next = next_to(&self.path);
        Ok(durable::remove(&next).map_err(|source| durable::failed("remove", &next, source))?)
    }

    /// Id of the ledger, if this key signs its first generation.
    pub fn ledger_begun(&self) -> Option<&str> {
        let (_, of) = self.origin().as_str().split_once('/')?;
        of.strip_suffix("/0")
    }

    /// Generation of the ledger that this key signs, if it is a key of that ledger.
    pub(crate) fn generation_of(&self, ledger: &str) -> Option<u64> {
        let origin = self.origin().as_str().strip_prefix("bursar/")?;
        origin.strip_prefix(ledger)?.strip_prefix('/')?.parse().ok()
    }

    /// Origin of the checkpoints: `bursar/<ledger uuid>/<generation>`.
    pub fn origin(&self) -> &Name {
        self.key.name()
    }

    /// Public half of the key.
    pub fn verifier(&self) -> VerifierKey {
        self.key.verifier()
    }

    /// Public halves of all keys in the file, newest first.
    pub fn verifiers(&self) -> Vec<VerifierKey> {
        let earlier = self.earlier.iter().map(|(key, _)| key.verifier());
        std::iter::once(self.verifier()).chain(earlier).collect()
    }

    /// Signed note over the first `size` records.
    pub fn sign(&self, now: Instant, size: u64, root: Hash) -> String {
        let checkpoint = Checkpoint {
            origin: self.origin().clone(),
            size,
            root,
        };
        let alive = self
            .earlier
            .iter()
            .filter(|(_, until)| now < *until)
            .map(|(key, _)| key);
        checkpoint.sign(std::iter::once(&self.key).chain(alive))
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let earlier = self.earlier.iter();
        let earlier =
            earlier.map(|(key, until)| format!("{} until {}\n", key.to_private_text(), until.ms()));
        let text = format!(
            "{}\n{}",
            self.key.to_private_text(),
            earlier.collect::<String>()
        );
        Ok(durable::write(path, MODE, &[text.as_bytes()])?)
    }
}

fn next_to(path: &Path) -> PathBuf {
    durable::beside(path, ".next")
}

fn random_key(name: Name) -> Result<SigningKey, Error> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|source| Error::Random { source })?;
    Ok(SigningKey::from_seed(name, seed))
}

fn read_line(line: &str) -> Result<(SigningKey, Option<Instant>), KeyError> {
    let Some((key, until)) = line.split_once(" until ") else {
        return Ok((line.parse()?, None));
    };
    let until = until.parse().map_err(|_| KeyError::PrivateForm)?;
    Ok((key.parse()?, Some(Instant::from_ms(until))))
}
