//! What can be wrong with a scenario, and where.

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not to be read.
    #[error("{path}: {reason}")]
    File {
        /// Which file.
        path: String,
        /// What the system said.
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
    /// A value that cannot be.
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
    /// A layout that cannot be.
    #[error("the file's striping: {0}")]
    Layout(#[from] penstock_layout::LayoutError),
    /// The programs stopped before they were through: a fault of the simulator.
    #[error("nothing is left to happen at {at} ns, but {waiting} ranks still wait")]
    Stuck {
        /// Virtual time.
        at: u64,
        /// Ranks that are not through.
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
    /// A value that cannot be, at `key`.
    pub(crate) fn key(key: impl Into<String>, says: impl Into<String>) -> Error {
        Error::Key {
            key: key.into(),
            says: says.into(),
        }
    }

    /// The same, in a file.
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
