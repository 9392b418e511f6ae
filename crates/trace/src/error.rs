//! Errors of traces: what is wrong, where, and what to do.
use std::path::PathBuf;

/// Result of an operation on traces.
pub type Result<T> = std::result::Result<T, Error>;

/// An error while a trace is read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {doing} {path}: {source}", path = .path.display())]
    Io {
        /// `read`, `write` …
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no trace: it begins with something else.
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
    /// The trace has another version of the format.
    #[error(
        "{path} has trace format {found}, this program writes format {ours}; {next}",
        next = if found < ours { "`penstock trace convert OLD NEW` makes it of older ones" }
            else { "use the `penstock` that wrote it" },
        path = .path.display()
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known here.
        ours: u32,
    },
    /// The file ends too early: its writer was killed, still writes, or the file was truncated.
    #[error(
        "{path} ends at byte {at} in {place}; the {events} events before are whole",
        path = .path.display()
    )]
    Truncated {
        /// Which file.
        path: PathBuf,
        /// Where it ends.
        at: u64,
        /// The part of the format that is incomplete.
        place: &'static str,
        /// Events that were read before.
        events: u64,
    },
    /// A block has bytes that the writer did not write.
    #[error(
        "{path} is damaged in the block at byte {at}: {why}; the {events} events before are whole",
        path = .path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where the damaged block begins.
        at: u64,
        /// What is wrong with the block.
        why: String,
        /// Events that were read before.
        events: u64,
    },
    /// Inputs that do not belong together, or parameters out of range.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Whether the events that were read before the error are complete and may be used.
    pub fn leaves_a_part(&self) -> bool {
        matches!(self, Error::Truncated { .. } | Error::Damaged { .. })
    }
}
