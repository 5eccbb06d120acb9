//! Progress of work that takes over one second, on stderr: a bar on a terminal, lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::session::Session;

/// Shorter work shows no progress.
const QUIET_FOR: Duration = Duration::from_secs(1);
/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Progress {
    began: Instant,
    last_line: Instant,
    noun: &'static str,
    kind: Kind,
}

enum Kind {
    Silent,
    /// The bar is made after `QUIET_FOR`.
    Terminal(Option<ProgressBar>),
    Lines,
}

impl Progress {
    /// Progress in units of `noun`, in the form that the session asks for.
    pub(crate) fn new(session: &Session, noun: &'static str) -> Self {
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
            last_line: Instant::now(),
            noun,
            kind,
        }
    }

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
                    bar.set_message(self.noun);
                    bar
                });
                bar.set_position(done);
            }
            Kind::Lines if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                let (done, total) = (
                    bursar_engine::words::number(done),
                    bursar_engine::words::number(total),
                );
                eprintln!("{done}/{total} {}", self.noun);
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
