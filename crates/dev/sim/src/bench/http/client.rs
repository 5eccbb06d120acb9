//! A minimal HTTP client: it writes bytes, reads the status and the body, and searches the body for
//! fences and records. It uses little CPU, so that the server has the rest.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bench::world::{CLASS, Ids, TENANT};

const HEAD_END: &[u8] = b"\r\n\r\n";
const LENGTH: &[u8] = b"content-length: ";
const FENCE: &[u8] = b"\"fence\":";
const RECORD: &[u8] = b"\"record\":";

/// A persistent connection.
pub(in crate::bench) struct Connection {
    stream: TcpStream,
    secret: &'static str,
    request: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    pub(in crate::bench) async fn open(
        address: SocketAddr,
        secret: &'static str,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .context("cannot connect to our server")?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            secret,
            request: Vec::new(),
            received: Vec::new(),
        })
    }

    /// Reserves and releases; returns the number of operations.
    pub(super) async fn pair(&mut self, ids: &Ids) -> anyhow::Result<u64> {
        let id = ids.text(now_ms());
        let body = format!("{{\"class\":\"{CLASS}\",\"tenant\":\"{TENANT}\"}}");
        let path = format!("/v1/bookings/{id}");
        let fences = fences(self.call("PUT", &path, &body, 201).await?);
        let fence = fences.first().context("a grant without a fence")?;
        let body = format!("{{\"fence\":{fence},\"outcome\":\"ok\"}}");
        self.call("POST", &format!("/v1/bookings/{id}/release"), &body, 200)
            .await?;
        Ok(2)
    }

    /// Sends a batch of reserves and a batch of releases; returns the number of operations.
    pub(super) async fn batches(&mut self, ids: &Ids, count: usize) -> anyhow::Result<u64> {
        let now = now_ms();
        let keys: Vec<String> = (0..count).map(|_| ids.text(now)).collect();
        let reserve = |key: &String| {
            format!(
                "{{\"op\":\"reserve\",\"id\":\"{key}\",\"class\":\"{CLASS}\",\"tenant\":\"{TENANT}\"}}"
            )
        };
        let fences = self.batch(keys.iter().map(reserve).collect()).await?;
        if fences.len() != count {
            bail!("{} of {count} bookings were granted", fences.len());
        }
        let release = |(key, fence): (&String, &u64)| {
            format!("{{\"op\":\"release\",\"id\":\"{key}\",\"fence\":{fence},\"outcome\":\"ok\"}}")
        };
        self.batch(keys.iter().zip(&fences).map(release).collect())
            .await?;
        Ok(u64::try_from(count)? * 2)
    }

    async fn batch(&mut self, operations: Vec<String>) -> anyhow::Result<Vec<u64>> {
        let body = format!("{{\"operations\":[{}]}}", operations.join(","));
        Ok(fences(self.call("POST", "/v1/bookings", &body, 200).await?))
    }

    /// Applies a file with one new object; returns the number of its record.
    pub(in crate::bench) async fn create(&mut self, body: &str) -> anyhow::Result<u64> {
        let answer = self.call("POST", "/v1/apply", body, 201).await?;
        number_after(answer, RECORD).context("an answer without a record")
    }

    /// Sends a request, reads its answer, and returns the body.
    async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        expected: u16,
    ) -> anyhow::Result<&[u8]> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: bursar\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.secret,
            body.len()
        );
        self.request.clear();
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body.as_bytes());
        self.stream
            .write_all(&self.request)
            .await
            .context("cannot send a request")?;
        self.received.clear();
        let body_at = self.read_answer().await?;
        let status = number_after(&self.received, b"HTTP/1.1 ");
        if status != Some(u64::from(expected)) {
            bail!(
                "{method} {path}: {}",
                String::from_utf8_lossy(&self.received)
            );
        }
        Ok(self.received.get(body_at..).unwrap_or_default())
    }

    /// Reads one answer and returns the offset of its body.
    async fn read_answer(&mut self) -> anyhow::Result<usize> {
        loop {
            if self
                .stream
                .read_buf(&mut self.received)
                .await
                .context("cannot read an answer")?
                == 0
            {
                bail!("our server closed the connection");
            }
            let Some(head) = find(&self.received, HEAD_END) else {
                continue;
            };
            let body_at = head + HEAD_END.len();
            let length = number_after(self.received.get(..head).unwrap_or_default(), LENGTH);
            let length = length.context("an answer without a length")?;
            let whole = body_at + usize::try_from(length)?;
            while self.received.len() < whole {
                if self.stream.read_buf(&mut self.received).await? == 0 {
                    bail!("our server closed the connection");
                }
            }
            return Ok(body_at);
        }
    }
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

fn fences(body: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(at) = find(rest, FENCE) {
        rest = rest.get(at + FENCE.len()..).unwrap_or_default();
        found.extend(leading_number(rest));
    }
    found
}

fn number_after(text: &[u8], prefix: &[u8]) -> Option<u64> {
    let at = find(text, prefix)?;
    leading_number(text.get(at + prefix.len()..)?)
}

fn leading_number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

/// Offset of `part`. Searches for its first byte first, which the compiler vectorises.
fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    let first = part.first()?;
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = from + rest.iter().position(|byte| byte == first)?;
        if text.get(at..)?.starts_with(part) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{fences, find, number_after};

    #[test]
    fn numbers_are_found_after_their_prefix() {
        assert_eq!(find(b"aab", b"ab"), Some(1));
        assert_eq!(find(b"aab", b"c"), None);
        assert_eq!(find(b"", b"c"), None);
        assert_eq!(
            number_after(b"HTTP/1.1 201 Created", b"HTTP/1.1 "),
            Some(201)
        );
        assert_eq!(
            fences(br#"[{"fence":8},{"x":"fence"},{"fence":13}]"#),
            [8, 13]
        );
    }
}
