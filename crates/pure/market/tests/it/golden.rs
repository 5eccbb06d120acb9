//! The golden values of design 10, exact.

use bursar_market::clear::{Cleared, Market, Pod, Policy, Want, clear};

fn pod(id: &str, min: u64, max: u64, weight: u64, d: u64) -> Pod {
    Pod {
        id: id.into(),
        min_milli: min,
        max_milli: max,
        weight,
        want: Want::Demand(d),
        headroom_permille: 100,
        current_milli: None,
        cooling: false,
    }
}
fn check(policy: Policy, c: u64, pods: &[Pod], want: &[u64]) -> Cleared {
    let cleared = clear(&Market {
        capacity_milli: c,
        policy,
        quantum_milli: 1,
        pods: pods.to_vec(),
    });
    let got: Vec<u64> = cleared.shares.iter().map(|s| s.allocated_milli).collect();
    assert_eq!(got, want, "{cleared:#?}");
    cleared
}
#[test]
fn golden() {
    use Policy::{FullCapacity, Proportional};
    check(
        FullCapacity,
        1000,
        &[
            pod("a", 100, 1000, 100, 600_000),
            pod("b", 100, 1000, 100, 400_000),
        ],
        &[580, 420],
    );
    check(
        FullCapacity,
        1000,
        &[
            pod("a", 100, 300, 100, 1_000_000),
            pod("b", 100, 1000, 100, 500_000),
            pod("c", 100, 1000, 100, 500_000),
        ],
        &[300, 350, 350],
    );
    check(
        FullCapacity,
        1000,
        &[pod("a", 100, 1000, 200, 0), pod("b", 100, 1000, 100, 0)],
        &[633, 367],
    );
    check(
        FullCapacity,
        1000,
        &[
            pod("a", 100, 200, 100, 0),
            pod("b", 100, 1000, 200, 0),
            pod("c", 100, 1000, 100, 0),
        ],
        &[200, 500, 300],
    );
    check(
        FullCapacity,
        1000,
        &[
            pod("a", 100, 400, 100, 1_000_000),
            pod("b", 100, 400, 100, 1_000_000),
        ],
        &[400, 400],
    );
    check(
        FullCapacity,
        1000,
        &[pod("a", 100, 900, 100, 500_000)],
        &[900],
    );
    check(
        FullCapacity,
        1000,
        &[pod("a", 100, 2000, 100, 500_000)],
        &[1000],
    );
    check(
        Proportional,
        4000,
        &[
            pod("a", 100, 1000, 1, 500_000),
            pod("b", 500, 2000, 1, 250_000),
        ],
        &[646, 995],
    );
    check(
        Proportional,
        1000,
        &[
            pod("a", 100, 1000, 1, 600_000),
            pod("b", 100, 1000, 1, 400_000),
        ],
        &[583, 417],
    );
    check(
        Proportional,
        1000,
        &[
            pod("a", 100, 300, 1, 1_000_000),
            pod("b", 100, 1000, 1, 500_000),
            pod("c", 100, 1000, 1, 500_000),
        ],
        &[208, 396, 396],
    );
    check(
        Proportional,
        1500,
        &[
            pod("a", 100, 1000, 1, 900_000),
            pod("b", 100, 1000, 1, 900_000),
            pod("c", 100, 600, 1, 700_000),
        ],
        &[582, 582, 336],
    );
}
