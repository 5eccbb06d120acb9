//! The printed table: measured values, goals, and limiting resources.

use std::fmt::{self, Write as _};

pub use bursar_units::words::number as grouped;

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the measurement.
    pub name: String,
    /// Measured value with its unit.
    pub value: String,
    /// Our value divided by the peer's.
    pub ratio: Option<String>,
    /// Goal, if there is one.
    pub goal: Option<Goal>,
    /// Limiting resource, as far as it is known, and details.
    pub near: String,
}

/// A goal.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The goal as text.
    pub text: String,
    /// Whether the goal is met.
    pub is_met: bool,
}

/// Rows below a description of the machine.
#[derive(Clone, Debug)]
pub struct Table {
    notes: Vec<String>,
    rows: Vec<Row>,
    below: Vec<String>,
}

impl Goal {
    /// A minimum.
    pub fn at_least(value: u64, least: u64) -> Self {
        Self {
            text: format!("≥ {}", grouped(least)),
            is_met: value >= least,
        }
    }

    /// A maximum.
    pub fn at_most(value: u64, most: u64, unit: &str) -> Self {
        Self {
            text: format!("≤ {} {unit}", grouped(most)),
            is_met: value <= most,
        }
    }
}

impl Table {
    /// An empty table below these notes.
    pub fn new(notes: Vec<String>) -> Self {
        Self {
            notes,
            rows: Vec::new(),
            below: Vec::new(),
        }
    }

    /// Adds a line above the table.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds text below the table, which must end with a newline.
    pub fn below(&mut self, text: String) {
        self.below.push(text);
    }

    /// Names of the rows whose goal is not met.
    pub fn not_met(&self) -> impl Iterator<Item = &str> {
        let missed = |row: &&Row| row.goal.as_ref().is_some_and(|goal| !goal.is_met);
        self.rows.iter().filter(missed).map(|row| row.name.as_str())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        writeln!(out)?;
        let head = ["MEASURE", "SEEN", "RATIO", "GOAL", "MET", "NEAR"].map(str::to_owned);
        let lines: Vec<[String; 6]> = std::iter::once(head)
            .chain(self.rows.iter().map(cells))
            .collect();
        let mut widths = [0; 6];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        for line in &lines {
            let mut text = String::new();
            for (cell, width) in line.iter().zip(widths) {
                write!(text, "{cell:width$}  ")?;
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        for text in &self.below {
            write!(out, "\n{text}")?;
        }
        Ok(())
    }
}

fn cells(row: &Row) -> [String; 6] {
    let dash = || "-".to_owned();
    let (goal, met) = match &row.goal {
        Some(goal) => (
            goal.text.clone(),
            if goal.is_met { "yes" } else { "no" }.to_owned(),
        ),
        None => (dash(), dash()),
    };
    let ratio = row.ratio.clone().unwrap_or_else(dash);
    [
        row.name.clone(),
        row.value.clone(),
        ratio,
        goal,
        met,
        row.near.clone(),
    ]
}

/// Thousandths as a decimal with two places, rounded to the nearest: `1234` as `1.23`.
pub fn thousandths(number: u64) -> String {
    let hundredths_nearest = number.saturating_add(5) / 10;
    format!(
        "{}.{:02}",
        grouped(hundredths_nearest / 100),
        hundredths_nearest % 100
    )
}

/// Tenths as a decimal with one place: `123` as `12.3`.
pub fn tenths(number: u64) -> String {
    format!("{}.{}", grouped(number / 10), number % 10)
}

/// Rate per second of `count` operations.
pub fn per_second(count: u64, took: std::time::Duration) -> u64 {
    let micros = took.as_micros().max(1);
    u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Goal, Row, Table, grouped, per_second, tenths, thousandths};

    #[test]
    fn numbers_are_grouped_and_rounded() {
        assert_eq!(
            ["7", "999", "1,000", "12,345,678"],
            [7, 999, 1_000, 12_345_678].map(grouped)
        );
        assert_eq!(
            ["0.00", "1.23", "1.24", "2.00"],
            [4, 1_234, 1_235, 1_999].map(thousandths)
        );
        assert_eq!("1,000.5", tenths(10_005));
        assert_eq!(per_second(30, std::time::Duration::from_millis(1_500)), 20);
    }

    #[test]
    fn columns_are_aligned_and_a_missed_goal_is_named() {
        let mut table = Table::new(vec!["disk".to_owned()]);
        let row = |name: &str, goal| Row {
            name: name.to_owned(),
            value: "5 a/s".to_owned(),
            ratio: None,
            goal,
            near: "CPU".to_owned(),
        };
        table.push(row("a", Some(Goal::at_least(5, 6))));
        table.push(row("longer", Some(Goal::at_most(5, 6, "MiB"))));
        table.push(row("b", None));
        table.below("words\n".to_owned());
        let expected = "disk\n\n\
            MEASURE  SEEN   RATIO  GOAL     MET  NEAR\n\
            a        5 a/s  -      ≥ 6      no   CPU\n\
            longer   5 a/s  -      ≤ 6 MiB  yes  CPU\n\
            b        5 a/s  -      -        -    CPU\n\nwords\n";
        assert_eq!(table.to_string(), expected);
        assert_eq!(table.not_met().collect::<Vec<_>>(), ["a"]);
    }
}
