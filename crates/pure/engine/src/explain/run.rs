//! Explanations of runs: the reason of a wait, the payers, and the changes that would help.

use bursar_cluster::budget::cover::{Bound, Dimension, Row, RowState};
use bursar_cluster::budget::{Class, EnvelopeId, MeterId, Promise, Selector, Take};
use bursar_cluster::explain::{Holder, Wait, WaitReason};
use bursar_cluster::{Clusters, Outcome, Run, Shown, Stage};
use bursar_plane::WaitsFor;
use bursar_units::words::{count, hours, length, number};
use bursar_units::{Instant, Label, Millis};

/// Meters that a headline names.
const METERS_NAMED_MAX: usize = 3;
/// Envelopes that a headline names.
const PAYERS_NAMED_MAX: usize = 3;

/// Explanation of a run. A surface hides the holders that the caller may not see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunExplanation {
    /// The run.
    pub run: Shown,
    /// Answer in one sentence: lower case, no full stop.
    pub headline: String,
    /// The wait, if it waits.
    pub wait: Option<Wait>,
    /// Envelopes that pay, or would pay now, and what nobody pays.
    pub payers: Vec<RunPayer>,
    /// Changes that would help.
    pub changes: Vec<String>,
}

/// A payer of a run, now or if it started now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunPayer {
    /// The envelope; `None` for GPUs that nobody pays.
    pub envelope: Option<EnvelopeId>,
    /// Number of GPUs.
    pub gpus: u64,
    /// Funding class.
    pub class: Class,
    /// GPU-milliseconds held ahead; `None` without a promise.
    pub held_gpu_ms: Option<u64>,
    /// GPUs of the envelope that are free now.
    pub gpus_free: Option<u64>,
    /// The most GPUs of the envelope.
    pub gpus_limit: Option<u64>,
    /// What keeps it from paying for more, if the run waits for budget.
    pub bound: Option<String>,
}

/// Holders of a run's GPUs, as far as a caller may see them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldByRuns {
    /// Holders that the caller may see.
    pub named: Vec<Holder>,
    /// Number of other holders.
    pub others: u64,
    /// GPUs of the other holders together.
    pub others_gpus: u64,
}

impl RunExplanation {
    /// Category of the wait, if it waits.
    pub fn waits_for(&self) -> Option<WaitsFor> {
        self.wait.as_ref().map(|wait| wait.reason.waits_for())
    }

    /// Envelopes that pay, or would pay now, in order.
    pub fn takes(&self) -> Vec<Take> {
        match &self.wait {
            Some(wait) => wait.takes.clone(),
            None => self.run.takes(),
        }
    }
}

/// Holders that the caller may see, and the number of all others.
pub fn held_by_runs(wait: &Wait, may_see: impl Fn(&Holder) -> bool) -> HeldByRuns {
    let (others, others_gpus) = wait.more_holders;
    let mut held = HeldByRuns {
        named: Vec::new(),
        others,
        others_gpus,
    };
    for holder in &wait.holders {
        if may_see(holder) {
            held.named.push(holder.clone());
        } else {
            held.others += 1;
            held.others_gpus = held.others_gpus.saturating_add(holder.gpus);
        }
    }
    held
}

/// Explains a run as a reply or the state shows it.
pub fn run(clusters: &Clusters, now: Instant, run: Shown) -> RunExplanation {
    let wait = match run.stage {
        Stage::Waiting => clusters.wait(now, &run.uid),
        _ => None,
    };
    let explained = Explained {
        clusters,
        now,
        run: &run,
    };
    let headline = format!("{} {}", run.run.id(), explained.predicate(wait.as_ref()));
    let payers = explained.payers(wait.as_ref());
    let changes = explained.changes(wait.as_ref());
    RunExplanation {
        run,
        headline,
        wait,
        payers,
        changes,
    }
}

/// A meter with its value and limit: `40/48 GPUs of rai/q4/h100 are in use`.
pub fn meter_use(
    clusters: &Clusters,
    now: Instant,
    meter: &MeterId,
    dimension: Dimension,
) -> Option<String> {
    let view = clusters.accounts().meter(now, meter)?;
    Some(match dimension {
        Dimension::Gpus => {
            let (used, limit) = (number(view.gpus_used), number(view.gpus_limit?));
            format!("{used}/{limit} GPUs of {meter} are in use")
        }
        Dimension::Hours => {
            let (used, limit) = (view.committed_gpu_ms, view.limit_gpu_ms?);
            let (used, limit) = (hours(used), hours(limit));
            format!("{used}/{limit} GPU-hours of {meter} are used or held")
        }
    })
}

/// A run that waits, or would wait.
pub struct Waiting<'a> {
    /// State of the cluster.
    pub clusters: &'a Clusters,
    /// Present time.
    pub now: Instant,
    /// The run.
    pub run: &'a Run,
    /// Its wait.
    pub wait: &'a Wait,
}

struct Explained<'a> {
    clusters: &'a Clusters,
    now: Instant,
    run: &'a Shown,
}

impl Explained<'_> {
    fn waiting<'a>(&'a self, wait: &'a Wait) -> Waiting<'a> {
        Waiting {
            clusters: self.clusters,
            now: self.now,
            run: &self.run.run,
            wait,
        }
    }

    /// Text after the name of the run.
    fn predicate(&self, wait: Option<&Wait>) -> String {
        let since = |at: Instant| length(self.now.since(at));
        match (self.run.stage, wait) {
            (Stage::Waiting, Some(wait)) => self.waiting(wait).predicate(),
            (Stage::Waiting, None) => "waits for its turn".to_owned(),
            (Stage::Starting, _) => {
                let paid = self.paid_words();
                format!("is being started for {}{paid}", since(self.run.since))
            }
            (Stage::Running, _) => {
                format!("runs for {}{}", since(self.run.since), self.paid_words())
            }
            (Stage::Ending, _) => {
                let cause = self.run.ending.map_or("", |(reason, _)| reason.text());
                format!("is being stopped for {}: {cause}", since(self.run.since))
            }
            (Stage::Ended, _) => self.ended_words(),
        }
    }

    /// ` on 32 GPUs, paid by rai/q4/h100`, and what nobody pays.
    fn paid_words(&self) -> String {
        let width: u64 = self.run.pods.iter().map(bursar_cluster::Pod::width).sum();
        let mut names: Vec<&str> = Vec::new();
        for claim in &self.run.claims {
            if !names.contains(&claim.id.envelope.as_str()) {
                names.push(claim.id.envelope.as_str());
            }
        }
        let more = names.len().saturating_sub(PAYERS_NAMED_MAX);
        names.truncate(PAYERS_NAMED_MAX);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let paid = match names.as_slice() {
            [] => String::new(),
            names => format!(", paid by {}{more}", names.join(", ")),
        };
        let risk = match self.run.unfunded_gpus() {
            0 => String::new(),
            unfunded => {
                let (unfunded, width) = (number(unfunded), number(width));
                format!("; {unfunded} of {width} GPUs are unfunded")
            }
        };
        format!(" on {}{paid}{risk}", count(width, "GPU"))
    }

    fn ended_words(&self) -> String {
        let Some(end) = &self.run.end else {
            return "ended".to_owned();
        };
        let outcome = match end.outcome {
            Outcome::Ok => "ended ok",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "was cancelled",
        };
        let after = match self.run.started {
            Some(started) => format!("after {}", length(end.at.since(started))),
            None => format!("after waiting {}", length(end.at.since(self.run.submitted))),
        };
        let code = end.code.map(|code| format!(", exit code {code}"));
        let detail = end.detail.as_ref().map(|detail| format!(", {detail}"));
        format!(
            "{outcome} {after}: {}{}{}",
            end.reason.text(),
            code.unwrap_or_default(),
            detail.unwrap_or_default()
        )
    }

    fn payers(&self, wait: Option<&Wait>) -> Vec<RunPayer> {
        if let Some(wait) = wait {
            let takes = wait.takes.iter().map(|take| self.would_pay(wait, take));
            return match wait.reason.waits_for() {
                WaitsFor::Budget => self.could_pay(wait),
                _ => takes.collect(),
            };
        }
        let claims = self.run.claims.iter().map(|claim| {
            let ahead = match claim.promise {
                Promise::Until(end) => Some(product(claim.gpus, end.since(self.now))),
                Promise::Overruns(_) | Promise::Held { .. } => None,
            };
            self.payer(&claim.id.envelope, claim.gpus, claim.id.pool.class(), ahead)
        });
        let unfunded = match self.run.unfunded_gpus() {
            0 => None,
            gpus => Some(RunPayer {
                envelope: None,
                gpus,
                class: Class::Unfunded,
                held_gpu_ms: None,
                gpus_free: None,
                gpus_limit: None,
                bound: None,
            }),
        };
        claims.chain(unfunded).collect()
    }

    /// Each envelope of the walk that may pay, with what it would pay and what binds it.
    fn could_pay(&self, wait: &Wait) -> Vec<RunPayer> {
        let mut payers: Vec<RunPayer> = Vec::new();
        for row in wait.trace.iter().filter(|row| row.state == RowState::Open) {
            let (class, envelope) = (row.pool.class(), Some(&row.envelope));
            let mut known = payers.iter_mut();
            let known =
                known.find(|payer| payer.class == class && payer.envelope.as_ref() == envelope);
            if let Some(payer) = known {
                payer.gpus = payer.gpus.saturating_add(row.gpus);
                continue;
            }
            payers.push(RunPayer {
                bound: row.bound.as_ref().and_then(|bound| self.bound_words(bound)),
                ..self.payer(&row.envelope, row.gpus, class, None)
            });
        }
        payers
    }

    fn bound_words(&self, bound: &Bound) -> Option<String> {
        match bound {
            Bound::Meter { meter, dimension } => {
                meter_use(self.clusters, self.now, meter, *dimension)
            }
            Bound::BorrowLimit => {
                let max = self.run.run.funding.borrow_gpus_max?;
                Some(format!("the run borrows at most {}", count(max, "GPU")))
            }
        }
    }

    fn would_pay(&self, wait: &Wait, take: &Take) -> RunPayer {
        let is_row = |row: &&Row| row.envelope == take.envelope && row.pool == take.pool;
        let until = wait.trace.iter().find(is_row).and_then(|row| row.until);
        let ahead = until.map(|until| product(take.gpus, until.since(self.now)));
        self.payer(&take.envelope, take.gpus, take.pool.class(), ahead)
    }

    fn payer(&self, id: &EnvelopeId, gpus: u64, class: Class, ahead: Option<u64>) -> RunPayer {
        let meter = MeterId::Envelope(id.clone());
        let meter = self.clusters.accounts().meter(self.now, &meter);
        let limit = meter.as_ref().and_then(|meter| meter.gpus_limit);
        let used = meter.map_or(0, |meter| meter.gpus_used);
        RunPayer {
            envelope: Some(id.clone()),
            gpus,
            class,
            held_gpu_ms: ahead,
            gpus_free: limit.map(|limit| limit.saturating_sub(used)),
            gpus_limit: limit,
            bound: None,
        }
    }

    fn changes(&self, wait: Option<&Wait>) -> Vec<String> {
        match (self.run.stage, wait) {
            (Stage::Waiting, Some(wait)) => self.waiting(wait).changes(),
            (Stage::Starting | Stage::Running, _) if 0 < self.run.unfunded_gpus() => {
                vec!["raise an envelope that may pay".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}

impl Waiting<'_> {
    /// Answer in one sentence: lower case, no full stop.
    pub fn headline(&self) -> String {
        format!("{} {}", self.run.id(), self.predicate())
    }

    /// Text after the name of the run.
    fn predicate(&self) -> String {
        let what = self.short_of();
        match self.wait.reason.waits_for() {
            WaitsFor::Mistake => format!("cannot start because of a mistake: {what}"),
            WaitsFor::After => format!("waits for a window to open: {what}"),
            WaitsFor::Budget => format!("waits for budget: {what}"),
            WaitsFor::Room => format!("waits for room, not for budget: {what}"),
            WaitsFor::Turn => format!("waits for its turn: {what}"),
        }
    }

    /// What a waiting run lacks, with its numbers.
    fn short_of(&self) -> String {
        let (run, wait) = (self.run, self.wait);
        let needed = number(wait.needed);
        match wait.reason {
            WaitReason::NoEnvelope => {
                format!("no envelope of {} may pay for {}", run.flavor, run.owner)
            }
            WaitReason::NeverFits if wait.failure.is_some() => {
                let found = wait.failure.as_ref().map_or(0, |failure| failure.found);
                let (wanted, found) = (count(wait.needed, "GPU"), number(found));
                format!(
                    "it asks for {wanted}, and the envelopes can never pay for all; {found} find a payer now"
                )
            }
            WaitReason::NeverFits => format!(
                "the declared nodes cannot hold {} {}{}",
                count(wait.needed, "GPU"),
                run.flavor,
                place_words(&run.location)
            ),
            WaitReason::OutsideWindow => {
                "every envelope that may pay is outside its window".to_owned()
            }
            WaitReason::ConcurrencyCapExceeded
            | WaitReason::IntegralCapExceeded
            | WaitReason::AggregateCapExceeded => self.meter_words(),
            WaitReason::AclDenied => self.denied_words(),
            WaitReason::BorrowLimitExceeded => {
                let short = wait.failure.as_ref().map_or(0, |failure| failure.short);
                let short = count(short, "GPU");
                match run.funding.borrow_gpus_max {
                    Some(max) => {
                        format!(
                            "it may borrow at most {}, and {short} are short",
                            number(max)
                        )
                    }
                    None => format!("it may not borrow more, and {short} are short"),
                }
            }
            WaitReason::BudgetPaused => "a budget that may pay is paused".to_owned(),
            WaitReason::NoRoom if wait.needed <= wait.free => format!(
                "{} GPUs are free{}, but not in whole pods in one domain, it needs {needed}",
                number(wait.free),
                place_words(&run.location)
            ),
            WaitReason::NoRoom => format!(
                "{}/{needed} GPUs are free{}",
                number(wait.free),
                place_words(&run.location)
            ),
            WaitReason::NodesUnusable => format!(
                "the GPUs{} that it needs are on nodes that take nothing new",
                place_words(&run.location)
            ),
            WaitReason::QueueOrder => match wait.ahead {
                0 => "it starts with the next decision".to_owned(),
                ahead => format!("{} ahead", count(ahead, "run")),
            },
        }
    }

    /// The meters that bind, with their values.
    fn meter_words(&self) -> String {
        let wait = self.wait;
        let failure = wait.failure.as_ref();
        let used = self
            .bounds()
            .filter_map(|(meter, dimension)| meter_use(self.clusters, self.now, meter, *dimension));
        let used: Vec<String> = used.collect();
        let asks = format!("it asks for {}", count(wait.needed, "GPU"));
        let more = used.len().saturating_sub(METERS_NAMED_MAX);
        let more = match more {
            0 => String::new(),
            more => format!(", and {more} more meters bind"),
        };
        match used.as_slice() {
            [] => format!(
                "{} find a payer, {asks}",
                number(failure.map_or(0, |of| of.found))
            ),
            used => {
                let named = used.iter().take(METERS_NAMED_MAX).cloned();
                format!("{}{more}, {asks}", named.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn denied_words(&self) -> String {
        let failure = self.wait.failure.as_ref();
        let mut denied = failure.into_iter().flat_map(|failure| &failure.denied);
        let sponsor = denied.find_map(|envelope| self.clusters.accounts().owner(envelope));
        let owner = &self.run.owner;
        match sponsor {
            Some(sponsor) => format!("{sponsor} does not lend to {owner}"),
            None => format!("no sponsor lends to {owner}"),
        }
    }

    /// Changes that would help.
    pub fn changes(&self) -> Vec<String> {
        let wait = self.wait;
        let fewer = "ask for fewer GPUs";
        let raise = match wait.reason.waits_for() {
            WaitsFor::Budget => self.raise_words(),
            _ => String::new(),
        };
        let texts: Vec<&str> = match wait.reason.waits_for() {
            WaitsFor::Mistake => vec!["declare an envelope or nodes for it", "cancel it"],
            WaitsFor::After => vec!["change the window of an envelope"],
            WaitsFor::Budget if wait.reason == WaitReason::BudgetPaused => {
                vec!["end the pause of the budget"]
            }
            WaitsFor::Budget if wait.reason == WaitReason::BorrowLimitExceeded => {
                vec!["allow it to borrow more", fewer]
            }
            WaitsFor::Budget if self.run.funding.allow_borrow => {
                vec![&raise, fewer]
            }
            WaitsFor::Budget => vec![&raise, "name a sponsor and allow borrowing", fewer],
            WaitsFor::Room if self.run.location == Selector::default() => vec![fewer],
            WaitsFor::Room => vec![fewer, "state no location"],
            WaitsFor::Turn => Vec::new(),
        };
        texts.into_iter().map(ToOwned::to_owned).collect()
    }

    /// `raise rai/q4/h100, and then it waits for room: 4 of the 8 GPUs it needs are free`.
    fn raise_words(&self) -> String {
        let wait = self.wait;
        let mut names: Vec<String> = Vec::new();
        for (meter, _) in self.bounds() {
            let name = meter.to_string();
            if !names.contains(&name) && names.len() < METERS_NAMED_MAX {
                names.push(name);
            }
        }
        let raise = match names.as_slice() {
            [] => "raise an envelope that may pay".to_owned(),
            names => format!("raise {}", names.join(" or ")),
        };
        if wait.is_placed {
            return raise;
        }
        let (free, needed) = (number(wait.free), number(wait.needed));
        let room = if wait.needed <= wait.free {
            format!("{free} GPUs are free, but not in whole pods in one domain")
        } else {
            format!("{free} of the {needed} GPUs it needs are free")
        };
        format!("{raise}, and then it waits for room: {room}")
    }

    /// The meters that bind, of the kind that the reason names.
    fn bounds(&self) -> impl Iterator<Item = &(MeterId, Dimension)> {
        let reason = self.wait.reason;
        let wanted = move |meter: &MeterId, of: Dimension| match reason {
            WaitReason::AggregateCapExceeded => is_cap(meter),
            WaitReason::IntegralCapExceeded => !is_cap(meter) && of == Dimension::Hours,
            _ => !is_cap(meter) && of == Dimension::Gpus,
        };
        let bounds = self.wait.failure.iter();
        let bounds = bounds.flat_map(|failure| &failure.exhausted);
        bounds.filter(move |(meter, dimension)| wanted(meter, *dimension))
    }
}

fn is_cap(meter: &MeterId) -> bool {
    matches!(meter, MeterId::Cap(_))
}

/// ` in rack-a`, or nothing for any place.
pub(super) fn place_words(location: &Selector) -> String {
    let parts = [&location.region, &location.cluster, &location.domain];
    let parts: Vec<&str> = parts.into_iter().flatten().map(Label::as_str).collect();
    match (&location.domain, parts.as_slice()) {
        (_, []) => String::new(),
        (Some(domain), _) => format!(" in {domain}"),
        (None, parts) => format!(" in {}", parts.join("/")),
    }
}

/// Why nobody else can pay for a run: `org:bio has no family, and the run names no sponsor`.
pub fn alone(clusters: &Clusters, run: &bursar_cluster::Run) -> Option<String> {
    let owner = &run.owner;
    let relatives = clusters.accounts().relatives(owner);
    let (has_family, sponsors) = (!relatives.is_empty(), &run.funding.sponsors);
    match (has_family, sponsors.as_slice()) {
        (false, []) => Some(format!(
            "{owner} has no family, and the run names no sponsor"
        )),
        (true, []) => Some("the run names no sponsor".to_owned()),
        (_, [_, ..]) if !run.funding.allow_borrow => {
            Some("the run names sponsors, but does not allow borrowing".to_owned())
        }
        (_, [_, ..]) => None,
    }
}

fn product(gpus: u64, time: Millis) -> u64 {
    gpus.saturating_mul(time.ms())
}
