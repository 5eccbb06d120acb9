//! Bounds for every rule: limits that lose the least work, for a rule that knows the next seconds, and
//! for one that knows the statistics of the load (`forecast`).
//!
//! Lost work is a sum over pods, convex and piecewise linear in each limit: between two levels of
//! demand, each further millicore saves as much work as the (expected) number of seconds in which it is
//! wanted. So the capacity goes to the pieces that save the most. Limits do not change demand, hence
//! the best limits of each interval are the best for the day. Only pods that are measured count.

use super::MIN_MILLI;
use super::forecast::Forecast;
use super::load::{Load, SLOT_S, Slot};

/// A piece of the demand of one pod above its minimum.
#[derive(Clone, Copy, Debug)]
struct Piece {
    pod: usize,
    milli: u64,
    /// Work saved by each millicore of it.
    saves: f64,
}

/// Limits for the interval after `second` that lose the least work in it.
pub(super) fn clairvoyant(load: &Load, second: u64, seconds: u64, node_milli: u64) -> Vec<u64> {
    let mut pieces = Vec::new();
    let mut levels: Vec<u64> = Vec::new();
    for pod in 0..load.measured {
        let wants = (second + 1..=second + seconds).filter_map(|at| load.wants_in(at).get(pod));
        levels.clear();
        levels.extend(wants.filter(|want| **want > MIN_MILLI));
        levels.sort_unstable();
        let mut below = MIN_MILLI;
        let mut above = u32::try_from(levels.len()).unwrap_or(0);
        for level in &levels {
            if *level > below {
                pieces.push(Piece {
                    pod,
                    milli: level - below,
                    saves: f64::from(above),
                });
                below = *level;
            }
            above -= 1;
        }
    }
    filled(load.pods, pieces, node_milli)
}

/// The best rule without knowledge of the future.
pub(super) struct Causal {
    pods: Vec<Forecast>,
}

impl Causal {
    pub(super) fn new(load: &Load) -> Self {
        Self {
            pods: vec![Forecast::new(load.burst_s); load.pods],
        }
    }

    /// Takes the demand of a second, and the plan of the next slot where one begins.
    pub(super) fn observe(&mut self, load: &Load, second: u64) {
        let places = self.pods.iter_mut().zip(&load.slots);
        for ((forecast, slots), want) in places.zip(load.wants_in(second)) {
            let begin = |forecast: &mut Forecast, second: u64| {
                let slot = usize::try_from(second / SLOT_S).unwrap_or(usize::MAX);
                forecast.begin(slots.get(slot).copied().unwrap_or_default());
            };
            if second == 1 {
                begin(forecast, 0);
            }
            forecast.see(*want > 0);
            if second.is_multiple_of(SLOT_S) {
                begin(forecast, second);
            }
        }
    }

    /// Limits that lose the least work in the next second, on average.
    pub(super) fn limits(&self, load: &Load, second: u64, node_milli: u64) -> Vec<u64> {
        let slot = usize::try_from(second / SLOT_S).unwrap_or(usize::MAX);
        let piece = |(pod, (forecast, slots)): (usize, (&Forecast, &Vec<Slot>))| {
            let slot = slots.get(slot)?;
            let milli = slot.height_milli.checked_sub(MIN_MILLI)?;
            let saves = forecast.chance();
            (saves > 0.0).then_some(Piece { pod, milli, saves })
        };
        let pods = self
            .pods
            .iter()
            .zip(&load.slots)
            .take(load.measured)
            .enumerate();
        filled(load.pods, pods.filter_map(piece).collect(), node_milli)
    }
}

/// Minimums, then the pieces that save the most; of equal ones the smallest, so that the fewest pods
/// are held back.
fn filled(pods: usize, mut pieces: Vec<Piece>, node_milli: u64) -> Vec<u64> {
    let mut limits = vec![MIN_MILLI; pods];
    let mut left = node_milli.saturating_sub(limits.iter().sum());
    pieces.sort_by(|a, b| b.saves.total_cmp(&a.saves).then(a.milli.cmp(&b.milli)));
    for piece in pieces {
        let given = piece.milli.min(left);
        if let Some(limit) = limits.get_mut(piece.pod) {
            *limit += given;
            left -= given;
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::{Piece, filled};

    #[test]
    fn capacity_goes_to_the_pieces_that_save_the_most_and_then_to_small_ones() {
        let piece = |pod, milli, saves| Piece { pod, milli, saves };
        let pieces = || vec![piece(0, 500, 1.0), piece(1, 300, 2.0), piece(2, 100, 1.0)];
        assert_eq!(filled(3, pieces(), 1_050), [550, 350, 150]);
        assert_eq!(filled(3, pieces(), 650), [150, 350, 150]);
        assert_eq!(filled(3, pieces(), 100), [50, 50, 50]);
    }
}
