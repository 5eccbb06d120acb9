//! "Did you mean": the name nearest to an unknown one.

/// Levenshtein distance up to which a name is suggested.
const DISTANCE_MAX: usize = 2;
/// Names that are compared; more would cost more than the hint is worth.
const NAMES_MAX: usize = 10_000;

pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let length = wrong.chars().count();
    names
        .take(NAMES_MAX)
        .filter(|name| name.chars().count().abs_diff(length) <= DISTANCE_MAX)
        .map(|name| (strsim::levenshtein(wrong, name), name))
        // Every name of two letters is within the distance of any other.
        .filter(|(distance, name)| *distance <= DISTANCE_MAX && *distance < name.chars().count())
        .min()
        .map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["python", "pypi", "rust"];
        let check = |wrong: &str| nearest(wrong, names.into_iter());
        assert_eq!(check("pyhton").as_deref(), Some("python"));
        assert_eq!(check("haskell"), None);
        assert_eq!(nearest("a", ["b"].into_iter()), None);
    }
}
