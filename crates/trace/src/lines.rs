//! A journal of records, written as lines of text; what is read is always a complete beginning of it.
//!
//! A trace may lose events and continues. But the calls of a scheduler each depend on all calls before. A journal with
//! a gap is useless after the gap. So this one ends at the first record that finds no room, and says how many came
//! after it. Whoever records never waits for the disk: a thread of its own makes and writes the lines.
//!
//! ```text
//! penstock lines 1 KIND
//! LINE...
//! = LINES LOST CRC        lines before, things lost after them, CRC-32 of all bytes before in hexadecimal
//! ```
use crate::error::{Error, Result};
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const TITLE: &str = "penstock lines 1 ";
/// The most records that may wait to be written.
const WAITING: usize = 64 << 10;
/// Largest file, bytes.
const MAX_FILE: u64 = 1 << 30;
/// The longest time until written lines are passed to the disk.
const INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of one call of `write`.
const BLOCK: usize = 128 << 10;
/// Longest line that is read.
const MAX_LINE: u64 = 64 << 10;

/// Records values as lines. Ends its file when dropped.
#[derive(Debug)]
pub struct Lines<T> {
    shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<T> {
    pending: Mutex<Pending<T>>,
    /// Signalled when half of the room is taken, or at the end.
    wake: Condvar,
    /// The most records that may wait.
    room: usize,
}

/// Records that wait to be written. The writer takes the whole list: waking it for each record would cost more than
/// writing the line.
#[derive(Debug)]
struct Pending<T> {
    things: Vec<T>,
    /// A record found no room, or the file has ended. No record may follow.
    full: bool,
    lost: u64,
    ending: bool,
}

impl<T> Shared<T> {
    fn pending(&self) -> MutexGuard<'_, Pending<T>> {
        // After a panic of another thread the list is still usable.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Display + Send + 'static> Lines<T> {
    /// Creates the file and starts the thread that writes it. `kind` is one word.
    pub fn start(path: &Path, kind: &str) -> Result<Lines<T>> {
        Lines::bounded(path, kind, WAITING, MAX_FILE)
    }

    fn bounded(path: &Path, kind: &str, waiting: usize, most: u64) -> Result<Lines<T>> {
        let io = |doing| {
            move |source| Error::Io {
                doing,
                path: path.to_owned(),
                source,
            }
        };
        let file = File::create(path).map_err(io("write"))?;
        let mut writer = LineWriter {
            path: path.to_owned(),
            file: BufWriter::with_capacity(BLOCK, file),
            crc: crc32fast::Hasher::new(),
            line: String::new(),
            lines: 0,
            bytes: 0,
            failed: false,
        };
        writer
            .put(format_args!("{TITLE}{kind}"))
            .map_err(io("write"))?;
        writer.lines = 0;
        let shared = Arc::new(Shared {
            pending: Mutex::new(Pending {
                things: Vec::new(),
                full: false,
                lost: 0,
                ending: false,
            }),
            wake: Condvar::new(),
            room: waiting,
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("lines".into())
            .spawn(move || write_all(&theirs, writer, most))
            .map_err(io("start the thread that writes"))?;
        Ok(Lines {
            shared,
            thread: Some(thread),
        })
    }

    /// Records a value, or counts it as lost; then all later ones are lost too. Never waits for the disk.
    pub fn record(&self, thing: T) {
        let room = self.shared.room;
        let mut pending = self.shared.pending();
        if pending.full || pending.things.len() >= room {
            pending.full = true;
            pending.lost += 1;
            return;
        }
        pending.things.push(thing);
        if pending.things.len() == room.div_ceil(2) {
            drop(pending);
            self.shared.wake.notify_one();
        }
    }
}

impl<T> Drop for Lines<T> {
    fn drop(&mut self) {
        self.shared.pending().ending = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that writes lines panicked; the file is incomplete");
        }
    }
}

struct LineWriter {
    path: PathBuf,
    file: BufWriter<File>,
    crc: crc32fast::Hasher,
    line: String,
    lines: u64,
    bytes: u64,
    failed: bool,
}

impl LineWriter {
    fn put(&mut self, text: impl Display) -> std::io::Result<()> {
        use std::fmt::Write as _;
        self.line.clear();
        writeln!(self.line, "{text}").map_err(std::io::Error::other)?;
        self.file.write_all(self.line.as_bytes())?;
        self.crc.update(self.line.as_bytes());
        self.lines += 1;
        self.bytes += self.line.len() as u64;
        Ok(())
    }

    /// Reports once that writing fails.
    fn check(&mut self, done: std::io::Result<()>) {
        if let Err(e) = done
            && !std::mem::replace(&mut self.failed, true)
        {
            log::warn!("{} ends here: {e}", self.path.display());
        }
    }
}

fn write_all<T: Display>(shared: &Shared<T>, mut writer: LineWriter, most: u64) {
    let mut batch = Vec::new();
    loop {
        let (ending, mut lost) = {
            let mut pending = shared.pending();
            if pending.things.len() < shared.room.div_ceil(2) && !pending.ending {
                let waited = shared.wake.wait_timeout(pending, INTERVAL);
                pending = waited.map_or_else(|e| e.into_inner().0, |(pending, _)| pending);
            }
            std::mem::swap(&mut pending.things, &mut batch);
            (pending.ending, pending.lost)
        };
        for thing in batch.drain(..) {
            if writer.failed || writer.bytes >= most {
                lost += 1;
                let mut pending = shared.pending();
                (pending.full, pending.lost) = (true, pending.lost + 1);
            } else {
                let done = writer.put(thing);
                writer.check(done);
            }
        }
        if !ending {
            let done = writer.file.flush();
            writer.check(done);
            continue;
        }
        if !writer.failed {
            let lines = writer.lines;
            let crc = writer.crc.clone().finalize();
            let done = writer
                .put(format_args!("= {lines} {lost} {crc:08x}"))
                .and_then(|()| writer.file.flush());
            writer.check(done);
        }
        return;
    }
}

/// How a file of lines ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinesEnd {
    /// Its writer ended it; so many records were lost after the last line.
    Whole {
        /// Records without a line.
        lost: u64,
    },
    /// Its writer was killed or still writes; an incomplete last line is left out.
    Unfinished,
}

/// Reads a file of lines.
#[derive(Debug)]
pub struct LinesReader {
    path: PathBuf,
    file: BufReader<File>,
    crc: crc32fast::Hasher,
    line: String,
    lines: u64,
    at: u64,
    end: Option<LinesEnd>,
}

impl LinesReader {
    /// Opens a file of this kind.
    pub fn open(path: &Path, kind: &str) -> Result<LinesReader> {
        let file = File::open(path).map_err(|source| Error::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        })?;
        let mut reader = LinesReader {
            path: path.to_owned(),
            file: BufReader::new(file),
            crc: crc32fast::Hasher::new(),
            line: String::new(),
            lines: 0,
            at: 0,
            end: None,
        };
        let found = reader.read_line()?;
        if !found || reader.line != format!("{TITLE}{kind}") {
            return Err(Error::NotATrace {
                path: path.to_owned(),
                why: format!("it does not begin with `{TITLE}{kind}`"),
            });
        }
        Ok(reader)
    }

    /// The next line; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<&str>> {
        if self.end.is_some() {
            return Ok(None);
        }
        let before = self.crc.clone();
        if !self.read_line()? {
            self.end = Some(LinesEnd::Unfinished);
            return Ok(None);
        }
        if let Some(end) = self.line.strip_prefix("= ") {
            let lost = self
                .told(end, &before)
                .map_err(|why| self.damaged(why.into()))?;
            if self.read_line()? {
                return Err(self.damaged("something follows its end".into()));
            }
            self.end = Some(LinesEnd::Whole { lost });
            return Ok(None);
        }
        self.lines += 1;
        Ok(Some(&self.line))
    }

    fn told(&self, end: &str, crc: &crc32fast::Hasher) -> std::result::Result<u64, &'static str> {
        let mut words = end.split(' ');
        let mut number = |radix| u64::from_str_radix(words.next()?, radix).ok();
        let (Some(lines), Some(lost), Some(sum)) = (number(10), number(10), number(16)) else {
            return Err("its last line lacks a number");
        };
        if lines != self.lines {
            return Err("there are more or fewer lines than were written");
        }
        if sum != u64::from(crc.clone().finalize()) {
            return Err("the checksum of its lines is wrong");
        }
        Ok(lost)
    }

    /// How the file ends, after [`LinesReader::next_line`] has returned the last line.
    pub fn end(&self) -> Option<LinesEnd> {
        self.end
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    fn damaged(&self, why: String) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            at: self.at,
            why,
            events: self.lines,
        }
    }

    /// Reads the next complete line into `self.line`, without its line end; false if there is none.
    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let mut bytes = Vec::new();
        let mut part = (&mut self.file).take(MAX_LINE);
        let n = part.read_until(b'\n', &mut bytes);
        let n = n.map_err(|source| Error::Io {
            doing: "read",
            path: self.path.clone(),
            source,
        })?;
        if bytes.last() != Some(&b'\n') {
            if n as u64 == MAX_LINE {
                return Err(self.damaged("a line without end".into()));
            }
            return Ok(false);
        }
        self.crc.update(&bytes);
        bytes.pop();
        self.line = String::from_utf8(bytes).map_err(|_| self.damaged("it is no text".into()))?;
        self.at += n as u64;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Result<(Vec<String>, LinesEnd)> {
        let mut reader = LinesReader::open(path, "numbers")?;
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line()? {
            lines.push(line.to_owned());
        }
        Ok((lines, reader.end().unwrap()))
    }

    #[test]
    fn lines_come_back_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        let lines = Lines::start(&path, "numbers").unwrap();
        (0..1000).for_each(|i| lines.record(i));
        drop(lines);
        let (read_back, end) = read(&path).unwrap();
        assert_eq!(end, LinesEnd::Whole { lost: 0 });
        let expected: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        assert_eq!(read_back, expected);

        let text = std::fs::read_to_string(&path).unwrap();
        let cut = &text[..text.len() / 2];
        std::fs::write(&path, cut).unwrap();
        let (read_back, end) = read(&path).unwrap();
        assert_eq!(end, LinesEnd::Unfinished);
        assert_eq!(read_back, expected[..read_back.len()]);
        assert!(read_back.len() > 400);
        for (from, to, why) in [
            ("\n500\n", "\n501\n", "checksum"),
            ("\n500\n", "\n", "more or fewer"),
            ("= 1000", "= many", "lacks a number"),
            ("numbers", "letters", "no trace"),
        ] {
            std::fs::write(&path, text.replace(from, to)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        std::fs::write(&path, text.clone() + "7\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("follows"));
        std::fs::write(&path, "x".repeat(100_000)).unwrap();
        assert!(read(&path).is_err());
        std::fs::write(&path, b"penstock lines 1 numbers\n\xff\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("no text"));
    }

    #[test]
    fn what_does_not_fit_ends_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        let lines = Lines::bounded(&path, "numbers", 1 << 16, 100).unwrap();
        (0..1000).for_each(|i| lines.record(i));
        drop(lines);
        let (read_back, end) = read(&path).unwrap();
        let LinesEnd::Whole { lost } = end else {
            panic!("unfinished")
        };
        assert!(!read_back.is_empty() && read_back.len() < 100);
        assert_eq!(read_back.len() as u64 + lost, 1000);
        let numbers: Vec<usize> = read_back.iter().map(|l| l.parse().unwrap()).collect();
        assert!(numbers.iter().enumerate().all(|(i, n)| i == *n));
    }
}
