//! Counts of the demo's ended executions by verdict, and of resources that they left behind.
//!
//! The verdicts come from the ledger. Leftovers are counted on the machine: cgroups of this ledger,
//! processes with the id of an execution in their environment, and used slots that no booking
//! holds. Only leftovers of ended executions count.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use bursar_engine::State;
use bursar_engine::booking::execution::Verdict;
use bursar_engine::booking::{Ended, Standing};
use bursar_engine::words;
use bursar_ledger::view::View;
use bursar_node::cgroup::Tree;
use bursar_units::BookingId;

/// Variable that every process of an execution inherits.
const VARIABLE: &str = "BURSAR_BOOKING=";

#[derive(Clone, Debug, Default)]
pub(in crate::command::up) struct Tally {
    verdicts: BTreeMap<Verdict, u64>,
    running: usize,
    processes: usize,
    cgroups: usize,
    slots: u64,
}

impl Tally {
    pub(in crate::command::up) fn count(view: &View, trees: &[Tree]) -> Self {
        let is_ended = |id: &BookingId| {
            let state = view.read();
            matches!(state.bookings.standing(id), Some(Standing::Ended(_)))
        };
        let processes = processes_left(Path::new("/proc"), is_ended);
        let cgroups = groups_left(trees, is_ended);
        let state = view.read();
        let mut verdicts = BTreeMap::new();
        for course in state.bookings.ended().filter_map(Ended::course) {
            *verdicts.entry(course.verdict).or_default() += 1;
        }
        Self {
            verdicts,
            running: state.bookings.executions().count(),
            processes,
            cgroups,
            slots: slots_left(&state),
        }
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

/// Slots that are counted as used but that no booking holds.
fn slots_left(state: &State) -> u64 {
    let holders = state.bookings.holders(None);
    let used: u64 = holders.iter().map(|(_, slots)| slots).sum();
    let held: u64 = state
        .bookings
        .live_ids(None)
        .filter(|id| matches!(state.bookings.standing(id), Some(Standing::Granted(_))))
        .filter_map(|id| Some(state.bookings.request(id)?.slots))
        .sum();
    used.saturating_sub(held)
}

/// Cgroups of ended executions, in every hierarchy. Each is looked up again after the check of the
/// ledger, because an execution that ended in between has removed its cgroup.
fn groups_left(trees: &[Tree], is_ended: impl Fn(&BookingId) -> bool) -> usize {
    let entries = trees
        .iter()
        .filter_map(|tree| std::fs::read_dir(&tree.base).ok());
    let paths = entries
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| booking_of_group(path).is_some_and(|id| is_ended(&id)))
        .filter(|path| path.exists())
        .count()
}

/// The id after the first dash of a directory's name. Other entries are files of the kernel.
fn booking_of_group(path: &Path) -> Option<BookingId> {
    let (_, id) = path.file_name()?.to_str()?.split_once('-')?;
    BookingId::new(id).ok().filter(|_| path.is_dir())
}

/// Processes that still run after their execution has ended: each is a leak. Only processes with a
/// readable environment are found.
fn processes_left(proc: &Path, is_ended: impl Fn(&BookingId) -> bool) -> usize {
    let entries = std::fs::read_dir(proc).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter_map(|path| Some((booking_of_process(&path)?, path)))
        .filter(|(id, _)| is_ended(id))
        .filter(|(id, path)| booking_of_process(path).as_ref() == Some(id))
        .count()
}

fn booking_of_process(process: &Path) -> Option<BookingId> {
    let variables = std::fs::read(process.join("environ")).ok()?;
    let id = variables
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(VARIABLE.as_bytes()))?;
    BookingId::new(std::str::from_utf8(id).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeMap;
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
    use std::process::Stdio;

    use bursar_engine::booking::execution::Verdict;
    use bursar_node::cgroup::{Tree, Version};
    use bursar_units::BookingId;

    use super::{Tally, groups_left, processes_left};

    fn is_gone(id: &BookingId) -> bool {
        id.as_str().starts_with("gone")
    }

    #[test]
    fn only_cgroups_of_ended_executions_are_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["e-gone-1", "e-gone-2", "e-live-gone"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        std::fs::write(directory.path().join("e-gone-3"), "a file of the kernel").unwrap();
        let tree = Tree {
            version: Version::V2,
            base: directory.path().to_owned(),
            controllers: Vec::new(),
        };
        assert_eq!(groups_left(&[tree], is_gone), 2);
    }

    #[test]
    fn a_process_with_an_id_in_its_environment_is_found() {
        let id = format!("gone-{}", std::process::id());
        let is_it = |found: &BookingId| found.as_str() == id;
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "echo here; read end"])
            .env("BURSAR_BOOKING", &id)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Once the process has written a line, its environment is in place.
        let mut here = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut here).unwrap();
        let while_it_lives = processes_left(Path::new("/proc"), is_it);
        child.kill().unwrap();
        child.wait().unwrap();
        let afterwards = processes_left(Path::new("/proc"), is_it);
        assert_eq!((while_it_lives, afterwards), (1, 0));
    }

    #[test]
    fn the_line_has_every_verdict_and_the_leftovers() {
        let tally = Tally {
            verdicts: BTreeMap::from([
                (Verdict::Completed, 1_371),
                (Verdict::Failed, 22),
                (Verdict::TimedOut, 9),
            ]),
            running: 3,
            slots: 1,
            ..Tally::default()
        };
        assert_eq!(
            tally.to_string(),
            "demo: 1,402 executions: 1,371 completed, 22 failed, 9 timed out, 0 cancelled, 0 lost; \
             3 running; left behind: 0 processes, 0 cgroups, 1 slots"
        );
    }
}
