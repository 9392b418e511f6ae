//! The bytes of a segment: a header, records one behind the other, and in a complete one a summary of them.
use crate::record::{End, FRAME, Kind, Place, Record, TierId, checksum};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER: u64 = 64;
const MAGIC: [u8; 8] = *b"PsFast01";
/// A summary's entry: the fields of a record, and where it is.
const ENTRY: usize = 64;
/// What stands at the end of a complete segment: where its summary is, twice.
pub const FOOTER: u64 = 16;

/// What a segment's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its number.
    pub number: u64,
    /// The number of its first record.
    pub first: u64,
    /// Records up to this number were on stable storage when it was made.
    pub synced: u64,
}

/// The header of a segment.
pub fn segment_header(tier: &TierId, segment: &Segment) -> [u8; SEGMENT_HEADER as usize] {
    let mut to = [0; SEGMENT_HEADER as usize];
    to[..8].copy_from_slice(&MAGIC);
    to[8..24].copy_from_slice(tier);
    to[24..32].copy_from_slice(&segment.number.to_le_bytes());
    to[32..40].copy_from_slice(&segment.first.to_le_bytes());
    to[40..48].copy_from_slice(&segment.synced.to_le_bytes());
    let sum = checksum([&to[..48]]);
    to[48..52].copy_from_slice(&sum.to_le_bytes());
    to
}

impl Segment {
    /// What a header says; `None` if it is damaged or of another tier. Records can be read without it.
    pub fn decode(from: &[u8], tier: &TierId) -> Option<Segment> {
        let from = from.get(..SEGMENT_HEADER as usize)?;
        let number =
            |at: usize| u64::from_le_bytes(from[at..at + 8].try_into().unwrap_or_default());
        let whole = from[..8] == MAGIC
            && from[8..24] == *tier
            && from[48..52] == checksum([&from[..48]]).to_le_bytes();
        whole.then(|| Segment {
            number: number(24),
            first: number(32),
            synced: number(40),
        })
    }
}

/// What stands at a place of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A record; `sound`: with its bytes.
    Record {
        /// Where it begins.
        at: u64,
        /// What it says.
        record: Record,
        /// Its bytes are those that were written.
        sound: bool,
    },
    /// Bytes between records that are none.
    Unreadable {
        /// The first.
        at: u64,
        /// How many.
        len: u64,
    },
}

/// Finds the records in all bytes of a segment, whatever has happened to them. What follows the last record is left out.
pub fn scan(bytes: &[u8], tier: &TierId, segment: u64) -> Vec<Found> {
    let mut found = Vec::new();
    let mut at = SEGMENT_HEADER;
    let place = |at| Place {
        tier: *tier,
        segment,
        at,
    };
    while let Some(rest) = bytes.get(at as usize..).filter(|rest| !rest.is_empty()) {
        let head = Record::decode(rest, &place(at), End::Head);
        if let Some(record) = head.or_else(|| by_tail(rest, &place(at))) {
            let sound = record.is_sound(rest, &place(at));
            found.push(Found::Record { at, record, sound });
            at += record.size();
            continue;
        }
        let Some(next) = next(bytes, &place(at)) else {
            break;
        };
        found.push(Found::Unreadable { at, len: next - at });
        at = next;
    }
    found
}

/// The record at the beginning of `rest` by its second header, if the first is not readable.
fn by_tail(rest: &[u8], place: &Place) -> Option<Record> {
    // Up to the longest data record: a summary is found by what stands at the end of the segment.
    let most = (FRAME + crate::MAX_PAYLOAD) as usize;
    (FRAME as usize / 2..most.min(rest.len()))
        .step_by(8)
        .find_map(|tail| {
            let record = Record::decode(&rest[tail..], place, End::Tail)?;
            (record.size() == tail as u64 + FRAME / 2).then_some(record)
        })
}

/// Where the next record behind `place` begins.
fn next(bytes: &[u8], place: &Place) -> Option<u64> {
    (place.at + 8..bytes.len() as u64).step_by(8).find(|at| {
        let here = Place { at: *at, ..*place };
        Record::decode(&bytes[*at as usize..], &here, End::Head).is_some()
    })
}

/// The bytes that end a segment whose records are these: a summary record at `at`, and a footer that says where it is.
pub fn summary(
    place: &Place,
    seq: u64,
    synced: u64,
    records: &[(u64, Record)],
) -> (Record, Vec<u8>) {
    let mut own = Vec::with_capacity(records.len() * ENTRY);
    for (at, record) in records {
        own.extend(record.fields());
        own.extend(at.to_le_bytes());
    }
    let record = Record {
        kind: Kind::Summary,
        seq,
        object: 0,
        offset: 0,
        len: own.len() as u64,
        extra: records.len() as u64,
        checksum: checksum([&own[..]]),
        synced,
    };
    let mut bytes = record.encode(place, End::Head).to_vec();
    bytes.extend(&own);
    bytes.extend(record.encode(place, End::Tail));
    bytes.extend(place.at.to_le_bytes());
    bytes.extend(place.at.to_le_bytes());
    (record, bytes)
}

/// What [`read_summary`] found: the summary's own record, and those of the segment with their places.
pub type Summary = (Record, Vec<(u64, Record)>);

/// The records of a complete segment of `len` bytes, from its summary. `read(at, len)` reads it. `None`: there is no
/// summary that is whole.
pub fn read_summary<E>(
    tier: &TierId,
    segment: u64,
    len: u64,
    read: &mut dyn FnMut(u64, usize) -> Result<Vec<u8>, E>,
) -> Result<Option<Summary>, E> {
    let Some(footer) = len.checked_sub(FOOTER).filter(|at| *at >= SEGMENT_HEADER) else {
        return Ok(None);
    };
    let places = read(footer, FOOTER as usize)?;
    let number = |at: usize| {
        let bytes = places.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let at = match (number(0), number(8)) {
        (Some(a), Some(b)) if a == b && (SEGMENT_HEADER..footer).contains(&a) => a,
        _ => return Ok(None),
    };
    let bytes = read(at, (footer - at) as usize)?;
    let place = Place {
        tier: *tier,
        segment,
        at,
    };
    let record = Record::decode(&bytes, &place, End::Head).filter(|record| {
        record.kind == Kind::Summary
            && record.size() == bytes.len() as u64
            && record.is_sound(&bytes, &place)
    });
    let Some(record) = record else {
        return Ok(None);
    };
    let entries = record.bytes(&bytes).chunks_exact(ENTRY).map(|entry| {
        let at = u64::from_le_bytes(entry[56..].try_into().ok()?);
        Some((at, Record::from_fields(&entry[..56])?))
    });
    let entries: Option<Vec<_>> = entries.collect();
    Ok(entries.map(|entries| (record, entries)))
}
