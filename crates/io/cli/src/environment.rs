//! What the process was given from outside, as plain data: read once, by `main`.
//!
//! A scenario has an environment of its own, so no command ever asks the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variables that a detached program is given.
const PLAIN: [&str; 10] = [
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
];

/// The settings of the environment that Bursar knows (design 80, 1.5).
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one variable that is set or not"
)]
pub(crate) struct Environment {
    /// The user's home.
    pub(crate) home: Option<PathBuf>,
    /// Where programs are looked for.
    pub(crate) path: Option<OsString>,
    /// What every program may be told, and no secret is: who, where, and in which language.
    pub(crate) plain: BTreeMap<String, String>,
    /// `BURSAR_SERVER`.
    pub(crate) server: Option<String>,
    /// `BURSAR_CONTEXT`.
    pub(crate) context: Option<String>,
    /// `BURSAR_TOKEN_FILE`.
    pub(crate) token_file: Option<PathBuf>,
    /// The client's file: `BURSAR_CONFIG`, or where it is by default.
    pub(crate) config: Option<PathBuf>,
    /// Where ledgers are kept.
    pub(crate) data_home: Option<PathBuf>,
    /// Where pinned keys and seen checkpoints are kept.
    pub(crate) state_home: Option<PathBuf>,
    /// Where the link to the socket of a local server is.
    pub(crate) runtime: Option<PathBuf>,
    /// `BURSAR_NO_PROGRESS` is set.
    pub(crate) no_progress: bool,
    /// `NO_COLOR` is set.
    pub(crate) no_color: bool,
    /// `CLICOLOR_FORCE` is set to other than 0.
    pub(crate) force_color: bool,
    /// Whether the locale can show bars and arrows.
    pub(crate) utf8: bool,
}

impl Environment {
    /// Reads it through `get`; `is_root` decides where sockets are linked without a session.
    pub(crate) fn read(get: impl Fn(&str) -> Option<OsString>, is_root: bool) -> Self {
        let set = |name: &str| get(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name).and_then(|value| value.into_string().ok());
        let path = |name: &str| set(name).map(PathBuf::from);
        let home = path("HOME");
        let below = |name: &str, rest: &str| {
            path(name)
                .filter(|path| path.is_absolute())
                .or_else(|| home.as_ref().map(|home| home.join(rest)))
                .map(|path| path.join("bursar"))
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| text(name));
        let root_runtime = is_root.then(|| PathBuf::from("/run/bursar"));
        Self {
            path: set("PATH"),
            plain: PLAIN
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), text(name)?)))
                .collect(),
            server: text("BURSAR_SERVER"),
            context: text("BURSAR_CONTEXT"),
            token_file: path("BURSAR_TOKEN_FILE"),
            config: path("BURSAR_CONFIG")
                .or_else(|| Some(below("XDG_CONFIG_HOME", ".config")?.join("config.toml"))),
            data_home: below("XDG_DATA_HOME", ".local/share"),
            state_home: below("XDG_STATE_HOME", ".local/state"),
            runtime: path("XDG_RUNTIME_DIR")
                .map(|path| path.join("bursar"))
                .or(root_runtime),
            no_progress: set("BURSAR_NO_PROGRESS").is_some(),
            no_color: set("NO_COLOR").is_some(),
            force_color: text("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            // A terminal that says nothing shows UTF-8 today; one that says otherwise is believed.
            utf8: locale.is_none_or(|locale| {
                let locale = locale.to_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            }),
            home,
        }
    }

    /// A path as people write it: below the home directory as `~/…`.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let below = self
            .home
            .as_ref()
            .and_then(|home| path.strip_prefix(home).ok());
        match below {
            Some(rest) if !rest.as_os_str().is_empty() => format!("~/{}", rest.display()),
            _ => path.display().to_string(),
        }
    }

    /// A path as people write it in a file, with `~` for the home directory.
    pub(crate) fn expanded(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Environment;

    fn read(given: &[(&str, &str)], is_root: bool) -> Environment {
        let get = |name: &str| {
            given
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, v)| v.into())
        };
        Environment::read(get, is_root)
    }

    #[test]
    fn directories_follow_the_session_and_fall_back_below_home() {
        let plain = read(&[("HOME", "/h")], false);
        assert_eq!(
            plain.config.unwrap_or_default(),
            std::path::Path::new("/h/.config/bursar/config.toml")
        );
        assert_eq!(
            plain.data_home.unwrap_or_default(),
            std::path::Path::new("/h/.local/share/bursar")
        );
        assert_eq!(plain.runtime, None);
        let root = read(&[("HOME", "/h")], true);
        assert_eq!(
            root.runtime.unwrap_or_default(),
            std::path::Path::new("/run/bursar")
        );
        let session = read(
            &[("XDG_RUNTIME_DIR", "/run/user/7"), ("XDG_DATA_HOME", "/d")],
            true,
        );
        assert_eq!(
            session.runtime.unwrap_or_default(),
            std::path::Path::new("/run/user/7/bursar")
        );
        assert_eq!(
            session.data_home.unwrap_or_default(),
            std::path::Path::new("/d/bursar")
        );
    }

    #[test]
    fn only_a_locale_that_says_otherwise_loses_its_bars() {
        assert!(read(&[], false).utf8);
        assert!(read(&[("LANG", "C.UTF-8")], false).utf8);
        assert!(!read(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")], false).utf8);
    }

    #[test]
    fn paths_are_shown_as_people_write_them() {
        let environment = read(&[("HOME", "/h")], false);
        assert_eq!(environment.shown(std::path::Path::new("/h/x/y")), "~/x/y");
        assert_eq!(environment.shown(std::path::Path::new("/other")), "/other");
        assert_eq!(environment.expanded("~/t"), std::path::Path::new("/h/t"));
    }
}
