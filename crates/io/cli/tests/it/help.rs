//! Help, manual pages and completions, which are generated from one grammar.

use crate::house::House;

/// Lines of a terminal of the usual size.
const SCREEN_LINES: usize = 24;

/// Lines of `bursar -h`, which lists every command.
const ALL_LINES: usize = 30;

/// Collects all commands from the help texts.
fn commands(house: &House, path: &[&str], all: &mut Vec<Vec<String>>) {
    let mut words = path.to_vec();
    words.push("-h");
    let text = house.ok(&words);
    all.push(path.iter().map(|word| (*word).to_owned()).collect());
    let names = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = names.take_while(|line| line.starts_with("  "));
    for name in names.filter_map(|line| line.split_whitespace().next()) {
        let mut below = path.to_vec();
        below.push(name);
        commands(house, &below, all);
    }
}

#[test]
fn every_short_help_is_one_screen_and_begins_with_an_example_that_parses() {
    let house = House::new();
    let mut all = Vec::new();
    commands(&house, &[], &mut all);
    assert!(all.len() >= 35, "{} commands were found", all.len());
    for path in &all {
        let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
        words.push("-h");
        let text = house.ok(&words);
        let most = if path.is_empty() {
            ALL_LINES
        } else {
            SCREEN_LINES
        };
        assert!(
            text.lines().count() <= most,
            "{path:?} is too long:\n{text}"
        );
        *words.last_mut().unwrap() = "--help";
        let long = house.ok(&words);
        for line in text.lines().chain(long.lines()) {
            assert!(line.chars().count() <= 100, "{path:?} is too wide: {line}");
        }
        let example = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("example:  "))
            .map(|line| line.strip_prefix("(umask 077; ").unwrap_or(line))
            .and_then(|line| line.strip_prefix("bursar "));
        let example = example.unwrap_or_else(|| panic!("{path:?} begins without an example"));
        assert!(
            path.is_empty() || example.starts_with(&path.join(" ")),
            "{path:?}: {example}"
        );
    }
}

#[test]
fn long_help_shows_every_flag_and_short_help_only_those_of_the_command() {
    let house = House::new();
    let (short, long) = (
        house.ok(&["limit", "set", "-h"]),
        house.ok(&["limit", "set", "--help"]),
    );
    for flag in [
        "--output",
        "--timeout",
        "--token-file",
        "--server",
        "--context",
        "--quiet",
    ] {
        assert!(long.contains(flag) && !short.contains(flag), "{flag}");
    }
    assert!(short.contains("--slots") && long.contains("bursar limit set zeta"));
}

#[test]
fn the_word_help_is_the_flag() {
    let house = House::new();
    assert_eq!(house.ok(&["help"]), house.ok(&["--help"]));
    assert_eq!(
        house.ok(&["help", "run", "list"]),
        house.ok(&["run", "list", "--help"])
    );
}

#[test]
fn completions_know_the_plural_of_each_noun() {
    let text = House::new().ok(&["completions", "bash"]);
    for plural in [
        "runs", "leases", "budgets", "bookings", "limits", "nodes", "tokens", "contexts",
    ] {
        assert!(text.contains(&format!("bursar,{plural})")), "{plural}");
    }
}

#[test]
fn every_command_has_a_man_page_and_completions() {
    let house = House::new();
    house.ok(&["man", "pages"]);
    let page = std::fs::read_to_string(house.path("pages/bursar-booking-reserve.1")).unwrap();
    assert!(page.contains("\\-\\-priority"), "{page}");
    assert!(house.ok(&["man"]).starts_with(".ie"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = house.ok(&["completions", shell]);
        assert!(text.contains("token-file"), "{shell}");
    }
}

#[test]
fn singular_plural_and_noun_without_verb_mean_list() {
    let house = House::new();
    let _server = house.up(&[]);
    let listed = house.ok(&["limit", "list"]);
    for words in [
        &["limit"][..],
        &["limits"],
        &["limits", "list"],
        &["-o", "table", "limits"],
    ] {
        assert_eq!(house.ok(words), listed, "{words:?}");
    }
    assert_eq!(
        house.ok(&["limits", "-o", "name"]),
        "limit/default\nlimit/tenants\n"
    );
    assert_eq!(
        house.ok(&["-o", "name", "limit", "list"]),
        "limit/default\nlimit/tenants\n"
    );
}
