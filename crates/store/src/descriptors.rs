//! What a process may keep open.
//!
//! Descriptors are few: often 1,024. They are shared out by quarters: objects kept open, objects of which clients have
//! descriptors, connections, and what is needed in passing (decisions/0018).
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit of a process that has none.
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

/// Raises the limit to the hard one. For processes that are servers and nothing else: a program's own limit is its own,
/// since select(2) takes no descriptor above 1,023.
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
