//! Reading versions 1 and 2, strictly: what the writer did not write is an error that says where. Everything before it is
//! handed out first.
use crate::error::{Error, Result};
use crate::event::Event;
use crate::old_format::{
    self, BLOCK, BLOCK_EVENTS, BLOCK_HEAD, BODY, END, END_TAIL, Header, MAGIC, MAX_BODY,
    MAX_PAYLOAD, OLDEST_VERSION, VERSION,
};
use crate::recorder::Summary;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Reads one trace file, block by block.
#[derive(Debug)]
pub(crate) struct OldReader {
    file: File,
    path: PathBuf,
    version: u32,
    header: Header,
    at: u64,
    events: u64,
    end: Option<Summary>,
    bytes: Vec<u8>,
}

impl OldReader {
    /// Opens a trace and checks its header.
    pub(crate) fn open(path: &Path) -> Result<OldReader> {
        let io = |source| Error::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        };
        let not = |why: &str| Error::NotATrace {
            path: path.to_owned(),
            why: why.into(),
        };
        let mut file = File::open(path).map_err(io)?;
        let mut head = vec![0; MAGIC.len() + 8];
        let n = fill(&mut file, &mut head).map_err(io)?;
        if n == 0 {
            return Err(not("it is empty"));
        }
        if !head[..n].starts_with(&MAGIC[..n.min(MAGIC.len())]) {
            return Err(not("it does not begin with the magic of a trace"));
        }
        if n < head.len() {
            return Err(not("it ends within its header"));
        }
        let version = old_format::u32_at(&head, 8);
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(Error::Version {
                path: path.to_owned(),
                found: version,
                ours: crate::stream::VERSION,
            });
        }
        let length = old_format::u32_at(&head, 12);
        if (length as usize) < BODY || length > MAX_BODY {
            return Err(not("its header has an impossible length"));
        }
        let start = head.len();
        head.resize(start + length as usize + 4, 0);
        if fill(&mut file, &mut head[start..]).map_err(io)? < length as usize + 4 {
            return Err(not("it ends within its header"));
        }
        let (checked, crc) = head.split_at(head.len() - 4);
        if crc32fast::hash(checked) != old_format::u32_at(crc, 0) {
            return Err(not("its header is damaged"));
        }
        let header = Header::decode(&checked[start..]).map_err(|why| Error::NotATrace {
            path: path.to_owned(),
            why: format!("its header has {why}"),
        })?;
        Ok(OldReader {
            at: head.len() as u64,
            file,
            path: path.to_owned(),
            version,
            header,
            events: 0,
            end: None,
            bytes: Vec::new(),
        })
    }

    /// What the trace says of itself.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// What its end says, once it has been read.
    pub(crate) fn summary(&self) -> Option<Summary> {
        self.end
    }

    /// Appends the next block's events to `out`. False: the trace is over. After an error nothing more can be read.
    pub(crate) fn next_block(&mut self, out: &mut Vec<Event>) -> Result<bool> {
        if self.end.is_some() {
            return Ok(false);
        }
        let mut magic = [0; 4];
        match self.take(&mut magic)? {
            0 => {
                return Err(self.truncated(
                    "the middle: it was not ended, so its server still writes it or was killed",
                ));
            }
            4 => {}
            _ => return Err(self.truncated("a block's beginning")),
        }
        if &magic == END {
            return self.read_end().map(|()| false);
        }
        if &magic != BLOCK {
            return Err(self.damaged("it begins like no block"));
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend(magic);
        bytes.resize(BLOCK_HEAD, 0);
        if self.take(&mut bytes[4..])? < BLOCK_HEAD - 4 {
            return Err(self.truncated("a block's beginning"));
        }
        let (count, length) = (old_format::u32_at(&bytes, 4), old_format::u32_at(&bytes, 8));
        if count == 0 || count as usize > BLOCK_EVENTS || length > MAX_PAYLOAD {
            return Err(self.damaged(&format!(
                "it claims {count} events in {length} bytes, at most {BLOCK_EVENTS} in {MAX_PAYLOAD} are possible"
            )));
        }
        bytes.resize(BLOCK_HEAD + length as usize + 4, 0);
        if self.take(&mut bytes[BLOCK_HEAD..])? < length as usize + 4 {
            return Err(self.truncated("a block"));
        }
        let (checked, crc) = bytes.split_at(bytes.len() - 4);
        if crc32fast::hash(checked) != old_format::u32_at(crc, 0) {
            return Err(self.damaged("its checksum does not fit"));
        }
        let before = out.len();
        if let Err(why) =
            old_format::decode_payload(self.version, count, &checked[BLOCK_HEAD..], out)
        {
            out.truncate(before);
            return Err(self.damaged(&why));
        }
        self.events += u64::from(count);
        self.at += bytes.len() as u64;
        self.bytes = bytes;
        Ok(true)
    }

    fn read_end(&mut self) -> Result<()> {
        let mut bytes = END.to_vec();
        bytes.resize(4 + END_TAIL, 0);
        if self.take(&mut bytes[4..])? < END_TAIL {
            return Err(self.truncated("its end"));
        }
        if crc32fast::hash(&bytes[..END_TAIL]) != old_format::u32_at(&bytes, END_TAIL) {
            return Err(self.damaged("the end's checksum does not fit"));
        }
        let events = old_format::u64_at(&bytes, 4);
        if events != self.events {
            return Err(self.damaged(&format!(
                "the end counts {events} events, {} were read: blocks are missing",
                self.events
            )));
        }
        if self.take(&mut [0; 1])? != 0 {
            return Err(self.damaged("something follows the end"));
        }
        self.end = Some(Summary {
            events,
            dropped: old_format::u64_at(&bytes, 12),
            bytes: self.at + bytes.len() as u64,
        });
        Ok(())
    }

    fn take(&mut self, out: &mut [u8]) -> Result<usize> {
        fill(&mut self.file, out).map_err(|source| Error::Io {
            doing: "read",
            path: self.path.clone(),
            source,
        })
    }

    fn truncated(&self, place: &'static str) -> Error {
        Error::Truncated {
            path: self.path.clone(),
            at: self.file.metadata().map_or(self.at, |m| m.len()),
            place,
            events: self.events,
        }
    }

    fn damaged(&self, why: &str) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            at: self.at,
            why: why.into(),
            events: self.events,
        }
    }
}

/// Reads until `out` is full or the file ends.
fn fill(file: &mut File, out: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match file.read(&mut out[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;
    use crate::old_format::{encode_block, encode_end};
    use crate::{Reader, convert, read_all};
    use penstock_base::Op;

    const HEADER: Header = Header {
        server: 1,
        servers: 4,
        unit: 65536,
        began: 1_700_000_000_000_000_000,
        repetitions: 1,
    };

    /// Requests of three events each; every tenth was still served when the trace ended.
    fn events(requests: u64) -> Vec<Event> {
        let kinds = [Kind::Arrival, Kind::Dispatch, Kind::Completion];
        let mut all: Vec<Event> = (0..requests)
            .flat_map(|i| kinds.map(|kind| (i, kind)))
            .filter(|(i, kind)| i % 10 != 9 || *kind != Kind::Completion)
            .map(|(i, kind)| Event {
                at: i * 1000 + kind as u64 * 700,
                request: 2 + 3 * i,
                kind,
                op: if i % 2 == 0 { Op::Read } else { Op::Write },
                file: i % 5,
                offset: i * 4096,
                bytes: 4096,
                program: 3,
                rank: (i % 7) as u32,
                mpi_call: 0,
                client_call: i / 3,
            })
            .collect();
        all.sort();
        all
    }

    fn file(events: &[Event]) -> Vec<u8> {
        let mut out = HEADER.encode();
        events
            .chunks(100)
            .for_each(|block| encode_block(block, &mut out));
        out.extend(encode_end(events.len() as u64, 7));
        out
    }

    #[test]
    fn version_2_is_read_and_converted_without_loss() {
        let dir = tempfile::tempdir().unwrap();
        let events = events(300);
        let old = dir.path().join("old.trace");
        std::fs::write(&old, file(&events)).unwrap();
        let (header, read, damage) = read_all(&old).unwrap();
        assert!(damage.is_none());
        assert_eq!((header, &read), (HEADER, &events));
        let new = dir.path().join("new.trace");
        let (summary, damage) = convert(&old, &new).unwrap();
        assert!(damage.is_none());
        assert_eq!((summary.dropped, summary.events), (7, 3 * 300 - 30));
        let (header, mut again, damage) = read_all(&new).unwrap();
        assert!(damage.is_none());
        assert_eq!(header, HEADER);
        // Requests get other numbers, in the order in which they ended.
        let mut plain = read;
        for e in again.iter_mut().chain(&mut plain) {
            e.request = 0;
        }
        again.sort();
        plain.sort();
        assert_eq!(again, plain);
        let error = convert(&new, &dir.path().join("x.trace")).unwrap_err();
        assert!(error.to_string().contains("format of today"), "{error}");
    }

    #[test]
    fn damage_of_older_files_is_said_and_what_is_before_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.trace");
        let whole = file(&events(200));
        let mut parts = 0;
        for at in (0..whole.len()).step_by(13) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            match read_all(&path) {
                Ok((_, _, damage)) => {
                    assert!(damage.is_some(), "byte {at}");
                    parts += 1;
                }
                Err(e) => assert!(at < 48, "byte {at}: {e}"),
            }
            std::fs::write(&path, &whole[..at]).unwrap();
            match Reader::open(&path) {
                Ok(mut reader) => {
                    let mut events = Vec::new();
                    let error = loop {
                        match reader.next_block(&mut events) {
                            Ok(true) => {}
                            Ok(false) => panic!("cut at {at}, and whole"),
                            Err(e) => break e,
                        }
                    };
                    assert!(matches!(error, Error::Truncated { .. }), "{error}");
                }
                Err(e) => assert!(matches!(e, Error::NotATrace { .. }), "{e}"),
            }
        }
        assert!(parts > 50);
    }
}
