//! Rules for all text files: whitespace, and content that must never be in a public tree.
//!
//! A word that a rule searches for is written in two halves here, or the rule would find itself.

use crate::Finding;
use crate::tree::File;

/// Directories with test inputs, which must not be reformatted.
const BYTE_FOR_BYTE: &[&str] = &["/corpus/", "/journals/"];

/// Words that announce later work.
const PROMISES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Directories that exist on one machine only.
const MACHINE_ROOTS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!(r"\Us", r"ers\"),
];

/// Addresses of package registries and the settings that redirect to one.
const REGISTRIES: &[&str] = &[
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("crates", ".io-index"),
    concat!("://crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("rubygems", ".org"),
    concat!("arti", "factory"),
    concat!("replace", "-with"),
];

/// No trailing blanks, no carriage returns, exactly one newline at the end.
pub(super) fn whitespace(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in written(files) {
        for (index, line) in file.text.split('\n').enumerate() {
            if line.ends_with([' ', '\t']) {
                findings.push(Finding::at(&file.path, index, "trailing whitespace"));
            }
            if line.contains('\r') {
                findings.push(Finding::at(
                    &file.path,
                    index,
                    "carriage return; lines end in a newline alone",
                ));
            }
        }
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            findings.push(Finding::of(&file.path, "must end in exactly one newline"));
        }
    }
    findings
}

/// No notes about later work: it is done now, or it is an issue.
pub(super) fn promises_to_come_back(files: &[File]) -> Vec<Finding> {
    let message =
        |word: &str| format!("`{word}`: do it now, or open an issue and remove this note");
    find(files, |line| {
        PROMISES
            .iter()
            .find(|word| holds_word(line, word))
            .map(|word| message(word))
    })
}

/// No path that only one machine has.
pub(super) fn machine_paths(files: &[File]) -> Vec<Finding> {
    let message = |root: &str| {
        format!("a path of one machine (`{root}`): write it relative to the tree or to `~`")
    };
    find(files, |line| {
        MACHINE_ROOTS
            .iter()
            .find(|root| starts_path(line, root))
            .map(|root| message(root))
    })
}

/// No address of a package registry: where crates come from is each machine's own setting.
pub(super) fn registry_addresses(files: &[File]) -> Vec<Finding> {
    let default_source = format!("source = \"{}\"", crate::policy::DEFAULT_REGISTRY);
    let message = |address: &str| {
        format!("an address of a package registry (`{address}`): each machine has its own")
    };
    let others = find(files, |line| {
        // Cargo writes this line for every crate, whichever mirror it was fetched from.
        if line == default_source {
            return None;
        }
        REGISTRIES
            .iter()
            .find(|address| line.contains(**address))
            .map(|address| message(address))
    });
    let locked = files
        .iter()
        .filter(|file| file.name() == "Cargo.lock")
        .flat_map(|file| {
            let sources = file.text.lines().enumerate();
            let foreign = sources
                .filter(|(_, line)| line.starts_with("source = ") && *line != default_source);
            foreign.map(|(index, line)| {
                Finding::at(
                    &file.path,
                    index,
                    format!("not the default registry: {line}"),
                )
            })
        });
    others.into_iter().chain(locked).collect()
}

/// One finding for each line for which `complain` returns a message.
fn find(files: &[File], complain: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in written(files) {
        for (index, line) in file.text.lines().enumerate() {
            findings.extend(complain(line).map(|message| Finding::at(&file.path, index, message)));
        }
    }
    findings
}

/// All files except recorded inputs of tests.
fn written(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| {
        !BYTE_FOR_BYTE
            .iter()
            .any(|directory| file.path.contains(directory))
    })
}

/// Whether `line` contains `word` with no letter, digit or underscore beside it.
pub(super) fn holds_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line.get(..start).and_then(|text| text.chars().next_back());
        let after = line
            .get(start + word.len()..)
            .and_then(|text| text.chars().next());
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

/// Whether a path in `line` begins with `root`; `root` in the middle of a longer path does not count.
fn starts_path(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(start, _)| {
        let before = line.get(..start).and_then(|text| text.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || "_-./}~*".contains(c))
    })
}
