//! The probability that a pod is busy in the next second, for a rule that is told the height and the
//! busy seconds of every slot and knows how the generator draws.
//!
//! It is exact. The generator draws a pause, then the length of a burst, and repeats. A pause may be 0,
//! so that two bursts look like one: the rest of the present burst is a distribution, which every
//! second updates (Bayes). Whether a pod was busy is always visible, because every limit is above 0.

use super::load::{SLOT_S, Slot, bursts_left};

/// State of one pod in its slot.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    burst_s: [u64; 2],
    busy_left: u64,
    idle_left: u64,
    stretch: Stretch,
}

#[derive(Clone, Debug)]
enum Stretch {
    /// Nothing was seen of this slot.
    Begin,
    /// A pause of at least `passed` seconds, drawn from 0 to `most`, and at most `idle` long.
    Pause { passed: u64, most: u64, idle: u64 },
    /// Probabilities that the present burst lasts this many seconds more.
    Burst(Vec<f64>),
}

impl Forecast {
    pub(super) fn new(burst_s: [u64; 2]) -> Self {
        Self {
            burst_s,
            busy_left: 0,
            idle_left: SLOT_S,
            stretch: Stretch::Begin,
        }
    }

    /// Begins a slot.
    pub(super) fn begin(&mut self, slot: Slot) {
        self.busy_left = slot.busy_s;
        self.idle_left = SLOT_S.saturating_sub(slot.busy_s);
        self.stretch = Stretch::Begin;
    }

    /// Probability that the next second is busy.
    pub(super) fn chance(&self) -> f64 {
        if self.busy_left == 0 {
            return 0.0;
        }
        match &self.stretch {
            Stretch::Begin => self.no_pause(),
            Stretch::Pause { passed, idle, .. } if passed >= idle => 1.0,
            Stretch::Pause { passed, most, .. } => 1.0 / float(most.saturating_sub(*passed) + 1),
            Stretch::Burst(left) => {
                let ended = left.first().copied().unwrap_or(0.0);
                1.0 - ended + ended * self.no_pause()
            }
        }
    }

    /// Takes the next second.
    pub(super) fn see(&mut self, is_busy: bool) {
        if is_busy {
            let mut left = match &self.stretch {
                Stretch::Begin | Stretch::Pause { .. } => self.drawn(1.0),
                Stretch::Burst(left) => {
                    let ended = left.first().copied().unwrap_or(0.0);
                    let mut next = self.drawn(ended * self.no_pause());
                    for (next, left) in next.iter_mut().zip(left.iter().skip(1)) {
                        *next += left;
                    }
                    next
                }
            };
            let sum: f64 = left.iter().sum();
            for part in &mut left {
                *part /= sum;
            }
            self.stretch = Stretch::Burst(left);
            self.busy_left = self.busy_left.saturating_sub(1);
            return;
        }
        self.stretch = match self.stretch {
            Stretch::Pause { passed, most, idle } => Stretch::Pause {
                passed: passed + 1,
                most,
                idle,
            },
            Stretch::Begin | Stretch::Burst(_) => Stretch::Pause {
                passed: 1,
                most: self.pause_most(),
                idle: self.idle_left,
            },
        };
        self.idle_left = self.idle_left.saturating_sub(1);
    }

    /// Longest pause that the generator draws now.
    fn pause_most(&self) -> u64 {
        let [_, most_s] = self.burst_s;
        2 * self.idle_left / bursts_left(self.busy_left, most_s)
    }

    /// Probability that the next burst begins at once.
    fn no_pause(&self) -> f64 {
        match (self.busy_left, self.idle_left) {
            (0, _) => 0.0,
            (_, 0) => 1.0,
            _ => 1.0 / float(self.pause_most() + 1),
        }
    }

    /// Seconds left after the first second of a new burst, with this total probability.
    fn drawn(&self, total: f64) -> Vec<f64> {
        let [least_s, most_s] = self.burst_s;
        let part = total / float(most_s - least_s + 1);
        let mut left = vec![0.0; usize::try_from(most_s).unwrap_or(0)];
        for length in least_s..=most_s {
            let rest = length.min(self.busy_left).saturating_sub(1);
            let place = usize::try_from(rest).unwrap_or(0);
            if let Some(held) = left.get_mut(place) {
                *held += part;
            }
        }
        left
    }
}

fn float(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::Forecast;
    use crate::bench::market_replay::load::{Load, SLOT_S, Shape};

    /// Method: of the seconds with a forecast of about p, the part p must be busy.
    #[test]
    fn forecasts_are_as_often_right_as_they_say() {
        for shape in [Shape::Bursts, Shape::LongBursts] {
            let means: Vec<Vec<u64>> = (0..24_u64)
                .map(|pod| {
                    (0..288_u64)
                        .map(|slot| (pod * 7 + slot * 13) % 45)
                        .collect()
                })
                .collect();
            let load = Load::of(&means, shape, 5);
            let mut bins = [[0.0_f64; 3]; 11];
            for (pod, slots) in load.slots.iter().enumerate() {
                let mut forecast = Forecast::new(load.burst_s);
                let length = usize::try_from(SLOT_S).unwrap_or(1);
                let seconds: Vec<u64> = load
                    .wants()
                    .filter_map(|wants| wants.get(pod).copied())
                    .collect();
                for (slot, seconds) in slots.iter().zip(seconds.chunks(length)) {
                    forecast.begin(*slot);
                    for want in seconds {
                        let chance = forecast.chance();
                        let is_busy = *want > 0;
                        let tenths = (1_u8..=11).zip(&mut bins);
                        let mut above =
                            tenths.skip_while(|(end, _)| f64::from(*end) <= chance * 10.0);
                        if let Some((_, bin)) = above.next() {
                            bin[0] += 1.0;
                            bin[1] += chance;
                            bin[2] += f64::from(u8::from(is_busy));
                        }
                        forecast.see(is_busy);
                    }
                }
            }
            for [count, expected, seen] in bins {
                // Five standard deviations, and a little.
                let apart = (expected - seen).abs();
                assert!(
                    apart <= 5.0 * (count * 0.25).sqrt().min(expected.sqrt()) + 1.0,
                    "{shape:?} {bins:?}"
                );
            }
        }
    }
}
