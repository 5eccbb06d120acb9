//! As whom an execution runs on this machine.

use bursar_client::{Code, Problem};
use bursar_node::executor::User;

use crate::caller::{Caller, Via};

/// As whom the work of a caller runs; `None` is the server's own user.
///
/// A server that is not root can run it as itself only. One that is root runs it as whoever is at
/// the other end of the local socket; who that is it does not know of anybody else, and nobody
/// but an operator may have it run something as root.
pub(super) fn runs_as(caller: &Caller, is_root: bool) -> Result<Option<User>, Problem> {
    match caller.via {
        _ if !is_root => Ok(None),
        Via::User(user) => Ok(Some(user)),
        Via::Token | Via::Socket | Via::Anonymous if caller.may_operate() => Ok(None),
        Via::Token | Via::Socket | Via::Anonymous => {
            let detail = format!(
                "executions of `{}` would run as root here, which needs `operate`",
                caller.name
            );
            Err(Problem {
                changes: vec![
                    "submit it over the local socket: it runs as you".to_owned(),
                    "run the server as another user".to_owned(),
                ],
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

    use super::runs_as;
    use crate::caller::{Caller, Via};

    const SELF: Result<Option<User>, Code> = Ok(None);
    const REFUSED: Result<Option<User>, Code> = Err(Code::NotAllowed);

    #[test]
    fn nobody_but_an_operator_or_root_itself_has_anything_run_as_root() {
        let ada = User {
            uid: 1000,
            gid: 100,
        };
        let root = User { uid: 0, gid: 0 };
        let (socket, within) = (Via::User(ada), Via::Socket);
        for (via, role, is_root, expected) in [
            (socket, Role::Use, true, Ok(Some(ada))),
            (socket, Role::Operate, true, Ok(Some(ada))),
            (Via::User(root), Role::Operate, true, Ok(Some(root))),
            (Via::Token, Role::Operate, true, SELF),
            (Via::Token, Role::Use, true, REFUSED),
            (within, Role::Operate, true, SELF),
            (within, Role::Use, true, REFUSED),
            (Via::Anonymous, Role::View, true, REFUSED),
            (socket, Role::Use, false, SELF),
            (Via::User(root), Role::Operate, false, SELF),
            (Via::Token, Role::Use, false, SELF),
            (within, Role::Operate, false, SELF),
        ] {
            let caller = Caller {
                via,
                roles: [role].into(),
                ..Caller::anonymous()
            };
            let found = runs_as(&caller, is_root).map_err(|problem| problem.code);
            assert_eq!(found, expected, "{via:?} {role:?} root: {is_root}");
        }
    }
}
