//! Pinned ledger keys and known checkpoints: trust on first use, as in ssh.
//!
//! `known-ledgers` has a line per key of a ledger: `ledger key pinned-at [server]`. The last line
//! of a ledger is the key that signs now; earlier keys vouched for it and still verify their own
//! signatures. `checkpoints` has a line per checkpoint: `origin size root [parted]`. A checkpoint
//! stays there until a consistency proof shows that a larger one extends it. `parted` marks
//! checkpoints of one origin that a proof showed to be of different histories. Both are small text
//! files that a person can edit; a line of `checkpoints` that cannot be parsed is kept unchanged.

use std::fs::File;
use std::path::{Path, PathBuf};

use bursar_client::api::instant;
use bursar_journal::checkpoint::{Checkpoint, VerifierKey};
use bursar_journal::proof::Check;
use bursar_units::Instant;
use bursar_units::words::number;

use crate::environment::Environment;
use crate::failure::Failure;

/// Maximum number of lines in a file; the oldest are removed first.
const LINES_MAX: usize = 1_000;
/// Maximum number of checkpoints of one ledger that no proof joins.
const UNJOINED_MAX: usize = 64;
/// Last word in the line of a parted checkpoint.
const PARTED: &str = "parted";

/// A pinned key of a ledger.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub(crate) ledger: String,
    pub(crate) key: VerifierKey,
    /// Time of pinning.
    pub(crate) at: Instant,
    /// Address of the server; `None` for a Unix socket.
    pub(crate) server: Option<String>,
}

/// A known checkpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) checkpoint: Checkpoint,
    /// Whether a proof showed that it and another one of its origin are of different histories.
    pub(crate) is_parted: bool,
}

/// A line of `checkpoints`.
#[derive(Clone, Debug, Eq, PartialEq)]
enum CheckpointLine {
    Seen(Seen),
    /// A line that this version cannot parse.
    Unknown(String),
}

/// The two files of a user.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    directory: PathBuf,
}

impl Pins {
    /// `None` where the environment names no home directory.
    pub(crate) fn of(environment: &Environment) -> Option<Self> {
        Some(Self {
            directory: environment.state_home.clone()?,
        })
    }

    /// The pin of the key that signs a ledger now.
    pub(crate) fn of_ledger(&self, ledger: &str) -> Option<Pin> {
        self.all_of_ledger(ledger).into_iter().next()
    }

    /// Every pin of a ledger, the newest first.
    pub(crate) fn all_of_ledger(&self, ledger: &str) -> Vec<Pin> {
        let pins = self.pins().into_iter().rev();
        pins.filter(|pin| pin.ledger == ledger).collect()
    }

    /// The newest pin of a server's address.
    pub(crate) fn of_server(&self, server: &str) -> Option<Pin> {
        let mut pins = self.pins().into_iter().rev();
        pins.find(|pin| pin.server.as_deref() == Some(server))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("known-ledgers")
    }

    /// Stores a pin as the newest of its ledger. Earlier keys stay, to verify their signatures.
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

    pub(crate) fn checkpoints_path(&self) -> PathBuf {
        self.directory.join("checkpoints")
    }

    /// The known checkpoints of an origin that no proof has joined, the oldest first.
    pub(crate) fn seen(&self, origin: &str) -> Vec<Seen> {
        let lines = self.checkpoints().unwrap_or_default();
        let seen = lines.iter().filter_map(CheckpointLine::seen);
        seen.filter(|seen| seen.checkpoint.origin.as_str() == origin)
            .cloned()
            .collect()
    }

    /// Stores a checkpoint and removes the `joined` ones, which a consistency proof has shown to be
    /// in its history. Marks it and the `parted` ones, which a proof has shown to be of another
    /// history. Returns the number of checkpoints removed because of the limits.
    pub(crate) fn see(
        &self,
        checkpoint: &Checkpoint,
        joined: &[Checkpoint],
        parted: &[Checkpoint],
    ) -> Result<usize, Failure> {
        let _lock = self.lock()?;
        let before = self.checkpoints()?;
        let mut all = before.clone();
        for added in parted.iter().chain([checkpoint]) {
            if !all.iter().any(|line| line.is(added)) {
                all.push(CheckpointLine::Seen(Seen {
                    checkpoint: added.clone(),
                    is_parted: false,
                }));
            }
        }
        let is_joined =
            |seen: &Seen| seen.checkpoint != *checkpoint && joined.contains(&seen.checkpoint);
        // A checkpoint that extends a parted one is of the same history.
        let is_parted = !parted.is_empty()
            || all
                .iter()
                .filter_map(CheckpointLine::seen)
                .any(|seen| is_joined(seen) && seen.is_parted);
        all.retain(|line| !line.seen().is_some_and(is_joined));
        for line in &mut all {
            let is_newest = line.is(checkpoint);
            if let CheckpointLine::Seen(seen) = line {
                seen.is_parted |= is_newest && is_parted || parted.contains(&seen.checkpoint);
            }
        }
        mark(&mut all);
        let kept = all.len();
        let ledger = ledger_of(checkpoint);
        forget(&mut all, UNJOINED_MAX, |seen| {
            ledger_of(&seen.checkpoint) == ledger
        });
        forget(&mut all, LINES_MAX, |_| true);
        let forgotten = kept - all.len();
        if all != before {
            let lines = all.iter().map(CheckpointLine::text);
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

    fn checkpoints(&self) -> Result<Vec<CheckpointLine>, Failure> {
        let path = self.checkpoints_path();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::file("read", path.display(), &error)),
        };
        let mut lines: Vec<CheckpointLine> = text.lines().map(CheckpointLine::read).collect();
        mark(&mut lines);
        Ok(lines)
    }

    /// Locks `checkpoints` for reading and rewriting.
    fn lock(&self) -> Result<File, Failure> {
        let path = self.directory.join("checkpoints.lock");
        std::fs::create_dir_all(&self.directory)
            .and_then(|()| File::create(&path))
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|error| Failure::file("write", path.display(), &error))
    }
}

impl CheckpointLine {
    fn read(line: &str) -> Self {
        let seen = || {
            let mut words = line.split_whitespace();
            let checkpoint = Checkpoint {
                origin: words.next()?.parse().ok()?,
                size: words.next()?.parse().ok()?,
                root: words.next()?.parse().ok()?,
            };
            let is_parted = match words.next() {
                None => false,
                Some(PARTED) => true,
                Some(_) => return None,
            };
            words.next().is_none().then_some(Seen {
                checkpoint,
                is_parted,
            })
        };
        seen().map_or_else(|| Self::Unknown(line.to_owned()), Self::Seen)
    }

    fn text(&self) -> String {
        match self {
            Self::Seen(Seen {
                checkpoint,
                is_parted,
            }) => {
                let Checkpoint { origin, size, root } = checkpoint;
                if *is_parted {
                    format!("{origin} {size} {root} {PARTED}\n")
                } else {
                    format!("{origin} {size} {root}\n")
                }
            }
            Self::Unknown(line) => format!("{line}\n"),
        }
    }

    fn seen(&self) -> Option<&Seen> {
        match self {
            Self::Seen(seen) => Some(seen),
            Self::Unknown(_) => None,
        }
    }

    fn is(&self, checkpoint: &Checkpoint) -> bool {
        self.seen()
            .is_some_and(|seen| seen.checkpoint == *checkpoint)
    }
}

/// Marks checkpoints of one size that differ. Removes the mark from one that is the last of its
/// origin: a proof has joined the others with it.
fn mark(lines: &mut [CheckpointLine]) {
    let before: Vec<Seen> = lines
        .iter()
        .filter_map(CheckpointLine::seen)
        .cloned()
        .collect();
    for line in lines.iter_mut() {
        if let CheckpointLine::Seen(seen) = line {
            let one = &seen.checkpoint;
            seen.is_parted |= before.iter().any(|other| differ(one, &other.checkpoint));
        }
    }
    let marked: Vec<Seen> = lines
        .iter()
        .filter_map(CheckpointLine::seen)
        .cloned()
        .collect();
    for line in lines {
        if let CheckpointLine::Seen(seen) = line {
            let origin = &seen.checkpoint.origin;
            let others = marked
                .iter()
                .filter(|other| other.is_parted && other.checkpoint.origin == *origin);
            seen.is_parted &= 1 < others.count();
        }
    }
}

/// Removes the oldest checkpoints of the `selected` until `max` are left. Parted ones are evidence
/// and are removed last.
fn forget(lines: &mut Vec<CheckpointLine>, max: usize, selected: impl Fn(&Seen) -> bool) {
    let is_selected = |line: &CheckpointLine| line.seen().is_some_and(&selected);
    let mut excess = lines
        .iter()
        .filter(|line| is_selected(line))
        .count()
        .saturating_sub(max);
    for is_parted in [false, true] {
        lines.retain(|line| {
            let is_next = line.seen().is_some_and(|seen| seen.is_parted == is_parted);
            let is_forgotten = 0 < excess && is_next && is_selected(line);
            excess -= usize::from(is_forgotten);
            !is_forgotten
        });
    }
}

/// Whether two checkpoints of one size have different roots: two histories of the ledger.
pub(crate) fn differ(one: &Checkpoint, other: &Checkpoint) -> bool {
    one.origin == other.origin && one.size == other.size && one.root != other.root
}

/// The failed check of histories that parted earlier; `None` if `joined` has all of them.
pub(crate) fn two_histories(seen: &[Seen], joined: &[Checkpoint]) -> Option<Check> {
    let parted = seen.iter().filter(|seen| seen.is_parted);
    let parted: Vec<&Checkpoint> = parted.map(|seen| &seen.checkpoint).collect();
    if parted.iter().all(|parted| joined.contains(parted)) {
        return None;
    }
    let sizes = parted.iter().map(|parted| number(parted.size));
    let detail = format!(
        "two histories: earlier checkpoints of {} records contradict each other",
        sizes.collect::<Vec<_>>().join(" and ")
    );
    Some(Check::failed("consistent", detail))
}

/// The origin `bursar/<ledger>/<generation>` without the generation.
fn ledger_of(checkpoint: &Checkpoint) -> &str {
    let origin = checkpoint.origin.as_str();
    origin.rsplit_once('/').map_or(origin, |(ledger, _)| ledger)
}

/// Replaces a file atomically: writes a new one and renames it.
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

    fn seen(pins: &Pins, origin: &str) -> Vec<Checkpoint> {
        let seen = pins.seen(origin).into_iter();
        seen.map(|seen| seen.checkpoint).collect()
    }

    /// Sizes of the parted checkpoints.
    fn marked(pins: &Pins, origin: &str) -> Vec<u64> {
        let seen = pins.seen(origin).into_iter();
        let marked = seen.filter(|seen| seen.is_parted);
        marked.map(|seen| seen.checkpoint.size).collect()
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
            assert_eq!(pins.see(seen, &[], &[]).unwrap(), 0);
        }
        assert_eq!(seen(&pins, "bursar/a/0"), [one.clone(), two.clone()]);
        assert_eq!(pins.see(&two, &[one, two.clone()], &[]).unwrap(), 0);
        assert_eq!(seen(&pins, "bursar/a/0"), [two]);
        assert_eq!(seen(&pins, "bursar/b/0"), [other]);
    }

    #[test]
    fn different_checkpoints_of_one_size_are_kept_as_two_histories() {
        let (_directory, pins) = pins();
        let (one, two) = (
            checkpoint("bursar/a/0", 10, 1),
            checkpoint("bursar/a/0", 10, 2),
        );
        let fork = checkpoint("bursar/a/1", 10, 3);
        pins.see(&one, &[], &[]).unwrap();
        pins.see(&fork, &[], &[]).unwrap();
        for origin in ["bursar/a/0", "bursar/a/1"] {
            let known = two_histories(&pins.seen(origin), &[]);
            assert!(known.is_none(), "a new generation is a recorded fork");
        }
        pins.see(&two, &[], &[]).unwrap();
        assert_eq!(seen(&pins, "bursar/a/0"), [one, two]);
        assert!(two_histories(&pins.seen("bursar/a/0"), &[]).is_some());
        assert_eq!(marked(&pins, "bursar/a/1"), [0; 0]);
    }

    #[test]
    fn two_histories_stay_marked_until_a_proof_joins_them() {
        let (_directory, pins) = pins();
        let at = |size, root| checkpoint("bursar/a/0", size, root);
        pins.see(&at(5, 5), &[], &[]).unwrap();
        pins.see(&at(10, 1), &[], &[]).unwrap();
        pins.see(&at(20, 2), &[], &[at(10, 1)]).unwrap();
        assert_eq!(marked(&pins, "bursar/a/0"), [10, 20]);
        pins.see(&at(30, 1), &[at(10, 1), at(5, 5)], &[]).unwrap();
        assert_eq!(marked(&pins, "bursar/a/0"), [20, 30]);
        let known = two_histories(&pins.seen("bursar/a/0"), &[at(30, 1)]).unwrap();
        assert!(!known.ok && known.detail.contains("20 and 30"), "{known:?}");
        pins.see(&at(40, 3), &[at(20, 2), at(30, 1)], &[]).unwrap();
        assert_eq!(seen(&pins, "bursar/a/0"), [at(40, 3)]);
        assert_eq!(marked(&pins, "bursar/a/0"), [0; 0]);
    }

    #[test]
    fn the_oldest_checkpoints_over_the_limit_are_removed_and_marked_ones_last() {
        let (_directory, pins) = pins();
        let other = checkpoint("bursar/b/0", 1, 1);
        pins.see(&other, &[], &[]).unwrap();
        let max = u64::try_from(UNJOINED_MAX).unwrap();
        let of = |size: u64| {
            // A generation counts as part of its ledger.
            checkpoint(&format!("bursar/a/{}", size % 2), size, 1)
        };
        pins.see(&of(3), &[], &[of(1)]).unwrap();
        for size in (2..=max).filter(|size| *size != 3) {
            assert_eq!(pins.see(&of(size), &[], &[]).unwrap(), 0);
        }
        assert_eq!(pins.see(&of(max + 2), &[], &[]).unwrap(), 1);
        assert_eq!(marked(&pins, "bursar/a/1"), [1, 3]);
        assert!(seen(&pins, "bursar/a/0").iter().all(|seen| seen.size != 2));
        assert_eq!(seen(&pins, "bursar/b/0"), [other]);
    }

    #[test]
    fn an_older_file_is_read_and_an_unreadable_one_is_not_overwritten() {
        let (_directory, pins) = pins();
        let old = format!("bursar/a/0 7 {}\n", Hash([9; 32]));
        std::fs::write(pins.checkpoints_path(), &old).unwrap();
        assert_eq!(seen(&pins, "bursar/a/0"), [checkpoint("bursar/a/0", 7, 9)]);
        std::fs::write(pins.checkpoints_path(), [0xff]).unwrap();
        assert!(pins.see(&checkpoint("bursar/a/0", 8, 1), &[], &[]).is_err());
        assert_eq!(std::fs::read(pins.checkpoints_path()).unwrap(), [0xff]);
    }

    #[test]
    fn lines_that_cannot_be_parsed_are_kept() {
        let (_directory, pins) = pins();
        let line = |size: u64| format!("bursar/a/0 {size} {}\n", Hash([1; 32]));
        let later = line(7).replace('\n', " a word of a later version\n");
        let text = format!("# mine\n{}{later}\n", line(5));
        std::fs::write(pins.checkpoints_path(), &text).unwrap();
        pins.see(&checkpoint("bursar/a/0", 9, 1), &[], &[]).unwrap();
        let written = std::fs::read_to_string(pins.checkpoints_path()).unwrap();
        assert_eq!(written, text + &line(9));
    }
}
