//! "Did you mean": the nearest of the names there are, if it is near enough.

/// How many letters may be wrong (design 80, 1.6).
const DISTANCE_MAX: usize = 2;

/// The nearest candidate within two slips of the fingers.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let ranked = candidates.into_iter().filter_map(|candidate| {
        let distance = strsim::osa_distance(word, candidate);
        // A word of which nothing is left would be near to everything short.
        let near = distance <= DISTANCE_MAX && distance < candidate.chars().count();
        near.then_some((distance, candidate))
    });
    ranked.min().map(|(_, candidate)| candidate)
}

/// `, did you mean `x`?` or nothing.
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
    fn two_slips_are_forgiven_and_three_are_not() {
        let names = ["booking", "limit", "up"];
        assert_eq!(did_you_mean("bookign", names), ", did you mean `booking`?");
        assert_eq!(did_you_mean("limts", names), ", did you mean `limit`?");
        assert_eq!(did_you_mean("lmits", names), ", did you mean `limit`?");
        assert_eq!(did_you_mean("ledger", names), "");
        assert_eq!(did_you_mean("x", names), "");
    }
}
