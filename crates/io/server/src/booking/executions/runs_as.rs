//! As whom an execution runs on this machine.

use bursar_client::{Code, Problem};
use bursar_node::executor::User;

use crate::caller::{Caller, Via};

/// Who may have something run as the server's own user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OwnUser {
    /// Only those who may operate: whatever runs as the server's user can read its files and
    /// operates it over its socket.
    Operators,
    /// Everyone who may submit: the owner of the server trusts them as much, or nothing really runs.
    Everyone,
}

/// As whom the work of a caller runs; `None` is the server's own user.
///
/// A server that is root runs it as whoever is at the other end of the local socket; who that is
/// it does not know of anybody else. A server that is not root can run it as itself only.
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
                "executions of `{}` would run as {whose} here, which needs `operate`",
                caller.name
            );
            let way_out = if is_root {
                "submit it over the local socket: it runs as you"
            } else {
                "set `share-user = true` under [executor] where everyone is trusted as much"
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
    fn nobody_but_an_operator_has_anything_run_as_who_operates() {
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
