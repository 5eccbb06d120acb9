//! The market of a node at a time within the last day, replayed from the agent's record, whose lines
//! are checked (M12). One replay at a time, because it uses a whole processor.

use std::sync::Arc;

use bursar_client::api::{NodeMarket, Since, instant};
use bursar_client::{Code, Problem};
use bursar_units::causes::chain;
use bursar_units::{Instant, ObjectName};

use super::node_market;
use crate::caller::Caller;
use crate::service::{Answer, Service};

impl Service {
    /// Reads the market of a node as of the last clearing before a time.
    pub(crate) async fn market_at(
        &self,
        caller: &Caller,
        node: &ObjectName,
        at: Since,
    ) -> Result<Answer<NodeMarket>, Problem> {
        caller.require_view("see who shares the CPU of a node")?;
        let agent = Arc::clone(self.agent_of(node)?);
        let at_ms = at.ms(agent.view().at_ms);
        let permit = Arc::clone(&self.replay).try_acquire_owned();
        let permit = permit.map_err(|_| {
            let detail = "the record is being replayed for another caller";
            Problem {
                retry_after_ms: Some(1_000),
                ..Problem::new(Code::Busy, detail)
            }
        })?;
        let read = tokio::task::spawn_blocking(move || {
            // The replay runs to its end even if the caller has gone, and keeps the permit.
            let _permit = permit;
            agent.view_at(at_ms)
        });
        let read = read.await;
        let view = read
            .map_err(|_| Problem::new(Code::Internal, "replaying the record panicked"))?
            .map_err(|error| {
                let detail = format!("the record cannot be replayed: {}", chain(&error));
                Problem::new(Code::Unavailable, detail)
            })?
            .ok_or_else(|| {
                let at = instant::format(Instant::from_ms(at_ms));
                let detail = format!("the record of node `{node}` begins after {at}");
                Problem::new(Code::NotFound, detail)
            })?;
        Ok(Answer::ok(self.record(), node_market(&view, None)))
    }
}
