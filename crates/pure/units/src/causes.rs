//! Formats an error with its causes in one line.

use std::error::Error;

/// An error and its causes in one line. A cause is skipped if the line ends with it already, because
/// the error above has repeated it.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::chain;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        source: Option<Box<Failed>>,
    }

    fn failed(texts: &[&'static str]) -> Option<Box<Failed>> {
        let (text, causes) = texts.split_first()?;
        let source = failed(causes);
        Some(Box::new(Failed { text, source }))
    }

    #[test]
    fn causes_follow_one_another_and_none_is_repeated() {
        for (texts, line) in [
            (&["a"][..], "a"),
            (&["a", "b", "c"], "a: b: c"),
            (&["a: b", "b", "c"], "a: b: c"),
            (&["a: b: c", "b: c", "c"], "a: b: c"),
        ] {
            let error = failed(texts).map(|error| chain(&error));
            assert_eq!(error.as_deref(), Some(line));
        }
    }
}
