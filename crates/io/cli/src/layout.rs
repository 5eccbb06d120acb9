//! Tables, bars and detail lines as aligned plain text.
//!
//! One [`Column`] serves tables, `-o wide` and `--where`. A table is at most 100 columns wide: it
//! omits columns that do not fit, which `-o wide` shows, and never truncates a name.

use std::borrow::Cow;
use std::fmt::Write as _;

use bursar_engine::words::number;
use bursar_units::hidden::{escape, is_hidden};

/// Maximum width of a table.
pub(crate) const WIDTH: usize = 100;
const BAR_CELLS: u64 = 10;

/// One column of a list of `T`.
pub(crate) struct Column<T: ?Sized> {
    /// Heading; in lower case the key of `--where`.
    pub(crate) head: &'static str,
    pub(crate) align: Align,
    pub(crate) shown: Shown,
    /// Text of a row's cell; empty means that the column does not apply.
    pub(crate) cell: fn(&T, &Look) -> String,
    /// Other values that `--where` accepts for the row.
    pub(crate) also: fn(&T) -> Vec<String>,
    /// Meaning of the cell, shown as colour.
    pub(crate) meaning: fn(&T) -> Option<Meaning>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Visibility of a column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shown {
    Always,
    /// In tables with room; the columns with the largest number are omitted first.
    Room(u8),
    /// In `-o wide` only.
    Wide,
}

/// Settings of the text shown to people.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) now: bursar_units::Instant,
    pub(crate) zone: jiff::tz::TimeZone,
    /// Whether bars and arrows can be shown.
    pub(crate) utf8: bool,
    pub(crate) color: bool,
}

/// Meaning of a colour. The text always has the same meaning without it.
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
    /// Secondary text.
    Dim,
}

/// Marks for the start and end of a colour, with the terminal's escape sequence for each. Text
/// has marks until it is printed. They are noncharacters, so that [`Look::shown`] can escape
/// every control character of the text itself.
const MARKS: [(char, &str); 6] = [
    ('\u{fdd0}', "\u{1b}[32m"),
    ('\u{fdd1}', "\u{1b}[33m"),
    ('\u{fdd2}', "\u{1b}[31m"),
    ('\u{fdd3}', "\u{1b}[1m"),
    ('\u{fdd4}', "\u{1b}[2m"),
    (MARK_END, "\u{1b}[0m"),
];
const MARK_END: char = '\u{fdd5}';
/// Hidden characters that are part of the layout; the line feed is last.
const KEPT: [char; 7] = [
    '\u{fdd0}', '\u{fdd1}', '\u{fdd2}', '\u{fdd3}', '\u{fdd4}', MARK_END, '\n',
];

/// A text of several lines with hidden characters escaped, safe for a terminal.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, &['\n'])
}

/// A text of one line with hidden characters escaped, line feeds too.
pub(crate) fn escaped_line(text: &str) -> Cow<'_, str> {
    escape(text, &[])
}

/// The same JSON value with hidden characters escaped. Outside of JSON strings only line feeds are
/// hidden characters.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| is_hidden(character) && character != '\n';
    if !json.chars().any(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

impl Look {
    /// The escaped text, with marks of its colour if colour is on.
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

    /// A laid-out text for a terminal: hidden characters are escaped, and marks become escape
    /// sequences.
    pub(crate) fn shown(&self, text: &str) -> String {
        if !self.color {
            return escaped(text).into_owned();
        }
        let mut shown = escape(text, &KEPT).into_owned();
        for (mark, sequence) in MARKS {
            shown = shown.replace(mark, sequence);
        }
        shown
    }

    /// A bar of ten cells. Any use fills at least one cell; ten mean that nothing is left.
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

    /// A bar of ten cells for used and committed amounts: the difference is held ahead. Each part
    /// above zero, and the rest, has at least one cell.
    pub(crate) fn bar_ahead(&self, used: u64, committed: u64, size: u64) -> String {
        let committed = committed.max(used);
        let cells = |amount: u64| {
            let cells = u128::from(amount) * u128::from(BAR_CELLS) / u128::from(size.max(1));
            u64::try_from(cells).unwrap_or(BAR_CELLS).min(BAR_CELLS)
        };
        let some = |is_some: bool| u64::from(is_some);
        let (is_ahead, is_left) = (used < committed, committed < size);
        let most = BAR_CELLS - some(is_ahead) - some(is_left);
        let full = cells(used).max(some(used > 0)).min(most);
        let most = BAR_CELLS - some(is_left);
        let taken = cells(committed).max(full + some(is_ahead)).min(most);
        let (is_used, is_held, is_free) = if self.utf8 {
            ('█', '▒', '░')
        } else {
            ('#', '=', '.')
        };
        (0..BAR_CELLS)
            .map(|at| match at {
                at if at < full => is_used,
                at if at < taken => is_held,
                _ => is_free,
            })
            .collect()
    }

    /// A laid-out text as it is printed: escaped, and in ASCII if the locale is not UTF-8.
    pub(crate) fn letters(&self, text: &str) -> String {
        self.plain(self.shown(text))
    }

    /// Replaces our symbols by ASCII if the locale is not UTF-8.
    pub(crate) fn plain(&self, text: String) -> String {
        if self.utf8 {
            return text;
        }
        text.replace('→', "->")
            .replace('…', "...")
            .replace('×', "x")
            .replace('█', "#")
            .replace('░', ".")
            .replace('▒', "=")
            .replace('–', "-")
            .replace('✓', "ok")
            .replace('✗', "failed")
    }
}

fn nothing_else<T: ?Sized>(_: &T) -> Vec<String> {
    Vec::new()
}

fn no_meaning<T: ?Sized>(_: &T) -> Option<Meaning> {
    None
}

/// A table of `rows`; empty if there are none.
pub(crate) fn table<T>(columns: &[Column<T>], rows: &[T], look: &Look, wide: bool) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = fitting(columns, rows, look, wide);
    let mut text = line(&columns, |column| (column.head.to_owned(), None), look);
    for row in rows {
        text.push_str(&row_line(&columns, row, look));
    }
    text
}

/// Only the `rows`, with the widths of a table of `all`: `-w` prints them below that table.
pub(crate) fn rows<T>(
    columns: &[Column<T>],
    all: &[T],
    rows: &[&T],
    look: &Look,
    wide: bool,
) -> String {
    let columns = fitting(columns, all, look, wide);
    let lines = rows.iter().map(|row| row_line(&columns, row, look));
    lines.collect()
}

/// Minimum width of the labels in reports, so that reports are aligned alike.
pub(crate) const REPORT_WORD: usize = 7;

/// Detail lines below a first line: two spaces, a label and its text.
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

/// Lines of at most `columns`, broken between words; a longer word is not broken.
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

/// A text after a label, folded to [`WIDTH`]; further lines are aligned with the first.
pub(crate) fn labelled(label: &str, text: &str) -> String {
    labelled_within(label, text, WIDTH)
}

/// [`labelled`] for another width.
pub(crate) fn labelled_within(label: &str, text: &str, columns: usize) -> String {
    let indent = label.chars().count();
    let mut lines = String::new();
    let text = escape(text, KEPT.split_last().map_or(&[], |(_, marks)| marks));
    for (at, line) in fold(&text, columns.saturating_sub(indent))
        .iter()
        .enumerate()
    {
        let before = if at == 0 { label } else { &" ".repeat(indent) };
        lines.push_str(format!("{before}{line}").trim_end());
        lines.push('\n');
    }
    lines
}

/// A number, or an empty cell, which a table shows as `-`.
pub(crate) fn number_or_dash(value: Option<u64>) -> String {
    value.map(number).unwrap_or_default()
}

impl<T> Column<T> {
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

    /// The cell with hidden characters escaped.
    pub(crate) fn text(&self, row: &T, look: &Look) -> String {
        escaped_line(&self.value(row, look)).into_owned()
    }

    /// The cell, or `-` if it is empty.
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

/// The visible columns with their widths: all if `wide`, otherwise as many as fit.
fn fitting<'a, T>(
    columns: &'a [Column<T>],
    rows: &[T],
    look: &Look,
    wide: bool,
) -> Vec<(&'a Column<T>, usize)> {
    let columns = columns.iter();
    let mut shown: Vec<_> = columns
        .filter(|column| wide || column.shown != Shown::Wide)
        .map(|column| (column, column.width(rows, look)))
        .collect();
    while !wide && WIDTH + 2 < shown.iter().map(|(_, width)| width + 2).sum::<usize>() {
        let columns = shown.iter().enumerate();
        let omissible = columns.filter_map(|(at, (column, _))| match column.shown {
            Shown::Room(weakness) => Some((weakness, at)),
            Shown::Always | Shown::Wide => None,
        });
        let Some((_, at)) = omissible.max() else {
            break;
        };
        shown.remove(at);
    }
    shown
}

fn row_line<T>(columns: &[(&Column<T>, usize)], row: &T, look: &Look) -> String {
    let cell = |column: &Column<T>| (column.text(row, look), (column.meaning)(row));
    line(columns, cell, look)
}

fn line<T>(
    columns: &[(&Column<T>, usize)],
    cell: impl Fn(&Column<T>) -> (String, Option<Meaning>),
    look: &Look,
) -> String {
    let mut text = String::new();
    for (column, width) in columns {
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
        let ahead = |used, committed, size| look().bar_ahead(used, committed, size);
        assert_eq!(ahead(28_912, 29_776, 40_000), "███████▒░░");
        assert_eq!(ahead(30_420, 35_440, 36_000), "████████▒░");
        assert_eq!(ahead(4_310, 4_454, 10_000), "████▒░░░░░");
        assert_eq!(ahead(0, 0, 8), "░░░░░░░░░░");
        assert_eq!(ahead(999, 999, 1_000), "█████████░");
        assert_eq!(ahead(998, 999, 1_000), "████████▒░");
        assert_eq!(ahead(1_000, 1_000, 1_000), "██████████");
        assert_eq!(ahead(9, 8, 8), "██████████");
        assert_eq!(bar(0, 0), "██████████");
        let ascii = Look {
            utf8: false,
            ..look()
        };
        assert_eq!(ascii.bar(5, 10), "#####.....");
    }

    #[test]
    fn a_table_omits_columns_and_never_truncates_a_name() {
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
    fn long_text_continues_below_its_first_line() {
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
    fn escape_sequences_other_than_our_colours_do_not_reach_a_terminal() {
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
    fn escaped_json_has_no_hidden_characters_and_the_same_value() {
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
    fn details_are_aligned() {
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
