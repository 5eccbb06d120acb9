//! `bursar market clear`: clears one node from a file, with the function that the agent calls.
//! `bursar market simulate`: plays a load through the agent's node.

pub(super) mod agent;
mod picture;
pub(super) mod scene;
pub(super) mod settings;
pub(super) mod sharing;
mod simulate;
pub(super) mod top;

use std::path::Path;

use bursar_client::api::Clearing;
use bursar_client::object::{File, Mistakes, read_market};
use bursar_market::clear::{Cleared, Market, clear};
use bursar_market::decimal::price;
use bursar_market::explain::{Scene, explain, price_line, why};

use super::apply;
use crate::failure::{Failure, Stop, exit};
use crate::grammar::MarketVerb;
use crate::layout::{self, Column, Look, Meaning, Shown};
use crate::session::Session;

/// Width of the label before each part.
const LABEL: usize = 8;
/// An empty cell; an empty string would be shown as `-`, a missing value.
pub(super) const BLANK: &str = " ";

pub(super) fn run(session: &mut Session, verb: &MarketVerb) -> Result<(), Stop> {
    match verb {
        MarketVerb::Clear { file } => {
            let market = read(session, file, read_market)?;
            let cleared = clear(&market);
            session.show_unnamed(&Clearing::from(&cleared), |look| {
                text(&market, &cleared, look)
            })
        }
        MarketVerb::Simulate { file, picture } => simulate::run(session, file, picture.as_deref()),
    }
}

/// Reads the one document of a file; its mistakes are printed with their lines.
fn read<T>(
    session: &mut Session,
    path: &Path,
    read: impl Fn(&File) -> Result<T, Mistakes>,
) -> Result<T, Stop> {
    let files = apply::read(session, path)?;
    let [file] = files.as_slice() else {
        let message = format!("{} has several files: name one", path.display());
        return Err(Failure::usage(message).into());
    };
    match read(file) {
        Ok(value) => Ok(value),
        Err(mistakes) if session.for_programs() => Err(mistakes.to_problem().into()),
        Err(mistakes) => {
            session.say(&format!("{mistakes}\n"));
            Err(Stop::Exit(exit::USAGE))
        }
    }
}

struct Row {
    pod: String,
    wrote: String,
    need: String,
    gets: String,
    bar: String,
    bound_by: String,
}

const COLUMNS: &[Column<Row>] = &[
    Column::of_text("POD", Shown::Always, |row, _| row.pod.clone()),
    Column::of_text("WROTE", Shown::Always, |row, _| row.wrote.clone()),
    Column::of_count("NEED", Shown::Always, |row, _| row.need.clone()),
    Column::of_count("GETS", Shown::Always, |row, _| row.gets.clone()),
    Column::of_text("", Shown::Always, |row, _| row.bar.clone()),
    Column::of_text("BOUND BY", Shown::Always, |row, _| row.bound_by.clone()),
];

fn text(market: &Market, cleared: &Cleared, look: &Look) -> String {
    let scene = Scene::of_market(market, cleared);
    let headline = format!(
        "{}, price {}; {}m to share",
        cleared.mode.word(),
        price(cleared.price_ppm),
        cleared.capacity_milli
    );
    let mut text = look.paint(Meaning::Subject, &headline) + "\n";
    text.push_str(&layout::table(COLUMNS, &rows(cleared, look), look, false));
    if !cleared.too_narrow.is_empty() {
        let names: Vec<String> = cleared.too_narrow.iter().map(ToString::to_string).collect();
        text.extend(["not managed, range too narrow: ", &names.join(", "), "\n"]);
    }
    text.push_str(&arithmetic(&scene, cleared));
    text
}

fn rows(cleared: &Cleared, look: &Look) -> Vec<Row> {
    let mut rows: Vec<Row> = cleared
        .shares
        .iter()
        .map(|share| Row {
            pod: share.id.to_string(),
            wrote: format!("{}-{}", share.min_milli, share.max_milli),
            need: format!("{}m", share.need_milli),
            gets: format!("{}m", share.allocated_milli),
            bar: look.bar(share.allocated_milli, share.need_milli),
            bound_by: share.bound_by.word().to_owned(),
        })
        .collect();
    if !rows.is_empty() {
        let shares = cleared.shares.iter();
        let gets: u64 = shares.map(|share| share.allocated_milli).sum();
        rows.push(Row {
            pod: "total".to_owned(),
            wrote: BLANK.to_owned(),
            need: format!("{}m", cleared.need_milli),
            gets: format!("{gets}m"),
            bar: BLANK.to_owned(),
            bound_by: BLANK.to_owned(),
        });
    }
    rows
}

/// The reason and the price, which all pods share; then the lines of each pod.
fn arithmetic(scene: &Scene, cleared: &Cleared) -> String {
    let mut text = String::new();
    if cleared.shares.is_empty() {
        return text;
    }
    let label = |label: &str| format!("{label:<LABEL$}");
    text.extend(["\n", &layout::labelled(&label("WHY"), &why(scene))]);
    text.push_str(&layout::labelled(&label("PRICE"), &price_line(scene)));
    for share in &cleared.shares {
        let how = explain(scene, share, None).how.into_iter();
        let own = how.filter(|(word, _)| *word != "price");
        let lines: Vec<(String, String)> =
            own.map(|(word, words)| (word.to_owned(), words)).collect();
        text.extend(["\n", &*share.id, "\n", &layout::details(&lines, 0)]);
    }
    text
}
