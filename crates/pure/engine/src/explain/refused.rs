//! Texts of refusals: the fact, the reason, and the changes that would help.

use bursar_booking::decide::Refusal as BookingRefusal;
use bursar_booking::execution::Order;
use bursar_booking::{End, LimitUse, NOTE_LENGTH_MAX, REMEMBERED, Request};
use bursar_units::{Dimension, Label, Millis, ObjectName};

use super::refused_cluster::of_cluster;
use super::{When, holders, raise};
use crate::market::Refusal as MarketRefusal;
use crate::spine::Refusal as SpineRefusal;
use crate::{Command, Refusal, State, booking, words};

/// Text of a refusal: `{headline}: {detail}`, then the other fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Refused action, in a few words.
    pub headline: String,
    /// Reason, with the numbers.
    pub detail: String,
    /// Limits that are full, headline first.
    pub limits: Vec<LimitUse>,
    /// Holders under the first of them, most slots first; [`super::held_by`] hides some.
    pub holders: Vec<(Label, u64)>,
    /// Estimate of the next free slot.
    pub when: Option<When>,
    /// Changes that would help.
    pub changes: Vec<String>,
}

/// Text of a refusal of `command`.
pub fn refused(state: &State, command: &Command, refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::Booking(refusal) => of_booking(state, command, refusal),
        Refusal::Market(refusal) => of_market(refusal),
        Refusal::Cluster(refusal) => of_cluster(state, command, refusal),
        Refusal::Spine(refusal) => of_spine(refusal),
    }
}

fn of_spine(refusal: &SpineRefusal) -> Refused {
    match refusal {
        SpineRefusal::TokenExists { name } => plain(
            format!("token `{name}` exists"),
            "a token is created once and shown once",
        )
        .with_changes([
            format!("revoke token {name} first"),
            "use another name".to_owned(),
        ]),
        SpineRefusal::NoSuchToken { name } => plain(
            format!("no token `{name}`"),
            "it was never created, or is revoked already",
        ),
        SpineRefusal::KeyReused => plain(
            "the idempotency key is in use",
            "it was used for another action before",
        )
        .with_changes(["use a new key"]),
        SpineRefusal::NotAnchored { below_max } => plain(
            "nothing was pruned",
            format!(
                "only records below {} are covered by an anchored snapshot",
                words::number(*below_max)
            ),
        )
        .with_changes([format!("prune below record {}", words::number(*below_max))]),
        SpineRefusal::NoSuchNode { name } => plain(
            format!("no node `{name}`"),
            "only a declared object can be deleted",
        ),
        SpineRefusal::Version {
            object,
            expected,
            present,
        } => plain(
            format!("{object} was not changed"),
            match present {
                Some(present) => format!("it has version {present}, not {expected}"),
                None => format!("it does not exist, version {expected} was expected"),
            },
        )
        .with_changes(["read it again and send the change with its version"]),
        SpineRefusal::AlreadyBegun => plain("the ledger has begun already", "a ledger begins once"),
    }
}

fn of_market(refusal: &MarketRefusal) -> Refused {
    match refusal {
        MarketRefusal::Stale { basis, revision } => plain(
            "the report is outdated",
            format!(
                "it builds on revision {}, the ledger has {}",
                words::number(*basis),
                words::number(*revision)
            ),
        ),
        MarketRefusal::TooMany { what, max } => {
            let max = u64::try_from(*max).unwrap_or(u64::MAX);
            plain(
                "the report is too large",
                format!("there may be at most {} {what}", words::number(max)),
            )
        }
        MarketRefusal::PodTwice { pod } => plain(
            "the report contradicts itself",
            format!("it names the pod {pod} twice"),
        ),
        MarketRefusal::DigestEarly { .. } => {
            plain("the digest is too early", "each node may send one an hour")
        }
    }
}

fn of_booking(state: &State, command: &Command, refusal: &BookingRefusal) -> Refused {
    let id = match command {
        Command::Booking(command) => format!("`{}`", command.id()),
        _ => String::new(),
    };
    match refusal {
        BookingRefusal::OverLimit { limits } => over_limit(state, command, limits),
        BookingRefusal::OthersFirst { limits } => {
            bound(state, command, "others wait before it".to_owned(), limits)
                .with_changes([SEND_WAIT])
        }
        BookingRefusal::NeverFits { limits } => never_fits(state, command, limits),
        BookingRefusal::QueueFull { limit, max } => plain(
            format!("the queue of limit `{limit}` is full"),
            format!("at most {0} may wait, and {0} do", words::number(*max)),
        )
        .with_changes([
            format!("raise maxQueue of limit {limit}"),
            "try again later".to_owned(),
        ]),
        BookingRefusal::TenantQueueFull { limit, max } => plain(
            format!("the tenant's share of the queue of limit `{limit}` is full"),
            format!(
                "at most {0} of one tenant may wait, and {0} do",
                words::number(*max)
            ),
        )
        .with_changes([
            format!("raise maxQueuePerTenant of limit {limit}"),
            "try again later".to_owned(),
        ]),
        BookingRefusal::TimeOutOfBounds {
            field,
            min_ms,
            max_ms,
            limit,
        } => time_out_of_bounds(command, field, (*min_ms, *max_ms), limit.as_ref()),
        BookingRefusal::NoteLength => plain(
            "`text` is out of bounds",
            format!("a note has 1 to {NOTE_LENGTH_MAX} characters"),
        ),
        BookingRefusal::Slots => plain(
            "`slots` is out of bounds",
            format!(
                "a booking asks for 1 to {} slots",
                words::number(u64::from(u32::MAX))
            ),
        ),
        BookingRefusal::IdReused { field } => plain(
            format!("id {id} is in use for another request"),
            format!("`{field}` differs from what was asked under it before"),
        )
        .with_changes(["use a new id", "repeat the request unchanged"]),
        BookingRefusal::IdTooOld { .. } => plain(
            format!("id {id} is too old"),
            "it was made before what the ledger remembers, and may have been granted then",
        )
        .with_changes(["make a new id"]),
        BookingRefusal::NotFound => plain(
            format!("no booking {id}"),
            format!(
                "it was never made, or ended more than {} ago",
                words::length(REMEMBERED)
            ),
        ),
        BookingRefusal::StaleFence { end } => stale_fence(&id, *end),
        BookingRefusal::IsGranted => plain(
            format!("{id} is granted"),
            "only a booking that waits can be cancelled",
        )
        .with_changes(["release it with its fence"]),
        BookingRefusal::IsQueued => plain(
            format!("{id} is queued"),
            "only a booking that is granted can be released or renewed",
        )
        .with_changes(["cancel it", "wait until it is granted"]),
        BookingRefusal::IsExecution => plain(
            format!("{id} is an execution"),
            "its slot is free when its process is gone",
        )
        .with_changes(["cancel it"]),
        BookingRefusal::NotAnExecution => plain(
            format!("{id} is a plain booking"),
            "nothing runs under it here",
        ),
        BookingRefusal::RetryOfUnknown => plain(
            format!("{} is not known", retry_words(command)),
            "only an execution that has ended, and is remembered, can be retried",
        )
        .with_changes(["submit it without `retryOf`"]),
        BookingRefusal::RetryOfLive => plain(
            format!("{} has not ended", retry_words(command)),
            "only an execution that has ended can be retried",
        )
        .with_changes(["wait until it has ended", "cancel it"]),
        BookingRefusal::NoSuchObject { name } => plain(
            format!("no limit `{name}`"),
            "only a declared object can be deleted",
        ),
        BookingRefusal::SameScopes { name, other } => plain(
            format!("limits `{name}` and `{other}` have the same class and tenant"),
            "at most one limit of each kind applies to a booking",
        )
        .with_changes([
            format!("change limit {other}"),
            format!("delete limit {other}"),
        ]),
        BookingRefusal::ShippedStays { name } => plain(
            format!("limit `{name}` stays"),
            "it can be changed, not deleted, and keeps its class and tenant",
        )
        .with_changes(["change its bounds"]),
    }
}

const SEND_WAIT: &str = "send waitMs";

fn over_limit(state: &State, command: &Command, limits: &[LimitUse]) -> Refused {
    let request = request_of(command);
    let is_paused = limits.first().is_some_and(|of| of.size == 0);
    let headline = match (limits.first(), request) {
        (Some(first), _) if is_paused => format!("limit `{}` is paused", first.name),
        (Some(first), Some(request))
            if first.dimension == Dimension::Slots && request.slots == 1 =>
        {
            format!("no {} slot is free", request.class)
        }
        (_, Some(request)) => {
            format!(
                "no room for {}",
                words::amount(&request.amount(), Some(&request.class))
            )
        }
        _ => "no slot is free".to_owned(),
    };
    let raises = limits.iter().map(|of| raise(&of.name));
    let mut changes: Vec<String> = std::iter::once(SEND_WAIT.to_owned())
        .chain(raises)
        .collect();
    changes.dedup();
    Refused {
        changes,
        ..bound(state, command, headline, limits)
    }
}

fn never_fits(state: &State, command: &Command, limits: &[LimitUse]) -> Refused {
    let request = request_of(command);
    let what = request.map_or_else(
        || "it".to_owned(),
        |request| words::amount(&request.amount(), Some(&request.class)),
    );
    let detail = limits.first().map(|first| {
        let asked = request
            .map(|request| words::value(first.dimension, request.amount().of(first.dimension)));
        let asked = asked
            .map(|asked| format!(", asked {asked}"))
            .unwrap_or_default();
        format!("{}{asked}", size_words(first))
    });
    let mut changes: Vec<String> = limits
        .iter()
        .map(|of| match of.dimension {
            Dimension::Slots | Dimension::Gpus => format!("ask for fewer {}", of.dimension.word()),
            Dimension::Cpu | Dimension::Memory => format!("ask for less {}", of.dimension.word()),
        })
        .collect();
    changes.extend(limits.iter().map(|of| raise(&of.name)));
    changes.dedup();
    Refused {
        headline: format!("{what} can never fit"),
        detail: detail.unwrap_or_default(),
        changes,
        when: None,
        ..bound(state, command, String::new(), limits)
    }
}

/// Refusal by limits, with the numbers and holders of the first limit and an estimate.
fn bound(state: &State, command: &Command, headline: String, limits: &[LimitUse]) -> Refused {
    let request = request_of(command);
    let first = limits.first();
    let kind = first.and_then(|of| Some(state.bookings.limit(of.name.as_str())?.limit.kind()));
    let class = request.map(|request| &request.class);
    let tenant = request.map(|request| &request.tenant);
    let holders = kind
        .map(|kind| holders(state, kind, class, tenant))
        .unwrap_or_default();
    let is_paused = first.is_some_and(|of| of.size == 0);
    let when = class.filter(|_| !is_paused).and_then(|class| {
        Some(super::when(
            state,
            Some(state.bookings.next_free(class)?),
            class,
        ))
    });
    Refused {
        headline,
        detail: first.map(in_use_words).unwrap_or_default(),
        limits: limits.to_vec(),
        holders,
        when,
        changes: Vec::new(),
    }
}

/// ``limit `python` is 100, in use 100, waiting 3``.
fn in_use_words(of: &LimitUse) -> String {
    let (in_use, waiting) = (
        words::value(of.dimension, of.in_use),
        words::number(of.waiting),
    );
    format!("{}, in use {in_use}, waiting {waiting}", size_words(of))
}

fn size_words(of: &LimitUse) -> String {
    let size = words::value(of.dimension, of.size);
    match of.dimension {
        Dimension::Slots => format!("limit `{}` is {size}", of.name),
        other => format!("limit `{}` is {} {size}", of.name, other.word()),
    }
}

fn time_out_of_bounds(
    command: &Command,
    field: &str,
    (min_ms, max_ms): (u64, u64),
    limit: Option<&ObjectName>,
) -> Refused {
    let asked = match (command, field) {
        (Command::Booking(booking::Command::Renew { ttl, .. }), "ttlMs") => *ttl,
        _ => request_and_order(command).and_then(|(request, order)| match field {
            "ttlMs" => Some(request.ttl),
            "waitMs" => Some(request.wait),
            "startTimeoutMs" => order.map(|order| order.start_timeout),
            "maxTimeMs" => order.map(|order| order.max_time),
            "graceMs" => order.map(|order| order.grace),
            _ => None,
        }),
    };
    let asked = asked
        .map(|asked| format!("asked {asked}, "))
        .unwrap_or_default();
    let (min, max) = (Millis::from_ms(min_ms), Millis::from_ms(max_ms));
    let by = limit
        .map(|limit| format!(" by limit `{limit}`"))
        .unwrap_or_default();
    let maximum = if field == "ttlMs" {
        "maxTTL"
    } else {
        "maxWait"
    };
    let raises = limit.map(|limit| format!("raise {maximum} of limit {limit}"));
    Refused {
        changes: std::iter::once(format!("send {field} from {min_ms} to {max_ms}"))
            .chain(raises)
            .collect(),
        ..plain(
            format!("`{field}` is out of bounds"),
            format!("{asked}allowed are {min} to {max}{by}"),
        )
    }
}

fn retry_words(command: &Command) -> String {
    let order = request_and_order(command).and_then(|(_, order)| order);
    match order.and_then(|order| order.retry_of.as_ref()) {
        Some(first) => format!("execution `{first}`"),
        None => "the execution to retry".to_owned(),
    }
}

fn stale_fence(id: &str, end: Option<End>) -> Refused {
    let detail = match end {
        Some(end) => format!("{id} ended: {}", end.word()),
        None => format!("{id} is held under another fence"),
    };
    plain("the fence is stale", detail).with_changes(["stop the work and ask again under a new id"])
}

fn request_of(command: &Command) -> Option<&Request> {
    request_and_order(command).map(|(request, _)| request)
}

fn request_and_order(command: &Command) -> Option<(&Request, Option<&Order>)> {
    match command {
        Command::Booking(command) => command.request(),
        Command::Spine(_) | Command::Market(_) | Command::Cluster(_) => None,
    }
}

impl Refused {
    pub(super) fn with_changes<T: Into<String>>(
        self,
        changes: impl IntoIterator<Item = T>,
    ) -> Self {
        let changes = changes.into_iter().map(Into::into).collect();
        Self { changes, ..self }
    }
}

pub(super) fn plain(headline: impl Into<String>, detail: impl Into<String>) -> Refused {
    Refused {
        headline: headline.into(),
        detail: detail.into(),
        limits: Vec::new(),
        holders: Vec::new(),
        when: None,
        changes: Vec::new(),
    }
}
