//! Owners, their family, and their envelopes by flavor and place (D3).
//!
//! The relatives of an owner are computed when a walk first asks for them, and kept until an edge
//! changes. They are a function of the edges alone, so keeping them changes no answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use bursar_units::Label;

use crate::cover::Relation;
use crate::place::Selector;

#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    owners: Vec<Owner>,
    index: BTreeMap<Label, usize>,
    kin: OnceLock<Vec<OnceLock<Kin>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) name: Label,
    /// Parents, each with the number of budgets that name it.
    parents: BTreeMap<usize, u64>,
    children: BTreeSet<usize>,
    /// Envelopes by flavor, then by place.
    shelves: BTreeMap<Label, Shelves>,
    /// Number of budgets that name it as owner or as parent.
    mentions: u64,
}

/// Numbers of the envelopes of one owner and flavor, by selector.
pub(crate) type Shelves = BTreeMap<Selector, BTreeSet<usize>>;

/// Relatives of an owner, by tier. An owner is in the first tier that applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kin {
    /// By name.
    pub(crate) siblings: Vec<usize>,
    /// Nearest first, then by name.
    pub(crate) ancestors: Vec<usize>,
    /// By name.
    pub(crate) cousins: Vec<usize>,
}

impl Family {
    pub(crate) fn find(&self, name: &Label) -> Option<usize> {
        self.index.get(name).copied()
    }

    pub(crate) fn owner(&self, number: usize) -> Option<&Owner> {
        self.owners.get(number)
    }

    /// The names that a budget mentions now.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Label> {
        let known = |number: &usize| self.owners.get(*number).filter(|o| 0 < o.mentions);
        self.index.values().filter_map(known).map(|o| &o.name)
    }

    pub(crate) fn parents<'a>(&'a self, name: &Label) -> impl Iterator<Item = &'a Label> {
        let owner = self.find(name).and_then(|number| self.owner(number));
        let parents = owner.into_iter().flat_map(|owner| owner.parents.keys());
        parents.filter_map(|parent| Some(&self.owner(*parent)?.name))
    }

    /// The number of an owner, new if it has none.
    pub(crate) fn intern(&mut self, name: &Label) -> usize {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = self.owners.len();
        self.owners.push(Owner {
            name: name.clone(),
            parents: BTreeMap::new(),
            children: BTreeSet::new(),
            shelves: BTreeMap::new(),
            mentions: 0,
        });
        self.index.insert(name.clone(), number);
        self.kin = OnceLock::new();
        number
    }

    /// Counts the edges of one budget.
    pub(crate) fn link(&mut self, owner: &Label, parents: &[Label]) {
        let child = self.intern(owner);
        self.mention(child, 1);
        for parent in parents {
            let parent = self.intern(parent);
            self.mention(parent, 1);
            if let Some(owner) = self.owners.get_mut(child) {
                *owner.parents.entry(parent).or_default() += 1;
            }
            if let Some(owner) = self.owners.get_mut(parent) {
                owner.children.insert(child);
            }
            self.kin = OnceLock::new();
        }
    }

    /// Takes back [`Self::link`].
    pub(crate) fn unlink(&mut self, owner: &Label, parents: &[Label]) {
        let child = self.intern(owner);
        self.mention(child, 0);
        for parent in parents {
            let parent = self.intern(parent);
            self.mention(parent, 0);
            let count = self
                .owners
                .get_mut(child)
                .and_then(|o| o.parents.get_mut(&parent));
            let Some(count) = count else { continue };
            *count = count.saturating_sub(1);
            if *count == 0 {
                if let Some(owner) = self.owners.get_mut(child) {
                    owner.parents.remove(&parent);
                }
                if let Some(owner) = self.owners.get_mut(parent) {
                    owner.children.remove(&child);
                }
            }
            self.kin = OnceLock::new();
        }
    }

    /// Adds a mention for `more` = 1, takes one off for 0.
    fn mention(&mut self, number: usize, more: u64) {
        if let Some(owner) = self.owners.get_mut(number) {
            owner.mentions = (owner.mentions + more).saturating_sub(1 - more);
        }
    }

    pub(crate) fn shelves(
        &self,
        owner: usize,
        flavor: &Label,
    ) -> impl Iterator<Item = (&Selector, &BTreeSet<usize>)> {
        let shelves = self.owners.get(owner).and_then(|o| o.shelves.get(flavor));
        shelves.into_iter().flatten()
    }

    pub(crate) fn put(
        &mut self,
        owner: usize,
        flavor: &Label,
        selector: &Selector,
        envelope: usize,
    ) {
        let Some(owner) = self.owners.get_mut(owner) else {
            return;
        };
        let shelves = owner.shelves.entry(flavor.clone()).or_default();
        let envelopes = shelves.entry(selector.clone()).or_default();
        envelopes.insert(envelope);
    }

    /// Takes back [`Self::put`].
    pub(crate) fn take(
        &mut self,
        owner: usize,
        flavor: &Label,
        selector: &Selector,
        envelope: usize,
    ) {
        let Some(owner) = self.owners.get_mut(owner) else {
            return;
        };
        let Some(shelves) = owner.shelves.get_mut(flavor) else {
            return;
        };
        if let Some(envelopes) = shelves.get_mut(selector) {
            envelopes.remove(&envelope);
            if envelopes.is_empty() {
                shelves.remove(selector);
            }
        }
        if shelves.is_empty() {
            owner.shelves.remove(flavor);
        }
    }

    /// The relatives of an owner.
    pub(crate) fn kin(&self, owner: usize) -> Option<&Kin> {
        let all = self
            .kin
            .get_or_init(|| vec![OnceLock::new(); self.owners.len()]);
        let kin = all.get(owner)?;
        Some(kin.get_or_init(|| self.compute_kin(owner)))
    }

    /// The relation of another owner to an owner (D3).
    pub(crate) fn relation(&self, of: usize, other: usize) -> Option<Relation> {
        if of == other {
            return Some(Relation::Owner);
        }
        let kin = self.kin(of)?;
        if kin.siblings.contains(&other) {
            Some(Relation::Sibling)
        } else if kin.ancestors.contains(&other) {
            Some(Relation::Ancestor)
        } else {
            kin.cousins.contains(&other).then_some(Relation::Cousin)
        }
    }

    /// Whether an owner is another or descends from it.
    pub(crate) fn descends(&self, owner: &Label, from: &Label) -> bool {
        let mut seen = BTreeSet::new();
        let mut next = vec![owner];
        while let Some(name) = next.pop() {
            if name == from {
                return true;
            }
            if seen.insert(name) {
                next.extend(self.parents(name));
            }
        }
        false
    }

    fn compute_kin(&self, owner: usize) -> Kin {
        let siblings = self.siblings(owner);
        let mut taken: BTreeSet<usize> = siblings.iter().copied().collect();
        taken.insert(owner);
        let mut ancestors = Vec::new();
        let mut level: BTreeSet<usize> = self.parents_of(owner).collect();
        let mut climbed = BTreeSet::new();
        while !level.is_empty() {
            let fresh = level.iter().copied().filter(|number| taken.insert(*number));
            ancestors.extend(self.by_name(fresh.collect()));
            let up = level
                .iter()
                .copied()
                .filter(|number| climbed.insert(*number));
            let up: Vec<usize> = up.collect();
            level = up.into_iter().flat_map(|n| self.parents_of(n)).collect();
        }
        let aunts = self
            .parents_of(owner)
            .flat_map(|parent| self.siblings(parent));
        let cousins: BTreeSet<usize> = aunts.flat_map(|aunt| self.children_of(aunt)).collect();
        let cousins = cousins.into_iter().filter(|number| !taken.contains(number));
        Kin {
            siblings: self.by_name(siblings),
            ancestors,
            cousins: self.by_name(cousins.collect()),
        }
    }

    /// Other children of the parents.
    fn siblings(&self, owner: usize) -> BTreeSet<usize> {
        let children = self
            .parents_of(owner)
            .flat_map(|parent| self.children_of(parent));
        children.filter(|child| *child != owner).collect()
    }

    fn parents_of(&self, owner: usize) -> impl Iterator<Item = usize> {
        let owner = self.owners.get(owner).into_iter();
        owner.flat_map(|owner| owner.parents.keys().copied())
    }

    fn children_of(&self, owner: usize) -> impl Iterator<Item = usize> {
        let owner = self.owners.get(owner).into_iter();
        owner.flat_map(|owner| owner.children.iter().copied())
    }

    fn by_name(&self, numbers: BTreeSet<usize>) -> Vec<usize> {
        let mut list: Vec<usize> = numbers.into_iter().collect();
        list.sort_by_key(|number| self.owners.get(*number).map(|owner| &owner.name));
        list
    }
}
