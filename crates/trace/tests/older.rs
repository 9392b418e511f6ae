//! The first version of the format is read and converted.
#![allow(clippy::unwrap_used)]
use penstock_trace::{Event, Kind, Op, convert, read_all};

#[test]
fn the_first_version_is_read() {
    let mut file = b"PSTTRACE".to_vec();
    for number in [1, 28, 0, 1] {
        file.extend(u32::to_le_bytes(number));
    }
    file.extend(65536u64.to_le_bytes());
    file.extend(7u64.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend(crc32fast::hash(&file).to_le_bytes());
    // An arrival with all fields, and one that follows it in the file.
    let first = [4, 10, 2, 0, 9, 0x80, 0x40, 0x80, 0x20, 3];
    let payload = [&first[..], &[0x7c, 10, 2]].concat();
    let block = file.len();
    file.extend(b"BLCK");
    file.extend(2u32.to_le_bytes());
    file.extend((payload.len() as u32).to_le_bytes());
    file.extend(payload);
    file.extend(crc32fast::hash(&file[block..]).to_le_bytes());
    let end = file.len();
    file.extend(b"DONE");
    file.extend(2u64.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.extend(crc32fast::hash(&file[end..]).to_le_bytes());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    std::fs::write(&path, file).unwrap();
    let (header, events, damage) = read_all(&path).unwrap();
    assert!(damage.is_none() && header.began == 7);
    let arrival = |i: u64| Event {
        at: 5 * i,
        request: i,
        kind: Kind::Arrival,
        op: Op::Write,
        file: 9,
        offset: 4096 * i,
        bytes: 4096,
        program: 3,
        rank: 0,
        mpi_call: 0,
        client_call: 0,
    };
    assert_eq!(events, [arrival(1), arrival(2)]);
    // Converted, the same is there.
    let new = dir.path().join("new.trace");
    let (summary, damage) = convert(&path, &new).unwrap();
    assert!(damage.is_none() && summary.events == 2);
    let (header, again, _) = read_all(&new).unwrap();
    assert_eq!((header.began, again.len()), (7, 2));
    for (old, new) in events.iter().zip(again) {
        assert_eq!(
            *old,
            Event {
                request: old.request,
                ..new
            }
        );
    }
}
