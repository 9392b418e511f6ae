//! The layout of one file and its arithmetic, both directions.
use serde::{Deserialize, Serialize};

/// Byte position in a file.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct FileOffset(pub u64);

/// Byte position in an object: the part of a file that one data server keeps.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ObjectOffset(pub u64);

/// A data server of the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u32);

/// Position of a server in a file's own server list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerIndex(pub u32);

/// A file, unique in the deployment and never reused; also names its object on each data server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// Striping of one file. A deserialised layout has been validated; check one that was put together field by field with
/// [`Layout::validate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Layout {
    /// Stripe unit in bytes.
    pub stripe_unit: u64,
    /// Servers in round-robin order, beginning with the starting server; each at most once.
    pub servers: Vec<ServerId>,
}

/// A layout from outside that has not been checked.
#[derive(Deserialize)]
struct Unchecked {
    stripe_unit: u64,
    servers: Vec<ServerId>,
}

impl TryFrom<Unchecked> for Layout {
    type Error = LayoutError;
    fn try_from(raw: Unchecked) -> Result<Layout, LayoutError> {
        Layout::new(raw.stripe_unit, raw.servers)
    }
}

/// Why a layout or an access is invalid.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// The stripe unit is zero or too large.
    #[error("stripe unit {0} B is outside 1 B..=1 GiB")]
    StripeUnit(u64),
    /// No servers, or too many.
    #[error("a file needs 1..=65536 servers, not {0}")]
    Servers(usize),
    /// A server is listed twice: two stripe units would share one object.
    #[error("server {id} stands twice in the server list of a file", id = .0.0)]
    Duplicate(ServerId),
    /// An offset before the start of the file or beyond the largest one.
    #[error("file offset beyond 2^63-1 or below 0")]
    Overflow,
}

impl Layout {
    /// Largest stripe unit: 1 GiB.
    pub const MAX_STRIPE_UNIT: u64 = 1 << 30;
    /// Most servers one file is spread over.
    pub const MAX_SERVERS: usize = 65536;
    /// Longest file: offsets are MPI offsets, signed 64 bits.
    pub const MAX_FILE_LEN: u64 = i64::MAX as u64;

    /// A checked layout; an error says what is invalid.
    pub fn new(stripe_unit: u64, servers: Vec<ServerId>) -> Result<Layout, LayoutError> {
        let layout = Layout {
            stripe_unit,
            servers,
        };
        layout.validate()?;
        Ok(layout)
    }

    /// Checks the limits that all arithmetic here relies on.
    pub fn validate(&self) -> Result<(), LayoutError> {
        if !(1..=Self::MAX_STRIPE_UNIT).contains(&self.stripe_unit) {
            return Err(LayoutError::StripeUnit(self.stripe_unit));
        }
        if !(1..=Self::MAX_SERVERS).contains(&self.servers.len()) {
            return Err(LayoutError::Servers(self.servers.len()));
        }
        let mut sorted = self.servers.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|w| w[0] == w[1]) {
            Some(w) => Err(LayoutError::Duplicate(w[0])),
            None => Ok(()),
        }
    }

    /// Bytes of a stripe: one stripe unit on every server. At most 2^46.
    pub fn width(&self) -> u64 {
        self.stripe_unit * self.servers.len() as u64
    }

    /// The position of `server` in this file's list, if it holds a part of the file.
    pub fn index_of(&self, server: ServerId) -> Option<ServerIndex> {
        let at = self.servers.iter().position(|s| *s == server)?;
        Some(ServerIndex(at as u32))
    }

    /// Server and object offset of file byte `at`.
    pub fn locate(&self, at: FileOffset) -> (ServerIndex, ObjectOffset) {
        let unit_number = at.0 / self.stripe_unit;
        let within = at.0 % self.stripe_unit;
        let n = self.servers.len() as u64;
        (
            ServerIndex((unit_number % n) as u32),
            ObjectOffset(unit_number / n * self.stripe_unit + within),
        )
    }

    /// The file offset of the byte at `at` in the object on `server`. It saturates at [`Self::MAX_FILE_LEN`]: no file
    /// has that byte, so the result is then no valid offset.
    pub fn file_offset(&self, server: ServerIndex, at: ObjectOffset) -> FileOffset {
        let turn = u128::from(at.0 / self.stripe_unit);
        let within = u128::from(at.0 % self.stripe_unit);
        let first = u128::from(server.0) * u128::from(self.stripe_unit);
        let offset = turn * u128::from(self.width()) + first + within;
        FileOffset(u64::try_from(offset).map_or(Self::MAX_FILE_LEN, |o| o.min(Self::MAX_FILE_LEN)))
    }

    /// Object length on `server` of a file of `file_len` bytes; 0 for an index beyond the list.
    pub fn object_len(&self, file_len: u64, server: ServerIndex) -> u64 {
        if server.0 as usize >= self.servers.len() {
            return 0;
        }
        let full_turns = file_len / self.width();
        let rest = file_len % self.width();
        let before = u64::from(server.0) * self.stripe_unit;
        full_turns * self.stripe_unit + rest.saturating_sub(before).min(self.stripe_unit)
    }

    /// The file length implied by an object of `object_len` bytes on `server`; the file's length is the maximum over
    /// all servers.
    pub fn file_len(&self, server: ServerIndex, object_len: u64) -> u64 {
        match object_len.checked_sub(1) {
            None => 0,
            Some(last) => {
                let FileOffset(at) = self.file_offset(server, ObjectOffset(last));
                (at + 1).min(Self::MAX_FILE_LEN)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(unit: u64, n: u32) -> Layout {
        Layout::new(unit, (0..n).map(ServerId).collect()).unwrap()
    }

    #[test]
    fn the_first_unit_is_on_the_first_server() {
        let l = layout(64, 3);
        assert_eq!(l.locate(FileOffset(0)), (ServerIndex(0), ObjectOffset(0)));
        assert_eq!(l.locate(FileOffset(64)), (ServerIndex(1), ObjectOffset(0)));
        assert_eq!(
            l.locate(FileOffset(192 + 5)),
            (ServerIndex(0), ObjectOffset(69))
        );
    }

    #[test]
    fn bad_layouts_are_refused_also_when_deserialised() {
        let two = vec![ServerId(1), ServerId(2)];
        assert_eq!(Layout::new(0, two.clone()), Err(LayoutError::StripeUnit(0)));
        assert!(Layout::new((1 << 30) + 1, two.clone()).is_err());
        assert_eq!(Layout::new(1, vec![]), Err(LayoutError::Servers(0)));
        assert_eq!(
            Layout::new(1, vec![ServerId(7), ServerId(3), ServerId(7)]),
            Err(LayoutError::Duplicate(ServerId(7)))
        );
        let too_many = (0..65537).map(ServerId).collect();
        assert_eq!(Layout::new(1, too_many), Err(LayoutError::Servers(65537)));
        let text = serde_json::to_string(&Layout::new(65536, two).unwrap()).unwrap();
        assert!(serde_json::from_str::<Layout>(&text).is_ok());
        let bad = text.replace("65536", "0");
        let error = serde_json::from_str::<Layout>(&bad).unwrap_err();
        assert!(error.to_string().contains("stripe unit 0 B"), "{error}");
    }

    #[test]
    fn the_ends_of_the_offset_range_do_not_wrap() {
        let l = layout(1 << 30, 65536);
        let (server, at) = l.locate(FileOffset(Layout::MAX_FILE_LEN));
        assert_eq!(l.file_offset(server, at).0, Layout::MAX_FILE_LEN);
        assert_eq!(
            l.file_offset(ServerIndex(1), ObjectOffset(u64::MAX)).0,
            Layout::MAX_FILE_LEN
        );
        assert_eq!(l.file_len(ServerIndex(1), u64::MAX), Layout::MAX_FILE_LEN);
    }

    proptest! {
        #[test]
        fn locate_and_file_offset_are_inverse(unit in 1u64..200, n in 1u32..9, at in 0u64..1 << 62) {
            let l = layout(unit, n);
            let (server, object) = l.locate(FileOffset(at));
            prop_assert!(server.0 < n);
            prop_assert_eq!(l.file_offset(server, object), FileOffset(at));
        }

        #[test]
        fn lengths_match_counting_bytes(unit in 1u64..20, n in 1u32..6, len in 0u64..500) {
            let l = layout(unit, n);
            let mut counted = vec![0u64; n as usize];
            for at in 0..len {
                let (s, o) = l.locate(FileOffset(at));
                prop_assert_eq!(o.0, counted[s.0 as usize]);
                counted[s.0 as usize] += 1;
            }
            for (s, c) in counted.iter().enumerate() {
                prop_assert_eq!(l.object_len(len, ServerIndex(s as u32)), *c);
            }
            let proven = (0..n).map(|s| l.file_len(ServerIndex(s), counted[s as usize])).max();
            prop_assert_eq!(proven, Some(len));
        }
    }
}
