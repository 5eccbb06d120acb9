//! Scripted servers: in this process on virtual time, or on real sockets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bursar_client::client::{AnswerBody, BoxError, Client, Options, Transport};
use bursar_client::{Code, Problem};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};
use tokio::net::{TcpListener, UnixListener};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// Reaction of the server to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers.
    Json(u16, Value),
    /// Answers with a header.
    JsonWith(u16, &'static str, &'static str, Value),
    /// Answers with any text.
    Text(u16, &'static str),
    /// Sends a part of a body, then closes the socket, or ends the stream (in process).
    Part(String),
    /// Closes the connection without an answer.
    Vanish,
    /// Answers and closes the connection.
    Close(Value),
    /// Never answers.
    Hang,
}

/// Requests so far.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Received>>>);

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Log {
    pub(crate) fn all(&self) -> Vec<Received> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.all().into_iter().map(|seen| seen.line).collect()
    }

    fn push(&self, seen: Received) {
        self.0.lock().unwrap().push(seen);
    }
}

/// A problem as the server sends it.
pub(crate) fn problem(code: Code) -> Reply {
    Reply::Json(
        code.status(),
        serde_json::to_value(Problem::new(code, "no")).unwrap(),
    )
}

/// A granted booking.
pub(crate) fn granted(id: &str, fence: u64) -> Reply {
    Reply::Json(201, json!({"id": id, "state": "granted", "fence": fence}))
}

/// Replies in order; the last is repeated.
pub(crate) fn script(
    replies: impl IntoIterator<Item = Reply>,
) -> impl Fn(&Received) -> Reply + Send + Sync {
    let left = Mutex::new(replies.into_iter().collect::<VecDeque<_>>());
    move |_| {
        let mut left = left.lock().unwrap();
        if left.len() > 1 {
            left.pop_front().unwrap()
        } else {
            left[0].clone()
        }
    }
}

/// A client of a server in this process.
pub(crate) fn within(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> (Client, Log) {
    let log = Log::default();
    let (reply, seen_by) = (Arc::new(reply), log.clone());
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let (reply, log) = (Arc::clone(&reply), seen_by.clone());
        async move {
            let seen = received(request).await;
            log.push(seen.clone());
            answer(reply(&seen)).await
        }
    });
    (
        Client::new(Transport::within(service), Options::usual()),
        log,
    )
}

async fn received(request: Request<Full<Bytes>>) -> Received {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
    Received {
        line: format!("{} {}", head.method, head.uri),
        headers: head
            .headers
            .iter()
            .map(|(k, v)| (k.to_string(), text(v)))
            .collect(),
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
    }
}

async fn answer(reply: Reply) -> Result<Response<AnswerBody>, BoxError> {
    let mut response = Response::builder();
    let (status, body) = match reply {
        Reply::Json(status, value) => (status, value.to_string()),
        Reply::JsonWith(status, name, value, body) => {
            response = response.header(name, value);
            (status, body.to_string())
        }
        Reply::Text(status, text) => (status, text.to_owned()),
        Reply::Part(text) => (200, text),
        Reply::Close(value) => (200, value.to_string()),
        Reply::Vanish => return Err("the connection was reset".into()),
        Reply::Hang => std::future::pending().await,
    };
    let body = Full::new(Bytes::from(body))
        .map_err(|never| match never {})
        .boxed_unsync();
    Ok(response.status(status).body(body).unwrap())
}

/// A client of a server on a Unix socket, which counts its connections.
pub(crate) struct OnSocket {
    pub(crate) client: Client,
    pub(crate) log: Log,
    pub(crate) connections: Arc<Mutex<u32>>,
    _directory: tempfile::TempDir,
}

pub(crate) fn on_socket(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> OnSocket {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (log, connections) = (Log::default(), Arc::new(Mutex::new(0)));
    let (reply, seen_by, counter) = (Arc::new(reply), log.clone(), Arc::clone(&connections));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *counter.lock().unwrap() += 1;
            tokio::spawn(serve(stream, Arc::clone(&reply), seen_by.clone()));
        }
    });
    let address = format!("unix:{}", path.display()).parse().unwrap();
    let client = Client::new(Transport::to(address), Options::usual());
    OnSocket {
        client,
        log,
        connections,
        _directory: directory,
    }
}

/// A client of a server on a port of its own.
pub(crate) async fn on_port(
    reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    options: Options,
) -> (Client, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let log = Log::default();
    let (reply, seen_by) = (Arc::new(reply), log.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&reply), seen_by.clone()));
        }
    });
    (Client::new(Transport::to(address), options), log)
}

/// HTTP by hand, because a real server cannot be made to fail like this.
async fn serve<T, F>(stream: T, reply: Arc<F>, log: Log) -> Option<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Fn(&Received) -> Reply,
{
    let mut stream = BufReader::new(stream);
    loop {
        let seen = read_request(&mut stream).await?;
        log.push(seen.clone());
        let (status, header, body) = match reply(&seen) {
            Reply::Json(status, value) => (status, String::new(), value.to_string()),
            Reply::JsonWith(status, name, value, body) => {
                (status, format!("{name}: {value}\r\n"), body.to_string())
            }
            Reply::Text(status, text) => (status, String::new(), text.to_owned()),
            Reply::Close(value) => {
                write(&mut stream, 200, "", &value.to_string()).await?;
                return None;
            }
            Reply::Part(text) => {
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
                stream.write_all(head.as_bytes()).await.ok()?;
                stream.write_all(text.as_bytes()).await.ok()?;
                return None;
            }
            Reply::Vanish => return None,
            Reply::Hang => std::future::pending().await,
        };
        write(&mut stream, status, &header, &body).await?;
    }
}

async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    header: &str,
    body: &str,
) -> Option<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status} x\r\n{header}content-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.ok()
}

async fn read_request(stream: &mut BufReader<impl AsyncRead + Unpin>) -> Option<Received> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: Vec<_> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(key, value)| (key.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(key, _)| key == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    let line = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
    Some(Received {
        line,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}
