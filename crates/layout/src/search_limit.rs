//! A limit on searches for pieces.
//!
//! Problem: an access costs what its bytes cost, except where whole copies of an outer level are on other servers. Each
//! of them takes a search of its own, and a request of 97 bytes can describe 2^61 of them. Idea: count the steps of
//! searches. Each access has a number of steps, and some more for each piece found. Between slices of [`SLICE`] steps
//! the executor is asked whether anybody still waits for the access.
use std::sync::Arc;

/// Steps between two checks; they take from well below a millisecond to a few.
pub(crate) const SLICE: u64 = 1 << 14;

/// The limit of one access's searches.
#[derive(Clone)]
pub struct SearchLimit {
    /// Steps for the whole access.
    pub steps: u64,
    /// More steps for each piece found.
    pub per_piece: u64,
    /// Whether anybody still waits for the access.
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
    /// Too few pieces in this many steps.
    TooSparse {
        /// Steps taken.
        steps: u64,
    },
    /// Nobody waits for the access any more.
    Unwanted,
}

/// The cost of one access's searches so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effort {
    limit: Option<SearchLimit>,
    steps: u64,
    pieces: u64,
    /// Steps at which the next check is due.
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

    /// Counts a piece that was found.
    pub(crate) fn found(&mut self) {
        self.pieces += 1;
    }

    /// Counts steps. False: the search is given up.
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
