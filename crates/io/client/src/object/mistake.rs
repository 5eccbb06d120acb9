//! Mistakes in files, with the line they stand in (design 80, 2.5).

use std::collections::BTreeSet;
use std::fmt;

use crate::problem::{FieldError, Problem};
use crate::shape::Found;

/// One mistake in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistake {
    /// The file as it was named.
    pub file: String,
    /// The line, from 1; `None` where the whole file is meant.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: usize,
    /// The object, as in `limit/python`, as far as the file says.
    pub object: Option<String>,
    /// The field, as in `spec.slots`; empty where there is none.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What may have been meant, or what to do.
    pub suggestion: Option<String>,
    /// The line as it stands in the file, and how many characters of it to underline.
    source: Option<(String, usize)>,
}

/// All mistakes of some files: nothing of them was used.
///
/// Its `Display` is what a terminal shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistakes {
    /// The mistakes, in the order of the text.
    pub mistakes: Vec<Mistake>,
    /// How many documents were read.
    pub documents: usize,
    /// What was not done because of them: `applied`.
    pub undone: &'static str,
}

/// Lines longer than this are not shown: their end says nothing, and a terminal would wrap.
const SOURCE_LINE_MAX: usize = 400;

impl Mistake {
    /// A mistake in a file that has these lines: of many mistakes each would look for its own again.
    pub(super) fn new(file: &str, lines: &[&str], object: Option<String>, found: Found) -> Self {
        let place = found.place;
        let line = lines.get(place.line.saturating_sub(1));
        let line = line.copied().unwrap_or_default();
        let is_shown = place.line > 0 && line.chars().count() <= SOURCE_LINE_MAX;
        Self {
            file: file.to_owned(),
            line: (place.line > 0).then_some(place.line),
            column: place.column,
            object,
            path: found.path,
            message: found.wrong.message,
            suggestion: found.wrong.suggestion,
            source: is_shown.then(|| (line.to_owned(), place.width)),
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
        }
    }
}

impl Mistakes {
    /// The same as a problem object, for `-o json`.
    pub fn to_problem(&self) -> Problem {
        let errors = self.mistakes.iter().map(|mistake| FieldError {
            path: mistake.path.clone(),
            line: mistake.line.and_then(|line| u64::try_from(line).ok()),
            message: mistake.message.clone(),
            suggestion: mistake.suggestion.clone(),
        });
        let mut problem = Problem::invalid(errors.collect());
        problem.detail = self.sum();
        problem
    }

    /// The last line: how many mistakes, where, and that nothing was done.
    fn sum(&self) -> String {
        let objects: BTreeSet<_> = self
            .mistakes
            .iter()
            .map(|m| m.object.as_ref().unwrap_or(&m.file))
            .collect();
        let place = match (objects.len(), objects.first()) {
            (1, Some(object)) => (*object).clone(),
            (count, _) => format!("{count} objects"),
        };
        format!(
            "{} in {place}, nothing was {} ({} read)",
            counted(self.mistakes.len(), "mistake"),
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
        // A tab moves the terminal further than a space, so it is shown as one.
        let source = source.replace('\t', " ");
        let indent = self.column.saturating_sub(1);
        writeln!(f, "\n{:gutter$} |", "")?;
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
        for mistake in &self.mistakes {
            write!(f, "error: {mistake}\n\n")?;
        }
        write!(f, "error: {}", self.sum())
    }
}

impl std::error::Error for Mistakes {}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
