//! "Did you mean": the name nearest to one that is not there (design 80, 1.6).

/// How far a name may be from the one that was meant.
const DISTANCE_MAX: usize = 2;
/// Names that are looked at: more would cost more than the hint is worth.
const NAMES_MAX: usize = 10_000;

/// The nearest of some names, if one is near.
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let length = wrong.chars().count();
    names
        .take(NAMES_MAX)
        .filter(|name| name.chars().count().abs_diff(length) <= DISTANCE_MAX)
        .map(|name| (strsim::levenshtein(wrong, name), name))
        // Of a name of two letters every other one is near.
        .filter(|(distance, name)| *distance <= DISTANCE_MAX && *distance < name.chars().count())
        .min()
        .map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_told_and_a_far_one_is_not() {
        let names = ["python", "pypi", "rust"];
        let check = |wrong: &str| nearest(wrong, names.into_iter());
        assert_eq!(check("pyhton").as_deref(), Some("python"));
        assert_eq!(check("haskell"), None);
        assert_eq!(nearest("a", ["b"].into_iter()), None);
    }
}
