//! Real connections: TCP and the socket, slow and vanished clients, floods, and the stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bursar_server::Anonymous;
use bursar_server::listen::{Error, Listen, Listening};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::World;

/// A server on a free port and a socket.
struct Server {
    address: SocketAddr,
    socket: PathBuf,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
    world: World,
    _directory: tempfile::TempDir,
}

impl Server {
    async fn start(connections_max: Option<usize>) -> Self {
        let world = World::threaded();
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("api.sock");
        let listen = Listen {
            tcp: Some("127.0.0.1:0".parse().unwrap()),
            socket: Some(socket.clone()),
            anonymous: Anonymous::Read,
            connections_max,
        };
        let listening = Listening::bind(world.service.clone(), &listen)
            .await
            .unwrap();
        let address = listening.address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(listening.serve(async {
            let _ = stopped.await;
        }));
        Self {
            address,
            socket,
            stop,
            ended,
            world,
            _directory: directory,
        }
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Sends one request and reads the whole answer.
async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    // The server may close before the whole request is written.
    let _closed = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn loopback_may_read_and_the_socket_knows_its_user() {
    let server = Server::start(None).await;
    let answer = talk(server.tcp().await, &request("GET", "/v1/bookings", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let body = r#"{"class":"python"}"#;
    let refused = talk(server.tcp().await, &request("PUT", "/v1/bookings/a", body)).await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let socket = UnixStream::connect(&server.socket).await.unwrap();
    let granted = talk(socket, &request("PUT", "/v1/bookings/a", body)).await;
    assert!(granted.starts_with("HTTP/1.1 201"), "{granted}");
    let socket = UnixStream::connect(&server.socket).await.unwrap();
    let identity = talk(socket, &request("GET", "/v1/identity", "")).await;
    assert!(
        identity.contains(r#""via":"socket""#) && identity.contains("operate"),
        "{identity}"
    );
}

#[tokio::test]
async fn requests_may_be_pipelined_and_are_answered_in_order() {
    let server = Server::start(None).await;
    let one = "GET /v1/limits/default HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let two = "GET /v1/limits/none HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let answers = talk(
        server.tcp().await,
        &format!("{one}{two}{}", request("GET", "/healthz", "")),
    )
    .await;
    let status: Vec<&str> = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| &answer[..3])
        .collect();
    assert_eq!(status, ["200", "404", "200"], "{answers}");
}

#[tokio::test]
async fn connections_over_the_limit_are_answered_busy_and_open_ones_continue() {
    let server = Server::start(Some(4)).await;
    let mut inside = Vec::new();
    for _ in 0..4 {
        let mut stream = server.tcp().await;
        // After one answer it is certainly counted.
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        stream.read_u8().await.unwrap();
        inside.push(stream);
    }
    for _ in 0..40 {
        let answer = talk(server.tcp().await, &request("GET", "/healthz", "")).await;
        assert!(
            answer.is_empty()
                || (answer.starts_with("HTTP/1.1 503") && answer.contains(r#""code":"busy""#)),
            "{answer}"
        );
    }
    let answer = talk(server.tcp().await, &request("GET", "/healthz", "")).await;
    assert!(answer.contains("retry-after: 1"), "{answer}");
    drop(inside.pop());
    // The connection is free when the server has seen its end; until then the answer is `busy`.
    let in_again = async {
        while !talk(server.tcp().await, &request("GET", "/healthz", ""))
            .await
            .starts_with("HTTP/1.1 200")
        {}
    };
    tokio::time::timeout(Duration::from_secs(10), in_again)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_request_of_a_vanished_client_is_still_done() {
    let server = Server::start(Some(2)).await;
    for n in 0..20 {
        let body = r#"{"class":"python"}"#;
        let path = format!("/v1/bookings/job-{n}");
        let in_time = async {
            loop {
                let mut socket = UnixStream::connect(&server.socket).await.unwrap();
                if socket
                    .write_all(request("PUT", &path, body).as_bytes())
                    .await
                    .is_ok()
                {
                    drop(socket);
                }
                if server.world.ask("GET", &path, "").await.status == 200 {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), in_time)
            .await
            .unwrap();
    }
}

/// Method: the only allowed connection requests more than its socket buffers, reads one byte, and
/// its token is revoked. No other connection is accepted until it is closed.
#[tokio::test]
async fn an_answer_that_is_not_read_ends_with_its_token() {
    for path in ["/v1/events?from=0", "/v1/ledger/export"] {
        let server = Server::start(Some(1)).await;
        fill(&server.world).await;
        let token = r#"{"name":"app","roles":["operate"]}"#;
        let token = server.world.ask("POST", "/v1/tokens", token).await.json();
        let secret = token["secret"].as_str().unwrap();
        let mut socket = UnixStream::connect(&server.socket).await.unwrap();
        let asked = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {secret}\r\n\r\n"
        );
        socket.write_all(asked.as_bytes()).await.unwrap();
        socket.read_u8().await.unwrap();
        full(&socket).await;
        let revoked = server.world.ask("DELETE", "/v1/tokens/app", "").await;
        assert_eq!(revoked.status, 200, "{revoked:?}");
        let closed = async {
            while !talk(server.tcp().await, &request("GET", "/healthz", ""))
                .await
                .starts_with("HTTP/1.1 200")
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // One second, and time for a busy machine; stalled clients are closed after 30 s anyway.
        let closed = tokio::time::timeout(Duration::from_secs(10), closed).await;
        assert!(closed.is_ok(), "{path}");
        let mut rest = Vec::new();
        let _reset = socket.read_to_end(&mut rest).await;
        let rest = String::from_utf8_lossy(&rest);
        // Aborted in the middle, because the socket had no room for a last message.
        assert!(!rest.contains("signed-out") && !rest.ends_with("\r\n0\r\n\r\n"));
    }
}

/// Writes more records than a socket buffers.
async fn fill(world: &World) {
    for batch in 0..4 {
        let operation = |n: u32| {
            let of = batch * 100 + n / 10;
            format!(
                r#"{{"op":"reserve","id":"job-{batch}-{n}","class":"c-{of}","tenant":"t-{of}"}}"#
            )
        };
        let operations: Vec<String> = (0..1_000).map(operation).collect();
        let body = format!(r#"{{"operations":[{}]}}"#, operations.join(","));
        let answer = world.ask("POST", "/v1/bookings", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Waits until the receive buffer of a socket is full.
async fn full(socket: &UnixStream) {
    let (mut waiting, mut same) = (0, 0);
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = rustix::io::ioctl_fionread(socket).unwrap();
        same = if now == waiting && 0 < now {
            same + 1
        } else {
            0
        };
        waiting = now;
    }
}

#[tokio::test]
async fn a_garbled_head_is_refused_and_the_server_continues() {
    let server = Server::start(None).await;
    for garbage in [
        "GET\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n\r\n",
        "GET / HTTP/9\r\n\r\n",
        "PUT /v1/bookings/a HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ] {
        let answer = talk(server.tcp().await, garbage).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{garbage:?}: {answer}"
        );
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    let answer = talk(server.tcp().await, &long).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    assert!(
        talk(server.tcp().await, &request("GET", "/readyz", ""))
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn a_stop_ends_streams_removes_the_socket_and_finishes_requests() {
    let server = Server::start(None).await;
    let mut stream = server.tcp().await;
    stream
        .write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    stream.read_u8().await.unwrap();
    server.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(4), server.ended)
        .await
        .unwrap()
        .unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(!server.socket.exists());
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
    let server = Server::start(None).await;
    let listen = Listen {
        tcp: None,
        socket: Some(server.socket.clone()),
        anonymous: Anonymous::None,
        connections_max: None,
    };
    let world = World::threaded();
    let second = Listening::bind(world.service.clone(), &listen).await;
    assert!(matches!(second, Err(Error::SocketInUse { .. })));
    let directory = tempfile::tempdir().unwrap();
    let left_over = directory.path().join("api.sock");
    drop(std::os::unix::net::UnixListener::bind(&left_over).unwrap());
    assert!(left_over.exists());
    let listen = Listen {
        socket: Some(left_over),
        ..listen
    };
    assert!(
        Listening::bind(world.service.clone(), &listen)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn only_loopback_is_served_without_tokens() {
    let world = World::threaded();
    let listen = Listen {
        tcp: Some("0.0.0.0:0".parse().unwrap()),
        socket: None,
        anonymous: Anonymous::Read,
        connections_max: None,
    };
    let refused = Listening::bind(world.service.clone(), &listen).await;
    assert!(matches!(refused, Err(Error::NoTokens { .. })));
    world
        .ask("POST", "/v1/tokens", r#"{"name":"t","roles":["view"]}"#)
        .await;
    assert!(
        Listening::bind(world.service.clone(), &listen)
            .await
            .is_ok()
    );
}
