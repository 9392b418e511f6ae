//! The stored record of a file or directory.
//!
//! Stored form: version byte, postcard of the fields, CRC-32 over id, version and fields. The checksum covers the id,
//! so that a record stored under another key is detected too.
use crate::error::{Result, damaged};
use crate::placement::Striping;
use penstock_layout::{FileId, Layout};
use penstock_wire::message::{Attributes, NodeKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The directory at the top; its parent is itself.
pub const ROOT: FileId = FileId(1);
/// The directory of open-unlinked files, which are named by their id. No path leads there.
pub const REMOVED: FileId = FileId(0);

const VERSION: u8 = 3;
/// The last version that ends with `xattrs`.
const BEFORE_GIVEN: u8 = 2;
const CRC: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: NodeKind,
    /// Permission bits, 0o7777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Files: number of names, 0 if open-unlinked; directories: 2 + number of subdirectories.
    pub nlink: u32,
    /// Times: nanoseconds since the epoch.
    pub ctime_ns: i64,
    pub mtime_ns: i64,
    pub atime_ns: i64,
    /// The server's clock when `mtime_ns` was last set.
    pub mtime_set_ns: i64,
    /// Its directory and its name there (the first of several names), from which a path can be rebuilt.
    pub parent: FileId,
    pub name: String,
    /// Further names of a file.
    pub links: Vec<(FileId, String)>,
    /// Files only.
    pub layout: Option<Layout>,
    /// Symbolic links only.
    pub target: Option<String>,
    /// Directories only: striping of new files.
    pub striping: Option<Striping>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// It once belonged to a user other than root: that user may hold descriptors of its objects.
    pub given: bool,
}

impl Node {
    /// A node with empty fields, with times at the epoch.
    pub fn new(kind: NodeKind) -> Node {
        Node {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: if kind == NodeKind::Directory { 2 } else { 1 },
            ctime_ns: 0,
            mtime_ns: 0,
            atime_ns: 0,
            mtime_set_ns: 0,
            parent: ROOT,
            name: String::new(),
            links: Vec::new(),
            layout: None,
            target: None,
            striping: None,
            xattrs: BTreeMap::new(),
            given: false,
        }
    }

    /// Whether this is one of its names.
    pub fn is_named(&self, parent: FileId, name: &str) -> bool {
        (self.parent == parent && self.name == name)
            || self.links.iter().any(|(p, n)| *p == parent && n == name)
    }

    /// All its names.
    pub fn names(&self) -> impl Iterator<Item = (FileId, &str)> {
        let more = self
            .links
            .iter()
            .map(|(parent, name)| (*parent, name.as_str()));
        std::iter::once((self.parent, self.name.as_str())).chain(more)
    }

    pub fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
    }

    pub fn attributes(&self, id: FileId) -> Attributes {
        Attributes {
            id,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            ctime_ns: self.ctime_ns,
            mtime_ns: self.mtime_ns,
            atime_ns: self.atime_ns,
            layout: self.layout.clone(),
            mtime_set_ns: self.mtime_set_ns,
            target: self.target.clone(),
            given: self.given,
        }
    }

    /// Appends the stored form to `out`.
    pub fn encode(&self, id: FileId, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.push(VERSION);
        postcard::to_io(self, &mut *out)
            .map_err(|e| damaged(format!("{id:?} cannot be encoded: {e}")))?;
        let crc = checksum(id, &out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
        Ok(())
    }

    pub fn decode(id: FileId, stored: &[u8]) -> Result<Node> {
        let Some((record, crc)) = stored.split_last_chunk::<CRC>() else {
            return Err(damaged(format!("the record of {id:?} is too short")));
        };
        if checksum(id, record) != u32::from_le_bytes(*crc) {
            return Err(damaged(format!("the record of {id:?} fails its checksum")));
        }
        match record.split_first() {
            Some((&VERSION, fields)) => decode_fields(id, fields),
            // The earlier owners are unknown: it may have belonged to another user.
            Some((&BEFORE_GIVEN, fields)) => decode_fields(id, &[fields, &[1]].concat()),
            Some((version, _)) => Err(damaged(format!(
                "the record of {id:?} has version {version}, this server knows {VERSION}; use the release of Penstock that wrote it"
            ))),
            None => Err(damaged(format!("the record of {id:?} is empty"))),
        }
    }
}

fn decode_fields(id: FileId, fields: &[u8]) -> Result<Node> {
    postcard::from_bytes(fields)
        .map_err(|e| damaged(format!("the record of {id:?} cannot be read: {e}")))
}

fn checksum(id: FileId, record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.0.to_le_bytes());
    hasher.update(record);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_layout::ServerId;
    use penstock_wire::message::ErrorKind;

    fn node() -> Node {
        Node {
            kind: NodeKind::File,
            mode: 0o640,
            uid: 7,
            gid: 8,
            nlink: 1,
            ctime_ns: 1,
            mtime_ns: -2,
            atime_ns: i64::MAX,
            parent: ROOT,
            name: "näme".into(),
            layout: Some(Layout {
                stripe_unit: 65536,
                servers: vec![ServerId(3), ServerId(1)],
            }),
            links: vec![(ROOT, "other".into())],
            xattrs: [("user.a".into(), vec![0, 255])].into(),
            ..Node::new(NodeKind::File)
        }
    }

    #[test]
    fn stored_form_round_trips() {
        let mut stored = Vec::new();
        node().encode(FileId(9), &mut stored).unwrap();
        assert_eq!(Node::decode(FileId(9), &stored).unwrap(), node());
    }

    #[test]
    fn files_of_the_version_before_count_as_given() {
        let mut stored = Vec::new();
        node().encode(FileId(9), &mut stored).unwrap();
        stored.truncate(stored.len() - CRC - 1);
        stored[0] = BEFORE_GIVEN;
        stored.extend(checksum(FileId(9), &stored).to_le_bytes());
        let expected = Node {
            given: true,
            ..node()
        };
        assert_eq!(Node::decode(FileId(9), &stored).unwrap(), expected);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let mut stored = Vec::new();
        node().encode(FileId(9), &mut stored).unwrap();
        for bit in 0..stored.len() * 8 {
            let mut bad = stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Node::decode(FileId(9), &bad).unwrap_err().kind,
                ErrorKind::Damaged
            );
        }
        for len in 0..stored.len() {
            assert!(Node::decode(FileId(9), &stored[..len]).is_err());
        }
        assert!(
            Node::decode(FileId(10), &stored).is_err(),
            "under another id"
        );
    }
}
