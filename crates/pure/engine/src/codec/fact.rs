//! The lines of a snapshot, in the journal's own shapes (L12).

use bursar_booking::Fence;
use bursar_booking::execution::{Course, Progress, Stage};
use bursar_booking::fact::Fact;
use bursar_journal::hash::Hash;
use bursar_units::{BookingId, Instant, Label, ObjectName, PodName};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::convert::with_order;
use super::market::{MarketShape, original};
use super::shapes::{
    BookingShape, CourseShape, EndShape, LimitShape, NodeShape, OrderShape, OutcomeShape,
    ProgressShape, StageShape, TokenShape,
};
use super::whole::Whole;
use crate::market::Original;
use crate::snapshot::Line;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum LineShape {
    Spine(SpineShape),
    Token(TokenShape),
    Key {
        at: Instant,
        key: String,
    },
    Keyed {
        key: BookingId,
        at: Instant,
        body: Hash,
    },
    Market(MarketShape),
    Original {
        node: ObjectName,
        pod: PodName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        milli: Option<Whole>,
    },
    Totals(TotalsShape),
    Limit(LimitShape),
    Node(NodeShape),
    Queued(QueuedShape),
    Granted(GrantedShape),
    Ended(EndedShape),
    Class {
        label: Label,
        #[serde(rename = "heldMs")]
        held_ms: Vec<u64>,
    },
    Tenant {
        label: Label,
        turn: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpineShape {
    ledger: String,
    #[serde(default, skip_serializing_if = "is_none_yet")]
    level: u64,
    generation: u64,
    time: Instant,
    head: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anchor: Option<(u64, Hash)>,
    pruned_below: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TotalsShape {
    fence: u64,
    #[serde(default, skip_serializing_if = "is_none_yet")]
    fences_from: u64,
    virtual_time: String,
    sequence: u64,
    dues: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgotten_at: Option<Instant>,
    unsettled: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QueuedShape {
    request: BookingShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<OrderShape>,
    sequence: u64,
    since: Instant,
    until: Instant,
    passes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GrantedShape {
    request: BookingShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<OrderShape>,
    queued_at: Instant,
    granted_at: Instant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Instant>,
    renewals: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressShape>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndedShape {
    request: BookingShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<OrderShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    course: Option<CourseShape>,
    end: EndShape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    queued_at: Instant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    granted_at: Option<Instant>,
    ended_at: Instant,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_none_yet(value: &u64) -> bool {
    *value == 0
}

/// Writes one line, without its end.
pub fn fact_line(line: Line) -> Result<String, serde_json::Error> {
    serde_json::to_string(&LineShape::from(line))
}

/// Reads one line.
pub fn read_fact_line(text: &str) -> Result<Line, serde_json::Error> {
    serde_json::from_str::<LineShape>(text)?.try_into()
}

impl From<Line> for LineShape {
    fn from(line: Line) -> Self {
        match line {
            Line::Spine {
                ledger,
                level,
                generation,
                time,
                head,
                anchor,
                pruned_below,
            } => Self::Spine(SpineShape {
                ledger,
                level,
                generation,
                time,
                head,
                anchor,
                pruned_below,
            }),
            Line::Token { token, created } => Self::Token(TokenShape::new(token, Some(created))),
            Line::Key { at, key } => Self::Key { at, key },
            Line::Keyed { key, at, body } => Self::Keyed { key, at, body },
            Line::Market { node, known } => Self::Market(MarketShape::new(node, &known)),
            Line::Original {
                node,
                pod,
                original: Original(milli),
            } => Self::Original {
                node,
                pod,
                milli: milli.map(Into::into),
            },
            Line::Booking(fact) => fact.into(),
        }
    }
}

impl From<Fact> for LineShape {
    fn from(fact: Fact) -> Self {
        match fact {
            Fact::Totals {
                fence,
                fences_from,
                virtual_time,
                sequence,
                dues,
                forgotten_at,
                unsettled,
            } => {
                let virtual_time = virtual_time.to_string();
                let fence = fence.0;
                Self::Totals(TotalsShape {
                    fence,
                    fences_from: fences_from.0,
                    virtual_time,
                    sequence,
                    dues,
                    forgotten_at,
                    unsettled,
                })
            }
            Fact::Limit { name, limit } => Self::Limit(LimitShape::new(name, limit)),
            Fact::Node { name, capacity } => Self::Node(NodeShape::new(name, capacity)),
            Fact::Queued {
                id,
                request,
                sequence,
                since,
                until,
                passes,
                due,
            } => {
                let order = request.order().map(Into::into);
                let request = BookingShape::new(id, request, None);
                Self::Queued(QueuedShape {
                    request,
                    order,
                    sequence,
                    since,
                    until,
                    passes,
                    due,
                })
            }
            Fact::Granted {
                id,
                request,
                fence,
                queued_at,
                granted_at,
                until,
                renewals,
                progress,
            } => {
                let order = request.order().map(Into::into);
                let request = BookingShape::new(id, request, Some(fence));
                Self::Granted(GrantedShape {
                    request,
                    order,
                    queued_at,
                    granted_at,
                    expires: until,
                    renewals,
                    progress: progress.map(Into::into),
                })
            }
            Fact::Ended {
                id,
                request,
                end,
                outcome,
                exit_code,
                reason,
                course,
                queued_at,
                granted,
                ended_at,
            } => Self::Ended(EndedShape {
                order: request.order().map(Into::into),
                course: course.map(|course| (*course).into()),
                request: BookingShape::new(id, request, granted.map(|(_, fence)| fence)),
                end: end.into(),
                outcome: outcome.map(Into::into),
                exit_code,
                reason,
                queued_at,
                granted_at: granted.map(|(at, _)| at),
                ended_at,
            }),
            Fact::Class { label, held_ms } => Self::Class { label, held_ms },
            Fact::Tenant { label, turn } => Self::Tenant {
                label,
                turn: turn.to_string(),
            },
        }
    }
}

impl From<Progress> for ProgressShape {
    fn from(progress: Progress) -> Self {
        Self {
            stage: match progress.stage {
                Stage::Starting => StageShape::Starting,
                Stage::Running => StageShape::Running,
                Stage::Stopping { failed } => StageShape::Stopping(failed),
                Stage::Stuck => StageShape::Stuck,
            },
            started: progress.started.map(|(at, how)| (at, how.into())),
            stopping: progress.stopping.map(|(at, cause)| (at, cause.into())),
            adopted: progress.is_adopted,
        }
    }
}

impl From<ProgressShape> for Progress {
    fn from(shape: ProgressShape) -> Self {
        Self {
            stage: match shape.stage {
                StageShape::Starting => Stage::Starting,
                StageShape::Running => Stage::Running,
                StageShape::Stopping(failed) => Stage::Stopping { failed },
                StageShape::Stuck => Stage::Stuck,
            },
            started: shape.started.map(|(at, how)| (at, how.into())),
            stopping: shape.stopping.map(|(at, cause)| (at, cause.into())),
            is_adopted: shape.adopted,
        }
    }
}

impl From<Course> for CourseShape {
    fn from(course: Course) -> Self {
        Self {
            verdict: course.verdict.into(),
            started: course.started.map(|(at, how)| (at, how.into())),
            stopping: course.stopping.map(|(at, cause)| (at, cause.into())),
            signal: course.signal,
            out_of_memory: course.is_out_of_memory,
            adopted: course.is_adopted,
        }
    }
}

impl From<CourseShape> for Course {
    fn from(shape: CourseShape) -> Self {
        Self {
            verdict: shape.verdict.into(),
            started: shape.started.map(|(at, how)| (at, how.into())),
            stopping: shape.stopping.map(|(at, cause)| (at, cause.into())),
            signal: shape.signal,
            is_out_of_memory: shape.out_of_memory,
            is_adopted: shape.adopted,
        }
    }
}

impl TryFrom<LineShape> for Line {
    type Error = serde_json::Error;

    fn try_from(shape: LineShape) -> Result<Self, serde_json::Error> {
        let number = |text: &str| text.parse::<u128>().map_err(serde_json::Error::custom);
        Ok(match shape {
            LineShape::Spine(SpineShape {
                ledger,
                level,
                generation,
                time,
                head,
                anchor,
                pruned_below,
            }) => Self::Spine {
                ledger,
                level,
                generation,
                time,
                head,
                anchor,
                pruned_below,
            },
            LineShape::Token(token) => {
                let created = token.created.unwrap_or_default();
                Self::Token {
                    token: token.into(),
                    created,
                }
            }
            LineShape::Key { at, key } => Self::Key { at, key },
            LineShape::Keyed { key, at, body } => Self::Keyed { key, at, body },
            LineShape::Market(market) => {
                let (node, known) = market.into_parts();
                let known = Box::new(known);
                Self::Market { node, known }
            }
            LineShape::Original { node, pod, milli } => Self::Original {
                node,
                pod,
                original: original(milli),
            },
            LineShape::Totals(totals) => Self::Booking(Fact::Totals {
                fence: Fence(totals.fence),
                fences_from: Fence(totals.fences_from),
                virtual_time: number(&totals.virtual_time)?,
                sequence: totals.sequence,
                dues: totals.dues,
                forgotten_at: totals.forgotten_at,
                unsettled: totals.unsettled,
            }),
            LineShape::Limit(limit) => {
                let (name, limit) = limit.into();
                Self::Booking(Fact::Limit { name, limit })
            }
            LineShape::Node(node) => {
                let (name, capacity) = node.into();
                Self::Booking(Fact::Node { name, capacity })
            }
            LineShape::Queued(queued) => {
                let (id, request, _) = queued.request.into_parts();
                Self::Booking(Fact::Queued {
                    id,
                    request: with_order(request, queued.order),
                    sequence: queued.sequence,
                    since: queued.since,
                    until: queued.until,
                    passes: queued.passes,
                    due: queued.due,
                })
            }
            LineShape::Granted(granted) => {
                let (id, request, fence) = granted.request.into_parts();
                Self::Booking(Fact::Granted {
                    id,
                    request: with_order(request, granted.order),
                    fence: fence.unwrap_or_default(),
                    queued_at: granted.queued_at,
                    granted_at: granted.granted_at,
                    until: granted.expires,
                    renewals: granted.renewals,
                    progress: granted.progress.map(Into::into),
                })
            }
            LineShape::Ended(ended) => {
                let (id, request, fence) = ended.request.into_parts();
                Self::Booking(Fact::Ended {
                    id,
                    request: with_order(request, ended.order),
                    end: ended.end.into(),
                    outcome: ended.outcome.map(Into::into),
                    exit_code: ended.exit_code,
                    reason: ended.reason,
                    course: ended.course.map(|course| Box::new(course.into())),
                    queued_at: ended.queued_at,
                    granted: ended.granted_at.zip(fence),
                    ended_at: ended.ended_at,
                })
            }
            LineShape::Class { label, held_ms } => Self::Booking(Fact::Class { label, held_ms }),
            LineShape::Tenant { label, turn } => Self::Booking(Fact::Tenant {
                label,
                turn: number(&turn)?,
            }),
        })
    }
}
