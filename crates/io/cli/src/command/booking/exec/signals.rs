//! The signals that pass on to the program.

use rustix::process::Signal;

use crate::command::signals::{self, Ignored};
use crate::failure::Stop;

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
pub(super) struct Signals(signals::Signals);

impl Signals {
    /// Catches what passes on, from now on. What this process was told to ignore, as `nohup`
    /// does, stays ignored here and in the program.
    pub(super) fn listen() -> Result<Self, Stop> {
        let ignored = Ignored::now();
        let heard = PASSED.into_iter().filter(|signal| !ignored.has(*signal));
        Ok(Self(signals::Signals::catch(heard)?))
    }

    /// The next one. May be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Signal {
        self.0.next().await
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

#[cfg(test)]
mod tests {
    use super::exit_code;

    #[test]
    fn a_signal_is_told_as_shells_do() {
        assert_eq!((exit_code(2), exit_code(15)), (130, 143));
    }
}
