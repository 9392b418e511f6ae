//! Nodes as `stat` shows them.
use fuser::{FileAttr, FileType, INodeNo};
use penstock_client::Looked;
use penstock_wire::message::{Attributes, NodeKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Preferred I/O size in bytes.
const BLOCK: u32 = 1 << 20;

pub fn kind(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::File => FileType::RegularFile,
        NodeKind::Directory => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
    }
}

/// Converts nanoseconds since the epoch, which may be negative.
pub fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let time = if ns < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(UNIX_EPOCH)
}

/// The reverse, saturating at 64 bits.
pub fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

pub fn attributes(a: &Attributes, looked: &Looked) -> FileAttr {
    FileAttr {
        ino: INodeNo(a.id.0),
        size: looked.len,
        blocks: looked.allocated.div_ceil(512),
        atime: time(a.atime_ns),
        mtime: time(a.mtime_ns),
        ctime: time(a.ctime_ns),
        crtime: UNIX_EPOCH,
        kind: kind(a.kind),
        perm: (a.mode & 0o7777) as u16,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_on_both_sides_of_the_epoch() {
        for ns in [
            0,
            1,
            -1,
            1_700_000_000_123_456_789,
            -5_000_000_001,
            i64::MAX,
        ] {
            assert_eq!(nanoseconds(time(ns)), ns);
        }
    }
}
