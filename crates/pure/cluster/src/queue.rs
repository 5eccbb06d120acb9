//! The queue of waiting runs (R2).
//!
//! An owner's places are those of its waiting submissions. Its waiting runs take them by falling
//! priority, then submission. So a priority orders the runs of one owner and never passes another
//! owner.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bursar_units::Label;

/// Waiting runs by the numbers of their submissions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// Owner of each place.
    places: BTreeMap<u64, Label>,
    /// Runs of each owner in the order in which they take its places.
    owners: BTreeMap<Label, BTreeSet<(Reverse<i32>, u64)>>,
}

impl Queue {
    pub(crate) fn insert(&mut self, owner: &Label, priority: i32, number: u64) {
        self.places.insert(number, owner.clone());
        let runs = self.owners.entry(owner.clone()).or_default();
        runs.insert((Reverse(priority), number));
    }

    pub(crate) fn remove(&mut self, owner: &Label, priority: i32, number: u64) {
        self.places.remove(&number);
        if let Some(runs) = self.owners.get_mut(owner) {
            runs.remove(&(Reverse(priority), number));
            if runs.is_empty() {
                self.owners.remove(owner);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Numbers of the submissions, earliest first.
    pub(crate) fn submissions(&self) -> impl Iterator<Item = u64> {
        self.places.keys().copied()
    }

    /// Number of waiting runs of an owner.
    pub(crate) fn waiting(&self, owner: &Label) -> u64 {
        let count = self.owners.get(owner).map_or(0, BTreeSet::len);
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Numbers of the submissions in the order in which runs start.
    pub(crate) fn order(&self) -> Vec<u64> {
        let runs = self.owners.iter();
        let mut runs: BTreeMap<&Label, _> =
            runs.map(|(owner, runs)| (owner, runs.iter())).collect();
        let next = |owner: &Label| runs.get_mut(owner).and_then(Iterator::next);
        let order = self.places.values().filter_map(next);
        order.map(|(_, number)| *number).collect()
    }
}
