//! "Did you mean": the known name that is most similar to a mistyped one.

use bursar_client::nearest;

/// `, did you mean `x`?`, or an empty text.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    nearest(word, candidates)
        .map(|name| format!(", did you mean `{name}`?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn up_to_two_wrong_letters_get_a_suggestion() {
        let names = ["booking", "limit", "up"];
        assert_eq!(did_you_mean("bookign", names), ", did you mean `booking`?");
        assert_eq!(did_you_mean("limts", names), ", did you mean `limit`?");
        assert_eq!(did_you_mean("lmits", names), ", did you mean `limit`?");
        assert_eq!(did_you_mean("ledger", names), "");
        assert_eq!(did_you_mean("x", names), "");
    }
}
