//! What is in the log at a start.
//!
//! Records are taken in their order. One that was on stable storage and is damaged is taken too: reading its bytes fails. One
//! that a crash has cut short counts for nothing; it is written over, so that nobody takes it for a damaged one later.
//! Complete segments have a summary, and their bytes are not read.
use super::device::{FastDevice, File};
use super::state::State;
use crate::{StoreError, descriptor};
use penstock_layout::FileId;
use penstock_tier::{
    End, Extent, Found, Kind, Place, Record, SEGMENT_HEADER, Segment, TierId, checksum,
    read_summary, scan,
};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// A segment, and what is known of it before its records are taken.
struct There {
    number: u64,
    file: File,
    len: u64,
    what: What,
}

enum What {
    /// It has a summary, whose own number this is.
    Summarised(u64),
    Scanned(Vec<Found>),
}

/// Reads the log of `device` into `state`.
pub(crate) fn recover(device: &FastDevice, state: &mut State) -> Result<(), StoreError> {
    let tier = *state.log.tier();
    let failed = |e| StoreError::from_errno("read the log in", device.path.clone(), e);
    let mut synced = device.synced(&tier);
    let mut all = Vec::new();
    for number in device.segments()? {
        let (file, len) = device.open(number)?;
        let header = read(&file, 0, SEGMENT_HEADER as usize).map_err(failed)?;
        if let Some(header) = Segment::decode(&header, &tier) {
            synced = synced.max(header.synced);
        }
        all.push((number, file, len));
    }
    let mut there = Vec::new();
    for (number, file, len) in all {
        let summary = summarised(&tier, number, &file, len).map_err(failed)?;
        let what = match summary {
            // Its records are on stable storage if it is.
            Some((own, _)) if own.seq <= synced => What::Summarised(own.seq),
            _ => {
                let bytes = read(&file, 0, len as usize).map_err(failed)?;
                let found = scan(&bytes, &tier, number);
                for found in &found {
                    if let Found::Record { record, sound, .. } = found
                        && *sound
                    {
                        synced = synced.max(record.synced);
                    }
                }
                What::Scanned(found)
            }
        };
        there.push(There {
            number,
            file,
            len,
            what,
        });
    }
    let mut last = 0;
    for segment in there {
        take(device, state, segment, synced, &mut last)?;
    }
    let last = state.log.last();
    state.log.note_synced(last);
    device.sync_names().map_err(failed)?;
    state.names = false;
    device.note_synced(&tier, last);
    Ok(())
}

fn summarised(
    tier: &TierId,
    number: u64,
    file: &File,
    len: u64,
) -> Result<Option<penstock_tier::Summary>, Errno> {
    read_summary(tier, number, len, &mut |at, n| read(file, at, n))
}

/// Takes the records of one segment. `synced`: up to there they were on stable storage. `last`: the number of the last one
/// before, and then of the last one here.
fn take(
    device: &FastDevice,
    state: &mut State,
    segment: There,
    synced: u64,
    last: &mut u64,
) -> Result<(), StoreError> {
    let failed = |e| StoreError::from_errno("read the log in", device.path.clone(), e);
    let There {
        number,
        file,
        len,
        what,
    } = segment;
    let tier = *state.log.tier();
    match what {
        What::Summarised(own) => {
            let summary = summarised(&tier, number, &file, len).map_err(failed)?;
            let records = summary.map(|(_, records)| records).unwrap_or_default();
            state.log.found(number, len, own);
            state.files.insert(number, file);
            for (at, record) in records {
                apply(state, number, at, &record);
            }
            *last = (*last).max(own);
        }
        What::Scanned(found) => {
            let mended = scanned(state, (number, &file), &found, synced, last);
            let end = mended.map_err(failed)?;
            penstock_host::fs::ftruncate(&file, end)
                .and_then(|()| penstock_host::fs::fdatasync(&file))
                .map_err(failed)?;
            state.log.found(number, end, *last);
            state.files.insert(number, file);
            // Only now: bytes count in a segment that is known.
            for found in &found {
                if let Found::Record { at, record, sound } = found
                    && (*sound || record.seq <= synced)
                {
                    apply(state, number, *at, record);
                }
            }
        }
    }
    Ok(())
}

/// Looks at what a scan found: counts what is lost, writes over what a crash has cut short. Where the segment ends.
fn scanned(
    state: &mut State,
    (number, file): (u64, &File),
    found: &[Found],
    synced: u64,
    last: &mut u64,
) -> Result<u64, Errno> {
    let mut end = SEGMENT_HEADER;
    for (n, found) in found.iter().enumerate() {
        match *found {
            Found::Record { at, record, sound } => {
                *last = (*last).max(record.seq);
                if record.kind == Kind::Summary {
                    // What stands behind it says where it is; without it the segment is looked through each time.
                    let footer = if sound { penstock_tier::FOOTER } else { 0 };
                    end = at + record.size() + footer;
                    continue;
                }
                if !sound && record.seq <= synced {
                    state.damaged.insert((number, at));
                } else if !sound {
                    let skip = Record {
                        kind: Kind::Skip,
                        len: record.size() - penstock_tier::FRAME,
                        ..record
                    };
                    write_over(state, (number, file), at, skip)?;
                }
                end = at + record.size();
            }
            Found::Unreadable { at, len } => {
                // A record behind it says when it was written.
                let lost = *last + 1;
                if lost <= synced {
                    state.unreadable += 1;
                } else if len >= penstock_tier::FRAME {
                    let skip = Record {
                        kind: Kind::Skip,
                        seq: lost,
                        object: 0,
                        offset: 0,
                        len: len - penstock_tier::FRAME,
                        extra: n as u64,
                        checksum: 0,
                        synced,
                    };
                    write_over(state, (number, file), at, skip)?;
                }
            }
        }
    }
    Ok(end)
}

/// Puts a record that says nothing in the place of another.
fn write_over(
    state: &State,
    (number, file): (u64, &File),
    at: u64,
    skip: Record,
) -> Result<(), Errno> {
    let place = Place {
        tier: *state.log.tier(),
        segment: number,
        at,
    };
    let tail = at + skip.size() - penstock_tier::FRAME / 2;
    descriptor::write_at(file.as_fd(), tail, &skip.encode(&place, End::Tail))?;
    descriptor::write_at(file.as_fd(), at, &skip.encode(&place, End::Head))
}

/// What a record says comes to pass.
fn apply(state: &mut State, segment: u64, at: u64, record: &Record) {
    let id = FileId(record.object);
    match record.kind {
        Kind::Data => {
            let extent = Extent {
                offset: record.offset,
                len: record.len,
                segment,
                at,
                skip: 0,
                whole: record.len,
                seq: record.seq,
            };
            state.insert(id, extent);
        }
        Kind::Home => {
            let end = record.offset.saturating_add(record.len);
            state.forget(id, record.offset..end, record.extra);
        }
        Kind::Summary | Kind::Skip => {}
    }
}

fn read(file: &File, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len];
    let n = descriptor::read_at(file.as_fd(), at, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The bytes of an extent, if they are those that were written. `None`: damaged.
pub(crate) fn bytes_of(
    tier: &TierId,
    id: FileId,
    file: &File,
    extent: &Extent,
) -> Result<Option<Vec<u8>>, Errno> {
    let payload = extent.whole;
    let size = penstock_tier::FRAME + payload.next_multiple_of(8);
    let bytes = read(file, extent.at, size as usize)?;
    let place = Place {
        tier: *tier,
        segment: extent.segment,
        at: extent.at,
    };
    let tail = (size - penstock_tier::FRAME / 2) as usize;
    let head = Record::decode(&bytes, &place, End::Head);
    let record = head.or_else(|| Record::decode(bytes.get(tail..)?, &place, End::Tail));
    let whole = record.filter(|r| {
        (r.kind, r.seq, r.object, r.len) == (Kind::Data, extent.seq, id.0, extent.whole)
            && checksum([r.bytes(&bytes)]) == r.checksum
    });
    Ok(whole.map(|r| {
        let from = extent.skip as usize;
        r.bytes(&bytes)[from..from + extent.len as usize].to_vec()
    }))
}
