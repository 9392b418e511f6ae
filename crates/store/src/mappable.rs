//! Operations of objects that are files of this host: other processes may map and write them directly.
use crate::view::View;
use penstock_host::sync::RwLockGuard;
use penstock_layout::ObjectOffset;
use std::os::fd::BorrowedFd;

/// An object with a descriptor.
pub trait Mappable {
    /// The descriptor, for clients of this host and for mappings.
    fn fd(&self) -> BorrowedFd<'_>;

    /// While this is held nobody truncates the file through this object. Hold it while storing through a mapping. A
    /// page exists in full. What is stored beyond a new end would reappear with the next bytes after it (on tmpfs;
    /// POSIX leaves it open). `None` where the caller need not do this.
    fn steady(&self) -> Option<RwLockGuard<'_>> {
        None
    }

    /// Bytes were stored through a mapping or a descriptor, unknown to the backend: they must be synced before it may
    /// be closed.
    fn note_changes(&self) {}

    /// A client has released the descriptor and may have extended the object: records its length.
    fn observe(&self) {}

    /// Whether [`Self::view`] may return something.
    fn maps(&self) -> bool {
        false
    }

    /// A view of `len` bytes instead of `calls` reads within them, where that is cheaper.
    fn view(&self, _at: ObjectOffset, _len: u64, _calls: u64) -> Option<View> {
        None
    }
}
