//! Mistakes in files, with their lines.

use std::collections::BTreeMap;
use std::fmt;

use bursar_units::words;

use crate::problem::{FieldError, Problem};
use crate::shape::FieldMistake;

/// One mistake in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistake {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; `None` for the whole file.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: usize,
    /// Object, as in `limit/python`, if the file names it.
    pub object: Option<String>,
    /// Path of the field, as in `spec.slots`; empty if there is none.
    pub path: String,
    /// Description of the mistake.
    pub message: String,
    /// Probable intention, or advice.
    pub suggestion: Option<String>,
    /// Text of the line, and number of characters to underline.
    source: Option<(String, usize)>,
    /// Number and text of an earlier line that the mistake is about.
    beside: Option<(usize, String)>,
}

/// All mistakes of some files, of which nothing was used. `Display` formats them for a terminal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistakes {
    /// Mistakes, in the order of the text.
    pub mistakes: Vec<Mistake>,
    /// Number of documents read.
    pub documents: usize,
    /// Participle of the action that was not done, as in `applied`.
    pub undone: &'static str,
}

/// Longer lines are not shown, because a terminal would wrap them.
const SOURCE_LINE_MAX: usize = 400;
/// Objects with mistakes that the last line names.
const OBJECTS_NAMED_MAX: usize = 3;
/// Mistakes that are printed. Nobody reads more, and a file may have a mistake in every line.
const PRINTED_MAX: usize = 100;

impl Mistake {
    /// Takes the lines of the file, so that they are split once for all mistakes.
    pub(super) fn new(
        file: &str,
        lines: &[&str],
        object: Option<String>,
        mistake: FieldMistake,
    ) -> Self {
        let position = mistake.position;
        let line = lines.get(position.line.saturating_sub(1));
        let line = line.copied().unwrap_or_default();
        let beside = (0 < mistake.beside && mistake.beside < position.line)
            .then(|| lines.get(mistake.beside.saturating_sub(1)))
            .flatten()
            .filter(|line| line.chars().count() <= SOURCE_LINE_MAX)
            .map(|line| (mistake.beside, (*line).to_owned()));
        let is_shown = position.line > 0 && line.chars().count() <= SOURCE_LINE_MAX;
        Self {
            file: file.to_owned(),
            line: (position.line > 0).then_some(position.line),
            column: position.column,
            object,
            path: mistake.path,
            message: mistake.wrong.message,
            suggestion: mistake.wrong.suggestion,
            source: is_shown.then(|| (line.to_owned(), position.width)),
            beside,
        }
    }

    /// A mistake in an object that no file has.
    pub(super) fn elsewhere(error: &FieldError) -> Self {
        let object = error.object.as_deref().unwrap_or("the request");
        Self {
            path: error.path.clone(),
            suggestion: error.suggestion.clone(),
            ..Self::of_file(object, &error.message)
        }
    }

    pub(super) fn of_file(file: &str, message: &str) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            column: 0,
            object: None,
            path: String::new(),
            message: message.to_owned(),
            suggestion: None,
            source: None,
            beside: None,
        }
    }
}

impl Mistakes {
    /// The first mistakes as a problem, for `-o json`; its detail counts all.
    pub fn to_problem(&self) -> Problem {
        let errors = self.mistakes.iter().take(PRINTED_MAX);
        let errors = errors.map(|mistake| FieldError {
            object: mistake.object.clone(),
            path: mistake.path.clone(),
            line: mistake.line.and_then(|line| u64::try_from(line).ok()),
            message: mistake.message.clone(),
            suggestion: mistake.suggestion.clone(),
        });
        let mut problem = Problem::invalid(errors.collect());
        problem.detail = self.sum();
        problem
    }

    fn sum(&self) -> String {
        let mut objects: Vec<(&str, usize)> = Vec::new();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        for mistake in &self.mistakes {
            let object = mistake.object.as_ref().unwrap_or(&mistake.file).as_str();
            let at = *known.entry(object).or_insert(objects.len());
            match objects.get_mut(at) {
                Some((_, count)) => *count = count.saturating_add(1),
                None => objects.push((object, 1)),
            }
        }
        let named = objects.iter().take(OBJECTS_NAMED_MAX).enumerate();
        let mut places: Vec<String> = named
            .map(|(at, (object, count))| match at {
                0 => format!("{} in {object}", counted(*count, "mistake")),
                _ => format!("{} in {object}", number(*count)),
            })
            .collect();
        if let Some(others @ [_, ..]) = objects.get(OBJECTS_NAMED_MAX..) {
            let count = others
                .iter()
                .fold(0_usize, |sum, (_, count)| sum.saturating_add(*count));
            let objects = counted(others.len(), "other object");
            places.push(format!("{} in {objects}", number(count)));
        }
        let places = places.join(", ");
        format!(
            "{places}, nothing was {} ({} read)",
            self.undone,
            counted(self.documents, "document"),
        )
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(line) = self.line {
            write!(f, "{line}:{}:", self.column)?;
        }
        let space = if self.path.is_empty() { "" } else { " " };
        write!(f, " {}{space}{}", self.path, self.message)?;
        let Some(((source, width), line)) = self.source.as_ref().zip(self.line) else {
            return match &self.suggestion {
                Some(suggestion) => write!(f, ", {suggestion}"),
                None => Ok(()),
            };
        };
        let gutter = line.to_string().len();
        // A tab has more than one column in a terminal, so it is shown as a space.
        let source = source.replace('\t', " ");
        let indent = self.column.saturating_sub(1);
        writeln!(f, "\n{:gutter$} |", "")?;
        if let Some((line, source)) = &self.beside {
            writeln!(f, "{line:gutter$} | {}", source.replace('\t', " "))?;
        }
        writeln!(f, "{line} | {source}")?;
        write!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(*width))?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " {suggestion}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in self.mistakes.iter().take(PRINTED_MAX) {
            write!(f, "error: {mistake}\n\n")?;
        }
        if let others @ 1.. = self.mistakes.len().saturating_sub(PRINTED_MAX) {
            let verb = if others == 1 { "is" } else { "are" };
            let others = counted(others, "other mistake");
            write!(f, "error: {others} {verb} not shown\n\n")?;
        }
        write!(f, "error: {}", self.sum())
    }
}

impl std::error::Error for Mistakes {}

fn counted(count: usize, noun: &str) -> String {
    words::count(u64::try_from(count).unwrap_or(u64::MAX), noun)
}

fn number(count: usize) -> String {
    words::number(u64::try_from(count).unwrap_or(u64::MAX))
}
