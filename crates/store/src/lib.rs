//! Where bytes live: objects of one data server.
//!
//! A [`Store`] keeps one [`Object`] per file: a sparse run of bytes. Backends, one file each:
//! `dir` (sparse files in a directory, checksummed records), `memory` (one memfd per object), and `modelled` (one of
//! these behind the times of a modelled device).
//! `fast` is a fast tier before another one.
//! The minimal backend is `memory`: read it first. An [`Execution`] carries out one structured access
//! against one object, for the data server and for clients that hold a descriptor of the object.

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

/// Opens the store of data server `server` named by `spec`: `dir:PATH`, `memory`, or `model:DEVICE[,key=value...][,dir=PATH]`
/// (a modelled device over a directory, or over memory). `fast:DIR[,queue=BYTES];SPEC`: a fast tier before another one. A
/// directory without a store is made one.
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

/// The same as a new store in place of another: objects with ids below `lost_below` are lost until each is made anew or
/// accepted. What is in a directory without a store, or of another deployment, is not touched.
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

/// The directory of a store that has one.
fn directory(spec: &str) -> Option<&Path> {
    let spec = tiered(spec).map_or(spec, |(_, inner)| inner);
    let path = match spec.strip_prefix("model:") {
        Some(text) => text.split_once(",dir=")?.1,
        None => spec.strip_prefix("dir:")?,
    };
    (!path.is_empty()).then(|| Path::new(path))
}

/// What a store keeps of its server's, beside the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// What the server knows of the time.
    Clock,
    /// Whether users have limits on bytes.
    Limits,
    /// Its fast tier, if it has one.
    Fast,
}

/// Objects of one data server.
pub trait Store: Send + Sync {
    /// Opens an object; creates it empty when `create`. A creation is durable after [`Self::sync`] or
    /// the object's own sync.
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError>;

    /// Removes an object. Those who hold it open keep its bytes until they let go.
    fn remove(&self, id: FileId) -> Result<(), StoreError>;

    /// At most `limit` object ids with their lengths, the smallest of those after `after`, ascending. A page shorter
    /// than `limit` is the last one.
    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError>;

    /// All object ids with their lengths. Memory grows with their number: a server pages instead.
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

    /// Closes some objects that nobody uses, because descriptors have run out. False: there are none.
    fn relieve(&self) -> bool {
        false
    }

    /// Makes creations and removals durable.
    fn sync(&self) -> Result<(), StoreError>;

    /// Names the page cache that holds what is written and not synced. As long as the name is the same, nothing
    /// acknowledged is lost; one that has ended never comes back.
    fn incarnation(&self) -> [u8; 16];

    /// Descriptors for writing leave that may outlive the server: a clean stop cannot sync what comes by them.
    fn share(&self) {}

    /// The server stops and nobody writes any more: what is there becomes durable, and the next server goes on with the
    /// same incarnation.
    fn stop(&self) {}

    /// (total bytes, free bytes).
    fn space(&self) -> Result<(u64, u64), StoreError>;

    /// Looks for damage without reading all data: bad records, truncated objects, foreign files,
    /// files that cannot be opened. May run beside normal work. The error is for a check that could
    /// not go on.
    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError>;

    /// Accepts a damaged object as it is: its present length becomes the recorded one, so that it can
    /// be used again. The missing bytes are lost: report them first.
    fn accept(&self, id: FileId) -> Result<(), StoreError>;

    /// Makes an object that the store has lost anew and empty; opens or makes any other.
    fn renew(&self, id: FileId) -> Result<Arc<dyn Object>, StoreError> {
        self.open(id, true)
    }

    /// By what the metadata server knows it; `None` where nothing outlives the process.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// The highest id of a file that the store has had an object of, 0 if none, as far as it is noted; with `look` also of
    /// objects that are there and not noted yet.
    fn highest(&self, look: bool) -> Result<u64, StoreError> {
        let _ = look;
        Ok(0)
    }

    /// Raises the generation, on stable storage. The metadata server is going to hear of it.
    fn next_generation(&self) -> Result<Option<Identity>, StoreError> {
        Ok(None)
    }

    /// The metadata server has heard of the present generation: noted on stable storage.
    fn note_heard(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Syncs objects that were never synced or have grown since, so that their loss would be noticed. After each batch `go_on`
    /// hears how long it took and says whether to go on. Returns whether objects were made or removed for good since the last time.
    fn sync_unsynced(&self, go_on: &mut dyn FnMut(Duration) -> bool) -> Result<bool, StoreError> {
        let _ = go_on;
        Ok(false)
    }

    /// Objects with lower ids were in a store that this one replaced.
    fn lost_below(&self) -> u64 {
        0
    }

    /// What [`Store::keep`] kept last, at most a few thousand bytes, if it can be read.
    fn kept(&self, note: Note) -> Option<String> {
        let _ = note;
        None
    }

    /// Keeps a note of the server's, on stable storage, where anything is kept.
    fn keep(&self, note: Note, text: &str) -> Result<(), StoreError> {
        let _ = (note, text);
        Ok(())
    }

    /// Its fast tier, if it has one.
    fn fast(&self) -> Option<&dyn FastTier> {
        None
    }

    /// What and where, for people.
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

    /// Reads into several buffers in turn; short only at the object's end. What the slices point to
    /// afterwards is unspecified; the bytes are in the buffers.
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

    /// How many bytes long its file is, also where the object is damaged and [`Object::len`] fails: for whoever counts bytes.
    fn stored_len(&self) -> Result<u64, StoreError> {
        self.len()
    }

    /// Whether the object has no bytes.
    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends (with a hole) to `len` bytes.
    fn set_len(&self, len: u64) -> Result<(), StoreError>;

    /// Cuts to `len` bytes what is at most `end` bytes long; false: it is longer, and nothing was done. A write through this
    /// object that makes it longer comes before or after the two, not between them.
    fn cut(&self, len: u64, end: u64) -> Result<bool, StoreError> {
        let short = self.len()? <= end;
        if short {
            self.set_len(len)?;
        }
        Ok(short)
    }

    /// Makes it at least `len` bytes long (with a hole) without cutting anything off, whoever else writes. False where the
    /// backend cannot do that in one step: keep writers away, look how long it is, and use [`Object::set_len`].
    fn extend(&self, len: u64) -> Result<bool, StoreError> {
        let _ = len;
        Ok(false)
    }

    /// Reserves space (fallocate) without changing contents or length, where the backend can.
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError>;

    /// Holds the space that the object lacks for its first `len` bytes, without touching it, so that a failed
    /// reservation leaves nothing behind. `None` where nothing is missing or the backend cannot hold space.
    fn hold(&self, len: u64) -> Result<Option<Reservation>, StoreError> {
        let _ = len;
        Ok(None)
    }

    /// Data, length and existence on stable storage.
    fn sync(&self) -> Result<(), StoreError>;

    /// When bytes or length were last changed, nanoseconds since the epoch.
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

    /// What it can as a file of this host; `None` where it is none, or is damaged.
    fn mappable(&self) -> Option<&dyn Mappable> {
        None
    }
}
