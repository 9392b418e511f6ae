//! The log: in which segment and at which place the next record goes, and which segment can go.
//!
//! Segments are written one after the other and removed in the same order. So a record that says that others count no
//! longer is there for at least as long as those. Who removes one makes all later records durable first: one of them may
//! have taken the place of its bytes.
use crate::record::{FRAME, MAX_PAYLOAD, Record, TierId};
use crate::scan::SEGMENT_HEADER;
use std::collections::BTreeMap;

/// Smallest and largest segment, bytes.
const SEGMENTS: (u64, u64) = (256 << 10, 64 << 20);
/// Segments that a full log has.
const COUNT: u64 = 64;

/// There is no room for the record now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// Where a record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Number of the segment.
    pub segment: u64,
    /// Where it begins there.
    pub at: u64,
    /// Its number.
    pub seq: u64,
    /// The segment is to be made first.
    pub begins: bool,
    /// That segment is complete: its summary is to be written first, which takes a number, and then to ask again.
    pub ends: Option<u64>,
}

#[derive(Debug, Default)]
struct Segment {
    /// Bytes written.
    len: u64,
    /// Bytes of objects that count.
    live: u64,
    /// For its summary. Given up when it is complete.
    records: Vec<(u64, Record)>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Log {
    tier: TierId,
    limit: u64,
    segment: u64,
    segments: BTreeMap<u64, Segment>,
    /// The segment that takes records.
    current: Option<u64>,
    next_segment: u64,
    next_seq: u64,
    synced: u64,
    bytes: u64,
    live: u64,
}

impl Log {
    /// An empty log of at most `limit` bytes and a few segments' summaries.
    pub fn new(tier: TierId, limit: u64) -> Log {
        Log {
            tier,
            limit,
            segment: (limit / COUNT).clamp(SEGMENTS.0, SEGMENTS.1),
            segments: BTreeMap::new(),
            current: None,
            next_segment: 1,
            next_seq: 1,
            synced: 0,
            bytes: 0,
            live: 0,
        }
    }

    /// Whose log it is.
    pub fn tier(&self) -> &TierId {
        &self.tier
    }

    /// A segment that was there at the start, with so many bytes; records up to `last` are in it.
    pub fn found(&mut self, number: u64, len: u64, last: u64) {
        self.bytes += len;
        let segment = Segment {
            len,
            ..Segment::default()
        };
        self.segments.insert(number, segment);
        self.next_segment = self.next_segment.max(number + 1);
        self.next_seq = self.next_seq.max(last + 1);
    }

    /// Bytes that segments take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of objects that count.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Most bytes that it may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes of one segment, at most, without its summary.
    pub fn segment_bytes(&self) -> u64 {
        self.segment
    }

    /// The number of the last record.
    pub fn last(&self) -> u64 {
        self.next_seq - 1
    }

    /// Records up to this number are on stable storage.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Now they are.
    pub fn note_synced(&mut self, upto: u64) {
        self.synced = self.synced.max(upto);
    }

    /// Where a record with so many bytes goes. `must`: also where the log is full, since it makes room.
    pub fn slot(&self, payload: u64, must: bool) -> Result<Slot, Full> {
        let size = FRAME + payload.next_multiple_of(8);
        let slot = Slot {
            segment: self.next_segment,
            at: SEGMENT_HEADER,
            seq: self.next_seq,
            begins: true,
            ends: None,
        };
        let slot = match self.current.and_then(|n| Some((n, self.segments.get(&n)?))) {
            Some((number, segment)) if segment.len + size <= self.segment => Slot {
                segment: number,
                at: segment.len,
                begins: false,
                ..slot
            },
            Some((number, _)) => Slot {
                ends: Some(number),
                ..slot
            },
            None => slot,
        };
        // A segment is counted as full from its beginning.
        let grows = if slot.begins { self.segment } else { 0 };
        let taken: u64 = self.bytes + self.current.map_or(0, |n| self.rest(n));
        if !must && taken + grows > self.limit {
            return Err(Full);
        }
        Ok(slot)
    }

    /// What a segment can still take.
    fn rest(&self, number: u64) -> u64 {
        let len = self.segments.get(&number).map_or(0, |s| s.len);
        self.segment.saturating_sub(len)
    }

    /// What the summary of the segment lists.
    pub fn records(&self, segment: u64) -> &[(u64, Record)] {
        self.segments
            .get(&segment)
            .map_or(&[], |segment| &segment.records)
    }

    /// How long a segment is.
    pub fn len_of(&self, segment: u64) -> u64 {
        self.segments.get(&segment).map_or(0, |s| s.len)
    }

    /// A segment has been made, with its header.
    pub fn began(&mut self, number: u64) {
        let segment = Segment {
            len: SEGMENT_HEADER,
            ..Segment::default()
        };
        self.bytes += SEGMENT_HEADER;
        self.segments.insert(number, segment);
        self.current = Some(number);
        self.next_segment = number + 1;
    }

    /// A segment takes no more records; its summary, if it has one, took the next number and so many bytes.
    pub fn ended(&mut self, number: u64, summary: Option<u64>) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.records = Vec::new();
            let bytes = summary.unwrap_or(0);
            segment.len += bytes;
            self.bytes += bytes;
            self.next_seq += u64::from(summary.is_some());
        }
        if self.current == Some(number) {
            self.current = None;
        }
    }

    /// A record has been written.
    pub fn wrote(&mut self, slot: &Slot, record: Record) {
        self.next_seq = record.seq + 1;
        self.bytes += record.size();
        if let Some(segment) = self.segments.get_mut(&slot.segment) {
            segment.len = slot.at + record.size();
            segment.records.push((slot.at, record));
        }
    }

    /// So many more bytes of objects in a segment count.
    pub fn counts(&mut self, segment: u64, bytes: u64) {
        self.live += bytes;
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.live += bytes;
        }
    }

    /// So many bytes there count no longer.
    pub fn freed(&mut self, segment: u64, bytes: u64) {
        self.live = self.live.saturating_sub(bytes);
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.live = segment.live.saturating_sub(bytes);
        }
    }

    /// The segment that takes records.
    pub fn current(&self) -> Option<u64> {
        self.current
    }

    /// The oldest segment, and whether nothing in it counts.
    pub fn oldest(&self) -> Option<(u64, bool)> {
        let (number, segment) = self.segments.iter().next()?;
        Some((*number, segment.live == 0 && self.current != Some(*number)))
    }

    /// It has been removed.
    pub fn removed(&mut self, number: u64) {
        if let Some(segment) = self.segments.remove(&number) {
            self.bytes -= segment.len;
        }
    }

    /// How full it is, of 1.
    pub fn fill(&self) -> f64 {
        self.bytes as f64 / self.limit.max(1) as f64
    }

    /// The smallest limit of a log: a segment that is written, one that waits to be removed, and room for one more.
    pub const LEAST: u64 = 4 * SEGMENTS.0;
    /// The longest record.
    pub const LONGEST: u64 = FRAME + MAX_PAYLOAD;
}
