//! Tables, bars and lines of detail: plain text, aligned (design 80, 1.6).
//!
//! One [`Column`] feeds the table, `-o wide` and `--where`. A table is at most 100 columns wide:
//! it drops columns, which live in `-o wide`, and never cuts a name.

use std::borrow::Cow;
use std::fmt::Write as _;

use bursar_engine::words::number;
use bursar_units::hidden::{escape, is_hidden};

/// How wide a table may be.
pub(crate) const WIDTH: usize = 100;
/// Cells of a bar.
const BAR_CELLS: u64 = 10;

/// One column of a list of `T`.
pub(crate) struct Column<T: ?Sized> {
    /// Its head; in lower case the key of `--where`.
    pub(crate) head: &'static str,
    /// On which side its cells stand.
    pub(crate) align: Align,
    /// Where it is shown.
    pub(crate) shown: Shown,
    /// What it says of a row; empty means that it does not apply.
    pub(crate) cell: fn(&T, &Look) -> String,
    /// Other words for which `--where` finds the row.
    pub(crate) also: fn(&T) -> Vec<String>,
    /// What the cell's colour means.
    pub(crate) meaning: fn(&T) -> Option<Meaning>,
}

/// On which side cells stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Where a column is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shown {
    /// In every table.
    Always,
    /// In tables that have room; those with the largest number go first.
    Room(u8),
    /// In `-o wide` only.
    Wide,
}

/// How things look where they are shown.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// The present time.
    pub(crate) now: bursar_units::Instant,
    /// Where the reader's clock stands.
    pub(crate) zone: jiff::tz::TimeZone,
    /// Whether bars and arrows can be shown.
    pub(crate) utf8: bool,
    /// Whether colour may be used.
    pub(crate) color: bool,
}

/// What colour means. It never carries meaning alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Meaning {
    /// Running, ok.
    Good,
    /// Waiting, near a limit.
    Waiting,
    /// Refused, failed.
    Bad,
    /// The subject of the first line.
    Subject,
    /// Secondary.
    Dim,
}

/// What stands for the beginnings and the end of a colour until a text is printed, and what a
/// terminal is told there. They are noncharacters, so that [`Look::shown`] can escape every
/// control character that a text itself has.
const MARKS: [(char, &str); 6] = [
    ('\u{fdd0}', "\u{1b}[32m"),
    ('\u{fdd1}', "\u{1b}[33m"),
    ('\u{fdd2}', "\u{1b}[31m"),
    ('\u{fdd3}', "\u{1b}[1m"),
    ('\u{fdd4}', "\u{1b}[2m"),
    (MARK_END, "\u{1b}[0m"),
];
const MARK_END: char = '\u{fdd5}';
/// The hidden characters that a laid-out text has of its own, the end of a line last.
const KEPT: [char; 7] = [
    '\u{fdd0}', '\u{fdd1}', '\u{fdd2}', '\u{fdd3}', '\u{fdd4}', MARK_END, '\n',
];

/// A text of several lines as it may go to a terminal: all that is hidden is escaped.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, &['\n'])
}

/// A text of one line as it may go to a terminal.
pub(crate) fn escaped_line(text: &str) -> Cow<'_, str> {
    escape(text, &[])
}

/// JSON of the same meaning in which nothing is hidden. What is hidden in JSON stands in a text,
/// but for the ends of lines.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| is_hidden(character) && character != '\n';
    if !json.chars().any(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _written = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

impl Look {
    /// The text in the colour of its meaning, where there is colour.
    pub(crate) fn paint(&self, meaning: Meaning, text: &str) -> String {
        let text = escaped_line(text);
        if !self.color {
            return text.into_owned();
        }
        let mark = match meaning {
            Meaning::Good => '\u{fdd0}',
            Meaning::Waiting => '\u{fdd1}',
            Meaning::Bad => '\u{fdd2}',
            Meaning::Subject => '\u{fdd3}',
            Meaning::Dim => '\u{fdd4}',
        };
        format!("{mark}{text}{MARK_END}")
    }

    /// A laid-out text as it may go to a terminal: what is hidden in it is escaped, whoever wrote
    /// it, and our own colours are told in the terminal's way.
    pub(crate) fn shown(&self, text: &str) -> String {
        if !self.color {
            return escaped(text).into_owned();
        }
        let mut shown = escape(text, &KEPT).into_owned();
        for (mark, told) in MARKS {
            shown = shown.replace(mark, told);
        }
        shown
    }

    /// A bar of ten cells. What is used shows at least one; full means that nothing is left.
    pub(crate) fn bar(&self, used: u64, size: u64) -> String {
        let floor = if size == 0 {
            BAR_CELLS
        } else {
            let cells = u128::from(used) * u128::from(BAR_CELLS) / u128::from(size);
            u64::try_from(cells).unwrap_or(BAR_CELLS).min(BAR_CELLS)
        };
        let cells = if used > 0 { floor.max(1) } else { floor };
        let (full, free) = if self.utf8 {
            ('█', '░')
        } else {
            ('#', '.')
        };
        (0..BAR_CELLS)
            .map(|at| if at < cells { full } else { free })
            .collect()
    }

    /// A laid-out text as it is printed: nothing hidden, and arrows and dots in the letters that
    /// the place can show.
    pub(crate) fn letters(&self, text: &str) -> String {
        self.plain(self.shown(text))
    }

    /// Arrows and dots in the letters that the place can show.
    pub(crate) fn plain(&self, text: String) -> String {
        if self.utf8 {
            return text;
        }
        text.replace('→', "->")
            .replace('…', "...")
            .replace('×', "x")
            .replace('█', "#")
            .replace('░', ".")
            .replace('✓', "ok")
            .replace('✗', "failed")
    }
}

/// Nothing else to find a row by.
fn nothing_else<T: ?Sized>(_: &T) -> Vec<String> {
    Vec::new()
}

/// No colour.
fn no_meaning<T: ?Sized>(_: &T) -> Option<Meaning> {
    None
}

/// A table of `rows`, with a newline at the end of each line; empty where there is none.
pub(crate) fn table<T>(columns: &[Column<T>], rows: &[T], look: &Look, wide: bool) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = fitting(columns, rows, look, wide);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| column.width(rows, look))
        .collect();
    let mut text = line(
        &columns,
        &widths,
        |column| (column.head.to_owned(), None),
        look,
    );
    for row in rows {
        text.push_str(&row_line(&columns, &widths, row, look));
    }
    text
}

/// The rows only, as `-w` prints them below a table of those widths.
pub(crate) fn rows<T>(
    columns: &[Column<T>],
    all: &[T],
    rows: &[&T],
    look: &Look,
    wide: bool,
) -> String {
    let columns = fitting(columns, all, look, wide);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| column.width(all, look))
        .collect();
    rows.iter()
        .map(|row| row_line(&columns, &widths, row, look))
        .collect()
}

/// How wide the words of a report's details are at least, so that reports look alike.
pub(crate) const REPORT_WORD: usize = 7;

/// Lines of detail below a first line: two spaces, a word, and what belongs to it.
pub(crate) fn details(lines: &[(String, String)], width_min: usize) -> String {
    let words = lines.iter().map(|(word, _)| word.chars().count());
    let width = words.max().unwrap_or(0).max(width_min);
    let mut text = String::new();
    for (word, value) in lines {
        let mut label = format!("  {word:<width$}  ");
        for part in value.lines() {
            text.push_str(&labelled(&label, part));
            label = " ".repeat(width + 4);
        }
        if value.is_empty() {
            text.push_str(&labelled(&label, ""));
        }
    }
    text
}

/// Lines of so many columns at most, broken between words; a word that is longer stays whole.
pub(crate) fn fold(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let width = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && columns < width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// A text after a label, its further lines below its first; with a newline at the end of each.
pub(crate) fn labelled(label: &str, text: &str) -> String {
    labelled_within(label, text, WIDTH)
}

/// The same where there are so many columns.
pub(crate) fn labelled_within(label: &str, text: &str, columns: usize) -> String {
    let indent = label.chars().count();
    let mut told = String::new();
    let text = escape(text, KEPT.split_last().map_or(&[], |(_, marks)| marks));
    for (at, line) in fold(&text, columns.saturating_sub(indent))
        .iter()
        .enumerate()
    {
        let before = if at == 0 { label } else { &" ".repeat(indent) };
        told.push_str(format!("{before}{line}").trim_end());
        told.push('\n');
    }
    told
}

/// A number, or `-` where there is none.
pub(crate) fn number_or_dash(value: Option<u64>) -> String {
    value.map(number).unwrap_or_default()
}

impl<T> Column<T> {
    /// A column of texts.
    pub(crate) const fn of_text(
        head: &'static str,
        shown: Shown,
        cell: fn(&T, &Look) -> String,
    ) -> Self {
        Self {
            head,
            align: Align::Left,
            shown,
            cell,
            also: nothing_else,
            meaning: no_meaning,
        }
    }

    /// A column of numbers.
    pub(crate) const fn of_count(
        head: &'static str,
        shown: Shown,
        cell: fn(&T, &Look) -> String,
    ) -> Self {
        Self {
            align: Align::Right,
            ..Self::of_text(head, shown, cell)
        }
    }

    /// The cell as it is printed.
    pub(crate) fn text(&self, row: &T, look: &Look) -> String {
        escaped_line(&self.value(row, look)).into_owned()
    }

    /// The cell, never empty.
    pub(crate) fn value(&self, row: &T, look: &Look) -> String {
        let text = (self.cell)(row, look);
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    }

    /// The key of `--where`.
    pub(crate) fn key(&self) -> String {
        self.head.to_lowercase().replace(' ', "-")
    }

    fn width(&self, rows: &[T], look: &Look) -> usize {
        let cells = rows.iter().map(|row| self.text(row, look).chars().count());
        cells.max().unwrap_or(0).max(self.head.chars().count())
    }
}

/// The columns that are shown: all in `wide`, otherwise as many as fit.
fn fitting<'a, T>(
    columns: &'a [Column<T>],
    rows: &[T],
    look: &Look,
    wide: bool,
) -> Vec<&'a Column<T>> {
    let mut shown: Vec<&Column<T>> = columns
        .iter()
        .filter(|column| wide || column.shown != Shown::Wide)
        .collect();
    if wide {
        return shown;
    }
    loop {
        let width: usize = shown
            .iter()
            .map(|column| column.width(rows, look) + 2)
            .sum();
        if width <= WIDTH + 2 {
            return shown;
        }
        let weakest = shown
            .iter()
            .enumerate()
            .filter_map(|(at, column)| match column.shown {
                Shown::Room(weakness) => Some((weakness, at)),
                Shown::Always | Shown::Wide => None,
            });
        let Some((_, at)) = weakest.max() else {
            return shown;
        };
        shown.remove(at);
    }
}

fn row_line<T>(columns: &[&Column<T>], widths: &[usize], row: &T, look: &Look) -> String {
    line(
        columns,
        widths,
        |column| (column.text(row, look), (column.meaning)(row)),
        look,
    )
}

fn line<T>(
    columns: &[&Column<T>],
    widths: &[usize],
    cell: impl Fn(&Column<T>) -> (String, Option<Meaning>),
    look: &Look,
) -> String {
    let mut text = String::new();
    for (column, width) in columns.iter().zip(widths) {
        let (cell, meaning) = cell(column);
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let cell = meaning.map_or(cell.clone(), |meaning| look.paint(meaning, &cell));
        match column.align {
            Align::Left => text.extend([cell.as_str(), &padding, "  "]),
            Align::Right => text.extend([&padding, cell.as_str(), "  "]),
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use bursar_units::hidden::is_hidden;

    use super::{Column, Look, Meaning, Shown, details, table};

    fn look() -> Look {
        Look {
            now: bursar_units::Instant::from_ms(0),
            zone: jiff::tz::TimeZone::UTC,
            utf8: true,
            color: false,
        }
    }

    fn column(
        head: &'static str,
        shown: Shown,
        cell: fn(&(String, u64), &Look) -> String,
    ) -> Column<(String, u64)> {
        Column::of_text(head, shown, cell)
    }

    #[test]
    fn a_bar_shows_a_little_and_is_full_only_when_nothing_is_left() {
        let bar = |used, size| look().bar(used, size);
        assert_eq!(bar(0, 400), "░░░░░░░░░░");
        assert_eq!(bar(1, 400), "█░░░░░░░░░");
        assert_eq!(bar(103, 400), "██░░░░░░░░");
        assert_eq!(bar(399, 400), "█████████░");
        assert_eq!(bar(400, 400), "██████████");
        assert_eq!(bar(103, 80), "██████████");
        assert_eq!(bar(0, 0), "██████████");
        assert_eq!(
            Look {
                utf8: false,
                ..look()
            }
            .bar(5, 10),
            "#####....."
        );
    }

    #[test]
    fn a_table_drops_columns_and_never_cuts_a_name() {
        let columns = [
            column("NAME", Shown::Always, |row, _| row.0.clone()),
            column("LONG", Shown::Room(2), |row, _| row.0.clone()),
            column("COUNT", Shown::Room(1), |row, _| row.1.to_string()),
            column("EXTRA", Shown::Wide, |_, _| String::new()),
        ];
        let rows = [("n".repeat(60), 7)];
        let text = table(&columns, &rows, &look(), false);
        assert!(text.starts_with("NAME") && text.contains("COUNT") && !text.contains("LONG"));
        assert!(text.contains(&"n".repeat(60)));
        let wide = table(&columns, &rows, &look(), true);
        assert!(wide.contains("LONG") && wide.trim_end().ends_with('-'));
    }

    #[test]
    fn what_is_too_long_goes_on_below_its_first_line() {
        assert_eq!(super::fold("one two three", 8), ["one two", "three"]);
        assert_eq!(super::fold("one two", 7), ["one two"]);
        assert_eq!(
            super::fold("immeasurable word", 4),
            ["immeasurable", "word"]
        );
        assert_eq!(super::fold("", 4), [""]);
        let text = "x".repeat(60);
        assert_eq!(
            super::labelled("WHY     ", &format!("{text} {text}")),
            format!("WHY     {text}\n        {text}\n")
        );
        assert_eq!(super::labelled("HOW  ", ""), "HOW\n");
    }

    #[test]
    fn a_terminal_obeys_nothing_but_our_own_colours() {
        let plain = look();
        let color = Look {
            color: true,
            ..look()
        };
        let evil = "a\u{1b}[2Jb\u{9b}31m\u{202e}c\u{200b}\nerror: d\u{fdd0}";
        let safe = "a\\u{1b}[2Jb\\u{9b}31m\\u{202e}c\\u{200b}\\u{a}error: d\\u{fdd0}";
        let painted = color.paint(Meaning::Bad, evil);
        assert_eq!(plain.letters(&plain.paint(Meaning::Bad, evil)), safe);
        assert_eq!(
            color.letters(&painted),
            format!("\u{1b}[31m{safe}\u{1b}[0m")
        );
        let columns = [column("NAME", Shown::Always, |row, _| row.0.clone())];
        let rows = [(evil.to_owned(), 0)];
        let text = table(&columns, &rows, &plain, false);
        assert_eq!(plain.letters(&text), format!("NAME\n{safe}\n"));
        let text = super::labelled("WHY  ", evil);
        assert_eq!(plain.letters(&text), format!("WHY  {safe}\n"));
        assert_eq!(plain.letters("two\nlines"), "two\nlines");
        assert!(!color.letters(evil).contains("\u{1b}[2J"));
    }

    #[test]
    fn json_hides_nothing_and_means_the_same() {
        let value = serde_json::json!({"a\u{202e}": ["\u{1b}\u{9b}", "\u{e0041}é", "\n"]});
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        let escaped = super::escaped_json(&text);
        assert!(
            escaped.chars().all(|c| c == '\n' || !is_hidden(c)),
            "{escaped}"
        );
        assert!(
            escaped.contains(r"\u202e") && escaped.contains(r"\udb40\udc41"),
            "{escaped}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).ok(),
            Some(value)
        );
    }

    #[test]
    fn details_line_up() {
        let lines = [
            ("slots".to_owned(), "100 → 120".to_owned()),
            ("effect".to_owned(), "none".to_owned()),
        ];
        assert_eq!(
            details(&lines, super::REPORT_WORD),
            "  slots    100 → 120\n  effect   none\n"
        );
        assert_eq!(details(&lines, 0), "  slots   100 → 120\n  effect  none\n");
    }
}
