//! A trace file with any content: an error that names the place, or records that survive being written again.
//!
//! The first byte says what the others are. They are a whole file (of an older version, too), the payload of one
//! block in an otherwise sound file, or names of files. A random file would never get past
//! the checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_trace::{Block, Stream, StreamHead, StreamWriter, VERSION, read_all};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| scratch("read"));
static AGAIN: LazyLock<PathBuf> = LazyLock::new(|| scratch("written"));

fn scratch(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("penstock-fuzz-{}-{what}.trace", std::process::id()))
}

/// A sound header, and one sound head of a block before this payload.
fn file(kind: u32, count: u8, links: u8, payload: &[u8]) -> Vec<u8> {
    let head = b"{\"server\":0,\"servers\":1,\"unit\":65536}";
    let mut out = b"PSTTRACE".to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((head.len() as u32).to_le_bytes());
    out.extend(head);
    out.extend(crc32fast::hash(&out).to_le_bytes());
    let block = out.len();
    out.extend(b"BLCK");
    for number in [kind, count.into(), links.into(), payload.len() as u32] {
        out.extend(number.to_le_bytes());
    }
    // Begin, end, layers, dropped.
    out.extend([0xff; 28]);
    out.extend(crc32fast::hash(payload).to_le_bytes());
    out.extend(crc32fast::hash(&out[block..]).to_le_bytes());
    out.extend(payload);
    out
}

fuzz_target!(|bytes: &[u8]| {
    let content = match bytes {
        [0, whole @ ..] => whole.to_vec(),
        [1, names, payload @ ..] => file(2, *names, 0, payload),
        [2, count, links, payload @ ..] => file(1, *count, *links, payload),
        _ => return,
    };
    fs::write(&*FILE, content).expect("a file is written");
    // As events of requests, of whatever version.
    let _ = read_all(&FILE);
    let opened = Stream::open(&FILE);
    let Ok(stream) = opened else {
        let _ = fs::remove_file(&*FILE);
        return;
    };
    let _ = stream.records().count();
    let blocks: Vec<Block> = stream.blocks().iter().filter_map(|b| stream.read(b).ok()).collect();
    let _ = fs::remove_file(&*FILE);
    let mut writer = StreamWriter::create(&AGAIN, &StreamHead::default()).expect("created");
    for block in &blocks {
        for (place, record) in block.records.iter().enumerate() {
            let links: Vec<_> = block.links_of(place).iter().map(|l| l.1).collect();
            writer.push_linked(record, &links).expect("written");
        }
        writer.flush().expect("flushed");
    }
    writer.finish(0).expect("finished");
    let again = Stream::open(&AGAIN).expect("what was written is read");
    let read: Vec<Block> = again.blocks().iter().map(|b| again.read(b).expect("read")).collect();
    let _ = fs::remove_file(&*AGAIN);
    let blocks: Vec<Block> = blocks.into_iter().filter(|b| !b.records.is_empty()).collect();
    assert_eq!(read, blocks);
});
