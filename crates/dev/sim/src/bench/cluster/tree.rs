//! A family of owners in levels of ten, with at most one envelope for each owner.
//!
//! Owners are numbered level by level from the root, so the children of owner i are 10·i + 1 to
//! 10·i + 10. Five levels have 1 + 10 + 100 + 1,000 + 10,000 owners; if only the owners of the last
//! level have an envelope, there are 10,000 envelopes. An aggregate cap bounds the children's
//! envelopes of each owner.

use anyhow::Context as _;
use bursar_budget::cover::{Borrowing, Group, Request};
use bursar_budget::spec::{OnExhaustion, Sharing};
use bursar_budget::{
    Accounts, AggregateCap, Budget, ClaimLine, Envelope, EnvelopeId, Funded, Place, Pool, Selector,
    Terms, Work,
};
use bursar_units::{Instant, Label, Millis, ObjectName};

use super::super::world::label;

/// Children of an owner.
pub(super) const CHILDREN: usize = 10;
const FLAVOR: &str = "H100";

/// Limits of an envelope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) gpus: u64,
    pub(super) hours: u64,
}

/// An owner of the family.
pub(super) struct Owner {
    pub(super) name: Label,
    pub(super) parent: Option<usize>,
    pub(super) envelope: Option<(EnvelopeId, Limits)>,
}

/// A claim on the envelope of an owner, by that owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) owner: usize,
    pub(super) gpus: u64,
    pub(super) duration: Millis,
}

/// The family, with its accounts.
pub(super) struct Tree {
    pub(super) owners: Vec<Owner>,
    pub(super) accounts: Accounts,
    /// The most GPUs of the children of one owner.
    pub(super) cap_gpus: u64,
    flavor: Label,
    place: Place,
}

impl Tree {
    /// Declares the budgets of `levels` levels. `limits` gives the envelope of an owner from its
    /// level, from 0, and its position in that level.
    pub(super) fn new(
        levels: usize,
        cap_gpus: u64,
        limits: impl Fn(usize, usize) -> Option<Limits>,
    ) -> anyhow::Result<Self> {
        let mut tree = Self {
            owners: Vec::new(),
            accounts: Accounts::default(),
            cap_gpus,
            flavor: label(FLAVOR)?,
            place: Place {
                region: label("eu")?,
                cluster: label("a")?,
                domain: label("0")?,
            },
        };
        let mut size = 1;
        for level in 0..levels {
            for position in 0..size {
                let owner = tree.owner(position, limits(level, position))?;
                tree.owners.push(owner);
            }
            size *= CHILDREN;
        }
        for number in 0..tree.owners.len() {
            let budget = tree.budget(number)?;
            tree.accounts.set_budget(Instant::from_ms(0), &budget);
        }
        Ok(tree)
    }

    fn owner(&self, position: usize, limits: Option<Limits>) -> anyhow::Result<Owner> {
        let number = self.owners.len();
        let parent = number.checked_sub(1).map(|before| before / CHILDREN);
        let name = match parent.and_then(|parent| self.owners.get(parent)) {
            Some(parent) => format!("{}:{}", parent.name, position % CHILDREN),
            None => "org".to_owned(),
        };
        let envelope = limits.map(|limits| {
            let id = EnvelopeId::new(&format!("bench/b{number}/e")).context("an envelope");
            id.map(|id| (id, limits))
        });
        Ok(Owner {
            name: label(&name)?,
            parent,
            envelope: envelope.transpose()?,
        })
    }

    fn budget(&self, number: usize) -> anyhow::Result<Budget> {
        let owner = self.owners.get(number).context("no such owner")?;
        let parent = owner.parent.and_then(|parent| self.owners.get(parent));
        let children = self
            .owners
            .iter()
            .skip(CHILDREN * number + 1)
            .take(CHILDREN);
        let capped: Vec<EnvelopeId> = children
            .filter_map(|child| Some(child.envelope.as_ref()?.0.clone()))
            .collect();
        let cap = AggregateCap {
            name: ObjectName::new("children")?,
            flavor: self.flavor.clone(),
            envelopes: capped,
            concurrency_max: Some(self.cap_gpus),
            gpu_hours_max: None,
            start: None,
            end: None,
            renew: None,
        };
        let envelope = owner.envelope.as_ref().map(|(_, limits)| Envelope {
            name: ObjectName::known("e"),
            flavor: self.flavor.clone(),
            selector: Selector::default(),
            concurrency: limits.gpus,
            gpu_hours_max: Some(limits.hours),
            start: None,
            end: None,
            renew: None,
            sharing: Sharing::Family,
            lending: None,
            on_exhaustion: OnExhaustion::Demote,
            admission_horizon: None,
        });
        Ok(Budget {
            namespace: ObjectName::new("bench")?,
            name: ObjectName::new(&format!("b{number}"))?,
            owner: owner.name.clone(),
            parents: parent
                .map(|parent| parent.name.clone())
                .into_iter()
                .collect(),
            envelopes: envelope.into_iter().collect(),
            aggregate_caps: Some(cap)
                .filter(|cap| !cap.envelopes.is_empty())
                .into_iter()
                .collect(),
            paused: false,
        })
    }

    /// Work, terms and take of a run that its owner's own envelope pays for.
    pub(super) fn lease(
        &self,
        run: &str,
        number: usize,
        gpus: u64,
        until: Instant,
    ) -> anyhow::Result<(Work, Terms, ClaimLine)> {
        let owner = self.owners.get(number).context("no such owner")?;
        let (envelope, _) = owner
            .envelope
            .as_ref()
            .context("an owner without an envelope")?;
        let work = Work {
            run: label(run)?,
            incarnation: 0,
        };
        let terms = Terms {
            owner: owner.name.clone(),
            pod_gpus: None,
            hard_end: None,
        };
        let line = ClaimLine {
            envelope: envelope.clone(),
            pool: Pool::Own,
            gpus,
            until,
        };
        Ok((work, terms, line))
    }

    /// Opens these claims.
    pub(super) fn fill(&mut self, at: Instant, claims: &[Held]) -> anyhow::Result<()> {
        for (number, claim) in claims.iter().enumerate() {
            let until = at.after(claim.duration);
            let run = format!("run-{number}");
            let (work, terms, line) = self.lease(&run, claim.owner, claim.gpus, until)?;
            let cause = Funded::Take;
            self.accounts.fund(at, &work, &terms, cause, None, &[line]);
        }
        Ok(())
    }

    /// A request of an owner for one group.
    pub(super) fn request(
        &self,
        number: usize,
        gpus: u64,
        duration: Millis,
    ) -> anyhow::Result<Request> {
        let owner = self.owners.get(number).context("no such owner")?;
        Ok(Request {
            work: None,
            owner: owner.name.clone(),
            flavor: self.flavor.clone(),
            groups: vec![Group {
                place: self.place.clone(),
                gpus,
            }],
            duration: Some(duration),
            hard_end: None,
            borrowing: Borrowing::default(),
        })
    }
}
