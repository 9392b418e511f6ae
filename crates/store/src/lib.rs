//! Storage of bytes: the objects of one data server.
//!
//! A [`Store`] has one [`Object`] per file: a sparse run of bytes. Backends, one file each: `dir` (sparse files in a
//! directory, checksummed records), `memory` (one memfd per object), and `modelled` (either on a modelled device). `fast`
//! is a fast tier before another one. The minimal backend is `memory`: read it first. An [`Execution`] carries out one
//! structured access against one object, for the data server and for clients that hold a descriptor of the object.

mod cache;
mod descriptor;
pub mod descriptors;
mod dir;
mod error;
mod execute;
mod fast;
#[cfg(test)]
mod full_disk;
mod incarnation;
mod inspect;
mod manifest;
mod mappable;
mod mapped;
mod mapping;
mod memory;
mod modelled;
mod object;
mod record;
mod replace;
mod spread;
mod store_root;
mod superblock;
#[cfg(test)]
mod tests;
mod unsynced;
mod view;
mod window;

pub use descriptor::Descriptor;
pub use error::{Finding, Problem, StoreError};
pub use execute::{End, Execution, Scratch};
pub use fast::{FastSpec, FastStatus, FastTier};
pub use inspect::{Inspection, State, inspect};
pub use mappable::Mappable;
pub use mapped::{Mapped, Maps};
pub use penstock_tier::Mode as FastMode;
pub use superblock::Identity;
pub use view::View;

use penstock_host::reservation::Reservation;
use penstock_layout::{FileId, ObjectOffset};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Opens the store of data server `server` as specified: `dir:PATH`, `memory`, or
/// `model:DEVICE[,key=value...][,dir=PATH]` (a modelled device over a directory, or over memory).
/// `fast:DIR[,queue=BYTES];SPEC` is a fast tier before another one. A directory without a store is initialised; errors
/// say what is wrong and with which path.
pub fn open(spec: &str, deployment_id: &str, server: u32) -> Result<Box<dyn Store>, StoreError> {
    open_tiered(spec, deployment_id, server, &|path| {
        dir::DirStore::open(path, deployment_id, server)
    })
}

/// The parts of a description of a fast tier and what is behind it.
pub fn tiered(spec: &str) -> Option<(&str, &str)> {
    spec.strip_prefix("fast:")?.split_once(';')
}

/// Opens a store with its tier, if it has one; one that has is not opened without.
fn open_tiered(
    spec: &str,
    deployment_id: &str,
    server: u32,
    open_dir: &dyn Fn(&Path) -> Result<dir::DirStore, StoreError>,
) -> Result<Box<dyn Store>, StoreError> {
    if let Some((fast, inner)) = tiered(spec) {
        let fast = FastSpec::parse(fast).map_err(|why| StoreError::Fast {
            path: fast.to_owned(),
            why,
        })?;
        let inner = open_with(inner, open_dir)?;
        let store = fast::FastStore::open(&fast, inner, deployment_id, server)?;
        return Ok(Box::new(store));
    }
    let store = open_with(spec, open_dir)?;
    fast::Tie::refuse_alone(store.kept(Note::Fast).as_deref(), &store.describe())?;
    Ok(store)
}

/// The same for a new store replacing another one: objects with ids below `lost_below` are lost until each is made
/// again or accepted. A directory without a store, or of another deployment, is not changed.
pub fn open_new(
    spec: &str,
    deployment_id: &str,
    server: u32,
    lost_below: u64,
) -> Result<Box<dyn Store>, StoreError> {
    open_tiered(spec, deployment_id, server, &|path| {
        dir::DirStore::renew(path, deployment_id, server, lost_below)
    })
}

fn open_with(
    spec: &str,
    open_dir: &dyn Fn(&Path) -> Result<dir::DirStore, StoreError>,
) -> Result<Box<dyn Store>, StoreError> {
    if spec == "memory" {
        return Ok(Box::new(memory::MemoryStore::new()?));
    }
    if let Some(text) = spec.strip_prefix("model:") {
        let (text, inner) = match text.split_once(",dir=") {
            Some((text, path)) => (text, format!("dir:{path}")),
            None => (text, "memory".to_owned()),
        };
        let model = penstock_device::Model::parse(text)
            .map_err(|e| StoreError::Model(spec.to_owned(), e))?;
        let inner = open_with(&inner, open_dir)?;
        return Ok(Box::new(modelled::ModelStore::new(&model, inner)));
    }
    match directory(spec) {
        Some(path) => Ok(Box::new(open_dir(path)?)),
        None => Err(StoreError::Spec(spec.to_owned())),
    }
}

/// The directory of a store, if it has one.
fn directory(spec: &str) -> Option<&Path> {
    let spec = tiered(spec).map_or(spec, |(_, inner)| inner);
    let path = match spec.strip_prefix("model:") {
        Some(text) => text.split_once(",dir=")?.1,
        None => spec.strip_prefix("dir:")?,
    };
    (!path.is_empty()).then(|| Path::new(path))
}

/// Data that a store keeps for its server beside the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The server's record of the time.
    Clock,
    /// Whether users have quotas on bytes.
    Limits,
    /// Its fast tier, if it has one.
    Fast,
}

/// Objects of one data server.
pub trait Store: Send + Sync {
    /// Opens an object; creates it empty when `create`. A creation is durable after [`Self::sync`] or
    /// the object's own sync.
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError>;

    /// Removes an object. Clients that have it open keep its bytes until they close it.
    fn remove(&self, id: FileId) -> Result<(), StoreError>;

    /// At most `limit` object ids with their lengths: the smallest ids greater than `after`, ascending. A page shorter
    /// than `limit` is the last one.
    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError>;

    /// All object ids with their lengths. Memory grows with their number: servers page instead.
    fn list(&self) -> Result<Vec<(FileId, u64)>, StoreError> {
        const PAGE: usize = 4096;
        let mut all = Vec::new();
        loop {
            let page = self.list_after(all.last().map(|(id, _)| *id), PAGE)?;
            let more = page.len() == PAGE;
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Closes some idle objects, because descriptors have run out. False: there are none.
    fn relieve(&self) -> bool {
        false
    }

    /// Makes creations and removals durable.
    fn sync(&self) -> Result<(), StoreError>;

    /// Identifies the page cache of written and unsynced data. While it stays the same, nothing acknowledged is lost;
    /// one that has ended never returns.
    fn incarnation(&self) -> [u8; 16];

    /// Descriptors for writing are passed to clients that may outlive the server: a clean shutdown cannot sync what
    /// they write.
    fn share(&self) {}

    /// The server stops and nobody writes any more: everything becomes durable, and the next server continues the
    /// incarnation.
    fn stop(&self) {}

    /// (total bytes, free bytes).
    fn space(&self) -> Result<(u64, u64), StoreError>;

    /// Checks for damage without reading all data: bad records, truncated objects, foreign files, files that cannot be
    /// opened. It may run in parallel with normal work. Calls `report` for each finding; the error is that of a check
    /// that could not continue.
    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError>;

    /// Accepts a damaged object as it is: its present length becomes the recorded one, and it can be used again. The
    /// missing bytes are lost: report them first.
    fn accept(&self, id: FileId) -> Result<(), StoreError>;

    /// Makes a lost object again, empty; opens or makes any other.
    fn renew(&self, id: FileId) -> Result<Arc<dyn Object>, StoreError> {
        self.open(id, true)
    }

    /// Its identity for the metadata server; `None` for stores that do not survive the process.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// The highest id of a file that ever had an object, 0 if none, as far as recorded. With `look`, also of existing
    /// objects that are not recorded yet.
    fn highest(&self, look: bool) -> Result<u64, StoreError> {
        let _ = look;
        Ok(0)
    }

    /// Increases the generation, on stable storage. The metadata server is about to be told.
    fn next_generation(&self) -> Result<Option<Identity>, StoreError> {
        Ok(None)
    }

    /// The metadata server knows the present generation: recorded on stable storage.
    fn note_heard(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Background sync: syncs objects that were never synced or have grown since, so that their loss would be detected.
    /// After each batch `go_on` is called with its duration and decides whether to continue. Returns whether objects
    /// were durably made or removed since the last time.
    fn sync_unsynced(&self, go_on: &mut dyn FnMut(Duration) -> bool) -> Result<bool, StoreError> {
        let _ = go_on;
        Ok(false)
    }

    /// Objects with lower ids were in a store that this one has replaced.
    fn lost_below(&self) -> u64 {
        0
    }

    /// The text that [`Store::keep`] stored last, at most a few thousand bytes, if it is readable.
    fn kept(&self, note: Note) -> Option<String> {
        let _ = note;
        None
    }

    /// Stores a text for the server, on stable storage if the backend has any.
    fn keep(&self, note: Note, text: &str) -> Result<(), StoreError> {
        let _ = (note, text);
        Ok(())
    }

    /// Its fast tier, if it has one.
    fn fast(&self) -> Option<&dyn FastTier> {
        None
    }

    /// Backend and path, for messages.
    fn describe(&self) -> String;
}

/// One object: a sparse run of bytes; holes read as zeros.
pub trait Object: Send + Sync {
    /// Reads up to `buf.len()` bytes; short only at the object's end.
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError>;

    /// Writes all of `buf`.
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError>;

    /// Writes all of `buf`, which is part of a request of `whole` bytes to several servers.
    fn write_part_at(&self, at: ObjectOffset, buf: &[u8], whole: u64) -> Result<(), StoreError> {
        let _ = whole;
        self.write_at(at, buf)
    }

    /// Reads into several buffers in turn; short only at the object's end. The slices may point anywhere afterwards;
    /// the bytes are in the buffers.
    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        let mut done = 0;
        for buf in bufs {
            let n = self.read_at(ObjectOffset(at.0 + done as u64), buf)?;
            done += n;
            if n < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all bytes of several buffers in turn.
    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        let mut at = at.0;
        for buf in bufs {
            self.write_at(ObjectOffset(at), buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Length in bytes.
    fn len(&self) -> Result<u64, StoreError>;

    /// Length of its file, also where the object is damaged and [`Object::len`] fails: for counting bytes.
    fn stored_len(&self) -> Result<u64, StoreError> {
        self.len()
    }

    /// Whether the object has no bytes.
    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
    }

    /// Truncates or extends (with a hole) to `len` bytes.
    fn set_len(&self, len: u64) -> Result<(), StoreError>;

    /// Truncates to `len` bytes if the length is at most `end`; false: it is longer, and nothing was done. It is atomic
    /// with respect to extending writes through this object.
    fn cut(&self, len: u64, end: u64) -> Result<bool, StoreError> {
        let short = self.len()? <= end;
        if short {
            self.set_len(len)?;
        }
        Ok(short)
    }

    /// Extends it to at least `len` bytes (with a hole) without truncating concurrent writes. False where the backend
    /// cannot do that in one step: exclude writers, check the length, and use [`Object::set_len`].
    fn extend(&self, len: u64) -> Result<bool, StoreError> {
        let _ = len;
        Ok(false)
    }

    /// Reserves space (fallocate) without changing contents or length, where supported.
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError>;

    /// Reserves the space that the object lacks for its first `len` bytes outside of it, so that a failed reservation
    /// leaves nothing behind. `None` if nothing is missing or the backend cannot reserve.
    fn hold(&self, len: u64) -> Result<Option<Reservation>, StoreError> {
        let _ = len;
        Ok(None)
    }

    /// Makes data, length and existence durable.
    fn sync(&self) -> Result<(), StoreError>;

    /// Time of the last change of bytes or length, nanoseconds since the epoch.
    fn modified_ns(&self) -> Result<i64, StoreError> {
        let Some(file) = self.mappable() else {
            return Ok(0);
        };
        descriptor::modified_ns(file.fd()).map_err(|e| StoreError::Io {
            what: "stat",
            path: "object".into(),
            source: e.into(),
        })
    }

    /// Its operations as a file of this host; `None` if it is none, or is damaged.
    fn mappable(&self) -> Option<&dyn Mappable> {
        None
    }
}
