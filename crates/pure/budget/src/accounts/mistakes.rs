//! Mistakes of budgets that only the other budgets show: cycles, families that are too deep, and
//! caps over envelopes that they may not name.
//!
//! An edit may not leave an envelope under a cap of another flavor, or of an owner from which its own
//! does not descend, whichever of the two budgets is edited. A budget may be dropped: its envelopes
//! stay members of the caps that name them, and count again when they are declared again. A budget
//! that is set as it stands is no edit and has no mistakes.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::Label;

use super::Accounts;
use crate::family::Family;
use crate::id::{BudgetId, CapId, EnvelopeId};
use crate::spec::{AggregateCap, Budget, EDGES_MAX, Found, Mistake, Wrong};

/// Owner and flavor of an envelope.
type Payer<'a> = (&'a Label, &'a Label);

/// The budgets as they would be.
struct After<'a> {
    accounts: &'a Accounts,
    /// Budgets that change.
    set: BTreeMap<BudgetId, &'a Budget>,
    dropped: BTreeSet<&'a BudgetId>,
    /// Envelopes of the budgets that change.
    envelopes: BTreeMap<EnvelopeId, Payer<'a>>,
    family: Family,
}

impl Accounts {
    /// The mistakes of budgets that are set and dropped together, as far as they need the other
    /// budgets.
    pub fn mistakes(&self, set: &[&Budget], dropped: &[&BudgetId]) -> Vec<(BudgetId, Mistake)> {
        let after = After::new(self, set, dropped);
        let mut list = Vec::new();
        for (id, budget) in &after.set {
            let mut found = Found::default();
            check_parents(budget, &after.family, &mut found);
            after.check_own_caps(id, budget, &mut found);
            list.extend(found.0.into_iter().map(|mistake| (id.clone(), mistake)));
        }
        after.check_other_caps(&mut list);
        list
    }

    fn payer(&self, id: &EnvelopeId) -> Option<Payer<'_>> {
        let declared = self.envelope(id)?.1.declared.as_ref()?;
        Some((&declared.owner_name, &declared.spec.flavor))
    }
}

impl<'a> After<'a> {
    fn new(accounts: &'a Accounts, set: &[&'a Budget], dropped: &[&'a BudgetId]) -> Self {
        let dropped: BTreeSet<&BudgetId> = dropped.iter().copied().collect();
        let set = set.iter().map(|budget| (budget.id(), *budget));
        let changed = set.filter(|(id, budget)| accounts.budget(id) != Some(*budget));
        let set: BTreeMap<BudgetId, &Budget> = changed.collect();
        let mut family = Family::default();
        let stays = |id: &BudgetId| !set.contains_key(id) && !dropped.contains(id);
        let others = accounts.budgets.iter().filter(|(id, _)| stays(id));
        for budget in others.map(|(_, b)| b.as_ref()).chain(set.values().copied()) {
            family.link(&budget.owner, &budget.parents);
        }
        let envelopes = set.iter().flat_map(|(id, budget)| {
            let payers = budget.envelopes.iter();
            payers.map(|e| (id.envelope(&e.name), (&budget.owner, &e.flavor)))
        });
        Self {
            accounts,
            envelopes: envelopes.collect(),
            set,
            dropped,
            family,
        }
    }

    fn payer(&self, id: &EnvelopeId) -> Option<Payer<'_>> {
        let budget = id.budget();
        if self.set.contains_key(&budget) {
            return self.envelopes.get(id).copied();
        }
        let is_dropped = self.dropped.contains(&budget);
        self.accounts.payer(id).filter(|_| !is_dropped)
    }

    /// The caps of a budget that changes. A member of another budget that the cap named before may
    /// be missing.
    fn check_own_caps(&self, id: &BudgetId, budget: &Budget, found: &mut Found) {
        let before = self.accounts.budget(id);
        let before = before.into_iter().flat_map(|before| &before.aggregate_caps);
        let before: BTreeMap<_, _> = before.map(|cap| (&cap.name, &cap.envelopes)).collect();
        for (number, cap) in budget.aggregate_caps.iter().enumerate() {
            let named: BTreeSet<&EnvelopeId> = before
                .get(&cap.name)
                .copied()
                .into_iter()
                .flatten()
                .collect();
            for (entry, envelope) in cap.envelopes.iter().enumerate() {
                let wrong = match self.payer(envelope) {
                    Some(payer) => wrong_member(cap, &budget.owner, envelope, payer, &self.family),
                    None if named.contains(envelope) && envelope.budget() != *id => None,
                    None => Some(Wrong::NoSuchEnvelope {
                        envelope: envelope.clone(),
                    }),
                };
                if let Some(wrong) = wrong {
                    let path = format!("spec.aggregateCaps[{number}].envelopes[{entry}]");
                    found.add(path, wrong);
                }
            }
        }
    }

    /// The caps of budgets that stay as they are, over envelopes that they could name until now.
    fn check_other_caps(&self, list: &mut Vec<(BudgetId, Mistake)>) {
        for of in self.capping() {
            for cap in &of.aggregate_caps {
                for id in &cap.envelopes {
                    let Some(payer) = self.payer(id) else {
                        continue;
                    };
                    let is_wrong = |payer, family| wrong_member(cap, &of.owner, id, payer, family);
                    let before = self.accounts.payer(id);
                    let was_wrong =
                        before.is_some_and(|p| is_wrong(p, &self.accounts.family).is_some());
                    let wrong = is_wrong(payer, &self.family).filter(|_| !was_wrong);
                    let mistake = wrong.and_then(|wrong| self.under_cap(of, cap, id, wrong));
                    list.extend(mistake);
                }
            }
        }
    }

    /// The budgets that stay as they are and whose caps a change may concern: all if an owner loses
    /// a parent, else those that name an envelope that changes.
    fn capping(&self) -> Vec<&'a Budget> {
        let stays = |id: &&BudgetId| !self.set.contains_key(*id) && !self.dropped.contains(*id);
        let accounts = self.accounts;
        if self.set.iter().any(|(id, budget)| self.loses(id, budget)) {
            let others = accounts.budgets.iter().filter(|(id, _)| stays(id));
            return others.map(|(_, budget)| budget.as_ref()).collect();
        }
        let caps = self.envelopes.keys().filter_map(|id| accounts.caps.get(id));
        let budgets: BTreeSet<BudgetId> = caps.flatten().map(CapId::budget).collect();
        let others = budgets.iter().filter(stays);
        others.filter_map(|id| accounts.budget(id)).collect()
    }

    /// Whether a change takes a parent from the owner of a budget, or gives it another owner.
    fn loses(&self, id: &BudgetId, budget: &Budget) -> bool {
        self.accounts.budget(id).is_some_and(|before| {
            let mut parents = before.parents.iter();
            before.owner != budget.owner || parents.any(|parent| !budget.parents.contains(parent))
        })
    }

    /// The mistake of the change that leaves an envelope under a cap.
    fn under_cap(
        &self,
        of: &Budget,
        cap: &AggregateCap,
        id: &EnvelopeId,
        wrong: Wrong,
    ) -> Option<(BudgetId, Mistake)> {
        let declaring = id.budget();
        let (cap, envelope) = (of.cap_id(cap), id.clone());
        let own = self.set.get(&declaring);
        let (budget, path, wrong) = match wrong {
            Wrong::OtherFlavor { flavor, .. } => {
                let mut envelopes = own?.envelopes.iter();
                let number = envelopes.position(|e| e.name.as_str() == id.name())?;
                let path = format!("spec.envelopes[{number}].flavor");
                let wrong = Wrong::UnderCapOfFlavor {
                    envelope,
                    cap,
                    flavor,
                };
                (declaring, path, wrong)
            }
            Wrong::ForeignEnvelope { owner, of, .. } => {
                let is_new = own.is_some() && self.accounts.payer(id).is_none();
                let own = own.filter(|budget| is_new || self.loses(&declaring, budget));
                let own = own.map(|budget| (&declaring, budget));
                let mut set = self.set.iter();
                let (id, budget) = own.or_else(|| set.find(|(id, b)| self.loses(id, b)))?;
                let before = self.accounts.budget(id);
                let keeps_owner = before.is_some_and(|before| before.owner == budget.owner);
                let field = if keeps_owner { "parents" } else { "owner" };
                let wrong = Wrong::UnderCapOfOwner {
                    envelope,
                    cap,
                    owner,
                    of,
                };
                (id.clone(), format!("spec.{field}"), wrong)
            }
            _ => return None,
        };
        Some((budget, Mistake { path, wrong }))
    }
}

fn check_parents(budget: &Budget, family: &Family, found: &mut Found) {
    for (number, parent) in budget.parents.iter().enumerate() {
        let path = || format!("spec.parents[{number}]");
        if *parent == budget.owner {
            continue;
        }
        if let Some(owners) = way_up(family, parent, &budget.owner) {
            let owners = [budget.owner.clone()].into_iter().chain(owners).collect();
            found.add(path(), Wrong::Cycle { owners });
        } else if is_deeper(family, parent, EDGES_MAX - 1) {
            found.add(path(), Wrong::TooDeep { max: EDGES_MAX });
        }
    }
}

/// The owners from one up to an ancestor, both included.
fn way_up(family: &Family, from: &Label, to: &Label) -> Option<Vec<Label>> {
    let mut came_from: BTreeMap<&Label, &Label> = BTreeMap::new();
    let mut next = vec![from];
    let mut seen = BTreeSet::from([from]);
    while let Some(owner) = next.pop() {
        if owner == to {
            let mut way = vec![owner.clone()];
            let mut at = owner;
            while let Some(below) = came_from.get(at) {
                way.push((*below).clone());
                at = below;
            }
            way.reverse();
            return Some(way);
        }
        for parent in family.parents(owner) {
            if seen.insert(parent) {
                came_from.insert(parent, owner);
                next.push(parent);
            }
        }
    }
    None
}

/// Whether an owner has ancestors on more than `levels` levels.
fn is_deeper(family: &Family, owner: &Label, levels: usize) -> bool {
    let mut level: BTreeSet<&Label> = BTreeSet::from([owner]);
    for _ in 0..levels {
        level = level.into_iter().flat_map(|o| family.parents(o)).collect();
        if level.is_empty() {
            return false;
        }
    }
    true
}

/// The reason why a cap may not name an envelope.
fn wrong_member(
    cap: &AggregateCap,
    of: &Label,
    envelope: &EnvelopeId,
    (owner, flavor): Payer<'_>,
    family: &Family,
) -> Option<Wrong> {
    let envelope = || envelope.clone();
    if !family.descends(owner, of) {
        return Some(Wrong::ForeignEnvelope {
            envelope: envelope(),
            owner: owner.clone(),
            of: of.clone(),
        });
    }
    (*flavor != cap.flavor).then(|| Wrong::OtherFlavor {
        envelope: envelope(),
        flavor: flavor.clone(),
    })
}
