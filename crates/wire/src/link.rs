//! The name of a connection among those of its link.
//!
//! A link is a client's sequence of connections to one server. The server accepts requests only on the newest
//! connection of a link.
use crate::error::Result;
use crate::key;
use serde::{Deserialize, Serialize};

/// One connection of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkName {
    /// The link: random, known only to its client and its server.
    pub link: [u8; 32],
    /// Number of the connection within its link.
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

    /// The next connection of the same link, which ends all earlier ones.
    #[must_use]
    pub fn successor(self) -> LinkName {
        LinkName {
            generation: self.generation.saturating_add(1),
            ..self
        }
    }
}
