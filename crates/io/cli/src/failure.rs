//! Errors of commands: what failed, where, and what to do next.

use bursar_client::{Code, Problem};
use bursar_units::causes::chain;
use serde_json::json;

use crate::layout::{escaped, escaped_json, escaped_line};

/// Exit codes.
pub(crate) mod exit {
    /// Refused, not found, or ended badly.
    pub(crate) const REFUSED: u8 = 1;
    /// Wrong use or invalid input.
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const UNAVAILABLE: u8 = 3;
    pub(crate) const UNVERIFIED: u8 = 4;
    /// `exec` itself was refused, failed or was fenced; lower codes are its program's.
    pub(crate) const EXEC: u8 = 125;
}

/// Reason to end a command early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The reader of stdout closed the pipe: success.
    Pipe,
    /// The message was printed already; only the exit code is left.
    Exit(u8),
    Failed(Box<Failure>),
}

/// An error as it is shown to people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    /// One sentence, lower case, no full stop.
    pub(crate) message: String,
    /// Lines below the message: label and text.
    pub(crate) details: Vec<(String, String)>,
    /// Text between message and hint, already laid out.
    pub(crate) body: String,
    /// The next step. Commands in it must work when pasted.
    pub(crate) hint: Option<String>,
    /// The server's problem, for `-o json`.
    pub(crate) problem: Option<Box<Problem>>,
}

impl Failure {
    pub(crate) fn new(exit: u8, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            details: Vec::new(),
            body: String::new(),
            hint: None,
            problem: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(exit::UNAVAILABLE, message)
    }

    /// A failed file operation; `doing` is its verb.
    pub(crate) fn file(doing: &str, path: impl std::fmt::Display, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
            _ => error.to_string(),
        };
        Self::usage(format!("cannot {doing} {path}: {reason}"))
    }

    pub(crate) fn detail(mut self, word: &str, text: impl Into<String>) -> Self {
        self.details.push((word.to_owned(), text.into()));
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The text for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("error: {}\n", escaped_line(&self.message));
        text.push_str(&crate::layout::details(&self.details, 0));
        text.push_str(&self.body);
        if let Some(hint) = &self.hint {
            text.push_str("\nhint: ");
            text.push_str(hint);
            text.push('\n');
        }
        text
    }

    /// The text for programs: one problem object in one line.
    fn json_text(&self) -> String {
        escaped_json(&self.json().to_string()).into_owned()
    }

    /// The problem object in an output format for programs.
    pub(crate) fn value_text(&self, is_yaml: bool) -> String {
        let yaml = is_yaml.then(|| serde_saphyr::to_string(&self.json()).ok());
        // JSON is valid YAML too, and can escape hidden characters.
        match yaml.flatten().filter(|text| escaped(text) == *text) {
            Some(text) => text,
            None => format!("{}\n", self.json_text()),
        }
    }

    fn json(&self) -> serde_json::Value {
        if let Some(problem) = &self.problem
            && let Ok(value) = serde_json::to_value(problem)
        {
            return value;
        }
        let code = match self.exit {
            exit::USAGE => Code::Invalid,
            exit::UNAVAILABLE => Code::Unavailable,
            exit::UNVERIFIED => {
                return json!({
                    "type": "/problems/does-not-verify",
                    "title": "It does not verify",
                    "code": "does-not-verify",
                    "detail": self.message,
                });
            }
            _ => Code::Conflict,
        };
        serde_json::to_value(Problem::new(code, self.message.clone())).unwrap_or_default()
    }
}

/// Failure of `-o csv` for a list, whose cells are for people.
pub(crate) fn no_csv() -> Failure {
    Failure::usage("`-o csv` is a format of `bursar budget usage` only")
        .hint("`-o json` has every field of a list")
}

/// Failure of `-o csv` for a result that is not a list.
pub(crate) fn not_a_list() -> Failure {
    Failure::usage("this result is not a list, use `-o table`, `json` or `yaml`")
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let mut message = problem.to_string();
        if let Some(name) = &problem.suggestion
            && !message.contains("did you mean")
        {
            message = format!("{message}, did you mean `{name}`?");
        }
        let mut body = String::new();
        if let count @ 2.. = problem.errors.len() {
            message = format!("{count} mistakes, nothing was done");
            let lines = problem
                .errors
                .iter()
                .map(|error| format!("  {}\n", error.sentence()));
            body = lines.collect();
        }
        let mut failure = Self::new(problem.exit_code(), message);
        failure.body = body;
        failure.problem = Some(Box::new(problem));
        failure
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Failure::from(problem).into()
    }
}

impl From<bursar_client::client::Error> for Stop {
    fn from(error: bursar_client::client::Error) -> Self {
        let exit = error.exit_code();
        match error {
            bursar_client::client::Error::Problem(problem) => (*problem).into(),
            other => Failure::new(exit, chain(&other)).into(),
        }
    }
}
