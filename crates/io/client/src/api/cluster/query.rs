//! Query parameters of the lists of the cluster.

use bursar_engine::cluster::Stage;
use bursar_units::{Label, ObjectName};

use super::usage::UsageBy;
use crate::Problem;
use crate::api::query::{Parameter, Since, Wait, Words, one_of, query};

query! {
    /// Filter of runs. Without `since`: live ones, and those that ended in the last 24 hours.
    pub struct ListRuns {
        /// Namespace.
        namespace "namespace": ObjectName;
        /// Owner.
        owner "owner": Label;
        /// `waiting`, `starting`, `running`, `stopping`, `ended`, or several separated by commas.
        state "state": Words<Stage>;
        /// Also runs that ended since this time.
        since "since": Since;
    }
}

query! {
    /// Parameters of a submission.
    pub struct PutRun {
        /// Refuse the run if it cannot start now.
        now "now": bool;
    }
}

query! {
    /// Parameters of a run.
    pub struct GetRun {
        /// Time to wait for another state, such as `30s`; at most 5m.
        wait "wait": Wait;
    }
}

query! {
    /// Filter of budgets and envelopes; absent parameters select all.
    pub struct ListBudgets {
        /// Namespace.
        namespace "namespace": ObjectName;
        /// Owner.
        owner "owner": Label;
    }
}

query! {
    /// Filter of leases. Without `since`: the open ones, and those that ended in the last 24 hours.
    pub struct ListLeases {
        /// Namespace of the run.
        namespace "namespace": ObjectName;
        /// Owner of the run.
        owner "owner": Label;
        /// The run, as `NAMESPACE/NAME`.
        run "run": String;
        /// Node.
        node "node": ObjectName;
        /// Also leases that ended since this time.
        since "since": Since;
    }
}

query! {
    /// Period and grouping of used GPU time.
    pub struct GetUsage {
        /// Grouping; default `owner`.
        by "by": UsageBy;
        /// First UTC day of the period: a date, or a time of that day; default: the first record.
        since "since": Since;
        /// Last UTC day of the period: a date, or a time of that day; default: now.
        until "until": Since;
        /// Only runs of this owner, or envelopes of it.
        owner "owner": Label;
    }
}

impl Parameter for UsageBy {
    fn read(name: &str, text: &str) -> Result<Self, Problem> {
        Self::from_word(text).ok_or_else(|| one_of(name, &Self::WORDS))
    }
}
