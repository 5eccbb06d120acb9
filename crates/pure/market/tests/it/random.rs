//! Random numbers and markets from a seed: small ones with many ties and borders, and absurd ones.

use bursar_market::clear::{Market, Pod, Policy, Want};

/// `SplitMix64`: sufficient for tests, and the same on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is above zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One chance in `of`.
    pub(crate) fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u64::try_from(from.len()).unwrap();
        from[usize::try_from(self.below(count)).unwrap()]
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            let other = self.below(u64::try_from(last).unwrap() + 1);
            all.swap(last, usize::try_from(other).unwrap());
        }
    }
}

/// A pod with values up to `size`.
pub(crate) fn pod(random: &mut Random, id: String, size: u64) -> Pod {
    let min_milli = random.below(size + 1);
    let max_milli = if random.once_in(8) {
        random.below(size + 1)
    } else {
        min_milli + random.below(4 * size + 1)
    };
    Pod {
        id: id.into(),
        min_milli,
        max_milli,
        weight: random.pick(&[0, 1, 1, 2, 3, 100, 1_000]),
        want: if random.once_in(3) {
            Want::Need(random.below(6 * size + 1))
        } else {
            Want::Demand(random.pick(&[0, 0, 1, 250_000, 500_000, 700_001, 1_000_000]))
        },
        headroom_permille: random.pick(&[100, 100, 150, 500]),
    }
}

/// A market whose capacity is often at or near a border between two rules.
pub(crate) fn market(random: &mut Random, count: u64, size: u64) -> Market {
    let digits = count.to_string().len();
    let pods: Vec<Pod> = (0..count)
        .map(|number| pod(random, format!("p{number:0digits$}"), size))
        .collect();
    let sum = |value: &dyn Fn(&Pod) -> u64| pods.iter().map(value).sum::<u64>();
    let border = match random.below(4) {
        0 => sum(&|pod| pod.min_milli.min(pod.max_milli)),
        1 => sum(&|pod| pod.max_milli),
        2 => sum(&|pod| pod.min_milli.min(10)),
        _ => random.below(4 * size * count + 1),
    };
    let capacity_milli = (border + random.below(5)).saturating_sub(2);
    Market {
        capacity_milli,
        policy: random.pick(&Policy::ALL),
        quantum_milli: random.pick(&[1, 1, 1, 7, 10, 100]),
        pods,
    }
}
