//! Costs of one way to set limits over one day.

/// Sums over a day. Work is in millicore-seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct DayResult {
    pods: u64,
    pub(super) wanted: u64,
    pub(super) done: u64,
    /// Pod-seconds with demand.
    pub(super) wanting_s: u64,
    /// Those of them in which the quota held the pod back.
    pub(super) throttled_s: u64,
    pub(super) held: u64,
    pub(super) writes: u64,
    pub(super) seconds: u64,
    pub(super) seconds_over: u64,
    /// Σ of Jain's index over the seconds in which work was lost, in parts per million.
    pub(super) jain_sum: u64,
    pub(super) jain_count: u64,
    pub(super) clearings: u64,
    pub(super) broken: u64,
    /// Work by its delay in seconds.
    delays: Vec<u64>,
    /// Sum of the limits at every point of the picture.
    pub(super) held_milli: Vec<u64>,
}

impl DayResult {
    pub(super) fn new(pods: usize) -> Self {
        Self {
            pods: u64::try_from(pods).unwrap_or(1),
            ..Self::default()
        }
    }

    /// Counts work that was done this late.
    pub(super) fn delay(&mut self, seconds: u64, work: u64) {
        let place = usize::try_from(seconds).unwrap_or(usize::MAX);
        if self.delays.len() <= place {
            self.delays.resize(place + 1, 0);
        }
        if let Some(held) = self.delays.get_mut(place) {
            *held += work;
        }
    }

    /// Delay that 99 % of the work does not exceed.
    pub(super) fn delay_s_p99(&self) -> u64 {
        let total: u64 = self.delays.iter().sum();
        let mut below = 0;
        let found = (0..).zip(&self.delays).find(|(_, work)| {
            below += **work;
            below * 100 >= total * 99
        });
        found.map_or(0, |(seconds, _)| seconds)
    }

    fn ppm(part: u64, whole: u64) -> u64 {
        let ppm = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }

    /// Share of the time with demand in which a quota held the pod back: throttled periods over
    /// periods, because those of a second are equal.
    pub(super) fn throttled_ppm(&self) -> u64 {
        Self::ppm(self.throttled_s, self.wanting_s)
    }

    /// Share of the wanted work that was not done.
    pub(super) fn lost_ppm(&self) -> u64 {
        Self::ppm(self.wanted.saturating_sub(self.done), self.wanted)
    }

    /// Limits over use.
    pub(super) fn held_ppm(&self) -> u64 {
        Self::ppm(self.held, self.done)
    }

    /// Writes per pod and hour, in hundredths.
    pub(super) fn writes_hundredths(&self) -> u64 {
        self.writes * 100 * 3_600 / (self.pods * self.seconds).max(1)
    }

    /// Mean of Jain's index.
    pub(super) fn jain_ppm(&self) -> u64 {
        self.jain_sum
            .checked_div(self.jain_count)
            .unwrap_or(1_000_000)
    }

    /// Share of the time in which the limits exceed the node.
    pub(super) fn over_ppm(&self) -> u64 {
        Self::ppm(self.seconds_over, self.seconds)
    }
}

/// (Σx)²/(n·Σx²), x = done over wanted, over the pods with demand.
pub(super) fn jain_ppm<'a>(pods: impl Iterator<Item = (&'a u64, &'a u64)>) -> u64 {
    let (mut count, mut sum, mut squares) = (0_u64, 0_u64, 0_u64);
    for (want, got) in pods.filter(|(want, _)| **want > 0) {
        let part = got * 1_000_000 / want;
        (count, sum, squares) = (count + 1, sum + part, squares + part * part);
    }
    let above = u128::from(sum) * u128::from(sum) * 1_000_000;
    let index = above.checked_div(u128::from(count) * u128::from(squares));
    u64::try_from(index.unwrap_or(1_000_000)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::DayResult;

    #[test]
    fn the_99th_percentile_is_by_work() {
        let mut result = DayResult::new(1);
        result.delay(0, 980);
        result.delay(3, 10);
        result.delay(7, 10);
        assert_eq!(result.delay_s_p99(), 3);
        result.delay(7, 1);
        assert_eq!(result.delay_s_p99(), 7);
    }
}
