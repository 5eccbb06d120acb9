//! How much of a node can be shared (M8).

/// The least that is kept back on a machine without a kubelet, in millicores.
pub const RESERVE_MIN_MILLI: u64 = 200;
/// What is kept back there of a large machine.
const RESERVE_PERCENT: u64 = 5;

/// K of a plain machine: its processors less a reserve for the system itself.
pub fn allocatable_milli(online_milli: u64, reserve_milli: Option<u64>) -> u64 {
    let usual = RESERVE_MIN_MILLI.max(crate::need::floor(online_milli, RESERVE_PERCENT, 100));
    online_milli.saturating_sub(reserve_milli.unwrap_or(usual))
}

/// C = max(min(Σm, K), K − U): what is not managed takes surplus, never floors.
pub fn capacity_milli(allocatable_milli: u64, unmanaged_milli: u64, floors_milli: u64) -> u64 {
    let surplus = allocatable_milli.saturating_sub(unmanaged_milli);
    floors_milli.min(allocatable_milli).max(surplus)
}
