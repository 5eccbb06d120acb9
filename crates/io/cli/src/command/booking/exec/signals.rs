//! Signals that are passed on to the program.

use rustix::process::Signal;

use crate::command::signals::{self, Ignored};
use crate::failure::Stop;

/// Without SIGTSTP and SIGCONT: the terminal sends those to the whole group.
const PASSED: [Signal; 7] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::WINCH,
    Signal::USR1,
    Signal::USR2,
];

pub(super) struct Signals(signals::Signals);

impl Signals {
    /// Catches [`PASSED`]. Signals that this process ignores, as under `nohup`, stay ignored here and
    /// in the program.
    pub(super) fn listen() -> Result<Self, Stop> {
        let ignored = Ignored::now();
        let caught = PASSED.into_iter().filter(|signal| !ignored.has(*signal));
        Ok(Self(signals::Signals::catch(caught)?))
    }

    /// Cancellation-safe.
    pub(super) async fn next(&mut self) -> Signal {
        self.0.next().await
    }

    /// The next signal that ends a process by default. Cancellation-safe.
    pub(super) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal != Signal::WINCH {
                return signal;
            }
        }
    }
}

/// Exit code of a process that a signal ended.
pub(super) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::exit_code;

    #[test]
    fn the_exit_code_of_a_signal_is_that_of_shells() {
        assert_eq!((exit_code(2), exit_code(15)), (130, 143));
    }
}
