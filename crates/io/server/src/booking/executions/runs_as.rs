//! The system user of an execution.

use bursar_client::{Code, Problem};
use bursar_node::executor::User;

use crate::caller::{Caller, Via};

/// Callers whose executions may run as the server's own user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OwnUser {
    /// Operators only: a program of the server's user can read the server's files and operate it
    /// over its socket.
    Operators,
    /// Every caller that may submit: the server's owner trusts them all, or nothing really runs.
    Everyone,
}

/// Chooses the user of a caller's executions; `None` is the server's own user.
///
/// A root server uses the peer of the Unix socket; other callers have no known system user. A
/// server that is not root can run programs only as itself.
pub(crate) fn runs_as(
    caller: &Caller,
    is_root: bool,
    own_user: OwnUser,
) -> Result<Option<User>, Problem> {
    match caller.via {
        Via::User(user) if is_root => Ok(Some(user)),
        _ if caller.may_operate() => Ok(None),
        _ if !is_root && own_user == OwnUser::Everyone => Ok(None),
        _ => {
            let whose = if is_root {
                "root"
            } else {
                "the server's own user"
            };
            let detail = format!(
                "executions of `{}` would run as {whose}, which needs `operate`",
                caller.name
            );
            let way_out = if is_root {
                "submit it over the local socket, so that it runs as your user"
            } else {
                "set `share-user = true` under [executor] if all callers are trusted like operators"
            };
            Err(Problem {
                changes: vec![way_out.to_owned()],
                ..Problem::new(Code::NotAllowed, detail)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_client::Code;
    use bursar_engine::token::Role;
    use bursar_node::executor::User;

    use super::OwnUser::{Everyone, Operators};
    use super::runs_as;
    use crate::caller::{Caller, Via};

    const SELF: Result<Option<User>, Code> = Ok(None);
    const REFUSED: Result<Option<User>, Code> = Err(Code::NotAllowed);

    #[test]
    fn only_operators_run_programs_as_an_operating_user() {
        let ada = User {
            uid: 1000,
            gid: 100,
        };
        let root = User { uid: 0, gid: 0 };
        let (socket, within) = (Via::User(ada), Via::Socket);
        let token = Via::Token(bursar_journal::hash::sha256(b"secret"));
        for (via, role, is_root, own_user, expected) in [
            (socket, Role::Use, true, Operators, Ok(Some(ada))),
            (socket, Role::Operate, true, Operators, Ok(Some(ada))),
            (
                Via::User(root),
                Role::Operate,
                true,
                Operators,
                Ok(Some(root)),
            ),
            (token, Role::Operate, true, Operators, SELF),
            (token, Role::Use, true, Operators, REFUSED),
            (token, Role::Use, true, Everyone, REFUSED),
            (within, Role::Operate, true, Operators, SELF),
            (within, Role::Use, true, Operators, REFUSED),
            (Via::Anonymous, Role::View, true, Operators, REFUSED),
            (socket, Role::Use, false, Operators, REFUSED),
            (socket, Role::Use, false, Everyone, SELF),
            (Via::User(root), Role::Operate, false, Operators, SELF),
            (token, Role::Use, false, Operators, REFUSED),
            (token, Role::Use, false, Everyone, SELF),
            (within, Role::Operate, false, Operators, SELF),
        ] {
            let caller = Caller {
                via,
                roles: [role].into(),
                ..Caller::anonymous()
            };
            let found = runs_as(&caller, is_root, own_user).map_err(|problem| problem.code);
            assert_eq!(
                found, expected,
                "{via:?} {role:?} root: {is_root} {own_user:?}"
            );
        }
    }
}
