//! A program with its arguments, as data: printed before it runs, compared in tests.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// One program to start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Invocation {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Invocation {
    /// `program`, found through the search path, with `arguments`.
    pub fn new(program: &str, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
            environment: Vec::new(),
        }
    }

    /// Cargo with `arguments`.
    pub fn cargo(arguments: &[&str]) -> Self {
        Self::new("cargo", arguments)
    }

    /// Adds arguments at the end.
    #[must_use]
    pub fn with<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable of the program.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it in `directory` with our own output streams; fails unless it succeeds.
    pub fn run(&self, directory: &Path) -> anyhow::Result<()> {
        eprintln!("$ {self}");
        let status = self
            .command(directory)
            .status()
            .with_context(|| format!("cannot start `{self}`"))?;
        if !status.success() {
            bail!("`{self}` ended with {status}");
        }
        Ok(())
    }

    /// Runs it in `directory` and returns its stdout; fails unless it succeeds.
    pub fn output(&self, directory: &Path) -> anyhow::Result<String> {
        let output = self
            .command(directory)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start `{self}`"))?;
        if !output.status.success() {
            bail!("`{self}` ended with {}", output.status);
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{self}` wrote bytes that are not UTF-8"))
    }

    /// Whether it can be started and succeeds; its output is discarded.
    pub fn succeeds(&self, directory: &Path) -> bool {
        let status = self
            .command(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        // No check may wait for input.
        command
            .args(&self.arguments)
            .current_dir(directory)
            .stdin(Stdio::null());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(out, "{name}={} ", quoted(value))?;
        }
        write!(out, "{}", quoted(&self.program))?;
        for argument in &self.arguments {
            write!(out, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

/// Quotes an argument for a shell, so that a printed line can be pasted.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
