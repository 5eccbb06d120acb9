//! The state as lines of a snapshot, in the order in which they are read back.

use bursar_units::{Instant, Label, Millis, is_default, whole};
use serde::{Deserialize, Serialize};

use super::usage::{Account, Debit};
use super::{Accounts, ClaimState, UnfundedState};
use crate::calendar::Window;
use crate::claim::{Class, Demoted, Pool, Promise, RunUid, Terms, Work};
use crate::id::{EnvelopeId, MeterId};
use crate::meter::{Announced, ClosedEpoch, saturated};
use crate::spec::Budget;

/// A line of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fact {
    /// Values of the whole state.
    Accounts {
        /// Admission horizon of the policy.
        #[serde(rename = "horizonMs")]
        horizon: Millis,
        /// Number of the last claim.
        #[serde(with = "whole")]
        number: u64,
        /// Time of the last event.
        time: Instant,
    },
    /// A declared budget.
    Budget(Budget),
    /// A meter, declared or not.
    Meter(MeterFact),
    /// An incarnation with claims.
    Work(WorkFact),
    /// A funded claim or a hold.
    Claim(ClaimFact),
    /// An unfunded claim.
    Unfunded(UnfundedFact),
    /// Usage of an owner from one envelope.
    Usage(UsageFact),
    /// A debit of a run.
    Debit {
        /// The run.
        run: RunUid,
        /// The debit.
        debit: Debit,
    },
}

/// A meter in a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MeterFact {
    /// The meter.
    pub meter: MeterId,
    /// Number of the present epoch.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub epoch: u64,
    /// The present window; absent after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// GPU-milliseconds accrued until `since`.
    #[serde(default, skip_serializing_if = "is_default", with = "whole")]
    pub accrued_gpu_ms: u64,
    /// Instant of the last change.
    pub since: Instant,
    /// Epochs that are over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<ClosedEpoch>,
    /// Percentages that were announced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub announced: Announced,
}

/// An incarnation in a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkFact {
    /// The incarnation.
    pub work: Work,
    /// Its terms.
    pub terms: Terms,
}

/// A funded claim or a hold in a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimFact {
    /// Number in the order of funding.
    #[serde(with = "whole")]
    pub number: u64,
    /// Its work.
    pub work: Work,
    /// The envelope.
    pub envelope: EnvelopeId,
    /// Right by which it pays.
    pub pool: Pool,
    /// Number of GPUs.
    #[serde(with = "whole")]
    pub gpus: u64,
    /// State of the promise.
    pub promise: Promise,
    /// Instant until which its time is debited.
    pub since: Instant,
}

/// An unfunded claim in a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnfundedFact {
    /// Number in the order of demotion.
    #[serde(with = "whole")]
    pub number: u64,
    /// Its work.
    pub work: Work,
    /// Number of GPUs.
    #[serde(with = "whole")]
    pub gpus: u64,
    /// Instant of the demotion.
    pub since: Instant,
    /// Instant until which its time is debited.
    pub debited: Instant,
    /// Cause of the demotion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Demoted>,
}

/// Usage of an owner from one envelope in a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsageFact {
    /// Owner of the runs.
    pub owner: Label,
    /// Envelope that paid; absent for unfunded time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeId>,
    /// Class of the time.
    pub class: Class,
    /// Instant of the last change.
    pub since: Instant,
    /// Days since 1970-01-01 with their GPU-milliseconds.
    pub days: Vec<UsageDay>,
}

/// One day of usage.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UsageDay(
    /// Day since 1970-01-01.
    #[serde(with = "whole")]
    pub u64,
    /// GPU-milliseconds.
    #[serde(with = "whole")]
    pub u64,
);

impl Accounts {
    /// The state as facts, in the order in which [`Self::restore`] reads them.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        let head = Fact::Accounts {
            horizon: self.horizon,
            number: self.number,
            time: self.time,
        };
        let budgets = self
            .budgets
            .values()
            .map(|b| Fact::Budget(b.as_ref().clone()));
        let works = self.works.iter().map(|(work, state)| {
            Fact::Work(WorkFact {
                work: work.clone(),
                terms: state.terms.clone(),
            })
        });
        [head]
            .into_iter()
            .chain(budgets)
            .chain(self.meter_facts())
            .chain(works)
            .chain(self.claim_facts())
            .chain(self.unfunded_facts())
            .chain(self.usage_facts())
            .chain(self.debits.iter().map(|(run, debit)| Fact::Debit {
                run: run.clone(),
                debit,
            }))
    }

    fn meter_facts(&self) -> impl Iterator<Item = Fact> {
        let meters = self
            .meter_index
            .values()
            .filter_map(|n| self.meters.get(*n));
        meters.map(|meter| {
            let (accrued_gpu_ms, since) = meter.stored();
            Fact::Meter(MeterFact {
                meter: meter.id.clone(),
                epoch: meter.epoch,
                window: meter.window,
                accrued_gpu_ms,
                since,
                closed: meter.closed.as_ref().clone(),
                announced: meter.announced.clone(),
            })
        })
    }

    fn claim_facts(&self) -> impl Iterator<Item = Fact> {
        self.claims.iter().filter_map(|(number, claim)| {
            Some(Fact::Claim(ClaimFact {
                number: *number,
                work: claim.work.clone(),
                envelope: self.envelopes.get(claim.envelope)?.id.clone(),
                pool: claim.pool,
                gpus: claim.gpus,
                promise: claim.promise,
                since: claim.since,
            }))
        })
    }

    fn unfunded_facts(&self) -> impl Iterator<Item = Fact> {
        self.works.iter().flat_map(|(work, state)| {
            state.unfunded.iter().map(|claim| {
                Fact::Unfunded(UnfundedFact {
                    number: claim.number,
                    work: work.clone(),
                    gpus: claim.gpus,
                    since: claim.since,
                    debited: claim.debited,
                    cause: claim.cause,
                })
            })
        })
    }

    fn usage_facts(&self) -> impl Iterator<Item = Fact> {
        self.usage.accounts().map(|(key, account)| {
            let days = account.days().iter();
            Fact::Usage(UsageFact {
                owner: key.0.clone(),
                envelope: key.1.clone(),
                class: key.2,
                since: account.since(),
                days: days.map(|(d, ms)| UsageDay(*d, saturated(*ms))).collect(),
            })
        })
    }

    /// Takes one fact of a snapshot.
    pub fn restore(&mut self, fact: Fact) {
        match fact {
            Fact::Accounts {
                horizon,
                number,
                time,
            } => (self.horizon, self.number, self.time) = (horizon, number, time),
            Fact::Budget(budget) => self.set_budget(self.time, &budget),
            Fact::Meter(fact) => self.restore_meter(fact),
            Fact::Work(WorkFact { work, terms }) => self.begin(&work, &terms),
            Fact::Claim(fact) => self.restore_claim(fact),
            Fact::Unfunded(fact) => self.restore_unfunded(fact),
            Fact::Usage(fact) => self.restore_usage(fact),
            Fact::Debit { run, debit } => {
                let key = (debit.envelope, debit.class, debit.epoch, debit.day);
                self.debits.add(&run, key, u128::from(debit.gpu_ms));
            }
        }
    }

    fn restore_meter(&mut self, fact: MeterFact) {
        let number = self.intern_meter(fact.meter.clone());
        if let MeterId::Lending(id) = &fact.meter {
            let envelope = self.intern_envelope(id);
            let state = self.envelopes.get_mut(envelope);
            let declared = state.and_then(|state| {
                state.lending = Some(number);
                state
                    .declared
                    .as_ref()
                    .map(|declared| declared.spec.clone())
            });
            if let Some(spec) = declared {
                self.configure_pool(self.time, envelope, id, &spec);
            }
        }
        if let Some(meter) = self.meters.get_mut(number) {
            meter.epoch = fact.epoch;
            meter.window = fact.window;
            meter.set_stored(fact.accrued_gpu_ms, fact.since);
            meter.closed = fact.closed.into();
            meter.announced = fact.announced;
        }
        if let MeterId::Envelope(envelope) = &fact.meter {
            self.intern_envelope(envelope);
        }
        self.touch(number);
    }

    fn restore_claim(&mut self, fact: ClaimFact) {
        let envelope = self.intern_envelope(&fact.envelope);
        let claim = ClaimState {
            work: fact.work,
            envelope,
            pool: fact.pool,
            gpus: fact.gpus,
            promise: fact.promise,
            since: fact.since,
            due: None,
        };
        if !matches!(claim.promise, Promise::Held { .. })
            && let Some(owner) = self.owner_of(&claim.work).cloned()
        {
            let key = (owner, Some(fact.envelope), claim.pool.class());
            self.usage.add(Instant::from_ms(0), key, claim.gpus);
        }
        // The meters keep the instant of their last change, which lies before that of the claim.
        self.insert_claim(Instant::from_ms(0), fact.number, claim);
    }

    fn restore_unfunded(&mut self, fact: UnfundedFact) {
        let owner = self.owner_of(&fact.work).cloned();
        if let Some(state) = self.works.get_mut(&fact.work) {
            state.unfunded.push(UnfundedState {
                number: fact.number,
                gpus: fact.gpus,
                since: fact.since,
                debited: fact.debited,
                cause: fact.cause,
            });
            self.unfunded.insert(fact.work);
        }
        if let Some(owner) = owner {
            let key = (owner, None, Class::Unfunded);
            self.usage.add(Instant::from_ms(0), key, fact.gpus);
        }
    }

    /// Sets the days of an account; its GPUs came with the claims.
    fn restore_usage(&mut self, fact: UsageFact) {
        let key = (fact.owner, fact.envelope, fact.class);
        let days = fact.days.iter().map(|d| (d.0, u128::from(d.1)));
        let account = Account::new(self.usage.gpus(&key), fact.since, days.collect());
        self.usage.restore(key, account);
    }
}
