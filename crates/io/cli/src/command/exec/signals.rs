//! The signals that pass on to the program.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// All that pass on. Stopping and going on are left to the terminal, which tells the whole group.
const PASSED: [Signal; 7] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::WINCH,
    Signal::USR1,
    Signal::USR2,
];

/// Signals of this process.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Catches what passes on, from now on. What this process was told to ignore, as `nohup`
    /// does, stays ignored here and in the program.
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let heard = PASSED.into_iter().filter(|signal| !is_in(*signal, ignored));
        let streams = heard.map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok((signal, stream))
        });
        Ok(Self(streams.collect::<io::Result<_>>()?))
    }

    /// The next one. May be dropped and called again: nothing is lost.
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

    /// The next one that ends what nobody attends to.
    pub(super) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal != Signal::WINCH {
                return signal;
            }
        }
    }
}

/// The exit code of what a signal ended.
pub(super) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX)
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    // Where the system does not tell, nothing is ignored, as is usual.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status)
}

fn ignored_in(status: &str) -> u64 {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default()
}

fn is_in(signal: Signal, mask: u64) -> bool {
    let place = u32::try_from(signal.as_raw() - 1).ok();
    let bit = place.and_then(|place| 1_u64.checked_shl(place));
    bit.is_some_and(|bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::{exit_code, ignored_in, is_in};

    #[test]
    fn ignored_signals_are_read_from_what_the_system_says() {
        let mask = ignored_in("Name:\tbursar\nSigBlk:\tffff\nSigIgn:\t0000000000001001\n");
        assert!(is_in(Signal::HUP, mask) && is_in(Signal::PIPE, mask));
        assert!(!is_in(Signal::INT, mask) && !is_in(Signal::TERM, mask));
        assert_eq!(ignored_in("nothing of the kind"), 0);
    }

    #[test]
    fn a_signal_is_told_as_shells_do() {
        assert_eq!((exit_code(2), exit_code(15)), (130, 143));
    }
}
