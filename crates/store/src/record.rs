//! The record of an object's synced length, by which truncation from outside is detected.
//!
//! Order on growth: data is synced first, then the record written. After a crash the record never exceeds the data.
//! Order on truncation: the record is lowered first, then the object truncated. Both are stored with the object, in an
//! extended attribute of its file. The file system journals its changes in order with those of the length. Where there
//! are no attributes, the record is a separate file, and each step is synced before the next.
use crate::replace::{Bad, replace};
use penstock_layout::FileId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

const ATTRIBUTE: &str = "user.penstock";
const MAGIC: [u8; 4] = *b"PSR1";
const SIZE: usize = 24;

/// The form of a store's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    /// In the extended attribute `user.penstock` of the object's file.
    Attribute,
    /// A separate file beside the object's, with the suffix `.record`.
    Beside,
}

impl Records {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Records::Attribute => "attribute",
            Records::Beside => "beside",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Records> {
        [Records::Attribute, Records::Beside]
            .into_iter()
            .find(|r| r.name() == name)
    }

    /// The form that the file system of `file` supports. Leaves a trial attribute on it.
    pub(crate) fn supported(file: BorrowedFd<'_>) -> Result<Records, Errno> {
        match penstock_host::fs::fsetxattr(file, ATTRIBUTE, b"trial") {
            // A file system without space for one has attributes.
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(Records::Attribute),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(Records::Beside),
            Err(e) => Err(e),
        }
    }

    /// The synced length of object `id` (its file open as `file`, below `shard`); `None` without a record.
    pub(crate) fn load(
        self,
        shard: &Shard<'_>,
        id: FileId,
        file: BorrowedFd<'_>,
    ) -> Result<Option<u64>, Bad> {
        let mut bytes = [0; SIZE + 1];
        let n = match self {
            Records::Attribute => match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes[..]) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
                Err(Errno::RANGE) => return Err(Bad::Content("too long")),
                other => other?,
            },
            Records::Beside => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let name = shard.beside(id);
                match rustix::fs::openat(shard.objects, name, flags, Mode::empty()) {
                    Err(Errno::NOENT) => return Ok(None),
                    other => crate::descriptor::read_at(other?.as_fd(), 0, &mut bytes)?,
                }
            }
        };
        decode(id, &bytes[..n]).map(Some).map_err(Bad::Content)
    }

    /// Records that `len` bytes of the object are on stable storage.
    pub(crate) fn raise(
        self,
        shard: &Shard<'_>,
        id: FileId,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<(), Errno> {
        let bytes = encode(id, len);
        match self {
            Records::Attribute => penstock_host::fs::fsetxattr(file, ATTRIBUTE, &bytes),
            Records::Beside => replace(shard.objects, &shard.beside(id), &bytes),
        }
    }

    /// Prepares for a truncation to `len` bytes, less than recorded; returns the record's length then. A separate
    /// record is removed, durably once the directory is synced. Takes no space, so that an object on a full store can
    /// be truncated.
    pub(crate) fn lower(
        self,
        shard: &Shard<'_>,
        id: FileId,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<u64, Errno> {
        match self {
            Records::Attribute => self.raise(shard, id, file, len).map(|()| len),
            Records::Beside => self.forget(shard, id).map(|()| 0),
        }
    }

    /// Removes a separate record of an object that is being removed.
    pub(crate) fn forget(self, shard: &Shard<'_>, id: FileId) -> Result<(), Errno> {
        if self == Records::Attribute {
            return Ok(());
        }
        let beside = shard.beside(id);
        for name in [format!("{beside}.new"), beside] {
            match penstock_host::fs::unlinkat(shard.objects, name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// The subdirectory with an object.
pub(crate) struct Shard<'a> {
    /// The directory above all subdirectories.
    pub(crate) objects: BorrowedFd<'a>,
    pub(crate) number: u8,
}

impl Shard<'_> {
    /// Path of the object's file below `objects`.
    pub(crate) fn file(&self, id: FileId) -> String {
        format!("{:02x}/{:016x}", self.number, id.0)
    }

    fn beside(&self, id: FileId) -> String {
        format!("{}.record", self.file(id))
    }

    /// The subdirectory itself.
    pub(crate) fn open(&self) -> Result<std::os::fd::OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = format!("{:02x}", self.number);
        penstock_host::fs::openat(self.objects, name, flags, Mode::empty())
    }
}

/// Magic, id, length, checksum; little endian.
fn encode(id: FileId, len: u64) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..12].copy_from_slice(&id.0.to_le_bytes());
    bytes[12..20].copy_from_slice(&len.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(id: FileId, bytes: &[u8]) -> Result<u64, &'static str> {
    let bytes: &[u8; SIZE] = bytes.try_into().map_err(|_| "wrong size")?;
    let len = u64::from_le_bytes(bytes[12..20].try_into().map_err(|_| "wrong size")?);
    if bytes[20..] != crc32fast::hash(&bytes[..20]).to_le_bytes() {
        return Err("checksum does not match");
    }
    if bytes[..] != encode(id, len) {
        return Err("belongs to another object");
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_for_its_object_alone_and_notices_changes() {
        let good = encode(FileId(5), 77);
        assert_eq!(decode(FileId(5), &good), Ok(77));
        assert!(decode(FileId(6), &good).is_err());
        for bit in 0..SIZE * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(FileId(5), &bytes).is_err(), "bit {bit}");
        }
        assert!(decode(FileId(5), &good[..23]).is_err());
        assert!(decode(FileId(5), &[]).is_err());
    }
}
