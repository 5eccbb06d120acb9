//! The policy of the leader, in the ledger.

use bursar_engine::State;
use bursar_engine::cluster::{Command, Policy};
use bursar_ledger::intake::Failure;
use bursar_ledger::pipeline::Ledger;
use bursar_ledger::writer::own_principal;

/// The command that records a policy; `None` if it is in force. The default is in force in a ledger
/// without a recorded policy.
pub fn owed(state: &State, policy: &Policy) -> Option<bursar_engine::Command> {
    let differs = state.clusters.policy() != policy;
    differs.then(|| Command::SetPolicy(policy.clone()).into())
}

/// Records a policy at the start of a term, unless it is in force. A value that this version cannot
/// honour is refused by the caller, see [`Policy::not_yet`].
pub async fn record(ledger: &Ledger, policy: &Policy) -> Result<(), Failure> {
    let command = owed(&ledger.view().read(), policy);
    if let Some(command) = command {
        ledger.submit(own_principal(), vec![command]).await?;
    }
    Ok(())
}
