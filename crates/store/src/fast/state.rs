//! The log as it is written: records are appended one by one under one mutex, which also holds the maps of all objects.
use super::device::{FastDevice, File};
use super::front::Front;
use crate::descriptor;
use penstock_layout::FileId;
use penstock_tier::{
    End, Extent, Full, Kind, Log, MAX_PAYLOAD, Map, Place, Policy, Record, SEGMENT_HEADER, Segment,
    Slot, checksum, segment_header, summary,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Pieces of all maps: memory for each is some 120 B. So many in any case, and one for so many bytes of the log.
const PIECES: usize = 1 << 16;
const BYTES_OF_PIECE: u64 = 4096;

/// Why a record was not written.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no room now.
    Full,
    /// The device says so.
    Device(Errno),
}

impl From<Full> for Refused {
    fn from(_: Full) -> Refused {
        Refused::Full
    }
}

impl From<Errno> for Refused {
    fn from(e: Errno) -> Refused {
        match e {
            Errno::NOSPC | Errno::DQUOT => Refused::Full,
            e => Refused::Device(e),
        }
    }
}

/// What was done since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
    /// Writes that would have been taken, had there been room.
    pub(crate) refused: u64,
    pub(crate) home: u64,
}

/// See the module's text.
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) files: BTreeMap<u64, File>,
    /// Segments with bytes that are not known to be on stable storage.
    pub(crate) unsynced: BTreeSet<u64>,
    /// Segments have been made since the directory was synced.
    pub(crate) names: bool,
    pub(crate) maps: BTreeMap<FileId, Map>,
    pub(crate) fronts: BTreeMap<FileId, Arc<Front>>,
    pub(crate) policy: Policy,
    pub(crate) counts: Counts,
    pub(crate) pieces: usize,
    /// Records whose bytes are damaged: segment and place.
    pub(crate) damaged: BTreeSet<(u64, u64)>,
    /// Places in segments where a record of which nothing is known was lost.
    pub(crate) unreadable: u64,
}

impl State {
    pub(crate) fn new(log: Log, policy: Policy) -> State {
        State {
            log,
            files: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            names: true,
            maps: BTreeMap::new(),
            fronts: BTreeMap::new(),
            policy,
            counts: Counts::default(),
            pieces: 0,
            damaged: BTreeSet::new(),
            unreadable: 0,
        }
    }

    /// The object's map, if anything of it is in the log.
    pub(crate) fn map(&self, id: FileId) -> Option<&Map> {
        self.maps.get(&id)
    }

    /// Bytes of an object are in the log from now on.
    pub(crate) fn insert(&mut self, id: FileId, extent: Extent) {
        let map = self.maps.entry(id).or_default();
        let before = map.pieces();
        self.log.counts(extent.segment, extent.len);
        let log = &mut self.log;
        map.insert(extent, &mut |segment, bytes| log.freed(segment, bytes));
        self.pieces = self.pieces + map.pieces() - before;
    }

    /// Records up to number `upto` count no longer within this range of an object.
    pub(crate) fn forget(&mut self, id: FileId, range: std::ops::Range<u64>, upto: u64) {
        let Some(map) = self.maps.get_mut(&id) else {
            return;
        };
        let before = map.pieces();
        let log = &mut self.log;
        map.remove(range, upto, &mut |segment, bytes| log.freed(segment, bytes));
        self.pieces = self.pieces + map.pieces() - before;
        if map.is_empty() {
            self.maps.remove(&id);
        }
    }

    /// Appends bytes of an object, at most [`MAX_PAYLOAD`]. `must`: also where the log is full.
    pub(crate) fn append(
        &mut self,
        device: &FastDevice,
        id: FileId,
        offset: u64,
        bytes: &[u8],
        time_ns: u64,
        must: bool,
    ) -> Result<(), Refused> {
        debug_assert!(bytes.len() as u64 <= MAX_PAYLOAD);
        if !must && self.pieces >= PIECES.max((self.log.limit() / BYTES_OF_PIECE) as usize) {
            return Err(Refused::Full);
        }
        let record = Record {
            kind: Kind::Data,
            seq: 0,
            object: id.0,
            offset,
            len: bytes.len() as u64,
            extra: time_ns,
            checksum: checksum([bytes]),
            synced: self.log.synced(),
        };
        let (slot, record) = self.write(device, record, bytes, must)?;
        let extent = Extent {
            offset,
            len: record.len,
            segment: slot.segment,
            at: slot.at,
            skip: 0,
            whole: record.len,
            seq: record.seq,
        };
        self.insert(id, extent);
        Ok(())
    }

    /// Appends that records up to `upto` count no longer in a range, and acts on it.
    pub(crate) fn append_home(
        &mut self,
        device: &FastDevice,
        id: FileId,
        range: std::ops::Range<u64>,
        upto: u64,
    ) -> Result<(), Refused> {
        let record = Record {
            kind: Kind::Home,
            seq: 0,
            object: id.0,
            offset: range.start,
            len: range.end - range.start,
            extra: upto,
            checksum: checksum([]),
            synced: self.log.synced(),
        };
        self.write(device, record, &[], true)?;
        self.forget(id, range, upto);
        Ok(())
    }

    /// Writes a record where it belongs. One that fails half-way is written over by the next.
    fn write(
        &mut self,
        device: &FastDevice,
        mut record: Record,
        bytes: &[u8],
        must: bool,
    ) -> Result<(Slot, Record), Refused> {
        let slot = loop {
            let slot = self.log.slot(record.payload(), must)?;
            if let Some(number) = slot.ends {
                self.end(number);
            } else if slot.begins {
                self.begin(device, &slot)?;
            } else {
                break slot;
            }
        };
        record.seq = slot.seq;
        let place = Place {
            tier: *self.log.tier(),
            segment: slot.segment,
            at: slot.at,
        };
        let mut all = Vec::with_capacity(record.size() as usize);
        all.extend(record.encode(&place, End::Head));
        all.extend(bytes);
        all.resize(all.len() + record.padding() as usize, 0);
        all.extend(record.encode(&place, End::Tail));
        let Some(file) = self.files.get(&slot.segment) else {
            return Err(Refused::Device(Errno::BADF));
        };
        // Also if it fails: some of it may be there.
        self.unsynced.insert(slot.segment);
        descriptor::write_at(file.as_fd(), slot.at, &all)?;
        self.log.wrote(&slot, record);
        Ok((slot, record))
    }

    fn begin(&mut self, device: &FastDevice, slot: &Slot) -> Result<(), Refused> {
        let file = device.make(slot.segment, self.log.segment_bytes())?;
        let header = Segment {
            number: slot.segment,
            first: slot.seq,
            synced: self.log.synced(),
        };
        let header = segment_header(self.log.tier(), &header);
        self.names = true;
        descriptor::write_at(file.as_fd(), 0, &header)?;
        self.files.insert(slot.segment, file);
        self.unsynced.insert(slot.segment);
        self.log.began(slot.segment);
        debug_assert_eq!(self.log.len_of(slot.segment), SEGMENT_HEADER);
        Ok(())
    }

    /// A segment is complete. Without its summary the next start has to look through it.
    pub(crate) fn end(&mut self, number: u64) {
        let at = self.log.len_of(number);
        let place = Place {
            tier: *self.log.tier(),
            segment: number,
            at,
        };
        let records = self.log.records(number);
        let (_, bytes) = summary(&place, self.log.last() + 1, self.log.synced(), records);
        let written = match self.files.get(&number) {
            Some(file) => descriptor::write_at(file.as_fd(), at, &bytes)
                .and_then(|()| penstock_host::fs::ftruncate(file, at + bytes.len() as u64)),
            None => Err(Errno::BADF),
        };
        self.unsynced.insert(number);
        self.log
            .ended(number, written.is_ok().then_some(bytes.len() as u64));
    }
}
