//! The connection of all grants of a server: grants end with it ([`crate::shortcut`]).
use crate::link::Link;
use penstock_host::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The connection that all grants of a server came over.
#[derive(Debug)]
pub(crate) struct GrantLink {
    pub link: Mutex<Link>,
    /// The server has ended, or the connection was lost.
    pub dead: AtomicBool,
}

impl GrantLink {
    /// Checks whether the server is still there.
    pub fn is_alive(&self) -> bool {
        if self.dead.load(Relaxed) {
            return false;
        }
        // A thread that uses the connection will find out by itself.
        if let Some(link) = self.link.try_lock()
            && !link.is_open()
        {
            self.dead.store(true, Relaxed);
            return false;
        }
        true
    }
}
