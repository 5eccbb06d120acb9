//! Errors of the command line: clap's errors in our words, with a suggestion.

use std::ffi::OsString;

use bursar_client::{Code, Problem, nearest};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::{Failure, exit};
use crate::grammar::Arguments;
use crate::suggest::did_you_mean;

/// The command whose exit code may be its program's.
const EXEC: &str = "bursar exec";

/// Result of reading a command line that has no command to run.
pub(crate) enum NoCommand {
    /// Help or version, for stdout.
    Text(String),
    Mistake(Box<Failure>),
}

/// Our text for clap's error; `words` is the command line with the program first.
pub(crate) fn explain(error: &clap::Error, words: &[String]) -> NoCommand {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return NoCommand::Text(error.to_string());
    }
    let position = GrammarPosition::of(words);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let invalid = bare(&text(ContextKind::InvalidArg));
    let value = text(ContextKind::InvalidValue);
    let message = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            position.unknown_command(&text(ContextKind::InvalidSubcommand))
        }
        ErrorKind::UnknownArgument if let Some(flag) = position.negative(words, &invalid) => {
            format!("{flag} cannot be negative")
        }
        ErrorKind::UnknownArgument if invalid.starts_with('-') => {
            let names = position.flags();
            let suggestion = did_you_mean(&invalid, names.iter().map(String::as_str));
            format!("`{}` has no flag `{invalid}`{suggestion}", position.path)
        }
        ErrorKind::UnknownArgument if position.has_verbs => position.unknown_command(&invalid),
        ErrorKind::UnknownArgument if position.path == EXEC => {
            format!("`{EXEC}` takes its program after `--`, as in `{EXEC} -- {invalid}`")
        }
        ErrorKind::UnknownArgument => format!("`{}` does not accept `{invalid}`", position.path),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("`{}` needs a command after it", position.path)
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = text(ContextKind::InvalidArg).replace(", ", "` and `");
            format!("`{}` needs `{missing}`", position.path)
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("`{invalid}` needs a value"),
        ErrorKind::InvalidValue => {
            let valid = text(ContextKind::ValidValue);
            let near = nearest(&value, valid.split(", "));
            match near {
                Some(near) => format!("{invalid} cannot be `{value}`, did you mean `{near}`?"),
                None => format!("{invalid} cannot be `{value}`: it is one of {valid}"),
            }
        }
        ErrorKind::ValueValidation => {
            wrong_value(&invalid, &value, std::error::Error::source(error))
        }
        ErrorKind::ArgumentConflict => {
            let prior = bare(&text(ContextKind::PriorArg));
            match (invalid.as_str(), prior.as_str()) {
                (flag, "") | ("", flag) => {
                    format!("put {flag} after the subcommand that accepts it")
                }
                (invalid, prior) if prior == invalid => format!("{invalid} is given twice"),
                (invalid, prior) => format!("{invalid} and {prior} cannot be used together"),
            }
        }
        _ => {
            let first = error.to_string();
            let first = first.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    let mut failure =
        Failure::usage(message).hint(format!("`{} -h` has an example", position.path));
    if position.path == EXEC {
        // The program may exit with 2 itself, so our own errors need another code.
        let problem = Problem::new(Code::Invalid, failure.message.clone());
        failure.problem = Some(Box::new(problem));
        failure.exit = exit::EXEC;
    }
    NoCommand::Mistake(Box::new(failure))
}

/// The command line of `bursar help COMMAND`, which is `bursar COMMAND --help`.
pub(crate) fn help_as_flag(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

/// Whether an invalid command line asks for an output format.
pub(crate) fn wants(words: &[String], format: &str) -> bool {
    let mut previous = "";
    for word in before_program(words) {
        let value = word
            .strip_prefix("--output=")
            .or_else(|| word.strip_prefix("-o="));
        let value = value.or_else(|| word.strip_prefix("-o").filter(|value| !value.is_empty()));
        if value == Some(format) || (word == format && matches!(previous, "-o" | "--output")) {
            return true;
        }
        previous = word;
    }
    false
}

/// The innermost subcommand that a command line names.
struct GrammarPosition {
    path: String,
    command: clap::Command,
    has_verbs: bool,
}

impl GrammarPosition {
    fn of(words: &[String]) -> Self {
        let mut command = Arguments::definition();
        command.build();
        let mut path = "bursar".to_owned();
        for word in before_program(words).skip(1) {
            if let Some(next) = command.find_subcommand(word).cloned() {
                path = format!("{path} {}", next.get_name());
                command = next;
            }
        }
        let has_verbs = command.has_subcommands();
        Self {
            path,
            command,
            has_verbs,
        }
    }

    /// The flag before `invalid`, if that is a negative number.
    fn negative<'a>(&self, words: &'a [String], invalid: &str) -> Option<&'a str> {
        if !is_negative(invalid) {
            return None;
        }
        // clap reports only the `-5` of `-5s`.
        let at = before_program(words).position(|word| word.starts_with(invalid))?;
        let flag = words.get(at.checked_sub(1)?)?;
        self.flags().contains(flag).then_some(flag.as_str())
    }

    fn unknown_command(&self, word: &str) -> String {
        let names = self.command.get_subcommands().flat_map(|sub| {
            let visible = sub.get_name_and_visible_aliases().into_iter();
            visible.chain(sub.get_all_aliases())
        });
        let suggestion = did_you_mean(word, names);
        format!("`{}` has no command `{word}`{suggestion}", self.path)
    }

    fn flags(&self) -> Vec<String> {
        let longs = self.command.get_arguments().filter_map(clap::Arg::get_long);
        longs.map(|long| format!("--{long}")).collect()
    }
}

/// The error of a flag's value; errors of the standard library's parsers get our own text.
fn wrong_value(
    flag: &str,
    value: &str,
    source: Option<&(dyn std::error::Error + 'static)>,
) -> String {
    if is_negative(value) {
        return format!("{flag} cannot be negative");
    }
    let Some(source) = source else {
        return format!("{flag} cannot be `{value}`");
    };
    if source.is::<std::num::ParseIntError>() {
        return format!("{flag} must be a whole number, not `{value}`");
    }
    if source.is::<std::net::AddrParseError>() {
        return format!("{flag} needs ADDRESS:PORT, such as 127.0.0.1:7171");
    }
    match source.to_string() {
        rule if rule.starts_with("must ") => format!("{flag} {rule}"),
        // The rule names the value itself.
        rule if rule.starts_with('`') => format!("{flag}: {rule}"),
        rule => format!("{flag} cannot be `{value}`: {rule}"),
    }
}

fn is_negative(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The words up to `--`; the program's arguments follow it.
fn before_program(words: &[String]) -> impl Iterator<Item = &String> {
    words.iter().take_while(|word| *word != "--")
}

/// `--slots` of `--slots <N>`.
fn bare(argument: &str) -> String {
    argument
        .split([' ', '='])
        .next()
        .unwrap_or_default()
        .to_owned()
}
