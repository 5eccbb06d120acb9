//! The table of problem codes stays as published.

use bursar_client::{Code, Problem};

/// Published codes with HTTP status and exit code, in the order of the table.
const TABLE: [(&str, u16, u8); 23] = [
    ("malformed", 400, 2),
    ("invalid", 422, 2),
    ("unauthenticated", 401, 1),
    ("not-allowed", 403, 1),
    ("not-found", 404, 1),
    ("conflict", 409, 1),
    ("id-reused", 409, 1),
    ("stale-fence", 409, 1),
    ("id-too-old", 409, 1),
    ("would-wait", 409, 1),
    ("nothing-helps", 409, 1),
    ("never-fits", 422, 1),
    ("over-limit", 429, 1),
    ("slow-down", 429, 3),
    ("gone", 410, 3),
    ("too-large", 413, 2),
    ("unavailable", 503, 3),
    ("not-leader", 503, 3),
    ("store-away", 503, 3),
    ("busy", 503, 3),
    ("disk-low", 503, 3),
    ("internal", 500, 3),
    ("outcome-unknown", 504, 3),
];

#[test]
fn codes_have_their_published_status_and_exit_code() {
    let ours: Vec<_> = Code::ALL
        .iter()
        .map(|code| (code.word(), code.status(), code.page().exit))
        .collect();
    assert_eq!(ours, TABLE);
}

#[test]
fn codes_read_and_write_as_their_words_and_have_a_page() {
    for code in Code::ALL {
        let word = serde_json::to_value(code).unwrap();
        assert_eq!(word, code.word());
        assert_eq!(serde_json::from_value::<Code>(word).unwrap(), *code);
        assert_eq!(Code::from_word(code.word()), Some(*code));
        let page = code.page();
        assert!(page.text.ends_with('.') && page.text.len() > 80, "{code}");
        assert!(!page.title.ends_with('.'), "{code}");
        assert_eq!(Problem::new(*code, "x").type_, format!("/problems/{code}"));
    }
    assert_eq!(Code::from_word("fine"), None);
}
