//! `bursar scenario`: plays scripts, compares what they print, or writes it down.

use std::path::Path;

use bursar_units::hidden::escape;
use serde_json::json;
use similar::TextDiff;

use crate::console::Stream;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{Command, Format, ScenarioArguments};
use crate::run::{self, Ended};
use crate::scenario::script::Script;
use crate::scenario::world::{Played, World};
use crate::session::Session;

/// Plays the scripts on a runtime of their own, whose time is virtual.
pub(crate) fn run(mut session: Session, command: &Command) -> Ended {
    let Command::Scenario(arguments) = command else {
        return Ended {
            exit: exit::USAGE,
            console: session.console,
            reach: session.reach,
        };
    };
    let result = play_all(&mut session, arguments);
    let exit = run::report(&mut session, result);
    Ended {
        exit,
        console: session.console,
        reach: session.reach,
    }
}

fn play_all(session: &mut Session, arguments: &ScenarioArguments) -> Result<(), Stop> {
    let mut differ = 0_usize;
    for file in &arguments.files {
        let path = session.path(file);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::file("read", file.display(), &error))?;
        let is_markdown = path.extension().is_some_and(|ending| ending == "md");
        let script = Script::parse(&text, is_markdown);
        if script.steps().next().is_none() {
            let message = format!(
                "{} has no command: a line that starts with `$ `",
                file.display()
            );
            return Err(Failure::usage(message).into());
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        let played = play(&script, directory)?;
        if arguments.check || arguments.update {
            let mut told = script.clone();
            for (step, played) in told.steps_mut().zip(&played) {
                step.expected = played.shown();
            }
            let new = told.text();
            if arguments.update {
                update(session, file, &path, &text, &new)?;
            } else if !compare(session, file, &text, &new)? {
                differ += 1;
            }
        } else {
            print(session, &script, &played)?;
        }
    }
    if differ > 0 {
        let names = arguments
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let noun = if differ == 1 {
            "script prints"
        } else {
            "scripts print"
        };
        return Err(Failure::new(
            exit::REFUSED,
            format!("{differ} {noun} other than expected"),
        )
        .hint(format!(
            "if that is right, `bursar scenario --update {names}` writes it down"
        ))
        .into());
    }
    Ok(())
}

fn play(script: &Script, directory: &Path) -> Result<Vec<Played>, Stop> {
    let failed =
        |error: std::io::Error| Failure::unavailable(format!("cannot make a world: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let mut world = World::new(directory).map_err(failed)?;
        let mut played = Vec::new();
        for step in script.steps() {
            played.push(Box::pin(world.play(&step.command)).await);
        }
        Ok(played)
    })
}

fn print(session: &mut Session, script: &Script, played: &[Played]) -> Result<(), Stop> {
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
    crate::usage::wants_json(&words)
}

fn update(
    session: &mut Session,
    file: &Path,
    path: &Path,
    old: &str,
    new: &str,
) -> Result<(), Stop> {
    if old == new {
        session.aside(&format!("{} is as it was\n", file.display()));
        return Ok(());
    }
    std::fs::write(path, new).map_err(|error| Failure::file("write", file.display(), &error))?;
    session.aside(&format!("{} rewritten\n", file.display()));
    Ok(())
}

/// Prints how a script differs from what it expects; true if it does not.
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
