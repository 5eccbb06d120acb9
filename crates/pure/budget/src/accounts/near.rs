//! Deadlines of meters, and the announcements `meterNear`.

use std::collections::BTreeSet;

use bursar_units::Instant;

use super::{Accounts, Kind, MeterNear};
use crate::cover::Dimension;
use crate::id::MeterId;
use crate::meter::EXHAUSTED;

impl Accounts {
    /// Arms announcements again, after GPUs left a meter or its limits changed.
    pub(super) fn rearm(&mut self, number: usize) {
        if let Some(meter) = self.meters.get_mut(number) {
            meter.rearm();
        }
        self.touch(number);
    }

    /// Computes the deadlines of a meter anew; called after every change of it.
    pub(super) fn touch(&mut self, number: usize) {
        let Some(meter) = self.meters.get_mut(number) else {
            return;
        };
        let window = meter.window.filter(|_| meter.is_declared);
        let opening = window
            .and_then(|w| w.start)
            .filter(|start| self.time < *start);
        let edge = window.and_then(|window| window.end);
        let depletion = meter.depletes();
        let threshold = meter.nears().filter(|_| meter.is_declared);
        let key = u64::try_from(number).unwrap_or(u64::MAX);
        let deadlines = &mut self.deadlines;
        let mut set = |slot: &mut Option<Instant>, kind: Kind, new: Option<Instant>| {
            if *slot == new {
                return;
            }
            if let Some(old) = slot.take() {
                deadlines.remove(&(old, kind, key));
            }
            if let Some(new) = new {
                deadlines.insert((new, kind, key));
                *slot = Some(new);
            }
        };
        set(&mut meter.edge, Kind::WindowEdge, edge);
        set(&mut meter.depletion, Kind::Depletion, depletion);
        set(&mut meter.threshold, Kind::Threshold, threshold);
        if meter.opening != opening {
            if let Some(old) = meter.opening.take() {
                self.openings.remove(&(old, number));
            }
            if let Some(new) = opening {
                self.openings.insert((new, number));
                meter.opening = Some(new);
            }
        }
    }

    /// The 80 and 95 % events that are due: of the GPUs at once, of the hours at their instant. By
    /// meter, dimension and percentage.
    pub fn thresholds(&self, at: Instant) -> Vec<MeterNear> {
        let mut list = Vec::new();
        for meter in self.due_meters(at, Kind::Threshold) {
            let meter = self.meters.get(meter).into_iter();
            for meter in meter {
                let reached = meter.reached(at).into_iter();
                list.extend(reached.map(|(dimension, percent)| MeterNear {
                    meter: meter.id.clone(),
                    dimension,
                    percent,
                }));
            }
        }
        list.sort();
        list
    }

    /// The 100 % events that are owed for failed takes, extensions or claims (see
    /// [`crate::cover::Failure::exhausted`]).
    pub fn exhausted(&self, failed: &[(MeterId, Dimension)]) -> Vec<MeterNear> {
        let failed: BTreeSet<&(MeterId, Dimension)> = failed.iter().collect();
        let is_owed = |(id, dimension): &&(MeterId, Dimension)| {
            self.meter_state(id).is_some_and(|meter| {
                meter.is_declared
                    && meter.share(*dimension, self.time).is_some()
                    && meter.announced(*dimension).last() == Some(&None)
            })
        };
        let owed = failed.into_iter().filter(is_owed);
        owed.map(|(meter, dimension)| MeterNear {
            meter: meter.clone(),
            dimension: *dimension,
            percent: EXHAUSTED,
        })
        .collect()
    }

    /// Folds a `meterNear` event.
    pub fn note_near(&mut self, at: Instant, near: &MeterNear) {
        self.reach(at);
        let Some(number) = self.meter_index.get(&near.meter).copied() else {
            return;
        };
        if let Some(meter) = self.meters.get_mut(number) {
            meter.accrue(at);
            meter.announce(near.dimension, near.percent, at);
        }
        self.touch(number);
    }

    /// Meters with a deadline of a kind at or before an instant.
    pub(super) fn due_meters(&self, at: Instant, kind: Kind) -> Vec<usize> {
        let due = self.deadlines.iter().take_while(|(when, ..)| *when <= at);
        let of_kind = due.filter(|(_, other, _)| *other == kind);
        of_kind
            .filter_map(|(.., number)| usize::try_from(*number).ok())
            .collect()
    }
}
