//! Commands, changes, events and facts in the form of the journal: each reads back as it was written,
//! and unknown fields are refused (L7, L8, L12).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bursar_booking::decide::Change;
use bursar_booking::execution::{
    Adoption, Cause, Course, Exit, Isolation, Order, Progress, Stage, Verdict,
};
use bursar_booking::fact::{Fact, Unsettled};
use bursar_booking::{
    Bound, Brief, Command, End, Event, Fence, Limit, Outcome, Priority, Request, Scope, Submission,
};
use bursar_journal::hash::Hash;
use bursar_units::{BookingId, INTEGER_MAX, Instant, Label, Millis, ObjectName};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;

use crate::make::request;

/// A value of the journal or of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Written {
    Command(Command),
    Change(Change),
    Event(Event),
    Fact(Fact),
}

impl Written {
    /// Sort of the value.
    fn sort(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Change(_) => "change",
            Self::Event(_) => "event",
            Self::Fact(_) => "fact",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Command(command) => serde_json::to_string(command),
            Self::Change(change) => serde_json::to_string(change),
            Self::Event(event) => serde_json::to_string(event),
            Self::Fact(fact) => serde_json::to_string(fact),
        }
        .unwrap()
    }

    fn read(sort: &str, text: &str) -> Result<Self, serde_json::Error> {
        Ok(match sort {
            "command" => Self::Command(serde_json::from_str(text)?),
            "change" => Self::Change(serde_json::from_str(text)?),
            "event" => Self::Event(serde_json::from_str(text)?),
            "fact" => Self::Fact(serde_json::from_str(text)?),
            other => panic!("nothing written is a {other}"),
        })
    }
}

/// Method: the generated kinds are compared with those that the reader lists in its error for an
/// unknown kind, so that a new kind fails here until it is generated too.
#[test]
fn every_kind_of_command_change_event_and_fact_is_read_back_as_it_was_written() {
    let met: RefCell<BTreeMap<&str, BTreeSet<String>>> = RefCell::default();
    check(2_000, |written| {
        let text = written.text();
        prop_assert_eq!(
            Written::read(written.sort(), &text).unwrap(),
            written.clone()
        );
        let value: Value = serde_json::from_str(&text).unwrap();
        let kind = value.as_object().unwrap().keys().next().unwrap().clone();
        met.borrow_mut()
            .entry(written.sort())
            .or_default()
            .insert(kind);
        Ok(())
    });
    for (sort, met) in met.into_inner() {
        assert_eq!(met, kinds(sort), "{sort}");
    }
}

/// Method: each object of a text, at any depth, gets one field more.
#[test]
fn a_field_that_is_not_known_is_refused_wherever_it_stands() {
    check(500, |written| {
        let value: Value = serde_json::from_str(&written.text()).unwrap();
        for text in with_one_field_more(&value).map(|value| value.to_string()) {
            let read = Written::read(written.sort(), &text);
            prop_assert!(read.is_err(), "{}", text);
        }
        Ok(())
    });
}

#[test]
fn no_number_of_a_record_is_above_what_a_double_holds_exactly() {
    check(1_000, |written| {
        let value: Value = serde_json::from_str(&written.text()).unwrap();
        prop_assert!(holds_small_integers(&value), "{}", value);
        Ok(())
    });
    let edge = Event::Reserved(Request {
        cpu_milli: INTEGER_MAX,
        memory_bytes: INTEGER_MAX + 1,
        memory_limit_bytes: Some(u64::MAX),
        fence: Some(Fence(INTEGER_MAX + 2)),
        ..request("python", "a")
    });
    let text = concat!(
        r#"{"reserved":{"id":"unnamed","class":"python","tenant":"a","slots":1,"#,
        r#""cpuMilli":9007199254740991,"memoryBytes":"9007199254740992","ttlMs":60000,"#,
        r#""waitMs":3600000,"memoryLimitBytes":"18446744073709551615","#,
        r#""fence":"9007199254740993"}}"#
    );
    assert_eq!(serde_json::to_string(&edge).unwrap(), text);
    let as_number = text.replace(r#""9007199254740992""#, "9007199254740992");
    assert!(serde_json::from_str::<Event>(&as_number).is_err());
    let as_string = text.replace("9007199254740991", r#""9007199254740991""#);
    assert!(serde_json::from_str::<Event>(&as_string).is_err());
}

/// Whether every number is a whole one of at most 2⁵³ − 1, and nothing is null.
fn holds_small_integers(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => {
            number.is_i64() && number.as_i64().unwrap().unsigned_abs() <= INTEGER_MAX
        }
        Value::Array(list) => list.iter().all(holds_small_integers),
        Value::Object(object) => object.values().all(holds_small_integers),
    }
}

/// The value once for each object in it, with an unknown field in that object.
fn with_one_field_more(value: &Value) -> Box<dyn Iterator<Item = Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter().enumerate().flat_map(move |(at, item)| {
            with_one_field_more(item).map(move |item| {
                let mut list = list.clone();
                list[at] = item;
                Value::Array(list)
            })
        })),
        Value::Object(object) => {
            let mut more = object.clone();
            more.insert("unknown".to_owned(), Value::from(1));
            let inside = object.iter().flat_map(move |(field, item)| {
                with_one_field_more(item).map(move |item| {
                    let mut object = object.clone();
                    object.insert(field.clone(), item);
                    Value::Object(object)
                })
            });
            Box::new(std::iter::once(Value::Object(more)).chain(inside))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// Kinds of a sort, from the error of the reader for an unknown kind.
fn kinds(sort: &str) -> BTreeSet<String> {
    let refusal = Written::read(sort, r#"{"unknown":{}}"#).unwrap_err();
    let refusal = refusal.to_string();
    let (_, known) = refusal.split_once("expected ").unwrap();
    let in_quotes = known.split('`').skip(1).step_by(2);
    in_quotes.map(str::to_owned).collect()
}

fn check(cases: u32, holds: impl Fn(&Written) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome =
        TestRunner::new_with_rng(config, random).run(&any_written(), |written| holds(&written));
    outcome.unwrap();
}

fn any_written() -> impl Strategy<Value = Written> {
    prop_oneof![
        2 => any_command().prop_map(Written::Command),
        1 => any_change().prop_map(Written::Change),
        3 => any_event().prop_map(Written::Event),
        2 => any_fact().prop_map(Written::Fact),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        any_request().prop_map(Command::Reserve),
        any_submission().prop_map(Command::Submit),
        (
            any_id(),
            any_fence(),
            any_outcome(),
            option::of(any::<i32>())
        )
            .prop_map(|(id, fence, outcome, exit_code)| Command::Release {
                id,
                fence,
                outcome,
                exit_code
            }),
        (any_id(), any_fence(), option::of(any_millis()))
            .prop_map(|(id, fence, ttl)| Command::Renew { id, fence, ttl }),
        (any_id(), any_isolation()).prop_map(|(id, isolation)| Command::Started { id, isolation }),
        any_adoption().prop_map(Command::Adopt),
        (any_id(), any_exit()).prop_map(|(id, exit)| Command::Exited { id, exit }),
        (any_id(), any::<u32>()).prop_map(|(id, attempt)| Command::StopFailed { id, attempt }),
        any_id().prop_map(|id| Command::Cancel { id }),
        (any_id(), any::<String>()).prop_map(|(id, reason)| Command::Force { id, reason }),
        (any_id(), any::<String>()).prop_map(|(id, text)| Command::Note { id, text }),
    ]
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any_limit().prop_map(Change::SetLimit),
        any_name().prop_map(|name| Change::DropLimit { name }),
    ]
}

fn any_brief() -> impl Strategy<Value = Brief> {
    let times = (
        any_millis(),
        option::of(any_millis()),
        option::of(any_millis()),
    );
    (any_request(), times).prop_map(|(request, (waited, held, allowed))| Brief {
        class: request.class,
        tenant: request.tenant,
        slots: request.slots,
        cpu_milli: request.cpu_milli,
        memory_bytes: request.memory_bytes,
        gpus: request.gpus,
        waited,
        held,
        allowed,
    })
}

fn any_unsettled() -> impl Strategy<Value = Unsettled> {
    prop_oneof![
        any::<bool>().prop_map(Unsettled::Is),
        any_instant().prop_map(Unsettled::Since),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let t = || option::of(any_instant());
    let of = || option::of(any_brief().prop_map(Box::new));
    prop_oneof![
        any_request().prop_map(Event::Reserved),
        (any_id(), any_fence(), of(), t()).prop_map(|(id, fence, of, t)| Event::Granted {
            id,
            fence,
            of,
            t
        }),
        (any_id(), any_instant(), t()).prop_map(|(id, expires, t)| Event::Renewed {
            id,
            expires,
            t
        }),
        (any_id(), select(&End::ALL[..]), any_saying(), of(), t()).prop_map(
            |(id, end, (outcome, exit_code, reason), of, t)| Event::Ended {
                id,
                end,
                outcome,
                exit_code,
                reason,
                of,
                t
            }
        ),
        any_submission().prop_map(Event::Submitted),
        (any_id(), any_isolation(), of()).prop_map(|(id, isolation, of)| Event::Started {
            id,
            isolation,
            of
        }),
        any_adoption().prop_map(Event::Adopted),
        (any_id(), select(&Cause::ALL[..]), of(), t())
            .prop_map(|(id, cause, of, t)| Event::Stopping { id, cause, of, t }),
        (any_id(), any::<u32>(), of()).prop_map(|(id, attempt, of)| Event::StopFailed {
            id,
            attempt,
            of
        }),
        (
            any_id(),
            select(&Verdict::ALL[..]),
            any_saying(),
            option::of(any::<i32>()),
            any::<bool>(),
            of()
        )
            .prop_map(
                |(id, verdict, (_, exit_code, reason), signal, is_out_of_memory, of)| {
                    Event::Exited {
                        id,
                        verdict,
                        exit_code,
                        signal,
                        is_out_of_memory,
                        reason,
                        of,
                    }
                }
            ),
        (any_id(), any::<String>(), of()).prop_map(|(id, text, of)| Event::Noted { id, text, of }),
        any_limit().prop_map(Event::LimitSet),
        any_name().prop_map(|name| Event::LimitDropped { name }),
        (any::<bool>(), t()).prop_map(|(more, t)| Event::Unsettled { more, t }),
    ]
}

fn any_fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (
            (any_fence(), any_fence()),
            any::<u128>(),
            (any_count(), any_count()),
            option::of(any_instant()),
            any_unsettled()
        )
            .prop_map(
                |(
                    (fence, fences_from),
                    virtual_time,
                    (sequence, dues),
                    forgotten_at,
                    unsettled,
                )| {
                    Fact::Totals {
                        fence,
                        fences_from,
                        virtual_time,
                        sequence,
                        dues,
                        forgotten_at,
                        unsettled,
                    }
                }
            ),
        any_limit().prop_map(Fact::Limit),
        (
            (any_request(), option::of(any_order())),
            any_count(),
            (any_instant(), any_instant()),
            any::<u32>(),
            option::of(any_count()),
            option::of(any::<String>())
        )
            .prop_map(
                |((request, order), sequence, (since, until), passes, due, note)| {
                    Fact::Queued {
                        request,
                        order,
                        sequence,
                        since,
                        until,
                        passes,
                        due,
                        note,
                    }
                }
            ),
        (
            (any_request(), option::of(any_order())),
            (any_instant(), any_instant(), option::of(any_instant())),
            any_count(),
            option::of(any_progress()),
            option::of(any::<String>())
        )
            .prop_map(
                |((request, order), (queued_at, granted_at, until), renewals, progress, note)| {
                    Fact::Granted {
                        request,
                        order,
                        queued_at,
                        granted_at,
                        until,
                        renewals,
                        progress,
                        note,
                    }
                }
            ),
        (
            (any_request(), option::of(any_order())),
            option::of(any_course().prop_map(Box::new)),
            select(&End::ALL[..]),
            any_saying(),
            (any_instant(), option::of(any_instant()), any_instant()),
            option::of(any::<String>())
        )
            .prop_map(
                |(
                    (request, order),
                    course,
                    end,
                    (outcome, exit_code, reason),
                    (queued_at, granted_at, ended_at),
                    note,
                )| Fact::Ended {
                    request,
                    order,
                    course,
                    end,
                    outcome,
                    exit_code,
                    reason,
                    queued_at,
                    granted_at,
                    ended_at,
                    note,
                }
            ),
        (any_label(), vec(any_count(), 0..4))
            .prop_map(|(label, held_ms)| Fact::Class { label, held_ms }),
        (any_label(), any::<u128>()).prop_map(|(label, turn)| Fact::Tenant { label, turn }),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let amount = (any_whole(), any_whole(), any_whole(), any_whole());
    let times = (any_millis(), any_millis());
    let rest = (
        option::of(any_id()),
        option::of(any_whole()),
        option::of(any_whole()),
        option::of(any_fence()),
    );
    (
        any_id(),
        (any_label(), any_label()),
        amount,
        select(&Priority::ALL[..]),
        times,
        rest,
    )
        .prop_map(
            |(
                id,
                (class, tenant),
                (slots, cpu_milli, memory_bytes, gpus),
                priority,
                (ttl, wait),
                (execution_id, cpu_limit_milli, memory_limit_bytes, fence),
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
}

fn any_submission() -> impl Strategy<Value = Submission> {
    (any_request(), any_order()).prop_map(|(booking, order)| Submission { booking, order })
}

fn any_adoption() -> impl Strategy<Value = Adoption> {
    (any_request(), option::of(any_order()), any_isolation()).prop_map(
        |(booking, order, isolation)| Adoption {
            booking,
            order,
            isolation,
        },
    )
}

fn any_order() -> impl Strategy<Value = Order> {
    let times = (any_millis(), any_millis(), any_millis());
    let work = any::<[u8; 32]>().prop_map(Hash);
    (work, option::of(any::<u32>()), times, option::of(any_id())).prop_map(
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

fn any_exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal),
        (option::of(any::<i32>()), option::of(any::<i32>()))
            .prop_map(|(code, signal)| Exit::OutOfMemory { code, signal }),
        Just(Exit::Lost),
        any::<String>().prop_map(Exit::NotStarted),
    ]
}

fn any_started() -> impl Strategy<Value = Option<(Instant, Isolation)>> {
    option::of((any_instant(), any_isolation()))
}

fn any_stopping() -> impl Strategy<Value = Option<(Instant, Cause)>> {
    option::of((any_instant(), select(&Cause::ALL[..])))
}

fn any_progress() -> impl Strategy<Value = Progress> {
    let stage = prop_oneof![
        Just(Stage::Starting),
        Just(Stage::Running),
        any::<u32>().prop_map(Stage::Stopping),
        Just(Stage::Stuck),
    ];
    (stage, (any_started(), any_stopping()), any::<bool>()).prop_map(
        |(stage, (started, stopping), is_adopted)| Progress {
            stage,
            started,
            stopping,
            is_adopted,
        },
    )
}

fn any_course() -> impl Strategy<Value = Course> {
    (
        select(&Verdict::ALL[..]),
        (any_started(), any_stopping()),
        option::of(any::<i32>()),
        (any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(verdict, (started, stopping), signal, (is_out_of_memory, is_adopted))| Course {
                verdict,
                started,
                stopping,
                signal,
                is_out_of_memory,
                is_adopted,
            },
        )
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let scope = || prop_oneof![Just(Scope::Each), any_label().prop_map(Scope::Named)];
    let bound = || {
        prop_oneof![
            any_whole().prop_map(Bound::Exactly),
            any_whole().prop_map(Bound::Percent)
        ]
    };
    let whole = || option::of(any_whole());
    (
        any_name(),
        (option::of(scope()), option::of(scope())),
        (whole(), option::of(bound()), option::of(bound()), whole()),
        (any_whole(), whole()),
        (any_millis(), any_millis()),
        whole(),
    )
        .prop_map(
            |(
                name,
                (class, tenant),
                (slots, cpu, memory, gpus),
                (queue_max, tenant_queue_max),
                (wait_max, ttl_max),
                weight,
            )| Limit {
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
            },
        )
}

/// Outcome and exit code.
fn any_saying() -> impl Strategy<Value = (Option<Outcome>, Option<i32>, Option<String>)> {
    (
        any_outcome(),
        option::of(any::<i32>()),
        option::of(any::<String>()),
    )
}

fn any_outcome() -> impl Strategy<Value = Option<Outcome>> {
    option::of(select(&Outcome::ALL[..]))
}

fn any_isolation() -> impl Strategy<Value = Isolation> {
    select(&Isolation::ALL[..])
}

fn any_fence() -> impl Strategy<Value = Fence> {
    any_whole().prop_map(Fence)
}

/// Any number, most often near the bound where it becomes a string.
fn any_whole() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..3_u64,
        1 => any::<u64>(),
        3 => INTEGER_MAX - 1..INTEGER_MAX + 3,
    ]
}

/// A counter, which never becomes too large.
fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, Just(INTEGER_MAX)]
}

fn any_instant() -> impl Strategy<Value = Instant> {
    any_count().prop_map(Instant::from_ms)
}

fn any_millis() -> impl Strategy<Value = Millis> {
    any_count().prop_map(Millis::from_ms)
}

fn any_id() -> impl Strategy<Value = BookingId> {
    "[A-Za-z0-9._:-]{1,12}".prop_map(|text| BookingId::new(&text).unwrap())
}

fn any_label() -> impl Strategy<Value = Label> {
    "[a-zöß\"\\\\☂𝄞0-9-]{1,12}".prop_map(|text| Label::new(&text).unwrap())
}

fn any_name() -> impl Strategy<Value = ObjectName> {
    "[a-z0-9][a-z0-9.-]{0,10}[a-z0-9]".prop_map(|text| ObjectName::new(&text).unwrap())
}
