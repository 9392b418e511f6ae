//! The file of one stream of records: format version 3.
//!
//! ```text
//! file    = header block* end
//! header  = "PSTTRACE" version:u32 length:u32 head:[u8; length] crc:u32         crc of all before; head: JSON, see StreamHead
//! block   = "BLCK" kind:u32 count:u32 links:u32 length:u32 begin:u64 end:u64 layers:u32 dropped:u64 payload_crc:u32 crc:u32
//!           payload:[u8; length]                                                crc of the 52 bytes before it
//! kind    = 1: records; 2: names of files; 3: a head that replaces the one before
//! names   = (number:varint id:varint length:varint name:[u8; length])*          count of them; id: the deployment's number
//! end     = "DONE" records:u64 dropped:u64 crc:u32
//! ```
//!
//! Numbers are little-endian. Records of a block stand in [`crate::block`]; a block is read without those before it. Its head
//! says how many records and links it holds, and the earliest begin and the latest end of them. It says which layers are there
//! (bit = number), and how many records had been dropped by then. So a reader finds what it needs without decoding, decodes blocks in
//! parallel, and knows of drops even if the end is missing. Heads of blocks have sums of their own: where only a payload is
//! damaged, the blocks behind it are read.
use crate::bits::{put, take};
use crate::block::{Decoder, Encoder, LINKS, MAX_PAYLOAD, RECORDS};
use crate::error::{Error, Result};
use crate::old_format::{END, MAGIC, u32_at, u64_at};
use crate::record::{Layer, Link, Record, StreamHead};
use crate::recorder::Summary;
use penstock_base::Nanos;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Version that is written.
pub const VERSION: u32 = 3;

const BLOCK: &[u8; 4] = b"BLCK";
/// Bytes before a block's payload.
const BLOCK_HEAD: usize = 56;
/// Bytes of the end.
const END_BYTES: usize = 24;
/// Largest head, bytes.
const MAX_HEAD: u32 = 4 << 20;
/// Most names of files of a stream.
pub const MAX_FILES: usize = 1 << 20;
/// Longest name, bytes; longer ones lose their beginning.
pub const MAX_NAME: usize = 4096;
/// A block of names is written when it has so many bytes.
const NAMES_BYTES: usize = 256 << 10;

const KIND_RECORDS: u32 = 1;
const KIND_NAMES: u32 = 2;
const KIND_HEAD: u32 = 3;

/// A file as a stream names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FileName {
    /// Its path; empty: unknown.
    pub path: String,
    /// Its number in the deployment; 0: it is of none, or unknown.
    pub id: u64,
}

/// Makes the directory of a trace, mode 0700. One that is there stays as it is.
pub fn make_directory(dir: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|source| Error::Io {
        doing: "make",
        path: dir.to_owned(),
        source,
    })
}

/// Writes one stream, block by block. After an error the file ends with its last whole block, and what was pending is lost;
/// the caller may go on.
#[derive(Debug)]
pub struct StreamWriter {
    file: File,
    path: PathBuf,
    numbers: HashMap<FileName, u32>,
    /// Named since the last block of names.
    names: Vec<u8>,
    named: u32,
    records: Vec<Record>,
    links: Vec<(u32, Link)>,
    encoder: Box<Encoder>,
    encoded: Vec<u8>,
    written: Summary,
}

impl StreamWriter {
    /// Makes the file, mode 0600. One that is there already is an error.
    pub fn create(path: &Path, head: &StreamHead) -> Result<StreamWriter> {
        let io = |source| Error::Io {
            doing: "write",
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        let head = encode_head(head)?;
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend((head.len() as u32).to_le_bytes());
        header.extend(head);
        let crc = crc32fast::hash(&header);
        header.extend(crc.to_le_bytes());
        file.write_all(&header).map_err(io)?;
        Ok(StreamWriter {
            file,
            path: path.to_owned(),
            numbers: HashMap::new(),
            names: Vec::new(),
            named: 0,
            records: Vec::with_capacity(RECORDS),
            links: Vec::new(),
            encoder: Box::new(Encoder::new()),
            encoded: Vec::new(),
            written: Summary {
                bytes: header.len() as u64,
                ..Summary::default()
            },
        })
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written so far; what is pending does not count.
    pub fn written(&self) -> Summary {
        self.written
    }

    /// The number of a file; it gets one if it has none. 0: there are [`MAX_FILES`] already.
    pub fn name_file(&mut self, path: &str) -> u32 {
        self.name_file_of(&FileName {
            path: path.into(),
            id: 0,
        })
    }

    /// As [`StreamWriter::name_file`], for a file whose number in the deployment is known.
    pub fn name_file_of(&mut self, file: &FileName) -> u32 {
        if let Some(number) = self.numbers.get(file) {
            return *number;
        }
        if self.numbers.len() >= MAX_FILES {
            return 0;
        }
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(file.clone(), number);
        let mut from = file.path.len().saturating_sub(MAX_NAME);
        while !file.path.is_char_boundary(from) {
            from += 1;
        }
        let path = &file.path[from..];
        put(&mut self.names, number.into());
        put(&mut self.names, file.id);
        put(&mut self.names, path.len() as u64);
        self.names.extend(path.as_bytes());
        self.named += 1;
        number
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record) -> Result<()> {
        self.push_linked(record, &[])
    }

    /// Adds a record, and whose bytes it holds. At most 65,536 links.
    pub fn push_linked(&mut self, record: &Record, links: &[Link]) -> Result<()> {
        if links.len() > LINKS {
            return Err(Error::Invalid(format!(
                "a record with {} links; {LINKS} are possible",
                links.len()
            )));
        }
        if self.links.len() + links.len() > LINKS || self.names.len() >= NAMES_BYTES {
            self.flush()?;
        }
        let place = self.records.len() as u32;
        self.records.push(*record);
        self.links.extend(links.iter().map(|link| (place, *link)));
        match self.records.len() {
            RECORDS => self.flush(),
            _ => Ok(()),
        }
    }

    /// From now on, this many records are known to be missing.
    pub fn set_dropped(&mut self, dropped: u64) {
        self.written.dropped = dropped;
    }

    /// Writes what is pending. On an error, pending records are gone; names are written with the next block.
    pub fn flush(&mut self) -> Result<()> {
        let result = self.write_names().and_then(|()| self.write_records());
        self.records.clear();
        self.links.clear();
        result
    }

    fn write_names(&mut self) -> Result<()> {
        if self.named == 0 {
            return Ok(());
        }
        let names = std::mem::take(&mut self.names);
        let count = self.named;
        let result = self.write_block(KIND_NAMES, count, &names);
        match result {
            Ok(()) => self.named = 0,
            Err(_) => self.names = names,
        }
        result
    }

    fn write_records(&mut self) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let mut payload = std::mem::take(&mut self.encoded);
        payload.clear();
        self.encoder
            .payload(&self.records, &self.links, &mut payload);
        let count = self.records.len() as u32;
        let result = self.write_block(KIND_RECORDS, count, &payload);
        self.encoded = payload;
        result?;
        self.written.events += u64::from(count);
        Ok(())
    }

    /// From now on, the stream's head is this one.
    pub fn set_head(&mut self, head: &StreamHead) -> Result<()> {
        let head = encode_head(head)?;
        self.write_block(KIND_HEAD, 1, &head)
    }

    fn write_block(&mut self, kind: u32, count: u32, payload: &[u8]) -> Result<()> {
        let records: &[Record] = match kind {
            KIND_RECORDS => &self.records,
            _ => &[],
        };
        let links = match kind {
            KIND_RECORDS => self.links.len() as u32,
            _ => 0,
        };
        let begin = records.iter().map(|r| r.begin).min().unwrap_or(0);
        let end = records.iter().map(Record::end).max().unwrap_or(0);
        let layers = records.iter().fold(0, |all, r| all | 1u32 << r.layer as u8);
        let mut head = [0; BLOCK_HEAD];
        let mut at = 0;
        let mut field = |bytes: &[u8]| {
            head[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        field(BLOCK);
        field(&kind.to_le_bytes());
        field(&count.to_le_bytes());
        field(&links.to_le_bytes());
        field(&(payload.len() as u32).to_le_bytes());
        field(&begin.to_le_bytes());
        field(&end.to_le_bytes());
        field(&layers.to_le_bytes());
        field(&self.written.dropped.to_le_bytes());
        field(&crc32fast::hash(payload).to_le_bytes());
        let crc = crc32fast::hash(&head[..BLOCK_HEAD - 4]);
        head[BLOCK_HEAD - 4..].copy_from_slice(&crc.to_le_bytes());
        self.append(&[&head, payload])
    }

    fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        let result = parts.iter().try_for_each(|part| self.file.write_all(part));
        if result.is_err() {
            // No half block before later ones.
            let _ = self.file.set_len(self.written.bytes);
            let _ =
                std::io::Seek::seek(&mut self.file, std::io::SeekFrom::Start(self.written.bytes));
        }
        result.map_err(|source| Error::Io {
            doing: "write",
            path: self.path.clone(),
            source,
        })?;
        self.written.bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(())
    }

    /// Ends the stream; `dropped` records are missing in it.
    pub fn finish(mut self, dropped: u64) -> Result<Summary> {
        self.written.dropped = dropped;
        self.flush()?;
        let mut end = END.to_vec();
        end.extend(self.written.events.to_le_bytes());
        end.extend(dropped.to_le_bytes());
        let crc = crc32fast::hash(&end);
        end.extend(crc.to_le_bytes());
        self.append(&[&end])?;
        Ok(self.written)
    }
}

fn encode_head(head: &StreamHead) -> Result<Vec<u8>> {
    let encoded = serde_json::to_vec(head)
        .map_err(|e| Error::Invalid(format!("a head that is no JSON: {e}")))?;
    if encoded.len() as u64 > u64::from(MAX_HEAD) {
        Err(Error::Invalid(format!(
            "a head of {} bytes; {MAX_HEAD} are possible",
            encoded.len()
        )))
    } else {
        Ok(encoded)
    }
}

/// A block of records, as its head describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// Where it begins in the file, bytes.
    pub at: u64,
    /// Records.
    pub records: u32,
    /// Links.
    pub links: u32,
    /// The earliest begin of a record.
    pub begin: Nanos,
    /// The latest end.
    pub end: Nanos,
    /// Layers of its records: bit = number.
    pub layers: u32,
    length: u32,
    crc: u32,
}

impl BlockInfo {
    /// Some record may be of this layer.
    pub fn has(&self, layer: Layer) -> bool {
        self.layers & (1 << layer as u8) != 0
    }
}

/// Records and links of one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// In the order in which they were written.
    pub records: Vec<Record>,
    /// Links by the place of their record, in that order.
    pub links: Vec<(u32, Link)>,
}

impl Block {
    /// Links of the record at a place.
    pub fn links_of(&self, place: usize) -> &[(u32, Link)] {
        let from = self.links.partition_point(|l| (l.0 as usize) < place);
        let to = self.links.partition_point(|l| (l.0 as usize) <= place);
        &self.links[from..to]
    }
}

/// One stream, opened: all but its records is read and checked. Blocks may be read by several threads.
#[derive(Debug)]
pub struct Stream {
    file: File,
    path: PathBuf,
    head: StreamHead,
    files: Vec<Option<FileName>>,
    blocks: Vec<BlockInfo>,
    summary: Summary,
    damage: Option<Damage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Damage {
    Cut { at: u64, place: &'static str },
    Damaged { at: u64, why: String },
}

impl Stream {
    /// Opens a stream of version 3. Where its end is missing or damaged, what is before is there, and
    /// [`Stream::damage`] says so.
    pub fn open(path: &Path) -> Result<Stream> {
        let io = |source| Error::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        };
        let not = |why: String| Error::NotATrace {
            path: path.to_owned(),
            why,
        };
        let file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let mut start = [0; 16];
        let n = read_at(&file, 0, &mut start).map_err(io)?;
        match n {
            0 => return Err(not("it is empty".into())),
            _ if !start[..n].starts_with(&MAGIC[..n.min(8)]) => {
                return Err(not("it begins with something else".into()));
            }
            16 => {}
            _ => return Err(not("it ends within its header".into())),
        }
        let version = u32_at(&start, 8);
        if version != VERSION {
            return Err(Error::Version {
                path: path.to_owned(),
                found: version,
                ours: VERSION,
            });
        }
        let length = u32_at(&start, 12);
        if length > MAX_HEAD {
            return Err(not("its header has an impossible length".into()));
        }
        let end = 16 + u64::from(length) + 4;
        if end > size {
            return Err(not("it ends within its header".into()));
        }
        let mut header = vec![0; end as usize];
        if read_at(&file, 0, &mut header).map_err(io)? < header.len() {
            return Err(not("it ends within its header".into()));
        }
        let (checked, crc) = header.split_at(header.len() - 4);
        if crc32fast::hash(checked) != u32_at(crc, 0) {
            return Err(not("its header is damaged".into()));
        }
        let head = serde_json::from_slice(&checked[16..])
            .map_err(|e| not(format!("its header is not understood: {e}")))?;
        let mut stream = Stream {
            file,
            path: path.to_owned(),
            head,
            files: Vec::new(),
            blocks: Vec::new(),
            summary: Summary::default(),
            damage: None,
        };
        stream.scan(end, size).map_err(io)?;
        Ok(stream)
    }

    /// Takes note of blocks from `at` on, until the end or the first place that cannot be understood.
    fn scan(&mut self, mut at: u64, size: u64) -> std::io::Result<()> {
        loop {
            self.summary.bytes = at;
            match self.scan_one(at, size)? {
                Scanned::Block(next) => at = next,
                Scanned::End => {
                    self.summary.bytes = size;
                    return Ok(());
                }
                Scanned::Damage(damage) => {
                    self.damage = Some(damage);
                    return Ok(());
                }
            }
        }
    }

    fn scan_one(&mut self, at: u64, size: u64) -> std::io::Result<Scanned> {
        let damaged = |why: &str| {
            Ok(Scanned::Damage(Damage::Damaged {
                at,
                why: why.into(),
            }))
        };
        let cut = |place| Ok(Scanned::Damage(Damage::Cut { at: size, place }));
        let mut head = [0; BLOCK_HEAD];
        let n = read_at(&self.file, at, &mut head)?;
        match n {
            0 => return cut("no end: its writer was killed, or still writes"),
            _ if head[..n].starts_with(&END[..n.min(4)]) => {
                return self.scan_end(at, size, &head[..n]);
            }
            _ if !head[..n].starts_with(&BLOCK[..n.min(4)]) => {
                return damaged("it begins with something else");
            }
            BLOCK_HEAD => {}
            _ => return cut("a block"),
        }
        if crc32fast::hash(&head[..BLOCK_HEAD - 4]) != u32_at(&head, BLOCK_HEAD - 4) {
            return damaged("the checksum of its head does not fit");
        }
        let (kind, count) = (u32_at(&head, 4), u32_at(&head, 8));
        let info = BlockInfo {
            at,
            records: count,
            links: u32_at(&head, 12),
            length: u32_at(&head, 16),
            begin: u64_at(&head, 20),
            end: u64_at(&head, 28),
            layers: u32_at(&head, 36),
            crc: u32_at(&head, 48),
        };
        let most = match kind {
            KIND_RECORDS => MAX_PAYLOAD,
            _ => MAX_HEAD,
        };
        let many =
            kind == KIND_RECORDS && (count as usize > RECORDS || info.links as usize > LINKS);
        if info.length > most || many {
            return damaged("it claims more than a block can hold");
        }
        let next = at + BLOCK_HEAD as u64 + u64::from(info.length);
        if next > size {
            return cut("a block");
        }
        match kind {
            KIND_RECORDS => {
                self.summary.events += u64::from(count);
                self.blocks.push(info);
            }
            KIND_NAMES | KIND_HEAD => {
                let payload = match self.payload(&info)? {
                    Ok(payload) => payload,
                    Err(why) => return damaged(why),
                };
                let result = match kind {
                    KIND_NAMES => self.take_names(&payload, count),
                    _ => self.take_head(&payload),
                };
                if let Err(why) = result {
                    return damaged(&why);
                }
            }
            // Of a later program: what it adds is not needed to read the rest.
            _ => {}
        }
        self.summary.dropped = u64_at(&head, 40);
        Ok(Scanned::Block(next))
    }

    fn scan_end(&mut self, at: u64, size: u64, bytes: &[u8]) -> std::io::Result<Scanned> {
        let damaged = |why: String| Ok(Scanned::Damage(Damage::Damaged { at, why }));
        let Some(end) = bytes.get(..END_BYTES) else {
            return Ok(Scanned::Damage(Damage::Cut {
                at: size,
                place: "its end",
            }));
        };
        if crc32fast::hash(&end[..END_BYTES - 4]) != u32_at(end, END_BYTES - 4) {
            return damaged("the end's checksum does not fit".into());
        }
        let records = u64_at(end, 4);
        if records != self.summary.events {
            return damaged(format!(
                "the end counts {records} records, there are {}: blocks are missing",
                self.summary.events
            ));
        }
        if at + END_BYTES as u64 != size {
            return damaged("something follows the end".into());
        }
        self.summary.dropped = u64_at(end, 12);
        Ok(Scanned::End)
    }

    /// A block's payload, checked; or what is wrong with it.
    fn payload(
        &self,
        info: &BlockInfo,
    ) -> std::io::Result<std::result::Result<Vec<u8>, &'static str>> {
        let mut payload = vec![0; info.length as usize];
        let n = read_at(&self.file, info.at + BLOCK_HEAD as u64, &mut payload)?;
        Ok(match n < payload.len() {
            true => Err("it was cut after it was opened"),
            false if crc32fast::hash(&payload) != info.crc => Err("its checksum does not fit"),
            false => Ok(payload),
        })
    }

    fn take_names(&mut self, mut bytes: &[u8], count: u32) -> std::result::Result<(), String> {
        const SHORT: &str = "a name reaches beyond its block";
        for _ in 0..count {
            let number = take(&mut bytes).ok_or(SHORT)?;
            let id = take(&mut bytes).ok_or(SHORT)?;
            let length = take(&mut bytes).ok_or(SHORT)?;
            let length = usize::try_from(length).map_err(|_| SHORT)?;
            let (name, rest) = bytes.split_at_checked(length).ok_or(SHORT)?;
            bytes = rest;
            let place = usize::try_from(number).ok();
            let place = place
                .filter(|n| (1..=MAX_FILES).contains(n))
                .ok_or_else(|| format!("a file of number {number}"))?;
            if self.files.len() <= place {
                self.files.resize(place + 1, None);
            }
            let path = String::from_utf8(name.to_vec()).map_err(|_| "a name that is no UTF-8")?;
            self.files[place] = Some(FileName { path, id });
        }
        match bytes.len() {
            0 => Ok(()),
            n => Err(format!("{n} bytes behind its last name")),
        }
    }

    fn take_head(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        self.head = serde_json::from_slice(bytes)
            .map_err(|e| format!("a head that is not understood: {e}"))?;
        Ok(())
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says of itself: the last head.
    pub fn head(&self) -> &StreamHead {
        &self.head
    }

    /// The file with this number.
    pub fn file(&self, number: u32) -> Option<&FileName> {
        self.files.get(number as usize)?.as_ref()
    }

    /// All files, with their numbers.
    pub fn files(&self) -> impl Iterator<Item = (u32, &FileName)> {
        let files = self.files.iter().enumerate();
        files.filter_map(|(number, file)| Some((number as u32, file.as_ref()?)))
    }

    /// Its blocks of records.
    pub fn blocks(&self) -> &[BlockInfo] {
        &self.blocks
    }

    /// Records and drops, as far as it can be read. Its bytes are those before any damage.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// What is wrong with its end: it was cut short, or a place behind the blocks that are listed is damaged.
    pub fn damage(&self) -> Option<Error> {
        let path = self.path.clone();
        let events = self.summary.events;
        Some(match self.damage.clone()? {
            Damage::Cut { at, place } => Error::Truncated {
                path,
                at,
                place,
                events,
            },
            Damage::Damaged { at, why } => Error::Damaged {
                path,
                at,
                why,
                events,
            },
        })
    }

    /// The records and links of a block. An error says what is wrong with this one; others may be whole.
    pub fn read(&self, info: &BlockInfo) -> Result<Block> {
        let mut block = Block::default();
        Reading::new().read(self, info, &mut block)?;
        Ok(block)
    }

    /// All records, in the order in which they were written. Each damaged block gives one error, and those behind it follow;
    /// at the end stands [`Stream::damage`], if there is some.
    pub fn records(&self) -> impl Iterator<Item = Result<Record>> {
        let mut reading = Reading::new();
        let blocks = self.blocks.iter().flat_map(move |info| {
            let mut block = Block::default();
            let result = reading.read(self, info, &mut block);
            let records = match result {
                Ok(()) => block.records,
                Err(_) => Vec::new(),
            };
            records.into_iter().map(Ok).chain(result.err().map(Err))
        });
        blocks.chain(self.damage().map(Err))
    }
}

enum Scanned {
    Block(u64),
    End,
    Damage(Damage),
}

/// Reads blocks, and keeps its memory from one to the next: one for each thread that reads.
#[derive(Debug)]
pub struct Reading(Box<Decoder>);

impl Default for Reading {
    fn default() -> Reading {
        Reading::new()
    }
}

impl Reading {
    /// Nothing was read yet.
    pub fn new() -> Reading {
        Reading(Box::new(Decoder::new()))
    }

    /// Reads a block of this stream into `block`, in place of what is there.
    pub fn read(&mut self, stream: &Stream, info: &BlockInfo, block: &mut Block) -> Result<()> {
        block.records.clear();
        block.links.clear();
        let payload = stream.payload(info).map_err(|source| Error::Io {
            doing: "read",
            path: stream.path.clone(),
            source,
        })?;
        let result = payload.map_err(str::to_owned).and_then(|payload| {
            self.0.payload(
                &payload,
                info.records,
                info.links,
                &mut block.records,
                &mut block.links,
            )
        });
        result.map_err(|why| {
            block.records.clear();
            block.links.clear();
            let before = stream.blocks.iter().take_while(|b| b.at < info.at);
            Error::Damaged {
                path: stream.path.clone(),
                at: info.at,
                why,
                events: before.map(|b| u64::from(b.records)).sum(),
            }
        })
    }
}

/// Fills `out` from `at` on as far as the file goes.
fn read_at(file: &File, at: u64, out: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// All streams of a trace: the files `*.trace` of a directory.
#[derive(Debug)]
pub struct Trace {
    /// Those that can be read, in the order of their names.
    pub streams: Vec<Stream>,
    /// Files that are none, and why.
    pub unread: Vec<Error>,
}

impl Trace {
    /// Opens a directory, or one file as a trace of one stream.
    pub fn open(path: &Path) -> Result<Trace> {
        let io = |source| Error::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        };
        if std::fs::metadata(path).map_err(io)?.is_file() {
            return Ok(Trace {
                streams: vec![Stream::open(path)?],
                unread: Vec::new(),
            });
        }
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(path).map_err(io)? {
            let part = entry.map_err(io)?.path();
            if part.extension().is_some_and(|e| e == "trace") {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            return Err(Error::NotATrace {
                path: path.to_owned(),
                why: "no file *.trace is in it".into(),
            });
        }
        parts.sort();
        let mut trace = Trace {
            streams: Vec::new(),
            unread: Vec::new(),
        };
        for part in parts {
            match Stream::open(&part) {
                Ok(stream) => trace.streams.push(stream),
                Err(e) => trace.unread.push(e),
            }
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::Operation;

    #[test]
    fn a_full_disk_costs_what_was_pending_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.trace");
        let mut writer = StreamWriter::create(&path, &StreamHead::default()).unwrap();
        let record = |id| Record {
            id,
            file: 1,
            ..Record::new(Layer::Posix, Operation::READ)
        };
        writer.push(&record(1)).unwrap();
        writer.flush().unwrap();
        // Every write to this device fails for want of space.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let whole = std::mem::replace(&mut writer.file, full);
        assert_eq!(writer.name_file("/data/a"), 1);
        writer.push(&record(2)).unwrap();
        let error = writer.flush().unwrap_err().to_string();
        assert!(
            error.contains("t.trace") && error.contains("space"),
            "{error}"
        );
        writer.file = whole;
        writer.push(&record(3)).unwrap();
        writer.finish(1).unwrap();
        let stream = Stream::open(&path).unwrap();
        assert!(stream.damage().is_none());
        let ids: Vec<u64> = stream.records().map(|r| r.unwrap().id).collect();
        assert_eq!((ids, stream.summary().dropped), (vec![1, 3], 1));
        assert_eq!(stream.file(1).unwrap().path, "/data/a");
    }
}
