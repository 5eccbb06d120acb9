//! `bursar market simulate`: what the market would have done with a load.

use std::path::Path;

use bursar_client::api::{Simulated, SimulatedChange};
use bursar_client::object::{Simulation, read_simulation};
use bursar_engine::words;
use bursar_market::clear::{BoundBy, Step};
use bursar_market::simulate::simulate;

use super::{picture, read};
use crate::failure::{Failure, Stop};
use crate::layout::{self, Column, Look, Meaning, Shown};
use crate::session::Session;

/// The rungs of a simulation: each second from which on another one holds.
pub(super) type Rungs = Vec<(u64, Option<u64>)>;

pub(super) fn run(session: &mut Session, file: &Path, picture: Option<&Path>) -> Result<(), Stop> {
    let simulation = read(session, file, read_simulation)?;
    let (simulated, rungs) = play(&simulation);
    if let Some(path) = picture {
        let picture = picture::draw(&simulation, &simulated, &rungs);
        std::fs::write(path, picture)
            .map_err(|error| Failure::file("write", path.display(), &error))?;
    }
    session.show_unnamed(&simulated, |look| text(&simulation, &simulated, look))
}

fn play(simulation: &Simulation) -> (Simulated, Rungs) {
    let world = &simulation.world;
    let (mut changes, mut rungs) = (Vec::new(), Rungs::new());
    let whole = |rung: Option<usize>| rung.and_then(|rung| u64::try_from(rung).ok());
    let totals = simulate(
        world,
        |second, pod| simulation.want_milli(second, pod),
        |second| {
            let rung = whole(second.node.step().and_then(Step::rung));
            if rungs.last().is_none_or(|(_, last)| *last != rung) {
                rungs.push((second.second, rung));
            }
            for change in second.changes {
                let pod = world.pods.get(change.pod);
                changes.push(SimulatedChange {
                    second: second.second,
                    pod: pod.map(|(id, _)| id.to_string()).unwrap_or_default(),
                    limit_milli: change.limit_milli,
                    rung: whole(change.rung),
                    bound_by: change.bound_by,
                });
            }
        },
    );
    let simulated = Simulated {
        changes,
        lost_milli_seconds: totals.lost_milli_seconds,
        throttled_seconds: totals.throttled_seconds,
        writes: totals.writes,
    };
    (simulated, rungs)
}

const COLUMNS: &[Column<SimulatedChange>] = &[
    Column::of_count("SECOND", Shown::Always, |row, _| row.second.to_string()),
    Column::of_text("POD", Shown::Always, |row, _| row.pod.clone()),
    Column::of_count("LIMIT", Shown::Always, |row, _| {
        format!("{}m", row.limit_milli)
    }),
    Column::of_count("RUNG", Shown::Always, |row, _| {
        row.rung.map(|rung| rung.to_string()).unwrap_or_default()
    }),
    Column::of_text("BOUND BY", Shown::Always, |row, _| {
        row.bound_by.word().to_owned()
    }),
    Column::of_text("REASON", Shown::Always, |row, _| reason(row)),
];

fn text(simulation: &Simulation, simulated: &Simulated, look: &Look) -> String {
    let world = &simulation.world;
    let pods = u64::try_from(world.pods.len()).unwrap_or(u64::MAX);
    let headline = format!(
        "{}s, {}, {}m to share: {} written",
        world.seconds,
        words::count(pods, "pod"),
        world.capacity_milli,
        words::count(simulated.writes, "limit"),
    );
    let mut text = look.paint(Meaning::Subject, &headline) + "\n";
    text.push_str(&layout::table(COLUMNS, &simulated.changes, look, false));
    let lost = simulated.lost_milli_seconds;
    let throttled = words::count(simulated.throttled_seconds, "second");
    let sums = format!(
        "throttled for {throttled}, summed over the pods; {lost} ms of CPU were lost or still wait\n"
    );
    text + &sums
}

/// The bound in words.
fn reason(change: &SimulatedChange) -> String {
    match (change.bound_by, change.rung) {
        (BoundBy::Need, _) => "what it needs: its use, plus headroom".to_owned(),
        (BoundBy::Share, _) => "its share by size: asks exceed the node".to_owned(),
        (BoundBy::Min, _) => "its minimum".to_owned(),
        (BoundBy::Max, _) => "its maximum".to_owned(),
        (BoundBy::Memory, Some(0) | None) => {
            "what it uses and asks for, without headroom".to_owned()
        }
        (BoundBy::Memory, Some(rung)) => {
            format!("its use in the last {rung}s, plus headroom: older use is not kept")
        }
        (BoundBy::Step, _) => "twice its use, plus headroom: never seen larger".to_owned(),
        (BoundBy::Survival, _) => "the minimums do not fit: what it survives with".to_owned(),
        (BoundBy::Budget, _) => "the budget of writes allows no more".to_owned(),
        (BoundBy::Cooldown, _) => "it was changed too recently".to_owned(),
        (BoundBy::MaxStep, _) => "a raise is bounded by a factor".to_owned(),
    }
}
