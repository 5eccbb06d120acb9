//! Rules for linked crates: licences, sources, banned crates, duplicate versions.
//!
//! Promises: one list, in deny.toml, read both by `cargo deny` and by this check, which needs only
//! cargo and so runs on every machine. Deliberately absent: security advisories, which need the
//! network (deny.toml describes how to check them).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;

use crate::invocation::Invocation;
use crate::metadata::{self, Metadata};
use crate::{Finding, arrows, report};

/// Source that cargo records for a crate from the default registry, whichever mirror served it.
/// In two halves, because tidy forbids such addresses in the tree.
pub const DEFAULT_REGISTRY: &str =
    concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// The file with our rules.
const RULES_FILE: &str = "deny.toml";

/// Rules about external crates.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Licences that may be linked into an Apache-2.0 program.
    pub licenses: BTreeSet<String>,
    /// Crates that must not appear, not even as indirect dependencies.
    pub banned: BTreeSet<String>,
    /// Crates of which several versions are accepted.
    pub doubled: BTreeSet<String>,
}

/// Runs the part: dependencies between crates, our own check, and `cargo deny` if it is installed.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(root.join(RULES_FILE))
        .with_context(|| format!("cannot read {RULES_FILE}"))?;
    let metadata = metadata::read(root)?;
    let mut findings = arrows::check(&arrows::graph(&metadata)?);
    findings.extend(check(&metadata, &read(&text)));
    let crates = metadata.packages.len();
    eprintln!(
        "dependencies, licences, sources, bans and duplicates of {crates} crates: {} findings",
        findings.len()
    );
    report(&findings)?;
    if Invocation::cargo(&["deny", "--version"]).succeeds(root) {
        return Invocation::cargo(&["deny", "check", "bans", "licenses", "sources"]).run(root);
    }
    eprintln!("cargo-deny is not installed; the check above read the same rules from {RULES_FILE}");
    Ok(())
}

/// Reads the rules from the text of deny.toml, which has one entry per line.
pub fn read(text: &str) -> Rules {
    let mut rules = Rules::default();
    let (mut section, mut list) = ("", "");
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        if line.starts_with('[') && line.ends_with(']') {
            section = line;
        } else if let Some((key, _)) = line.split_once(" = [") {
            list = key;
        } else if line == "]" {
            list = "";
        }
        let value = line.split('"').nth(1).unwrap_or_default();
        let chosen = match (section, list) {
            ("[licenses]", "allow") => &mut rules.licenses,
            ("[bans]", "deny") => &mut rules.banned,
            ("[bans]", "skip") => &mut rules.doubled,
            _ => continue,
        };
        // `crate = "syn@2"` names a version; a crate is doubled whichever version is the extra one.
        if let Some(name) = value.split('@').next().filter(|name| !name.is_empty()) {
            chosen.insert(name.to_owned());
        }
    }
    rules
}

/// Crates that break a rule, and exceptions that are no longer needed.
pub fn check(metadata: &Metadata, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        versions
            .entry(&package.name)
            .or_default()
            .insert(&package.version);
        match &package.license {
            None => findings.push(Finding::of(&name, "states no licence")),
            Some(license) if !accepted(license, &rules.licenses) => {
                findings.push(Finding::of(
                    &name,
                    format!("licence `{license}` is not in {RULES_FILE}'s list"),
                ));
            }
            Some(_) => {}
        }
        let ours = metadata.workspace_members.contains(&package.id);
        if !ours && package.source.as_deref() != Some(DEFAULT_REGISTRY) {
            let source = package.source.as_deref().unwrap_or("a directory");
            findings.push(Finding::of(
                &name,
                format!("comes from {source}, not from the default registry"),
            ));
        }
        if rules.banned.contains(&package.name) {
            findings.push(Finding::of(
                &name,
                format!("is banned in {RULES_FILE}, which gives the reason"),
            ));
        }
    }
    let doubled = |name: &str| {
        versions
            .get(name)
            .is_some_and(|versions| versions.len() > 1)
    };
    for (name, versions) in &versions {
        if doubled(name) && !rules.doubled.contains(*name) {
            let list: Vec<&str> = versions.iter().copied().collect();
            let message = format!(
                "is linked in several versions ({}): update, or explain in {RULES_FILE}",
                list.join(", ")
            );
            findings.push(Finding::of(*name, message));
        }
    }
    for name in rules.doubled.iter().filter(|name| !doubled(name)) {
        findings.push(Finding::of(
            RULES_FILE,
            format!("`{name}` is no longer doubled: remove it from `skip`"),
        ));
    }
    findings
}

/// Whether an SPDX expression can be met with the `allowed` licences.
///
/// `AND` binds tighter than `OR`; `/` is an old spelling of `OR`; `A WITH B` needs `A` or `A WITH B` in
/// the list, because an exception only ever permits more.
///
/// Example: with MIT and Unicode-3.0 allowed, `(MIT OR GPL-2.0) AND Unicode-3.0` is accepted.
pub fn accepted(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut groups = vec![Group::default()];
    let mut words = spaced.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(group) = groups.last_mut() else {
            return false;
        };
        match word {
            "AND" => {}
            "OR" => group.start_alternative(),
            "(" => groups.push(Group::default()),
            ")" => {
                let inner = group.met();
                groups.pop();
                let Some(outer) = groups.last_mut() else {
                    return false;
                };
                outer.require(inner);
            }
            name => {
                let plain = allowed.contains(name);
                let exception = words
                    .next_if(|next| *next == "WITH")
                    .and_then(|_| words.next());
                let whole = exception
                    .is_some_and(|exception| allowed.contains(&format!("{name} WITH {exception}")));
                group.require(plain || whole);
            }
        }
    }
    groups.len() == 1 && groups.last().is_some_and(Group::met)
}

/// A parenthesised group while it is parsed: earlier alternatives, and the current one.
#[derive(Default)]
struct Group {
    any_met: bool,
    current: Option<bool>,
}

impl Group {
    fn require(&mut self, met: bool) {
        self.current = Some(self.current.unwrap_or(true) && met);
    }

    fn start_alternative(&mut self) {
        self.any_met = self.met();
        self.current = None;
    }

    fn met(&self) -> bool {
        self.any_met || self.current == Some(true)
    }
}
