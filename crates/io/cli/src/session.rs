//! All that a command may touch: streams, time, files, the server, and how things look.
//!
//! `main` makes one from the process, the scenario runner makes one from its world; command code
//! cannot tell them apart, so a transcript on virtual time is what the real program prints.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bursar_units::{BookingId, Instant};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::console::Console;
use crate::environment::Environment;
use crate::failure::{Failure, Stop};
use crate::grammar::{Common, Format};
use crate::layout::{Look, escaped, escaped_json};

/// The present time, wherever it comes from.
pub(crate) type Now = Arc<dyn Fn() -> Instant + Send + Sync>;

/// All that a command may touch.
pub(crate) struct Session {
    /// The streams.
    pub(crate) console: Console,
    /// What the process was given.
    pub(crate) environment: Environment,
    /// The time.
    pub(crate) now: Now,
    /// Where the reader's clock stands.
    pub(crate) zone: TimeZone,
    /// The directory that relative paths begin in.
    pub(crate) directory: PathBuf,
    /// Where files are written instead, in a scenario; they are found there first.
    pub(crate) scratch: Option<PathBuf>,
    /// What is a terminal.
    pub(crate) terminal: Terminal,
    /// How the server is reached.
    pub(crate) reach: Reach,
    /// The flags that recur.
    pub(crate) common: Common,
}

/// Which streams are a person's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terminal {
    /// Stdin and stderr both: questions can be asked.
    pub(crate) answers: bool,
    /// Stdout.
    pub(crate) data: bool,
    /// Stderr.
    pub(crate) words: bool,
}

/// How the server is reached.
pub(crate) enum Reach {
    /// As flags, environment and files say.
    Discover,
    /// The server is in this process: for scenarios.
    Within(Box<Within>),
}

/// A server in this process.
pub(crate) struct Within {
    /// The client that calls it.
    pub(crate) client: bursar_client::Client,
    /// Where it keeps its records.
    pub(crate) store: bursar_ledger::store::memory::MemoryStore,
    /// The keys it signs with.
    pub(crate) keys: Vec<bursar_journal::checkpoint::VerifierKey>,
    /// When the ledger began.
    pub(crate) began: Instant,
    /// How many ids were made.
    pub(crate) ids: u32,
}

impl Session {
    /// Whether words on stderr are in colour.
    pub(crate) fn paints_words(&self) -> bool {
        self.paints(self.terminal.words)
    }

    /// Whether a stream is in colour, if it is a terminal or not.
    fn paints(&self, is_terminal: bool) -> bool {
        let environment = &self.environment;
        !self.common.no_color && !environment.no_color && (is_terminal || environment.force_color)
    }

    /// How things look now.
    pub(crate) fn look(&self) -> Look {
        let environment = &self.environment;
        let color = self.paints(self.terminal.data);
        Look {
            now: (self.now)(),
            zone: self.zone.clone(),
            utf8: environment.utf8,
            color: color && matches!(self.common.output, Format::Table | Format::Wide),
        }
    }

    /// Whether this is a scenario, where time is a number and nothing of the machine is seen.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.reach, Reach::Within(_))
    }

    /// The present time.
    pub(crate) fn now(&self) -> Instant {
        (self.now)()
    }

    /// A file of the command line that is read.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        let scratch = self.scratch.as_ref().map(|scratch| scratch.join(path));
        scratch
            .filter(|path| path.exists())
            .unwrap_or_else(|| self.directory.join(path))
    }

    /// A file of the command line that is written.
    pub(crate) fn path_out(&self, path: &Path) -> PathBuf {
        self.scratch.as_ref().unwrap_or(&self.directory).join(path)
    }

    /// Whether a program reads the result.
    pub(crate) fn for_programs(&self) -> bool {
        matches!(self.common.output, Format::Json | Format::Yaml)
    }

    /// Prints a text for people.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Stop> {
        let letters = self.look().letters(text);
        self.console.data(&letters)
    }

    /// Prints a value as `-o json` or `-o yaml` asks.
    pub(crate) fn print_value<T: Serialize>(&mut self, value: &T) -> Result<(), Stop> {
        if self.common.output == Format::Yaml {
            let text = serde_saphyr::to_string(value)
                .map_err(|error| Failure::unavailable(format!("cannot write YAML: {error}")))?;
            if escaped(&text) == text {
                return self.console.data(&text);
            }
            // JSON is YAML too, and can escape what must not reach a terminal.
        }
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::unavailable(format!("cannot write JSON: {error}")))?;
        text.push('\n');
        self.console.data(&escaped_json(&text))
    }

    /// Prints one object of a stream: one line each, for ever, never an array.
    pub(crate) fn print_line<T: Serialize>(&mut self, value: &T) -> Result<(), Stop> {
        if self.common.output == Format::Yaml {
            self.console.data("---\n")?;
            return self.print_value(value);
        }
        let text = serde_json::to_string(value).unwrap_or_default();
        self.console.data(&format!("{}\n", escaped_json(&text)))
    }

    /// Prints one result: its value for programs, its name, or its text for people.
    pub(crate) fn show<T: Serialize>(
        &mut self,
        value: &T,
        name: &str,
        text: impl FnOnce(&Look) -> String,
    ) -> Result<(), Stop> {
        match self.common.output {
            Format::Json | Format::Yaml => self.print_value(value),
            Format::Name => self.print(&format!("{name}\n")),
            Format::Table | Format::Wide => {
                let text = text(&self.look());
                self.print(&text)
            }
        }
    }

    /// The same for what has no name.
    pub(crate) fn show_unnamed<T: Serialize>(
        &mut self,
        value: &T,
        text: impl FnOnce(&Look) -> String,
    ) -> Result<(), Stop> {
        if self.common.output == Format::Name {
            return Err(Failure::usage(
                "this result has no name, use `-o table`, `json` or `yaml`",
            )
            .into());
        }
        self.show(value, "", text)
    }

    /// A note or a hint: words that `-q` leaves out.
    pub(crate) fn aside(&mut self, text: &str) {
        if !self.common.quiet {
            self.say(text);
        }
    }

    /// Words that are never left out.
    pub(crate) fn say(&mut self, text: &str) {
        let letters = self.look().letters(text);
        self.console.words(&letters);
    }

    /// Something that was to be remembered and was not: no reason to withhold an answer.
    pub(crate) fn warn_unless(&mut self, remembered: Result<(), Failure>) {
        if let Err(failure) = remembered {
            self.aside(&format!("warning: {}\n", failure.message));
        }
    }

    /// What `-v` asks for.
    pub(crate) fn verbose(&mut self, text: &str) {
        if self.common.verbose {
            self.say(&format!("{text}\n"));
        }
    }

    /// Asks before something is destroyed: only a terminal can say yes, `--yes` says it outright.
    pub(crate) fn confirm(&mut self, yes: bool, plan: &str) -> Result<(), Stop> {
        if yes {
            return Ok(());
        }
        if !self.terminal.answers {
            return Err(Failure::usage("this needs `--yes` where nobody can be asked").into());
        }
        self.say(&format!("{plan}do it? [y/N] "));
        let answer = self.console.read_line().unwrap_or_default();
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        self.console.words("nothing was changed\n");
        Err(Stop::Exit(crate::failure::exit::REFUSED))
    }

    /// A new booking id that ends in a `UUIDv7`.
    pub(crate) fn new_id(&mut self) -> Result<BookingId, Stop> {
        let id = BookingId::new(&format!("booking-{}", self.new_uuid()));
        id.map_err(|error| Failure::unavailable(format!("cannot make an id: {error}")).into())
    }

    /// A new `UUIDv7`. In a scenario it follows from the script.
    pub(crate) fn new_uuid(&mut self) -> uuid::Uuid {
        let Reach::Within(within) = &mut self.reach else {
            return uuid::Uuid::now_v7();
        };
        within.ids += 1;
        let ms = (self.now)().ms();
        let mut random = [0_u8; 10];
        if let Some((_, last)) = random.split_last_chunk_mut::<4>() {
            *last = within.ids.to_be_bytes();
        }
        uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid()
    }
}
