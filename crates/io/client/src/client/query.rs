//! Query parameters as text.

use std::fmt::Write as _;

use crate::api::query::Parameters;

/// Query parameters, escaped.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(String);

impl Query {
    /// No parameters.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The parameters of a set.
    pub(super) fn of(parameters: &impl Parameters) -> Self {
        Self::new().and(parameters)
    }

    /// Adds the parameters of a set.
    pub(super) fn and(mut self, parameters: &impl Parameters) -> Self {
        parameters.write(&mut |name, value| {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(name);
            self.0.push('=');
            escape(&value.to_string(), &mut self.0);
        });
        self
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
