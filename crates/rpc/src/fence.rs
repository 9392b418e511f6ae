//! Fencing: which connection of a link is current, so that requests of older ones are not carried out.
//!
//! *Problem*: a client whose connection breaks repeats unanswered requests on a new one. What it sent on the old one
//! may still be in the network, in a buffer or waiting for a lock. Carried out after the repetition, it would overwrite
//! a write that was acknowledged meanwhile. *Idea*: a link is a client's sequence of connections to one server. Each
//! connection names its link in the handshake, with a generation that only increases. Before a connection is accepted,
//! the older one of its link is closed and its requests have ended. A late handshake with an older generation is
//! refused. *Why the state is small*: a client sends no request before its connection is accepted, so requests arrive
//! only on open connections. A closed connection has none left, and needs no entry. *When*: every connection, to data
//! servers and to the metadata server. It costs an entry in a table for each handshake and nothing for a request.
//! *Bounds*: one entry per open connection. *Source*: fencing by generation, as in the sessions of NFSv4.1 (RFC 8881,
//! section 2.10).
use penstock_wire::LinkName;
use std::collections::HashMap;

/// What a new connection must wait for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing: it is open now.
    Nothing,
    /// An older connection of its link, by number, which must end first.
    Older(u64),
    /// A newer connection exists: this one is too late.
    Newer,
}

/// The open connections of a server, by link.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    open: HashMap<[u8; 32], (u64, u64)>,
}

impl Fence {
    /// What `connection` must wait for.
    pub(crate) fn look(&self, name: &LinkName) -> Before {
        match self.open.get(&name.link) {
            None => Before::Nothing,
            Some((generation, older)) if *generation < name.generation => Before::Older(*older),
            Some(_) => Before::Newer,
        }
    }

    /// Makes `connection` the current one of its link. It must have nothing to wait for.
    pub(crate) fn open(&mut self, name: &LinkName, connection: u64) {
        self.open.insert(name.link, (name.generation, connection));
    }

    /// `connection` and all its requests have ended.
    pub(crate) fn ended(&mut self, name: &LinkName, connection: u64) {
        if self
            .open
            .get(&name.link)
            .is_some_and(|(_, c)| *c == connection)
        {
            self.open.remove(&name.link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_one_connection_and_the_newest_wins() {
        let first = LinkName {
            link: [1; 32],
            generation: 0,
        };
        let (second, third) = (first.successor(), first.successor().successor());
        let mut fence = Fence::default();
        assert_eq!(fence.look(&first), Before::Nothing);
        fence.open(&first, 10);
        assert_eq!(fence.look(&first), Before::Newer, "the same again");
        assert_eq!(fence.look(&third), Before::Older(10));
        fence.ended(&first, 10);
        assert_eq!(fence.look(&third), Before::Nothing);
        fence.open(&third, 12);
        assert_eq!(fence.look(&second), Before::Newer, "it comes late");
        // Links are independent, and the end of an old connection does not open the way past a newer one.
        let other = LinkName {
            link: [2; 32],
            generation: 0,
        };
        assert_eq!(fence.look(&other), Before::Nothing);
        fence.ended(&first, 10);
        assert_eq!(fence.look(&second), Before::Newer);
        fence.ended(&third, 12);
        assert!(
            fence.open.is_empty(),
            "nothing is left of links that have gone"
        );
    }
}
