//! The day as a picture: demand, the limits of each way, and the costs of each way.
//!
//! The colours are those of Okabe and Ito, which are distinguishable with colour blindness, and each
//! line is also labelled.

use std::fmt::Write as _;

use super::load::Load;
use super::plant::{POINT_S, Work};
use super::result::DayResult;
use super::ways::Way;
use super::{Day, tables};

const WIDTH: u64 = 960;
const HEIGHT: u64 = 794;
/// Bounds of the upper chart.
const LEFT: u64 = 64;
const RIGHT: u64 = WIDTH - 24;
const TOP: u64 = 96;
const BOTTOM: u64 = 340;
/// Top of the bars, and height of a row.
const BARS: u64 = 462;
const ROW: u64 = 30;
/// Left edges of the columns of bars, and width of the longest bar.
const COLUMNS: [u64; 3] = [300, 520, 740];
const BAR: u64 = 130;
/// Size of the node that is shown.
const NODE_PERCENT: u64 = 100;
/// Distance between two grid lines, in millicores.
const GRID_MILLI: u64 = 5_000;

const INK: &str = "#222222";
const PALE: &str = "#dddddd";
const WANTED: &str = "#56b4e9";
const OTHER: &str = "#999999";

/// A line of the upper chart.
struct ChartLine {
    name: String,
    colour: &'static str,
    dashes: &'static str,
    milli: Vec<u64>,
}

/// A way with its costs.
struct Run<'a> {
    way: Way,
    result: &'a DayResult,
}

impl<'a> Run<'a> {
    fn of(day: &'a Day, way: Way) -> Option<Self> {
        let result = day.result(way, NODE_PERCENT, Work::Lost)?;
        Some(Self { way, result })
    }
}

/// The picture, in SVG.
pub(super) fn draw(load: &Load, day: &Day) -> String {
    let runs: Vec<Run> = Way::ALL
        .into_iter()
        .filter_map(|way| Run::of(day, way))
        .collect();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"{INK}\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>"
    );
    let title = "One day of 64 pods on one node: what they want, and what their limits come to";
    text(&mut out, (20, 28), "start", "font-size=\"17\"", title);
    chart(&mut out, load, day.node_milli, &runs);
    let title = "What each way to set limits costs over that day";
    text(
        &mut out,
        (20, BARS - 46),
        "start",
        "font-size=\"17\"",
        title,
    );
    bars(&mut out, &runs);
    out.push_str("</svg>\n");
    out
}

/// Colour and dash pattern of a way's line, if it has one.
const fn style(way: Way) -> Option<(&'static str, &'static str)> {
    match way {
        Way::OURS => Some(("#0072b2", "none")),
        Way::AUTOSCALER => Some(("#d55e00", "none")),
        Way::SEED => Some(("#cc79a7", "8 3")),
        _ => None,
    }
}

fn chart(out: &mut String, load: &Load, node_milli: u64, day: &[Run]) {
    let wanted: Vec<u64> = load
        .totals()
        .chunks(usize::try_from(POINT_S).unwrap_or(1))
        .map(|chunk| chunk.iter().sum::<u64>() / u64::try_from(chunk.len()).unwrap_or(1))
        .collect();
    let line = |run: &Run| {
        let (colour, dashes) = style(run.way)?;
        let name = format!("limits, {}", run.way.name());
        // The first point is before the first measurement.
        let milli = run.result.held_milli.iter().skip(1).copied().collect();
        Some(ChartLine {
            name,
            colour,
            dashes,
            milli,
        })
    };
    let lines: Vec<ChartLine> = day.iter().filter_map(line).collect();
    let all = lines.iter().flat_map(|line| line.milli.iter().copied());
    let most = all.chain([node_milli]).max().unwrap_or(1);
    let most = most.next_multiple_of(GRID_MILLI).max(1);
    let y = |milli: u64| BOTTOM - (BOTTOM - TOP) * milli.min(most) / most;
    axes(out, most, y);
    let _ = writeln!(
        out,
        "<polygon points=\"{LEFT},{BOTTOM} {}{RIGHT},{BOTTOM}\" fill=\"{WANTED}\" \
         fill-opacity=\"0.45\"/>",
        points(&wanted, y)
    );
    let node = ChartLine {
        name: format!("the node, {}m", super::grouped(node_milli)),
        colour: "#000000",
        dashes: "2 3",
        milli: vec![node_milli; 2],
    };
    let mut legend = Legend { place: 0 };
    legend.entry(out, "wanted by all, mean of 5 min", |out, (x, y)| {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"26\" height=\"10\" fill=\"{WANTED}\" \
             fill-opacity=\"0.45\"/>",
            y - 9
        );
    });
    // The node is drawn last, so that no equal limit hides it.
    for line in lines.into_iter().chain([node]) {
        let stroke = format!(
            "fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\"",
            line.colour, line.dashes
        );
        let drawn = points(&line.milli, y);
        let _ = writeln!(out, "<polyline points=\"{drawn}\" {stroke}/>");
        legend.entry(out, &line.name, |out, (x, y)| {
            let (to, y) = (x + 26, y - 4);
            let _ = writeln!(
                out,
                "<line x1=\"{x}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" {stroke}/>"
            );
        });
    }
}

/// A column of bars.
struct Column {
    head: &'static str,
    value: fn(&DayResult) -> u64,
    words: fn(u64) -> String,
}

/// Legend above the chart, three names per row.
struct Legend {
    place: u64,
}

impl Legend {
    fn entry(&mut self, out: &mut String, name: &str, mark: impl Fn(&mut String, (u64, u64))) {
        let (x, y) = (LEFT + self.place % 3 * 300, 54 + self.place / 3 * 20);
        mark(out, (x, y));
        text(out, (x + 34, y), "start", "", name);
        self.place += 1;
    }
}

fn axes(out: &mut String, most: u64, y: impl Fn(u64) -> u64) {
    for milli in (0..=most).step_by(usize::try_from(GRID_MILLI).unwrap_or(1)) {
        let at = y(milli);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at}\" x2=\"{RIGHT}\" y2=\"{at}\" stroke=\"{PALE}\"/>"
        );
        let cores = (milli / 1_000).to_string();
        text(out, (LEFT - 8, at + 4), "end", "", &cores);
    }
    let middle = u64::midpoint(TOP, BOTTOM);
    let turned = format!("transform=\"rotate(-90 20 {middle})\"");
    text(out, (20, middle), "middle", &turned, "CPU, cores");
    for hour in [0, 4, 8, 12, 16, 20, 24] {
        let x = LEFT + (RIGHT - LEFT) * hour / 24;
        text(
            out,
            (x, BOTTOM + 18),
            "middle",
            "",
            &format!("{hour:02}:00"),
        );
    }
    let middle = u64::midpoint(LEFT, RIGHT);
    text(out, (middle, BOTTOM + 36), "middle", "", "time of day");
}

fn points(values: &[u64], y: impl Fn(u64) -> u64) -> String {
    let last = u64::try_from(values.len().saturating_sub(1)).unwrap_or(1);
    let mut text = String::new();
    for (at, milli) in (0..).zip(values) {
        let x = LEFT + (RIGHT - LEFT) * at / last.max(1);
        let _ = write!(text, "{x},{} ", y(*milli));
    }
    text
}

fn bars(out: &mut String, day: &[Run]) {
    let columns = [
        Column {
            head: "time throttled by a quota",
            value: DayResult::throttled_ppm,
            words: |ppm| tables::percent(ppm) + "%",
        },
        Column {
            head: "work lost for any reason",
            value: DayResult::lost_ppm,
            words: |ppm| tables::percent(ppm) + "%",
        },
        Column {
            head: "CPU held over used",
            value: DayResult::held_ppm,
            words: |ppm| tables::times(ppm) + "×",
        },
    ];
    for (Column { head, value, words }, x) in columns.into_iter().zip(COLUMNS) {
        text(out, (x, BARS - 18), "start", "font-weight=\"bold\"", head);
        let most = day.iter().map(|run| value(run.result)).max();
        for (row, run) in (0..).zip(day) {
            let (y, amount) = (BARS + ROW * row, value(run.result));
            let width = BAR * amount / most.unwrap_or(1).max(1);
            let fill = style(run.way).map_or(OTHER, |(colour, _)| colour);
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"16\" fill=\"{fill}\"/>",
                y - 8,
                width.max(1),
            );
            text(out, (x + width + 6, y + 5), "start", "", &words(amount));
        }
    }
    for (row, run) in (0..).zip(day) {
        let at = (COLUMNS[0] - 12, BARS + ROW * row + 5);
        text(out, at, "end", "", &run.way.name());
    }
}

fn text(out: &mut String, (x, y): (u64, u64), anchor: &str, style: &str, words: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" {style}>{words}</text>"
    );
}
