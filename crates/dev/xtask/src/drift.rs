//! Generated files in the tree: they must equal the present output of their generator.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::programs::Programs;

/// Description of the HTTP API, served and committed.
pub const OPENAPI: &str = "openapi.json";

/// Fails if the committed file differs from the generated one.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let generated = generate(root)?;
    let committed = std::fs::read_to_string(root.join(OPENAPI))
        .with_context(|| format!("cannot read {OPENAPI} in the tree"))?;
    if let Some(difference) = first_difference(&committed, &generated) {
        bail!(
            "{OPENAPI} differs from the routes; {difference}\nhint: `cargo xtask update` regenerates it"
        );
    }
    eprintln!(
        "{OPENAPI} agrees with the routes ({} bytes)",
        generated.len()
    );
    Ok(())
}

/// Regenerates every generated file.
pub fn update(root: &Path) -> anyhow::Result<()> {
    let generated = generate(root)?;
    std::fs::write(root.join(OPENAPI), generated).with_context(|| format!("cannot write {OPENAPI}"))
}

fn generate(root: &Path) -> anyhow::Result<String> {
    // An example of `bursar-server` that prints the description of its routes.
    let invocation = Programs::build(root)?.start("examples/openapi", &[]);
    eprintln!("$ {invocation}");
    let generated = invocation.output(root)?;
    if generated.trim().is_empty() {
        bail!("`{invocation}` printed nothing");
    }
    Ok(generated)
}

/// Describes the first line in which the two texts differ.
pub fn first_difference(committed: &str, generated: &str) -> Option<String> {
    if committed == generated {
        return None;
    }
    let (mut old, mut new) = (committed.lines(), generated.lines());
    let mut number = 0_u64;
    loop {
        number += 1;
        match (old.next(), new.next()) {
            (Some(old), Some(new)) if old == new => {}
            (None, None) => return Some("they differ in their last newline".to_owned()),
            (old, new) => {
                let shown = |line: Option<&str>| {
                    line.map_or("the end".to_owned(), |line| format!("`{}`", line.trim()))
                };
                return Some(format!(
                    "line {number}: committed {}, generated {}",
                    shown(old),
                    shown(new)
                ));
            }
        }
    }
}
