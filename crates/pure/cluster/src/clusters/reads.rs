//! Reads of the state.

use bursar_budget::{Accounts, RunUid};
use bursar_units::{Instant, ObjectName, ScopedName};

use super::{Closed, Clusters, Ended, Live};
use crate::nodes::Nodes;
use crate::shown::{Lease, Listed, Shown};
use crate::{Pod, Policy, Stage};

impl Clusters {
    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Budgets, meters, claims and usage.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The nodes with their leases.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The newest run of a name, live or remembered.
    pub fn uid(&self, run: &ScopedName) -> Option<&RunUid> {
        self.names.get(run)
    }

    /// A run, live or remembered.
    pub fn run(&self, uid: &RunUid) -> Option<Shown> {
        match self.live_run(uid) {
            Some((_, live)) => Some(self.show(live)),
            None => self.ended.get(uid).map(|ended| show_ended(uid, ended)),
        }
    }

    /// The newest run of a name, live or remembered.
    pub fn run_named(&self, run: &ScopedName) -> Option<Shown> {
        self.run(self.uid(run)?)
    }

    /// Live runs by submission, then remembered ones by their end.
    pub fn runs(&self) -> impl Iterator<Item = Shown> {
        let live = self.live.values().map(|live| self.show(live));
        let ended = self.ends.iter();
        let ended = ended.filter_map(|uid| Some(show_ended(uid, self.ended.get(uid)?)));
        live.chain(ended)
    }

    /// The runs of [`Clusters::runs`], without their pods and claims.
    pub fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        let live = self.live.values().map(|live| {
            let held = live.held.as_ref();
            Listed {
                uid: &live.uid,
                run: &live.run,
                stage: live.stage(),
                submitted: live.submitted,
                started: held.map(|held| held.opened),
                ended: None,
                opened_in: held.map(|held| held.record),
            }
        });
        let ended = self.ends.iter().filter_map(|uid| {
            let ended = self.ended.get(uid)?;
            Some(Listed {
                uid,
                run: &ended.run,
                stage: Stage::Ended,
                submitted: ended.submitted,
                started: ended.opened,
                ended: Some(ended.end.at),
                opened_in: ended.opened.map(|_| ended.record),
            })
        });
        live.chain(ended)
    }

    /// Number of live runs at a stage; of remembered ones for [`Stage::Ended`].
    pub fn count(&self, stage: Stage) -> usize {
        match stage {
            Stage::Ended => self.ended.len(),
            stage => self
                .live
                .values()
                .filter(|live| live.stage() == stage)
                .count(),
        }
    }

    /// Waiting runs in the order in which they start (R2).
    pub fn queue(&self) -> Vec<RunUid> {
        let order = self.queue.order().into_iter();
        order
            .filter_map(|number| Some(self.live.get(&number)?.uid.clone()))
            .collect()
    }

    /// Waiting runs with the instants of their submissions, earliest first.
    pub fn waiting(&self) -> impl Iterator<Item = (&RunUid, Instant)> {
        let numbers = self.queue.submissions();
        let live = numbers.filter_map(|number| self.live.get(&number));
        live.map(|live| (&live.uid, live.submitted))
    }

    /// The leases of a run by pod, also of one that has ended.
    pub fn leases(&self, uid: &RunUid) -> Vec<Lease> {
        let (live, ended) = (self.live_run(uid), self.ended.get(uid));
        let held = live.and_then(|(_, live)| live.held.as_ref());
        let (record, first, opened) = match (held, ended) {
            (Some(held), _) => (held.record, held.first, Some(held.opened)),
            (None, Some(ended)) => (ended.record, ended.first, ended.opened),
            (None, None) => (0, 0, None),
        };
        let Some(opened) = opened else {
            return Vec::new();
        };
        let live = held.into_iter().flat_map(|held| held.pods.values());
        let closed = held.into_iter().flat_map(|held| held.closed.values());
        let ended = ended.into_iter().flat_map(|ended| &ended.pods);
        let closed = closed
            .chain(ended)
            .map(|closed| (&closed.pod, Some(closed)));
        let mut pods: Vec<(&Pod, Option<&Closed>)> = live.map(|pod| (pod, None)).collect();
        pods.extend(closed);
        pods.sort_by_key(|(pod, _)| pod.pod);
        let mut number = first;
        let leases = pods.into_iter().map(|(pod, closed)| {
            let lease = Lease {
                record,
                first: number,
                pod: pod.clone(),
                opened,
                closed: closed.map(|closed| (closed.at, closed.reason)),
            };
            number += pod.width();
            lease
        });
        leases.collect()
    }

    /// Runs with leases on a node, by name.
    pub fn runs_on(&self, node: &ObjectName) -> Vec<ScopedName> {
        let leased = self.nodes.leased(node.as_str());
        let names = leased.filter_map(|(_, uid)| Some(self.live_run(uid)?.1.run.id()));
        let names: std::collections::BTreeSet<ScopedName> = names.collect();
        names.into_iter().collect()
    }

    pub(crate) fn live_run(&self, uid: &RunUid) -> Option<(u64, &Live)> {
        let number = *self.numbers.get(uid)?;
        Some((number, self.live.get(&number)?))
    }

    fn show(&self, live: &Live) -> Shown {
        let held = live.held.as_ref();
        let work = live.work();
        Shown {
            uid: live.uid.clone(),
            run: live.run.clone(),
            stage: live.stage(),
            since: live.since(),
            submitted: live.submitted,
            incarnation: live.incarnation,
            started: held.map(|held| held.opened),
            running: held.and_then(|held| held.running),
            ending: held
                .and_then(|held| held.ending.as_ref())
                .map(|ending| (ending.reason, ending.deadline)),
            end: None,
            pods: held
                .map(|held| held.pods.values().cloned().collect())
                .unwrap_or_default(),
            claims: self.accounts.claims(&work),
            unfunded: self.accounts.unfunded(&work),
        }
    }
}

fn show_ended(uid: &RunUid, ended: &Ended) -> Shown {
    Shown {
        uid: uid.clone(),
        run: ended.run.clone(),
        stage: Stage::Ended,
        since: ended.end.at,
        submitted: ended.submitted,
        incarnation: ended.incarnation,
        started: ended.opened,
        running: ended.running,
        ending: None,
        end: Some(ended.end.clone()),
        pods: ended.pods.iter().map(|closed| closed.pod.clone()).collect(),
        claims: Vec::new(),
        unfunded: Vec::new(),
    }
}
