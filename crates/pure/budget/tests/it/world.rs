//! A small plane: it carries out the decisions of the accounts, writes each event down, and compares
//! each decision with that of the naive implementation.

use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::accounts::{Demotions, HORIZON_DEFAULT, PromiseEnd};
use bursar_budget::cover::{Borrowing, Failure, Group, Plan, Request};
use bursar_budget::{
    Accounts, AggregateCap, Budget, BudgetId, ClaimLine, Demotion, Envelope, EnvelopeId,
    EpochClosed, Funded, Kind, Lending, MeterId, Pattern, Place, Selector, Take, Terms, Work,
};
use bursar_units::{Instant, Label, Millis, ObjectName};

use crate::naive::{Fate, Less, Naive};

pub(crate) const HOUR: u64 = 3_600_000;

pub(crate) fn at(ms: u64) -> Instant {
    Instant::from_ms(ms)
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

pub(crate) fn envelope_id(text: &str) -> EnvelopeId {
    EnvelopeId::new(text).unwrap()
}

pub(crate) fn meter(text: &str) -> MeterId {
    MeterId::new(text).unwrap()
}

/// A place `region/cluster`, in domain `d`.
pub(crate) fn place(text: &str) -> Place {
    let mut parts = text.split('/').map(label);
    Place {
        region: parts.next().unwrap(),
        cluster: parts.next().unwrap(),
        domain: label("d"),
    }
}

pub(crate) fn selector(text: &str) -> Selector {
    let mut parts = text.split('/').filter(|part| !part.is_empty()).map(label);
    Selector {
        region: parts.next(),
        cluster: parts.next(),
        domain: parts.next(),
    }
}

pub(crate) fn envelope(name: &str, gpus: u64) -> Envelope {
    Envelope {
        name: ObjectName::new(name).unwrap(),
        flavor: label("h100"),
        selector: Selector::default(),
        concurrency: gpus,
        gpu_hours_max: None,
        start: None,
        end: None,
        renew: None,
        sharing: bursar_budget::spec::Sharing::Family,
        lending: None,
        on_exhaustion: bursar_budget::spec::OnExhaustion::Demote,
        admission_horizon: None,
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the field of an envelope is optional"
)]
pub(crate) fn lends(to: &[&str], gpus_max: Option<u64>) -> Option<Lending> {
    Some(Lending {
        allow: true,
        to: to.iter().map(|text| Pattern::new(text).unwrap()).collect(),
        concurrency_max: gpus_max,
        gpu_hours_max: None,
    })
}

pub(crate) fn cap(name: &str, envelopes: &[&str], gpus: Option<u64>) -> AggregateCap {
    AggregateCap {
        name: ObjectName::new(name).unwrap(),
        flavor: label("h100"),
        envelopes: envelopes.iter().map(|text| envelope_id(text)).collect(),
        concurrency_max: gpus,
        gpu_hours_max: None,
        start: None,
        end: None,
        renew: None,
    }
}

/// The budget `NAME/b` of an owner.
pub(crate) fn budget(name: &str, owner: &str, parents: &[&str], list: Vec<Envelope>) -> Budget {
    Budget {
        namespace: ObjectName::new(name).unwrap(),
        name: ObjectName::new("b").unwrap(),
        owner: label(owner),
        parents: parents.iter().map(|text| label(text)).collect(),
        envelopes: list,
        aggregate_caps: Vec::new(),
        paused: false,
    }
}

pub(crate) fn request(owner: &str, gpus: u64) -> Request {
    Request {
        work: None,
        owner: label(owner),
        flavor: label("h100"),
        groups: vec![Group {
            place: place("us/west"),
            gpus,
        }],
        duration: None,
        hard_end: None,
        borrowing: Borrowing::default(),
    }
}

pub(crate) fn work(run: &str) -> Work {
    Work {
        run: label(run),
        incarnation: 0,
    }
}

/// Takes as `NAME GPUS`, without the name of the budget.
pub(crate) fn shown(takes: &[Take]) -> Vec<String> {
    let line = |take: &Take| format!("{} {}", take.envelope.name(), take.gpus);
    takes.iter().map(line).collect()
}

#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) request: Request,
    pub(crate) terms: Terms,
    /// Stated end, if the run stated a duration.
    pub(crate) stated_end: Option<Instant>,
}

/// An event as data, for the naive implementation.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Set(Budget),
    Dropped(BudgetId),
    Closed(EpochClosed),
    Funded(Work, Funded, Option<u64>, Vec<ClaimLine>),
    Demoted(Work, ClaimLine),
    Shut(Work, u64),
}

#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) naive: Naive,
    pub(crate) accounts: Accounts,
    pub(crate) now: Instant,
    /// Events: `TIME TEXT`.
    pub(crate) log: Vec<String>,
    pub(crate) runs: BTreeMap<Work, Run>,
    /// Work in the order of submission.
    pub(crate) order: Vec<Work>,
    /// Things that happened.
    pub(crate) seen: BTreeSet<&'static str>,
}

impl World {
    pub(crate) fn new(budgets: &[Budget]) -> Self {
        let mut world = Self::default();
        for budget in budgets {
            world.set(budget);
        }
        world
    }

    fn write(&mut self, at: Instant, text: &str) {
        self.log.push(format!("{} {text}", at.ms()));
    }

    pub(crate) fn set(&mut self, budget: &Budget) {
        let edit = self.accounts.edit(self.now, budget);
        let tightened = self.naive.tightened(&budget.id(), Some(budget));
        assert_eq!(edit.refit, tightened, "meters to refit");
        self.naive.apply(self.now, &Event::Set(budget.clone()));
        self.accounts.set_budget(self.now, budget);
        for closed in &edit.closed {
            self.close_epoch(self.now, closed);
        }
        self.refit(self.now, &edit.refit);
    }

    fn close_epoch(&mut self, at: Instant, closed: &EpochClosed) {
        self.write(at, &format!("closed {} {}", closed.meter, closed.accrued));
        self.naive.apply(at, &Event::Closed(closed.clone()));
        self.accounts.close_epoch(at, closed);
        self.check_peaks(at);
    }

    pub(crate) fn rotate(&mut self, envelope: &EnvelopeId) {
        let closed = self.accounts.rotate(self.now, envelope);
        for closed in &closed {
            self.close_epoch(self.now, closed);
        }
        let meters = closed.into_iter().map(|closed| closed.meter).collect();
        self.refit(self.now, &meters);
    }

    pub(crate) fn remove(&mut self, id: &BudgetId) {
        let meters = self.accounts.removal(id);
        assert_eq!(meters, self.naive.tightened(id, None), "meters to refit");
        self.naive.apply(self.now, &Event::Dropped(id.clone()));
        self.accounts.drop_budget(self.now, id);
        self.refit(self.now, &meters);
    }

    fn refit(&mut self, at: Instant, meters: &BTreeSet<MeterId>) {
        let demotions = self.accounts.refit(at, meters);
        let pods = self.runs.iter();
        let pods = pods.filter_map(|(work, run)| Some((work.clone(), run.terms.pod_gpus?)));
        let expected = self.naive.clone().refit(at, meters, &pods.collect());
        assert_eq!(less(&demotions.list), expected, "refit of {meters:?}");
        self.demote(at, &demotions);
        self.refund(at);
    }

    fn demote(&mut self, at: Instant, demotions: &Demotions) {
        for demotion in &demotions.list {
            self.demote_one(at, demotion);
        }
    }

    fn demote_one(&mut self, at: Instant, demotion: &Demotion) {
        let line = &demotion.line;
        let (run, cause) = (&demotion.work.run, demotion.cause);
        self.seen.insert(cause.word());
        let claims = self.accounts.claims(&demotion.work).into_iter();
        let of_line = claims.filter(|c| (&c.id.envelope, c.id.pool) == (&line.envelope, line.pool));
        if of_line.last().is_some_and(|claim| line.gpus < claim.gpus) {
            self.seen.insert("partial refit");
        }
        let text = format!(
            "demoted {run} {} {} {cause}",
            line.envelope.name(),
            line.gpus
        );
        self.write(at, &text);
        let event = Event::Demoted(demotion.work.clone(), line.clone());
        self.naive.apply(at, &event);
        let lines = std::slice::from_ref(line);
        self.accounts.demote(at, &demotion.work, cause, lines);
        self.check_peaks(at);
    }

    pub(crate) fn fund(
        &mut self,
        at: Instant,
        work: &Work,
        cause: Funded,
        of: Option<u64>,
        lines: &[ClaimLine],
    ) {
        let terms = self.runs[work].terms.clone();
        for line in lines {
            let (name, until) = (line.envelope.name(), line.until.ms());
            self.write(
                at,
                &format!("{cause} {} {name} {} until {until}", work.run, line.gpus),
            );
        }
        let joins = |line: &ClaimLine| self.naive.find(work, &line.envelope, line.pool).is_some();
        if matches!(cause, Funded::Take | Funded::Refund) && lines.iter().any(joins) {
            self.seen.insert("join");
        }
        let event = Event::Funded(work.clone(), cause, of, lines.to_vec());
        self.naive.apply(at, &event);
        self.accounts.fund(at, work, &terms, cause, of, lines);
        self.check_peaks(at);
    }

    /// Starts a run if it is covered, with recall.
    pub(crate) fn start(
        &mut self,
        run: &str,
        request: Request,
        pod_gpus: Option<u64>,
    ) -> Result<Plan, Failure> {
        let work = work(run);
        self.compare_walk(self.now, &request);
        let plan = self.accounts.plan_recalling(self.now, &request);
        let decided = plan.as_ref().map_err(|f| (f.reason, f.short));
        let decided = decided.map(|plan| (plan.lines.clone(), less(&plan.recalled)));
        let expected = self.naive.plan_recalling(self.now, &request);
        assert_eq!(decided, expected, "payers and recalled claims");
        let plan = plan.inspect_err(|failure| {
            self.seen.insert(failure.reason.word());
        })?;
        if 2 <= plan.recalled.len() {
            self.seen.insert("recall of two");
        }
        for demotion in &plan.recalled {
            self.demote_one(self.now, demotion);
        }
        let terms = Terms {
            owner: request.owner.clone(),
            pod_gpus,
            hard_end: request.hard_end,
        };
        let stated_end = request.duration.map(|duration| self.now.after(duration));
        let request = Request {
            work: Some(work.clone()),
            ..request
        };
        let state = Run {
            request,
            terms,
            stated_end,
        };
        self.runs.insert(work.clone(), state);
        self.order.push(work.clone());
        self.fund(self.now, &work, Funded::Take, None, &plan.lines);
        self.refund(self.now);
        Ok(plan)
    }

    pub(crate) fn close(&mut self, run: &str, gpus: u64) {
        self.write(self.now, &format!("close {run} {gpus}"));
        self.naive.apply(self.now, &Event::Shut(work(run), gpus));
        self.accounts.close(self.now, &work(run), gpus);
        self.refund(self.now);
    }

    /// Every row of the walk, and its outcome.
    fn compare_walk(&mut self, at: Instant, request: &Request) {
        let trace = self.accounts.trace(at, request);
        let (rows, expected) = self.naive.trace(at, request, HORIZON_DEFAULT);
        assert_eq!(trace.rows, rows, "rows of {request:?}");
        let outcome = trace.outcome.map(|plan| plan.lines);
        assert_eq!(outcome.map_err(|f| (f.reason, f.short)), expected);
        self.seen.extend(rows.iter().map(|row| row.state.word()));
    }

    /// B5: runs by submission, in a run the earliest demotion first.
    fn refund(&mut self, at: Instant) {
        for work in self.order.clone() {
            for claim in self.accounts.unfunded(&work) {
                let run = self.runs[&work].clone();
                let mut request = run.request;
                request.groups[0].gpus = claim.gpus;
                request.groups.truncate(1);
                let left = run.stated_end.map(|end| end.since(at));
                request.duration = left.filter(|left| *left != Millis::ZERO);
                self.compare_walk(at, &request);
                let plan = match run.terms.pod_gpus {
                    Some(pod) => self.accounts.plan_pods(at, &request, pod),
                    None => self.accounts.plan(at, &request).ok(),
                };
                if let Some(plan) = plan {
                    self.fund(at, &work, Funded::Refund, Some(claim.number), &plan.lines);
                }
            }
        }
    }

    /// Carries out all deadlines until an instant, each at its own time, by kind (R8).
    pub(crate) fn advance(&mut self, to: Instant) {
        let mut last = (Instant::from_ms(0), Kind::WindowEdge, 0);
        while let Some((at, kind)) = self.accounts.next_deadline()
            && at <= to
        {
            assert!(last.0 <= at, "deadlines go forward");
            last = (at, kind, if last.0 == at { last.2 + 1 } else { 0 });
            assert!(last.2 < 1_000, "deadlines of {at:?} {kind} do not end");
            self.now = at;
            self.step(at, kind);
            self.accounts.reach(at);
            self.check_peaks(at);
        }
        self.now = to;
        self.check_peaks(to);
    }

    /// No meter has accrued more than the highest limit that it had in this epoch.
    fn check_peaks(&mut self, at: Instant) {
        for (meter, is_over) in self.naive.idle_caps(at) {
            let is_charged = 0 < self.accounts.meter(at, &meter).unwrap().gpus_used;
            let thing = if is_over {
                "a cap after its window"
            } else {
                "a cap before its window"
            };
            self.seen.extend(is_charged.then_some(thing));
        }
        for (meter, peak) in &self.naive.peaks {
            let view = self.accounts.meter(at, meter);
            if let (Some(view), Some(peak)) = (view, peak) {
                assert!(
                    view.accrued_gpu_ms <= *peak,
                    "overdrawn at {at:?}: {view:?}"
                );
            }
        }
    }

    fn step(&mut self, at: Instant, kind: Kind) {
        match kind {
            Kind::WindowEdge => {
                let edges = self.accounts.edges(at);
                let meters: BTreeSet<MeterId> = edges.iter().map(|e| e.meter.clone()).collect();
                assert_eq!(meters, self.naive.edges(at), "windows that end");
                for closed in &edges {
                    self.close_epoch(at, closed);
                }
                self.refit(at, &meters);
            }
            Kind::PromiseEnd => {
                let claims = self.accounts.promise_ends(at);
                assert_eq!(claims, self.naive.ending(at), "promises that end");
                for claim in claims {
                    let fate = self.accounts.promise_end(at, &claim).unwrap();
                    let decided = match &fate {
                        PromiseEnd::Extended(line) => Fate::Extended(line.until),
                        PromiseEnd::Overruns { .. } => Fate::Overruns,
                        PromiseEnd::Demoted(_) => Fate::Demoted,
                    };
                    let terms = &self.runs[&claim.work].terms;
                    let expected = self.naive.promise_end(at, &claim, terms);
                    assert_eq!(decided, expected, "{claim:?} at {at:?}");
                    match fate {
                        PromiseEnd::Extended(line) => {
                            self.fund(at, &claim.work, Funded::Extension, None, &[line]);
                        }
                        PromiseEnd::Overruns { line, .. } => {
                            self.fund(at, &claim.work, Funded::Overrun, None, &[line]);
                        }
                        PromiseEnd::Demoted(demotion) => self.demote_one(at, &demotion),
                    }
                }
                self.refund(at);
            }
            Kind::Depletion => {
                let demotions = self.accounts.depletions(at);
                let expected = self.naive.depleted(at);
                assert_eq!(less(&demotions.list), expected, "depletion at {at:?}");
                let meters = demotions.exhausted.iter().map(|(meter, _)| meter);
                if 2 <= meters.clone().count() {
                    self.seen.insert("two meters deplete");
                }
                if meters
                    .clone()
                    .any(|meter| matches!(meter, MeterId::Lending(_)))
                {
                    self.seen.insert("a lending pool depletes");
                }
                self.demote(at, &demotions);
                self.refund(at);
            }
            Kind::Threshold => {
                for near in self.accounts.thresholds(at) {
                    let (meter, dimension) = (&near.meter, near.dimension);
                    self.write(at, &format!("near {meter} {dimension} {}", near.percent));
                    self.accounts.note_near(at, &near);
                }
            }
        }
    }

    /// The state after a crash: read back from its snapshot, through text.
    pub(crate) fn crash(&mut self) {
        let mut restored = Accounts::default();
        for fact in self.accounts.facts() {
            let text = serde_json::to_string(&fact).unwrap();
            restored.restore(serde_json::from_str(&text).unwrap());
        }
        let facts: Vec<_> = self.accounts.facts().collect();
        for (restored, fact) in restored.facts().zip(&facts) {
            assert_eq!(restored, *fact);
        }
        assert_eq!(restored.facts().count(), facts.len());
        assert_eq!(restored.next_deadline(), self.accounts.next_deadline());
        self.accounts = restored;
    }

    /// Events without thresholds.
    pub(crate) fn money(&self) -> Vec<&str> {
        let is_money = |line: &&String| !line.contains(" near ");
        self.log
            .iter()
            .filter(is_money)
            .map(String::as_str)
            .collect()
    }
}

fn less(demotions: &[Demotion]) -> Vec<Less> {
    let less = |d: &Demotion| {
        let line = &d.line;
        (d.work.clone(), line.envelope.clone(), line.pool, line.gpus)
    };
    demotions.iter().map(less).collect()
}

impl World {
    /// The identity of the budget in a namespace.
    pub(crate) fn budget_id(&self, namespace: &str) -> BudgetId {
        let id = BudgetId::new(&format!("{namespace}/b")).unwrap();
        assert!(self.accounts.budget(&id).is_some());
        id
    }
}
