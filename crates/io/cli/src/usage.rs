//! Wrong use, in our own words: what was typed, what may have been meant (design 80, 2.18).

use bursar_client::{Code, Problem};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::{Failure, exit};
use crate::grammar::Arguments;
use crate::suggest::nearest;

/// The command whose program has exit codes of its own.
const EXEC: &str = "bursar exec";

/// What came of reading a command line that is not a command.
pub(crate) enum Asked {
    /// Help or version, to stdout.
    Text(String),
    /// A mistake.
    Mistake(Box<Failure>),
}

/// Our words for what clap found in `words`, of which the first is the program.
pub(crate) fn explain(error: &clap::Error, words: &[String]) -> Asked {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return Asked::Text(error.to_string());
    }
    let place = Place::of(words);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let invalid = bare(&text(ContextKind::InvalidArg));
    let value = text(ContextKind::InvalidValue);
    let message = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            place.unknown_command(&text(ContextKind::InvalidSubcommand))
        }
        ErrorKind::UnknownArgument if let Some(flag) = place.negative(words, &invalid) => {
            format!("{flag} cannot be negative")
        }
        ErrorKind::UnknownArgument if invalid.starts_with('-') => {
            let names = place.flags();
            let suggestion = nearest(&invalid, names.iter().map(String::as_str));
            let suggestion = suggestion.map(|name| format!(", did you mean `{name}`?"));
            format!(
                "`{}` has no flag `{invalid}`{}",
                place.path,
                suggestion.unwrap_or_default()
            )
        }
        ErrorKind::UnknownArgument if place.has_verbs => place.unknown_command(&invalid),
        ErrorKind::UnknownArgument if place.path == EXEC => {
            format!("`{EXEC}` takes its program after `--`, as in `{EXEC} -- {invalid}`")
        }
        ErrorKind::UnknownArgument => format!("`{}` takes no `{invalid}`", place.path),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("`{}` needs a command after it", place.path)
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = text(ContextKind::InvalidArg).replace(", ", "` and `");
            format!("`{}` needs `{missing}`", place.path)
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
                (invalid, prior) => format!("{invalid} and {prior} cannot stand together"),
            }
        }
        _ => {
            let first = error.to_string();
            let first = first.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    let mut failure = Failure::usage(message).hint(format!("`{} -h` has an example", place.path));
    if place.path == EXEC {
        // The program may end with 2 itself; what is ours must not look like it.
        let problem = Problem::new(Code::Invalid, failure.message.clone());
        failure.problem = Some(Box::new(problem));
        failure.exit = exit::EXEC;
    }
    Asked::Mistake(Box::new(failure))
}

/// Whether a command line that could not be read asks for JSON.
pub(crate) fn wants_json(words: &[String]) -> bool {
    let mut previous = "";
    for word in before_program(words) {
        let here = word
            .strip_prefix("--output=")
            .or_else(|| word.strip_prefix("-o="));
        let here = here.or_else(|| word.strip_prefix("-o").filter(|value| !value.is_empty()));
        if here == Some("json") || (word == "json" && matches!(previous, "-o" | "--output")) {
            return true;
        }
        previous = word;
    }
    false
}

/// Where in the grammar a command line stopped making sense.
struct Place {
    path: String,
    command: clap::Command,
    has_verbs: bool,
}

impl Place {
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

    /// The flag whose value `invalid` is meant to be, where that is a number below zero.
    fn negative<'a>(&self, words: &'a [String], invalid: &str) -> Option<&'a str> {
        if !is_negative(invalid) {
            return None;
        }
        // Of `-5s` clap names the `-5` only.
        let at = before_program(words).position(|word| word.starts_with(invalid))?;
        let flag = words.get(at.checked_sub(1)?)?;
        self.flags().contains(flag).then_some(flag.as_str())
    }

    fn unknown_command(&self, word: &str) -> String {
        let names: Vec<&str> = self
            .command
            .get_subcommands()
            .flat_map(|sub| {
                sub.get_name_and_visible_aliases()
                    .into_iter()
                    .chain(sub.get_all_aliases())
            })
            .collect();
        let suggestion = nearest(word, names.iter().copied());
        let suggestion = suggestion.map(|name| format!(", did you mean `{name}`?"));
        format!(
            "`{}` has no command `{word}`{}",
            self.path,
            suggestion.unwrap_or_default()
        )
    }

    fn flags(&self) -> Vec<String> {
        let longs = self.command.get_arguments().filter_map(clap::Arg::get_long);
        longs.map(|long| format!("--{long}")).collect()
    }
}

/// What is wrong with the value of a flag, in our words also where a parser of the standard
/// library read it.
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
        // It names the value itself.
        rule if rule.starts_with('`') => format!("{flag}: {rule}"),
        rule => format!("{flag} cannot be `{value}`: {rule}"),
    }
}

/// Whether a text is meant to be a number below zero.
fn is_negative(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The words that are ours: what follows `--` is for the program.
fn before_program(words: &[String]) -> impl Iterator<Item = &String> {
    words.iter().take_while(|word| *word != "--")
}

/// `--slots <N>` as people type it: `--slots`.
fn bare(argument: &str) -> String {
    argument
        .split([' ', '='])
        .next()
        .unwrap_or_default()
        .to_owned()
}
