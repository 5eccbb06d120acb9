//! Query parameters as text.

use std::collections::BTreeSet;

use axum::extract::Query as Pairs;
use bursar_client::problem::FieldError;
use http::Uri;

/// The parameters after the `?`; `None` if they cannot be parsed.
pub(super) struct Query(Option<Vec<(String, String)>>);

impl Query {
    pub(super) fn parse(uri: &Uri) -> Self {
        let pairs = Pairs::<Vec<(String, String)>>::try_from_uri(uri);
        Self(pairs.ok().map(|Pairs(pairs)| pairs))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs().iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| is_text(value))
    }

    /// Lists parameters that are unknown, repeated or not UTF-8. An unknown one is refused, because
    /// a typo must not be ignored.
    pub(super) fn mistakes<'a>(
        &'a self,
        known: &'a BTreeSet<&'static str>,
    ) -> impl Iterator<Item = FieldError> + 'a {
        let message = "is not a list of name=value, percent-encoded as UTF-8";
        let unreadable = self.0.is_none().then(|| FieldError::new("query", message));
        let mut seen = BTreeSet::new();
        let wrong = move |(name, value): &'a (String, String)| {
            if !known.contains(name.as_str()) {
                let near = bursar_client::nearest(name, known.iter().copied());
                return Some(FieldError {
                    suggestion: near.map(|near| format!("did you mean `{near}`?")),
                    ..FieldError::new(name, "is not a parameter of this address")
                });
            }
            if !seen.insert(name) {
                return Some(FieldError::new(name, "is given twice"));
            }
            let message = "is not text: percent-encode it as UTF-8";
            (!is_text(value)).then(|| FieldError::new(name, message))
        };
        unreadable
            .into_iter()
            .chain(self.pairs().iter().filter_map(wrong))
    }

    fn pairs(&self) -> &[(String, String)] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Bytes that are not UTF-8 arrive as replacement characters.
fn is_text(text: &str) -> bool {
    !text.contains(char::REPLACEMENT_CHARACTER)
}
