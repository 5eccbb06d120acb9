//! Classes and tenants, interned while anything refers to them.
//!
//! Numbers make counters and lane keys cheap. They are private to one copy of the state, and no
//! result depends on their order: a state restored with other numbers behaves the same.

use bursar_units::{Index, Label};

/// Number of a class or tenant in this copy of the state.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub(crate) struct NameIndex(u32);

impl NameIndex {
    /// Number that no name has.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Table of names, each with a value.
#[derive(Clone, Debug)]
pub(crate) struct Names<T> {
    by_text: Index<Label, NameIndex>,
    entries: Vec<Entry<T>>,
    free: Vec<NameIndex>,
    /// Value of an unknown name.
    absent: T,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    /// `None` if the entry is free.
    label: Option<Label>,
    references: u64,
    value: T,
}

impl<T: Clone + Default> Default for Names<T> {
    fn default() -> Self {
        Self {
            by_text: Index::default(),
            entries: Vec::new(),
            free: Vec::new(),
            absent: T::default(),
        }
    }
}

impl<T: Clone + Default> Names<T> {
    pub(crate) fn find(&self, label: &Label) -> Option<NameIndex> {
        self.by_text.get(label).copied()
    }

    /// Takes a reference to a name, and adds an unknown one.
    pub(crate) fn take(&mut self, label: &Label) -> NameIndex {
        let index = self.find(label).unwrap_or_else(|| self.add(label));
        if let Some(entry) = self.entry_mut(index) {
            entry.references += 1;
        }
        index
    }

    /// Gives a reference back; the last one removes the name and its value.
    pub(crate) fn give(&mut self, index: NameIndex) {
        let Some(entry) = self.entry_mut(index) else {
            return;
        };
        entry.references = entry.references.saturating_sub(1);
        if entry.references > 0 {
            return;
        }
        entry.value = T::default();
        if let Some(label) = entry.label.take() {
            self.by_text.remove(&label);
            self.free.push(index);
        }
    }

    pub(crate) fn get(&self, index: NameIndex) -> &T {
        self.entry(index).map_or(&self.absent, |entry| &entry.value)
    }

    pub(crate) fn get_mut(&mut self, index: NameIndex) -> Option<&mut T> {
        self.entry_mut(index).map(|entry| &mut entry.value)
    }

    /// Text of a name; `None` for a free entry.
    pub(crate) fn label(&self, index: NameIndex) -> Option<&Label> {
        self.entry(index)?.label.as_ref()
    }

    /// All names, in an order that must not reach an output: callers sort or sum.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Label, &T)> {
        self.entries
            .iter()
            .filter_map(|entry| entry.label.as_ref().map(|l| (l, &entry.value)))
    }

    fn add(&mut self, label: &Label) -> NameIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = NameIndex(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
            self.entries.push(Entry {
                label: None,
                references: 0,
                value: T::default(),
            });
            index
        });
        // A free entry has no references and a default value.
        if let Some(entry) = self.entry_mut(index) {
            entry.label = Some(label.clone());
        }
        self.by_text.insert(label.clone(), index);
        index
    }

    fn entry(&self, index: NameIndex) -> Option<&Entry<T>> {
        self.entries.get(usize::try_from(index.0).ok()?)
    }

    fn entry_mut(&mut self, index: NameIndex) -> Option<&mut Entry<T>> {
        self.entries.get_mut(usize::try_from(index.0).ok()?)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_units::Label;

    use super::Names;

    #[test]
    fn the_last_reference_removes_a_name_and_its_value() {
        let (first, second) = (Label::new("first").unwrap(), Label::new("second").unwrap());
        let mut names: Names<u64> = Names::default();
        let index = names.take(&first);
        assert_eq!(names.take(&first), index);
        *names.get_mut(index).unwrap() = 7;
        names.give(index);
        assert_eq!((names.find(&first), *names.get(index)), (Some(index), 7));
        names.give(index);
        assert_eq!(
            (names.find(&first), names.label(index), names.iter().count()),
            (None, None, 0)
        );
        assert_eq!(names.take(&second), index, "entries are used again");
        assert_eq!((*names.get(index), names.label(index)), (0, Some(&second)));
    }
}
