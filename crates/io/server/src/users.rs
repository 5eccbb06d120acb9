//! User names from `/etc/passwd`.
//!
//! Users of directory services are not in that file and are named by their number. Looking them up
//! would need the C library's resolver, which may block and load code.

use std::path::Path;

use bursar_units::Label;

const PASSWD: &str = "/etc/passwd";

/// Returns the name of a user of this machine, or `uid-1000` if it is not listed.
pub(crate) fn user_name(uid: u32) -> Label {
    let text = std::fs::read_to_string(Path::new(PASSWD)).unwrap_or_default();
    listed(&text, uid).unwrap_or_else(|| by_number(uid))
}

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
