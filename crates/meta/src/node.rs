//! One file or directory as the metadata store keeps it.
//!
//! Stored form: version byte, postcard of the fields, CRC-32 over id, version and fields. The checksum
//! covers the id, so that a record that lands under another key is found out as well.
use crate::error::{Result, damaged};
use penstock_layout::{FileId, Layout};
use penstock_wire::message::{Attributes, NodeKind};
use serde::{Deserialize, Serialize};

/// The directory at the top; its parent is itself.
pub const ROOT: FileId = FileId(1);

const VERSION: u8 = 1;
const CRC: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: NodeKind,
    /// Permission bits, 0o7777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Files 1; directories 2 + directories in them.
    pub nlink: u32,
    /// Times: nanoseconds since the epoch.
    pub ctime_ns: i64,
    pub mtime_ns: i64,
    pub atime_ns: i64,
    /// The directory it is in and its name there: there are no hard links, so a path can be rebuilt.
    pub parent: FileId,
    pub name: String,
    /// Files only.
    pub layout: Option<Layout>,
}

impl Node {
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
            Some((&VERSION, fields)) => postcard::from_bytes(fields)
                .map_err(|e| damaged(format!("the record of {id:?} cannot be read: {e}"))),
            Some((version, _)) => Err(damaged(format!(
                "the record of {id:?} has version {version}, this server knows {VERSION}; use a newer server"
            ))),
            None => Err(damaged(format!("the record of {id:?} is empty"))),
        }
    }
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
        }
    }

    #[test]
    fn stored_form_round_trips() {
        let mut stored = Vec::new();
        node().encode(FileId(9), &mut stored).unwrap();
        assert_eq!(Node::decode(FileId(9), &stored).unwrap(), node());
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
