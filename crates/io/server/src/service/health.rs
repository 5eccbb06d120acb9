//! Readiness, metrics, and the caller's identity.

use bursar_client::api::Identity;
use bursar_client::{Code, Problem};

use super::{Answer, Service, last_record, of_failure};
use crate::caller::Caller;

impl Service {
    /// Checks that commands are accepted and that the store answers between two batches.
    pub(crate) async fn ready(&self) -> Result<(), Problem> {
        if let Some(failure) = self.ledger.refuses() {
            return Err(of_failure(&failure));
        }
        let head = self.ledger.on_store(|committer| committer.head());
        match tokio::time::timeout(super::READY_WITHIN, head).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(of_failure(&failure)),
            Err(_) => Err(Problem::new(Code::Unavailable, "the store does not answer")),
        }
    }

    /// The metrics as text, in the OpenMetrics format.
    pub async fn metrics_text(&self) -> Result<String, Problem> {
        let (ledger, metrics) = (self.ledger.clone(), self.metrics.clone());
        let since = self.info.leads_since;
        let node = self.market.as_ref().map(|agent| agent.view());
        let text = move || {
            let (state, times) = (ledger.view().read(), (since, ledger.now()));
            metrics.text(&state, times, ledger.waiting(), node.as_deref())
        };
        match tokio::task::spawn_blocking(text).await {
            Ok(Ok(text)) => Ok(text),
            _ => Err(Problem::new(
                Code::Internal,
                "the metrics cannot be written",
            )),
        }
    }

    pub(crate) fn identity(&self, caller: &Caller) -> Answer<Identity> {
        let body = Identity {
            name: caller.name.to_string(),
            via: caller.via.word().to_owned(),
            roles: caller.roles.iter().copied().collect(),
            tenants: caller.tenants.iter().cloned().collect(),
            owners: caller.owners.iter().cloned().collect(),
            expires_at: caller.expires,
        };
        Answer::ok(last_record(&self.ledger.view().read()), body)
    }
}
