//! The client's file: contexts, and the name of the current one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::failure::Failure;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Config {
    /// Context that is used if none is named.
    #[serde(default)]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) context: BTreeMap<String, Context>,
}

/// A server and how to access it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) server: String,
    /// File with the token, mode 0600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<String>,
    /// Namespace of names without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Key that signs its ledger; replaces the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log_key: Option<String>,
}

/// Context of the demo's server; it needs no entry in the file.
pub(crate) const DEMO: &str = "demo";

impl Config {
    /// Reads the file; a missing file is an empty one.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(Failure::file("read", path.display(), &error)),
        };
        parse(&text, &path.display().to_string())
    }

    /// A context by name; `demo` needs no entry.
    pub(crate) fn context(
        &self,
        name: &str,
        environment: &Environment,
    ) -> Result<Context, Failure> {
        if let Some(context) = self.context.get(name) {
            return Ok(context.clone());
        }
        if let (DEMO, Some(socket)) = (name, demo_socket(environment)) {
            return Ok(Context {
                server: format!("unix:{}", socket.display()),
                ..Context::default()
            });
        }
        let names = self.context.keys().map(String::as_str).chain([DEMO]);
        let suggestion = crate::suggest::did_you_mean(name, names);
        Err(Failure::usage(format!("no context `{name}`{suggestion}"))
            .hint("`bursar context list` shows all"))
    }
}

/// The text of the file with another current context and no other change.
pub(crate) fn with_current(text: &str, name: &str) -> String {
    let line = format!("current = {}", toml::Value::from(name));
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    let top = lines
        .iter()
        .position(|line| line.trim_start().starts_with('['))
        .unwrap_or(lines.len());
    let present = lines.iter().take(top).position(|line| {
        line.split_once('=')
            .is_some_and(|(key, _)| key.trim() == "current")
    });
    match present.and_then(|at| lines.get_mut(at)) {
        Some(present) => *present = line,
        None => lines.insert(0, line),
    }
    lines.join("\n") + "\n"
}

pub(crate) fn demo_socket(environment: &Environment) -> Option<PathBuf> {
    Some(environment.data_home.as_ref()?.join(DEMO).join("api.sock"))
}

/// Parses TOML; an error names the line and the key.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(text: &str, name: &str) -> Result<T, Failure> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or_default();
        let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
        let message = error.message().trim().replace('\n', ", ");
        let known = message
            .split_once(", expected ")
            .map_or("", |(_, known)| known);
        let unknown = message
            .strip_prefix("unknown field `")
            .and_then(|rest| rest.split('`').next());
        let Some(unknown) = unknown else {
            let start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
            let written = text.get(start..).unwrap_or_default().lines().next();
            let key = written
                .and_then(|line| line.split_once('='))
                .map(|(key, _)| key.trim());
            let position = format!("{name}:{line}");
            return Failure::usage(match (key, words(&message)) {
                (Some(key), Some(wrong)) => format!("{position}: `{key}` {wrong}"),
                // Errors of our own types begin with the value.
                (Some(key), None) if message.starts_with('`') => {
                    format!("{position}: `{key}`: {message}")
                }
                (_, wrong) => format!("{position}: {}", wrong.unwrap_or(message)),
            });
        };
        let names = known.split('`').skip(1).step_by(2);
        let suggestion = crate::suggest::did_you_mean(unknown, names);
        Failure::usage(format!(
            "{name}:{line}: `{unknown}` is not a key{suggestion}"
        ))
    })
}

/// Our text for a serde error about a value; `None` if the error is not of a known form.
fn words(message: &str) -> Option<String> {
    if message == "invalid socket address syntax" {
        return Some("needs ADDRESS:PORT, such as \"127.0.0.1:7171\"".to_owned());
    }
    if let Some((_, known)) = message
        .strip_prefix("unknown variant `")
        .and_then(|rest| rest.split_once(", expected "))
    {
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        return Some(format!("must be one of {}", known.join(", ")));
    }
    let (_, expected) = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?
        .rsplit_once(", expected ")?;
    Some(match expected {
        "a boolean" => "must be true or false".to_owned(),
        "a string" | "path string" | "socket address" => "must be a string in quotes".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "must be a whole number from 0".to_owned(),
        "a sequence" => "must be a list".to_owned(),
        table if table.starts_with("struct ") || table == "a map" => "must be a table".to_owned(),
        other => format!("must be {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::{Config, parse, with_current};

    #[test]
    fn an_unknown_key_is_reported_with_its_line_and_a_suggestion() {
        let text =
            "current = \"lab\"\n\n[context.lab]\nserver = \"http://x\"\ntoken-fiel = \"t\"\n";
        let failure = parse::<Config>(text, "config.toml")
            .map(|_| ())
            .map_err(|failure| failure.message);
        assert_eq!(
            failure,
            Err("config.toml:5: `token-fiel` is not a key, did you mean `token-file`?".to_owned())
        );
    }

    #[test]
    fn changing_the_current_context_keeps_comments() {
        let text = "# mine\ncurrent = \"a\"\n\n[context.a]\nserver = \"http://x\"\n";
        assert_eq!(
            with_current(text, "b"),
            text.replace("\"a\"\n\n", "\"b\"\n\n")
        );
        assert_eq!(
            with_current("[context.a]\n", "a"),
            "current = \"a\"\n[context.a]\n"
        );
        assert_eq!(with_current("", "a"), "current = \"a\"\n");
    }
}
