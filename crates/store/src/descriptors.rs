//! Limits on the open descriptors of a process.
//!
//! Descriptors are few: often 1,024. They are divided into quarters: objects kept open, objects of which clients have
//! descriptors, connections, and short-term use (decisions/0018).
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit used for a process without one.
const UNLIMITED: u64 = 1 << 20;

/// Descriptors that this process may have.
pub fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// A quarter of them.
pub fn quarter() -> usize {
    limit() / 4
}

/// Raises the soft limit to the hard one. Only for processes that are servers: a program may rely on its own limit,
/// because select(2) takes no descriptor above 1,023.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(e) = setrlimit(Resource::Nofile, raised) {
        log::warn!(
            "cannot raise the limit of open files above {}: {e}",
            limit()
        );
    }
}
