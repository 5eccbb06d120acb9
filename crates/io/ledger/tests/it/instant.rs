//! The order within one instant: deadlines before it, results of executors, deadlines at it, the other
//! commands (L1).
//!
//! Method: the writer is stepped over an intake that was filled before; its records tell the order.

use bursar_engine::booking::execution::{Exit, Isolation, Order};
use bursar_engine::booking::{self, Request, Submission as Execution};
use bursar_engine::{Command, State, decide, spine};
use bursar_journal::hash::sha256;
use bursar_ledger::clock::Moment;
use bursar_ledger::intake::{Intake, Submission};
use bursar_ledger::writer::Writer;
use bursar_units::{BookingId, Instant, Label, Millis};

const MORNING: u64 = 1_794_823_200_000;
/// How long an execution may run.
const MAX_TIME: Millis = Millis::from_secs(10);

fn id(text: &str) -> BookingId {
    BookingId::new(text).unwrap()
}

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn exited(name: &str) -> Command {
    let (id, exit) = (id(name), Exit::Code(0));
    booking::Command::Exited { id, exit }.into()
}

fn cancel(name: &str) -> Command {
    booking::Command::Cancel { id: id(name) }.into()
}

fn reserve(name: &str) -> Command {
    booking::Command::Reserve(Request::new(id(name), label("python"), label("acme"))).into()
}

/// A writer with an execution that runs since `started`.
fn running(name: &str, started: Instant) -> Writer {
    let mut state = State::default();
    let execution = Execution {
        booking: Request::new(id(name), label("python"), label("acme")),
        order: Order {
            work: sha256(b"work"),
            pids: None,
            start_timeout: Millis::from_secs(60),
            max_time: MAX_TIME,
            grace: Millis::from_secs(5),
            retry_of: None,
        },
    };
    let runs = booking::Command::Started {
        id: id(name),
        isolation: Isolation::None,
    };
    let begin = spine::Command::Genesis {
        ledger: "0198f3c2".to_owned(),
        format: bursar_engine::FORMAT,
    };
    let commands = [
        begin.into(),
        booking::Command::Submit(execution).into(),
        runs.into(),
    ];
    for command in commands {
        let mut events = Vec::new();
        decide(&mut state, started, &command, &mut events).unwrap();
        state.spine.head += 1;
    }
    Writer::new(state, decide)
}

/// The kinds of the events that one step at `now` records, with the commands sent in this order.
fn step(writer: &mut Writer, now: Instant, commands: &[Command]) -> Vec<String> {
    let intake = Intake::default();
    for command in commands {
        intake.push(Submission {
            by: label("ada"),
            commands: vec![command.clone()],
            reply: Box::new(drop),
        });
    }
    let moment = Moment {
        now,
        wall: now,
        jumped: false,
    };
    writer.build(&moment, &intake, usize::MAX).unwrap();
    assert!(intake.is_empty(), "everything was decided");
    let batch = writer.close().unwrap_or_default();
    let events = batch.facts.iter().flat_map(|fact| fact.events.iter());
    let kind = |event| {
        let value = serde_json::to_value(event).unwrap();
        let (kind, of) = value.as_object().unwrap().iter().next().unwrap();
        format!("{kind} {}", of["id"].as_str().unwrap_or_default())
    };
    events.map(kind).collect()
}

#[test]
fn a_result_comes_before_a_deadline_at_the_same_instant_and_before_every_other_command() {
    let began = Instant::from_ms(MORNING);
    let mut writer = running("job", began);
    let commands = [reserve("next"), cancel("job"), exited("job")];
    assert_eq!(
        step(&mut writer, began.after(MAX_TIME), &commands),
        ["exited job", "reserved next"],
        "it ended by itself: neither the deadline nor the order to stop finds it"
    );
}

#[test]
fn a_deadline_that_lies_before_the_instant_comes_before_the_result() {
    let began = Instant::from_ms(MORNING);
    let mut writer = running("job", began);
    let late = began.after(MAX_TIME).after(Millis::from_ms(1));
    assert_eq!(
        step(&mut writer, late, &[exited("job")]),
        ["stopping job", "exited job"]
    );
}

#[test]
fn without_a_result_the_deadline_comes_before_the_commands() {
    let began = Instant::from_ms(MORNING);
    let mut writer = running("job", began);
    assert_eq!(
        step(&mut writer, began.after(MAX_TIME), &[reserve("next")]),
        ["stopping job", "reserved next"]
    );
}

/// A command in the form of the journal.
fn written(command: &str) -> Command {
    let record = format!(r#"{{"v":1,"seq":1,"t":0,"by":"ada","cmd":{command},"ev":[]}}"#);
    let record = bursar_engine::codec::decode(1, record.as_bytes(), |_| None);
    record.unwrap().command
}

/// Method: two runs are promised a minute again and again while the server is away for a month.
#[test]
fn a_long_absence_is_made_up_in_several_batches_and_resumed_after_the_last() {
    let began = Instant::from_ms(MORNING);
    let mut writer = running("job", began);
    let labels = r#"{"topology.kubernetes.io/region":"us","bursar.dev/cluster":"w","bursar.dev/domain":"d","bursar.dev/flavor":"h100"}"#;
    let envelope = r#"{"name":"e","flavor":"h100","concurrency":8,"maxGPUHours":1000000,"admissionHorizonMs":60000}"#;
    let run = |name: &str| {
        format!(
            r#"{{"setRun":{{"namespace":"n","name":"{name}","owner":"o","flavor":"h100","totalGPUs":4}}}}"#
        )
    };
    let change = format!(
        r#"{{"change":{{"changes":[{{"setNode":{{"name":"a","cpuMilli":1000,"memoryBytes":1000,"gpus":8,"labels":{labels}}}}},{{"setBudget":{{"namespace":"n","name":"b","owner":"o","envelopes":[{envelope}]}}}},{},{}]}}}}"#,
        run("one"),
        run("two")
    );
    let kinds = step(&mut writer, began, &[written(&change)]);
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| kind.starts_with("leasesOpened"))
            .count(),
        2
    );

    let back = began.after(Millis::from_hours(30 * 24));
    let (mut batches, mut extensions, mut largest, mut resumed) = (0, 0, 0, false);
    while !resumed {
        let moment = Moment {
            now: back,
            wall: back,
            jumped: false,
        };
        let intake = Intake::default();
        writer.build(&moment, &intake, usize::MAX).unwrap();
        let Some(batch) = writer.close() else {
            panic!("a step makes no progress");
        };
        let events = batch.facts.iter().flat_map(|fact| fact.events.iter());
        let values: Vec<_> = events
            .map(|event| serde_json::to_value(event).unwrap())
            .collect();
        extensions += values
            .iter()
            .filter(|value| value["runFunded"]["cause"] == "extension")
            .count();
        resumed = values.iter().any(|value| !value["resumed"].is_null());
        let bytes: usize = batch.records.iter().map(|record| record.bytes.len()).sum();
        largest = largest.max(bytes);
        batches += 1;
    }
    assert_eq!(extensions, 2 * 30 * 24 * 60);
    assert!(batches > 1, "one batch");
    assert!(largest < 5 << 20, "a batch of {largest} bytes");
}
