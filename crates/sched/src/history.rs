//! What is remembered of a queue's past, for [`crate::waiting`].
use crate::Nanos;

/// No offset is expected.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// What is remembered of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct History {
    pub(crate) last_start: u64,
    pub(crate) last_end: u64,
    /// The offset expected after a shift, or [`NOWHERE`].
    pub(crate) shift: u64,
    /// Ends of the waits for this decision; 0: it was not waited for.
    pub(crate) until: [Nanos; 2],
    /// 0: nothing has been served.
    pub(crate) last_parts: u32,
}

impl Default for History {
    fn default() -> History {
        History {
            last_start: 0,
            last_end: 0,
            shift: NOWHERE,
            until: [0; 2],
            last_parts: 0,
        }
    }
}
