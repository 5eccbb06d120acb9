//! Which key signs which ledger, and what was last seen of it: trust on first contact, as ssh does
//! (design 80, 1.5).
//!
//! `known-ledgers` has a line per key of a ledger: `ledger key pinned-at [server]`. The last line
//! of a ledger is the key that signs now; those before it vouched for it and still verify what
//! they signed. `checkpoints` has a line per origin: `origin size root`. Both are small text files
//! that a person can read and mend.

use std::path::{Path, PathBuf};

use bursar_client::api::instant;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::hash::Hash;
use bursar_units::Instant;

use crate::environment::Environment;
use crate::failure::Failure;

/// How many keys and origins are remembered; the oldest are forgotten first.
const LINES_MAX: usize = 1_000;

/// A ledger whose key is known.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    /// The ledger's id.
    pub(crate) ledger: String,
    /// The key.
    pub(crate) key: VerifierKey,
    /// Since when.
    pub(crate) at: Instant,
    /// Under which address, where that means something.
    pub(crate) server: Option<String>,
}

/// The files.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    directory: PathBuf,
}

impl Pins {
    /// The files of this user, if there is a place for them.
    pub(crate) fn of(environment: &Environment) -> Option<Self> {
        Some(Self {
            directory: environment.state_home.clone()?,
        })
    }

    /// The pin of a ledger: of the key that signs it now.
    pub(crate) fn of_ledger(&self, ledger: &str) -> Option<Pin> {
        self.all_of_ledger(ledger).into_iter().next()
    }

    /// Every pin of a ledger, the newest first.
    pub(crate) fn all_of_ledger(&self, ledger: &str) -> Vec<Pin> {
        let pins = self.pins().into_iter().rev();
        pins.filter(|pin| pin.ledger == ledger).collect()
    }

    /// The pin of a server's address.
    pub(crate) fn of_server(&self, server: &str) -> Option<Pin> {
        let mut pins = self.pins().into_iter().rev();
        pins.find(|pin| pin.server.as_deref() == Some(server))
    }

    /// Where pins are kept, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("known-ledgers")
    }

    /// Keeps a pin as the newest of its ledger; earlier keys stay, for what they signed.
    pub(crate) fn put(&self, pin: &Pin) -> Result<(), Failure> {
        let mut pins = self.pins();
        pins.retain(|other| other.ledger != pin.ledger || other.key != pin.key);
        pins.push(pin.clone());
        let skipped = pins.len().saturating_sub(LINES_MAX);
        let lines = pins.iter().skip(skipped).map(|pin| {
            let server = pin.server.as_deref().map(|server| format!(" {server}"));
            format!(
                "{} {} {}{}\n",
                pin.ledger,
                pin.key,
                instant::format(pin.at),
                server.unwrap_or_default()
            )
        });
        write(&self.path(), &lines.collect::<String>())
    }

    /// The last checkpoint seen of an origin: how many records, and their root.
    pub(crate) fn seen(&self, origin: &str) -> Option<(u64, Hash)> {
        self.checkpoints()
            .into_iter()
            .find(|(name, ..)| name == origin)
            .map(|(_, size, root)| (size, root))
    }

    /// Remembers a checkpoint, if it is the largest of its origin.
    pub(crate) fn see(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let origin = checkpoint.origin.as_str();
        if self
            .seen(origin)
            .is_some_and(|(size, _)| checkpoint.size <= size)
        {
            return Ok(());
        }
        let mut all = self.checkpoints();
        all.retain(|(name, ..)| name != origin);
        all.push((origin.to_owned(), checkpoint.size, checkpoint.root));
        let skipped = all.len().saturating_sub(LINES_MAX);
        let lines = all
            .iter()
            .skip(skipped)
            .map(|(name, size, root)| format!("{name} {size} {root}\n"));
        write(
            &self.directory.join("checkpoints"),
            &lines.collect::<String>(),
        )
    }

    fn pins(&self) -> Vec<Pin> {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        let read = |line: &str| {
            let mut words = line.split_whitespace();
            Some(Pin {
                ledger: words.next()?.to_owned(),
                key: words.next()?.parse().ok()?,
                at: instant::parse(words.next()?).ok()?,
                server: words.next().map(ToOwned::to_owned),
            })
        };
        text.lines().filter_map(read).collect()
    }

    fn checkpoints(&self) -> Vec<(String, u64, Hash)> {
        let text = std::fs::read_to_string(self.directory.join("checkpoints")).unwrap_or_default();
        let read = |line: &str| {
            let mut words = line.split_whitespace();
            let origin = words.next()?.to_owned();
            Some((
                origin,
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
            ))
        };
        text.lines().filter_map(read).collect()
    }
}

/// Writes beside and renames, so that a reader sees the old or the new and nothing between.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let beside = path.with_extension("new");
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&beside, text))
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| Failure::file("write", path.display(), &error))
}
