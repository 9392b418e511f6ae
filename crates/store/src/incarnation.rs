//! The incarnation of a store's page cache: while it stays the same, nothing that was written has been lost (as NFS's
//! write verifier).
//!
//! Problem: a write is acknowledged when it is in the page cache. There it survives the server's process, but not a
//! power loss, and a client that syncs later must learn of that. Idea: 16 random bytes, stored in a file together with
//! the boot of the system and the location of the directory. The next server keeps them if both are the same, or after
//! a clean shutdown. Then the former server synced the file system, and recorded that in the file. Otherwise it draws
//! new ones. Where the system does not identify its boot, each start is a new incarnation. After a kill, the next
//! server syncs the file system before it keeps the incarnation; if that fails, it draws a new one. A write-back
//! failure that no sync of an object reports ends the incarnation too. No sync succeeds until the server is restarted,
//! and a bit of the file's mode ([`crate::unsynced`]) tells the next server. So a running server has one incarnation.
//!
//! ```text
//! penstock incarnation
//! id 5d4b...            16 random bytes
//! boot 1f0c...          boot_id, 0: unknown
//! place 801 9f.. 2      device, file system, inode of the directory
//! clean 0               1: stopped after a sync of the file system
//! crc 0a1b2c3d
//! ```
use crate::replace::replace;
use crate::{StoreError, descriptor, unsynced};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The file's name.
pub(crate) const NAME: &str = "incarnation";
const MAGIC: &str = "penstock incarnation";
/// Longest file read; a valid one has some 200 bytes.
const LIMIT: usize = 1024;

/// The boot in which a directory is used, and its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Where {
    /// 0: unknown, and different from any other.
    boot: u128,
    place: [u64; 3],
}

impl Where {
    fn now(root: BorrowedFd<'_>) -> Result<Where, Errno> {
        let stat = rustix::fs::fstat(root)?;
        let system = rustix::fs::fstatvfs(root)?;
        Ok(Where {
            boot: penstock_host::boot().unwrap_or(0),
            place: [stat.st_dev, system.f_fsid, stat.st_ino],
        })
    }

    /// Whether both have the same page cache.
    fn shares_cache(&self, other: &Where) -> bool {
        self.boot != 0 && self == other
    }
}

/// The contents of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Saved {
    id: [u8; 16],
    at: Where,
    clean: bool,
}

impl Saved {
    fn encode(&self) -> String {
        let [device, system, inode] = self.at.place;
        // Constant length, whatever the numbers.
        let body = format!(
            "{MAGIC}\nid {:032x}\nboot {:032x}\nplace {device:016x} {system:016x} {inode:016x}\nclean {}\n",
            u128::from_be_bytes(self.id),
            self.at.boot,
            u8::from(self.clean)
        );
        let crc = crc32fast::hash(body.as_bytes());
        format!("{body}crc {crc:08x}\n")
    }

    /// Accepts what `encode` produces and nothing else.
    fn decode(text: &str) -> Option<Saved> {
        let mut lines = text.lines().skip(1);
        let mut field = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let id = u128::from_str_radix(field("id")?, 16).ok()?;
        let boot = u128::from_str_radix(field("boot")?, 16).ok()?;
        let mut numbers = field("place")?
            .split(' ')
            .map(|number| u64::from_str_radix(number, 16).ok());
        let mut number = || numbers.next()?;
        let place = [number()?, number()?, number()?];
        let clean = field("clean")? == "1";
        let saved = Saved {
            id: id.to_be_bytes(),
            at: Where { boot, place },
            clean,
        };
        (saved.encode() == text).then_some(saved)
    }
}

/// The incarnation of a running server.
pub(crate) struct Incarnation {
    saved: Saved,
    root: OwnedFd,
    /// Gets the mark if the incarnation ends before its server.
    file: Option<OwnedFd>,
    /// Whether nobody but this server can have written anything that a clean shutdown would not sync.
    alone: AtomicBool,
}

impl Incarnation {
    /// Opens that of the store in the directory `root` (at `path`), or draws a new one. An unwritable file is no error:
    /// the next server then draws a new one.
    pub(crate) fn open(root: BorrowedFd<'_>, path: &str) -> Result<Incarnation, StoreError> {
        let error = |e| StoreError::from_errno("read incarnation of", path, e);
        let at = Where::now(root).map_err(error)?;
        let (file, before) = load(root).map_err(error)?;
        let marked = match &file {
            Some(file) => unsynced::marked(&rustix::fs::fstat(file).map_err(error)?),
            None => false,
        };
        if file.is_some() && before.is_none() {
            log::warn!("{path}/{NAME} is damaged: what was not synced counts as lost");
        }
        let same_cache = before.is_some_and(|b| !b.clean && b.at.shares_cache(&at));
        let kept = before.filter(|b| !marked && (b.clean || b.at.shares_cache(&at)));
        let kept = match (kept, &file) {
            (Some(before), Some(file)) if !before.clean => {
                take_over(root, file, path)?.then_some(before)
            }
            (kept, _) => kept,
        };
        let mut incarnation = Incarnation {
            saved: Saved {
                id: [0; 16],
                at,
                clean: false,
            },
            root: root
                .try_clone_to_owned()
                .map_err(|e| error(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?,
            file,
            // A killed server may have left descriptors with suspended clients.
            alone: AtomicBool::new(!same_cache),
        };
        match kept {
            Some(kept) => incarnation.saved.id = kept.id,
            None => penstock_host::random(&mut incarnation.saved.id).map_err(|source| {
                StoreError::Io {
                    what: "draw an incarnation for",
                    path: path.to_owned(),
                    source,
                }
            })?,
        }
        if kept.is_some_and(|kept| !kept.clean) {
            return Ok(incarnation);
        }
        if let Err(e) = incarnation.write() {
            log::warn!(
                "{path}/{NAME} cannot be written ({e}): what is not synced counts as lost at the next start"
            );
            if kept.is_some() {
                // The file still records a clean shutdown, so its incarnation must not get any more writes.
                penstock_host::random(&mut incarnation.saved.id).map_err(|source| {
                    StoreError::Io {
                        what: "draw an incarnation for",
                        path: path.to_owned(),
                        source,
                    }
                })?;
            }
            incarnation.alone = AtomicBool::new(false);
        }
        Ok(incarnation)
    }

    fn write(&mut self) -> Result<(), Errno> {
        replace(self.root.as_fd(), NAME, self.saved.encode().as_bytes())?;
        penstock_host::fs::fsync(&self.root)?;
        self.file = load(self.root.as_fd())?.0;
        Ok(())
    }

    /// Its 16 bytes.
    pub(crate) fn id(&self) -> [u8; 16] {
        self.saved.id
    }

    /// Ends it: written data may be lost although everything looks intact.
    pub(crate) fn end(&self, path: &str) {
        self.alone.store(false, SeqCst);
        let marked = match &self.file {
            Some(file) => unsynced::mark(file.as_fd()),
            None => Ok(()),
        };
        let gone = marked.or_else(|_| penstock_host::fs::unlinkat(&self.root, NAME));
        if let Err(e) = gone {
            log::error!("{path}/{NAME} cannot be marked: remove it before the next start: {e}");
        }
    }

    /// Others may write to the store, even after its server has ended.
    pub(crate) fn share(&self) {
        self.alone.store(false, SeqCst);
    }

    /// Nobody writes any more: if everything can be made durable, the incarnation survives boots and moves.
    pub(crate) fn stop(&self, path: &str) {
        if !self.alone.load(SeqCst) {
            return;
        }
        let clean = Saved {
            clean: true,
            ..self.saved
        };
        let done = penstock_host::fs::syncfs(&self.root)
            .and_then(|()| replace(self.root.as_fd(), NAME, clean.encode().as_bytes()))
            .and_then(|()| penstock_host::fs::fsync(&self.root));
        if let Err(e) = done {
            log::error!("{path}: not everything is on stable storage: {e}");
            self.end(path);
        }
    }
}

/// Checks that nothing is lost that a killed server of this boot has written. Its files are closed, so a failed
/// write-back of one would be forgotten with the file's inode; the file system reports all of them.
fn take_over(root: BorrowedFd<'_>, file: &OwnedFd, path: &str) -> Result<bool, StoreError> {
    let Err(e) = penstock_host::fs::syncfs(root) else {
        return Ok(true);
    };
    log::error!("{path}: what was written before this start may be lost: {e}");
    // The system reports it once: the next server must not keep the incarnation either.
    unsynced::mark(file.as_fd())
        .or_else(|_| penstock_host::fs::unlinkat(root, NAME))
        .map_err(|e| {
            StoreError::from_errno("mark the incarnation after a failed sync of", path, e)
        })?;
    Ok(false)
}

/// The file in `root`, and its contents if it is intact.
fn load(root: BorrowedFd<'_>) -> Result<(Option<OwnedFd>, Option<Saved>), Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(root, NAME, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok((None, None)),
        other => other?,
    };
    let mut bytes = vec![0; LIMIT];
    let n = descriptor::read_at(file.as_fd(), 0, &mut bytes)?;
    let saved = std::str::from_utf8(&bytes[..n])
        .ok()
        .and_then(Saved::decode);
    Ok((Some(file), saved))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(dir: &tempfile::TempDir) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap()
    }

    fn edit(dir: &tempfile::TempDir, change: impl FnOnce(&mut Saved)) {
        let path = dir.path().join(NAME);
        let mut saved = Saved::decode(&std::fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut saved);
        std::fs::write(path, saved.encode()).unwrap();
    }

    #[test]
    fn a_killed_servers_incarnation_lasts_as_long_as_its_boot() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        let open = || Incarnation::open(root.as_fd(), "d").unwrap();
        let first = open().id();
        assert_eq!(open().id(), first);
        edit(&dir, |saved| saved.at.boot ^= 1);
        let second = open().id();
        assert_ne!(second, first);
        edit(&dir, |saved| saved.at.place[1] ^= 1);
        let third = open().id();
        assert!(third != second && third != first);
        assert_eq!(open().id(), third);
        edit(&dir, |saved| saved.at.boot = 0);
        assert_ne!(open().id(), third, "a boot without a name is no other's");
    }

    #[test]
    fn a_clean_stop_keeps_it_and_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        let open = || Incarnation::open(root.as_fd(), "d").unwrap();
        let first = open();
        first.stop("d");
        edit(&dir, |saved| saved.at.boot ^= 1);
        let second = open();
        assert_eq!(second.id(), first.id());
        edit(&dir, |saved| saved.at.boot ^= 1);
        assert_ne!(open().id(), first.id(), "the second did not stop");
    }

    #[test]
    fn who_lends_does_not_stop_cleanly() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        let open = || Incarnation::open(root.as_fd(), "d").unwrap();
        let first = open();
        first.share();
        first.stop("d");
        // Nor does a server after a killed one.
        let second = open();
        assert_eq!(second.id(), first.id());
        second.stop("d");
        edit(&dir, |saved| saved.at.boot ^= 1);
        assert_ne!(open().id(), first.id());
    }

    #[test]
    fn an_incarnation_that_has_ended_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        let open = || Incarnation::open(root.as_fd(), "d").unwrap();
        let first = open();
        first.end("d");
        let second = open();
        assert_ne!(second.id(), first.id());
        std::fs::write(dir.path().join(NAME), b"penstock incarnation\n").unwrap();
        assert_ne!(open().id(), second.id(), "damaged");
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let saved = Saved {
            id: [7; 16],
            at: Where {
                boot: 9,
                place: [1, 2, u64::MAX],
            },
            clean: false,
        };
        let text = saved.encode();
        assert_eq!(Saved::decode(&text), Some(saved));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert_eq!(Saved::decode(&changed), None, "byte {at}");
            }
            assert_eq!(Saved::decode(&text[..at]), None, "cut at {at}");
        }
    }
}
