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

/// Fuzz every parser
#[derive(Parser)]
struct Arguments {
    /// Seed of the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of mutations, for all targets together
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Run only this target
    #[arg(long)]
    target: Option<String>,
    /// Run only this input; needs a target
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let targets = chosen(arguments.target.as_deref())?;
    let result = if let Some(path) = &arguments.input {
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
    match result {
        Ok(report) => {
            let Report { replayed, mutated } = report;
            let line = format!(
                "{} targets accepted {replayed} inputs of the corpus and {mutated} mutations\n",
                targets.len()
            );
            std::io::stdout().write_all(line.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => report(&failure),
    }
}

fn chosen(name: Option<&str>) -> anyhow::Result<Vec<&'static Target>> {
    let is_chosen = |target: &&Target| name.is_none_or(|name| target.name == name);
    let targets: Vec<_> = TARGETS.iter().filter(is_chosen).collect();
    if targets.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        anyhow::bail!("unknown target; the targets are {}", names.join(", "));
    }
    Ok(targets)
}

/// Stores the input and prints the command that repeats it.
fn report(failure: &Failure) -> anyhow::Result<ExitCode> {
    let directory = corpus::root().join("failures");
    std::fs::create_dir_all(&directory).context("cannot create the directory of failures")?;
    let name = failure.file_name();
    std::fs::write(directory.join(&name), &failure.input).context("cannot store the input")?;
    eprintln!(
        "error: {failure}\n\nrepeat it: cargo run --package bursar-sim --bin fuzz -- --target {} \
         --input fuzz/failures/{name}",
        failure.target
    );
    Ok(ExitCode::FAILURE)
}
