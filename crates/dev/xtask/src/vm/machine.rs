//! One emulated machine, from power on to its last line.
//!
//! Promises: the emulator has ended when [`run`] returns.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::ingredients::QEMU;

/// Prefix of the machine's last line; the result follows.
const END: &str = "vm: ended with ";

/// Maximum number of lines that wait to be printed.
const LINES_MAX: usize = 1_000;

/// A machine that is turned off on drop.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // The machine may already be off.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots a machine, prints its output, and fails unless it reports success in time.
pub(super) fn run(kernel: &Path, archive: &Path, limit: Duration) -> anyhow::Result<()> {
    let started = command(kernel, archive).spawn();
    let mut machine = Machine(started.with_context(|| format!("cannot start {QEMU}"))?);
    let console = machine.0.stdout.take();
    let lines = lines(console.context("the machine has no console")?);
    watch(&lines, limit)
}

fn watch(lines: &Receiver<String>, limit: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let line = match lines.recv_timeout(limit.saturating_sub(began.elapsed())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                let seconds = limit.as_secs();
                bail!("the tests in the virtual machine did not end within {seconds} s");
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the virtual machine stopped before its tests ended");
            }
        };
        eprintln!("{line}");
        match line.strip_prefix(END) {
            Some("0") => return Ok(()),
            Some(_) => bail!("tests failed in the virtual machine"),
            None => {}
        }
    }
}

/// Two processors and no devices but a console; with `panic=-1` a kernel panic ends the machine.
fn command(kernel: &Path, archive: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-machine", "q35", "-accel", "tcg,thread=multi"])
        .args(["-cpu", "max", "-smp", "2", "-m", "2048"])
        .args(["-display", "none", "-serial", "stdio"])
        .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(archive)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Lines of a console as they arrive. The reading thread ends with the machine.
fn lines(console: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            // The output may be invalid UTF-8.
            let line = String::from_utf8_lossy(&line);
            if sender.send(line.trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::{lines, watch};

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn only_a_last_line_with_result_0_is_success() {
        for (console, expected) in [
            (&b"\xff\r\nvm: ended with 0\r\n"[..], None),
            (b"vm: ended with 1\r\n", Some("tests failed")),
            (b"vm: ended with 00\r\n", Some("tests failed")),
            (b"test vm: ended with 0\r\n", Some("stopped before")),
            (b"", Some("stopped before")),
        ] {
            let ended = watch(&lines(console), LONG);
            let failure = ended.err().map(|error| error.to_string());
            let is_so = match expected {
                None => failure.is_none(),
                Some(words) => failure.as_ref().unwrap().contains(words),
            };
            assert!(is_so, "{failure:?}");
        }
    }

    #[test]
    fn a_machine_that_hangs_fails_at_the_time_limit() {
        let (_console, lines) = sync_channel(1);
        let failure = watch(&lines, Duration::ZERO).unwrap_err().to_string();
        assert!(failure.ends_with("within 0 s"), "{failure}");
    }
}
