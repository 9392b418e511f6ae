//! The name of a connection among those of its link.
//!
//! A link is what a client connects again and again. The server lets only the newest connection of a link speak for it.
use crate::error::Result;
use crate::key;
use serde::{Deserialize, Serialize};

/// One connection of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkName {
    /// The link: random, known to its client and its server alone.
    pub link: [u8; 32],
    /// Which of its connections.
    pub generation: u64,
}

impl LinkName {
    /// The first connection of a new link.
    pub fn new() -> Result<LinkName> {
        Ok(LinkName {
            link: key::random()?,
            generation: 0,
        })
    }

    /// The next connection of the same link, which ends all before.
    #[must_use]
    pub fn successor(self) -> LinkName {
        LinkName {
            generation: self.generation.saturating_add(1),
            ..self
        }
    }
}
