//! The picture of a simulation (SVG): wants and limits of each pod, and the rungs of the node.

use std::fmt::Write as _;

use bursar_client::api::Simulated;
use bursar_client::object::Simulation;

use super::simulate::Rungs;

/// Width of a chart, height of a pod's chart, and margins, in pixels.
const WIDTH: u64 = 800;
const HEIGHT: u64 = 90;
const LEFT: u64 = 120;
const TOP: u64 = 30;
const GAP: u64 = 20;
/// Pods that are drawn; the others are left out, and the picture says so.
const PODS_MAX: usize = 32;

/// A chart: its upper edge, the number of seconds, and the largest value.
struct Chart {
    top: u64,
    seconds: u64,
    most: u64,
}

/// Draws a simulation.
pub(super) fn draw(simulation: &Simulation, simulated: &Simulated, rungs: &Rungs) -> String {
    let world = &simulation.world;
    let pods = world.pods.len().min(PODS_MAX);
    let charts = u64::try_from(pods).unwrap_or(u64::MAX) + 1;
    let height = TOP + charts * (HEIGHT + GAP) + GAP;
    let width = LEFT + WIDTH + GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Wants, limits and rungs of {} pods</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">grey: want · blue: limit · below: the window of memory, in \
         seconds</text>\n",
        world.pods.len()
    );
    for (at, (id, _)) in world.pods.iter().enumerate().take(pods) {
        let wants = simulation.wants.get(at).cloned().unwrap_or_default();
        let own = simulated.changes.iter().filter(|change| change.pod == **id);
        let limits: Vec<(u64, u64)> = own.map(|one| (one.second, one.limit_milli)).collect();
        let values = wants.iter().chain(&limits).map(|(_, milli)| *milli);
        let chart = Chart::new(at, world.seconds, values.max().unwrap_or(0));
        chart.label(&mut svg, id, &format!("{}m", chart.most));
        chart.area(&mut svg, &wants, "#cccccc");
        chart.line(&mut svg, &limits, "#1f5fbf");
    }
    let most = u64::try_from(world.settings.windows).unwrap_or(u64::MAX);
    let chart = Chart::new(pods, world.seconds, most);
    chart.label(&mut svg, "rung", &format!("{most}s"));
    let rungs: Vec<(u64, u64)> = rungs
        .iter()
        .map(|(second, rung)| (*second, rung.unwrap_or(0)))
        .collect();
    chart.line(&mut svg, &rungs, "#b04a00");
    svg.push_str("</svg>\n");
    svg
}

impl Chart {
    fn new(place: usize, seconds: u64, most: u64) -> Self {
        let place = u64::try_from(place).unwrap_or(u64::MAX);
        Self {
            top: TOP + place * (HEIGHT + GAP),
            seconds: seconds.max(1),
            most: most.max(1),
        }
    }

    /// The name and the scale.
    fn label(&self, svg: &mut String, name: &str, most: &str) {
        let (middle, bottom) = (self.top + HEIGHT / 2, self.top + HEIGHT);
        let name = escaped(name);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{middle}\">{name}</text>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#666666\">{most}</text>\
             <path d=\"M{LEFT} {} V{bottom} H{}\" fill=\"none\" stroke=\"#999999\"/>",
            LEFT - 6,
            self.top + 10,
            self.top,
            LEFT + WIDTH
        );
    }

    /// Steps as a filled area.
    fn area(&self, svg: &mut String, steps: &[(u64, u64)], colour: &str) {
        let bottom = self.top + HEIGHT;
        if let Some(path) = self.path(steps) {
            let start = steps.first().map_or(LEFT, |(second, _)| self.x(*second));
            let _ = writeln!(
                svg,
                "<path d=\"{path} V{bottom} H{start} Z\" fill=\"{colour}\"/>"
            );
        }
    }

    /// Steps as a line.
    fn line(&self, svg: &mut String, steps: &[(u64, u64)], colour: &str) {
        if let Some(path) = self.path(steps) {
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
            );
        }
    }

    fn path(&self, steps: &[(u64, u64)]) -> Option<String> {
        let (second, value) = steps.first()?;
        let mut path = format!("M{} {}", self.x(*second), self.y(*value));
        for (second, value) in steps.iter().skip(1) {
            let _ = write!(path, " H{} V{}", self.x(*second), self.y(*value));
        }
        let _ = write!(path, " H{}", LEFT + WIDTH);
        Some(path)
    }

    fn x(&self, second: u64) -> u64 {
        LEFT + (second.saturating_sub(1)).min(self.seconds) * WIDTH / self.seconds
    }

    fn y(&self, value: u64) -> u64 {
        self.top + HEIGHT - value.min(self.most) * HEIGHT / self.most
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_client::api::{Simulated, SimulatedChange};
    use bursar_client::object::{File, read_simulation};
    use bursar_market::clear::BoundBy;

    use super::draw;

    #[test]
    fn a_picture_has_the_wants_the_limits_and_the_rungs() {
        let text = "capacityMilli: 800\nseconds: 10\npods:\n\
                    - {id: a<b, minMilli: 50, maxMilli: 1000, want: [[1, 0], [6, 400]]}\n";
        let file = File {
            name: "simulate.yaml".to_owned(),
            bytes: text.as_bytes().to_vec(),
        };
        let simulation = read_simulation(&file).unwrap();
        let simulated = Simulated {
            changes: vec![SimulatedChange {
                second: 1,
                pod: "a<b".to_owned(),
                limit_milli: 200,
                rung: Some(10),
                bound_by: BoundBy::Need,
            }],
            lost_milli_seconds: 0,
            throttled_seconds: 0,
            writes: 1,
        };
        let svg = draw(&simulation, &simulated, &vec![(1, Some(10)), (6, None)]);
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(svg.contains("a&lt;b"), "{svg}");
        // The want doubles its height at second 6, the limit is half of it, and shares are rung 0.
        assert!(svg.contains("M120 120 H520 V30 H920 V120 H120 Z"), "{svg}");
        assert!(svg.contains("\"M120 75 H920\""), "{svg}");
        assert!(svg.contains("M120 140 H520 V230 H920"), "{svg}");
    }
}
