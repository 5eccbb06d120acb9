//! Catching signals of this process, and the set of signals it ignores, for example under `nohup`.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::{Failure, Stop};

pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

/// The signals that this process ignores, a bit for each.
#[derive(Clone, Copy)]
pub(super) struct Ignored(u64);

impl Signals {
    pub(super) fn catch(signals: impl IntoIterator<Item = Signal>) -> Result<Self, Stop> {
        let stream = |signal: Signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok((signal, stream))
        };
        let streams = signals.into_iter().map(stream).collect::<io::Result<_>>();
        let streams = streams
            .map_err(|error| Failure::unavailable(format!("cannot wait for signals: {error}")))?;
        Ok(Self(streams))
    }

    /// Catches the signals that end a server. SIGHUP is one of them, so that limits are restored
    /// when the terminal closes, unless it is ignored, as under `nohup`.
    pub(super) fn that_end() -> Result<Self, Stop> {
        let ignored = Ignored::now();
        let hangup = Some(Signal::HUP).filter(|signal| !ignored.has(*signal));
        Self::catch([Signal::INT, Signal::TERM].into_iter().chain(hangup))
    }

    /// The next signal. Cancellation-safe: no signal is lost.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Ignored {
    /// The signals ignored now; none if `/proc` cannot be read.
    pub(super) fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::read(&status)
    }

    pub(super) fn has(self, signal: Signal) -> bool {
        let index = u32::try_from(signal.as_raw() - 1).ok();
        let bit = index.and_then(|index| 1_u64.checked_shl(index));
        bit.is_some_and(|bit| self.0 & bit != 0)
    }

    fn read(status: &str) -> Self {
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Self(mask.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::Ignored;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let ignored = Ignored::read("Name:\tbursar\nSigBlk:\tffff\nSigIgn:\t0000000000001001\n");
        assert!(ignored.has(Signal::HUP) && ignored.has(Signal::PIPE));
        assert!(!ignored.has(Signal::INT) && !ignored.has(Signal::TERM));
        assert_eq!(Ignored::read("nothing of the kind").0, 0);
    }
}
