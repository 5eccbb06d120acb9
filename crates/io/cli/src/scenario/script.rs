//! The text of a script: commands, the output expected after each, and other text.
//!
//! A line that starts with `$ ` is a command and the lines after it are its expected output. In
//! Markdown the fenced `console` blocks are the script; all other text is kept unchanged.

use thiserror::Error;

/// First line of a block that is run.
const FENCE: &str = "```console";
const FENCE_END: &str = "```";

/// A parsed script. [`Script::text`] returns exactly the parsed text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Script {
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Piece {
    /// Text that is not run, with its newlines.
    Text(String),
    Step(Step),
}

/// A command with its expected output.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Step {
    /// Line number, from 1.
    pub(crate) line: usize,
    /// The command, without the `$ `.
    pub(crate) command: String,
    /// The lines after it, each with its newline.
    pub(crate) expected: String,
}

/// Error of a command that cannot be split into words.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(crate) enum WordsError {
    #[error("a quote is not closed")]
    Quote,
    #[error("`{0}` is shell syntax, which a scenario does not have; write one command a line")]
    Shell(char),
}

impl Script {
    pub(crate) fn parse(text: &str, is_markdown: bool) -> Self {
        let mut script = Self::default();
        let mut is_inside = !is_markdown;
        for (line, number) in text.split_inclusive('\n').zip(1..) {
            let bare = line.trim_end_matches(['\n', '\r']);
            if is_markdown && !is_inside {
                is_inside = bare.trim() == FENCE;
                script.push_text(line);
            } else if is_markdown && bare.trim() == FENCE_END {
                is_inside = false;
                script.push_text(line);
            } else if let Some(command) = bare.strip_prefix("$ ") {
                let command = command.to_owned();
                script.pieces.push(Piece::Step(Step {
                    line: number,
                    command,
                    expected: String::new(),
                }));
            } else if let Some(Piece::Step(step)) = script.pieces.last_mut() {
                step.expected.push_str(line);
            } else {
                script.push_text(line);
            }
        }
        script
    }

    pub(crate) fn text(&self) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Step(step) => format!("$ {}\n{}", step.command, step.expected),
        });
        pieces.collect()
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Step(step) => Some(step),
            Piece::Text(_) => None,
        })
    }

    pub(crate) fn steps_mut(&mut self) -> impl Iterator<Item = &mut Step> {
        self.pieces.iter_mut().filter_map(|piece| match piece {
            Piece::Step(step) => Some(step),
            Piece::Text(_) => None,
        })
    }

    fn push_text(&mut self, line: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) => text.push_str(line),
            _ => self.pieces.push(Piece::Text(line.to_owned())),
        }
    }
}

/// Splits a command into words as a shell does: by blanks, quotes and backslashes.
pub(crate) fn words(command: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            quote @ ('\'' | '"') => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        None => return Err(WordsError::Quote),
                        Some(end) if end == quote => break,
                        Some('\\') if quote == '"' => word.extend(letters.next()),
                        Some(inside) => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            '|' | '>' | '<' | ';' | '&' | '`' => return Err(WordsError::Shell(letter)),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::{Script, Step, WordsError, words};

    const PAGE: &str = "# Page\n\n```console\n$ bursar limits\nLIMIT\n\nmore\n$ advance 5s\n```\n\ntext\n\n```sh\n$ not run\n```\n";

    #[test]
    fn a_parsed_page_is_written_back_unchanged() {
        let script = Script::parse(PAGE, true);
        assert_eq!(script.text(), PAGE);
        let steps: Vec<&Step> = script.steps().collect();
        assert_eq!(steps.len(), 2);
        assert!(
            steps
                .iter()
                .any(|step| step.line == 4 && step.expected == "LIMIT\n\nmore\n")
        );
        assert!(
            steps
                .iter()
                .any(|step| step.line == 8 && step.expected.is_empty())
        );
    }

    #[test]
    fn a_plain_script_may_begin_with_text() {
        let text = "what it is about\n$ clock 10:00\n$ bursar limits\nout\n";
        let script = Script::parse(text, false);
        assert_eq!(script.text(), text);
        assert_eq!(script.steps().count(), 2);
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        let split = |text| words(text).unwrap_or_default().join("|");
        assert_eq!(
            split("bursar  limit set 'a b' --x \"c \\\" d\" e\\ f ''"),
            "bursar|limit|set|a b|--x|c \" d|e f|"
        );
        assert_eq!(words("a 'b"), Err(WordsError::Quote));
        assert_eq!(words("a | b"), Err(WordsError::Shell('|')));
    }
}
