//! The state as lines of a snapshot, and back (L12).

use bursar_budget::{RunUid, accounts};
use bursar_units::{Instant, is_default, whole};
use serde::{Deserialize, Serialize};

use crate::clusters::{Closed, Clusters, Ended, Ending, Held, Live};
use crate::shown::End;
use crate::{Outcome, Pod, Policy, Reason, Run};

/// A line of a snapshot that belongs to the cluster.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fact {
    /// Numbers of the cluster; its first line.
    Cluster {
        /// Number of the next submission.
        #[serde(with = "whole")]
        next: u64,
        /// Instant since which starting is owed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owed: Option<Instant>,
    },
    /// The recorded policy.
    Policy(Policy),
    /// A line of the accounts.
    Account(accounts::Fact),
    /// A run that has not ended.
    LiveRun {
        /// Number of its submission.
        #[serde(with = "whole")]
        number: u64,
        /// Identity.
        uid: RunUid,
        /// The run.
        run: Run,
        /// Instant of its submission.
        submitted: Instant,
        /// Incarnation.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
        /// Its GPUs; absent while it waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<HeldFact>,
    },
    /// An ended run that is remembered.
    EndedRun {
        /// Identity.
        uid: RunUid,
        /// The run.
        run: Run,
        /// Instant of its submission.
        submitted: Instant,
        /// Incarnation.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        incarnation: u64,
        /// Instant at which its leases opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opened: Option<Instant>,
        /// Record that opened its leases.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        record: u64,
        /// Number of its first lease in that record.
        #[serde(default, skip_serializing_if = "is_default", with = "whole")]
        first: u64,
        /// Instant at which all its processes ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        running: Option<Instant>,
        /// The pods that it had.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pods: Vec<Closed>,
        /// Instant of its end.
        ended: Instant,
        /// Outcome.
        outcome: Outcome,
        /// Cause.
        reason: Reason,
        /// Exit code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// Cause of a failed start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
}

/// The GPUs of a run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeldFact {
    opened: Instant,
    #[serde(with = "whole")]
    record: u64,
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    first: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pods: Vec<Pod>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    closed: Vec<Closed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_by: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ending: Option<EndingFact>,
    edited: Instant,
}

/// A stop of a run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndingFact {
    reason: Reason,
    since: Instant,
    deadline: Instant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Clusters {
    /// Facts for a snapshot; none before the first event of the cluster.
    pub(crate) fn facts(&self) -> impl Iterator<Item = Fact> {
        let cluster = self.is_begun.then_some(Fact::Cluster {
            next: self.next,
            owed: self.owed,
        });
        let policy = self.policy_set.then(|| Fact::Policy(self.policy.clone()));
        let accounts = self
            .is_begun
            .then(|| self.accounts.facts().map(Fact::Account));
        let live = self
            .live
            .iter()
            .map(|(number, live)| live_fact(*number, live));
        let ended = self.ends.iter();
        let ended = ended.filter_map(|uid| Some(ended_fact(uid, self.ended.get(uid)?)));
        let first = cluster.into_iter().chain(policy);
        let first = first.chain(accounts.into_iter().flatten());
        first.chain(live).chain(ended)
    }

    /// Takes one fact.
    pub(crate) fn restore(&mut self, fact: Fact) {
        self.is_begun = true;
        match fact {
            Fact::Cluster { next, owed } => {
                self.next = next;
                self.owed = owed;
            }
            Fact::Policy(policy) => {
                self.policy = policy;
                self.policy_set = true;
            }
            Fact::Account(fact) => self.accounts.restore(fact),
            Fact::LiveRun {
                number,
                uid,
                run,
                submitted,
                incarnation,
                held,
            } => {
                let live = Live {
                    uid,
                    run,
                    submitted,
                    incarnation,
                    held: held.map(held_of),
                    unplaced: None,
                };
                self.insert(number, live);
            }
            Fact::EndedRun {
                uid,
                run,
                submitted,
                incarnation,
                opened,
                record,
                first,
                running,
                pods,
                ended,
                outcome,
                reason,
                code,
                detail,
            } => {
                let end = End {
                    at: ended,
                    outcome,
                    reason,
                    code,
                    detail,
                };
                let ended = Ended {
                    run,
                    submitted,
                    incarnation,
                    opened,
                    record,
                    first,
                    running,
                    pods,
                    end,
                };
                self.remember(uid, ended);
            }
        }
    }
}

fn live_fact(number: u64, live: &Live) -> Fact {
    let held = live.held.as_ref().map(|held| HeldFact {
        opened: held.opened,
        record: held.record,
        first: held.first,
        pods: held.pods.values().cloned().collect(),
        closed: held.closed.values().cloned().collect(),
        start_by: held.start_by,
        running: held.running,
        ending: held.ending.as_ref().map(|ending| EndingFact {
            reason: ending.reason,
            since: ending.since,
            deadline: ending.deadline,
            code: ending.code,
            detail: ending.detail.clone(),
        }),
        edited: held.edited,
    });
    Fact::LiveRun {
        number,
        uid: live.uid.clone(),
        run: live.run.clone(),
        submitted: live.submitted,
        incarnation: live.incarnation,
        held,
    }
}

fn held_of(fact: HeldFact) -> Held {
    let live = fact.pods.into_iter().map(|pod| (pod.pod, pod));
    let closed = fact.closed.into_iter();
    let closed = closed.map(|closed| (closed.pod.pod, closed));
    Held {
        opened: fact.opened,
        record: fact.record,
        first: fact.first,
        pods: live.collect(),
        closed: closed.collect(),
        start_by: fact.start_by,
        running: fact.running,
        ending: fact.ending.map(|ending| Ending {
            reason: ending.reason,
            since: ending.since,
            deadline: ending.deadline,
            code: ending.code,
            detail: ending.detail,
        }),
        edited: fact.edited,
    }
}

fn ended_fact(uid: &RunUid, ended: &Ended) -> Fact {
    let End {
        at,
        outcome,
        reason,
        code,
        detail,
    } = ended.end.clone();
    Fact::EndedRun {
        uid: uid.clone(),
        run: ended.run.clone(),
        submitted: ended.submitted,
        incarnation: ended.incarnation,
        opened: ended.opened,
        record: ended.record,
        first: ended.first,
        running: ended.running,
        pods: ended.pods.clone(),
        ended: at,
        outcome,
        reason,
        code,
        detail,
    }
}
