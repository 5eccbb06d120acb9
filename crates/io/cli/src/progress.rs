//! Progress on stderr for work over one second: a bar on a terminal, a line now and then in a pipe.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::session::Session;

/// Work that is quicker shows nothing.
const QUIET_FOR: Duration = Duration::from_secs(1);
/// How often a pipe is told.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How far a piece of long work is.
pub(crate) struct Progress {
    began: Instant,
    told: Instant,
    word: &'static str,
    kind: Kind,
}

enum Kind {
    /// Nobody wants to know.
    Silent,
    /// A person looks on; the bar is made when it pays.
    Terminal(Option<ProgressBar>),
    /// Lines in a file.
    Lines,
}

impl Progress {
    /// Progress of work on things of that name, as the session wants it.
    pub(crate) fn new(session: &Session, word: &'static str) -> Self {
        let kind =
            if session.common.quiet || session.environment.no_progress || session.is_virtual() {
                Kind::Silent
            } else if session.terminal.words {
                Kind::Terminal(None)
            } else {
                Kind::Lines
            };
        Self {
            began: Instant::now(),
            told: Instant::now(),
            word,
            kind,
        }
    }

    /// So many of so many are done.
    pub(crate) fn at(&mut self, done: u64, total: u64) {
        if self.began.elapsed() < QUIET_FOR {
            return;
        }
        match &mut self.kind {
            Kind::Terminal(bar) => {
                let bar = bar.get_or_insert_with(|| {
                    let bar =
                        ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
                    let style = ProgressStyle::with_template(
                        "{bar:30} {human_pos}/{human_len} {msg}, {eta} left",
                    );
                    if let Ok(style) = style {
                        bar.set_style(style);
                    }
                    bar.set_message(self.word);
                    bar
                });
                bar.set_position(done);
            }
            Kind::Lines if self.told.elapsed() >= LINE_EVERY => {
                self.told = Instant::now();
                let (done, total) = (
                    bursar_engine::words::number(done),
                    bursar_engine::words::number(total),
                );
                eprintln!("{done}/{total} {}", self.word);
            }
            Kind::Silent | Kind::Lines => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Kind::Terminal(Some(bar)) = &self.kind {
            bar.finish_and_clear();
        }
    }
}
