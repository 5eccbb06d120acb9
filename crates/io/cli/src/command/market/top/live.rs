//! The live view: the table on the alternate screen, updated every two seconds.
//!
//! Uses only plain escape sequences. After a key, a signal, an error or a panic the terminal is
//! restored.

use std::io::{Read as _, Write as _};
use std::pin::pin;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::NodeMarket;
use bursar_units::{Instant, ObjectName};
use rustix::process::Signal;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{NO_MARKET, Page, fetch, text};
use crate::command::signals::Signals;
use crate::failure::Stop;
use crate::layout::{Look, Meaning, WIDTH};
use crate::session::Session;
use crate::time::distance;

/// Time between an answer and the next request.
const EVERY: Duration = Duration::from_secs(2);
/// Alternate screen, no cursor, no line wrap.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
/// Cursor to the first cell.
const HOME: &str = "\u{1b}[H";
/// Erases the rest of the line and starts a new one.
const LINE_END: &str = "\u{1b}[K\r\n";
/// Erases the rest of the screen.
const SCREEN_END: &str = "\u{1b}[J";
/// Ctrl-C as a byte: without ISIG the terminal sends no signal.
const CTRL_C: u8 = 3;
/// First byte of the escape sequence of a special key.
const ESCAPE: u8 = 0x1b;
/// Lines of a terminal of unknown size.
const LINES: usize = 24;
/// Most keys in the queue; faster repeats are of the same key.
const KEYS_MAX: usize = 16;

pub(super) async fn run(
    session: &mut Session,
    client: &Client,
    node: Option<&ObjectName>,
) -> Result<(), Stop> {
    // Fetched before the alternate screen, so that a first error stays visible.
    let mut snapshot = Snapshot {
        markets: fetch(client, node).await?,
        at: session.now(),
        error: None,
    };
    let mut signals = Signals::catch([Signal::WINCH, Signal::INT, Signal::TERM, Signal::HUP])?;
    let screen = Screen::enter();
    let mut keys = keys();
    let mut first = 0;
    let fetch_later = || async {
        sleep(EVERY).await;
        fetch(client, node).await
    };
    // Concurrent with keys and signals, which must work while the server does not answer.
    let mut next = pin!(fetch_later());
    let ended = loop {
        if let Err(stop) = draw(session, &snapshot, &mut first) {
            break Err(stop);
        }
        tokio::select! {
            fetched = &mut next => {
                snapshot.update(session, fetched);
                next.set(fetch_later());
            }
            Some(key) = keys.recv() => match key {
                Key::Quit => break Ok(()),
                Key::Up => first = first.saturating_sub(1),
                Key::Down => first += 1,
                Key::PageUp => first = first.saturating_sub(page()),
                Key::PageDown => first += page(),
            },
            signal = signals.next() => if signal != Signal::WINCH {
                break Ok(());
            },
        }
    };
    drop(screen);
    ended
}

/// The last answer, its time, and the error of later requests.
struct Snapshot {
    markets: Vec<NodeMarket>,
    at: Instant,
    error: Option<String>,
}

impl Snapshot {
    fn update(&mut self, session: &Session, fetched: Result<Vec<NodeMarket>, Stop>) {
        match fetched {
            Ok(markets) => {
                *self = Self {
                    markets,
                    at: session.now(),
                    error: None,
                };
            }
            Err(Stop::Failed(failure)) => self.error = Some(failure.message),
            Err(Stop::Pipe | Stop::Exit(_)) => {}
        }
    }
}

/// The terminal in the mode of the live view; restored when dropped.
struct Screen {
    before: Option<Termios>,
}

impl Screen {
    fn enter() -> Self {
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(before) = &before {
            let mut ours = before.clone();
            // Keys come one by one without echo, and Ctrl-Z does not stop us on the alternate screen.
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

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Key {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
}

/// Typed keys. The thread ends with the process: nothing else wakes a read of a terminal.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        let mut typed = [0_u8; 16];
        while let Ok(count @ 1..) = std::io::stdin().lock().read(&mut typed) {
            let typed = typed.get(..count).unwrap_or_default();
            for key in keys_in(typed) {
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

/// Keys of one read. A terminal sends the whole sequence of a special key at once.
fn keys_in(typed: &[u8]) -> Vec<Key> {
    let of_sequence = |sequence: &[u8]| match sequence {
        b"[A" | b"OA" => Some(Key::Up),
        b"[B" | b"OB" => Some(Key::Down),
        b"[5~" => Some(Key::PageUp),
        b"[6~" => Some(Key::PageDown),
        _ => None,
    };
    let of_letter = |letter: &u8| match *letter {
        b'q' | b'Q' | CTRL_C => Some(Key::Quit),
        b'k' => Some(Key::Up),
        b'j' => Some(Key::Down),
        b'b' => Some(Key::PageUp),
        b' ' => Some(Key::PageDown),
        _ => None,
    };
    let mut parts = typed.split(|letter| *letter == ESCAPE);
    let letters = parts.next().unwrap_or_default();
    let letters = letters.iter().filter_map(of_letter);
    letters.chain(parts.filter_map(of_sequence)).collect()
}

/// Lines of a page: one less than are shown, so that pages overlap.
fn page() -> usize {
    window().0.saturating_sub(4).max(1)
}

/// Lines and columns of the terminal.
fn window() -> (usize, usize) {
    let size = tcgetwinsize(std::io::stdout());
    size.map_or((LINES, WIDTH), |size| {
        (size.ws_row.into(), size.ws_col.into())
    })
}

fn draw(session: &mut Session, snapshot: &Snapshot, first: &mut usize) -> Result<(), Stop> {
    let look = session.look();
    let (lines, columns) = window();
    let body = if snapshot.markets.is_empty() {
        NO_MARKET.to_owned()
    } else {
        text(&snapshot.markets, &look, Page::of(session, columns))
    };
    // Escaped before the frame adds our own control sequences.
    let (body, foot) = (look.shown(&body), look.shown(&foot(snapshot, &look)));
    let frame = frame(&body, &foot, lines, first);
    session.console.data(&look.plain(frame))
}

/// The last line: the key to quit and, after an error, the age of the table.
fn foot(snapshot: &Snapshot, look: &Look) -> String {
    match &snapshot.error {
        None => look.paint(Meaning::Dim, "q quits"),
        Some(error) => {
            let age = distance(look.now.since(snapshot.at));
            let words = format!("q quits; reconnecting, this is {age} old: {error}");
            look.paint(Meaning::Bad, &words)
        }
    }
}

/// The lines of `body` that fit the window, from `first` on, and the foot. Clamps `first` to the last
/// full page.
fn frame(body: &str, foot: &str, lines: usize, first: &mut usize) -> String {
    let room = lines.saturating_sub(2).max(1);
    let all = body.lines().count();
    let is_cut = all > room;
    // One line is for the count of hidden lines.
    let shown = if is_cut {
        room.saturating_sub(1).max(1)
    } else {
        all
    };
    *first = (*first).min(all - shown);
    let mut frame = HOME.to_owned();
    for line in body.lines().skip(*first).take(shown) {
        frame.extend([line, LINE_END]);
    }
    if is_cut {
        let left = match (*first, all - shown - *first) {
            (0, below) => format!("… {below} more lines below: arrows or j and k go there"),
            (above, 0) => format!("… {above} more lines above"),
            (above, below) => format!("… {above} more lines above, {below} below"),
        };
        frame.extend([&left, LINE_END]);
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
    use super::{HOME, Key, LINE_END, SCREEN_END, frame, keys_in};

    #[test]
    fn a_frame_fits_the_window_and_counts_hidden_lines() {
        let lines = |frame: &str| frame.matches(LINE_END).count() + 1;
        let body = "1\n2\n3\n4\n5\n6\n";
        let whole = frame(body, "foot", 8, &mut 0);
        assert!(whole.starts_with(HOME) && whole.ends_with(&format!("foot{SCREEN_END}")));
        assert_eq!((lines(&whole), whole.contains('…')), (8, false));
        let cut = frame(body, "foot", 5, &mut 0);
        assert!(cut.contains('2') && !cut.contains("3\u{1b}"), "{cut:?}");
        assert!(cut.contains("… 4 more lines below"), "{cut:?}");
        assert_eq!(lines(&cut), 5);
        for lines in 0..4 {
            assert!(frame(body, "foot", lines, &mut 9).contains('6'));
        }
    }

    #[test]
    fn scrolling_ends_at_the_last_page() {
        let body = "1\n2\n3\n4\n5\n6\n";
        let mut first = 3;
        let middle = frame(body, "foot", 5, &mut first);
        assert!(
            middle.contains("4\u{1b}") && middle.contains("5\u{1b}"),
            "{middle:?}"
        );
        assert!(
            middle.contains("… 3 more lines above, 1 below"),
            "{middle:?}"
        );
        first = 100;
        let end = frame(body, "foot", 5, &mut first);
        assert!(
            end.contains("6\u{1b}") && end.contains("… 4 more lines above"),
            "{end:?}"
        );
        assert_eq!(first, 4);
        // A larger window shows all lines again.
        assert!(frame(body, "foot", 8, &mut first).contains("1\u{1b}"));
        assert_eq!(first, 0);
    }

    #[test]
    fn letters_and_escape_sequences_are_keys() {
        assert_eq!(keys_in(b"q"), [Key::Quit]);
        assert_eq!(keys_in(&[3]), [Key::Quit]);
        assert_eq!(
            keys_in(b"jk\x1b[B\x1b[6~"),
            [Key::Down, Key::Up, Key::Down, Key::PageDown]
        );
        assert_eq!(keys_in(b"\x1b[1;5q"), []);
        assert_eq!(keys_in(b"\x1b"), []);
    }
}
