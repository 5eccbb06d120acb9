//! The simulated machine: what was said by hand about its processes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_engine::cluster::Exit;
use bursar_engine::cluster::budget::RunUid;
use bursar_units::{Instant, Millis};
use tokio::sync::watch;

use super::Incarnation;

/// The machine of simulated processes. It outlives the terms of a server, as processes do.
#[derive(Debug, Default)]
pub struct Simulated {
    said: Mutex<BTreeMap<(RunUid, u64), Said>>,
    changes: watch::Sender<u64>,
}

/// What was said by hand about the processes of an incarnation.
#[derive(Clone, Debug)]
enum Said {
    /// They have exited.
    Ended(Exit),
    /// They go on after their expected end, for ever or for that long.
    Overruns(Option<Millis>),
}

impl Simulated {
    /// The processes of an incarnation exit now.
    pub fn end(&self, run: RunUid, incarnation: u64, exit: Exit) {
        self.said().insert((run, incarnation), Said::Ended(exit));
        self.tell();
    }

    /// The processes of an incarnation go on after their expected end: for that long, or until
    /// [`Self::end`].
    pub fn overrun(&self, run: RunUid, incarnation: u64, length: Option<Millis>) {
        self.said()
            .insert((run, incarnation), Said::Overruns(length));
        self.tell();
    }

    /// Instant and result of the end of an incarnation, if it ends.
    pub(super) fn end_of(&self, of: &Incarnation<'_>) -> Option<(Instant, Exit)> {
        let said = self.said().get(&(of.uid.clone(), of.number)).cloned();
        let expected = of.expected.map(|length| of.opened.after(length));
        let own = match said {
            Some(Said::Ended(exit)) => return Some((of.opened, exit)),
            Some(Said::Overruns(None)) => None,
            Some(Said::Overruns(Some(length))) => expected.map(|end| end.after(length)),
            None => expected,
        };
        let stop = of.stop.filter(|stop| own.is_none_or(|own| *stop < own));
        match stop {
            Some(stop) => Some((stop, Exit::Failed { code: None })),
            None => own.map(|own| (own, Exit::Ok {})),
        }
    }

    /// Lets the attendant read everything again.
    pub(super) fn tell(&self) {
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn told(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn said(&self) -> MutexGuard<'_, BTreeMap<(RunUid, u64), Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
