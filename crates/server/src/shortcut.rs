//! Shortcuts: descriptors of objects passed to clients on the same host.
//!
//! *Problem*: through a socket every byte is copied twice more than needed. *Idea*: the client gets a descriptor of the
//! object and a grant page ([`penstock_rpc::grant`]) by which the server can revoke it. *When*: the client is on a Unix
//! socket, the backend has descriptors, and no policy must see each request. No lock on the object is held or
//! requested.
//!
//! The object is opened anew with exactly the capability's rights: descriptor flags that a client sets are its own, and
//! a reader cannot write.
use crate::owner::Owner;
use penstock_rpc::grant::GrantPage;
use penstock_rpc::share::Charge;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Grants in use of one connection for one object.
const MAX_GRANTS: usize = 4;

/// Shortcuts to one object that may be in use.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    given: Vec<(Owner, Arc<GrantPage>, Charge)>,
}

impl Grants {
    /// Adds a grant; false if the connection has too many for this object already.
    pub(crate) fn add(&mut self, owner: Owner, page: Arc<GrantPage>, charge: Charge) -> bool {
        // A revoked one stays as long as an operation is in progress: a later lock must wait for it too.
        self.forget_inactive();
        if self.given.iter().filter(|(o, ..)| *o == owner).count() >= MAX_GRANTS {
            return false;
        }
        self.given.push((owner, page, charge));
        true
    }

    /// Forbids new operations under all grants; the caller waits for those in progress.
    pub(crate) fn revoke_all(&mut self) -> Vec<(Owner, Arc<GrantPage>)> {
        let revoked = self.given.iter().map(|(owner, page, _)| {
            page.revoke();
            (*owner, page.clone())
        });
        revoked.collect()
    }

    /// Drops those that were revoked and have no operation under way.
    pub(crate) fn forget_inactive(&mut self) {
        let now = penstock_host::time::now();
        self.given
            .retain(|(_, page, _)| !(page.is_revoked() && page.wait_inactive(now)));
    }

    /// The connection has ended, and its operations with it.
    pub(crate) fn retire(&mut self, owner: Owner) {
        self.given.retain(|(o, page, _)| {
            if *o == owner {
                page.retire();
            }
            *o != owner
        });
    }
}

/// A new description of the same file with these rights.
pub(crate) fn reopen(object: BorrowedFd<'_>, read: bool, write: bool) -> std::io::Result<OwnedFd> {
    let access = match (read, write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let path = format!("/proc/self/fd/{}", object.as_raw_fd());
    Ok(rustix::fs::open(
        path,
        access | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::LockLimits;
    use crate::objects::{Objects, Waits};
    use penstock_layout::{FileId, ObjectOffset};
    use penstock_store::StoreError;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    /// The store does not see clients' writes by descriptors: an object that was passed counts as written.
    #[test]
    fn what_was_lent_is_synced_before_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("dir:{}", dir.path().display());
        let waits = Waits {
            locks: LockLimits {
                lease: Duration::ZERO,
                strangers: Duration::ZERO,
                waiters: 0,
                per_owner: 0,
            },
            write: Duration::ZERO,
            revoke: Duration::ZERO,
        };
        let store = penstock_store::open(&spec, "d", 0).unwrap();
        let objects = Objects::new(store, waits, 1);
        let owner = Owner {
            connection: 1,
            user: 7,
            payer: Some(7),
            process: None,
        };
        let id = FileId(5);
        let open = objects.open(id);
        let object = objects.created(&open, owner).unwrap();
        object.write_at(ObjectOffset(0), b"synced").unwrap();
        open.pin(&object, owner).unwrap();
        let lent = File::from(reopen(object.mappable().unwrap().fd(), true, true).unwrap());
        objects.sync(&*object).unwrap();
        // After a sync, by the descriptor alone.
        lent.write_all_at(b"by descriptor", 1000).unwrap();
        drop((lent, object, open));
        // One object stays open in each part of the store's cache: this one, of the same part.
        let _held = objects.store().open(FileId(21), true).unwrap();
        while objects.store().relieve() {}
        // A sync has recorded the length: the cut is noticed when the object is opened again.
        let path = dir.path().join("objects/05/0000000000000005");
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(500)
            .unwrap();
        let found = objects.store().open(id, false).unwrap();
        let read = found.read_at(ObjectOffset(400), &mut [0; 1000]);
        assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
    }
}
