//! A client's share of its program's limit of open files: a quarter. It never raises the limit.
//!
//! Problem: take a program with a limit of 1,024 and 1,000 files, each with an object on four servers of its host. It
//! would have no descriptor left for its own files. Idea: connections come first, then descriptors of objects up to the
//! quarter; all other accesses use requests, which need no descriptor.
use penstock_store::descriptors;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The share of one client.
#[derive(Debug)]
pub(crate) struct Descriptors {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// One descriptor; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorSlot(Arc<AtomicUsize>);

impl Drop for DescriptorSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Descriptors {
    /// The share of a client of so many servers, with at most so many connections to each, which are made fewer if need
    /// be.
    pub(crate) fn share(servers: usize, connections: &mut usize) -> Descriptors {
        Descriptors::of(descriptors::quarter(), servers, connections)
    }

    fn of(share: usize, servers: usize, connections: &mut usize) -> Descriptors {
        *connections = (*connections).min(share / 2 / servers).max(1);
        // One more to each server: the connection for grants.
        let connected = (*connections + 1) * servers;
        Descriptors {
            most: share.saturating_sub(connected),
            taken: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// Takes one, if there is one left.
    pub(crate) fn place(&self) -> Option<DescriptorSlot> {
        let taken = self.taken.fetch_add(1, SeqCst);
        let place = DescriptorSlot(self.taken.clone());
        (taken < self.most).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_holds_connections_and_descriptors() {
        let mut connections = 4;
        let share = Descriptors::of(256, 5, &mut connections);
        assert_eq!(connections, 4);
        let places: Vec<_> = std::iter::from_fn(|| share.place()).collect();
        assert_eq!(places.len() + 5 * 5, 256);
        drop(places);
        assert!(share.place().is_some());
        // Hardly any: connections are made fewer, and one to each server there must be.
        let share = Descriptors::of(8, 5, &mut connections);
        assert_eq!(connections, 1);
        assert!(share.place().is_none());
    }
}
