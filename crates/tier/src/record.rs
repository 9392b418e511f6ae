//! One record of the log: a header of 64 bytes, its bytes padded to 8, and the header once more.
//!
//! A header has a checksum over itself, the tier's id, its segment and its position. So a record counts only where it was
//! written, and bytes of users that look like a record are none. The second header says what a record was when a bit of
//! the first has flipped.

/// Identifies a tier: random, and in no message.
pub type TierId = [u8; 16];

/// Bytes of a header.
const HEADER: usize = 64;
/// Bytes that a record has beside its own: both headers.
pub const FRAME: u64 = 2 * HEADER as u64;
/// Most bytes of one data record. A longer write is several.
pub const MAX_PAYLOAD: u64 = 64 << 10;

const HEAD: [u8; 4] = *b"PsFh";
const TAIL: [u8; 4] = *b"PsFt";

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of an object. `extra`: when they were written, nanoseconds since the epoch.
    Data,
    /// Records up to sequence number `extra` count no longer within this range of the object: the slow storage has it.
    Home,
    /// The records of this segment, which is complete. `extra`: their number.
    Summary,
    /// Nothing: it takes the place of a record that a crash has cut short.
    Skip,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Home => 2,
            Kind::Summary => 3,
            Kind::Skip => 4,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        [Kind::Data, Kind::Home, Kind::Summary, Kind::Skip]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// Where a record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Whose log it is.
    pub tier: TierId,
    /// Number of the segment.
    pub segment: u64,
    /// Bytes from the beginning of the segment.
    pub at: u64,
}

/// Which header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Before its bytes.
    Head,
    /// Behind them.
    Tail,
}

/// The contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub kind: Kind,
    /// Its number: one more than that of the record before it.
    pub seq: u64,
    /// Of which object.
    pub object: u64,
    /// First byte of the object.
    pub offset: u64,
    /// Bytes of the object; for [`Kind::Summary`] and [`Kind::Skip`] bytes in the log.
    pub len: u64,
    /// See [`Kind`].
    pub extra: u64,
    /// Checksum of its bytes.
    pub checksum: u32,
    /// Records up to this number were on stable storage when it was written.
    pub synced: u64,
}

/// The checksum of bytes given in parts.
pub fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

impl Record {
    /// Bytes in the log between the headers, without padding.
    pub fn payload(&self) -> u64 {
        match self.kind {
            Kind::Home => 0,
            Kind::Data | Kind::Summary | Kind::Skip => self.len,
        }
    }

    /// Bytes of the padding.
    pub fn padding(&self) -> u64 {
        self.payload().wrapping_neg() % 8
    }

    /// Bytes of the whole record.
    pub fn size(&self) -> u64 {
        FRAME
            .saturating_add(self.payload())
            .saturating_add(self.padding())
    }

    /// Its fields without magic and checksum, as they stand in headers and summaries.
    pub(crate) fn fields(&self) -> [u8; 56] {
        let mut to = [0; 56];
        to[..8].copy_from_slice(&self.seq.to_le_bytes());
        to[8..16].copy_from_slice(&self.object.to_le_bytes());
        to[16..24].copy_from_slice(&self.offset.to_le_bytes());
        to[24..32].copy_from_slice(&self.len.to_le_bytes());
        to[32..40].copy_from_slice(&self.extra.to_le_bytes());
        to[40..44].copy_from_slice(&self.checksum.to_le_bytes());
        to[44] = self.kind.code();
        to[48..].copy_from_slice(&self.synced.to_le_bytes());
        to
    }

    pub(crate) fn from_fields(from: &[u8]) -> Option<Record> {
        let number = |at: usize| -> Option<u64> {
            let bytes = from.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let record = Record {
            seq: number(0)?,
            object: number(8)?,
            offset: number(16)?,
            len: number(24)?,
            extra: number(32)?,
            checksum: number(40)? as u32,
            kind: Kind::from_code(*from.get(44)?)?,
            synced: number(48)?,
        };
        let most = match record.kind {
            Kind::Data => MAX_PAYLOAD,
            Kind::Home => u64::MAX,
            Kind::Summary | Kind::Skip => u64::from(u32::MAX),
        };
        let ends = record.offset.checked_add(record.len).is_some();
        (record.len <= most && (ends || record.kind == Kind::Home)).then_some(record)
    }

    /// One of its headers.
    pub fn encode(&self, place: &Place, end: End) -> [u8; HEADER] {
        let mut to = [0; HEADER];
        to[..4].copy_from_slice(match end {
            End::Head => &HEAD,
            End::Tail => &TAIL,
        });
        to[8..].copy_from_slice(&self.fields());
        let sum = sum(&to, place);
        to[4..8].copy_from_slice(&sum.to_le_bytes());
        to
    }

    /// What the header at the beginning of `from` says, if it is one of a record at this place.
    pub fn decode(from: &[u8], place: &Place, end: End) -> Option<Record> {
        let from = from.get(..HEADER)?;
        let magic = match end {
            End::Head => HEAD,
            End::Tail => TAIL,
        };
        if from[..4] != magic || from[4..8] != sum(from, place).to_le_bytes() {
            return None;
        }
        Record::from_fields(&from[8..])
    }

    /// Whether `bytes` of the log, from the beginning of the record on, are this one with its bytes intact. One header of
    /// the two is enough.
    pub fn is_sound(&self, bytes: &[u8], place: &Place) -> bool {
        let Ok(payload) = usize::try_from(self.payload()) else {
            return false;
        };
        let Some(own) = bytes.get(HEADER..HEADER + payload) else {
            return false;
        };
        let tail = HEADER + payload + self.padding() as usize;
        let headed = Record::decode(bytes, place, End::Head).as_ref() == Some(self);
        let tailed = || {
            let tail = bytes.get(tail..).unwrap_or_default();
            Record::decode(tail, place, End::Tail).as_ref() == Some(self)
        };
        (headed || tailed()) && (self.kind == Kind::Skip || checksum([own]) == self.checksum)
    }

    /// Its bytes in `bytes` of the log, from the beginning of the record on.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes
            .get(HEADER..HEADER + self.payload() as usize)
            .unwrap_or_default()
    }
}

/// The checksum of a header at a place.
fn sum(header: &[u8], place: &Place) -> u32 {
    checksum([
        &header[..4],
        &header[8..HEADER],
        &place.tier,
        &place.segment.to_le_bytes(),
        &place.at.to_le_bytes(),
    ])
}
