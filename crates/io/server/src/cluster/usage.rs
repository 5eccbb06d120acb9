//! Used GPU time by owner, run, day or envelope.

use std::collections::BTreeMap;

use bursar_client::Problem;
use bursar_client::api::cluster::{GetUsage, Usage, UsageBy, UsageDebit, UsageRow, UsageSums};
use bursar_client::api::instant;
use bursar_client::problem::FieldError;
use bursar_engine::State;
use bursar_engine::cluster::Listed;
use bursar_engine::cluster::budget::accounts::UsageRow as Used;
use bursar_engine::cluster::budget::calendar::{day, day_start};
use bursar_engine::cluster::budget::{Class, EnvelopeId};
use bursar_units::{Instant, Label};

use super::sight;
use crate::caller::Caller;
use crate::service::{Answer, Service, last_record};

/// Name of a row: an owner, a day or an envelope.
type Name = (Option<String>, Option<Label>);

impl Service {
    /// Used time of whole UTC days: the days of `since` and `until` and those between, to now at
    /// most. All groupings have one total, if the caller sees everything and names no owner; an owner
    /// is that of the runs, by envelope that of the envelopes. By run, a last row without a run has what the rows of
    /// runs lack: time of runs that are not remembered any more, and time lent to runs of others.
    pub(crate) fn usage(
        &self,
        caller: &Caller,
        query: &GetUsage,
    ) -> Result<Answer<Usage>, Problem> {
        let now = self.ledger.now();
        let state = self.ledger.view().read();
        let at = |time: Option<bursar_client::api::Since>| {
            time.map(|time| Instant::from_ms(time.ms(now.ms())))
        };
        let (since, until) = (at(query.since), at(query.until));
        if let (Some(since), Some(until)) = (since, until)
            && until < since
        {
            let error = FieldError::new("until", "is before since");
            return Err(Problem::invalid(vec![error]));
        }
        if since.is_some_and(|since| day(now) < day(since)) {
            let error = FieldError::new("since", "is after today; whole UTC days are counted");
            return Err(Problem::invalid(vec![error]));
        }
        let since = since.map(|at| day_start(day(at)));
        let until = until.map_or(now, |at| day_end(at).min(now));
        let by = query.by.unwrap_or(UsageBy::Owner);
        let period = Period {
            state: &state,
            caller,
            now,
            since,
            until,
            owner: query.owner.as_ref(),
        };
        let items = match by {
            UsageBy::Run => period.by_run(),
            by => period.by_name(by),
        };
        let mut total = UsageSums::default();
        for row in &items {
            add_sums(&mut total, &row.sums);
        }
        let record = last_record(&state);
        let body = Usage {
            since,
            until,
            by,
            items,
            total,
            record,
        };
        Ok(Answer::ok(record, body))
    }
}

struct Period<'a> {
    state: &'a State,
    caller: &'a Caller,
    now: Instant,
    since: Option<Instant>,
    until: Instant,
    owner: Option<&'a Label>,
}

impl Period<'_> {
    fn by_name(&self, by: UsageBy) -> Vec<UsageRow> {
        let mut sums: BTreeMap<Name, UsageSums> = BTreeMap::new();
        let accounts = self.state.clusters.accounts();
        for used in accounts
            .usage(self.now)
            .filter(|used| self.is_within(used.day))
        {
            let lender = used.envelope.as_ref().and_then(|id| accounts.owner(id));
            if self.is_shown(&used.owner) && (by != UsageBy::Envelope || self.owner.is_none())
                || by == UsageBy::Envelope && lender.is_some_and(|lender| self.is_shown(lender))
            {
                let name = name_of(by, &used, lender);
                add(sums.entry(name).or_default(), used.class, used.gpu_ms);
            }
            let lender =
                lender.filter(|lender| used.class == Class::Borrowed && self.is_shown(lender));
            if let Some(lender) = lender {
                let name = match by {
                    UsageBy::Owner => (Some(lender.to_string()), None),
                    by => name_of(by, &used, Some(lender)),
                };
                let row = sums.entry(name).or_default();
                row.lent_gpu_ms = row.lent_gpu_ms.saturating_add(used.gpu_ms);
            }
        }
        let rows = sums.into_iter().map(|(name, sums)| row_of(by, name, sums));
        rows.collect()
    }

    fn by_run(&self) -> Vec<UsageRow> {
        let mut rest = UsageSums::default();
        for row in self.by_name(UsageBy::Owner) {
            add_sums(&mut rest, &row.sums);
        }
        let mut runs: Vec<Listed<'_>> = sight::runs(self.state, self.caller)
            .filter(|listed| self.is_shown(&listed.run.owner) && self.held_gpus(listed))
            .collect();
        runs.sort_by_cached_key(|listed| (listed.run.id(), listed.submitted, listed.uid));
        let mut rows: Vec<UsageRow> = runs.iter().map(|listed| self.run_row(listed)).collect();
        for row in &rows {
            change(&mut rest, &row.sums, u64::saturating_sub);
        }
        if rest != UsageSums::default() {
            rows.push(UsageRow {
                sums: rest,
                ..UsageRow::default()
            });
        }
        rows
    }

    fn run_row(&self, listed: &Listed<'_>) -> UsageRow {
        let accounts = self.state.clusters.accounts();
        let mut sums = UsageSums::default();
        let mut debits: BTreeMap<(EnvelopeId, Class, u64), u64> = BTreeMap::new();
        let all = accounts.debits(self.now, listed.uid);
        for debit in all.into_iter().filter(|debit| self.is_within(debit.day)) {
            add(&mut sums, debit.class, debit.gpu_ms);
            let Some(envelope) = debit.envelope else {
                continue;
            };
            let lender = accounts.owner(&envelope);
            if debit.class == Class::Borrowed && lender.is_some_and(|of| self.is_shown(of)) {
                sums.lent_gpu_ms = sums.lent_gpu_ms.saturating_add(debit.gpu_ms);
            }
            let sum = debits
                .entry((envelope, debit.class, debit.epoch))
                .or_default();
            *sum = sum.saturating_add(debit.gpu_ms);
        }
        UsageRow {
            owner: Some(listed.run.owner.clone()),
            run: Some(listed.run.id().to_string()),
            uid: Some(listed.uid.to_string()),
            sums,
            debits: debits
                .into_iter()
                .map(|((envelope, class, epoch), gpu_ms)| UsageDebit {
                    envelope: envelope.to_string(),
                    class,
                    epoch,
                    gpu_ms,
                })
                .collect(),
            ..UsageRow::default()
        }
    }

    fn held_gpus(&self, listed: &Listed<'_>) -> bool {
        let end = listed.ended.unwrap_or(self.now);
        let is_after = self.since.is_none_or(|since| since <= end);
        listed
            .started
            .is_some_and(|started| started < self.until || started == self.now)
            && is_after
    }

    fn is_within(&self, of: u64) -> bool {
        let start = day_start(of);
        self.since.is_none_or(|since| since <= start) && start < self.until
    }

    /// Whether the rows of an owner are wanted and may be seen.
    fn is_shown(&self, owner: &Label) -> bool {
        self.caller.sees_owner(owner) && self.owner.is_none_or(|wanted| wanted == owner)
    }
}

fn name_of(by: UsageBy, used: &Used, lender: Option<&Label>) -> Name {
    match by {
        UsageBy::Owner | UsageBy::Run => (Some(used.owner.to_string()), None),
        UsageBy::Day => (Some(date(used.day)), None),
        UsageBy::Envelope => {
            let envelope = used.envelope.as_ref();
            (envelope.map(ToString::to_string), lender.cloned())
        }
    }
}

fn row_of(by: UsageBy, (name, lender): Name, sums: UsageSums) -> UsageRow {
    let row = UsageRow {
        sums,
        ..UsageRow::default()
    };
    match by {
        UsageBy::Owner | UsageBy::Run => UsageRow {
            owner: name.and_then(|name| Label::new(&name).ok()),
            ..row
        },
        UsageBy::Day => UsageRow { day: name, ..row },
        UsageBy::Envelope => UsageRow {
            envelope: name,
            owner: lender,
            ..row
        },
    }
}

/// The end of the UTC day of an instant.
fn day_end(at: Instant) -> Instant {
    day_start(day(at).saturating_add(1))
}

/// Date of a UTC day: `2026-11-16`.
fn date(day: u64) -> String {
    let text = instant::format(day_start(day));
    text.split('T').next().unwrap_or_default().to_owned()
}

fn add(sums: &mut UsageSums, class: Class, gpu_ms: u64) {
    let part = match class {
        Class::Owned => &mut sums.owned_gpu_ms,
        Class::Shared => &mut sums.shared_gpu_ms,
        Class::Borrowed => &mut sums.borrowed_gpu_ms,
        Class::Unfunded => &mut sums.unfunded_gpu_ms,
    };
    *part = part.saturating_add(gpu_ms);
    sums.leased_gpu_ms = sums.leased_gpu_ms.saturating_add(gpu_ms);
}

fn add_sums(total: &mut UsageSums, row: &UsageSums) {
    change(total, row, u64::saturating_add);
}

fn change(total: &mut UsageSums, row: &UsageSums, by: fn(u64, u64) -> u64) {
    let UsageSums {
        leased_gpu_ms,
        owned_gpu_ms,
        shared_gpu_ms,
        borrowed_gpu_ms,
        unfunded_gpu_ms,
        lent_gpu_ms,
    } = total;
    for (sum, part) in [
        (leased_gpu_ms, row.leased_gpu_ms),
        (owned_gpu_ms, row.owned_gpu_ms),
        (shared_gpu_ms, row.shared_gpu_ms),
        (borrowed_gpu_ms, row.borrowed_gpu_ms),
        (unfunded_gpu_ms, row.unfunded_gpu_ms),
        (lent_gpu_ms, row.lent_gpu_ms),
    ] {
        *sum = by(*sum, part);
    }
}
