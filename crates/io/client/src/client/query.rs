//! Query parameters.

use std::fmt::Write as _;

/// Query parameters, escaped.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Query(String);

impl Query {
    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        escape(&value.to_string(), &mut self.0);
        self
    }

    /// Adds a parameter if there is a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// `?a=b&c=d`, or nothing.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Appends a text with all but the unreserved characters of RFC 3986 escaped.
pub(super) fn escape(text: &str, to: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            to.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(to, "%{byte:02X}");
        }
    }
}
