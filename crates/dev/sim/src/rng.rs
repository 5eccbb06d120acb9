//! The one source of chance: `SplitMix64`, so that a seed is all there is to know.

/// A generator of numbers that look random and follow from a seed.
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

    /// A number below `bound`; zero where there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.number()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// A place in something of that length; zero where it is empty.
    pub fn place(&mut self, length: usize) -> usize {
        let bound = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or(0)
    }

    /// Whether something that happens `often` times in a thousand happens now.
    pub fn per_mille(&mut self, often: u64) -> bool {
        self.below(1_000) < often
    }

    /// Whether something that happens once in `often` happens now; never where that is zero.
    pub fn once_in(&mut self, often: u64) -> bool {
        often > 0 && self.below(often) == 0
    }

    /// One of several; `None` where there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.place(from.len()))
    }

    /// One of several numbers.
    pub fn one_of<const N: usize>(&mut self, from: [u64; N]) -> u64 {
        self.pick(&from).copied().unwrap_or(0)
    }

    /// A generator of its own, which follows from this one.
    #[must_use]
    pub const fn split(&mut self) -> Self {
        Self(self.number())
    }
}
