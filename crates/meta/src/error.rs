//! Errors of the metadata server for clients: a kind, and what, where and what to do.
use penstock_wire::message::{ErrorKind, WireError};

/// Most bytes of a path in an error message.
const SHOWN: usize = 200;

pub type Result<T> = std::result::Result<T, WireError>;

pub fn error(kind: ErrorKind, message: impl Into<String>) -> WireError {
    WireError {
        kind,
        message: message.into(),
    }
}

/// The path for a message: at most that long, cut between characters, without control characters.
pub fn shown(path: &str) -> String {
    let mut out: String = path
        .chars()
        .take(SHOWN)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if path.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}

pub fn damaged(what: impl std::fmt::Display) -> WireError {
    error(
        ErrorKind::Damaged,
        format!(
            "metadata is damaged: {what}; run `penstock check`, or stop the server and restore its store"
        ),
    )
}

pub fn not_found(path: &str) -> WireError {
    error(
        ErrorKind::NotFound,
        format!(
            "no file or directory \"{}\"; check the path or create it first",
            shown(path)
        ),
    )
}

pub fn exists(path: &str) -> WireError {
    error(
        ErrorKind::Exists,
        format!(
            "\"{}\" exists already; remove it, choose another name or open it without exclusive creation",
            shown(path)
        ),
    )
}

pub fn is_directory(path: &str) -> WireError {
    error(
        ErrorKind::IsDirectory,
        format!("\"{}\" is a directory; name a file", shown(path)),
    )
}

pub fn not_directory(path: &str) -> WireError {
    error(
        ErrorKind::NotDirectory,
        format!(
            "\"{}\", or a name on its path, is not a directory; correct the path",
            shown(path)
        ),
    )
}
