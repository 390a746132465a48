//! Random numbers that a seed repeats.

/// The generator `SplitMix64`.
pub(in crate::rollout) struct Dice(u64);

impl Dice {
    pub(in crate::rollout) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`.
    pub(in crate::rollout) fn from(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// The same, as an index or a count.
    pub(in crate::rollout) fn count(&mut self, low: u64, high: u64) -> usize {
        usize::try_from(self.from(low, high)).unwrap()
    }

    /// The same, as seconds.
    pub(in crate::rollout) fn seconds(&mut self, low: u64, high: u64) -> i64 {
        i64::try_from(self.from(low, high)).unwrap()
    }

    /// True once in so many times.
    pub(in crate::rollout) fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }
}
