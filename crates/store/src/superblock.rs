//! What a store directory is: for whom it was made, and how it keeps records.
//!
//! A few lines of text closed by a checksum, so that a person can read it and a torn or edited one is
//! noticed. Replaced as a whole: temporary file, fsync, rename, fsync of the directory.
use crate::StoreError;
use crate::record::Records;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

pub(crate) const NAME: &str = "superblock";
const MAGIC: &str = "penstock store";
const VERSION: u32 = 1;
/// Longest superblock read; a good one has some 150 bytes.
const LIMIT: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) deployment: String,
    pub(crate) server: u32,
    pub(crate) records: Records,
}

impl Superblock {
    fn encode(&self) -> String {
        let body = format!(
            "{MAGIC}\nversion {VERSION}\ndeployment {}\nserver {}\nrecords {}\n",
            self.deployment,
            self.server,
            self.records.name()
        );
        let crc = crc32fast::hash(body.as_bytes());
        format!("{body}crc {crc:08x}\n")
    }

    /// Accepts what `encode` produces and nothing else; says what is wrong otherwise.
    fn decode(text: &str) -> Result<Superblock, String> {
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
        if version != VERSION.to_string() {
            return Err(format!(
                "format version {version}; this release reads {VERSION}"
            ));
        }
        let deployment = field("deployment")?.to_owned();
        let server = field("server")?
            .parse()
            .map_err(|_| "server is no number")?;
        let records = Records::from_name(field("records")?).ok_or("unknown kind of records")?;
        let block = Superblock {
            deployment,
            server,
            records,
        };
        if block.encode() != text {
            return Err("unexpected lines".to_owned());
        }
        Ok(block)
    }

    /// Writes it into the directory `root` (at `path`), durably.
    pub(crate) fn store(&self, root: BorrowedFd<'_>, path: &str) -> Result<(), StoreError> {
        replace(root, NAME, self.encode().as_bytes())
            .and_then(|()| penstock_host::fs::fsync(root))
            .map_err(|e| StoreError::from_errno("write superblock of", path, e))
    }

    /// Reads the one in the directory `root` (at `path`); `None` if there is none.
    pub(crate) fn load(root: BorrowedFd<'_>, path: &str) -> Result<Option<Superblock>, StoreError> {
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

/// Puts `bytes` under `name` in `dir`, all or nothing: a crash leaves the old or the new content.
/// The directory itself is not synced.
pub(crate) fn replace(dir: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let temporary = format!("{name}.new");
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = penstock_host::fs::openat(dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
    crate::descriptor::write_at(file.as_fd(), 0, bytes)?;
    penstock_host::fs::fsync(&file)?;
    penstock_host::fs::renameat(dir, &temporary, name)
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
        };
        let text = block.encode();
        assert_eq!(Superblock::decode(&text), Ok(block));
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
