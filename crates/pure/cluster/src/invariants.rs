//! Invariants of the cluster, checked without the code that maintains them.

use std::collections::BTreeSet;

use bursar_budget::{EnvelopeId, MeterId, RunUid, accounts};
use bursar_units::{Instant, Millis, ObjectName};
use thiserror::Error;

use crate::clusters::{Clusters, REMEMBERED_MAX};

/// A broken invariant of the cluster.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Broken {
    /// In the accounts.
    #[error(transparent)]
    Accounts(#[from] accounts::Broken),
    /// A GPU has two live leases.
    #[error("GPU {gpu} of {node} has two live leases")]
    LeasedTwice {
        /// The node.
        node: ObjectName,
        /// The GPU.
        gpu: u32,
    },
    /// The leased GPUs of the nodes are not those of the runs.
    #[error("the nodes have {nodes} leased GPUs, the runs hold {runs}")]
    Leased {
        /// By the nodes.
        nodes: usize,
        /// By the runs.
        runs: usize,
    },
    /// The claims of a run are not its live GPUs (A1).
    #[error("{uid} holds {gpus} GPUs, and its claims are {claimed}")]
    Claims {
        /// The run.
        uid: RunUid,
        /// Its live GPUs.
        gpus: u64,
        /// Widths of its funded and unfunded claims.
        claimed: u64,
    },
    /// A funded claim is on an envelope that is not declared, or whose window is not open (B3).
    #[error("{envelope} pays for {uid}, and is not declared or not open")]
    Shut {
        /// The run.
        uid: RunUid,
        /// The envelope.
        envelope: EnvelopeId,
    },
    /// The queue is not the set of waiting runs.
    #[error("{waiting} runs wait, and {queued} are queued")]
    Queue {
        /// Waiting runs.
        waiting: usize,
        /// Runs in the queue.
        queued: usize,
    },
    /// Too many ended runs are remembered (L6).
    #[error("{count} ended runs are remembered")]
    Remembered {
        /// Their number.
        count: usize,
    },
}

impl Clusters {
    /// Checks the invariants; `now` is the time of the last event.
    pub fn check(&self, now: Instant) -> Result<(), Broken> {
        self.accounts.check(now)?;
        self.check_leases()?;
        self.check_claims()?;
        self.check_open(now)?;
        let waiting = self.live.values().filter(|live| live.held.is_none());
        let waiting: BTreeSet<&RunUid> = waiting.map(|live| &live.uid).collect();
        let queued = self.queue();
        let is_same =
            queued.len() == waiting.len() && queued.iter().all(|uid| waiting.contains(uid));
        if !is_same {
            let (waiting, queued) = (waiting.len(), queued.len());
            return Err(Broken::Queue { waiting, queued });
        }
        let count = self.ended.len();
        if REMEMBERED_MAX < count || count != self.ends.len() {
            return Err(Broken::Remembered { count });
        }
        Ok(())
    }

    /// Per GPU at most one live lease, and the nodes know the same leases as the runs.
    fn check_leases(&self) -> Result<(), Broken> {
        let mut held: BTreeSet<(&ObjectName, u32)> = BTreeSet::new();
        for live in self.live.values() {
            let pods = live.held.iter().flat_map(|held| held.pods.values());
            for pod in pods {
                for gpu in pod.ordinals() {
                    if !held.insert((&pod.node, gpu)) {
                        let node = pod.node.clone();
                        return Err(Broken::LeasedTwice { node, gpu });
                    }
                }
            }
        }
        let nodes: BTreeSet<(&ObjectName, u32)> = self
            .nodes
            .all_leased()
            .map(|(node, gpu, _)| (node, gpu))
            .collect();
        if nodes != held {
            let (nodes, runs) = (nodes.len(), held.len());
            return Err(Broken::Leased { nodes, runs });
        }
        Ok(())
    }

    /// Σ widths of funded and unfunded claims = live GPUs of the run (A1).
    fn check_claims(&self) -> Result<(), Broken> {
        for live in self.live.values() {
            let work = live.work();
            let funded = self.accounts.claims(&work);
            let funded = funded.iter().map(|claim| claim.gpus);
            let unfunded = self.accounts.unfunded(&work);
            let claimed = funded.chain(unfunded.iter().map(|claim| claim.gpus)).sum();
            let gpus = live.held.as_ref().map_or(0, crate::clusters::Held::gpus);
            if gpus != claimed {
                let uid = live.uid.clone();
                return Err(Broken::Claims { uid, gpus, claimed });
            }
        }
        Ok(())
    }

    /// Funded claims are on declared envelopes in their windows. A window edge that is due and not
    /// carried out yet is still to come: the state is that of the instant before it.
    fn check_open(&self, now: Instant) -> Result<(), Broken> {
        let edge = self.accounts.next_deadline_of(accounts::Kind::WindowEdge);
        let before = edge.map(|at| at.before(Millis::from_ms(1)));
        let now = before.map_or(now, |before| before.min(now));
        for live in self.live.values() {
            for claim in self.accounts.claims(&live.work()) {
                let envelope = claim.id.envelope;
                let meter = self
                    .accounts
                    .meter(now, &MeterId::Envelope(envelope.clone()));
                let window = meter.and_then(|meter| meter.window);
                let is_open = window.is_some_and(|window| window.is_open(now));
                if !is_open || self.accounts.owner(&envelope).is_none() {
                    let uid = live.uid.clone();
                    return Err(Broken::Shut { uid, envelope });
                }
            }
        }
        Ok(())
    }
}
