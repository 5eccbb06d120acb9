//! The policy of the leader, in the ledger.

use bursar_engine::cluster::{Command, Policy};
use bursar_engine::{Refusal, State};
use bursar_ledger::intake::Failure;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::writer::own_principal;
use thiserror::Error;

/// The command that records a policy; `None` if it is in force. The default is in force in a ledger
/// without a recorded policy.
pub fn owed(state: &State, policy: &Policy) -> Option<bursar_engine::Command> {
    let differs = state.clusters.policy() != policy;
    differs.then(|| Command::SetPolicy(policy.clone()).into())
}

/// Error of a policy that is not on record.
#[derive(Debug, Error)]
pub enum Error {
    /// The ledger did not take the command.
    #[error("the policy was not recorded")]
    NotTaken(#[from] Failure),
    /// The engine refused it: this version cannot honour a value, see [`Policy::not_yet`].
    #[error("the policy was refused")]
    Refused(#[from] Refusal),
}

/// Records a policy at the start of a term, unless it is in force.
pub async fn record(ledger: &Ledger, policy: &Policy) -> Result<(), Error> {
    let command = owed(&ledger.view().read(), policy);
    if let Some(command) = command {
        for outcome in ledger.submit(own_principal(), vec![command]).await? {
            outcome.result?;
        }
    }
    Ok(())
}
