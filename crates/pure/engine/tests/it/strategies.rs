//! Any command and any event, for property tests.

use std::collections::BTreeSet;

use bursar_booking::decide::Change;
use bursar_booking::execution::{Cause, Digest, Exit, Isolation, Order, Verdict};
use bursar_booking::{
    Bound, End, Event as BookingEvent, Extras, Fence, Limit, Outcome, Priority, Request, Scope,
};
use bursar_engine::codec::Record;
use bursar_engine::market::{self, Labelled, Mode, Original, Position, Report, Rules, Settings};
use bursar_engine::token::{Role, Token};
use bursar_engine::{Command, Event, Events, LEVEL};
use bursar_journal::hash::Hash;
use bursar_market::clear;
use bursar_units::{Amount, BookingId, INTEGER_MAX, Instant, Label, Millis, ObjectName, PodName};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

pub(crate) fn whole() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..1_000,
        1 => any::<u64>(),
        1 => Just(INTEGER_MAX),
        1 => Just(INTEGER_MAX + 1),
        1 => Just(u64::MAX),
    ]
}

pub(crate) fn instant() -> impl Strategy<Value = Instant> {
    (0..=INTEGER_MAX).prop_map(Instant::from_ms)
}

fn millis() -> impl Strategy<Value = Millis> {
    prop_oneof![Just(0), 1..100_000_u64, Just(INTEGER_MAX)].prop_map(Millis::from_ms)
}

pub(crate) fn id() -> impl Strategy<Value = BookingId> {
    "[A-Za-z0-9._:-]{1,24}".prop_map(|text| BookingId::new(&text).unwrap())
}

pub(crate) fn label() -> impl Strategy<Value = Label> {
    "[a-zöß\"\\\\☂𝄞0-9-]{1,12}".prop_map(|text| Label::new(&text).unwrap())
}

fn name() -> impl Strategy<Value = ObjectName> {
    "[a-z0-9][a-z0-9.-]{0,10}[a-z0-9]".prop_map(|text| ObjectName::new(&text).unwrap())
}

/// Any text: quotes, control characters and the like must survive.
fn text() -> impl Strategy<Value = String> {
    any::<String>()
}

fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash)
}

fn amount() -> impl Strategy<Value = Amount> {
    (whole(), whole(), whole(), whole()).prop_map(|(slots, cpu_milli, memory_bytes, gpus)| Amount {
        slots,
        cpu_milli,
        memory_bytes,
        gpus,
    })
}

fn extras() -> impl Strategy<Value = Option<Box<Extras>>> {
    let limits = (option::of(whole()), option::of(whole()));
    (option::of(id()), limits, option::of(order())).prop_map(
        |(execution, (cpu_limit_milli, memory_limit_bytes), order)| {
            let extras = Extras {
                execution,
                cpu_limit_milli,
                memory_limit_bytes,
                order,
            };
            (extras != Extras::default()).then(|| Box::new(extras))
        },
    )
}

fn order() -> impl Strategy<Value = Order> {
    let times = (millis(), millis(), millis());
    let work = any::<[u8; 32]>().prop_map(Digest);
    (work, option::of(any::<u32>()), times, option::of(id())).prop_map(
        |(work, pids, (start_timeout, max_time, grace), retry_of)| Order {
            work,
            pids,
            start_timeout,
            max_time,
            grace,
            retry_of,
        },
    )
}

fn isolation() -> impl Strategy<Value = Isolation> {
    prop_oneof![Just(Isolation::Cgroup), Just(Isolation::None)]
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal),
        (option::of(any::<i32>()), option::of(any::<i32>()))
            .prop_map(|(code, signal)| Exit::OutOfMemory { code, signal }),
        Just(Exit::Lost),
        text().prop_map(|reason| Exit::NotStarted { reason }),
    ]
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::Cancelled),
        Just(Cause::TimedOut),
        Just(Cause::NotStarted)
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let priority = proptest::sample::select(&Priority::ALL[..]);
    (
        label(),
        label(),
        amount(),
        priority,
        millis(),
        millis(),
        extras(),
    )
        .prop_map(
            |(class, tenant, amount, priority, ttl, wait, extras)| Request {
                class,
                tenant,
                amount,
                priority,
                ttl,
                wait,
                extras,
            },
        )
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::Each), label().prop_map(Scope::Named)]
}

fn bound() -> impl Strategy<Value = Bound> {
    prop_oneof![
        whole().prop_map(Bound::Exactly),
        whole().prop_map(Bound::Percent)
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    let scopes = (option::of(scope()), option::of(scope()));
    let bounds = (
        option::of(whole()),
        option::of(bound()),
        option::of(bound()),
        option::of(whole()),
    );
    let rest = (
        (whole(), option::of(whole())),
        millis(),
        millis(),
        option::of(whole()),
    );
    (scopes, bounds, rest).prop_map(
        |(
            (class, tenant),
            (slots, cpu, memory, gpus),
            ((queue_max, tenant_queue_max), wait_max, ttl_max, weight),
        )| {
            Limit {
                class,
                tenant,
                slots,
                cpu,
                memory,
                gpus,
                queue_max,
                tenant_queue_max,
                wait_max,
                ttl_max,
                weight,
            }
        },
    )
}

fn capacity() -> impl Strategy<Value = Amount> {
    amount().prop_map(|amount| Amount { slots: 0, ..amount })
}

fn token() -> impl Strategy<Value = Token> {
    let roles = btree_set(proptest::sample::select(&Role::ALL[..]), 0..=3);
    (name(), hash(), roles, btree_set(label(), 0..3), instant()).prop_map(
        |(name, sha256, roles, tenants, expires)| {
            let tenants: BTreeSet<Label> = tenants;
            Token {
                name,
                sha256,
                roles,
                tenants,
                expires,
            }
        },
    )
}

fn outcome() -> impl Strategy<Value = Option<Outcome>> {
    option::of(prop_oneof![Just(Outcome::Ok), Just(Outcome::Failed)])
}

fn fence() -> impl Strategy<Value = Fence> {
    whole().prop_map(Fence)
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (name(), limit()).prop_map(|(name, limit)| Change::SetLimit { name, limit }),
        name().prop_map(|name| Change::DropLimit { name }),
        (name(), capacity()).prop_map(|(name, capacity)| Change::SetNode { name, capacity }),
        name().prop_map(|name| Change::DropNode { name }),
    ]
}

fn pod() -> impl Strategy<Value = PodName> {
    "[a-zöß\"\\\\☂𝄞0-9/,=*-]{1,12}".prop_map(|text| PodName::new(&text).unwrap())
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Off), Just(Mode::Observe), Just(Mode::Act)]
}

fn policy() -> impl Strategy<Value = clear::Policy> {
    proptest::sample::select(&clear::Policy::ALL[..])
}

fn market_label() -> impl Strategy<Value = clear::Mode> {
    proptest::sample::select(&clear::Mode::ALL[..])
}

fn rules() -> impl Strategy<Value = Rules> {
    (mode(), policy(), hash()).prop_map(|(mode, policy, sha256)| Rules {
        mode,
        policy,
        sha256,
    })
}

fn labelled() -> impl Strategy<Value = Labelled> {
    (market_label(), whole(), whole(), whole()).prop_map(
        |(label, pods, need_milli, capacity_milli)| Labelled {
            label,
            pods,
            need_milli,
            capacity_milli,
        },
    )
}

fn original() -> impl Strategy<Value = Original> {
    option::of(whole()).prop_map(Original)
}

fn position() -> impl Strategy<Value = Position> {
    (instant(), whole(), whole(), hash()).prop_map(|(at, lines, writes, head)| Position {
        at,
        lines,
        writes,
        head,
    })
}

fn report() -> impl Strategy<Value = Report> {
    let settings =
        (mode(), policy(), text()).prop_map(|(mode, policy, text)| Settings { mode, policy, text });
    let originals = btree_map(pod(), option::of(original()), 0..4);
    let parts = (option::of(settings), option::of(labelled()), originals);
    (whole(), parts, option::of(position())).prop_map(
        |(basis, (settings, labelled, originals), digest)| Report {
            basis,
            settings,
            labelled,
            originals,
            digest,
        },
    )
}

fn market_event() -> impl Strategy<Value = market::Event> {
    prop_oneof![
        (name(), rules(), text(), option::of(rules())).prop_map(|(node, rules, text, was)| {
            market::Event::Set {
                node,
                rules,
                text,
                was,
            }
        }),
        (name(), labelled(), market_label()).prop_map(|(node, labelled, was)| {
            market::Event::Labelled {
                node,
                labelled,
                was,
            }
        }),
        (name(), pod(), original(), option::of(original())).prop_map(
            |(node, pod, original, was)| market::Event::Taken {
                node,
                pod,
                original,
                was,
            }
        ),
        (name(), pod(), original()).prop_map(|(node, pod, original)| market::Event::Returned {
            node,
            pod,
            original,
        }),
        (name(), position(), option::of(position()))
            .prop_map(|(node, digest, was)| market::Event::Digested { node, digest, was }),
    ]
}

pub(crate) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        text().prop_map(|ledger| Command::Genesis { ledger }),
        instant().prop_map(|wall| Command::Resume { wall }),
        vec((id(), instant()), 0..3).prop_map(|renewed| Command::Tick { renewed }),
        (id(), request()).prop_map(|(id, request)| Command::Reserve { id, request }),
        (id(), fence(), outcome(), option::of(any::<i32>())).prop_map(
            |(id, fence, outcome, exit_code)| Command::Release {
                id,
                fence,
                outcome,
                exit_code
            }
        ),
        (id(), fence(), option::of(millis())).prop_map(|(id, fence, ttl)| Command::Renew {
            id,
            fence,
            ttl
        }),
        (id(), isolation()).prop_map(|(id, isolation)| Command::Started { id, isolation }),
        (id(), request(), option::of(fence()), isolation()).prop_map(
            |(id, request, fence, isolation)| Command::Adopt {
                id,
                request,
                fence,
                isolation
            }
        ),
        (id(), exit()).prop_map(|(id, exit)| Command::Exited { id, exit }),
        (id(), any::<u32>()).prop_map(|(id, attempt)| Command::StopFailed { id, attempt }),
        id().prop_map(|id| Command::Cancel { id }),
        (id(), text()).prop_map(|(id, reason)| Command::Force { id, reason }),
        vec(change(), 0..3).prop_map(|changes| Command::Change { changes }),
        token().prop_map(|token| Command::CreateToken { token }),
        name().prop_map(|name| Command::RevokeToken { name }),
        (text(), option::of(id()))
            .prop_map(|(key, idempotency)| Command::RotateKey { key, idempotency }),
        (whole(), hash()).prop_map(|(record, sha256)| Command::Anchor { record, sha256 }),
        (whole(), option::of(id()))
            .prop_map(|(below, idempotency)| Command::Prune { below, idempotency }),
        (
            whole(),
            option::of(fence()),
            option::of(whole()),
            any::<bool>(),
        )
            .prop_map(|(size, fence, replaces, end_tokens)| {
                Command::Restore {
                    size,
                    fence,
                    replaces,
                    end_tokens,
                }
            }),
        (1..=LEVEL).prop_map(|n| Command::Level { n }),
        (name(), report()).prop_map(|(node, report)| Command::ReportMarket {
            node,
            report: Box::new(report),
        }),
    ]
}

/// An event that happens at the time of its record.
fn event_now() -> impl Strategy<Value = Event> {
    prop_oneof![
        text().prop_map(|ledger| Event::Genesis { ledger }),
        instant().prop_map(|wall| Event::Resumed { wall }),
        (id(), request(), option::of(fence())).prop_map(|(id, request, fence)| {
            BookingEvent::Reserved { id, request, fence }.into()
        }),
        (id(), isolation())
            .prop_map(|(id, isolation)| BookingEvent::Started { id, isolation }.into()),
        (id(), request(), fence(), isolation()).prop_map(|(id, request, fence, isolation)| {
            BookingEvent::Adopted {
                id,
                request,
                fence,
                isolation,
            }
            .into()
        }),
        (id(), any::<u32>())
            .prop_map(|(id, attempt)| BookingEvent::StopFailed { id, attempt }.into()),
        exited(),
        (name(), limit()).prop_map(|(name, limit)| BookingEvent::LimitSet { name, limit }.into()),
        name().prop_map(|name| BookingEvent::LimitDropped { name }.into()),
        (name(), capacity())
            .prop_map(|(name, capacity)| BookingEvent::NodeSet { name, capacity }.into()),
        name().prop_map(|name| BookingEvent::NodeDropped { name }.into()),
        token().prop_map(|token| Event::TokenCreated { token }),
        name().prop_map(|name| Event::TokenRevoked { name }),
        text().prop_map(|key| Event::KeyRotated { key }),
        (whole(), hash()).prop_map(|(record, sha256)| Event::Anchored { record, sha256 }),
        whole().prop_map(|below| Event::Pruned { below }),
        (whole(), option::of(fence()), any::<bool>()).prop_map(
            |(generation, fence, tokens_ended)| Event::Restored {
                generation,
                fence,
                tokens_ended,
            }
        ),
        (1..=LEVEL).prop_map(|n| Event::Level { n }),
        (id(), hash()).prop_map(|(key, body)| Event::Keyed { key, body }),
        market_event().prop_map(Event::Market),
    ]
}

fn exited() -> impl Strategy<Value = Event> {
    let verdict = proptest::sample::select(&Verdict::ALL[..]);
    let numbers = (
        option::of(any::<i32>()),
        option::of(any::<i32>()),
        any::<bool>(),
    );
    (id(), verdict, numbers, option::of(text())).prop_map(
        |(id, verdict, (exit_code, signal, is_out_of_memory), reason)| {
            BookingEvent::Exited {
                id,
                verdict,
                exit_code,
                signal,
                is_out_of_memory,
                reason,
            }
            .into()
        },
    )
}

/// An event that may carry a time of its own.
fn event_any_time() -> impl Strategy<Value = Event> {
    let end = proptest::sample::select(
        &[
            End::Released,
            End::Cancelled,
            End::Expired,
            End::WaitOver,
            End::Forced,
        ][..],
    );
    prop_oneof![
        (id(), fence()).prop_map(|(id, fence)| BookingEvent::Granted { id, fence }.into()),
        (id(), instant()).prop_map(|(id, expires)| BookingEvent::Renewed { id, expires }.into()),
        (id(), cause()).prop_map(|(id, cause)| BookingEvent::Stopping { id, cause }.into()),
        (
            id(),
            end,
            outcome(),
            option::of(any::<i32>()),
            option::of(text())
        )
            .prop_map(|(id, end, outcome, exit_code, reason)| {
                BookingEvent::Ended {
                    id,
                    end,
                    outcome,
                    exit_code,
                    reason,
                }
                .into()
            }),
        any::<bool>().prop_map(|more| BookingEvent::Unsettled { more }.into()),
    ]
}

fn events(time: Instant) -> impl Strategy<Value = Events> {
    vec(
        prop_oneof![
            event_now().prop_map(move |event| (time, event)),
            (prop_oneof![Just(time), instant()], event_any_time()),
        ],
        0..4,
    )
}

pub(crate) fn record() -> impl Strategy<Value = Record> {
    (0..=INTEGER_MAX, instant(), label()).prop_flat_map(|(seq, time, by)| {
        (command(), events(time)).prop_map(move |(command, events)| Record {
            seq,
            time,
            by: by.clone(),
            command,
            events,
        })
    })
}
