//! Callers and their rights.

use std::collections::BTreeSet;

use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::token::Role;
use bursar_journal::hash::Hash;
use bursar_node::executor::User;
use bursar_units::{Instant, Label};

const ANONYMOUS: &str = "anonymous";
/// Prefix of the owner that a user of this machine may act as.
const USER_OWNER: &str = "user:";

/// Proof of a caller's identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Via {
    /// A bearer token whose secret has this hash; valid while the ledger has the token.
    Token(Hash),
    /// A call within this process, trusted like the Unix socket.
    Socket,
    /// The Unix socket's peer credentials.
    User(User),
    /// None.
    Anonymous,
}

/// The sender of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// Name in records.
    pub name: Label,
    /// Proof of identity.
    pub via: Via,
    /// Granted roles.
    pub roles: BTreeSet<Role>,
    /// Tenants that it may act as.
    pub tenants: BTreeSet<Label>,
    /// Owners that it may act as.
    pub owners: BTreeSet<Label>,
    /// Expiry of the token, if there is one.
    pub expires: Option<Instant>,
}

/// Owner of an object, which decides who sees it ([`Caller::sees`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner<'a> {
    /// A tenant: of its bookings, their events and records, its limits, its counters under limits
    /// per tenant, and its name among holders.
    Tenant(&'a Label),
    /// An owner of budgets and runs: of its budgets, envelopes, runs, leases and used time, their
    /// events, and its name among holders.
    Funded(&'a Label),
    /// All tenants: of nodes, and of limits for everything or for a class. Everybody sees their
    /// size and use; the names of holders belong to the tenants.
    Shared,
    /// The server: of tokens, metrics, markets, and the ledger's records about itself.
    Server,
}

impl Via {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Socket | Self::User(_) => "socket",
            Self::Anonymous => "anonymous",
        }
    }
}

impl Caller {
    /// Creates the caller without a proof of identity, who may only read.
    pub fn anonymous() -> Self {
        #[expect(clippy::expect_used, reason = "a constant that is a label")]
        let name = Label::new(ANONYMOUS).expect("`anonymous` is a label");
        Self {
            name,
            via: Via::Anonymous,
            roles: BTreeSet::from([Role::View]),
            tenants: BTreeSet::new(),
            owners: BTreeSet::new(),
            expires: None,
        }
    }

    /// The owner `user:NAME` of a user of this machine; none if the name is too long for an owner.
    pub fn own(name: &Label) -> BTreeSet<Label> {
        let owner = Label::new(&format!("{USER_OWNER}{name}"));
        owner.into_iter().collect()
    }

    /// Checks whether the caller may change declared objects and act as any tenant and owner.
    pub(crate) fn may_operate(&self) -> bool {
        self.roles.contains(&Role::Operate)
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.via == Via::Anonymous
    }

    /// Checks whether the caller sees the objects of all tenants and of the server.
    pub(crate) fn sees_all(&self) -> bool {
        self.may_operate() || self.roles.contains(&Role::View)
    }

    /// Checks whether the caller sees the objects of an owner. Every route uses this rule.
    pub(crate) fn sees(&self, owner: Owner<'_>) -> bool {
        self.sees_all()
            || match owner {
                Owner::Tenant(tenant) => self.tenants.contains(tenant),
                Owner::Funded(owner) => self.owners.contains(owner),
                Owner::Shared => true,
                Owner::Server => false,
            }
    }

    pub(crate) fn sees_tenant(&self, tenant: &Label) -> bool {
        self.sees(Owner::Tenant(tenant))
    }

    pub(crate) fn sees_owner(&self, owner: &Label) -> bool {
        self.sees(Owner::Funded(owner))
    }

    /// Checks whether the caller may submit and cancel runs of an owner.
    pub(crate) fn may_act_as_owner(&self, owner: &Label) -> bool {
        self.may_operate() || (self.roles.contains(&Role::Use) && self.owners.contains(owner))
    }

    /// Checks whether the caller may act as a tenant, and so see its fences and the stored bytes
    /// that contain them.
    pub(crate) fn may_act_as(&self, tenant: &Label) -> bool {
        self.may_operate() || (self.roles.contains(&Role::Use) && self.tenants.contains(tenant))
    }

    /// Requires the role `operate` for an `action`, such as "revoke tokens".
    pub(crate) fn require_operate(&self, action: &str) -> Result<(), Problem> {
        self.require(self.may_operate(), Role::Operate, action)
    }

    /// Requires [`Caller::sees_all`] for an `action`.
    pub(crate) fn require_view(&self, action: &str) -> Result<(), Problem> {
        self.require(self.sees_all(), Role::View, action)
    }

    pub(crate) fn require_known(&self, action: &str) -> Result<(), Problem> {
        if !self.is_anonymous() {
            return Ok(());
        }
        let detail = format!("an anonymous caller may not {action}");
        Err(Problem {
            changes: vec![
                "send a token as `Authorization: Bearer …`".to_owned(),
                "use the local socket".to_owned(),
            ],
            ..Problem::new(Code::NotAllowed, detail)
        })
    }

    pub(crate) fn require_tenant(&self, tenant: &Label) -> Result<(), Problem> {
        if self.may_act_as(tenant) {
            return Ok(());
        }
        let is_user = self.roles.contains(&Role::Use);
        self.require(is_user, Role::Use, &format!("act as tenant `{tenant}`"))?;
        let own: Vec<&str> = self.tenants.iter().map(Label::as_str).collect();
        let detail = format!(
            "`{}` may act as {}, not as tenant `{tenant}`",
            self.name,
            if own.is_empty() {
                "no tenant".to_owned()
            } else {
                own.join(", ")
            },
        );
        Err(Problem::new(Code::NotAllowed, detail))
    }

    /// Requires the right to act as an owner.
    pub(crate) fn require_owner(&self, owner: &Label) -> Result<(), Problem> {
        if self.may_act_as_owner(owner) {
            return Ok(());
        }
        let is_user = self.roles.contains(&Role::Use);
        self.require(is_user, Role::Use, &format!("act as owner `{owner}`"))?;
        let detail = format!(
            "`{}` may act as {}, not as owner `{owner}`",
            self.name,
            self.own_words()
        );
        Err(Problem::new(Code::NotAllowed, detail))
    }

    /// The owner of a run: the stated one, or the only one of the caller. `path` is that of the field.
    pub(crate) fn owner_of_run(&self, stated: Option<Label>, path: &str) -> Result<Label, Problem> {
        let mut own = self.owners.iter();
        let owner = match (stated, own.next(), own.next()) {
            (Some(stated), ..) => stated,
            (None, Some(only), None) => only.clone(),
            (None, ..) => {
                let may = self.roles.contains(&Role::Use) || self.may_operate();
                self.require(may, Role::Use, "submit runs")?;
                let message = format!(
                    "is missing; `{}` may act as {}",
                    self.name,
                    self.own_words()
                );
                return Err(Problem::invalid(vec![FieldError::new(path, message)]));
            }
        };
        self.require_owner(&owner)?;
        Ok(owner)
    }

    fn own_words(&self) -> String {
        let own: Vec<&str> = self.owners.iter().map(Label::as_str).collect();
        match own.as_slice() {
            [] if self.may_operate() => "any owner".to_owned(),
            [] => "no owner".to_owned(),
            own => own.join(", "),
        }
    }

    fn require(&self, is_allowed: bool, role: Role, action: &str) -> Result<(), Problem> {
        if is_allowed {
            return Ok(());
        }
        let roles: Vec<&str> = self.roles.iter().map(|role| role.word()).collect();
        let detail = format!(
            "`{}` has {}; to {action} needs `{}`",
            self.name,
            if roles.is_empty() {
                "no role".to_owned()
            } else {
                format!("the role `{}`", roles.join(", "))
            },
            role.word(),
        );
        Err(Problem::new(Code::NotAllowed, detail))
    }
}
