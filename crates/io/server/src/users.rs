//! From a user id to a name, as `/etc/passwd` has it.
//!
//! Users of directory services are not in that file and go by their number; a name service
//! would need a resolver of the C library, which may block and load code.

use std::path::Path;

use bursar_units::Label;

/// The file that lists this machine's users.
const PASSWD: &str = "/etc/passwd";

/// The name of a user of this machine; `uid-1000` where it is not listed.
pub fn user_name(uid: u32) -> Label {
    let text = std::fs::read_to_string(Path::new(PASSWD)).unwrap_or_default();
    listed(&text, uid).unwrap_or_else(|| by_number(uid))
}

/// The name that some lines of the file give a user.
fn listed(text: &str, uid: u32) -> Option<Label> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid)).then(|| Label::new(name).ok())?
    })
}

fn by_number(uid: u32) -> Label {
    #[expect(
        clippy::expect_used,
        reason = "letters, a hyphen and digits are a label"
    )]
    Label::new(&format!("uid-{uid}")).expect("a number is a label")
}

#[cfg(test)]
mod tests {
    use super::{by_number, listed};

    #[test]
    fn a_user_goes_by_its_listed_name_or_by_its_number() {
        let text = "root:x:0:0:root:/root:/bin/sh\nbroken\nada:x:1000:1000::/ada:/bin/sh\n";
        let name = |uid| {
            listed(text, uid)
                .unwrap_or_else(|| by_number(uid))
                .to_string()
        };
        assert_eq!([name(0), name(1000), name(7)], ["root", "ada", "uid-7"]);
    }
}
