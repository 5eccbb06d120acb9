//! The part `fuzz` of `cargo xtask test`: the corpus of every parser, then seeded mutations.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bursar_sim::fuzz::corpus::{self, Corpus};
use bursar_sim::fuzz::targets::{TARGETS, Target};
use bursar_sim::fuzz::{Failure, Report, run, run_one};
use clap::Parser;

/// Throw bytes at every parser
#[derive(Parser)]
struct Arguments {
    /// What the mutations follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long to mutate, over all targets together
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// Only this input, which needs a target
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let targets = chosen(arguments.target.as_deref())?;
    let outcome = if let Some(path) = &arguments.input {
        let unread = || format!("cannot read {}", path.display());
        let input = std::fs::read(path).with_context(unread)?;
        let runs = targets
            .iter()
            .try_for_each(|target| run_one(target, &input));
        runs.map(|()| Report::default())
    } else {
        let corpora = targets
            .iter()
            .map(|target| Corpus::read(&corpus::root(), target.name))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot read the corpus")?;
        let length = Duration::from_secs(arguments.seconds);
        run(&targets, &corpora, arguments.seed, length)
    };
    match outcome {
        Ok(report) => {
            let Report { replayed, mutated } = report;
            let line = format!(
                "{} targets took {replayed} inputs of the corpus and {mutated} mutations\n",
                targets.len()
            );
            std::io::stdout().write_all(line.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => tell(&failure),
    }
}

fn chosen(name: Option<&str>) -> anyhow::Result<Vec<&'static Target>> {
    let is_chosen = |target: &&Target| name.is_none_or(|name| target.name == name);
    let targets: Vec<_> = TARGETS.iter().filter(is_chosen).collect();
    if targets.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        anyhow::bail!("there is no such target; there are {}", names.join(", "));
    }
    Ok(targets)
}

/// Keeps the input and says how to repeat it.
fn tell(failure: &Failure) -> anyhow::Result<ExitCode> {
    let directory = corpus::root().join("failures");
    std::fs::create_dir_all(&directory).context("cannot make the directory of failures")?;
    let name = failure.file_name();
    std::fs::write(directory.join(&name), &failure.input).context("cannot keep the input")?;
    eprintln!(
        "error: {failure}\n\nrepeat it: cargo run --package bursar-sim --bin fuzz -- --target {} \
         --input fuzz/failures/{name}",
        failure.target
    );
    Ok(ExitCode::FAILURE)
}
