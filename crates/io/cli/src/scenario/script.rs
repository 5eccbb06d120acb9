//! The text of a script: commands, the lines expected after each, and what stands between.
//!
//! A line that starts with `$ ` is a command and the lines after it are its expected output. In
//! Markdown the fenced `console` blocks are the script; all else is kept as it is.

use thiserror::Error;

/// The first line of a block that is run.
const FENCE: &str = "```console";
/// The last line of a block.
const FENCE_END: &str = "```";

/// A script, of which nothing is lost: [`Script::text`] gives it back.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Script {
    /// What it is made of, in order.
    pub(crate) pieces: Vec<Piece>,
}

/// A part of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Piece {
    /// Text that is not run, with its newlines.
    Text(String),
    /// A command.
    Step(Step),
}

/// A command with what it should print.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Step {
    /// On which line it stands, from 1.
    pub(crate) line: usize,
    /// The command, without the `$ `.
    pub(crate) command: String,
    /// The lines after it, each with its newline.
    pub(crate) expected: String,
}

/// Why a line cannot be split into words.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(crate) enum WordsError {
    /// A quote that does not end.
    #[error("a quote is not closed")]
    Quote,
    /// Something that a shell would do and a scenario does not.
    #[error("`{0}` means something to a shell; a scenario runs one command a line")]
    Shell(char),
}

impl Script {
    /// Reads a script; `is_markdown` says which form it has.
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

    /// The text of the script.
    pub(crate) fn text(&self) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Step(step) => format!("$ {}\n{}", step.command, step.expected),
        });
        pieces.collect()
    }

    /// The commands.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Step(step) => Some(step),
            Piece::Text(_) => None,
        })
    }

    /// The commands, to be given other expectations.
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

/// The words of a command, as a shell would split them: blanks, quotes and backslashes.
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
    fn a_page_is_split_and_put_together_again() {
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
    fn a_plain_script_may_begin_with_words() {
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
