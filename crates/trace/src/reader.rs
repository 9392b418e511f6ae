//! Reads traces, strictly: bytes that the writer did not write are an error with a position. Everything before them is
//! returned first.
use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::{
    self, BLOCK, BLOCK_EVENTS, BLOCK_HEAD, BODY, END, END_TAIL, Header, MAGIC, MAX_BODY,
    MAX_PAYLOAD, OLDEST_VERSION, VERSION,
};
use crate::recorder::Summary;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Reads one trace file, block by block.
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    version: u32,
    header: Header,
    at: u64,
    events: u64,
    end: Option<Summary>,
    bytes: Vec<u8>,
}

impl Reader {
    /// Opens a trace and checks its header.
    pub fn open(path: &Path) -> Result<Reader> {
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
        let version = format::u32_at(&head, 8);
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(Error::Version {
                path: path.to_owned(),
                found: version,
                ours: VERSION,
            });
        }
        let length = format::u32_at(&head, 12);
        if (length as usize) < BODY || length > MAX_BODY {
            return Err(not("its header has an impossible length"));
        }
        let start = head.len();
        head.resize(start + length as usize + 4, 0);
        if fill(&mut file, &mut head[start..]).map_err(io)? < length as usize + 4 {
            return Err(not("it ends within its header"));
        }
        let (checked, crc) = head.split_at(head.len() - 4);
        if crc32fast::hash(checked) != format::u32_at(crc, 0) {
            return Err(not("its header is damaged"));
        }
        let header = Header::decode(&checked[start..]).map_err(|why| Error::NotATrace {
            path: path.to_owned(),
            why: format!("its header has {why}"),
        })?;
        Ok(Reader {
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

    /// What the trace records about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The counts at its end, once that has been read.
    pub fn summary(&self) -> Option<Summary> {
        self.end
    }

    /// Appends the next block's events to `out`. Returns false at the end of the trace. After an error nothing more can
    /// be read.
    pub fn next_block(&mut self, out: &mut Vec<Event>) -> Result<bool> {
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
        let (count, length) = (format::u32_at(&bytes, 4), format::u32_at(&bytes, 8));
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
        if crc32fast::hash(checked) != format::u32_at(crc, 0) {
            return Err(self.damaged("its checksum does not fit"));
        }
        let before = out.len();
        if let Err(why) = format::decode_payload(self.version, count, &checked[BLOCK_HEAD..], out) {
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
        if crc32fast::hash(&bytes[..END_TAIL]) != format::u32_at(&bytes, END_TAIL) {
            return Err(self.damaged("the end's checksum does not fit"));
        }
        let events = format::u64_at(&bytes, 4);
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
            dropped: format::u64_at(&bytes, 12),
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

/// All events of a trace. If it is damaged, the events before the damage, and the error.
pub fn read_all(path: &Path) -> Result<(Header, Vec<Event>, Option<Error>)> {
    let mut reader = Reader::open(path)?;
    let mut events = Vec::new();
    loop {
        match reader.next_block(&mut events) {
            Ok(true) => {}
            Ok(false) => return Ok((reader.header, events, None)),
            Err(e) if e.leaves_a_part() => return Ok((reader.header, events, Some(e))),
            Err(e) => return Err(e),
        }
    }
}
