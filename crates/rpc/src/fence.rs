//! Which connection speaks for a link, and which no longer may.
//!
//! *Problem*: a client whose connection breaks repeats on a new one what was not answered. What it had sent on the old
//! one may still lie in the network, in a buffer or before a lock. Carried out after the repetition, it would undo a
//! write that was acknowledged meanwhile.
//! *Idea*: a link is what a client connects again and again; each of its connections says in its handshake which link
//! it speaks for, and a generation that only rises. Before a connection is welcomed, the older one of its link is closed
//! and whatever it was doing has come to its end; a handshake of an older generation that arrives late is refused.
//! *Why so little has to be remembered*: a client sends no request before it has been welcomed, so requests arrive only on
//! connections that have been open. One that is open no more has none left, and needs no entry.
//! *When*: every connection, to data servers and to the metadata server. It costs an entry in a table for each handshake and
//! nothing for a request.
//! *Bounds*: one entry per open connection.
//! *Source*: fencing by generation, as in the sessions of NFSv4.1 (RFC 8881, section 2.10).
use penstock_wire::LinkName;
use std::collections::HashMap;

/// What stands before a connection that wants to open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing: it is open now.
    Nothing,
    /// An older connection of its link, by number: it has to end first.
    Older(u64),
    /// A newer one: this one comes too late.
    Newer,
}

/// The open connections of a server, by link.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    open: HashMap<[u8; 32], (u64, u64)>,
}

impl Fence {
    /// What stands before `connection`.
    pub(crate) fn look(&self, name: &LinkName) -> Before {
        match self.open.get(&name.link) {
            None => Before::Nothing,
            Some((generation, older)) if *generation < name.generation => Before::Older(*older),
            Some(_) => Before::Newer,
        }
    }

    /// `connection` speaks for the link from now on. Nothing may stand before it.
    pub(crate) fn open(&mut self, name: &LinkName, connection: u64) {
        self.open.insert(name.link, (name.generation, connection));
    }

    /// `connection` has ended, with all that it was doing.
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
        // Links do not know each other, and the end of an old connection does not open the way past a new one.
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
