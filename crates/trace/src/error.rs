//! What goes wrong with traces: what, where, and what to do.
use std::path::PathBuf;

/// Result of an operation on traces.
pub type Result<T> = std::result::Result<T, Error>;

/// See the module's text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error("cannot {doing} {path}: {source}", path = .path.display())]
    Io {
        /// `read`, `write` …
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file begins with something else.
    #[error(
        "{path} is no trace: {why}; traces are written by `penstock up --trace`, `penstock run --trace` and `penstock trace merge`",
        path = .path.display()
    )]
    NotATrace {
        /// Which file.
        path: PathBuf,
        /// What is wrong with its beginning.
        why: String,
    },
    /// Written by another version.
    #[error(
        "{path} has trace format {found}, this program reads formats {} to {}; use the `penstock` that wrote it",
        .ours.0, .ours.1, path = .path.display()
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The oldest and the newest version read here.
        ours: (u32, u32),
    },
    /// The file ends too early: its writer was killed, still writes, or the file was cut.
    #[error(
        "{path} ends at byte {at} in {place}; the {events} events before are whole",
        path = .path.display()
    )]
    Truncated {
        /// Which file.
        path: PathBuf,
        /// Where it ends.
        at: u64,
        /// Inside what.
        place: &'static str,
        /// Events that were read before.
        events: u64,
    },
    /// Bytes that the writer did not write.
    #[error(
        "{path} is damaged in the block at byte {at}: {why}; the {events} events before are whole",
        path = .path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where the damaged block begins.
        at: u64,
        /// What does not fit.
        why: String,
        /// Events that were read before.
        events: u64,
    },
    /// Inputs that don't go together, or parameters out of range.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// What was read before the error is whole and may be used.
    pub fn leaves_a_part(&self) -> bool {
        matches!(self, Error::Truncated { .. } | Error::Damaged { .. })
    }
}
