//! Lists: tables, `-o wide`, `--where` and the output for programs, from one set of columns.

use std::cell::RefCell;

use serde::Serialize;

use crate::failure::{Failure, Stop, no_csv};
use crate::grammar::Format;
use crate::layout::{self, Column, Look, escaped_line};
use crate::session::Session;
use crate::suggest::did_you_mean;

/// A kind of item in lists.
pub(crate) trait Listed: Serialize + Sized + 'static {
    /// Kind in references: `booking`.
    const KIND: &'static str;
    /// Text of an empty list: `no bookings`.
    const NONE: &'static str;
    /// Hint below an empty list: how to make the first item.
    const FIRST: &'static str;

    fn columns() -> &'static [Column<Self>];

    fn name(&self) -> String;

    /// Whether it has ended. A watch shows the change; lists omit it unless `state` is filtered.
    fn is_past(&self) -> bool {
        false
    }
}

/// A list for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [T],
}

impl<'a, T> List<'a, T> {
    pub(crate) fn of(items: &'a [T]) -> Self {
        Self {
            api_version: bursar_client::api::limit::API_VERSION,
            kind: "List",
            items,
        }
    }
}

/// The filter of `--where`: column indices with the value wanted in each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    wanted: Vec<(usize, String)>,
}

impl Filter {
    /// Reads `KEY=VALUE,…` for the columns of `T`.
    pub(crate) fn read<T: Listed>(text: Option<&str>) -> Result<Self, Stop> {
        let mut wanted = Vec::new();
        for part in text
            .into_iter()
            .flat_map(|text| text.split(','))
            .filter(|part| !part.is_empty())
        {
            let Some((key, value)) = part.split_once('=') else {
                return Err(
                    Failure::usage(format!("--where takes KEY=VALUE, not `{part}`")).into(),
                );
            };
            let keys: Vec<String> = T::columns().iter().map(Column::key).collect();
            let Some(at) = keys.iter().position(|known| known == key) else {
                let suggestion = did_you_mean(key, keys.iter().map(String::as_str));
                let message = format!("a {} has no column `{key}`{suggestion}", T::KIND);
                return Err(Failure::usage(message)
                    .detail("columns", keys.join(", "))
                    .into());
            };
            wanted.push((at, value.to_owned()));
        }
        Ok(Self { wanted })
    }

    /// The value wanted in a column.
    pub(crate) fn value<T: Listed>(&self, key: &str) -> Option<&str> {
        let at = T::columns().iter().position(|column| column.key() == key)?;
        let wanted = self.wanted.iter().find(|(wanted, _)| *wanted == at);
        wanted.map(|(_, value)| value.as_str())
    }

    /// Whether a row has every value wanted.
    pub(crate) fn admits<T: Listed>(&self, row: &T, look: &Look) -> bool {
        self.wanted.iter().all(|(at, value)| {
            T::columns().get(*at).is_some_and(|column| {
                let text = column.value(row, look);
                text == *value
                    || text.replace(',', "") == *value
                    || column.text(row, look) == *value
                    || (column.also)(row).contains(value)
            })
        })
    }
}

/// The part of the objects that a list shows, for the text of an empty one.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Follows `no runs`: ` in namespace speech`.
    pub(crate) words: String,
    /// Hint about objects elsewhere; it replaces the one for the first object.
    pub(crate) hint: RefCell<Option<String>>,
}

/// Prints a filtered list; `place` follows the text of an empty one.
pub(crate) fn print<T: Listed>(
    session: &mut Session,
    items: &[T],
    place: &Place,
) -> Result<(), Stop> {
    match session.common.output {
        Format::Json | Format::Yaml => session.print_value(&List::of(items)),
        Format::Name => print_names(session, items),
        Format::Csv => Err(no_csv().into()),
        Format::Table | Format::Wide if items.is_empty() => {
            let hint = place.hint.borrow();
            let hint = hint.as_deref().unwrap_or(T::FIRST);
            session.aside(&format!("{}{}\n\nhint: {hint}\n", T::NONE, place.words));
            Ok(())
        }
        Format::Table | Format::Wide => {
            let wide = session.common.output == Format::Wide;
            let text = layout::table(T::columns(), items, &session.look(), wide);
            session.print(&text)
        }
    }
}

/// One line of CSV (RFC 4180, with a line feed); hidden characters are escaped.
pub(crate) fn csv_line(cells: impl IntoIterator<Item = String>) -> String {
    let quoted = |cell: String| {
        let cell = escaped_line(&cell).into_owned();
        if cell.contains([',', '"']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell
        }
    };
    let cells: Vec<String> = cells.into_iter().map(quoted).collect();
    format!("{}\n", cells.join(","))
}

fn print_names<'a, T: Listed>(
    session: &mut Session,
    items: impl IntoIterator<Item = &'a T>,
) -> Result<(), Stop> {
    let items = items.into_iter();
    let lines = items.map(|item| format!("{}/{}\n", T::KIND, item.name()));
    session.print(&lines.collect::<String>())
}

/// Prints the changed items below a printed list.
pub(crate) fn print_changed<T: Listed>(
    session: &mut Session,
    all: &[T],
    changed: &[&T],
) -> Result<(), Stop> {
    match session.common.output {
        Format::Json | Format::Yaml => changed.iter().try_for_each(|item| session.print_line(item)),
        Format::Name => print_names(session, changed.iter().copied()),
        Format::Csv => Err(no_csv().into()),
        Format::Table | Format::Wide => {
            let wide = session.common.output == Format::Wide;
            let text = layout::rows(T::columns(), all, changed, &session.look(), wide);
            session.print(&text)
        }
    }
}
