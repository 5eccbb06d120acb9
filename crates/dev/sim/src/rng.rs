//! The only source of randomness: `SplitMix64`, determined by its seed.

/// A pseudo-random number generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.number()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// An index into a sequence of that length; zero if it is empty.
    pub fn place(&mut self, length: usize) -> usize {
        let bound = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or(0)
    }

    /// True with a probability of `often` in a thousand.
    pub fn per_mille(&mut self, often: u64) -> bool {
        self.below(1_000) < often
    }

    /// True with a probability of one in `often`; never if `often` is zero.
    pub fn once_in(&mut self, often: u64) -> bool {
        often > 0 && self.below(often) == 0
    }

    /// A random element; `None` if there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.place(from.len()))
    }

    /// A random element of an array.
    pub fn one_of<const N: usize>(&mut self, from: [u64; N]) -> u64 {
        self.pick(&from).copied().unwrap_or(0)
    }

    /// A new generator, seeded from this one.
    #[must_use]
    pub const fn split(&mut self) -> Self {
        Self(self.number())
    }
}
