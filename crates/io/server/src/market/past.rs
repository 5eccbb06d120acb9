//! How the CPU of a node was divided at a time of the last day: played back from the agent's own
//! record, every line of which is checked on the way (M12). One caller at a time: it is work.

use std::sync::Arc;

use bursar_client::api::{NodeMarket, instant};
use bursar_client::{Code, Problem};
use bursar_units::causes::chain;
use bursar_units::{Instant, ObjectName};

use super::{Since, node_market};
use crate::caller::Caller;
use crate::service::{Answer, Service};

impl Service {
    /// How a node's CPU was divided at the last clearing before a time.
    pub async fn market_at(
        &self,
        caller: &Caller,
        node: &ObjectName,
        at: Since,
    ) -> Result<Answer<NodeMarket>, Problem> {
        caller.require_view("see who shares the CPU of a node")?;
        let agent = Arc::clone(self.agent_of(node)?);
        let at_ms = match at {
            Since::At(at) => at.ms(),
            Since::Back(back) => agent.view().at_ms.saturating_sub(back.ms()),
        };
        let permit = Arc::clone(&self.playing_back).try_acquire_owned();
        let permit = permit.map_err(|_| {
            let detail = "the record is being played back for somebody else";
            Problem {
                retry_after_ms: Some(1_000),
                ..Problem::new(Code::Busy, detail)
            }
        })?;
        let read = tokio::task::spawn_blocking(move || {
            // It is work until it is done, whether or not anybody still waits for it.
            let _permit = permit;
            agent.view_at(at_ms)
        });
        let read = read.await;
        let view = read
            .map_err(|_| Problem::new(Code::Internal, "playing the record back panicked"))?
            .map_err(|error| {
                let detail = format!("the record cannot be played back: {}", chain(&error));
                Problem::new(Code::Unavailable, detail)
            })?
            .ok_or_else(|| {
                let at = instant::format(Instant::from_ms(at_ms));
                let detail = format!("the record of node `{node}` begins after {at}");
                Problem::new(Code::NotFound, detail)
            })?;
        Ok(Answer {
            status: 200,
            record: self.record(),
            body: node_market(&view, None),
        })
    }
}
