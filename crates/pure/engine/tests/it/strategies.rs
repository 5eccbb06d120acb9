//! Any command and any event, for property tests.
//!
//! The larger strategies are boxed: their values would not fit the stack of a test.

use std::collections::BTreeSet;

use bursar_booking::decide::Change;
use bursar_booking::execution::{Adoption, Cause, Exit, Isolation, Order, Verdict};
use bursar_booking::{
    Bound, Brief, Command as BookingCommand, End, Event as BookingEvent, Fence, Limit, Outcome,
    Priority, Request, Scope, Submission,
};
use bursar_engine::codec::Record;
use bursar_engine::market::{
    self, Labelled, Mode, Original, Position, Report, Rules, Settings, Taken,
};
use bursar_engine::token::{Role, Token};
use bursar_engine::{Class, Command, Event, Events, FORMAT, LEVEL, Node, Reference, spine};
use bursar_journal::hash::Hash;
use bursar_market::clear;
use bursar_units::{BookingId, INTEGER_MAX, Instant, Label, Millis, ObjectName, PodName};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use crate::strategies_cluster;

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

pub(crate) fn millis() -> impl Strategy<Value = Millis> {
    prop_oneof![Just(0), 1..100_000_u64, Just(INTEGER_MAX)].prop_map(Millis::from_ms)
}

pub(crate) fn id() -> impl Strategy<Value = BookingId> {
    "[A-Za-z0-9._:-]{1,24}".prop_map(|text| BookingId::new(&text).unwrap())
}

pub(crate) fn label() -> impl Strategy<Value = Label> {
    "[a-zöß\"\\\\☂𝄞0-9-]{1,12}".prop_map(|text| Label::new(&text).unwrap())
}

pub(crate) fn name() -> impl Strategy<Value = ObjectName> {
    "[a-z0-9][a-z0-9.-]{0,10}[a-z0-9]".prop_map(|text| ObjectName::new(&text).unwrap())
}

/// Any text: quotes, control characters and the like must survive.
pub(crate) fn text() -> impl Strategy<Value = String> {
    any::<String>()
}

pub(crate) fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash)
}

fn order() -> BoxedStrategy<Order> {
    let times = (millis(), millis(), millis());
    (hash(), option::of(any::<u32>()), times, option::of(id()))
        .prop_map(
            |(work, pids, (start_timeout, max_time, grace), retry_of)| Order {
                work,
                pids,
                start_timeout,
                max_time,
                grace,
                retry_of,
            },
        )
        .boxed()
}

fn isolation() -> impl Strategy<Value = Isolation> {
    proptest::sample::select(&Isolation::ALL[..])
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal),
        (option::of(any::<i32>()), option::of(any::<i32>()))
            .prop_map(|(code, signal)| Exit::OutOfMemory { code, signal }),
        Just(Exit::Lost),
        text().prop_map(Exit::NotStarted),
    ]
}

fn cause() -> impl Strategy<Value = Cause> {
    proptest::sample::select(&Cause::ALL[..])
}

fn request() -> BoxedStrategy<Request> {
    let amounts = (whole(), whole(), whole(), whole());
    let priority = proptest::sample::select(&Priority::ALL[..]);
    let limits = (option::of(whole()), option::of(whole()));
    (
        (id(), label(), label()),
        amounts,
        priority,
        (millis(), millis()),
        option::of(id()),
        limits,
        option::of(fence()),
    )
        .prop_map(
            |(
                (id, class, tenant),
                (slots, cpu_milli, memory_bytes, gpus),
                priority,
                (ttl, wait),
                execution_id,
                (cpu_limit_milli, memory_limit_bytes),
                fence,
            )| Request {
                id,
                class,
                tenant,
                slots,
                cpu_milli,
                memory_bytes,
                gpus,
                priority,
                ttl,
                wait,
                execution_id,
                cpu_limit_milli,
                memory_limit_bytes,
                fence,
            },
        )
        .boxed()
}

fn submission() -> impl Strategy<Value = Submission> {
    (request(), order()).prop_map(|(booking, order)| Submission { booking, order })
}

fn adoption() -> impl Strategy<Value = Adoption> {
    (request(), option::of(order()), isolation()).prop_map(|(booking, order, isolation)| Adoption {
        booking,
        order,
        isolation,
    })
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

fn limit() -> BoxedStrategy<Limit> {
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
    (name(), scopes, bounds, rest)
        .prop_map(
            |(
                name,
                (class, tenant),
                (slots, cpu, memory, gpus),
                ((queue_max, tenant_queue_max), wait_max, ttl_max, weight),
            )| {
                Limit {
                    name,
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
        .boxed()
}

fn node() -> impl Strategy<Value = Node> {
    let labels = proptest::collection::btree_map(text(), text(), 0..3);
    let capacity = (whole(), whole(), whole());
    (name(), capacity, labels, any::<bool>()).prop_map(
        |(name, (cpu_milli, memory_bytes, gpus), labels, unschedulable)| Node {
            name,
            cpu_milli,
            memory_bytes,
            gpus,
            labels,
            unschedulable,
        },
    )
}

fn reference() -> impl Strategy<Value = Reference> {
    prop_oneof![
        name().prop_map(Reference::Limit),
        name().prop_map(Reference::Node),
    ]
}

fn token() -> BoxedStrategy<Token> {
    let roles = btree_set(proptest::sample::select(&Role::ALL[..]), 0..=3);
    let times = (instant(), option::of(instant()));
    let accounts = (btree_set(label(), 0..3), btree_set(label(), 0..3));
    (name(), hash(), roles, accounts, times)
        .prop_map(
            |(name, sha256, roles, (tenants, owners), (expires, created))| {
                let (tenants, owners): (BTreeSet<Label>, BTreeSet<Label>) = (tenants, owners);
                Token {
                    name,
                    sha256,
                    roles,
                    tenants,
                    owners,
                    expires,
                    created,
                }
            },
        )
        .boxed()
}

fn outcome() -> impl Strategy<Value = Option<Outcome>> {
    option::of(proptest::sample::select(&Outcome::ALL[..]))
}

fn fence() -> impl Strategy<Value = Fence> {
    whole().prop_map(Fence)
}

fn change() -> impl Strategy<Value = bursar_engine::Change> {
    prop_oneof![
        limit().prop_map(|limit| Change::SetLimit(limit).into()),
        name().prop_map(|name| Change::DropLimit { name }.into()),
        node().prop_map(|node| spine::Change::SetNode(node).into()),
        name().prop_map(|name| spine::Change::DropNode { name }.into()),
        strategies_cluster::change().prop_map(bursar_engine::Change::Cluster),
    ]
}

fn pod() -> impl Strategy<Value = PodName> {
    "[a-zöß\"\\\\☂𝄞0-9/,=*-]{1,12}".prop_map(|text| PodName::new(&text).unwrap())
}

fn mode() -> impl Strategy<Value = Mode> {
    proptest::sample::select(&Mode::ALL[..])
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

fn position() -> impl Strategy<Value = Position> {
    (instant(), whole(), whole(), hash()).prop_map(|(at, lines, writes, head)| Position {
        at,
        lines,
        writes,
        head,
    })
}

fn report() -> BoxedStrategy<Report> {
    let settings =
        (mode(), policy(), text()).prop_map(|(mode, policy, text)| Settings { mode, policy, text });
    let taken = (pod(), option::of(whole())).prop_map(|(pod, milli)| Taken { pod, milli });
    let originals = (vec(taken, 0..4), vec(pod(), 0..4));
    let parts = (option::of(settings), option::of(labelled()), originals);
    (name(), whole(), parts, option::of(position()))
        .prop_map(
            |(node, basis, (settings, labelled, (taken, returned)), digest)| Report {
                node,
                basis,
                settings,
                labelled,
                taken,
                returned,
                digest,
            },
        )
        .boxed()
}

pub(crate) fn command() -> BoxedStrategy<Command> {
    prop_oneof![
        spine_command().prop_map(Command::Spine),
        booking_command().prop_map(Command::Booking),
        market_command().prop_map(Command::Market),
        strategies_cluster::command().prop_map(Command::Cluster),
    ]
    .boxed()
}

pub(crate) fn spine_command() -> BoxedStrategy<spine::Command> {
    use spine::Command;

    prop_oneof![
        text().prop_map(|ledger| Command::Genesis {
            ledger,
            format: FORMAT
        }),
        (1..=LEVEL).prop_map(|n| Command::Level { n }),
        instant().prop_map(|wall| Command::Resume { wall }),
        (
            vec((id(), instant()), 0..3),
            option::of(instant()),
            option::of(proptest::sample::select(&Class::ALL[..]))
        )
            .prop_map(|(renewed, until, class)| Command::Tick {
                renewed,
                until,
                class
            }),
        (vec(change(), 0..3), vec((reference(), text()), 0..2))
            .prop_map(|(changes, expect)| Command::Change { changes, expect }),
        token().prop_map(Command::CreateToken),
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
    ]
    .boxed()
}

pub(crate) fn booking_command() -> BoxedStrategy<BookingCommand> {
    use BookingCommand as Command;

    prop_oneof![
        request().prop_map(Command::Reserve),
        submission().prop_map(Command::Submit),
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
        adoption().prop_map(Command::Adopt),
        (id(), exit()).prop_map(|(id, exit)| Command::Exited { id, exit }),
        (id(), any::<u32>()).prop_map(|(id, attempt)| Command::StopFailed { id, attempt }),
        id().prop_map(|id| Command::Cancel { id }),
        (id(), text()).prop_map(|(id, reason)| Command::Force { id, reason }),
        (id(), text()).prop_map(|(id, text)| Command::Note { id, text }),
    ]
    .boxed()
}

pub(crate) fn market_command() -> BoxedStrategy<market::Command> {
    report()
        .prop_map(|report| market::Command::ReportMarket(Box::new(report)))
        .boxed()
}

pub(crate) fn event() -> BoxedStrategy<Event> {
    prop_oneof![
        spine_event().prop_map(Event::Spine),
        booking_event().prop_map(Event::Booking),
        market_event().prop_map(Event::Market),
        strategies_cluster::event().prop_map(Event::Cluster),
    ]
    .boxed()
}

pub(crate) fn spine_event() -> BoxedStrategy<spine::Event> {
    use spine::Event;

    prop_oneof![
        text().prop_map(|ledger| Event::Genesis {
            ledger,
            format: FORMAT
        }),
        (1..=LEVEL).prop_map(|n| Event::Level { n }),
        instant().prop_map(|wall| Event::Resumed { wall }),
        token().prop_map(Event::TokenCreated),
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
        node().prop_map(Event::NodeSet),
        name().prop_map(|name| Event::NodeDropped { name }),
        (id(), hash()).prop_map(|(key, body)| Event::Keyed { key, body }),
    ]
    .boxed()
}

pub(crate) fn booking_event() -> BoxedStrategy<BookingEvent> {
    prop_oneof![
        3 => event_at_any_time(),
        2 => event_of_declared(),
        1 => request().prop_map(BookingEvent::Reserved),
        1 => submission().prop_map(BookingEvent::Submitted),
        1 => (id(), isolation(), of())
            .prop_map(|(id, isolation, of)| BookingEvent::Started { id, isolation, of }),
        1 => (adoption(), fence()).prop_map(|(mut adoption, fence)| {
            adoption.booking.fence = Some(fence);
            BookingEvent::Adopted(adoption)
        }),
        1 => (id(), any::<u32>(), of())
            .prop_map(|(id, attempt, of)| BookingEvent::StopFailed { id, attempt, of }),
        1 => exited(),
        1 => (id(), text(), of())
            .prop_map(|(id, text, of)| BookingEvent::Noted { id, text, of }),
    ]
    .boxed()
}

/// An event of a limit.
fn event_of_declared() -> impl Strategy<Value = BookingEvent> {
    prop_oneof![
        limit().prop_map(BookingEvent::LimitSet),
        name().prop_map(|name| BookingEvent::LimitDropped { name }),
    ]
}

fn exited() -> impl Strategy<Value = BookingEvent> {
    let verdict = proptest::sample::select(&Verdict::ALL[..]);
    let numbers = (
        option::of(any::<i32>()),
        option::of(any::<i32>()),
        any::<bool>(),
    );
    (id(), verdict, numbers, option::of(text()), of()).prop_map(
        |(id, verdict, (exit_code, signal, is_out_of_memory), reason, of)| BookingEvent::Exited {
            id,
            verdict,
            exit_code,
            signal,
            is_out_of_memory,
            reason,
            of,
        },
    )
}

/// The description of a booking, which older records do not have.
fn of() -> impl Strategy<Value = Option<Box<Brief>>> {
    let brief = (request(), option::of(millis())).prop_map(|(request, held)| {
        Box::new(Brief {
            class: request.class,
            tenant: request.tenant,
            slots: request.slots,
            cpu_milli: request.cpu_milli,
            memory_bytes: request.memory_bytes,
            gpus: request.gpus,
            waited: request.wait,
            held,
            allowed: held,
        })
    });
    option::of(brief)
}

/// An event that may carry a time of its own.
fn event_at_any_time() -> impl Strategy<Value = BookingEvent> {
    let end = proptest::sample::select(&End::ALL[..]);
    let t = || option::of(instant());
    prop_oneof![
        (id(), fence(), of(), t()).prop_map(|(id, fence, of, t)| BookingEvent::Granted {
            id,
            fence,
            of,
            t
        }),
        (id(), instant(), t()).prop_map(|(id, expires, t)| BookingEvent::Renewed {
            id,
            expires,
            t
        }),
        (id(), cause(), of(), t()).prop_map(|(id, cause, of, t)| BookingEvent::Stopping {
            id,
            cause,
            of,
            t
        }),
        (
            id(),
            end,
            outcome(),
            option::of(any::<i32>()),
            option::of(text()),
            of(),
            t(),
        )
            .prop_map(|(id, end, outcome, exit_code, reason, of, t)| {
                BookingEvent::Ended {
                    id,
                    end,
                    outcome,
                    exit_code,
                    reason,
                    of,
                    t,
                }
            }),
        (any::<bool>(), t()).prop_map(|(more, t)| BookingEvent::Unsettled { more, t }),
    ]
}

pub(crate) fn market_event() -> BoxedStrategy<market::Event> {
    use market::Event;

    let original = || option::of(whole());
    prop_oneof![
        (name(), rules(), text(), option::of(rules())).prop_map(|(node, rules, text, was)| {
            let Rules {
                mode,
                policy,
                sha256,
            } = rules;
            Event::Set {
                node,
                mode,
                policy,
                sha256,
                text,
                was,
            }
        }),
        (name(), labelled(), market_label()).prop_map(|(node, labelled, was)| {
            let Labelled {
                label,
                pods,
                need_milli,
                capacity_milli,
            } = labelled;
            Event::Labelled {
                node,
                label,
                was,
                pods,
                need_milli,
                capacity_milli,
            }
        }),
        (
            name(),
            pod(),
            original(),
            option::of(original().prop_map(|milli| Original { milli }))
        )
            .prop_map(|(node, pod, milli, was)| Event::Taken {
                node,
                pod,
                milli,
                was,
            }),
        (name(), pod(), original()).prop_map(|(node, pod, milli)| Event::Returned {
            node,
            pod,
            milli,
        }),
        (name(), position(), option::of(position()))
            .prop_map(|(node, digest, was)| Event::Digested { node, digest, was }),
    ]
    .boxed()
}

fn events() -> impl Strategy<Value = Events> {
    vec(event(), 0..4)
}

pub(crate) fn record() -> impl Strategy<Value = Record> {
    (0..=INTEGER_MAX, instant(), label(), command(), events()).prop_map(
        |(seq, time, by, command, events)| Record {
            seq,
            time,
            by,
            command,
            events,
        },
    )
}
