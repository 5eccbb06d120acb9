//! The processes that executors keep: a function of the state (X2).

use bursar_budget::RunUid;
use bursar_units::Instant;

use crate::clusters::{Clusters, Live};
use crate::{Pod, Run};

/// Identity of a process: one pod of one incarnation of a run.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct ProcessId {
    /// Run.
    pub uid: RunUid,
    /// Incarnation, from 0.
    pub incarnation: u64,
    /// Pod, from 0.
    pub pod: u64,
}

/// A process that an executor keeps, or stops.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Identity.
    pub id: ProcessId,
    /// The run.
    pub run: &'a Run,
    /// Node and GPUs.
    pub pod: &'a Pod,
    /// Instant at which its leases opened.
    pub opened: Instant,
    /// Whether its start is on record.
    pub is_running: bool,
    /// Instant at which it is killed, if it is being stopped.
    pub stop: Option<Instant>,
}

impl Clusters {
    /// All processes with live leases, by submission and pod. A process that is not listed must be gone.
    pub fn wanted(&self) -> impl Iterator<Item = Wanted<'_>> {
        self.live.values().flat_map(wanted)
    }

    /// The processes of one run with live leases, by pod.
    pub fn wanted_of(&self, uid: &RunUid) -> impl Iterator<Item = Wanted<'_>> {
        let live = self.live_run(uid).map(|(_, live)| live);
        live.into_iter().flat_map(wanted)
    }
}

fn wanted(live: &Live) -> impl Iterator<Item = Wanted<'_>> {
    let held = live.held.iter();
    held.flat_map(move |held| {
        held.pods.values().map(move |pod| Wanted {
            id: ProcessId {
                uid: live.uid.clone(),
                incarnation: live.incarnation,
                pod: pod.pod,
            },
            run: &live.run,
            pod,
            opened: held.opened,
            is_running: held.running.is_some(),
            stop: held.ending.as_ref().map(|ending| ending.deadline),
        })
    })
}
