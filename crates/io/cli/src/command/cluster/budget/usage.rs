//! `bursar budget usage`: used GPU time by owner, run, day or envelope.

use bursar_client::api::cluster::{GetUsage, Usage, UsageBy, UsageRow, UsageSums};
use bursar_engine::{Kind, words};
use bursar_units::Millis;

use crate::command::cluster::{lease, names};
use crate::failure::{Failure, Stop};
use crate::grammar::{Format, UsageArguments};
use crate::layout::{Column, Shown, table};
use crate::list::csv_line;
use crate::session::Session;
use crate::time;

/// A row with its name.
struct Named {
    name: String,
    owner: String,
    uid: String,
    sums: UsageSums,
}

pub(super) async fn run(session: &mut Session, arguments: &UsageArguments) -> Result<(), Stop> {
    let since = lease::time(session, arguments.since.as_deref())?;
    let until = lease::time(session, arguments.until.as_deref())?;
    let name = arguments.name.as_deref();
    let name = name.map(|name| names::budget(session, name, &arguments.scope));
    let name = name.transpose()?;
    let client = session.client().await?;
    let owner = match &name {
        Some(name) => match client.budget(name).await {
            Ok(budget) => Some(budget.spec.owner),
            Err(error) => return Err(names::not_here(error, Kind::Budget, name)),
        },
        None => None,
    };
    let period = GetUsage {
        by: Some(arguments.by),
        since,
        until,
        owner,
    };
    let usage = client.usage(&period).await?;
    match session.common.output {
        Format::Json | Format::Yaml => session.print_value(&usage),
        Format::Name => Err(Failure::usage("used time has no name, use another format").into()),
        Format::Csv => session.print(&csv(&usage)),
        Format::Table | Format::Wide if usage.items.is_empty() => {
            let period = period_words(&usage);
            session.aside(&format!(
                "nothing was used {period}\n\nhint: `bursar runs -A` lists runs\n"
            ));
            Ok(())
        }
        Format::Table | Format::Wide => {
            let wide = session.common.output == Format::Wide;
            let look = session.look();
            let text = table(columns(usage.by), &rows(&usage), &look, wide);
            session.print(&text)?;
            // The sum is that of all owners.
            let conserved = match &name {
                None => "; leases = debits + unfunded, to the millisecond",
                Some(_) => "",
            };
            session.aside(&format!(
                "note: {}{conserved} (record {})\n",
                period_words(&usage),
                words::number(usage.record)
            ));
            Ok(())
        }
    }
}

/// `from 2026-11-16 to 2026-11-18`: the first and the last UTC day that were counted.
fn period_words(usage: &Usage) -> String {
    let last = usage.until.before(Millis::from_ms(1));
    let last = match usage.since {
        Some(since) if last < since => since,
        _ => last,
    };
    let last = time::utc_date(last);
    match usage.since.map(time::utc_date) {
        None => format!("up to {last}"),
        Some(first) if first == last => format!("on {last}"),
        Some(first) => format!("from {first} to {last}"),
    }
}

fn rows(usage: &Usage) -> Vec<Named> {
    let total = Named {
        name: "total".to_owned(),
        owner: String::new(),
        uid: String::new(),
        sums: usage.total,
    };
    let rows = usage.items.iter().map(|row| Named {
        name: name(usage.by, row),
        owner: owner(row),
        uid: row.uid.clone().unwrap_or_default(),
        sums: row.sums,
    });
    rows.chain(std::iter::once(total)).collect()
}

fn name(by: UsageBy, row: &UsageRow) -> String {
    let name = match by {
        UsageBy::Owner => return owner(row),
        UsageBy::Run => row.run.clone(),
        UsageBy::Day => row.day.clone(),
        UsageBy::Envelope => row.envelope.clone(),
    };
    let rest = match by {
        UsageBy::Run => "other runs",
        _ => "unfunded",
    };
    name.unwrap_or_else(|| rest.to_owned())
}

fn owner(row: &UsageRow) -> String {
    let owner = row.owner.as_ref();
    owner.map(ToString::to_string).unwrap_or_default()
}

const LEASED: Column<Named> = Column::of_count("GPU-HOURS", Shown::Always, |row, _| {
    words::hours(row.sums.leased_gpu_ms)
});
const OWNED: Column<Named> = Column::of_count("OWNED", Shown::Always, |row, _| {
    words::hours(row.sums.owned_gpu_ms)
});
const SHARED: Column<Named> = Column::of_count("SHARED", Shown::Always, |row, _| {
    words::hours(row.sums.shared_gpu_ms)
});
const BORROWED: Column<Named> = Column::of_count("BORROWED", Shown::Always, |row, _| {
    words::hours(row.sums.borrowed_gpu_ms)
});
const UNFUNDED: Column<Named> = Column::of_count("UNFUNDED", Shown::Always, |row, _| {
    words::hours(row.sums.unfunded_gpu_ms)
});
const LENT: Column<Named> = Column::of_count("LENT", Shown::Always, |row, _| {
    words::hours(row.sums.lent_gpu_ms)
});

const fn head(name: &'static str) -> Column<Named> {
    Column::of_text(name, Shown::Always, |row, _| row.name.clone())
}

fn columns(by: UsageBy) -> &'static [Column<Named>] {
    const OWNER: Column<Named> =
        Column::of_text("OWNER", Shown::Room(1), |row, _| row.owner.clone());
    const BY_OWNER: &[Column<Named>] = &[
        head("OWNER"),
        LEASED,
        OWNED,
        SHARED,
        BORROWED,
        UNFUNDED,
        LENT,
    ];
    const BY_RUN: &[Column<Named>] = &[
        head("RUN"),
        OWNER,
        LEASED,
        OWNED,
        SHARED,
        BORROWED,
        UNFUNDED,
        Column::of_text("UID", Shown::Wide, |row, _| row.uid.clone()),
    ];
    const BY_DAY: &[Column<Named>] = &[head("DAY"), LEASED, OWNED, SHARED, BORROWED, UNFUNDED];
    const BY_ENVELOPE: &[Column<Named>] = &[
        head("ENVELOPE"),
        OWNER,
        LEASED,
        OWNED,
        SHARED,
        BORROWED,
        UNFUNDED,
        LENT,
    ];
    match by {
        UsageBy::Owner => BY_OWNER,
        UsageBy::Run => BY_RUN,
        UsageBy::Day => BY_DAY,
        UsageBy::Envelope => BY_ENVELOPE,
    }
}

/// Exact amounts under the field names of JSON, without the total.
fn csv(usage: &Usage) -> String {
    let with_owner = matches!(usage.by, UsageBy::Run | UsageBy::Envelope);
    let with_uid = usage.by == UsageBy::Run;
    let line = |name: &str, owner: &str, uid: &str, amounts: [String; 6]| {
        let owner = with_owner.then(|| owner.to_owned());
        let uid = with_uid.then(|| uid.to_owned());
        let names = std::iter::once(name.to_owned()).chain(owner).chain(uid);
        csv_line(names.chain(amounts))
    };
    let heads = [
        "leasedGpuMs",
        "ownedGpuMs",
        "sharedGpuMs",
        "borrowedGpuMs",
        "unfundedGpuMs",
        "lentGpuMs",
    ];
    let mut text = line(usage.by.word(), "owner", "uid", heads.map(str::to_owned));
    for row in &usage.items {
        let sums = &row.sums;
        let amounts = [
            sums.leased_gpu_ms,
            sums.owned_gpu_ms,
            sums.shared_gpu_ms,
            sums.borrowed_gpu_ms,
            sums.unfunded_gpu_ms,
            sums.lent_gpu_ms,
        ];
        let uid = row.uid.as_deref().unwrap_or_default();
        let amounts = amounts.map(|amount| amount.to_string());
        text.push_str(&line(&name(usage.by, row), &owner(row), uid, amounts));
    }
    text
}
