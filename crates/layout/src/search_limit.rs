//! A limit on searching for pieces that are not there.
//!
//! Problem: an access costs what its bytes cost, except where whole copies of an outer level lie on other servers: each
//! takes a search of its own, and 97 bytes from outside can describe 2^61 of them.
//! Idea: steps of searches are counted. There is a number of them for each access and some more for each piece found, and
//! whoever executes the access is asked between slices of [`SLICE`] steps whether anybody still waits for it.
use std::sync::Arc;

/// Steps between two questions; well below a millisecond to a few of them.
pub(crate) const SLICE: u64 = 1 << 14;

/// How long pieces are searched for. Applies to one access at a time.
#[derive(Clone)]
pub struct SearchLimit {
    /// Steps for the whole access.
    pub steps: u64,
    /// More steps for each piece found.
    pub per_piece: u64,
    /// Somebody still waits for the access.
    pub wanted: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for SearchLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SearchLimit({} + {})", self.steps, self.per_piece)
    }
}

/// Why a search was given up: there may be more pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// So many steps found too few pieces.
    TooSparse {
        /// Steps taken.
        steps: u64,
    },
    /// Nobody waits for the access any more.
    Unwanted,
}

/// What the searches of one access have cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effort {
    limit: Option<SearchLimit>,
    steps: u64,
    pieces: u64,
    /// Steps at which is asked again.
    ask: u64,
    given_up: Option<GivenUp>,
}

impl Effort {
    pub(crate) fn limited(limit: SearchLimit) -> Effort {
        Effort {
            limit: Some(limit),
            ask: SLICE,
            ..Effort::default()
        }
    }

    pub(crate) fn given_up(&self) -> Option<GivenUp> {
        self.given_up
    }

    /// A piece was found.
    pub(crate) fn found(&mut self) {
        self.pieces += 1;
    }

    /// Steps were taken. False: the search is given up.
    pub(crate) fn took(&mut self, steps: u64) -> bool {
        self.steps += steps;
        let Some(limit) = &self.limit else {
            return true;
        };
        let allowed = limit
            .per_piece
            .saturating_mul(self.pieces)
            .saturating_add(limit.steps);
        if self.steps > allowed {
            self.given_up = Some(GivenUp::TooSparse { steps: self.steps });
        } else if self.steps >= self.ask {
            self.ask = self.steps + SLICE;
            if !(limit.wanted)() {
                self.given_up = Some(GivenUp::Unwanted);
            }
        }
        self.given_up.is_none()
    }
}
