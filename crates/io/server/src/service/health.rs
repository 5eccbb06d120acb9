//! Whether commands are taken, what is counted, and who the caller is.

use bursar_client::api::{Identity, Role as ApiRole};
use bursar_client::{Code, Problem};
use bursar_engine::token::Role;

use super::{Answer, Service, last_record, of_failure};
use crate::caller::Caller;

impl Service {
    /// Whether commands are taken, and the store answers between two batches.
    pub async fn ready(&self) -> Result<(), Problem> {
        if let Some(failure) = self.ledger.refuses() {
            return Err(of_failure(&failure));
        }
        let asked = self.ledger.on_store(|committer| committer.head());
        match tokio::time::timeout(super::READY_WITHIN, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(of_failure(&failure)),
            Err(_) => Err(Problem::new(Code::Unavailable, "the store does not answer")),
        }
    }

    /// Counters and gauges as text.
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

    /// Who the caller is.
    pub fn identity(&self, caller: &Caller) -> Answer<Identity> {
        let body = Identity {
            name: caller.name.to_string(),
            via: caller.via.word().to_owned(),
            roles: caller.roles.iter().copied().map(role).collect(),
            tenants: caller.tenants.iter().cloned().collect(),
            expires_at: caller.expires,
        };
        Answer {
            status: 200,
            record: last_record(&self.ledger.view().read()),
            body,
        }
    }
}

/// A role as the API writes it.
pub(crate) const fn role(role: Role) -> ApiRole {
    match role {
        Role::View => ApiRole::View,
        Role::Use => ApiRole::Use,
        Role::Operate => ApiRole::Operate,
    }
}
