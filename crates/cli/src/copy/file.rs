//! Copies one file between the two sides.
//!
//! Problem: a copy may be ended by a signal, kill -9, a full disk, or a source that changes. A file that is half copied
//! must never carry the target's name. What was moved already should not be moved again. Idea: bytes go to a temporary
//! file beside the target, `.NAME.copying`. It is locked while a process works on it. A temporary file that is found is
//! compared with the source piece by piece, and only the differences are written. So no record of progress is needed,
//! and none can be wrong. Then it is synced, read back, compared by checksum (BLAKE3) with what was read from the
//! source, and renamed.
//!
//! Blocks of 64 KiB that hold only zeros are not written where the temporary file has no data yet: sparse files stay
//! sparse.
use super::Context;
use super::hash::{self, PIECE, Value};
use super::location::{EntryKind, Location, set_marks};
use crate::error::{CliError, Result};
use crate::names::failed;
use crate::out;
use penstock_client::{
    Client, CreateOptions, ErrorKind, File, Form, LockMode, OpenOptions, RangeLock,
};
use penstock_datatype::{Pattern, Source, Target};
use rustix::fs::{FlockOperation, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads that move the pieces of one large file.
const THREADS: usize = 4;
/// Blocks of zeros that are left out.
const BLOCK: usize = 64 << 10;
/// Mode of a file that is not complete.
const FILLING: u32 = 0o600;
/// A byte beyond the end of every file. Whoever holds its lock works on the file. A lock of one byte keeps one data
/// server from passing file descriptors to clients; the others still do.
const WORKING: u64 = (1 << 62) - 1;

/// What a copy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes were brought to the target's side, all of them verified.
    Copied { bytes: u64, digest: blake3::Hash },
    /// The target was there with the same bytes.
    Same { bytes: u64, digest: blake3::Hash },
}

/// One open file on either side.
enum Open {
    Inside(File),
    Outside(std::fs::File, PathBuf),
}

/// Values that change when somebody changes the file.
#[derive(PartialEq, Eq)]
struct State([i128; 5]);

impl Open {
    fn source(client: &Client, place: &Location) -> Result<Open> {
        match place {
            Location::Outside(path) => {
                let file = std::fs::File::open(path).map_err(|e| CliError::io("open", path, e))?;
                if !file.metadata().is_ok_and(|m| m.is_file()) {
                    return Err(CliError::new(format!("{place} is no file"))
                        .next("`penstock cp -r` copies directories"));
                }
                Ok(Open::Outside(file, path.clone()))
            }
            Location::Inside(path) => client
                .open(path, &OpenOptions::read())
                .map(Open::Inside)
                .map_err(|e| failed(path, e)),
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Open::Outside(file, path) => file.read_exact_at(into, at).map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => changed(&path.display().to_string()),
                _ => CliError::io("read", path, e),
            }),
            Open::Inside(file) => {
                let wanted = into.len() as u64;
                let mut target = Target::from_slice(into);
                let got = file
                    .read(&pattern(at, wanted)?, Form::Shortcut, &mut target)
                    .map_err(|e| failed(file.path(), e))?;
                if got < wanted {
                    return Err(changed(file.path()));
                }
                Ok(())
            }
        }
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        match self {
            Open::Outside(file, path) => file
                .write_all_at(from, at)
                .map_err(|e| room(CliError::io("write", path, e))),
            Open::Inside(file) => {
                let mut source = Source::from_slice(from);
                file.write(
                    &pattern(at, from.len() as u64)?,
                    Form::Shortcut,
                    &mut source,
                )
                .map(|_| ())
                .map_err(|e| {
                    let full = e.kind() == ErrorKind::NoSpace;
                    let error = failed(file.path(), e);
                    if full { room(error) } else { error }
                })
            }
        }
    }

    /// Whether the range is a hole; `false` where that cannot be told.
    fn is_hole(&self, at: u64, len: u64) -> bool {
        match self {
            Open::Inside(_) => false,
            Open::Outside(file, _) => match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(data) => data >= at + len,
                Err(e) => e == rustix::io::Errno::NXIO,
            },
        }
    }

    fn len(&self) -> Result<u64> {
        match self {
            Open::Outside(file, path) => file
                .metadata()
                .map(|m| m.len())
                .map_err(|e| CliError::io("look at", path, e)),
            Open::Inside(file) => file.len().map_err(|e| failed(file.path(), e)),
        }
    }

    /// For files in Penstock the length alone; instead, their bytes are read twice.
    fn state(&self) -> Result<State> {
        Ok(State(match self {
            Open::Inside(_) => [self.len()?.into(), 0, 0, 0, 0],
            Open::Outside(file, path) => {
                let m = file
                    .metadata()
                    .map_err(|e| CliError::io("look at", path, e))?;
                let time = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
                [
                    m.len().into(),
                    time(m.mtime(), m.mtime_nsec()),
                    time(m.ctime(), m.ctime_nsec()),
                    m.ino().into(),
                    m.dev().into(),
                ]
            }
        }))
    }

    /// Cuts the file, or extends it with a hole.
    fn set_len(&self, len: u64) -> Result<()> {
        match self {
            Open::Outside(file, path) => file
                .set_len(len)
                .map_err(|e| CliError::io("set the length of", path, e)),
            Open::Inside(file) => file.set_len(len).map_err(|e| failed(file.path(), e)),
        }
    }

    fn sync(&self) -> Result<()> {
        match self {
            Open::Outside(file, path) => file
                .sync_all()
                .map_err(|e| room(CliError::io("sync", path, e))),
            Open::Inside(file) => file.sync().map_err(|e| failed(file.path(), e)),
        }
    }
}

fn pattern(at: u64, len: u64) -> Result<Pattern> {
    let offset = i64::try_from(at).map_err(|_| CliError::new("a file of more than 2^63 bytes"))?;
    Ok(Pattern::contiguous(offset, len))
}

fn changed(path: &str) -> CliError {
    CliError::new(format!("{path} changed while it was copied"))
        .next("copy it again when nobody writes it")
}

fn room(error: CliError) -> CliError {
    error.next(
        "free space there and run the same command again; complete files are not copied twice",
    )
}

/// A target under its temporary name, locked.
struct Part {
    open: Open,
    name: Location,
    /// Bytes that an earlier copy left.
    found: u64,
    /// Held until the file has its final name, or as long as this process lives.
    _lock: Option<RangeLock>,
}

impl Part {
    fn take(client: &Client, target: &Location) -> Result<Part> {
        let name = target.part()?;
        // Another process may have renamed it between our opening and our locking. Then a new one is made.
        for _ in 0..8 {
            let (open, lock) = match &name {
                Location::Outside(path) => {
                    let file = std::fs::OpenOptions::new()
                        .read(true)
                        .write(true)
                        .create(true)
                        .truncate(false)
                        .mode(FILLING)
                        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
                        .open(path)
                        .map_err(|e| CliError::io("make", path, e))?;
                    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                        Ok(()) => {}
                        Err(rustix::io::Errno::WOULDBLOCK) => return Err(taken(target)),
                        Err(e) => return Err(CliError::io("lock", path, e.into())),
                    }
                    let mine = file.metadata().map(|m| m.ino()).ok();
                    if path.symlink_metadata().map(|m| m.ino()).ok() != mine {
                        continue;
                    }
                    (Open::Outside(file, path.clone()), None)
                }
                Location::Inside(path) => {
                    let how = OpenOptions {
                        read: true,
                        write: true,
                        create: Some(CreateOptions {
                            mode: FILLING,
                            ..CreateOptions::default()
                        }),
                        exclusive: false,
                    };
                    let open = || client.open(path, &how).map_err(|e| failed(path, e));
                    // Accesses through an open file carry that file's locks. So the lock is taken through a second one.
                    let (file, locker) = (open()?, open()?);
                    let lock = match locker.lock(WORKING..WORKING + 1, LockMode::Exclusive) {
                        Ok(lock) => lock,
                        Err(e) if e.kind() == ErrorKind::LockTimeout => return Err(taken(target)),
                        Err(e) => return Err(failed(path, e)),
                    };
                    let there = client.stat(path).map(|s| s.attributes.id);
                    if file.id() != locker.id() || there.ok() != Some(file.id()) {
                        continue;
                    }
                    (Open::Inside(file), Some(lock))
                }
            };
            let found = open.len()?;
            return Ok(Part {
                open,
                name,
                found,
                _lock: lock,
            });
        }
        Err(taken(target))
    }

    fn remove(self, client: &Client) {
        let removed = match &self.name {
            Location::Inside(path) => client.unlink(path).map_err(|e| e.to_string()),
            Location::Outside(path) => std::fs::remove_file(path).map_err(|e| e.to_string()),
        };
        if let Err(e) = removed {
            out::note(format_args!("{} is left over: {e}", self.name));
        }
    }
}

fn taken(target: &Location) -> CliError {
    CliError::new(format!("{target} is being copied by another process"))
        .next("wait until that has ended")
}

/// Copies one file. With `cx.resume` a target with the same bytes is left alone, and an unfinished temporary file stays
/// for the next time.
pub fn copy(cx: &Context<'_>, source: &Location, target: &Location) -> Result<Outcome> {
    let client = cx.client;
    let from = Open::source(client, source)?;
    if source.is_inside() {
        // Outside of Penstock, the walk has counted the length already.
        cx.progress.found(from.len()?);
    }
    let there = target.kind(client)?;
    if matches!(there, EntryKind::Directory | EntryKind::Other) {
        return Err(CliError::new(format!("{target} exists and is no file")));
    }
    if there != EntryKind::Nothing {
        if cx.resume
            && there == EntryKind::File
            && let Some((bytes, digest)) = same(cx, &from, target)?
        {
            cx.progress.moved(bytes);
            return Ok(Outcome::Same { bytes, digest });
        }
        if !cx.replace {
            let what = if cx.resume {
                "exists and differs"
            } else {
                "exists"
            };
            return Err(CliError::new(format!("{target} {what}")).next("--force replaces it"));
        }
    }
    let mut part = Part::take(client, target)?;
    if part.found > from.len()? {
        // Truncating it at the data servers would wait for our own lock.
        part.remove(client);
        part = Part::take(client, target)?;
    }
    match fill(cx, source, &from, &part) {
        Ok((bytes, digest)) => {
            part.name.rename(target, client, cx.replace)?;
            Ok(Outcome::Copied { bytes, digest })
        }
        Err(error) => {
            if !cx.resume {
                part.remove(client);
            }
            Err(error)
        }
    }
}

/// Writes the source's bytes to the temporary file and verifies them.
fn fill(
    cx: &Context<'_>,
    source: &Location,
    from: &Open,
    part: &Part,
) -> Result<(u64, blake3::Hash)> {
    let before = from.state()?;
    let (len, marks) = (from.len()?, source.marks(cx.client)?);
    let to = &part.open;
    if part.found > len {
        return Err(changed(&source.to_string()));
    }
    let read = pieces(cx, len, |at, buffer| {
        let hole = from.is_hole(at, buffer.len() as u64);
        if hole {
            buffer.fill(0);
        } else {
            from.read(at, buffer)?;
        }
        let value = hash::piece(len, at, buffer);
        let end = at + buffer.len() as u64;
        if at >= part.found {
            if !hole {
                for (from, to_end) in written(buffer) {
                    to.write(at + from as u64, &buffer[from..to_end])?;
                }
            }
        } else {
            let mut old = vec![0; (part.found.min(end) - at) as usize];
            to.read(at, &mut old)?;
            if old[..] != buffer[..old.len()] || part.found < end {
                to.write(at, buffer)?;
            }
        }
        cx.progress.moved(buffer.len() as u64);
        Ok(value)
    })?;
    if to.len()? != len {
        to.set_len(len)?;
    }
    to.sync()?;
    let digest = hash::root(&read);
    let back = pieces(cx, len, |at, buffer| {
        to.read(at, buffer)?;
        Ok(hash::piece(len, at, buffer))
    })?;
    if to.len()? != len || back != read {
        return Err(CliError::new(format!(
            "the copy of {source} is not what was written: its checksum differs"
        ))
        .next("look for failing storage or memory, then copy it again"));
    }
    if let Open::Inside(_) = from {
        let again = pieces(cx, len, |at, buffer| {
            from.read(at, buffer)?;
            Ok(hash::piece(len, at, buffer))
        })?;
        if again != read {
            return Err(changed(&source.to_string()));
        }
    }
    if from.state()? != before {
        return Err(changed(&source.to_string()));
    }
    match (&part.open, &part.name) {
        (Open::Outside(file, _), Location::Outside(path)) => set_marks(file, path, marks)?,
        _ => part.name.set_marks(cx.client, marks)?,
    }
    Ok((len, digest))
}

/// Whether the target has the source's bytes, compared by checksum; if so, its length and digest.
fn same(cx: &Context<'_>, from: &Open, target: &Location) -> Result<Option<(u64, blake3::Hash)>> {
    let to = Open::source(cx.client, target)?;
    let len = from.len()?;
    if to.len()? != len {
        return Ok(None);
    }
    let value = |file: &Open, at: u64, buffer: &mut [u8]| {
        file.read(at, buffer)?;
        Ok(hash::piece(len, at, buffer))
    };
    let read = pieces(cx, len, |at, buffer| value(from, at, buffer))?;
    let there = pieces(cx, len, |at, buffer| value(&to, at, buffer))?;
    if read != there {
        return Ok(None);
    }
    Ok(Some((len, hash::root(&read))))
}

/// Runs `work` on each piece of `len` bytes and returns the values in order. More than two pieces are spread over
/// several threads.
fn pieces(
    cx: &Context<'_>,
    len: u64,
    work: impl Fn(u64, &mut [u8]) -> Result<Value> + Sync,
) -> Result<Vec<Value>> {
    let count = len.div_ceil(PIECE);
    let next = AtomicU64::new(0);
    let values = Mutex::new(vec![[0; 32]; count as usize]);
    let failure: Mutex<Option<CliError>> = Mutex::new(None);
    let run = || {
        let mut buffer = vec![0u8; PIECE.min(len) as usize];
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return;
            }
            let at = i * PIECE;
            let piece = &mut buffer[..PIECE.min(len - at) as usize];
            let done = cx.interrupted().and_then(|()| work(at, piece));
            match done {
                Ok(value) => {
                    values.lock().unwrap_or_else(PoisonError::into_inner)[i as usize] = value;
                }
                Err(error) => {
                    // Other threads then find no further piece; the first error is returned.
                    next.store(count, Ordering::Relaxed);
                    let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(error);
                    return;
                }
            }
        }
    };
    if count > 2 {
        // One large file at a time: its pieces keep all servers busy.
        let _large = cx.large.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::scope(|scope| {
            for _ in 0..THREADS.min(count as usize) {
                scope.spawn(run);
            }
        });
    } else {
        run();
    }
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(values.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// The ranges of a piece that are not blocks of zeros.
fn written(piece: &[u8]) -> Vec<(usize, usize)> {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    for block in piece.chunks(BLOCK) {
        let end = at + block.len();
        if block.iter().any(|&b| b != 0) {
            match stretches.last_mut() {
                Some(last) if last.1 == at => last.1 = end,
                _ => stretches.push((at, end)),
            }
        }
        at = end;
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut piece = vec![0u8; 5 * BLOCK + 10];
        assert_eq!(written(&piece), []);
        piece[BLOCK] = 1;
        piece[3 * BLOCK - 1] = 1;
        piece[5 * BLOCK + 9] = 1;
        assert_eq!(
            written(&piece),
            [(BLOCK, 3 * BLOCK), (5 * BLOCK, 5 * BLOCK + 10)]
        );
        assert_eq!(written(&[]), []);
    }
}
