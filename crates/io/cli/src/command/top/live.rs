//! The live view: the table again every two seconds, on a screen of its own.
//!
//! Plain escape sequences and nothing else. Whatever ends it, a key, a signal, an error or a panic,
//! the terminal is as it was.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::NodeMarket;
use bursar_units::{Instant, ObjectName};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::{NOBODY, fetch, text};
use crate::failure::{Failure, Stop};
use crate::grammar::Format;
use crate::layout::{Look, Meaning};
use crate::session::Session;
use crate::time::distance;

/// How often it is drawn.
const EVERY: Duration = Duration::from_secs(2);
/// A screen of its own, no cursor, and lines that end where the window does.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
/// The opposite, in the opposite order.
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
/// To the first cell.
const HOME: &str = "\u{1b}[H";
/// Nothing from here to the end of the line, and of the screen.
const LINE_END: &str = "\u{1b}[K\r\n";
const SCREEN_END: &str = "\u{1b}[J";
/// What Ctrl-C is while the terminal makes no signal of it.
const CTRL_C: u8 = 3;
/// Lines where nobody says how many there are.
const LINES: usize = 24;
/// Keys that may wait; whoever types faster types the same.
const KEYS_MAX: usize = 16;

pub(super) async fn run(
    session: &mut Session,
    client: &Client,
    node: Option<&ObjectName>,
) -> Result<(), Stop> {
    // What is wrong from the start is told on the usual screen.
    let mut seen = Seen {
        markets: fetch(client, node).await?,
        at: session.now(),
        trouble: None,
    };
    let mut signals = Signals::listen()?;
    let screen = Screen::enter();
    let mut keys = keys();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first comes at once, and what it would fetch is there.
    ticks.tick().await;
    let ended = loop {
        if let Err(stop) = draw(session, &seen) {
            break Err(stop);
        }
        tokio::select! {
            _ = ticks.tick() => seen.look_again(session, fetch(client, node).await),
            Some(key) = keys.recv() => if matches!(key, b'q' | b'Q' | CTRL_C) {
                break Ok(());
            },
            _ = signals.window.recv() => {}
            _ = signals.interrupt.recv() => break Ok(()),
            _ = signals.terminate.recv() => break Ok(()),
            _ = signals.hangup.recv() => break Ok(()),
        }
    };
    drop(screen);
    ended
}

/// What was seen last, when, and why nothing newer is there.
struct Seen {
    markets: Vec<NodeMarket>,
    at: Instant,
    trouble: Option<String>,
}

impl Seen {
    fn look_again(&mut self, session: &Session, fetched: Result<Vec<NodeMarket>, Stop>) {
        match fetched {
            Ok(markets) => {
                *self = Self {
                    markets,
                    at: session.now(),
                    trouble: None,
                };
            }
            Err(Stop::Failed(failure)) => self.trouble = Some(failure.message),
            Err(Stop::Pipe | Stop::Exit(_)) => {}
        }
    }
}

struct Signals {
    window: Signal,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Stop> {
        let on = |kind| {
            signal(kind)
                .map_err(|error| Failure::unavailable(format!("cannot wait for signals: {error}")))
        };
        Ok(Self {
            window: on(SignalKind::window_change())?,
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }
}

/// The terminal while it is ours.
struct Screen {
    before: Option<Termios>,
}

impl Screen {
    fn enter() -> Self {
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(before) = &before {
            let mut ours = before.clone();
            // Keys come one by one, unseen, and Ctrl-Z does not leave us on a screen of our own.
            ours.local_modes &=
                !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
            let _not_a_terminal = tcsetattr(std::io::stdin(), OptionalActions::Now, &ours);
        }
        let hook = std::panic::take_hook();
        let of_panic = before.clone();
        std::panic::set_hook(Box::new(move |panic| {
            leave(of_panic.as_ref());
            hook(panic);
        }));
        write(ENTER);
        Self { before }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave(self.before.as_ref());
    }
}

fn leave(before: Option<&Termios>) {
    write(LEAVE);
    if let Some(before) = before {
        let _gone = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
    }
}

/// What is typed. The thread ends with the process: nothing else wakes a read of a terminal.
fn keys() -> mpsc::Receiver<u8> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        let mut key = [0_u8];
        while matches!(std::io::stdin().lock().read(&mut key), Ok(1)) {
            if sender.blocking_send(key[0]).is_err() {
                return;
            }
        }
    });
    receiver
}

fn draw(session: &mut Session, seen: &Seen) -> Result<(), Stop> {
    let look = session.look();
    let body = if seen.markets.is_empty() {
        NOBODY.to_owned()
    } else {
        text(&seen.markets, &look, session.common.output == Format::Wide)
    };
    let lines = tcgetwinsize(std::io::stdout()).map_or(LINES, |size| usize::from(size.ws_row));
    let frame = frame(&body, &foot(seen, &look), lines);
    session.console.data(&look.letters(&frame))
}

/// The last line: how it ends, and how old what is shown is if nothing newer comes.
fn foot(seen: &Seen, look: &Look) -> String {
    match &seen.trouble {
        None => look.paint(Meaning::Dim, "q quits"),
        Some(trouble) => {
            let age = distance(look.now.since(seen.at));
            look.paint(Meaning::Bad, &format!("{age} old: {trouble}; q quits"))
        }
    }
}

/// As much as the window has lines for, and the foot below it.
fn frame(body: &str, foot: &str, lines: usize) -> String {
    let room = lines.saturating_sub(2).max(1);
    let all = body.lines().count();
    let mut frame = HOME.to_owned();
    let shown = if all > room { room - 1 } else { all };
    for line in body.lines().take(shown) {
        frame.extend([line, LINE_END]);
    }
    if shown < all {
        frame.extend([&format!("… {} more lines", all - shown), LINE_END]);
    }
    frame.extend([LINE_END, foot, SCREEN_END]);
    frame
}

fn write(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _gone = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::{HOME, LINE_END, SCREEN_END, frame};

    #[test]
    fn a_frame_fits_the_window_and_says_what_it_leaves_out() {
        let lines = |frame: &str| frame.matches(LINE_END).count() + 1;
        let body = "1\n2\n3\n4\n5\n6\n";
        let whole = frame(body, "foot", 8);
        assert!(whole.starts_with(HOME) && whole.ends_with(&format!("foot{SCREEN_END}")));
        assert_eq!((lines(&whole), whole.contains('…')), (8, false));
        let cut = frame(body, "foot", 5);
        assert!(cut.contains('2') && !cut.contains("3\u{1b}"), "{cut:?}");
        assert!(cut.contains("… 4 more lines"), "{cut:?}");
        assert_eq!(lines(&cut), 5);
    }
}
