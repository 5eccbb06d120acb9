//! The scheduled actions of a world.

use std::collections::BTreeMap;
use std::fmt;

use bursar_ledger::intake::{Failure, Outcome};

use super::client::Sight;

/// A scheduled action.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A client sends a new request.
    Arrive(usize),
    /// A client takes the next step of one of its bookings.
    Wake { client: usize, lease: usize },
    /// A request reaches a replica.
    Deliver { request: u64, replica: usize },
    /// An answer reaches its client.
    Answer {
        request: u64,
        result: Result<Vec<Outcome>, Failure>,
    },
    /// A read of a booking reaches a replica.
    Look {
        client: usize,
        lease: usize,
        replica: usize,
    },
    /// The result of a read reaches the client.
    Sight {
        client: usize,
        lease: usize,
        sight: Sight,
        head: u64,
    },
    /// The engine's turn in the process of that number.
    Build(usize, u64),
    /// The store's turn.
    Commit(usize, u64),
    /// The view's turn.
    Publish(usize, u64),
    /// The store is asked for an unknown outcome.
    Resolve(usize, u64),
    /// An agent clears its node.
    Clear,
    /// A process reports the changes of the agent to the ledger.
    Report(usize, u64),
    /// A person changes a budget, a node or a run.
    Use,
    /// A process compares its view with the executor of runs.
    Keep(usize, u64),
    /// A process begins to lead.
    Start(usize),
    /// A failure of a store, clock, process or disk.
    Trouble,
    /// An operator sends a command.
    Operate,
    /// A write that hung completes.
    Land,
    /// The disk has space again.
    FreeDisk,
}

/// Actions by time; those at the same time are in the order in which they were planned.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    planned: BTreeMap<(u64, u64), Action>,
    count: u64,
}

impl Schedule {
    pub(super) fn plan(&mut self, at_ms: u64, action: Action) {
        self.count += 1;
        self.planned.insert((at_ms, self.count), action);
    }

    /// The next action, with its time.
    pub(super) fn peek(&self) -> Option<(u64, &Action)> {
        let ((at_ms, _), action) = self.planned.first_key_value()?;
        Some((*at_ms, action))
    }

    pub(super) fn pop(&mut self) -> Option<Action> {
        self.planned.pop_first().map(|(_, action)| action)
    }
}

impl Action {
    /// Name of its counter.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Arrive(_) => "step: a client wants something",
            Self::Wake { .. } => "step: a client turns to a booking",
            Self::Deliver { .. } => "step: a request arrives",
            Self::Answer { .. } => "step: an answer arrives",
            Self::Look { .. } | Self::Sight { .. } => "step: a look at a booking",
            Self::Build(..) => "step: the engine's turn",
            Self::Commit(..) => "step: the store's turn",
            Self::Publish(..) => "step: the view's turn",
            Self::Resolve(..) => "step: the store is asked",
            Self::Clear => "step: an agent clears",
            Self::Report(..) => "step: a market is compared",
            Self::Use => "step: a person uses the cluster",
            Self::Keep(..) => "step: the executor of runs is compared",
            Self::Start(_) => "step: a process starts",
            Self::Trouble | Self::Land | Self::FreeDisk => "step: trouble",
            Self::Operate => "step: an operator acts",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrive(client) => write!(f, "client {client} wants something"),
            Self::Wake { client, lease } => write!(f, "client {client} turns to booking {lease}"),
            Self::Deliver { request, replica } => {
                write!(f, "request {request} reaches replica {replica}")
            }
            Self::Answer { request, result } => match result {
                Ok(outcomes) => write!(f, "answer to {request}: {} outcomes", outcomes.len()),
                Err(failure) => write!(f, "answer to {request}: {failure}"),
            },
            Self::Look {
                client,
                lease,
                replica,
            } => write!(
                f,
                "client {client} looks at booking {lease} on replica {replica}"
            ),
            Self::Sight {
                client,
                lease,
                sight,
                head,
            } => write!(
                f,
                "client {client} sees booking {lease} {sight:?} as of {head}"
            ),
            Self::Build(replica, _) => write!(f, "replica {replica} builds"),
            Self::Commit(replica, _) => write!(f, "replica {replica} commits"),
            Self::Publish(replica, _) => write!(f, "replica {replica} publishes"),
            Self::Resolve(replica, _) => write!(f, "replica {replica} asks its store"),
            Self::Clear => f.write_str("the agent clears its node"),
            Self::Report(replica, _) => write!(f, "replica {replica} compares the market"),
            Self::Use => f.write_str("a person uses the cluster"),
            Self::Keep(replica, _) => write!(f, "replica {replica} compares the executor of runs"),
            Self::Start(replica) => write!(f, "replica {replica} starts"),
            Self::Trouble => f.write_str("trouble"),
            Self::Operate => f.write_str("an operator acts"),
            Self::Land => f.write_str("a write that hung lands"),
            Self::FreeDisk => f.write_str("the disk has space again"),
        }
    }
}
