//! A difference in a generated file is reported by its first differing line.

use xtask::drift::first_difference;

#[test]
fn the_first_difference_is_named_by_line_and_by_both_texts() {
    for (committed, generated, expected) in [
        ("a\nb\n", "a\nb\n", None),
        (
            "a\n b\n",
            "a\n c\n",
            Some("line 2: committed `b`, generated `c`"),
        ),
        (
            "a\n",
            "a\nb\n",
            Some("line 2: committed the end, generated `b`"),
        ),
        (
            "a\nb\n",
            "a\n",
            Some("line 2: committed `b`, generated the end"),
        ),
        ("a", "a\n", Some("they differ in their last newline")),
    ] {
        assert_eq!(first_difference(committed, generated).as_deref(), expected);
    }
}
