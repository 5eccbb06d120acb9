//! `bursar scenario`: runs scripts, and checks or updates their expected output.

use std::path::Path;

use bursar_engine::cluster::Policy;
use bursar_units::hidden::escape;
use serde_json::json;
use similar::TextDiff;

use super::up::settings::File;
use crate::console::Stream;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{Format, ScenarioArguments};
use crate::scenario::script::Script;
use crate::scenario::world::{StepResult, World};
use crate::session::Session;

/// Runs the scripts, each on its own runtime with virtual time.
pub(crate) fn run(session: &mut Session, arguments: &ScenarioArguments) -> Result<(), Stop> {
    let mut differ = 0_usize;
    for file in &arguments.files {
        let path = session.path(file);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::file("read", file.display(), &error))?;
        let is_markdown = path.extension().is_some_and(|ending| ending == "md");
        let script = Script::parse(&text, is_markdown);
        if script.steps().next().is_none() {
            let message = format!(
                "{} has no command, which is a line that starts with `$ `",
                file.display()
            );
            return Err(Failure::usage(message).into());
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        let policy = File::beside(session, directory)?.policy();
        let played = play(&script, directory, policy)?;
        if arguments.check || arguments.update {
            let mut updated = script.clone();
            for (step, played) in updated.steps_mut().zip(&played) {
                step.expected = played.shown();
            }
            let new = updated.text();
            if arguments.update {
                update(session, file, &path, &text, &new)?;
            } else if !compare(session, file, &text, &new)? {
                differ += 1;
            }
        } else {
            print(session, &script, &played)?;
            if played.iter().any(|step| step.is_unknown) {
                return Err(Stop::Exit(exit::USAGE));
            }
        }
    }
    if differ > 0 {
        let names = arguments
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let scripts = if differ == 1 { "script" } else { "scripts" };
        let message = format!("{differ} {scripts} printed unexpected output");
        let hint = format!("if the new output is right, run `bursar scenario --update {names}`");
        return Err(Failure::new(exit::REFUSED, message).hint(hint).into());
    }
    Ok(())
}

fn play(script: &Script, directory: &Path, policy: Policy) -> Result<Vec<StepResult>, Stop> {
    let failed = |error: std::io::Error| {
        Failure::unavailable(format!("cannot set up the scenario: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let mut world = World::new(directory, policy).map_err(failed)?;
        let mut played = Vec::new();
        for step in script.steps() {
            played.push(Box::pin(world.play(&step.command)).await);
        }
        Ok(played)
    })
}

fn print(session: &mut Session, script: &Script, played: &[StepResult]) -> Result<(), Stop> {
    for (step, played) in script.steps().zip(played) {
        if session.common.output == Format::Json {
            let stdout = played.of(Stream::Data);
            let stdout = if asks_for_json(&step.command) {
                serde_json::from_str(&stdout).unwrap_or(json!(stdout))
            } else {
                json!(stdout)
            };
            session.print_line(&json!({
                "line": step.line,
                "command": step.command,
                "exit": played.exit,
                "stdout": stdout,
                "stderr": played.of(Stream::Words),
            }))?;
        } else {
            session
                .console
                .data(&format!("$ {}\n{}", step.command, played.shown()))?;
        }
    }
    Ok(())
}

fn asks_for_json(command: &str) -> bool {
    let words: Vec<String> = command.split_whitespace().map(ToOwned::to_owned).collect();
    crate::usage::wants(&words, "json")
}

fn update(
    session: &mut Session,
    file: &Path,
    path: &Path,
    old: &str,
    new: &str,
) -> Result<(), Stop> {
    if old == new {
        session.aside(&format!("{} is unchanged\n", file.display()));
        return Ok(());
    }
    std::fs::write(path, new).map_err(|error| Failure::file("write", file.display(), &error))?;
    session.aside(&format!("{} rewritten\n", file.display()));
    Ok(())
}

/// Prints the difference from the expected output; true if there is none.
fn compare(session: &mut Session, file: &Path, old: &str, new: &str) -> Result<bool, Stop> {
    if old == new {
        session.aside(&format!("{} holds\n", file.display()));
        return Ok(true);
    }
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    let name = file.display().to_string();
    let text = unified
        .context_radius(3)
        .header(&format!("{name} (expected)"), &format!("{name} (found)"))
        .to_string();
    session.console.data(&escape(&text, &['\n', '\t']))?;
    Ok(false)
}
