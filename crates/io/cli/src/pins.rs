//! Which key signs which ledger, and what was seen of it: trust on first contact, as ssh does
//! (design 80, 1.5).
//!
//! `known-ledgers` has a line per key of a ledger: `ledger key pinned-at [server]`. The last line
//! of a ledger is the key that signs now; those before it vouched for it and still verify what
//! they signed. `checkpoints` has a line per checkpoint: `origin size root`. A checkpoint stays
//! there until a consistency proof shows that a larger one extends it: two that no proof joins may
//! be the evidence of two histories. Both are small text files that a person can read and mend.

use std::fs::File;
use std::path::{Path, PathBuf};

use bursar_client::api::instant;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_units::Instant;

use crate::environment::Environment;
use crate::failure::Failure;

/// How many keys and origins are remembered; the oldest are forgotten first.
const LINES_MAX: usize = 1_000;
/// How many checkpoints of one ledger are remembered that no proof joins.
const UNJOINED_MAX: usize = 64;

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

    /// Where checkpoints are kept, for messages.
    pub(crate) fn checkpoints_path(&self) -> PathBuf {
        self.directory.join("checkpoints")
    }

    /// The checkpoints seen of an origin that no proof has joined, the oldest first.
    pub(crate) fn seen(&self, origin: &str) -> Vec<Checkpoint> {
        let mut all = self.checkpoints().unwrap_or_default();
        all.retain(|seen| seen.origin.as_str() == origin);
        all
    }

    /// Remembers a checkpoint, and forgets those that a consistency proof has joined with it. Says
    /// how many others had to be forgotten because there are too many.
    pub(crate) fn see(
        &self,
        checkpoint: &Checkpoint,
        joined: &[Checkpoint],
    ) -> Result<usize, Failure> {
        let _lock = self.lock()?;
        let before = self.checkpoints()?;
        let mut all = before.clone();
        all.retain(|seen| seen == checkpoint || !joined.contains(seen));
        if !all.contains(checkpoint) {
            all.push(checkpoint.clone());
        }
        let kept = all.len();
        let ledger = ledger_of(checkpoint);
        let of_ledger = all.iter().filter(|seen| ledger_of(seen) == ledger).count();
        let mut excess = of_ledger.saturating_sub(UNJOINED_MAX);
        all.retain(|seen| {
            let is_forgotten = ledger_of(seen) == ledger && 0 < excess;
            excess -= usize::from(is_forgotten);
            !is_forgotten
        });
        all.drain(..all.len().saturating_sub(LINES_MAX));
        let forgotten = kept - all.len();
        if all != before {
            let lines = all
                .iter()
                .map(|seen| format!("{} {} {}\n", seen.origin, seen.size, seen.root));
            write(&self.checkpoints_path(), &lines.collect::<String>())?;
        }
        Ok(forgotten)
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

    fn checkpoints(&self) -> Result<Vec<Checkpoint>, Failure> {
        let path = self.checkpoints_path();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::file("read", path.display(), &error)),
        };
        let read = |line: &str| {
            let mut words = line.split_whitespace();
            Some(Checkpoint {
                origin: words.next()?.parse().ok()?,
                size: words.next()?.parse().ok()?,
                root: words.next()?.parse().ok()?,
            })
        };
        Ok(text.lines().filter_map(read).collect())
    }

    /// Keeps others out while the checkpoints are read and written again.
    fn lock(&self) -> Result<File, Failure> {
        let path = self.directory.join("checkpoints.lock");
        std::fs::create_dir_all(&self.directory)
            .and_then(|()| File::create(&path))
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|error| Failure::file("write", path.display(), &error))
    }
}

/// Two checkpoints of one size that differ: two histories of the ledger.
pub(crate) fn two_histories(seen: &[Checkpoint]) -> Option<(&Checkpoint, &Checkpoint)> {
    let differ = |one: &Checkpoint, other: &&Checkpoint| {
        one.origin == other.origin && one.size == other.size && one.root != other.root
    };
    seen.iter()
        .find_map(|one| Some((one, seen.iter().find(|other| differ(one, other))?)))
}

/// The ledger that a checkpoint is of: `bursar/<ledger>/<generation>` without its generation.
fn ledger_of(checkpoint: &Checkpoint) -> &str {
    let origin = checkpoint.origin.as_str();
    origin.rsplit_once('/').map_or(origin, |(ledger, _)| ledger)
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_journal::checkpoint::Checkpoint;
    use bursar_journal::hash::Hash;

    use super::{Pins, UNJOINED_MAX, two_histories};

    fn checkpoint(origin: &str, size: u64, root: u8) -> Checkpoint {
        Checkpoint {
            origin: origin.parse().unwrap(),
            size,
            root: Hash([root; 32]),
        }
    }

    fn pins() -> (tempfile::TempDir, Pins) {
        let directory = tempfile::tempdir().unwrap();
        let pins = Pins {
            directory: directory.path().to_owned(),
        };
        (directory, pins)
    }

    #[test]
    fn a_checkpoint_is_kept_until_a_proof_joins_it_with_a_larger_one() {
        let (_directory, pins) = pins();
        let (one, two) = (
            checkpoint("bursar/a/0", 10, 1),
            checkpoint("bursar/a/0", 20, 2),
        );
        let other = checkpoint("bursar/b/0", 5, 1);
        for seen in [&one, &two, &other, &one] {
            assert_eq!(pins.see(seen, &[]).unwrap(), 0);
        }
        assert_eq!(pins.seen("bursar/a/0"), [one.clone(), two.clone()]);
        assert_eq!(pins.see(&two, &[one, two.clone()]).unwrap(), 0);
        assert_eq!(pins.seen("bursar/a/0"), [two]);
        assert_eq!(pins.seen("bursar/b/0"), [other]);
    }

    #[test]
    fn checkpoints_of_one_size_that_differ_are_both_kept_and_are_two_histories() {
        let (_directory, pins) = pins();
        let (one, two) = (
            checkpoint("bursar/a/0", 10, 1),
            checkpoint("bursar/a/0", 10, 2),
        );
        let fork = checkpoint("bursar/a/1", 10, 3);
        pins.see(&one, &[]).unwrap();
        pins.see(&fork, &[]).unwrap();
        assert_eq!(
            two_histories(&[one.clone(), fork]),
            None,
            "a generation is a fork on record"
        );
        pins.see(&two, &[]).unwrap();
        let seen = pins.seen("bursar/a/0");
        assert_eq!(two_histories(&seen), Some((&one, &two)));
    }

    #[test]
    fn the_oldest_of_too_many_are_forgotten_and_counted() {
        let (_directory, pins) = pins();
        let other = checkpoint("bursar/b/0", 1, 1);
        pins.see(&other, &[]).unwrap();
        let max = u64::try_from(UNJOINED_MAX).unwrap();
        for size in 1..=max {
            // A generation counts as part of its ledger.
            let origin = format!("bursar/a/{}", size % 2);
            assert_eq!(pins.see(&checkpoint(&origin, size, 1), &[]).unwrap(), 0);
        }
        assert_eq!(
            pins.see(&checkpoint("bursar/a/0", max + 1, 1), &[])
                .unwrap(),
            1
        );
        assert!(pins.seen("bursar/a/1").iter().all(|seen| seen.size != 1));
        assert_eq!(pins.seen("bursar/b/0"), [other]);
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read_and_one_that_cannot_be_read_is_left_alone() {
        let (_directory, pins) = pins();
        let old = format!("bursar/a/0 7 {}\n", Hash([9; 32]));
        std::fs::write(pins.checkpoints_path(), &old).unwrap();
        assert_eq!(pins.seen("bursar/a/0"), [checkpoint("bursar/a/0", 7, 9)]);
        std::fs::write(pins.checkpoints_path(), [0xff]).unwrap();
        assert!(pins.see(&checkpoint("bursar/a/0", 8, 1), &[]).is_err());
        assert_eq!(std::fs::read(pins.checkpoints_path()).unwrap(), [0xff]);
    }
}
