//! The day as a picture: what is wanted and what each way holds, and what each way costs.

use std::fmt::Write as _;

use super::load::Load;
use super::plant::{Outcome, POINT_S};
use super::ways::{Sees, Way};
use bursar_market::clear::Policy;

const WIDTH: u64 = 960;
const HEIGHT: u64 = 640;
/// The upper chart: from where to where.
const LEFT: u64 = 70;
const RIGHT: u64 = WIDTH - 20;
const TOP: u64 = 60;
const BOTTOM: u64 = 330;
/// The bars begin here, a row every so much.
const BARS: u64 = 400;
const ROW: u64 = 32;

/// The picture, in SVG.
pub(super) fn draw(load: &Load, node_milli: u64, outcomes: &[(Way, Outcome)]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">One day of 64 pods: what they want, and what each \
         way holds for them</text>"
    );
    chart(&mut out, load, node_milli, outcomes);
    bars(&mut out, outcomes);
    out.push_str("</svg>\n");
    out
}

const fn colour(way: Way) -> Option<&'static str> {
    match way {
        Way::Ours(Policy::Proportional) => Some("#0a7d4b"),
        Way::VerticalAutoscaler(Sees::Demand) => Some("#c2410c"),
        Way::Seed => Some("#9ca3af"),
        _ => None,
    }
}

fn chart(out: &mut String, load: &Load, node_milli: u64, outcomes: &[(Way, Outcome)]) {
    let wanted: Vec<u64> = load
        .totals()
        .chunks(usize::try_from(POINT_S).unwrap_or(1))
        .map(|chunk| chunk.iter().sum::<u64>() / u64::try_from(chunk.len()).unwrap_or(1))
        .collect();
    let drawn = || {
        let ways = outcomes.iter();
        ways.filter_map(|(way, outcome)| Some((way.name(), colour(*way)?, &outcome.held_milli)))
    };
    let held = drawn().flat_map(|(_, _, held)| held.iter().skip(1).copied());
    let most = held.chain([node_milli]).max().unwrap_or(1).max(1);
    let y = |milli: u64| BOTTOM - (BOTTOM - TOP) * milli.min(most) / most;
    let points = |values: &[u64]| {
        let last = u64::try_from(values.len().saturating_sub(1))
            .unwrap_or(1)
            .max(1);
        let mut text = String::new();
        for (at, milli) in (0..).zip(values) {
            let x = LEFT + (RIGHT - LEFT) * at / last;
            let _ = write!(text, "{x},{} ", y(*milli));
        }
        text
    };
    let node = y(node_milli);
    let _ = writeln!(
        out,
        "<polygon points=\"{LEFT},{BOTTOM} {}{RIGHT},{BOTTOM}\" fill=\"#dbeafe\"/>\n\
         <line x1=\"{LEFT}\" y1=\"{node}\" x2=\"{RIGHT}\" y2=\"{node}\" stroke=\"#111827\" \
         stroke-dasharray=\"6 4\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">the node, {}m</text>",
        points(&wanted),
        RIGHT,
        node - 5,
        super::grouped(node_milli),
    );
    let mut x = LEFT;
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"46\" fill=\"#3b82f6\">wanted, mean of 5 min</text>"
    );
    x += 170;
    for (name, colour, held) in drawn() {
        // The first point is before anybody had measured anything.
        let values: Vec<u64> = held.iter().skip(1).copied().collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n\
             <text x=\"{x}\" y=\"46\" fill=\"{colour}\">{name}</text>",
            points(&values)
        );
        x += 240;
    }
    for hour in [0, 6, 12, 18, 24] {
        let x = LEFT + (RIGHT - LEFT) * hour / 24;
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{hour}:00</text>",
            BOTTOM + 18
        );
    }
    for part in [0, 1, 2] {
        let milli = most * part / 2;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}m</text>",
            LEFT - 6,
            y(milli) + 4,
            super::grouped(milli)
        );
    }
}

fn bars(out: &mut String, outcomes: &[(Way, Outcome)]) {
    let heads = [
        (310, "throttled work"),
        (530, "lost work"),
        (750, "CPU held over used"),
    ];
    for (x, head) in heads {
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{}\" font-weight=\"bold\">{head}</text>",
            BARS - 22
        );
    }
    let most = |value: fn(&Outcome) -> u64| {
        let values = outcomes.iter().map(|(_, outcome)| value(outcome));
        values.max().unwrap_or(1).max(1)
    };
    let values: [fn(&Outcome) -> u64; 3] = [
        Outcome::throttled_ppm,
        Outcome::lost_ppm,
        Outcome::held_percent,
    ];
    for (row, (way, outcome)) in (0..).zip(outcomes) {
        let y = BARS + ROW * row;
        let _ = writeln!(
            out,
            "<text x=\"290\" y=\"{}\" text-anchor=\"end\">{}</text>",
            y + 5,
            way.name()
        );
        let fill = colour(*way).unwrap_or("#64748b");
        for ((x, _), value) in heads.into_iter().zip(values) {
            let width = 130 * value(outcome) / most(value);
            let text = if x == 750 {
                format!("{}×", super::hundredths(value(outcome)))
            } else {
                format!("{}%", super::hundredths(value(outcome) / 100))
            };
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"14\" fill=\"{fill}\"/>\n\
                 <text x=\"{}\" y=\"{}\">{text}</text>",
                y - 7,
                width.max(1),
                x + width + 6,
                y + 5
            );
        }
    }
}
