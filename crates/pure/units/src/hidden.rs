//! Characters that are invisible or change how the text around them is displayed.
//!
//! A label with one of them looks like another label, and some control the terminal. New requests with
//! them are refused ([`check`]); records that have them stay readable, and output escapes them
//! ([`escape`]).

use std::borrow::Cow;
use std::fmt::Write as _;

use thiserror::Error;

/// Error of a text with a hidden character.
#[derive(Clone, Copy, Debug, Error, Eq, PartialEq)]
#[error("has the invisible character U+{:04X}; leave it out", u32::from(*.0))]
pub struct Hidden(pub char);

/// Whether a character is hidden: control characters, writing directions, line separators, Unicode's
/// `Default_Ignorable_Code_Point`, the blank Braille pattern and noncharacters.
pub fn is_hidden(character: char) -> bool {
    // Fast path: nearly all text is ASCII.
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    matches!(
        character,
        '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fdd0}'..='\u{fdef}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    ) || u32::from(character) & 0xfffe == 0xfffe
}

/// Refuses a text with a hidden character, and names the first.
pub fn check(text: &str) -> Result<(), Hidden> {
    match text.chars().find(|character| is_hidden(*character)) {
        Some(character) => Err(Hidden(character)),
        None => Ok(()),
    }
}

/// Escapes every hidden character except those in `kept` as its code point: `\u{202e}`.
pub fn escape<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let is_escaped = |character: char| is_hidden(character) && !kept.contains(&character);
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            // Writing to a string cannot fail.
            let _written = write!(escaped, "\\u{{{:x}}}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::{Hidden, check, escape};

    #[test]
    fn hidden_characters_are_named_and_escaped() {
        for character in [
            '\0',
            '\u{7}',
            '\n',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffff}',
            '\u{e0041}',
            '\u{e01ef}',
        ] {
            let text = format!("a{character}b");
            assert_eq!(check(&text), Err(Hidden(character)), "{character:?}");
            let escaped = format!("a\\u{{{:x}}}b", u32::from(character));
            assert_eq!(escape(&text, &[]), escaped);
            assert_eq!(escape(&escaped, &[]), escaped, "twice is once");
        }
        assert_eq!(
            Hidden('\u{202e}').to_string(),
            "has the invisible character U+202E; leave it out"
        );
        assert_eq!(
            Hidden('\u{7}').to_string(),
            "has the invisible character U+0007; leave it out"
        );
        assert_eq!(escape("a\nb\u{7}", &['\n']), "a\nb\\u{7}");
    }

    #[test]
    fn visible_text_is_not_changed() {
        for text in [
            "größe",
            "日本語",
            "عربي",
            "עברית",
            "हिन्दी",
            "a b",
            "🙂",
            "\\u{7}",
            "é",
        ] {
            assert_eq!((check(text), escape(text, &[]).as_ref()), (Ok(()), text));
        }
    }
}
