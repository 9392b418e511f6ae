//! Errors of datatypes.

/// Why a loop, pattern or conversion was refused.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum Error {
    /// A size, extent or offset exceeds 63 bits, or the tree is too deep or too large.
    #[error("datatype too large: {0}")]
    Overflow(&'static str),
    /// An argument that no datatype can have.
    #[error("invalid datatype argument: {0}")]
    Invalid(String),
    /// Bytes that `Loop::encode` did not produce.
    #[error("malformed encoded loop at byte {at}: {what}")]
    Malformed {
        /// Position in the input.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A value that the other data representation cannot hold.
    #[error("element {element} does not fit the {width}-byte representation")]
    Range {
        /// Index of the element within the converted range.
        element: u64,
        /// Width of the representation it was to be stored in.
        width: u32,
    },
}

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
