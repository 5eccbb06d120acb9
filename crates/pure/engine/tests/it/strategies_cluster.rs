//! Any command, change and event of the cluster, for property tests.

use bursar_engine::cluster::budget::accounts::{EpochClosed, MeterNear};
use bursar_engine::cluster::budget::cover::Dimension;
use bursar_engine::cluster::budget::spec::{OnExhaustion, Sharing};
use bursar_engine::cluster::budget::{
    AggregateCap, Budget, BudgetId, ClaimLine, Demoted, Envelope, EnvelopeId, Funded, Lending,
    MeterId, Pattern, Pool, Renew, RunUid, Selector, Window,
};
use bursar_engine::cluster::nodes::NODE_GPUS_MAX;
use bursar_engine::cluster::policy::{Entropy, Mode, Stage1};
use bursar_engine::cluster::{
    Change, Command, Edit, Event, Exit, Funding, Outcome, Pod, Policy, Reason, Run, Who,
};
use bursar_units::{Instant, ScopedName};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::strategies::{hash, instant, label, millis, name, text, whole};

fn uid() -> impl Strategy<Value = RunUid> {
    label()
}

fn scoped() -> impl Strategy<Value = ScopedName> {
    (name(), name()).prop_map(|(namespace, name)| ScopedName::of(&namespace, &name))
}

fn budget_id() -> impl Strategy<Value = BudgetId> {
    (name(), name()).prop_map(|(namespace, name)| BudgetId::of(&namespace, &name))
}

fn envelope_id() -> impl Strategy<Value = EnvelopeId> {
    (budget_id(), name()).prop_map(|(budget, name)| budget.envelope(&name))
}

fn meter() -> impl Strategy<Value = MeterId> {
    prop_oneof![
        envelope_id().prop_map(MeterId::Envelope),
        envelope_id().prop_map(MeterId::Lending),
        (budget_id(), name()).prop_map(|(budget, name)| MeterId::Cap(budget.cap(&name))),
    ]
}

fn selector() -> impl Strategy<Value = Selector> {
    let part = || option::of(label());
    (part(), part(), part()).prop_map(|(region, cluster, domain)| Selector {
        region,
        cluster,
        domain,
    })
}

fn pattern() -> impl Strategy<Value = Pattern> {
    "([a-z:]{1,6}[*]?|[*])".prop_map(|text| Pattern::new(&text).unwrap())
}

type Times = (Option<Instant>, Option<Instant>, Option<Renew>);

fn times() -> impl Strategy<Value = Times> {
    let renew = option::of(select(&Renew::ALL[..]));
    (option::of(instant()), option::of(instant()), renew)
}

fn lending() -> impl Strategy<Value = Lending> {
    let limits = (option::of(whole()), option::of(whole()));
    (any::<bool>(), vec(pattern(), 0..3), limits).prop_map(
        |(allow, to, (concurrency_max, gpu_hours_max))| Lending {
            allow,
            to,
            concurrency_max,
            gpu_hours_max,
        },
    )
}

fn envelope() -> BoxedStrategy<Envelope> {
    let fates = (
        select(&Sharing::ALL[..]),
        select(&OnExhaustion::ALL[..]),
        option::of(lending()),
        option::of(millis()),
    );
    let limits = (whole(), option::of(whole()));
    (name(), label(), selector(), limits, times(), fates)
        .prop_map(
            |(name, flavor, selector, (concurrency, gpu_hours_max), (start, end, renew), fates)| {
                let (sharing, on_exhaustion, lending, admission_horizon) = fates;
                Envelope {
                    name,
                    flavor,
                    selector,
                    concurrency,
                    gpu_hours_max,
                    start,
                    end,
                    renew,
                    sharing,
                    lending,
                    on_exhaustion,
                    admission_horizon,
                }
            },
        )
        .boxed()
}

fn cap() -> BoxedStrategy<AggregateCap> {
    let limits = (option::of(whole()), option::of(whole()));
    (name(), label(), vec(envelope_id(), 0..3), limits, times())
        .prop_map(
            |(name, flavor, envelopes, (concurrency_max, gpu_hours_max), (start, end, renew))| {
                AggregateCap {
                    name,
                    flavor,
                    envelopes,
                    concurrency_max,
                    gpu_hours_max,
                    start,
                    end,
                    renew,
                }
            },
        )
        .boxed()
}

fn budget() -> BoxedStrategy<Budget> {
    let parts = (vec(envelope(), 0..3), vec(cap(), 0..2), any::<bool>());
    ((name(), name()), label(), vec(label(), 0..3), parts)
        .prop_map(
            |((namespace, name), owner, parents, (envelopes, aggregate_caps, paused))| Budget {
                namespace,
                name,
                owner,
                parents,
                envelopes,
                aggregate_caps,
                paused,
            },
        )
        .boxed()
}

fn run() -> BoxedStrategy<Run> {
    let widths = (whole(), option::of(whole()), option::of(whole()));
    let funding = (any::<bool>(), option::of(whole()), vec(label(), 0..3)).prop_map(
        |(allow_borrow, borrow_gpus_max, sponsors)| Funding {
            allow_borrow,
            borrow_gpus_max,
            sponsors,
        },
    );
    let times = (
        option::of(millis()),
        option::of(millis()),
        option::of(millis()),
    );
    let names = (name(), name(), label(), label());
    let rest = (any::<bool>(), selector(), funding, any::<i32>());
    (names, widths, rest, times, option::of(hash()))
        .prop_map(|(names, widths, rest, times, template)| {
            let (namespace, name, owner, flavor) = names;
            let (total_gpus, pod_gpus, group_gpus) = widths;
            let (spread, location, funding, priority) = rest;
            let (expected_duration, max_duration, grace) = times;
            Run {
                namespace,
                name,
                owner,
                flavor,
                total_gpus,
                pod_gpus,
                group_gpus,
                spread,
                location,
                funding,
                expected_duration,
                max_duration,
                priority,
                grace,
                template,
            }
        })
        .boxed()
}

fn policy() -> BoxedStrategy<Policy> {
    let words = (
        select(&Mode::ALL[..]),
        select(&Entropy::ALL[..]),
        select(&Stage1::ALL[..]),
    );
    let times = vec(millis(), 8);
    (words, times, whole(), whole())
        .prop_map(
            |((mode, entropy, stage1), times, trials, pending_max)| Policy {
                mode,
                patience: times[0],
                min_runtime: times[1],
                grace_max: times[2],
                start_timeout: times[3],
                freeze_max: times[4],
                entropy_wait: times[5],
                entropy,
                admission_horizon: times[6],
                forecast_horizon: times[7],
                trials,
                pending_max,
                stage1,
            },
        )
        .boxed()
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        Just(Exit::Ok {}),
        option::of(any::<i32>()).prop_map(|code| Exit::Failed { code }),
        text().prop_map(|reason| Exit::NotStarted { reason }),
    ]
}

pub(crate) fn command() -> BoxedStrategy<Command> {
    prop_oneof![
        (scoped(), option::of(uid())).prop_map(|(run, uid)| Command::CancelRun { run, uid }),
        (envelope_id(), option::of(crate::strategies::id())).prop_map(|(envelope, idempotency)| {
            Command::RotateEnvelope {
                envelope,
                idempotency,
                reason: None,
            }
        }),
        (uid(), whole()).prop_map(|(uid, incarnation)| Command::RunStarted { uid, incarnation }),
        (uid(), whole(), vec(whole(), 0..3), exit()).prop_map(|(uid, incarnation, pods, exit)| {
            Command::RunExited {
                uid,
                incarnation,
                pods,
                exit,
            }
        }),
        policy().prop_map(Command::SetPolicy),
    ]
    .boxed()
}

pub(crate) fn change() -> BoxedStrategy<Change> {
    prop_oneof![
        budget().prop_map(Change::SetBudget),
        budget_id().prop_map(|budget| Change::DropBudget { budget }),
        run().prop_map(Change::SetRun),
        run().prop_map(Change::StartRun),
    ]
    .boxed()
}

fn who() -> impl Strategy<Value = Who> {
    (uid(), scoped(), label()).prop_map(|(uid, run, owner)| Who { uid, run, owner })
}

fn claims() -> impl Strategy<Value = Vec<ClaimLine>> {
    let line = (envelope_id(), select(&Pool::ALL[..]), whole(), instant());
    let line = line.prop_map(|(envelope, pool, gpus, until)| ClaimLine {
        envelope,
        pool,
        gpus,
        until,
    });
    vec(line, 0..3)
}

fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let ordinals = btree_set(0..NODE_GPUS_MAX, 0..8);
    let ranges = ordinals.prop_map(|ordinals| {
        let ordinals: Vec<u32> = ordinals.into_iter().collect();
        Pod::ranges(&ordinals)
    });
    let pod = (whole(), whole(), name(), ranges);
    let pod = pod.prop_map(|(pod, group, node, gpus)| Pod {
        pod,
        group,
        node,
        gpus,
    });
    vec(pod, 0..3)
}

fn reason() -> impl Strategy<Value = Reason> {
    select(&Reason::ALL[..])
}

fn t() -> impl Strategy<Value = Option<Instant>> {
    option::of(instant())
}

fn code() -> impl Strategy<Value = Option<i32>> {
    option::of(any::<i32>())
}

pub(crate) fn event() -> BoxedStrategy<Event> {
    prop_oneof![event_of_money(), event_of_runs(), event_of_leases()].boxed()
}

fn event_of_money() -> BoxedStrategy<Event> {
    let window = option::of(
        (option::of(instant()), option::of(instant()))
            .prop_map(|(start, end)| Window { start, end }),
    );
    let epoch = (meter(), whole(), whole(), window);
    let epoch = epoch.prop_map(|(meter, epoch, accrued, next)| EpochClosed {
        meter,
        epoch,
        accrued,
        next,
    });
    let near = (meter(), select(&Dimension::ALL[..]), whole());
    let near = near.prop_map(|(meter, dimension, percent)| MeterNear {
        meter,
        dimension,
        percent,
    });
    let funded = (
        who(),
        whole(),
        claims(),
        select(&Funded::ALL[..]),
        option::of(whole()),
        t(),
    );
    let demoted = (who(), whole(), claims(), select(&Demoted::ALL[..]), t());
    prop_oneof![
        policy().prop_map(Event::PolicySet),
        budget().prop_map(Event::BudgetSet),
        budget_id().prop_map(|budget| Event::BudgetDropped { budget }),
        (epoch, t()).prop_map(|(epoch, t)| Event::EpochClosed { epoch, t }),
        (near, t()).prop_map(|(near, t)| Event::MeterNear { near, t }),
        funded.prop_map(|(of, incarnation, claims, cause, unfunded, t)| {
            Event::RunFunded {
                of,
                incarnation,
                claims,
                cause,
                unfunded,
                t,
            }
        }),
        demoted.prop_map(|(of, incarnation, claims, cause, t)| Event::RunDemoted {
            of,
            incarnation,
            claims,
            cause,
            t,
        }),
    ]
    .boxed()
}

fn event_of_runs() -> BoxedStrategy<Event> {
    let edit = (any::<i32>(), option::of(millis())).prop_map(|(priority, max_duration)| Edit {
        priority,
        max_duration,
    });
    let outcome = select(&Outcome::ALL[..]);
    prop_oneof![
        (uid(), run()).prop_map(|(uid, run)| Event::RunSubmitted { uid, run }),
        (who(), edit).prop_map(|(of, edit)| Event::RunEdited { of, edit }),
        (who(), reason(), instant(), code(), option::of(text()), t()).prop_map(
            |(of, reason, deadline, code, detail, t)| {
                Event::RunEnding {
                    of,
                    reason,
                    deadline,
                    code,
                    detail,
                    t,
                }
            }
        ),
        who().prop_map(|of| Event::RunRunning { of }),
        (who(), outcome, reason(), code(), option::of(text()), t()).prop_map(
            |(of, outcome, reason, code, detail, t)| Event::RunEnded {
                of,
                outcome,
                reason,
                code,
                detail,
                t,
            }
        ),
        t().prop_map(|t| Event::PassUnfinished { t }),
        Just(Event::PassFinished {}),
    ]
    .boxed()
}

fn event_of_leases() -> BoxedStrategy<Event> {
    let closed = (who(), whole(), vec(whole(), 0..3), whole(), reason(), t());
    prop_oneof![
        (who(), whole(), whole(), whole(), pods()).prop_map(
            |(of, incarnation, record, first, pods)| Event::LeasesOpened {
                of,
                incarnation,
                record,
                first,
                pods,
            }
        ),
        closed.prop_map(|(of, incarnation, pods, gpus, reason, t)| {
            Event::LeasesClosed {
                of,
                incarnation,
                pods,
                gpus,
                reason,
                t,
            }
        }),
    ]
    .boxed()
}
