//! The key that signs checkpoints: a file that only its owner can read, never a row (L11).
//!
//! ```text
//! PRIVATE+KEY+bursar/0198f3c2-…/0+7b1e22aa+AW…      the key
//! PRIVATE+KEY+bursar/0198f3c2-…/0+0c55d1f0+AT… until 1797415200000
//! ```
//! The first line is the key. Lines after it are earlier keys that still sign beside it, until
//! the stated instant: thirty days after they were replaced. The file may be a mounted secret; it
//! is only written when a key is made or replaced.
//!
//! The key of a ledger that begins is in `ledger.key.new` until record 0 is durable: a `ledger.key`
//! without a ledger is what is left of one, and never begins a second history under its name.
//!
//! A key that is to replace another waits in `ledger.key.next` until its record is in the ledger:
//! what the key file holds is always on record, and what is on record is always in a file.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bursar_journal::checkpoint::{Checkpoint, KeyError, Name, SigningKey, VerifierKey};
use bursar_journal::hash::Hash;
use bursar_units::{Instant, Millis};
use thiserror::Error;

use crate::{durable, store};

/// The name of the file in a data directory.
pub const FILE_NAME: &str = "ledger.key";

/// The name while the ledger of the key has no durable record.
pub const NEW_FILE_NAME: &str = "ledger.key.new";

/// How long a replaced key goes on signing, so that whoever pinned it can learn of the new one.
pub const BOTH_SIGN: Millis = Millis::from_hours(30 * 24);

/// Nobody but the owner.
const MODE: u32 = 0o600;

/// Why there is no key to sign with.
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
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// The file does not hold a key.
    #[error(
        "line {line} of {path} is not a key; restore the file from where you keep your secrets"
    )]
    Form {
        /// The file.
        path: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: KeyError,
    },
    /// The key is that of another ledger or generation.
    #[error("{path} holds the key of {found}, this ledger is {expected}")]
    OtherLedger {
        /// The file.
        path: String,
        /// Whose key it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// A ledger that has records has no key file.
    #[error(
        "{path} is missing, and the ledger has records that it signed; put the key back from where \
         you keep your secrets, or restore a backup as a new generation with `bursar ledger restore`"
    )]
    KeyMissing {
        /// The file.
        path: String,
    },
    /// There is a key, or a checkpoint that it signed, but no record.
    #[error(
        "{path} is there, but no ledger: the store was lost or moved; put `ledger.db` back, or restore \
         the newest `ledger.rescue….db` or backup with `bursar ledger restore`; to begin a new ledger, \
         use another directory"
    )]
    LedgerMissing {
        /// The file that is there.
        path: String,
    },
    /// The system has no randomness to give.
    #[error("the system gave no random bytes for a key")]
    Random {
        /// What it said.
        #[source]
        source: getrandom::Error,
    },
    /// A ledger id that no key can be named after.
    #[error("the ledger's id cannot name a key")]
    Name {
        /// What is wrong with it.
        #[source]
        source: KeyError,
    },
}

/// Signs checkpoints of one ledger, in one generation of it.
#[derive(Clone, Debug)]
pub struct Signer {
    path: PathBuf,
    key: SigningKey,
    /// Earlier keys, and until when each signs too.
    earlier: Vec<(SigningKey, Instant)>,
}

impl Error {
    /// The error for a file that is left of a ledger.
    pub(crate) fn ledger_missing(left: &Path) -> Self {
        Self::LedgerMissing {
            path: left.display().to_string(),
        }
    }
}

impl Signer {
    /// Makes a key for a ledger that begins, and keeps it beside `path` until
    /// [`Self::promote_new`].
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

    /// The key that [`Self::create_new`] has made, if it is not in its place yet.
    pub fn load_new(path: &Path) -> Result<Option<Self>, Error> {
        let new = Self::load(&path.with_file_name(NEW_FILE_NAME))?;
        Ok(new.map(|new| Self {
            path: path.to_owned(),
            ..new
        }))
    }

    /// Puts a new key into its place: the first record of its ledger is durable.
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

    /// Reads the key of a ledger that has one already. Another in its place could not go on from
    /// what the lost one signed.
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

    /// A further key, which this one accompanies for thirty days. Nothing is written.
    pub fn rotate(&self, now: Instant) -> Result<Self, Error> {
        let key = match self.load_next()? {
            // What became of its record was not known: it may be there or come yet.
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

    /// The key that waits to replace this one, if any.
    pub fn load_next(&self) -> Result<Option<Self>, Error> {
        let next = Self::load(&next_to(&self.path))?;
        Ok(next.map(|next| Self {
            path: self.path.clone(),
            ..next
        }))
    }

    /// Keeps this key as the one that waits.
    pub fn keep_next(&self) -> Result<(), Error> {
        self.write(&next_to(&self.path))
    }

    /// Puts the key that waits into its place: its record is in the ledger.
    pub fn promote_next(&self) -> Result<(), Error> {
        let failed = |source| durable::failed("write", &self.path, source);
        Ok(durable::rename(&next_to(&self.path), &self.path).map_err(failed)?)
    }

    /// Forgets the key that waits: its record will never be.
    pub fn forget_next(&self) -> Result<(), Error> {
        let next = next_to(&self.path);
        Ok(durable::remove(&next).map_err(|source| durable::failed("remove", &next, source))?)
    }

    /// The id of the ledger whose first generation this key signs.
    pub fn ledger_begun(&self) -> Option<&str> {
        let (_, of) = self.origin().as_str().split_once('/')?;
        of.strip_suffix("/0")
    }

    /// The generation that it signs of that ledger, if it does.
    pub(crate) fn generation_of(&self, ledger: &str) -> Option<u64> {
        let origin = self.origin().as_str().strip_prefix("bursar/")?;
        origin.strip_prefix(ledger)?.strip_prefix('/')?.parse().ok()
    }

    /// The origin of the checkpoints: `bursar/<ledger uuid>/<generation>`.
    pub fn origin(&self) -> &Name {
        self.key.name()
    }

    /// The public half of the key, for records and for whoever pins it.
    pub fn verifier(&self) -> VerifierKey {
        self.key.verifier()
    }

    /// The public halves of all keys in the file, the newest first.
    pub fn verifiers(&self) -> Vec<VerifierKey> {
        let earlier = self.earlier.iter().map(|(key, _)| key.verifier());
        std::iter::once(self.verifier()).chain(earlier).collect()
    }

    /// The signed note over the first `size` records.
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
