//! Striping arithmetic (SYSTEMS 3): which server holds which byte of a file, and where in its object.
//!
//! A file is cut into stripe units dealt round robin to `servers`, the first unit to `servers[0]`.
//! Byte `f` lies on turn `f / (unit * n)`, server index `(f / unit) % n`, object offset
//! `turn * unit + f % unit`. Offsets are typed: a file offset never compiles as an object offset.
#![allow(missing_docs, unused_variables, clippy::todo)]
use penstock_datatype::Pattern;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileOffset(pub u64);
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectOffset(pub u64);
/// A data server of the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u32);
/// Position of a server in a file's own server list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerIndex(pub u32);
/// A file, unique in the deployment for ever; also names its object on each data server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// Striping of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Bytes per server per turn.
    pub stripe_unit: u64,
    /// Servers in turn order (rotated so that the starting server comes first).
    pub servers: Vec<ServerId>,
}

/// A contiguous piece of an access on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub object: ObjectOffset,
    /// Position in the access's stream.
    pub stream: u64,
    pub len: u64,
}

#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum LayoutError {
    #[error("stripe unit {0} B is outside 1 B..=1 GiB")]
    StripeUnit(u64),
    #[error("a file needs 1..=65536 servers, not {0}")]
    Servers(usize),
    #[error("file offset beyond 2^63-1")]
    Overflow,
}

impl Layout {
    pub fn new(stripe_unit: u64, servers: Vec<ServerId>) -> Result<Layout, LayoutError> {
        todo!()
    }
    pub fn locate(&self, at: FileOffset) -> (ServerIndex, ObjectOffset) {
        todo!()
    }
    pub fn file_offset(&self, server: ServerIndex, at: ObjectOffset) -> FileOffset {
        todo!()
    }
    /// Object length on `server` of a file of `file_len` bytes.
    pub fn object_len(&self, file_len: u64, server: ServerIndex) -> u64 {
        todo!()
    }
    /// The file length that an object of `object_len` bytes on `server` proves (max over servers = file length).
    pub fn file_len(&self, server: ServerIndex, object_len: u64) -> u64 {
        todo!()
    }
    /// Visits the pieces of `access` on `server` in stream order, pieces adjacent in both object and
    /// packed order *not* joined across a gap in stream. Visits only what falls on the server (closed form for
    /// strided patterns); `f` returns false to stop.
    pub fn pieces(&self, access: &Pattern, server: ServerIndex, f: impl FnMut(Piece) -> bool) {
        todo!()
    }
    /// Bytes of `access` on `server`.
    pub fn share(&self, access: &Pattern, server: ServerIndex) -> u64 {
        todo!()
    }
    /// Servers with at least one byte of `access`.
    pub fn touched(&self, access: &Pattern) -> Vec<ServerIndex> {
        todo!()
    }
}
