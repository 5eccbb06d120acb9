//! GPUs on envelopes, caps and lending pools, added again from the events alone.

use std::collections::{BTreeMap, BTreeSet};

use bursar_units::words::{count, number};

use crate::cluster::budget::{AggregateCap, Budget, BudgetId, EnvelopeId, Pool};

/// GPUs that are paid for, and the limits.
#[derive(Default)]
pub(super) struct Meters {
    budgets: BTreeMap<BudgetId, Budget>,
    /// GPUs of each envelope, by pool.
    used: BTreeMap<EnvelopeId, BTreeMap<Pool, u64>>,
    /// Envelopes whose GPUs or limits changed in the record.
    touched: BTreeSet<EnvelopeId>,
    /// First meter above its limit.
    above: Option<String>,
}

impl Meters {
    /// A budget that is set; an earlier one of that identity is replaced.
    pub(super) fn declare(&mut self, budget: &Budget) {
        let own = budget.envelopes.iter();
        let own = own.map(|envelope| budget.envelope_id(envelope));
        let capped = budget.aggregate_caps.iter().flat_map(|cap| &cap.envelopes);
        self.touched.extend(own.chain(capped.cloned()));
        self.budgets.insert(budget.id(), budget.clone());
    }

    /// A budget that is dropped.
    pub(super) fn drop(&mut self, budget: &BudgetId) {
        self.budgets.remove(budget);
    }

    /// GPUs that an envelope pays for from now on.
    pub(super) fn add(&mut self, envelope: &EnvelopeId, pool: Pool, gpus: u64) {
        self.touched.insert(envelope.clone());
        let used = self.used.entry(envelope.clone()).or_default();
        *used.entry(pool).or_default() += gpus;
    }

    /// GPUs that an envelope pays for no more.
    pub(super) fn remove(&mut self, envelope: &EnvelopeId, pool: Pool, gpus: u64) {
        self.touched.insert(envelope.clone());
        let used = self.used.get_mut(envelope);
        if let Some(used) = used.and_then(|used| used.get_mut(&pool)) {
            *used = used.saturating_sub(gpus);
        }
    }

    /// First meter above its limit.
    pub(super) fn above(&self) -> Option<&String> {
        self.above.as_ref()
    }

    /// Checks the meters that the record changed.
    pub(super) fn end_record(&mut self, seq: u64) {
        let touched = std::mem::take(&mut self.touched);
        if touched.is_empty() || self.above.is_some() {
            return;
        }
        let own = touched.iter().find_map(|id| self.exceeded(id));
        self.above = own.or_else(|| {
            let caps = self.budgets.values().flat_map(|budget| {
                let caps = budget.aggregate_caps.iter();
                caps.map(move |cap| (budget, cap))
            });
            let is_touched =
                |cap: &AggregateCap| cap.envelopes.iter().any(|id| touched.contains(id));
            let mut caps = caps.filter(|(_, cap)| is_touched(cap));
            caps.find_map(|(budget, cap)| {
                let used = cap.envelopes.iter().map(|id| self.gpus(id, None)).sum();
                excess(
                    &format!("cap {}", budget.cap_id(cap)),
                    used,
                    cap.concurrency_max,
                )
            })
        });
        self.above = self
            .above
            .take()
            .map(|what| format!("record {}: {what}", number(seq)));
    }

    /// An envelope or its lending pool above its limit.
    fn exceeded(&self, id: &EnvelopeId) -> Option<String> {
        let mut envelopes = self.budgets.get(&id.budget())?.envelopes.iter();
        let spec = envelopes.find(|envelope| envelope.name.as_str() == id.name())?;
        let lending = spec.lending.as_ref();
        let lent_max = lending.and_then(|lending| lending.concurrency_max);
        let own = excess(
            &format!("envelope {id}"),
            self.gpus(id, None),
            Some(spec.concurrency),
        );
        let lent = self.gpus(id, Some(Pool::Lent));
        own.or_else(|| excess(&format!("lending pool of {id}"), lent, lent_max))
    }

    /// GPUs that an envelope pays for, of one pool or of all.
    fn gpus(&self, id: &EnvelopeId, of: Option<Pool>) -> u64 {
        let pools = self.used.get(id).into_iter().flatten();
        let pools = pools.filter(|(pool, _)| of.is_none_or(|of| of == **pool));
        pools.map(|(_, gpus)| gpus).sum()
    }
}

fn excess(what: &str, used: u64, max: Option<u64>) -> Option<String> {
    let max = max.filter(|max| *max < used)?;
    let used = count(used, "GPU");
    Some(format!(
        "{what} pays for {used}, its limit is {}",
        number(max)
    ))
}
