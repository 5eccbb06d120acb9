//! The shared capacity of a node (M8).

/// Minimum reserve of a machine without a kubelet, in millicores.
pub const RESERVE_MIN_MILLI: u64 = 200;
/// Reserve of a large machine.
const RESERVE_PERCENT: u64 = 5;

/// K of a machine without a kubelet: its processors less a reserve for the system.
pub fn allocatable_milli(online_milli: u64, reserve_milli: Option<u64>) -> u64 {
    let usual = RESERVE_MIN_MILLI.max(crate::need::floor(online_milli, RESERVE_PERCENT, 100));
    online_milli.saturating_sub(reserve_milli.unwrap_or(usual))
}

/// C = max(min(Σm, K), K − U): unmanaged use takes surplus, never floors.
pub fn capacity_milli(allocatable_milli: u64, unmanaged_milli: u64, floors_milli: u64) -> u64 {
    let surplus = allocatable_milli.saturating_sub(unmanaged_milli);
    floors_milli.min(allocatable_milli).max(surplus)
}
