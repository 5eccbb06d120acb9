//! Failures of the transport are repeated within bounds and distinguished.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use bursar_client::Code;
use bursar_client::api::{BookingRequest, RenewRequest};
use bursar_client::client::{
    Address, BearerToken, Client, Error, Mode, Options, TokenError, Transport,
};
use bursar_units::{BookingId, Label};
use serde_json::json;
use tokio::time::Instant;

use crate::fake::{Reply, granted, on_port, on_socket, problem, script, within};

fn id() -> BookingId {
    BookingId::new("job-1").unwrap()
}

async fn reserve(client: &Client) -> Result<u64, Error> {
    let request = BookingRequest::new(Label::new("python").unwrap());
    client
        .reserve(&id(), &request, Mode::Do)
        .await
        .map(|booking| booking.fence.unwrap())
}

#[tokio::test]
async fn calls_over_sockets_and_ports_keep_their_connection() {
    let server = on_socket(|_| granted("job-1", 7));
    let (by_port, log) = on_port(|_| granted("job-1", 8), Options::usual()).await;
    for _ in 0..3 {
        assert_eq!(reserve(&server.client).await.unwrap(), 7);
        assert_eq!(reserve(&by_port).await.unwrap(), 8);
    }
    assert_eq!(*server.connections.lock().unwrap(), 1);
    assert_eq!(log.all()[0].line, "PUT /v1/bookings/job-1");
    assert!(
        log.all()[0]
            .header("host")
            .unwrap()
            .starts_with("127.0.0.1:")
    );
}

#[tokio::test]
async fn a_call_without_an_answer_is_repeated_with_the_same_id() {
    let server = on_socket(script([Reply::Vanish, Reply::Vanish, granted("job-1", 7)]));
    assert_eq!(reserve(&server.client).await.unwrap(), 7);
    let seen = server.log.all();
    assert_eq!(seen.len(), 3);
    assert!(
        seen.iter()
            .all(|call| call.line == seen[0].line && call.body == seen[0].body)
    );
}

#[tokio::test]
async fn a_call_with_an_incomplete_answer_is_repeated() {
    let part = Reply::Part(r#"{"id": "job-1", "sta"#.to_owned());
    let server = on_socket(script([part, granted("job-1", 7)]));
    assert_eq!(reserve(&server.client).await.unwrap(), 7);
}

#[tokio::test]
async fn a_closed_kept_connection_is_replaced() {
    let closing = Reply::Close(json!({"id": "job-1", "state": "granted", "fence": 1}));
    let server = on_socket(move |_| closing.clone());
    for _ in 0..3 {
        assert_eq!(reserve(&server.client).await.unwrap(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_absent_server_is_an_error_at_once() {
    let before = Instant::now();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.sock");
    let address: Address = format!("unix:{}", path.display()).parse().unwrap();
    let error = reserve(&Client::new(Transport::to(address), Options::usual()))
        .await
        .unwrap_err();
    assert!(matches!(&error, Error::Unreachable { tried, .. } if tried.ends_with("none.sock")));
    assert_eq!((error.exit_code(), before.elapsed()), (3, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_busy_server_is_repeated_after_the_requested_pause() {
    let busy = serde_json::to_value(bursar_client::Problem::new(Code::Busy, "full")).unwrap();
    let busy = Reply::JsonWith(503, "retry-after", "3", busy);
    let (client, log) = within(script([busy, granted("job-1", 7)]));
    let before = Instant::now();
    assert_eq!(reserve(&client).await.unwrap(), 7);
    assert!(before.elapsed() >= Duration::from_secs(3) && log.all().len() == 2);
}

#[tokio::test(start_paused = true)]
async fn only_temporary_errors_are_repeated() {
    for code in Code::ALL {
        let (client, log) = within(script([problem(*code), granted("job-1", 7)]));
        let answer = reserve(&client).await;
        let repeats = matches!(
            code,
            Code::Busy
                | Code::Unavailable
                | Code::NotLeader
                | Code::OutcomeUnknown
                | Code::SlowDown
        );
        assert_eq!(
            (answer.is_ok(), log.all().len()),
            (repeats, 1 + usize::from(repeats)),
            "{code}"
        );
        if let Err(error) = answer {
            assert_eq!(error.problem().unwrap().code, *code);
            assert_eq!(error.exit_code(), code.page().exit);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repeats_have_an_end() {
    let (client, log) = within(|_| problem(Code::Unavailable));
    let error = reserve(&client).await.unwrap_err();
    assert_eq!(
        (error.problem().unwrap().code, log.all().len()),
        (Code::Unavailable, 6)
    );
    let (client, log) = within(|_| Reply::Vanish);
    assert!(matches!(reserve(&client).await, Err(Error::Lost { .. })));
    assert_eq!(log.all().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn repeats_end_with_the_timeout_of_the_call() {
    let later = json!({"type": "/problems/busy", "title": "x", "status": 503, "code": "busy", "retryAfterMs": 60_000});
    let (client, log) = within(move |_| Reply::Json(503, later.clone()));
    let before = Instant::now();
    assert_eq!(
        reserve(&client).await.unwrap_err().problem().unwrap().code,
        Code::Busy
    );
    assert!(before.elapsed() < Duration::from_secs(30) && log.all().len() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_with_its_timeout() {
    let (client, _) = within(|_| Reply::Hang);
    let before = Instant::now();
    let error = reserve(&client).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && error.exit_code() == 3);
    assert_eq!(before.elapsed().as_secs(), 30);
    let before = Instant::now();
    assert!(
        client
            .booking_wait(&id(), Duration::from_secs(20))
            .await
            .is_err()
    );
    assert_eq!(before.elapsed().as_secs(), 50);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_server_is_an_error() {
    for reply in [
        Reply::Text(200, "<html>hello</html>"),
        Reply::Text(502, "bad gateway"),
        Reply::Json(200, json!({"id": "job-1"})),
    ] {
        let (client, log) = within(move |_| reply.clone());
        let renewal = RenewRequest {
            fence: 1,
            ttl_ms: None,
        };
        let error = client.renew(&id(), &renewal, Mode::Do).await.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
        assert_eq!(log.all().len(), 1);
    }
}

#[tokio::test]
async fn a_token_is_sent_and_never_shown() {
    let token = BearerToken::new("s3cret").unwrap();
    assert!(!format!("{token:?}").contains("s3cret"));
    let options = Options {
        token: Some(token),
        ..Options::usual()
    };
    let (client, log) = on_port(|_| granted("job-1", 7), options).await;
    reserve(&client).await.unwrap();
    assert_eq!(log.all()[0].header("authorization"), Some("Bearer s3cret"));
    assert!(BearerToken::new("").is_none() && BearerToken::new("a b").is_none());
    assert!(BearerToken::new("a\r\nb").is_none());
}

#[test]
fn a_token_file_that_others_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.token");
    assert!(matches!(
        BearerToken::from_file(&path),
        Err(TokenError::Read { .. })
    ));
    std::fs::write(&path, "s3cret\n").unwrap();
    for (mode, is_good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(BearerToken::from_file(&path).is_ok(), is_good, "{mode:o}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, "two words").unwrap();
    assert!(matches!(
        BearerToken::from_file(&path),
        Err(TokenError::Form { .. })
    ));
}

#[test]
fn addresses_are_read_and_written() {
    for (text, written) in [
        ("http://127.0.0.1:7171", "http://127.0.0.1:7171"),
        ("http://lab.example/", "http://lab.example:7171"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("unix:/run/bursar/api.sock", "unix:/run/bursar/api.sock"),
        ("unix:///run/bursar/api.sock", "unix:/run/bursar/api.sock"),
    ] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), written);
    }
    for text in [
        "",
        "lab",
        "lab:7171",
        "ftp://lab",
        "http://",
        "http://lab/v1",
        "http://a@lab",
        "unix:",
        "http://lab:99999",
    ] {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
    assert!(
        "https://lab"
            .parse::<Address>()
            .unwrap_err()
            .to_string()
            .contains("TLS")
    );
}
