//! Calls of the CPU market.

use bursar_units::{Instant, ObjectName};

use super::calls::Mode;
use super::{Client, Error, Query};
use crate::api::{GetMarket, NodeMarket, RestoreAnswer, RestoreRequest, Since};

/// The node market.
impl Client {
    /// Market of a node at its last clearing.
    pub async fn market(&self, node: &ObjectName) -> Result<NodeMarket, Error> {
        self.get(&format!("/v1/nodes/{node}/market"), &Query::new())
            .await
    }

    /// Market of a node at the last clearing before a time, which must be within the last day.
    pub async fn market_at(&self, node: &ObjectName, at: Instant) -> Result<NodeMarket, Error> {
        let query = Query::of(&GetMarket {
            since: None,
            at: Some(Since::At(at)),
        });
        self.get(&format!("/v1/nodes/{node}/market"), &query).await
    }

    /// Puts back the limits that users wrote, and stops acting on the node.
    pub async fn restore_node(
        &self,
        node: &ObjectName,
        mode: Mode,
    ) -> Result<RestoreAnswer, Error> {
        let path = format!("/v1/nodes/{node}/restore");
        self.post(&path, &mode.query(), &RestoreRequest {}).await
    }
}
