//! The context of a command: streams, time, files, the server, and the look of its output.
//!
//! `main` makes a session from the process, the scenario runner from its world. Commands use both
//! in the same way, so a transcript on virtual time shows the output of the real program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bursar_units::{BookingId, Instant};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::console::Console;
use crate::environment::Environment;
use crate::failure::{Failure, Stop, not_a_list};
use crate::grammar::{Common, Format};
use crate::layout::{Look, escaped, escaped_json};

/// Returns the present time, real or virtual.
pub(crate) type Now = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The context of a command.
pub(crate) struct Session {
    pub(crate) console: Console,
    pub(crate) environment: Environment,
    pub(crate) now: Now,
    pub(crate) zone: TimeZone,
    /// Directory of relative paths.
    pub(crate) directory: PathBuf,
    /// In a scenario: the directory for writing, which is searched first for reading.
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) terminal: Terminal,
    pub(crate) reach: Reach,
    /// Flags that every command has.
    pub(crate) common: Common,
}

/// The streams that are terminals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terminal {
    /// Both stdin and stderr, so that a person can answer questions.
    pub(crate) answers: bool,
    /// Stdout.
    pub(crate) data: bool,
    /// Stderr.
    pub(crate) words: bool,
}

/// Access to the server.
pub(crate) enum Reach {
    /// By flags, environment and files.
    Discover,
    /// In this process, for scenarios.
    Within(Box<Within>),
}

/// A server in this process.
pub(crate) struct Within {
    pub(crate) client: bursar_client::Client,
    pub(crate) store: bursar_ledger::store::memory::MemoryStore,
    pub(crate) keys: Vec<bursar_journal::checkpoint::VerifierKey>,
    /// Start of the present term.
    pub(crate) began: Instant,
    /// Number of ids that were made.
    pub(crate) ids: u32,
}

impl Session {
    /// Whether stderr is in colour.
    pub(crate) fn paints_words(&self) -> bool {
        self.paints(self.terminal.words)
    }

    fn paints(&self, is_terminal: bool) -> bool {
        let environment = &self.environment;
        !self.common.no_color && !environment.no_color && (is_terminal || environment.force_color)
    }

    /// The look of stdout at the present time.
    pub(crate) fn look(&self) -> Look {
        let color = self.paints(self.terminal.data);
        Look {
            now: (self.now)(),
            zone: self.zone.clone(),
            utf8: self.environment.utf8,
            color: color && matches!(self.common.output, Format::Table | Format::Wide),
        }
    }

    /// Whether this is a scenario: on virtual time, and without access to the machine.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.reach, Reach::Within(_))
    }

    pub(crate) fn now(&self) -> Instant {
        (self.now)()
    }

    /// Path of a file to read.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        let scratch = self.scratch.as_ref().map(|scratch| scratch.join(path));
        scratch
            .filter(|path| path.exists())
            .unwrap_or_else(|| self.directory.join(path))
    }

    /// Path of a file to write.
    pub(crate) fn path_out(&self, path: &Path) -> PathBuf {
        self.scratch.as_ref().unwrap_or(&self.directory).join(path)
    }

    /// Whether the output format is one for programs.
    pub(crate) fn for_programs(&self) -> bool {
        matches!(self.common.output, Format::Json | Format::Yaml)
    }

    /// Prints a laid-out text for people.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Stop> {
        let letters = self.look().letters(text);
        self.console.data(&letters)
    }

    /// Prints a value as JSON or YAML.
    pub(crate) fn print_value<T: Serialize>(&mut self, value: &T) -> Result<(), Stop> {
        if self.common.output == Format::Yaml {
            let text = serde_saphyr::to_string(value)
                .map_err(|error| Failure::unavailable(format!("cannot write YAML: {error}")))?;
            if escaped(&text) == text {
                return self.console.data(&text);
            }
            // JSON is valid YAML too, and can escape hidden characters.
        }
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::unavailable(format!("cannot write JSON: {error}")))?;
        text.push('\n');
        self.console.data(&escaped_json(&text))
    }

    /// Prints one object of a stream: one JSON line, or one YAML document.
    pub(crate) fn print_line<T: Serialize>(&mut self, value: &T) -> Result<(), Stop> {
        if self.common.output == Format::Yaml {
            self.console.data("---\n")?;
            return self.print_value(value);
        }
        let text = serde_json::to_string(value).unwrap_or_default();
        self.console.data(&format!("{}\n", escaped_json(&text)))
    }

    /// Prints one result in the chosen format: value, name, or text for people.
    pub(crate) fn show<T: Serialize>(
        &mut self,
        value: &T,
        name: &str,
        text: impl FnOnce(&Look) -> String,
    ) -> Result<(), Stop> {
        match self.common.output {
            Format::Json | Format::Yaml => self.print_value(value),
            Format::Name => self.print(&format!("{name}\n")),
            Format::Csv => Err(not_a_list().into()),
            Format::Table | Format::Wide => {
                let text = text(&self.look());
                self.print(&text)
            }
        }
    }

    /// [`Self::show`] for a result without a name.
    pub(crate) fn show_unnamed<T: Serialize>(
        &mut self,
        value: &T,
        text: impl FnOnce(&Look) -> String,
    ) -> Result<(), Stop> {
        if self.common.output == Format::Name {
            let message = "this result has no name, use `-o table`, `json` or `yaml`";
            return Err(Failure::usage(message).into());
        }
        self.show(value, "", text)
    }

    /// Prints a message to stderr unless `-q` is given.
    pub(crate) fn aside(&mut self, text: &str) {
        if !self.common.quiet {
            self.say(text);
        }
    }

    /// Prints a message to stderr.
    pub(crate) fn say(&mut self, text: &str) {
        let letters = self.look().letters(text);
        self.console.words(&letters);
    }

    /// Warns of a failure to store something that the result does not depend on.
    pub(crate) fn warn_unless(&mut self, stored: Result<(), Failure>) {
        if let Err(failure) = stored {
            self.aside(&format!("warning: {}\n", failure.message));
        }
    }

    /// Prints a line to stderr if `-v` is given.
    pub(crate) fn verbose(&mut self, text: &str) {
        if self.common.verbose {
            self.say(&format!("{text}\n"));
        }
    }

    /// Asks before a destructive change. Without a terminal only `--yes` confirms it.
    pub(crate) fn confirm(&mut self, yes: bool, plan: &str) -> Result<(), Stop> {
        if yes {
            return Ok(());
        }
        if !self.terminal.answers {
            return Err(
                Failure::usage("this needs `--yes` when there is no terminal to ask on").into(),
            );
        }
        self.say(&format!("{plan}continue? [y/N] "));
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

    /// A new `UUIDv7`. In a scenario it depends only on the time and the number of ids so far.
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
