//! The environment variables as plain data, read once by `main`.
//!
//! A scenario has its own environment, so no command reads the variables of the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variables that are passed to a detached program: none of them holds a secret.
const PLAIN: [&str; 10] = [
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
];

/// Settings from the environment.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one variable that is set or not"
)]
pub(crate) struct Environment {
    pub(crate) home: Option<PathBuf>,
    pub(crate) path: Option<OsString>,
    /// The variables of [`PLAIN`] that are set.
    pub(crate) plain: BTreeMap<String, String>,
    pub(crate) server: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    /// The client's file: `BURSAR_CONFIG`, or its default path.
    pub(crate) config: Option<PathBuf>,
    /// Default directory of ledgers.
    pub(crate) data_home: Option<PathBuf>,
    /// Directory of pinned keys and known checkpoints.
    pub(crate) state_home: Option<PathBuf>,
    /// Directory of the link to a local server's socket.
    pub(crate) runtime: Option<PathBuf>,
    pub(crate) no_progress: bool,
    pub(crate) no_color: bool,
    /// `CLICOLOR_FORCE` is set and not 0.
    pub(crate) force_color: bool,
    /// Whether the locale can show bars and arrows.
    pub(crate) utf8: bool,
}

impl Environment {
    /// Reads the variables through `get`. Root without `XDG_RUNTIME_DIR` uses `/run/bursar`.
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
            namespace: text("BURSAR_NAMESPACE"),
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
            // A terminal without a locale most likely shows UTF-8.
            utf8: locale.is_none_or(|locale| {
                let locale = locale.to_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            }),
            home,
        }
    }

    /// A path for people: `~/…` below the home directory.
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

    /// The path that a person wrote, with `~/` replaced by the home directory.
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
            let found = given.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.into())
        };
        Environment::read(get, is_root)
    }

    #[test]
    fn directories_follow_xdg_variables_and_fall_back_to_home() {
        let plain = read(&[("HOME", "/h")], false);
        assert_eq!(plain.config, Some("/h/.config/bursar/config.toml".into()));
        assert_eq!(plain.data_home, Some("/h/.local/share/bursar".into()));
        assert_eq!(plain.runtime, None);
        let root = read(&[("HOME", "/h")], true);
        assert_eq!(root.runtime, Some("/run/bursar".into()));
        let session = read(
            &[("XDG_RUNTIME_DIR", "/run/user/7"), ("XDG_DATA_HOME", "/d")],
            true,
        );
        assert_eq!(session.runtime, Some("/run/user/7/bursar".into()));
        assert_eq!(session.data_home, Some("/d/bursar".into()));
    }

    #[test]
    fn only_a_locale_without_utf8_disables_bars() {
        assert!(read(&[], false).utf8);
        assert!(read(&[("LANG", "C.UTF-8")], false).utf8);
        assert!(!read(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")], false).utf8);
    }

    #[test]
    fn the_home_directory_is_shown_as_a_tilde() {
        let environment = read(&[("HOME", "/h")], false);
        assert_eq!(environment.shown(std::path::Path::new("/h/x/y")), "~/x/y");
        assert_eq!(environment.shown(std::path::Path::new("/other")), "/other");
        assert_eq!(environment.expanded("~/t"), std::path::Path::new("/h/t"));
    }
}
