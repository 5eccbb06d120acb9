//! Search for the program before a slot is taken for it, as a shell would.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use bursar_client::{Code, Problem};
use rustix::fs::{Access, access};

use super::{CANNOT_RUN, NOT_FOUND};
use crate::failure::Failure;
use crate::session::Session;

/// Search path without PATH, as `execvp` has it.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

pub(super) fn name(words: &[OsString]) -> String {
    words
        .first()
        .map(|program| program.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Checks that the program exists and is executable.
pub(super) fn check(session: &Session, words: &[OsString]) -> Result<(), Failure> {
    let name = name(words);
    let program = words.first().map(OsString::as_os_str).unwrap_or_default();
    let mut is_there = false;
    for file in candidates(session, program) {
        match std::fs::metadata(&file) {
            Ok(data) if data.is_file() && access(&file, Access::EXEC_OK).is_ok() => return Ok(()),
            // The search skips directories.
            Ok(data) => is_there |= data.is_file() || has_slash(program),
            Err(error) => is_there |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
    Err(match (is_there, has_slash(program)) {
        (true, _) => failure(
            CANNOT_RUN,
            format!("`{name}` cannot be run: it is not executable"),
        ),
        (false, true) => failure(NOT_FOUND, format!("program `{name}` not found")),
        (false, false) => failure(NOT_FOUND, format!("program `{name}` not found on PATH")),
    })
}

/// Failure of a start.
pub(super) fn not_run(session: &Session, words: &[OsString], error: &io::Error) -> Failure {
    // The program may be gone since the search; a missing interpreter is also `NotFound`.
    let gone = check(session, words).err();
    gone.unwrap_or_else(|| {
        let name = name(words);
        let why = match error.kind() {
            io::ErrorKind::NotFound => "its interpreter is missing".to_owned(),
            _ => error.to_string(),
        };
        failure(CANNOT_RUN, format!("`{name}` cannot be run: {why}"))
    })
}

fn candidates(session: &Session, program: &OsStr) -> Vec<PathBuf> {
    if has_slash(program) {
        return vec![session.directory.join(program)];
    }
    let path = session.environment.path.as_deref();
    std::env::split_paths(path.unwrap_or(OsStr::new(PATH_DEFAULT)))
        .map(|directory| session.directory.join(directory).join(program))
        .collect()
}

fn has_slash(program: &OsStr) -> bool {
    program.as_bytes().contains(&b'/')
}

fn failure(exit: u8, message: String) -> Failure {
    let code = if exit == NOT_FOUND {
        Code::NotFound
    } else {
        Code::Invalid
    };
    Failure {
        problem: Some(Box::new(Problem::new(code, message.clone()))),
        ..Failure::new(exit, message)
    }
}
