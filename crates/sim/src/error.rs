//! Errors of scenarios, with their place.

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// Which file.
        path: String,
        /// The system's error.
        reason: String,
    },
    /// The file is no scenario: syntax, unknown keys, wrong kinds of values.
    #[error("{path}: {reason}")]
    Syntax {
        /// Which file.
        path: String,
        /// Where and what, with the line.
        reason: String,
    },
    /// A value that is not allowed.
    #[error("{key}: {says}")]
    Key {
        /// Which key.
        key: String,
        /// What is wrong and what is allowed.
        says: String,
    },
    /// An access that no loop describes.
    #[error("the program's access: {0}")]
    Loop(#[from] penstock_datatype::Error),
    /// An impossible layout.
    #[error("the file's striping: {0}")]
    Layout(#[from] penstock_layout::LayoutError),
    /// The simulation ran out of events before the programs ended: an error of the simulator.
    #[error("no event is left at {at} ns, but {waiting} ranks still wait")]
    Stuck {
        /// Virtual time.
        at: u64,
        /// Ranks that have not finished.
        waiting: usize,
    },
    /// The limit on events was reached.
    #[error("more than {limit} events; shorten the programs, or raise `max_events`")]
    TooLong {
        /// The scenario's `max_events`.
        limit: u64,
    },
}

impl Error {
    /// An error of the value of `key`.
    pub(crate) fn key(key: impl Into<String>, says: impl Into<String>) -> Error {
        Error::Key {
            key: key.into(),
            says: says.into(),
        }
    }

    /// The same error with the name of its file.
    pub(crate) fn within(self, path: &str) -> Error {
        match self {
            Error::Key { key, says } => Error::Key {
                key: format!("{path}: {key}"),
                says,
            },
            other => other,
        }
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
