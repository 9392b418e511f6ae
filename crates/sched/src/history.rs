//! The history of a queue, for [`crate::waiting`].
use crate::Nanos;

/// No offset is expected.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// The history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct History {
    pub(crate) last_start: u64,
    pub(crate) last_end: u64,
    /// The offset expected after a shift, or [`NOWHERE`].
    pub(crate) shift: u64,
    /// When the waits for this decision end; 0: no wait.
    pub(crate) until: [Nanos; 2],
    /// Parts of the virtual request served last; 0: nothing has been served.
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
