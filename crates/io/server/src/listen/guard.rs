//! Timeouts of a connection: for the head of a request, between requests, for a client that does
//! not read an answer, and for an answer whose caller's token has ended.
//!
//! Each connection checks them every [`CHECK_EVERY`], so a request costs a few plain stores and no
//! timer. Bodies have their timeout where they are read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::right::Lasting;

const CHECK_EVERY: Duration = Duration::from_secs(5);
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Idle time allowed between requests.
const REST_WITHIN: Duration = Duration::from_mins(5);
/// Time in which a client must read something of an answer.
const STALL_WITHIN: Duration = Duration::from_secs(30);

/// Timers of a connection, in milliseconds since it began, plus one; 0 means not running.
pub(super) struct Guard {
    begun: Instant,
    head_since: AtomicU64,
    rest_since: AtomicU64,
    stalled_since: AtomicU64,
    /// The latest lasting answer; a connection has one answer at a time.
    lasting: watch::Sender<Option<Lasting>>,
}

/// A stream that reports its reads and writes to a [`Guard`].
pub(super) struct Guarded<S> {
    stream: S,
    guard: Arc<Guard>,
}

impl Guard {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            head_since: AtomicU64::new(0),
            rest_since: AtomicU64::new(1),
            stalled_since: AtomicU64::new(0),
            lasting: watch::Sender::new(None),
        })
    }

    /// Stops the timers: the head is complete, and the client waits for the server.
    pub(super) fn request_began(&self) {
        self.head_since.store(0, Ordering::Relaxed);
        self.rest_since.store(0, Ordering::Relaxed);
    }

    pub(super) fn request_ended(&self) {
        self.rest_since.store(self.now(), Ordering::Relaxed);
    }

    pub(super) fn answer_lasts(&self, lasting: Lasting) {
        self.lasting.send_replace(Some(lasting));
    }

    /// Resolves when a timeout of the connection has passed.
    pub(super) async fn timed_out(&self) {
        tokio::select! {
            () = self.client_timed_out() => {}
            () = self.overrun() => {}
        }
    }

    /// Resolves when an answer continues after its caller's token has ended.
    async fn overrun(&self) {
        let mut answers = self.lasting.subscribe();
        loop {
            let lasting = answers.borrow_and_update().clone();
            let overrun = async {
                match lasting {
                    Some(lasting) => lasting.overrun().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = overrun => return,
                _next = answers.changed() => {}
            }
        }
    }

    async fn client_timed_out(&self) {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let now = self.now();
            let is_over = |since: &AtomicU64, within: Duration| {
                let since = since.load(Ordering::Relaxed);
                since != 0 && Duration::from_millis(now.saturating_sub(since)) >= within
            };
            if is_over(&self.head_since, HEAD_WITHIN)
                || is_over(&self.stalled_since, STALL_WITHIN)
                || is_over(&self.rest_since, REST_WITHIN)
            {
                return;
            }
        }
    }

    fn now(&self) -> u64 {
        let elapsed = self.begun.elapsed().as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Starts the head's timer if no request is being answered.
    fn read_some(&self) {
        let is_resting = self.rest_since.load(Ordering::Relaxed) != 0;
        if is_resting && self.head_since.load(Ordering::Relaxed) == 0 {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    fn wrote<T>(&self, polled: Poll<T>) -> Poll<T> {
        if polled.is_ready() {
            self.stalled_since.store(0, Ordering::Relaxed);
            // A connection that is still being written is not idle.
            if self.rest_since.load(Ordering::Relaxed) != 0 {
                self.rest_since.store(self.now(), Ordering::Relaxed);
            }
        } else if self.stalled_since.load(Ordering::Relaxed) == 0 {
            self.stalled_since.store(self.now(), Ordering::Relaxed);
        }
        polled
    }
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, guard: Arc<Guard>) -> Self {
        Self { stream, guard }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.guard.read_some();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.guard.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.guard.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::{Instant, timeout};

    use super::{Guard, Guarded};

    /// Returns how long a connection with this client lives, rounded up to the next check.
    async fn kept(what: impl AsyncFn(&mut Guarded<tokio::io::DuplexStream>, &Guard)) -> Duration {
        let (mut far, near) = tokio::io::duplex(8);
        let guard = Guard::new();
        let mut near = Guarded::new(near, guard.clone());
        let begun = Instant::now();
        let _full = timeout(Duration::from_millis(1), far.write_all(b"GET / HT")).await;
        what(&mut near, &guard).await;
        guard.timed_out().await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_closed_at_its_timeout() {
        let head = kept(async |near, _| {
            near.read_u8().await.ok();
        });
        assert_eq!(head.await.as_secs(), 10, "half a head");
        let rest = kept(async |_, guard| {
            guard.request_began();
            guard.request_ended();
        });
        assert_eq!(rest.await.as_secs(), 300, "silence between requests");
        let stalled = kept(async |near, guard| {
            guard.request_began();
            let _full = timeout(Duration::from_millis(1), near.write_all(&[0; 64])).await;
        });
        assert_eq!(stalled.await.as_secs(), 30, "an answer that nobody reads");
        let streaming = async {
            let (far, near) = tokio::io::duplex(1 << 20);
            let guard = Guard::new();
            let mut near = Guarded::new(near, guard.clone());
            guard.request_ended();
            let write = async {
                loop {
                    tokio::time::sleep(Duration::from_secs(15)).await;
                    near.write_all(b": alive\n\n").await.ok();
                }
            };
            tokio::select! {
                () = guard.timed_out() => drop(far),
                () = write => {}
            }
        };
        assert!(
            timeout(Duration::from_hours(1), streaming).await.is_err(),
            "a quiet stream is kept"
        );
        let working = kept(async |_, guard| guard.request_began());
        assert!(
            timeout(Duration::from_hours(1), working).await.is_err(),
            "a slow server does not close"
        );
    }
}
