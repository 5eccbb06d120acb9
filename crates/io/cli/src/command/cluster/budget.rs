//! `bursar budget`: envelopes with their use, budgets, and the change of an epoch.

mod usage;

use bursar_client::Code;
use bursar_client::api::ListAnswer;
use bursar_client::api::cluster::{
    Budget, BudgetCondition, BudgetStatus, CapSpec, Envelope, EnvelopeSpec, LendingSpec,
    ListBudgets, MeterStatus, RotateRequest,
};
use bursar_client::client::Mode;
use bursar_engine::cluster::budget::accounts::ConditionKind;
use bursar_engine::cluster::budget::spec::{OnExhaustion, Sharing};
use bursar_engine::{Kind, words};
use bursar_units::{Instant, Label, ScopedName};
use serde::Serialize;

use super::names;
use super::submit::place_words;
use crate::command::{DRY_RUN, watch};
use crate::failure::Stop;
use crate::grammar::{BudgetVerb, Format, Noun, Scope, ScopedFlags};
use crate::layout::{Column, Look, Meaning, REPORT_WORD, Shown, details};
use crate::list::{Filter, Listed};
use crate::session::Session;

/// Share of a limit from which it is nearly used up.
const NEAR_PERCENT: u128 = 80;

pub(in crate::command) async fn run(
    session: &mut Session,
    noun: Noun<BudgetVerb, ScopedFlags>,
) -> Result<(), Stop> {
    match noun.verb.unwrap_or(BudgetVerb::List(noun.list)) {
        BudgetVerb::List(flags) => list(session, &flags).await,
        BudgetVerb::Show { name, scope } => show(session, &name, &scope).await,
        BudgetVerb::Usage(arguments) => usage::run(session, &arguments).await,
        BudgetVerb::Rotate {
            name,
            scope,
            envelope,
            reason,
            dry_run,
        } => {
            let request = RotateRequest { envelope, reason };
            rotate(session, &name, &scope, request, Mode::dry_run_if(dry_run)).await
        }
    }
}

/// A row of the list: an envelope, and the widths of the numbers beside its bars.
#[derive(Clone, Serialize)]
struct Row {
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(skip)]
    gpus_width: usize,
    #[serde(skip)]
    hours_width: usize,
}

impl Row {
    fn meter(&self) -> &MeterStatus {
        &self.envelope.meter
    }

    fn gpus(&self) -> String {
        let meter = self.meter();
        let used = words::number(meter.gpus_used);
        match meter.gpus_limit {
            Some(limit) => format!("{used}/{}", words::number(limit)),
            None => used,
        }
    }

    fn hours(&self) -> String {
        let meter = self.meter();
        let used = words::hours(meter.accrued_gpu_ms);
        match meter.limit_gpu_ms {
            Some(limit) => format!("{used}/{}", words::hours(limit)),
            None => used,
        }
    }
}

impl Listed for Row {
    const KIND: &'static str = "envelope";
    const NONE: &'static str = "no budgets";
    const FIRST: &'static str = "`bursar apply -f budgets.yaml` makes one";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<Row>] = &[
            Column::of_text("ENVELOPE", Shown::Always, |row, _| row.name()),
            Column::of_text("WHERE", Shown::Room(1), |row, _| {
                let place = row.envelope.selector.as_ref();
                place.map(place_words).unwrap_or_default()
            }),
            Column {
                meaning: |row| {
                    let meter = row.meter();
                    nearness(meter.gpus_used, meter.gpus_limit)
                },
                ..Column::of_text("GPUS NOW", Shown::Always, |row, look| {
                    let meter = row.meter();
                    let bar = look.bar(meter.gpus_used, meter.gpus_limit.unwrap_or(u64::MAX));
                    format!("{bar}  {:>width$}", row.gpus(), width = row.gpus_width)
                })
            },
            Column {
                meaning: |row| {
                    let meter = row.meter();
                    nearness(meter.accrued_gpu_ms, meter.limit_gpu_ms)
                },
                ..Column::of_text("GPU-HOURS", Shown::Always, |row, look| {
                    let meter = row.meter();
                    let Some(limit) = meter.limit_gpu_ms else {
                        return row.hours();
                    };
                    let (used, committed) = (meter.accrued_gpu_ms, meter.committed_gpu_ms);
                    let bar = look.bar_ahead(used, committed, limit);
                    format!("{bar}  {:>width$}", row.hours(), width = row.hours_width)
                })
            },
            Column::of_count("LEFT", Shown::Always, |row, _| {
                let meter = row.meter();
                match meter.limit_gpu_ms {
                    Some(limit) => words::hours(limit.saturating_sub(meter.accrued_gpu_ms)),
                    None => "no cap".to_owned(),
                }
            }),
            Column::of_text("LASTS TO", Shown::Always, |row, look| {
                let at = row.meter().lasts_to;
                at.map(|at| look.absolute(at)).unwrap_or_default()
            }),
            Column::of_text("OWNER", Shown::Wide, |row, _| {
                row.envelope.owner.to_string()
            }),
            Column::of_text("FLAVOR", Shown::Wide, |row, _| {
                row.envelope.flavor.to_string()
            }),
            Column::of_count("HELD AHEAD", Shown::Wide, |row, _| {
                let meter = row.meter();
                words::hours(meter.committed_gpu_ms.saturating_sub(meter.accrued_gpu_ms))
            }),
            Column::of_count("EPOCH", Shown::Wide, |row, _| {
                words::number(row.meter().epoch)
            }),
            Column::of_text("ENDS", Shown::Wide, |row, look| {
                let at = row.meter().end;
                at.map(|at| look.absolute(at)).unwrap_or_default()
            }),
            Column::of_text("STATE", Shown::Wide, |row, _| {
                let state = match (row.envelope.paused, row.envelope.headroom.open) {
                    (true, _) => "paused",
                    (false, true) => "open",
                    (false, false) => "outside its window",
                };
                state.to_owned()
            }),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        self.envelope.envelope.clone()
    }
}

fn nearness(used: u64, limit: Option<u64>) -> Option<Meaning> {
    let limit = limit?;
    let is_near = u128::from(used) * 100 >= u128::from(limit) * NEAR_PERCENT;
    match (limit <= used, is_near) {
        (true, _) => Some(Meaning::Bad),
        (false, true) => Some(Meaning::Waiting),
        (false, false) => None,
    }
}

async fn list(session: &mut Session, flags: &ScopedFlags) -> Result<(), Stop> {
    let filter = Filter::read::<Row>(flags.list.filter.as_deref())?;
    let (namespace, place) = names::listed(session, flags)?;
    let owner = names::label("owner", filter.value::<Row>("owner"))?;
    let wanted = ListBudgets { namespace, owner };
    let client = session.client().await?;
    let fetch = async || client.envelopes(&wanted).await.map(rows);
    let is_empty = std::cell::Cell::new(true);
    let counted = async || {
        let answer = fetch().await?;
        is_empty.set(answer.items.is_empty());
        let everywhere = ListBudgets {
            namespace: None,
            ..wanted.clone()
        };
        let all = client.budgets(&everywhere);
        names::note_elsewhere(&place, answer.items.is_empty(), "budget", all).await;
        Ok(answer)
    };
    watch::list_of(session, &flags.list, &filter, counted, &client, &place).await?;
    let is_table = matches!(session.common.output, Format::Table | Format::Wide);
    if is_table && !is_empty.get() {
        session.aside(
            "note: LASTS TO is at the present rate; ▒ is held ahead for work that runs now\n",
        );
    }
    Ok(())
}

fn rows(answer: ListAnswer<Envelope>) -> ListAnswer<Row> {
    let items = answer.items.into_iter().map(|envelope| Row {
        envelope,
        gpus_width: 0,
        hours_width: 0,
    });
    let mut items: Vec<Row> = items.collect();
    let widest = |text: fn(&Row) -> String| {
        let widths = items.iter().map(|row| text(row).chars().count());
        widths.max().unwrap_or(0)
    };
    let (gpus, hours) = (widest(Row::gpus), widest(Row::hours));
    for row in &mut items {
        row.gpus_width = gpus;
        row.hours_width = hours;
    }
    ListAnswer {
        items,
        next_cursor: answer.next_cursor,
        record: answer.record,
    }
}

async fn show(session: &mut Session, name: &str, scope: &Scope) -> Result<(), Stop> {
    let name = names::budget(session, name, scope)?;
    let client = session.client().await?;
    let budget = match client.budget(&name).await {
        Ok(budget) => budget,
        Err(error) => return Err(names::not_here(error, Kind::Budget, &name)),
    };
    session.show(&budget, &format!("budget/{name}"), |look| {
        text(&name, &budget, look)
    })
}

fn text(name: &ScopedName, budget: &Budget, look: &Look) -> String {
    let spec = &budget.spec;
    let status = budget.status.as_deref();
    let mut lines = vec![("owner".to_owned(), spec.owner.to_string())];
    let mut add = |word: &str, text: String| {
        if !text.is_empty() {
            lines.push((word.to_owned(), text));
        }
    };
    add("parents", joined(&spec.parents));
    let family = status.map(|status| status.family.as_slice());
    let family = family.unwrap_or_default().iter();
    let family = family.map(|one| format!("{} ({})", one.owner, one.relation.word()));
    add("family", family.collect::<Vec<_>>().join(", "));
    if spec.paused == Some(true) {
        add("paused", "nothing new is taken; claims go on".to_owned());
    }
    for envelope in &spec.envelopes {
        let id = format!("{name}/{}", envelope.name);
        let meter_now = meter(status, &id);
        let used = meter_now.map(|meter| format!("\n{}", meter_words(meter, look)));
        let window = meter_now.map_or((envelope.start, envelope.end), |meter| {
            (meter.start, meter.end)
        });
        let words = envelope_words(envelope, window, look);
        add("envelope", words + &used.unwrap_or_default());
        let lending = envelope.lending.as_ref().map(lending_words);
        add("lends", lending.unwrap_or_default());
        let lent = meter(status, &format!("lending/{id}"));
        add(
            "lent",
            lent.map(|meter| meter_words(meter, look))
                .unwrap_or_default(),
        );
    }
    for cap in &spec.aggregate_caps {
        let used = meter(status, &format!("cap/{name}/{}", cap.name));
        let used = used.map(|meter| format!("\n{}", meter_words(meter, look)));
        add("cap", cap_words(cap, look) + &used.unwrap_or_default());
    }
    let conditions = status.map(|status| status.conditions.as_slice());
    let conditions = conditions.unwrap_or_default().iter();
    let conditions = conditions.filter_map(condition_words);
    add("status", conditions.collect::<Vec<_>>().join("\n"));
    let subject = look.paint(Meaning::Subject, &format!("budget {name}"));
    format!("{subject}\n{}", details(&lines, REPORT_WORD))
}

/// A condition that is true, or the absent `Ready`.
fn condition_words(condition: &BudgetCondition) -> Option<String> {
    let kind = condition.kind.word();
    let name = match (condition.kind, condition.status == "True") {
        (_, true) => kind.to_owned(),
        (ConditionKind::Ready, false) => format!("not {kind}"),
        (_, false) => return None,
    };
    Some(match condition.message.as_str() {
        "" => name,
        message => format!("{name}: {message}"),
    })
}

fn joined(labels: &[Label]) -> String {
    let labels: Vec<&str> = labels.iter().map(Label::as_str).collect();
    labels.join(", ")
}

fn meter<'a>(status: Option<&'a BudgetStatus>, id: &str) -> Option<&'a MeterStatus> {
    let meters = status.map(|status| status.meters.as_slice());
    meters
        .unwrap_or_default()
        .iter()
        .find(|meter| meter.meter == id)
}

/// `h100: 48 h100 in us-west, 40,000 GPU-hours from Thu 1 Oct 00:00 to …, renewed each quarter`.
/// The window is that of the present epoch.
fn envelope_words(
    envelope: &EnvelopeSpec,
    (start, end): (Option<Instant>, Option<Instant>),
    look: &Look,
) -> String {
    let place = envelope.selector.as_ref().map(place_words);
    let place = place.filter(|place| !place.is_empty());
    let place = place
        .map(|place| format!(" in {place}"))
        .unwrap_or_default();
    let hours = match envelope.max_gpu_hours {
        Some(hours) => format!("{} GPU-hours", words::number(hours)),
        None => "no cap on GPU-hours".to_owned(),
    };
    let window = window_words(start, end, look);
    let renew = envelope
        .renew
        .map(|unit| format!(", renewed each {}", unit.word()));
    let sharing = match envelope.sharing {
        Some(Sharing::None) => "not shared",
        Some(Sharing::Family) | None => "shared with the family",
    };
    let exhausted = match envelope.on_exhaustion {
        Some(OnExhaustion::End) => "; overrunning work is stopped when the hours are used up",
        Some(OnExhaustion::Demote) | None => "",
    };
    format!(
        "{}: {} {}{place}, {hours}{window}{}, {sharing}{exhausted}",
        envelope.name,
        words::number(envelope.concurrency),
        envelope.flavor,
        renew.unwrap_or_default(),
    )
}

fn window_words(start: Option<Instant>, end: Option<Instant>, look: &Look) -> String {
    let start = start.map(|at| format!(" from {}", look.absolute(at)));
    let end = end.map(|at| format!(" to {}", look.absolute(at)));
    start.unwrap_or_default() + &end.unwrap_or_default()
}

fn lending_words(lending: &LendingSpec) -> String {
    if !lending.allow {
        return "to nobody".to_owned();
    }
    let to = lending.to.join(", ");
    let gpus = lending.max_concurrency;
    let gpus = gpus.map(|gpus| format!(", at most {} GPUs", words::number(gpus)));
    let hours = lending.max_gpu_hours;
    let hours = hours.map(|hours| format!(", at most {} GPU-hours", words::number(hours)));
    format!(
        "to {to}{}{}",
        gpus.unwrap_or_default(),
        hours.unwrap_or_default()
    )
}

fn cap_words(cap: &CapSpec, look: &Look) -> String {
    let gpus = cap.max_concurrency;
    let gpus = gpus.map(|gpus| format!(", at most {} {}", words::number(gpus), cap.flavor));
    let hours = cap.max_gpu_hours;
    let hours = hours.map(|hours| format!(", at most {} GPU-hours", words::number(hours)));
    let window = window_words(cap.start, cap.end, look);
    format!(
        "{}: {}{}{}{window}",
        cap.name,
        cap.envelopes.join(", "),
        gpus.unwrap_or_default(),
        hours.unwrap_or_default()
    )
}

/// `40/48 GPUs now; 28,912/40,000 GPU-hours used, 864 held ahead; lasts to Fri 27 Nov 23:12`.
fn meter_words(meter: &MeterStatus, look: &Look) -> String {
    let bound = |used: String, limit: Option<String>| match limit {
        Some(limit) => format!("{used}/{limit}"),
        None => used,
    };
    let gpus = bound(
        words::number(meter.gpus_used),
        meter.gpus_limit.map(words::number),
    );
    let used = bound(
        words::hours(meter.accrued_gpu_ms),
        meter.limit_gpu_ms.map(words::hours),
    );
    let held = meter.committed_gpu_ms.saturating_sub(meter.accrued_gpu_ms);
    let held = match held {
        0 => String::new(),
        held => format!(", {} held ahead", words::hours(held)),
    };
    let lasts = meter.lasts_to;
    let lasts = lasts.map(|at| format!("; lasts to {}", look.absolute(at)));
    let closed = if meter.over {
        "; its last window is over"
    } else {
        ""
    };
    format!(
        "{gpus} GPUs now; {used} GPU-hours used{held}{}{closed}",
        lasts.unwrap_or_default()
    )
}

/// The envelopes that a mistaken name may mean: those of the budget, or those of budgets of that name
/// in other namespaces.
fn envelopes_hint(all: &[&str], budget: &ScopedName, envelope: &str) -> Option<String> {
    let own = format!("{budget}/");
    let own: Vec<&str> = all
        .iter()
        .filter_map(|id| id.strip_prefix(own.as_str()))
        .collect();
    if !own.is_empty() {
        return Some(format!("budget {budget} has {}", own.join(", ")));
    }
    let bare = budget.name();
    let namesakes = all.iter().filter_map(|id| {
        let mut parts = id.split('/');
        let (namespace, name, envelope) = (parts.next()?, parts.next()?, parts.next()?);
        (name == bare).then_some((namespace, envelope))
    });
    let namesakes: Vec<(&str, &str)> = namesakes.collect();
    let exact = namesakes.iter().find(|(_, name)| *name == envelope);
    let (first, _) = exact.or(namesakes.first())?;
    let shown = namesakes
        .iter()
        .map(|(namespace, name)| format!("{namespace}/{bare}/{name}"));
    let shown: Vec<String> = shown.collect();
    Some(format!("there is {}, as in `-n {first}`", shown.join(", ")))
}

async fn rotate(
    session: &mut Session,
    name: &str,
    scope: &Scope,
    request: RotateRequest,
    mode: Mode,
) -> Result<(), Stop> {
    let name = names::budget(session, name, scope)?;
    let client = session.client().await?;
    let key = session.new_id()?;
    let id = format!("{name}/{}", request.envelope);
    let budget = match client.rotate_envelope(&key, &name, &request, mode).await {
        Ok(budget) => budget,
        Err(error) => {
            let mut stop = names::not_here(error, Kind::Budget, &name);
            if let Stop::Failed(failure) = &mut stop
                && failure.hint.is_none()
                && failure
                    .problem
                    .as_ref()
                    .is_some_and(|of| of.code == Code::NotFound)
            {
                let all = client.envelopes(&ListBudgets::default()).await;
                let all = all.map(|answer| answer.items).unwrap_or_default();
                let all: Vec<&str> = all.iter().map(|row| row.envelope.as_str()).collect();
                failure.hint = envelopes_hint(&all, &name, request.envelope.as_str());
            }
            return Err(stop);
        }
    };
    session.show(&budget, &format!("envelope/{id}"), |look| {
        let subject = look.paint(Meaning::Subject, &format!("envelope {id}"));
        let meter = meter(budget.status.as_deref(), &id);
        let closed = meter.and_then(|meter| meter.closed.last());
        let closed = closed.map(|closed| {
            let used = words::hours(closed.accrued_gpu_ms);
            let text = format!("epoch {}, with {used} GPU-hours used", closed.epoch);
            ("closed".to_owned(), text)
        });
        let now = meter.map(|meter| {
            let text = format!("epoch {}, {}", meter.epoch, meter_words(meter, look));
            ("now".to_owned(), text)
        });
        let lines: Vec<(String, String)> = closed.into_iter().chain(now).collect();
        let lines = details(&lines, REPORT_WORD);
        match mode {
            Mode::Do => format!("{subject} rotated\n{lines}"),
            Mode::DryRun => format!("{subject} would be rotated\n{lines}{DRY_RUN}"),
        }
    })
}
