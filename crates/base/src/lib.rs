//! Types that every layer uses: time, operations, random numbers, tables by number. No dependencies.
mod numbered;
mod random;

pub use numbered::{Numbered, Product};
pub use random::{Random, finalise};

/// Nanoseconds since an origin of the caller's choice, or a span of them.
pub type Nanos = u64;

/// Direction of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Bytes come from the store.
    Read,
    /// Bytes go to the store.
    Write,
}

impl Op {
    /// `read` or `write`.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}
