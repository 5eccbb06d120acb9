//! Who asks, and what that lets them do (design 80, 4.6).

use std::collections::BTreeSet;

use bursar_client::{Code, Problem};
use bursar_engine::token::Role;
use bursar_journal::hash::Hash;
use bursar_node::executor::User;
use bursar_units::{Instant, Label};

/// The name of whoever comes without a proof of identity.
const ANONYMOUS: &str = "anonymous";

/// How a caller is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Via {
    /// By a bearer token whose secret has this hash: the right lasts while the ledger knows it.
    Token(Hash),
    /// By being in this process, as trusted as the local socket.
    Socket,
    /// By the kernel's word on who is at the other end of the local socket.
    User(User),
    /// Not at all.
    Anonymous,
}

/// Whoever sent a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// The name that stands in the record.
    pub name: Label,
    /// How it is known.
    pub via: Via,
    /// What it may do.
    pub roles: BTreeSet<Role>,
    /// As whom.
    pub tenants: BTreeSet<Label>,
    /// Until when, where that ends.
    pub expires: Option<Instant>,
}

/// Whose a thing is, which decides who sees it ([`Caller::sees`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner<'a> {
    /// A tenant's: its bookings, their events and records, its limits, its counters under the
    /// limits of each tenant, and its name among holders.
    Tenant(&'a Label),
    /// Shared by all tenants: nodes, and limits of everything or of a class. Their size and use
    /// may be seen; the names of holders are the tenants' own.
    Shared,
    /// The server's: tokens, metrics, markets, and what the ledger records of itself.
    Server,
}

impl Via {
    /// The word people see.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Socket | Self::User(_) => "socket",
            Self::Anonymous => "anonymous",
        }
    }
}

impl Caller {
    /// Whoever comes without a proof of identity and may look.
    pub fn anonymous() -> Self {
        #[expect(clippy::expect_used, reason = "a constant that is a label")]
        let name = Label::new(ANONYMOUS).expect("the name of nobody is a label");
        Self {
            name,
            via: Via::Anonymous,
            roles: BTreeSet::from([Role::View]),
            tenants: BTreeSet::new(),
            expires: None,
        }
    }

    /// Whether it may change what is declared and act as anyone.
    pub fn may_operate(&self) -> bool {
        self.roles.contains(&Role::Operate)
    }

    /// Whether it is known by nothing.
    pub fn is_anonymous(&self) -> bool {
        self.via == Via::Anonymous
    }

    /// Whether it sees what belongs to any tenant and to the server.
    pub fn sees_all(&self) -> bool {
        self.may_operate() || self.roles.contains(&Role::View)
    }

    /// Whether it sees what belongs to this owner: the one rule, for every route.
    pub fn sees(&self, owner: Owner<'_>) -> bool {
        self.sees_all()
            || match owner {
                Owner::Tenant(tenant) => self.tenants.contains(tenant),
                Owner::Shared => true,
                Owner::Server => false,
            }
    }

    /// Whether it sees this tenant's bookings, limits and name.
    pub fn sees_tenant(&self, tenant: &Label) -> bool {
        self.sees(Owner::Tenant(tenant))
    }

    /// Whether it may act as this tenant, and so be told fences and the stored bytes that hold
    /// them.
    pub fn may_act_as(&self, tenant: &Label) -> bool {
        self.may_operate() || (self.roles.contains(&Role::Use) && self.tenants.contains(tenant))
    }

    /// Refuses whoever may not operate; `what` is the deed, in words.
    pub fn require_operate(&self, what: &str) -> Result<(), Problem> {
        if self.may_operate() {
            Ok(())
        } else {
            Err(self.lacks(Role::Operate, what))
        }
    }

    /// Refuses whoever sees only its own; `what` is the deed, in words.
    pub fn require_view(&self, what: &str) -> Result<(), Problem> {
        if self.sees_all() {
            Ok(())
        } else {
            Err(self.lacks(Role::View, what))
        }
    }

    /// Refuses an anonymous caller; `what` is the deed, in words.
    pub fn require_known(&self, what: &str) -> Result<(), Problem> {
        if !self.is_anonymous() {
            return Ok(());
        }
        let detail = format!("an anonymous caller may not {what}");
        Err(Problem {
            changes: vec![
                "send a token as `Authorization: Bearer …`".to_owned(),
                "use the local socket".to_owned(),
            ],
            ..Problem::new(Code::NotAllowed, detail)
        })
    }

    /// Refuses whoever may not act as this tenant.
    pub fn require_tenant(&self, tenant: &Label) -> Result<(), Problem> {
        if self.may_act_as(tenant) {
            return Ok(());
        }
        if !self.roles.contains(&Role::Use) {
            return Err(self.lacks(Role::Use, &format!("act as tenant `{tenant}`")));
        }
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

    fn lacks(&self, role: Role, what: &str) -> Problem {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.word()).collect();
        let detail = format!(
            "`{}` has the role {}; to {what} needs `{}`",
            self.name,
            if roles.is_empty() {
                "of nobody".to_owned()
            } else {
                format!("`{}`", roles.join(", "))
            },
            role.word(),
        );
        Problem::new(Code::NotAllowed, detail)
    }
}
