//! A stream reconnects without loss and without repeats.

use bursar_client::Code;
use bursar_client::api::StreamEvents;
use bursar_client::client::{EventStream, StreamItem};

use crate::fake::{Reply, on_socket, problem, script, within};

fn event(record: u64, index: u64) -> String {
    let at = "2026-11-16T10:00:00.000Z";
    format!(
        "id: {record}.{index}\nevent: booking.granted\n\
         data: {{\"at\":\"{at}\",\"object\":\"booking/a\",\n\
         data:  \"summary\":\"a was granted\"}}\n\n"
    )
}

/// The next `count` events, as `record.index`; interruptions are skipped.
async fn ids(stream: &mut EventStream, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        match stream.next().await.unwrap() {
            StreamItem::Event { id, name, event } => {
                assert_eq!(
                    (name.as_str(), event.object.as_str()),
                    ("booking.granted", "booking/a")
                );
                ids.push(id.to_string());
            }
            StreamItem::Passing { name, event } => {
                assert_eq!(event.object, "pod/web");
                ids.push(name);
            }
            StreamItem::Reset => ids.push("reset".to_owned()),
            StreamItem::Interrupted(_) => {}
        }
    }
    ids
}

#[tokio::test(start_paused = true)]
async fn a_stream_resumes_after_its_last_event() {
    let (client, log) = within(script([
        Reply::Part(format!(
            ": hello\n\n{}{}id: 5.0\ndata: cut o",
            event(3, 0),
            event(3, 1)
        )),
        problem(Code::Busy),
        Reply::Vanish,
        Reply::Part(event(4, 0)),
        Reply::Hang,
    ]));
    let filter = StreamEvents {
        kinds: Some("booking".to_owned()),
        ns: None,
        tenant: None,
        from: Some(3),
    };
    let mut stream = client.events(&filter).await.unwrap();
    assert_eq!(ids(&mut stream, 3).await, ["3.0", "3.1", "4.0"]);
    let seen = log.all();
    let resumed: Vec<_> = seen
        .iter()
        .map(|call| call.header("last-event-id"))
        .collect();
    assert_eq!(resumed, [None, Some("3.1"), Some("3.1"), Some("3.1")]);
    assert_eq!(seen[3].line, "GET /v1/events?kinds=booking&from=3");
}

#[tokio::test(start_paused = true)]
async fn a_live_only_event_does_not_move_the_position() {
    let resized = event(0, 0)
        .replace("id: 0.0\n", "")
        .replace("booking.granted", "pod.resized")
        .replace("booking/a", "pod/web");
    let (client, log) = within(script([
        Reply::Part(format!("{resized}{}{resized}", event(3, 0))),
        Reply::Part(event(4, 0)),
        Reply::Hang,
    ]));
    let mut stream = client.events(&StreamEvents::default()).await.unwrap();
    assert_eq!(
        ids(&mut stream, 4).await,
        ["pod.resized", "3.0", "pod.resized", "4.0"]
    );
    assert_eq!(log.all()[1].header("last-event-id"), Some("3.0"));
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_returned_and_moves_the_position() {
    let reset = "id: 9.0\nevent: reset\ndata: {}\n\n";
    let (client, log) = within(script([
        Reply::Part(format!("{}{reset}", event(3, 0))),
        Reply::Part(event(10, 0)),
        Reply::Hang,
    ]));
    let mut stream = client.events(&StreamEvents::default()).await.unwrap();
    assert_eq!(ids(&mut stream, 3).await, ["3.0", "reset", "10.0"]);
    assert_eq!(log.all()[1].header("last-event-id"), Some("9.0"));
}

#[tokio::test(start_paused = true)]
async fn repeated_events_are_skipped() {
    let (client, _) = within(script([
        Reply::Part(format!("{}{}", event(3, 0), event(3, 1))),
        Reply::Part(format!("{}{}{}", event(3, 0), event(3, 1), event(4, 0))),
        Reply::Hang,
    ]));
    let mut stream = client.events(&StreamEvents::default()).await.unwrap();
    assert_eq!(ids(&mut stream, 3).await, ["3.0", "3.1", "4.0"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_opened_again() {
    let (client, log) = within(script([Reply::Part(event(3, 0)), Reply::Hang]));
    let mut stream = client.events(&StreamEvents::default()).await.unwrap();
    assert_eq!(ids(&mut stream, 1).await, ["3.0"]);
    assert!(matches!(
        stream.next().await.unwrap(),
        StreamItem::Interrupted(_)
    ));
    assert!(matches!(
        stream.next().await.unwrap(),
        StreamItem::Interrupted(_)
    ));
    assert!(log.all().len() >= 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_is_an_error() {
    let (client, _) = within(|_| problem(Code::NotAllowed));
    assert_eq!(
        client
            .events(&StreamEvents::default())
            .await
            .err()
            .unwrap()
            .exit_code(),
        1
    );
    let (client, _) = within(script([
        Reply::Part(event(3, 0)),
        problem(Code::Unauthenticated),
    ]));
    let mut stream = client.events(&StreamEvents::default()).await.unwrap();
    assert_eq!(ids(&mut stream, 1).await, ["3.0"]);
    assert!(stream.next().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_revoked_token_ends_with_the_reason() {
    let signed_out = "event: signed-out\ndata: {\"code\":\"unauthenticated\"}\n\n";
    let (client, log) = within(script([
        Reply::Part(format!("{}{signed_out}", event(3, 0))),
        problem(Code::Unauthenticated),
    ]));
    let mut stream = client.events(&StreamEvents::default()).await.unwrap();
    assert_eq!(ids(&mut stream, 1).await, ["3.0"]);
    let error = stream.next().await.unwrap_err();
    let problem = error.problem().map(|problem| problem.code);
    assert_eq!(problem, Some(Code::Unauthenticated), "{error}");
    assert_eq!(log.all().len(), 2);
}

#[tokio::test]
async fn a_connection_that_breaks_in_an_event_loses_nothing() {
    let broken = format!("{}{}", event(3, 0), &event(3, 1)[..40]);
    let server = on_socket(script([Reply::Part(broken), Reply::Part(event(3, 1))]));
    let mut stream = server
        .client
        .events(&StreamEvents::default())
        .await
        .unwrap();
    assert_eq!(ids(&mut stream, 2).await, ["3.0", "3.1"]);
}
