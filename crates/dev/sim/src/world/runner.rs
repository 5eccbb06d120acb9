//! The runner of every process, which is the program's own, and the checks of its effects (X2, X5).
//!
//! A runner is a task on the runtime of the world, over the ledger of its process and the machine
//! of the world. It ends with its process, and the next process starts another.

use std::sync::Arc;

use bursar_booking::Fence;
use bursar_engine::State;
use bursar_ledger::pipeline::Ledger;
use bursar_server::runner::{Counts, Runner};
use bursar_units::BookingId;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::World;
use super::executor::{Gate, SharedHost, SimExecutor};
use super::host::Effect;
use crate::violation::{Violation, demand};

/// A running runner; dropping it simulates a crash.
pub(super) struct RunnerTask {
    task: JoinHandle<()>,
    gate: Gate,
}

impl RunnerTask {
    pub(super) fn spawn(ledger: &Ledger, host: &SharedHost, term: u64, runtime: &Handle) -> Self {
        let gate = Gate::default();
        let executor = SimExecutor {
            host: host.clone(),
            ledger: ledger.clone(),
            term,
            gate: gate.clone(),
        };
        let runner = Runner::new(ledger.clone(), Arc::new(executor), Arc::<Counts>::default());
        Self {
            task: runtime.spawn(runner.run()),
            gate,
        }
    }

    /// The process sleeps or stalls until this time.
    pub(super) fn hold_until(&self, at_ms: u64) {
        self.gate.hold_until(at_ms);
    }
}

impl Drop for RunnerTask {
    fn drop(&mut self) {
        // Tasks that are already woken run once more before they are aborted, without effect.
        self.gate.close();
        self.task.abort();
    }
}

impl World<'_> {
    /// Checks the effects of the runners on the machine since the last step. The checker moves in steps
    /// only, so it knows the committed state at the time of each effect.
    pub(super) fn check_effects(&mut self) -> Result<(), Violation> {
        let effects = self.host.lock().take_effects();
        for effect in effects {
            match effect {
                Effect::Started { id, fence, again } => self.check_start(&id, fence, again)?,
                Effect::Cleaned { id, fence } => demand(
                    !self.checker.holds(&id, fence),
                    "what holds its slot is never cleaned away",
                    || format!("`{id}` holds under {fence:?}"),
                )?,
                Effect::EndedAfterForce => self.tally.add("processes ended after a force", 1),
                Effect::NotObeyed => self.tally.add("stale leader not obeyed by the machine", 1),
            }
        }
        Ok(())
    }

    /// Checks that no process begins without a slot, and that no grant begins twice.
    fn check_start(&mut self, id: &BookingId, fence: Fence, again: bool) -> Result<(), Violation> {
        self.trace.note(&format!("{id} is started"));
        demand(
            self.checker.holds_or_was_forced(id, fence),
            "only what holds its slot is started",
            || format!("`{id}` was started under {fence:?}"),
        )?;
        // An id is granted at most once while it is stored, so this is its only process.
        demand(!again, "a grant has at most one process, ever", || {
            format!("`{id}` was started again under {fence:?}")
        })
    }

    /// Counts the processes that are alive when their ledger comes back.
    pub(super) fn count_adopted(&mut self, state: &State) {
        let host = self.host.lock();
        let lives = |id: &BookingId, fence| host.is_alive(id, fence, self.now_ms);
        let executions = state.bookings.executions();
        let adopted = executions.filter(|(id, granted, _)| lives(id, granted.fence));
        let adopted = u64::try_from(adopted.count()).unwrap_or(u64::MAX);
        self.tally.add("executions adopted after a crash", adopted);
    }

    /// Compares the ends that were recorded in this step with the machine.
    pub(super) fn check_gone(&mut self) -> Result<(), Violation> {
        let host = self.host.lock();
        for gone in self.checker.take_gone() {
            let (id, fence) = (&gone.id, gone.fence);
            demand(
                !host.is_alive(id, fence, self.now_ms),
                "the slot of a live process is never free",
                || format!("`{id}` lives, and the ledger says {gone:?}"),
            )?;
            let truth = host.exit_of(id, fence);
            demand(
                truth.is_some_and(|truth| gone.tells(truth)),
                "what is recorded of an end is what became of the process",
                || format!("{gone:?}, and in truth {truth:?}"),
            )?;
        }
        Ok(())
    }

    /// Checks that no process and no files are left after all clients have stopped.
    pub(super) fn check_machine_is_empty(&self) -> Result<(), Violation> {
        let host = self.host.lock();
        let left: Vec<_> = host.ids().collect();
        demand(
            left.is_empty(),
            "when everybody has stopped, nothing is left on the machine",
            || format!("{left:?}"),
        )
    }
}
