//! What only objects can that are files of this host: other processes map and write them, past the store.
use crate::view::View;
use penstock_host::sync::RwLockGuard;
use penstock_layout::ObjectOffset;
use std::os::fd::BorrowedFd;

/// An object with a descriptor.
pub trait Mappable {
    /// For clients of this host, and for mappings of it.
    fn fd(&self) -> BorrowedFd<'_>;

    /// As long as this is held nobody cuts anything off through this object. Whoever stores through a mapping of it holds
    /// this: a page is there for its whole length, and what is stored behind a new end would come back with the next
    /// bytes behind it (on tmpfs; POSIX leaves it open). `None` where somebody else sees to that.
    fn steady(&self) -> Option<RwLockGuard<'_>> {
        None
    }

    /// Bytes have been stored through a mapping or a descriptor of it, which the backend does not see: they have to be
    /// synced before it may be closed.
    fn note_changes(&self) {}

    /// Somebody has let go of the descriptor and may have made the object longer: notes how long it is.
    fn observe(&self) {}

    /// Whether [`Self::view`] is worth asking.
    fn maps(&self) -> bool {
        false
    }

    /// `len` bytes in place of `calls` reads within them, where that is cheaper.
    fn view(&self, _at: ObjectOffset, _len: u64, _calls: u64) -> Option<View> {
        None
    }
}
