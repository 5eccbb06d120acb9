//! What became of the demo's executions, and what they left behind: counted, not believed.
//!
//! The ledger tells how each ended. What is left is looked for where it would be: groups and
//! processes in this ledger's cgroups, processes anywhere that carry the id of an execution, and
//! slots that no booking holds. Only what belongs to an execution that has ended is left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use bursar_engine::State;
use bursar_engine::booking::Standing;
use bursar_engine::booking::execution::Verdict;
use bursar_engine::words;
use bursar_ledger::view::View;
use bursar_node::cgroup::Tree;
use bursar_units::BookingId;

/// The variable that every process of an execution inherits.
const VARIABLE: &str = "BURSAR_BOOKING=";

/// The numbers.
#[derive(Clone, Debug, Default)]
pub(in crate::command::up) struct Tally {
    verdicts: BTreeMap<Verdict, u64>,
    running: usize,
    processes: usize,
    cgroups: usize,
    slots: u64,
}

impl Tally {
    /// Counts. Whatever is found is looked at again after the ledger was asked about it: what
    /// ended in between is gone by then, what is left behind is not.
    pub(in crate::command::up) fn count(view: &View, trees: &[Tree]) -> Self {
        let groups = groups(trees);
        let processes = processes(Path::new("/proc"));
        let state = view.read();
        let left = |id: &BookingId| matches!(state.bookings.standing(id), Some(Standing::Ended(_)));
        let groups: Vec<PathBuf> = groups
            .into_iter()
            .filter(|(id, _)| left(id))
            .map(|(_, path)| path)
            .collect();
        let processes: Vec<(BookingId, PathBuf)> =
            processes.into_iter().filter(|(id, _)| left(id)).collect();
        let mut tally = Self {
            running: state.bookings.executions().count(),
            slots: slots(&state),
            ..Self::default()
        };
        for course in state.bookings.ended().filter_map(|ended| ended.course()) {
            *tally.verdicts.entry(course.verdict).or_default() += 1;
        }
        drop(state);
        tally.cgroups = groups.iter().filter(|path| path.exists()).count();
        tally.processes = processes
            .iter()
            .filter(|(id, process)| booking(process).as_ref() == Some(id))
            .count();
        tally
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |verdict| self.verdicts.get(&verdict).copied().unwrap_or_default();
        let ended = self.verdicts.values().sum();
        write!(
            f,
            "demo: {}: {} completed, {} failed, {} timed out, {} cancelled, {} lost",
            words::count(ended, "execution"),
            words::number(of(Verdict::Completed)),
            words::number(of(Verdict::Failed)),
            words::number(of(Verdict::TimedOut)),
            words::number(of(Verdict::Cancelled)),
            words::number(of(Verdict::Lost)),
        )?;
        if of(Verdict::WaitOver) > 0 {
            write!(
                f,
                ", {} never granted",
                words::number(of(Verdict::WaitOver))
            )?;
        }
        write!(
            f,
            "; {} running; left behind: {} processes, {} cgroups, {} slots",
            self.running, self.processes, self.cgroups, self.slots
        )
    }
}

/// Slots that are counted as used and that nobody holds.
fn slots(state: &State) -> u64 {
    let used: u64 = state
        .bookings
        .holders(None)
        .iter()
        .map(|(_, slots)| slots)
        .sum();
    let held: u64 = state
        .bookings
        .live_ids(None)
        .filter(|id| matches!(state.bookings.standing(id), Some(Standing::Granted(_))))
        .filter_map(|id| Some(state.bookings.request(id)?.amount.slots))
        .sum();
    used.saturating_sub(held)
}

/// The groups of executions, in every hierarchy.
fn groups(trees: &[Tree]) -> Vec<(BookingId, PathBuf)> {
    let entries = trees
        .iter()
        .filter_map(|tree| std::fs::read_dir(&tree.base).ok());
    let paths = entries
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter_map(|path| Some((named(&path)?, path)))
        .collect()
}

/// The id is what follows the first dash of a name; all else there are files of the kernel's.
fn named(path: &Path) -> Option<BookingId> {
    let (_, id) = path.file_name()?.to_str()?.split_once('-')?;
    BookingId::new(id).ok().filter(|_| path.is_dir())
}

/// The processes that carry the id of an execution; of those that we may look at.
fn processes(proc: &Path) -> Vec<(BookingId, PathBuf)> {
    let entries = std::fs::read_dir(proc).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter_map(|path| Some((booking(&path)?, path)))
        .collect()
}

fn booking(process: &Path) -> Option<BookingId> {
    let variables = std::fs::read(process.join("environ")).ok()?;
    let id = variables
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(VARIABLE.as_bytes()))?;
    BookingId::new(std::str::from_utf8(id).ok()?).ok()
}
