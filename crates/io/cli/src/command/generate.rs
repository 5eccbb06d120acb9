//! `bursar completions` and `bursar man`: generated from the grammar.

use std::path::Path;

use clap::builder::Resettable;

use crate::failure::{Failure, Stop};
use crate::grammar::Arguments;
use crate::session::Session;

const PLURALS: [&str; 8] = [
    "runs", "leases", "budgets", "bookings", "limits", "nodes", "tokens", "contexts",
];

pub(super) fn completions(session: &mut Session, shell: clap_complete::Shell) -> Result<(), Stop> {
    let mut bytes = Vec::new();
    // Help shows the singular of a noun, completions know the plural too.
    let mut definition = Arguments::definition().mut_subcommands(|noun| {
        let is_known = |plural: &&str| noun.get_all_aliases().any(|known| known == *plural);
        match PLURALS.into_iter().find(is_known) {
            Some(plural) => noun.alias(Resettable::Reset).visible_alias(plural),
            None => noun,
        }
    });
    clap_complete::generate(shell, &mut definition, "bursar", &mut bytes);
    session.console.data(&String::from_utf8_lossy(&bytes))
}

pub(super) fn man(session: &mut Session, directory: Option<&Path>) -> Result<(), Stop> {
    let mut definition = Arguments::definition();
    definition.build();
    let Some(directory) = directory else {
        let page = page(&definition, "bursar")?;
        return session.console.data(&page);
    };
    let found = session.path_out(directory);
    std::fs::create_dir_all(&found)
        .map_err(|error| Failure::file("create", directory.display(), &error))?;
    let mut pages = Vec::new();
    collect(&definition, "bursar", &mut pages)?;
    for (name, text) in &pages {
        let path = found.join(format!("{name}.1"));
        std::fs::write(&path, text)
            .map_err(|error| Failure::file("write", path.display(), &error))?;
    }
    session.aside(&format!(
        "{} pages in {}\n",
        pages.len(),
        directory.display()
    ));
    Ok(())
}

/// Adds the page of a command, then the pages of its subcommands.
fn collect(
    command: &clap::Command,
    name: &str,
    pages: &mut Vec<(String, String)>,
) -> Result<(), Stop> {
    pages.push((name.to_owned(), page(command, name)?));
    for sub in command.get_subcommands() {
        collect(sub, &format!("{name}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

fn page(command: &clap::Command, name: &str) -> Result<String, Stop> {
    let mut bytes = Vec::new();
    let command = command
        .clone()
        .name(name.to_owned())
        .disable_help_flag(true);
    clap_mangen::Man::new(command)
        .render(&mut bytes)
        .map_err(|error| {
            Failure::unavailable(format!("cannot make the manual page of {name}: {error}"))
        })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
