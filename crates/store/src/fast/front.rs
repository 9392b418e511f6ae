//! What an object has beside its bytes in the log: who cuts it, and what of it the slow storage has not synced.
use penstock_host::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicI64};

/// One for all who have the object open. It stays until the table of them grows; a new one knows nothing, and its first sync
/// goes to the slow store too.
pub(crate) struct Front {
    /// Taken by whoever cuts or removes it, shared by those who read, write and bring home.
    pub(crate) gate: RwLock,
    /// Written past the log since the last sync of the slow store, as far as is known.
    pub(crate) unsynced: AtomicBool,
    /// Made in the slow store and not synced there: its records in the log make it again, if there are any.
    pub(crate) made: AtomicBool,
    /// It has lost its name: nothing of it goes to the log any more.
    pub(crate) removed: AtomicBool,
    /// Last write to the log, nanoseconds since the epoch.
    pub(crate) modified: AtomicI64,
}

impl Front {
    /// `made`: just now, with nothing in it.
    pub(crate) fn new(made: bool) -> Front {
        Front {
            gate: RwLock::new(),
            unsynced: AtomicBool::new(!made),
            made: AtomicBool::new(made),
            removed: AtomicBool::new(false),
            modified: AtomicI64::new(0),
        }
    }
}
