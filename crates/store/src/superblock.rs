//! The superblock of a store directory: for whom it was made, its identity, and the form of its records.
//!
//! The store's id and generation tell the metadata server whether this is the expected store. Another one, an empty one
//! or an older copy is refused (docs/decisions/0015).
//!
//! A few lines of text with a checksum: readable by people, and a torn or edited one is detected. Replaced atomically:
//! temporary file, fsync, rename, fsync of the directory.
use crate::StoreError;
use crate::record::Records;
use crate::replace::replace;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

pub(crate) const NAME: &str = "superblock";
const MAGIC: &str = "penstock store";
const VERSION: u32 = 2;
/// Longest superblock read; a valid one has some 150 bytes.
const LIMIT: usize = 4096;

/// The fields that are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) deployment: String,
    pub(crate) server: u32,
    pub(crate) records: Records,
    pub(crate) identity: Identity,
    /// Objects with lower ids are lost unless they are in the manifest: this store has replaced one with them.
    pub(crate) lost_below: u64,
}

/// The fields that are read: stores of version 1 have no identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) deployment: String,
    pub(crate) server: u32,
    pub(crate) records: Records,
    pub(crate) identity: Option<Identity>,
    pub(crate) lost_below: u64,
}

/// A store's identity for the metadata server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Random, made with the store.
    pub store: u128,
    /// Increased at each start and whenever objects are entered into the manifest: an older copy has a lower one.
    pub generation: u64,
    /// Whether a metadata server knows the store.
    pub registered: bool,
    /// Whether it knows this generation.
    pub heard: bool,
}

impl Identity {
    /// The identity of a new store.
    pub(crate) fn new() -> std::io::Result<Identity> {
        let mut store = [0; 16];
        penstock_host::random(&mut store)?;
        Ok(Identity {
            store: u128::from_le_bytes(store),
            generation: 0,
            registered: false,
            heard: false,
        })
    }
}

impl Superblock {
    /// All superblocks of a store have the same length, so that one can be overwritten on a full disk.
    fn encode(&self) -> String {
        let body = format!(
            "{MAGIC}\nversion {VERSION}\ndeployment {}\nserver {}\nrecords {}\nstore {:032x}\ngeneration {:020}\nregistered {}\nlost-below {:020}\n",
            self.deployment,
            self.server,
            self.records.name(),
            self.identity.store,
            self.identity.generation,
            u8::from(self.identity.registered) + u8::from(self.identity.heard),
            self.lost_below,
        );
        closed(&body)
    }

    /// Accepts only output of `encode`, also of version 1; the error says what is wrong.
    fn decode(text: &str) -> Result<Found, String> {
        let end = text.rfind("crc ").ok_or("no checksum line")?;
        let (body, crc) = text.split_at(end);
        let crc = u32::from_str_radix(crc["crc ".len()..].trim_end(), 16)
            .map_err(|_| "checksum is no number")?;
        if crc != crc32fast::hash(body.as_bytes()) {
            return Err("checksum does not match".to_owned());
        }
        let mut lines = body.lines();
        if lines.next() != Some(MAGIC) {
            return Err(format!("does not begin with {MAGIC:?}"));
        }
        let mut field = |key: &str| {
            let value = lines.next().and_then(|line| line.strip_prefix(key));
            value
                .and_then(|v| v.strip_prefix(' '))
                .ok_or_else(|| format!("line {key:?} is missing"))
        };
        let version = field("version")?;
        if !["1", "2"].contains(&version) {
            return Err(format!(
                "format version {version}; this release reads 1 and {VERSION}"
            ));
        }
        let deployment = field("deployment")?.to_owned();
        let server = field("server")?
            .parse()
            .map_err(|_| "server is no number")?;
        let records = Records::from_name(field("records")?).ok_or("unknown kind of records")?;
        let (mut identity, mut lost_below) = (None, 0);
        if version != "1" {
            let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
            let store =
                u128::from_str_radix(field("store")?, 16).map_err(|_| "store is no number")?;
            let generation = number(field("generation")?)?;
            // 2: also this generation.
            let registered = field("registered")?;
            identity = Some(Identity {
                store,
                generation,
                registered: registered != "0",
                heard: registered == "2",
            });
            lost_below = number(field("lost-below")?)?;
        }
        if lines.next().is_some() || closed(body) != text {
            return Err("unexpected lines".to_owned());
        }
        Ok(Found {
            deployment,
            server,
            records,
            identity,
            lost_below,
        })
    }

    /// Writes it into the directory `root` (at `path`), durably.
    pub(crate) fn store(&self, root: BorrowedFd<'_>, path: &str) -> Result<(), StoreError> {
        let text = self.encode();
        replace(root, NAME, text.as_bytes())
            .or_else(|e| match e {
                Errno::NOSPC | Errno::DQUOT => write_over(root, text.as_bytes()),
                e => Err(e),
            })
            .and_then(|()| penstock_host::fs::fsync(root))
            .map_err(|e| StoreError::from_errno("write superblock of", path, e))
    }

    /// Reads the one in the directory `root` (at `path`); `None` if there is none.
    pub(crate) fn load(root: BorrowedFd<'_>, path: &str) -> Result<Option<Found>, StoreError> {
        let error = |e| StoreError::from_errno("read superblock of", path, e);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat(root, NAME, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(error)?,
        };
        let mut bytes = vec![0; LIMIT];
        let n = crate::descriptor::read_at(file.as_fd(), 0, &mut bytes).map_err(error)?;
        bytes.truncate(n);
        let damaged = |detail: String| StoreError::Damaged {
            path: format!("{path}/{NAME}"),
            what: "superblock".to_owned(),
            detail: format!("{detail}; restore it from a backup or name another directory"),
        };
        let text = String::from_utf8(bytes).map_err(|_| damaged("not text".to_owned()))?;
        Superblock::decode(&text).map(Some).map_err(damaged)
    }
}

/// Overwrites the existing superblock, where the disk has no space for another: less than a sector changes.
fn write_over(root: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(root, NAME, flags, Mode::empty()).map_err(|_| Errno::NOSPC)?;
    if rustix::fs::fstat(&file)?.st_size.unsigned_abs() != bytes.len() as u64 {
        return Err(Errno::NOSPC);
    }
    crate::descriptor::write_at(file.as_fd(), 0, bytes)?;
    penstock_host::fs::fsync(&file)
}

/// With its checksum line.
fn closed(body: &str) -> String {
    format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_noticed() {
        let block = Superblock {
            deployment: "a1b2".to_owned(),
            server: 3,
            records: Records::Attribute,
            identity: Identity {
                store: 7 << 90,
                generation: 12,
                registered: true,
                heard: true,
            },
            lost_below: 99,
        };
        let text = block.encode();
        let found = Superblock::decode(&text).unwrap();
        assert_eq!(found.identity, Some(block.identity));
        assert_eq!((found.server, found.lost_below), (3, 99));
        let old = closed("penstock store\nversion 1\ndeployment d\nserver 1\nrecords beside\n");
        assert_eq!(Superblock::decode(&old).unwrap().identity, None);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(Superblock::decode(&changed).is_err(), "byte {at}");
            }
            assert!(Superblock::decode(&text[..at]).is_err(), "cut at {at}");
        }
        assert!(Superblock::decode("").is_err());
    }
}
