//! Answers shared by several calls.
use crate::errno::errno;
use fuser::{Errno, FileAttr, FileType, INodeNo, ReplyEmpty, ReplyXattr};
use penstock_client::Result;
use std::time::SystemTime;

/// Success or an error.
pub(crate) fn empty(done: Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(&e)),
    }
}

/// A value, or its size for a caller with an empty buffer.
pub(crate) fn xattr(found: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match found {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(errno(&e)),
    }
}

/// A directory of which only the number is known.
pub(crate) fn dot(ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
