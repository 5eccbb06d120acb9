//! The market of the agent: the same node, driven in the same order.

use bursar_market::cgroup::Quota;
use bursar_market::clear::Mode;
use bursar_market::node::{Node, Settings, Supply};
use bursar_market::params::Params;

use super::super::market::literal::Uid;
use super::MIN_MILLI;
use super::load::Load;
use super::plant::Pod;
use super::ways::{Outcome, ids};

pub(super) struct Ours {
    node: Node,
    ids: Vec<Uid>,
    node_milli: u64,
}

impl Ours {
    pub(super) fn new(load: &Load, pods: &[Pod], node_milli: u64, writes_per_hour: u64) -> Self {
        let mut node = Node::new(Settings {
            writes_per_hour,
            ..Settings::default()
        });
        let ids = ids(load.pods);
        for (id, pod) in ids.iter().zip(pods) {
            let params = Params {
                min_milli: MIN_MILLI,
                max_milli: pod.max_milli,
                weight: MIN_MILLI,
            };
            node.adopt(id, params, Quota::NONE, Quota::NONE);
            node.observe(id, Some(pod.counters));
        }
        Self {
            node,
            ids,
            node_milli,
        }
    }

    /// Senses, clears and writes.
    pub(super) fn set(&mut self, second: u64, pods: &mut [Pod]) -> Outcome {
        let now_us = second * 1_000_000;
        for (id, pod) in self.ids.iter().zip(pods.iter()) {
            self.node.observe(id, Some(pod.counters));
        }
        let supply = Supply {
            allocatable_milli: self.node_milli,
            unmanaged_milli: Some(0),
        };
        self.node.clear(now_us, supply);
        let is_kept = self.is_kept();
        let mut writes = 0;
        for plan in [Node::decreases, Node::increases] {
            for write in plan(&self.node) {
                let place = self.ids.binary_search_by(|id| (**id).cmp(&write.id)).ok();
                let pod = place.and_then(|place| pods.get_mut(place));
                let (Some(pod), Some(quota)) = (pod, self.node.begin(&write)) else {
                    continue;
                };
                pod.limit_milli = Some(write.milli);
                self.node.wrote(&write.id, quota, now_us);
                writes += 1;
            }
        }
        Outcome {
            writes,
            is_kept: Some(is_kept),
        }
    }

    /// Whether the last clearing kept bounds and capacity (M4).
    fn is_kept(&self) -> bool {
        let Some(last) = self.node.last() else {
            return false;
        };
        let cleared = &last.cleared;
        let shares = cleared.shares.iter();
        let sum: u64 = shares.clone().map(|share| share.allocated_milli).sum();
        let is_within = cleared.mode == Mode::Overloaded
            || shares
                .clone()
                .all(|share| (share.min_milli..=share.max_milli).contains(&share.allocated_milli));
        is_within && sum <= cleared.capacity_milli && cleared.shares.len() == self.ids.len()
    }
}
