//! The order in which a disk serves its queue.
//!
//! FIFO: order of arrival. C-LOOK: ascending, then back to the lowest. SPTF: the request that the head reaches first,
//! by seek and rotation (the default of real drives). A request that has waited longer than the bound is served first,
//! so that SPTF and C-LOOK starve none.

use crate::Nanos;

/// The order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queueing {
    /// Order of arrival.
    Fifo,
    /// Ascending addresses, then again from the lowest.
    CLook,
    /// Shortest positioning time first.
    #[default]
    Sptf,
}

/// What the choice needs to know of a waiting request.
pub(crate) struct Candidate {
    pub arrived: Nanos,
    pub address: u64,
}

impl Queueing {
    /// The index of the next of `waiting`, which is in order of arrival; `position` gives a request's positioning time.
    pub(crate) fn choose(
        self,
        now: Nanos,
        head: u64,
        patience: Nanos,
        waiting: impl ExactSizeIterator<Item = Candidate> + Clone,
        mut position: impl FnMut(usize) -> Nanos,
    ) -> Option<usize> {
        let oldest = waiting.clone().next()?;
        if self == Queueing::Fifo || now.saturating_sub(oldest.arrived) > patience {
            return Some(0);
        }
        match self {
            Queueing::Fifo => Some(0),
            Queueing::CLook => waiting
                .enumerate()
                .min_by_key(|(i, c)| (c.address < head, c.address, *i))
                .map(|(i, _)| i),
            Queueing::Sptf => (0..waiting.len()).min_by_key(|&i| (position(i), i)),
        }
    }
}
