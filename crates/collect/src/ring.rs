//! One process's ring in shared memory, as `interpose/src/ring.h` lays it out. What stands in it is checked: the program may
//! have written over it.
use crate::{Error, Result};
use penstock_trace::{FileName, Layer, Operation, Parent, Record};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = 0x3147_4e49_5254_5350;
const VERSION: u32 = 1;
const HEADER: usize = 4096;
const SLOT: usize = 80;
/// Largest ring, bytes.
const LARGEST: u64 = 512 << 20;
const RECORD: u8 = 1;
const NAME: u8 = 2;

/// Places of the header's fields.
mod at {
    pub const VERSION: usize = 8;
    pub const SLOT_BYTES: usize = 12;
    pub const SLOTS: usize = 16;
    pub const PID: usize = 20;
    pub const STARTED: usize = 24;
    pub const BEGAN: usize = 32;
    pub const PROGRAM: usize = 40;
    pub const RANK: usize = 48;
    pub const STOP: usize = 52;
    pub const COMMAND: (usize, usize) = (56, 1024);
    pub const JOB: (usize, usize) = (1080, 128);
    pub const CHOSEN: (usize, usize) = (1208, 1024);
    pub const HEAD: usize = 2304;
    pub const TAIL: usize = 2432;
    pub const DROPPED: usize = 2560;
}

/// What a process hands over.
#[derive(Debug)]
pub enum Entry {
    /// A call. Its `file` is a number of the process's.
    Record(Record),
    /// The name of the process's file with this number, and its number in the deployment or 0.
    Name(u32, FileName),
}

/// A ring, mapped.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    length: usize,
    slots: u64,
    tail: u64,
    /// Entries that were never finished, or make no sense.
    lost: u64,
}

// SAFETY: the mapping belongs to this value alone, and is read and written through atomics and volatile copies.
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

impl Ring {
    /// Maps a ring of this user's. `None`: it is not one, or is not filled in yet.
    pub fn open(path: &Path) -> Result<Option<Ring>> {
        let io = |source: rustix::io::Errno| Error::Io {
            doing: "map",
            path: path.to_owned(),
            source: source.into(),
        };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = open(path, flags, Mode::empty()).map_err(io)?;
        let status = fstat(&file).map_err(io)?;
        let length = u64::try_from(status.st_size).unwrap_or(0);
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile
            || status.st_uid != rustix::process::geteuid().as_raw()
            || length < (HEADER + SLOT) as u64
            || length > LARGEST
        {
            return Ok(None);
        }
        let length = length as usize;
        // SAFETY: a new mapping; the file belongs to this user and is as long as it.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let Some(base) = NonNull::new(base.map_err(io)?.cast()) else {
            return Ok(None);
        };
        let mut ring = Ring {
            base,
            length,
            slots: 0,
            tail: 0,
            lost: 0,
        };
        if ring.word64(0).load(Ordering::Acquire) != MAGIC
            || ring.number(at::VERSION) != VERSION
            || ring.number(at::SLOT_BYTES) as usize != SLOT
        {
            return Ok(None);
        }
        let slots = ring.number(at::SLOTS);
        if !slots.is_power_of_two() || slots as usize > (length - HEADER) / SLOT {
            return Ok(None);
        }
        ring.slots = slots.into();
        ring.tail = ring.word64(at::TAIL).load(Ordering::Relaxed);
        Ok(Some(ring))
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= self.length && at.is_multiple_of(8));
        // SAFETY: within the mapping, aligned, and only accessed atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn word32(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= self.length && at.is_multiple_of(4));
        // SAFETY: as in `word64`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn number(&self, at: usize) -> u32 {
        self.word32(at).load(Ordering::Relaxed)
    }

    fn text(&self, (at, room): (usize, usize)) -> String {
        let mut bytes = vec![0; room];
        self.copy(at, &mut bytes);
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(room);
        String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
    }

    fn copy(&self, at: usize, to: &mut [u8]) {
        assert!(at + to.len() <= self.length);
        // SAFETY: within the mapping; bytes of any value are fine. The writer has finished with them where it follows the
        // protocol; where it does not, they are some bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), to.as_mut_ptr(), to.len());
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.number(at::PID)
    }
    /// When it started, as /proc has it.
    pub fn started(&self) -> u64 {
        self.word64(at::STARTED).load(Ordering::Relaxed)
    }
    /// Time 0 of its records, nanoseconds since 1970.
    pub fn began(&self) -> u64 {
        self.word64(at::BEGAN).load(Ordering::Relaxed)
    }
    /// The program's number.
    pub fn program(&self) -> u64 {
        self.word64(at::PROGRAM).load(Ordering::Relaxed)
    }
    /// Its rank in the program.
    pub fn rank(&self) -> u32 {
        self.number(at::RANK)
    }
    /// Its command line.
    pub fn command(&self) -> String {
        self.text(at::COMMAND)
    }
    /// The batch job.
    pub fn job(&self) -> String {
        self.text(at::JOB)
    }
    /// What was chosen.
    pub fn chosen(&self) -> String {
        self.text(at::CHOSEN)
    }
    /// The process records no more from now on.
    pub fn stop(&self) {
        self.word32(at::STOP).store(1, Ordering::Relaxed);
    }
    /// Records that are missing: there was no room, or the process was killed as it wrote one.
    pub fn dropped(&self) -> u64 {
        self.word64(at::DROPPED).load(Ordering::Relaxed) + self.lost
    }

    /// Hands over what is finished, in its order. True if something unfinished stands in the way of what is behind it.
    pub fn drain(&mut self, mut each: impl FnMut(Entry)) -> bool {
        let head = self.word64(at::HEAD).load(Ordering::Acquire);
        // No more than there is room for, whatever `head` says.
        let mut left = head.wrapping_sub(self.tail).min(self.slots);
        while left > 0 {
            let place = self.place(self.tail);
            if self.word32(place).load(Ordering::Acquire) != sequence(self.tail) {
                return true;
            }
            let mut slot = [0; SLOT];
            self.copy(place, &mut slot);
            let slots = u64::from(u32_of(&slot, 76)).clamp(1, left);
            match self.entry(&slot, slots) {
                Some(entry) => each(entry),
                None => self.lost += 1,
            }
            self.pass(slots);
            left -= slots;
        }
        false
    }

    /// Passes what will never be finished, up to the next entry that is.
    pub fn skip(&mut self) {
        let head = self.word64(at::HEAD).load(Ordering::Acquire);
        let mut left = head.wrapping_sub(self.tail).min(self.slots);
        while left > 0
            && self.word32(self.place(self.tail)).load(Ordering::Acquire) != sequence(self.tail)
        {
            self.lost += 1;
            self.pass(1);
            left -= 1;
        }
    }

    fn place(&self, number: u64) -> usize {
        HEADER + (number & (self.slots - 1)) as usize * SLOT
    }

    /// Gives slots back to the process.
    fn pass(&mut self, slots: u64) {
        for k in 0..slots {
            let place = self.place(self.tail + k);
            self.word32(place).store(0, Ordering::Relaxed);
        }
        self.tail += slots;
        self.word64(at::TAIL).store(self.tail, Ordering::Release);
    }

    fn entry(&self, slot: &[u8; SLOT], slots: u64) -> Option<Entry> {
        let file = u32_of(slot, 64);
        match slot[7] {
            RECORD => {
                let parent = u64_of(slot, 16);
                let operation = Operation(u16::from_le_bytes([slot[4], slot[5]]));
                let mut record = Record::new(Layer::from_number(slot[6])?, operation);
                record.id = u64_of(slot, 8);
                record.parent = match parent {
                    0 => Parent::None,
                    id => Parent::Here(id),
                };
                record.begin = u64_of(slot, 24);
                record.duration = u64_of(slot, 32);
                record.offset = u64_of(slot, 40);
                record.bytes = u64_of(slot, 48);
                match u64_of(slot, 56) {
                    server if record.layer > Layer::Posix => record.server = server as u32,
                    code => record.code = code,
                }
                record.file = file;
                record.error = u32_of(slot, 68) as i32;
                record.thread = u32_of(slot, 72);
                Some(Entry::Record(record))
            }
            NAME => {
                let length = u64_of(slot, 48);
                if length > (slots - 1) * SLOT as u64 {
                    return None;
                }
                let mut text = vec![0; length as usize];
                for (k, part) in text.chunks_mut(SLOT).enumerate() {
                    self.copy(self.place(self.tail + 1 + k as u64), part);
                }
                let path = String::from_utf8_lossy(&text).into_owned();
                let id = u64_of(slot, 8);
                Some(Entry::Name(file, FileName { path, id }))
            }
            _ => None,
        }
    }
}

/// What the first slot of an entry at this place holds when it is finished.
fn sequence(place: u64) -> u32 {
    match (place as u32).wrapping_add(1) {
        0 => 1,
        n => n,
    }
}

fn u32_of(slot: &[u8; SLOT], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&slot[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_of(slot: &[u8; SLOT], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&slot[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::Write;

    pub const TEST_SLOTS: usize = 8;

    /// A ring of 8 slots whose process has filled in the header.
    pub fn bytes(pid: u32, started: u64) -> Vec<u8> {
        let mut ring = vec![0; HEADER + TEST_SLOTS * SLOT];
        let mut set = |at: usize, value: &[u8]| ring[at..at + value.len()].copy_from_slice(value);
        set(0, &MAGIC.to_le_bytes());
        set(at::VERSION, &VERSION.to_le_bytes());
        set(at::SLOT_BYTES, &(SLOT as u32).to_le_bytes());
        set(at::SLOTS, &(TEST_SLOTS as u32).to_le_bytes());
        set(at::PID, &pid.to_le_bytes());
        set(at::STARTED, &started.to_le_bytes());
        set(at::BEGAN, &1_000u64.to_le_bytes());
        set(at::COMMAND.0, b"./app input\0");
        ring
    }

    /// Writes an entry as the process does; `finished` or killed before its end.
    pub fn push(ring: &mut [u8], kind: u8, id: u64, text: &[u8], finished: bool) {
        let head = u64::from_le_bytes(ring[at::HEAD..at::HEAD + 8].try_into().unwrap());
        let slots = 1 + text.len().div_ceil(SLOT) as u64;
        let place = |n: u64| HEADER + (n as usize % TEST_SLOTS) * SLOT;
        let mut slot = [0; SLOT];
        slot[0..4].copy_from_slice(&sequence(head).to_le_bytes());
        slot[4..6].copy_from_slice(&Operation::WRITE.0.to_le_bytes());
        slot[6] = Layer::Posix as u8;
        slot[7] = kind;
        slot[8..16].copy_from_slice(&id.to_le_bytes());
        slot[48..56].copy_from_slice(&(text.len() as u64).to_le_bytes());
        slot[64..68].copy_from_slice(&7u32.to_le_bytes());
        slot[76..80].copy_from_slice(&(slots as u32).to_le_bytes());
        if finished {
            ring[place(head)..][..SLOT].copy_from_slice(&slot);
        }
        for (k, part) in text.chunks(SLOT).enumerate() {
            ring[place(head + 1 + k as u64)..][..part.len()].copy_from_slice(part);
        }
        ring[at::HEAD..at::HEAD + 8].copy_from_slice(&(head + slots).to_le_bytes());
    }

    fn opened(bytes: &[u8]) -> Option<Ring> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Ring::open(file.path()).unwrap()
    }

    fn ids(ring: &mut Ring) -> (Vec<u64>, bool) {
        let mut ids = Vec::new();
        let stuck = ring.drain(|entry| match entry {
            Entry::Record(record) => ids.push(record.id),
            Entry::Name(number, name) => {
                ids.push(u64::from(number) * 1000 + name.path.len() as u64)
            }
        });
        (ids, stuck)
    }

    #[test]
    fn entries_come_in_order_and_names_over_several_slots() {
        let mut ring = bytes(1, 2);
        push(&mut ring, RECORD, 1, b"", true);
        push(&mut ring, NAME, 0, &[b'n'; 200], true);
        push(&mut ring, RECORD, 2, b"", true);
        let mut ring = opened(&ring).unwrap();
        assert_eq!((ring.pid(), ring.command()), (1, "./app input".into()));
        assert_eq!(ids(&mut ring), (vec![1, 7200, 2], false));
        assert_eq!(ids(&mut ring), (vec![], false));
        assert_eq!(ring.dropped(), 0);
    }

    #[test]
    fn what_was_never_finished_is_passed_and_counted() {
        let mut ring = bytes(1, 2);
        push(&mut ring, RECORD, 1, b"", true);
        push(&mut ring, RECORD, 2, b"", false);
        push(&mut ring, RECORD, 3, b"", true);
        let mut ring = opened(&ring).unwrap();
        assert_eq!(ids(&mut ring), (vec![1], true));
        ring.skip();
        assert_eq!(ids(&mut ring), (vec![3], false));
        assert_eq!(ring.dropped(), 1);
    }

    #[test]
    fn nonsense_is_no_ring_or_lost_entries() {
        assert!(opened(b"short").is_none());
        let whole = bytes(1, 2);
        for (at, value) in [
            (0, 9u8),
            (at::VERSION, 9),
            (at::SLOT_BYTES, 9),
            (at::SLOTS, 9),
            (at::SLOTS, 128),
        ] {
            let mut bad = whole.clone();
            bad[at] = value;
            assert!(opened(&bad).is_none(), "{at}");
        }
        // An entry of a kind or layer that nobody knows, a name longer than its slots, a head far ahead.
        let mut ring = whole.clone();
        push(&mut ring, 9, 1, b"", true);
        push(&mut ring, NAME, 1, b"name", true);
        let place = HEADER + SLOT + 48;
        ring[place..place + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        push(&mut ring, RECORD, 5, b"", true);
        ring[at::HEAD..at::HEAD + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        let mut ring = opened(&ring).unwrap();
        assert_eq!(ids(&mut ring).0, [5]);
        assert_eq!(ring.dropped(), 2);
    }
}
