//! Calls of the cluster: budgets, runs, leases and usage.

use std::time::Duration;

use bursar_units::{BookingId, ScopedName};
use serde::Serialize;

use super::calls::{Mode, path};
use super::{Client, Error, Query};
use crate::api::cluster::{
    Budget, Envelope, GetRun, GetUsage, GpuLease, ListBudgets, ListLeases, ListRuns, PutRun,
    RotateRequest, Run, RunAnswer, Usage,
};
use crate::api::{ApplyAnswer, CancelRequest, Explanation, ListAnswer, Wait};

/// Runs.
impl Client {
    /// Runs, by namespace and name.
    pub async fn runs(&self, filter: &ListRuns) -> Result<ListAnswer<Run>, Error> {
        self.all("/v1/runs", &Query::of(filter)).await
    }

    /// One run.
    pub async fn run(&self, run: &ScopedName) -> Result<Run, Error> {
        self.get(&of_run(run, &[]), &Query::new()).await
    }

    /// One run as soon as its state has changed, or after `wait`.
    pub async fn run_wait(&self, run: &ScopedName, wait: Duration) -> Result<Run, Error> {
        let query = Query::of(&GetRun {
            wait: Some(Wait(wait)),
        });
        self.get_waiting(&of_run(run, &[]), &query, wait).await
    }

    /// Submits or edits a run. A repeat with the same content returns the present state.
    pub async fn put_run<B: Serialize + Sync>(
        &self,
        run: &ScopedName,
        object: &B,
        options: &PutRun,
        mode: Mode,
    ) -> Result<RunAnswer, Error> {
        let query = mode.query().and(options);
        self.put(&of_run(run, &[]), &query, object).await
    }

    /// Ends the wait of a run, or stops it.
    pub async fn cancel_run(&self, run: &ScopedName, mode: Mode) -> Result<RunAnswer, Error> {
        self.post(&of_run(run, &["cancel"]), &mode.query(), &CancelRequest {})
            .await
    }

    /// Why a run is in its state, and who pays for it.
    pub async fn explain_run(&self, run: &ScopedName) -> Result<Explanation, Error> {
        let parts = ["v1", "explain", "run", run.namespace(), run.name()];
        self.get(&path(&parts), &Query::new()).await
    }

    /// Leases, by run, pod and time, the open ones first.
    pub async fn leases(&self, filter: &ListLeases) -> Result<ListAnswer<GpuLease>, Error> {
        self.all("/v1/leases", &Query::of(filter)).await
    }

    /// The leases of the pod that a lease belongs to.
    pub async fn lease(&self, id: &BookingId) -> Result<GpuLease, Error> {
        self.get(&path(&["v1", "leases", id.as_str()]), &Query::new())
            .await
    }
}

/// Budgets.
impl Client {
    /// Budgets, by namespace and name.
    pub async fn budgets(&self, filter: &ListBudgets) -> Result<ListAnswer<Budget>, Error> {
        self.all("/v1/budgets", &Query::of(filter)).await
    }

    /// One budget.
    pub async fn budget(&self, budget: &ScopedName) -> Result<Budget, Error> {
        self.get(&of_budget(budget, &[]), &Query::new()).await
    }

    /// Removes a budget; its meters are kept.
    pub async fn delete_budget(
        &self,
        budget: &ScopedName,
        mode: Mode,
    ) -> Result<ApplyAnswer, Error> {
        self.delete(&of_budget(budget, &[]), &mode.query()).await
    }

    /// Closes the epoch of an envelope now. Repeats with the same key are one action.
    pub async fn rotate_envelope(
        &self,
        key: &BookingId,
        budget: &ScopedName,
        request: &RotateRequest,
        mode: Mode,
    ) -> Result<Budget, Error> {
        let path = of_budget(budget, &["rotate"]);
        self.post_once(&path, key, &mode.query(), request).await
    }

    /// All envelopes with their meters, by identity.
    pub async fn envelopes(&self, filter: &ListBudgets) -> Result<ListAnswer<Envelope>, Error> {
        self.all("/v1/envelopes", &Query::of(filter)).await
    }

    /// Used GPU time.
    pub async fn usage(&self, period: &GetUsage) -> Result<Usage, Error> {
        self.get("/v1/usage", &Query::of(period)).await
    }
}

fn of_run(run: &ScopedName, more: &[&str]) -> String {
    of("runs", run, more)
}

fn of_budget(budget: &ScopedName, more: &[&str]) -> String {
    of("budgets", budget, more)
}

fn of(kind: &str, name: &ScopedName, more: &[&str]) -> String {
    let parts = ["v1", kind, name.namespace(), name.name()];
    path(&[parts.as_slice(), more].concat())
}
