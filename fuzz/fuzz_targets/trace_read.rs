//! A trace file with any content: an error that names the place, or events that survive being written again.
//!
//! Some inputs are taken as the whole file. The others are the payload of one block in an otherwise sound file: a
//! reader that checks sums is not reached by chance.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_trace::{Header, VERSION, Writer, read_all};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| scratch("read"));
static AGAIN: LazyLock<PathBuf> = LazyLock::new(|| scratch("written"));
const HEADER: Header = Header {
    server: 0,
    servers: 1,
    unit: 65536,
    began: 0,
    repetitions: 1,
};

fn scratch(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("penstock-fuzz-{}-{what}.trace", std::process::id()))
}

/// A sound header, and one block of `count` events with this payload.
fn file(count: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = b"PSTTRACE".to_vec();
    for number in [VERSION, 28, HEADER.server, HEADER.servers] {
        out.extend(number.to_le_bytes());
    }
    out.extend(HEADER.unit.to_le_bytes());
    out.extend(HEADER.began.to_le_bytes());
    out.extend(HEADER.repetitions.to_le_bytes());
    out.extend(crc32fast::hash(&out).to_le_bytes());
    let block = out.len();
    out.extend(b"BLCK");
    out.extend(u32::from(count).to_le_bytes());
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend(payload);
    let crc = crc32fast::hash(&out[block..]);
    out.extend(crc.to_le_bytes());
    out
}

fuzz_target!(|bytes: &[u8]| {
    let content = match bytes {
        [0, whole @ ..] => whole.to_vec(),
        [count, payload @ ..] => file(*count, payload),
        [] => return,
    };
    fs::write(&*FILE, content).expect("a file is written");
    let read = read_all(&FILE);
    let _ = fs::remove_file(&*FILE);
    let Ok((header, events, _)) = read else {
        return;
    };
    let mut writer = Writer::create(&AGAIN, &header).expect("a trace is created");
    for event in &events {
        writer.push(*event).expect("an event is written");
    }
    writer.finish(0).expect("a trace is finished");
    let again = read_all(&AGAIN).expect("what was written is read");
    let _ = fs::remove_file(&*AGAIN);
    assert_eq!((again.0, again.1), (header, events));
});
