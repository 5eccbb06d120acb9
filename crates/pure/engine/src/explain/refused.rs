//! A refusal in words: what, where, and what would change it (design 80, rule 9).

use bursar_booking::decide::Refusal as BookingRefusal;
use bursar_booking::execution::Order;
use bursar_booking::{End, LimitUse, REMEMBERED, Request};
use bursar_units::{Dimension, Label, Millis, ObjectName};

use super::{When, holders, raise};
use crate::market::Refusal as MarketRefusal;
use crate::spine::Refusal as SpineRefusal;
use crate::{Command, Refusal, State, booking, words};

/// A refusal as every surface tells it: `{headline}: {detail}`, then the rest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// What was refused, in a few words.
    pub headline: String,
    /// Why, with the numbers.
    pub detail: String,
    /// The limits that bind, headline first.
    pub limits: Vec<LimitUse>,
    /// Who holds under the first of them, most first; [`super::held_by`] hides some.
    pub holders: Vec<(Label, u64)>,
    /// When a slot may come free.
    pub when: Option<When>,
    /// What would change the answer.
    pub changes: Vec<String>,
}

/// Words for a refusal of `command`.
pub fn refused(state: &State, command: &Command, refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::Booking(refusal) => of_booking(state, command, refusal),
        Refusal::Market(refusal) => of_market(refusal),
        Refusal::Spine(refusal) => of_spine(refusal),
    }
}

fn of_spine(refusal: &SpineRefusal) -> Refused {
    match refusal {
        SpineRefusal::TokenExists { name } => Refused {
            changes: vec![
                format!("revoke token {name} first"),
                "use another name".to_owned(),
            ],
            ..plain(
                format!("token `{name}` exists"),
                "a token is made once and shown once",
            )
        },
        SpineRefusal::NoSuchToken { name } => plain(
            format!("no token `{name}`"),
            "it was never made, or is revoked already",
        ),
        SpineRefusal::KeyReused => Refused {
            changes: vec!["use a new key".to_owned()],
            ..plain(
                "the idempotency key is in use",
                "it was sent with another action before",
            )
        },
        SpineRefusal::NotAnchored { below_max } => Refused {
            changes: vec![format!("prune below record {}", words::number(*below_max))],
            ..plain(
                "nothing was pruned",
                format!(
                    "only records below {} are covered by an anchored snapshot",
                    words::number(*below_max)
                ),
            )
        },
        SpineRefusal::NoSuchNode { name } => plain(
            format!("no node `{name}`"),
            "only a declared object can be deleted",
        ),
        SpineRefusal::Version {
            object,
            expected,
            present,
        } => Refused {
            changes: vec!["read it again and send the change with its version".to_owned()],
            ..plain(
                format!("{object} was not changed"),
                match present {
                    Some(present) => format!("it has version {present}, not {expected}"),
                    None => format!("it does not exist, version {expected} was expected"),
                },
            )
        },
        SpineRefusal::AlreadyBegun => plain("the ledger has begun already", "a ledger begins once"),
    }
}

fn of_market(refusal: &MarketRefusal) -> Refused {
    match refusal {
        MarketRefusal::Stale { basis, revision } => plain(
            "the report is past",
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
        MarketRefusal::DigestEarly { .. } => plain(
            "the digest is early",
            "there is at most one an hour of each node",
        ),
    }
}

fn of_booking(state: &State, command: &Command, refusal: &BookingRefusal) -> Refused {
    let id = match command {
        Command::Booking(command) => format!("`{}`", command.id()),
        _ => String::new(),
    };
    match refusal {
        BookingRefusal::OverLimit { limits } => over_limit(state, command, limits),
        BookingRefusal::OthersFirst { limits } => Refused {
            changes: vec![SEND_WAIT.to_owned()],
            ..bound(state, command, "others wait before it".to_owned(), limits)
        },
        BookingRefusal::NeverFits { limits } => never_fits(state, command, limits),
        BookingRefusal::QueueFull { limit, max } => Refused {
            changes: vec![
                format!("raise maxQueue of limit {limit}"),
                "try again later".to_owned(),
            ],
            ..plain(
                format!("the queue of limit `{limit}` is full"),
                format!("{} may wait, and as many do", words::number(*max)),
            )
        },
        BookingRefusal::TenantQueueFull { limit, max } => Refused {
            changes: vec![
                format!("raise maxQueuePerTenant of limit {limit}"),
                "try again later".to_owned(),
            ],
            ..plain(
                format!("the tenant's share of the queue of limit `{limit}` is full"),
                format!(
                    "{} of one tenant may wait, and as many do",
                    words::number(*max)
                ),
            )
        },
        BookingRefusal::TimeOutOfBounds {
            field,
            min_ms,
            max_ms,
            limit,
        } => time_out_of_bounds(command, field, (*min_ms, *max_ms), limit.as_ref()),
        BookingRefusal::Slots => plain(
            "`slots` is out of bounds",
            format!(
                "a booking asks for 1 to {} slots",
                words::number(u64::from(u32::MAX))
            ),
        ),
        BookingRefusal::IdReused { field } => Refused {
            changes: vec![
                "use a new id".to_owned(),
                "repeat the request unchanged".to_owned(),
            ],
            ..plain(
                format!("id {id} is in use for another request"),
                format!("`{field}` differs from what was asked under it before"),
            )
        },
        BookingRefusal::IdTooOld { .. } => Refused {
            changes: vec!["make a new id".to_owned()],
            ..plain(
                format!("id {id} is too old"),
                "it was made before what the ledger remembers, and may have been granted then",
            )
        },
        BookingRefusal::NotFound => plain(
            format!("no booking {id}"),
            format!(
                "it was never made, or ended more than {} ago",
                words::length(REMEMBERED)
            ),
        ),
        BookingRefusal::StaleFence { end } => stale_fence(&id, *end),
        BookingRefusal::IsGranted => Refused {
            changes: vec!["release it with its fence".to_owned()],
            ..plain(
                format!("{id} is granted"),
                "only a booking that waits can be cancelled",
            )
        },
        BookingRefusal::IsQueued => Refused {
            changes: vec![
                "cancel it".to_owned(),
                "wait until it is granted".to_owned(),
            ],
            ..plain(
                format!("{id} is queued"),
                "only a booking that is granted can be released or renewed",
            )
        },
        BookingRefusal::IsExecution => Refused {
            changes: vec!["cancel it".to_owned()],
            ..plain(
                format!("{id} is an execution"),
                "its slot is free when its process is gone",
            )
        },
        BookingRefusal::NotAnExecution => plain(
            format!("{id} is a plain booking"),
            "nothing runs under it here",
        ),
        BookingRefusal::RetryOfUnknown => Refused {
            changes: vec!["submit it without `retryOf`".to_owned()],
            ..plain(
                format!("{} is not known", retry_words(command)),
                "only an execution that has ended, and is remembered, can be retried",
            )
        },
        BookingRefusal::RetryOfLive => Refused {
            changes: vec!["wait until it has ended".to_owned(), "cancel it".to_owned()],
            ..plain(
                format!("{} has not ended", retry_words(command)),
                "an execution is retried when it is over",
            )
        },
        BookingRefusal::NoSuchObject { name } => plain(
            format!("no limit `{name}`"),
            "only a declared object can be deleted",
        ),
        BookingRefusal::SameScopes { name, other } => Refused {
            changes: vec![
                format!("change limit {other}"),
                format!("delete limit {other}"),
            ],
            ..plain(
                format!("limits `{name}` and `{other}` speak of the same class and tenant"),
                "at most one limit of each kind applies to a booking",
            )
        },
        BookingRefusal::ShippedStays { name } => Refused {
            changes: vec!["change its bounds".to_owned()],
            ..plain(
                format!("limit `{name}` stays"),
                "it can be changed, not deleted, and keeps its class and tenant",
            )
        },
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

/// A refusal by limits: the first in numbers, those who hold under it, and when one may be free.
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
        _ => asked_of(command).and_then(|(request, order)| match field {
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
    let order = asked_of(command).and_then(|(_, order)| order);
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
    Refused {
        changes: vec!["stop the work and ask again under a new id".to_owned()],
        ..plain("the fence is stale", detail)
    }
}

fn request_of(command: &Command) -> Option<&Request> {
    asked_of(command).map(|(request, _)| request)
}

fn asked_of(command: &Command) -> Option<(&Request, Option<&Order>)> {
    match command {
        Command::Booking(command) => command.request(),
        Command::Spine(_) | Command::Market(_) => None,
    }
}

fn plain(headline: impl Into<String>, detail: impl Into<String>) -> Refused {
    Refused {
        headline: headline.into(),
        detail: detail.into(),
        limits: Vec::new(),
        holders: Vec::new(),
        when: None,
        changes: Vec::new(),
    }
}
