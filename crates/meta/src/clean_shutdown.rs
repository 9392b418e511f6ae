//! Clean shutdown: makes sure that the database's file is on the disk as the page cache shows it.
//!
//! Problem: when a sync fails, the system marks the pages it could not write as clean, but the page cache still shows
//! their new contents. A database that is reopened then finds its newest commit intact and builds on pages that are not
//! on the disk. Later syncs do not write them: the next power loss takes names that were acknowledged as durable. A
//! server that is killed after a failed sync leaves the same problem to the next one. Idea: before the database opens
//! the file, the ranges that the last sync may have lost ([`crate::dirty_ranges`]) are rewritten in place and synced. If they
//! are unknown, the whole file is. A page that the system has dropped reads as it is on the disk, and the database's
//! checksums detect that. Pages that the last durable commit uses are not changed by this, whenever a crash happens.
//! When it pays: after a failed commit, and at a start after anything but a clean shutdown. The mark of a clean
//! shutdown is never synced: it is valid as long as the page cache. If a power loss restores it, no page cache is left
//! that could differ from the disk. A server that ends while it rewrites leaves no record of dirty ranges, so the next
//! one rewrites everything.
use crate::RECOVERS;
use crate::dirty_ranges::{self, Doubt};
use penstock_host::fs;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Mark: all syncs succeeded until the store was closed in order.
const MARK: &str = "namespace.settled";
/// Bytes rewritten at a time.
const CHUNK: usize = 1 << 20;
/// Progress is reported each time this many bytes are written.
const TOLD: u64 = 256 << 20;

/// Makes sure that `file` in `directory`, and the names in the directory, are on the disk as they read. From then on
/// the database's syncs record dirty ranges.
pub fn settle(directory: &Path, file: &Path) -> Result<()> {
    let mark = mark(directory);
    if !mark.exists() {
        let doubt = dirty_ranges::doubt(directory);
        dirty_ranges::forget(directory)?;
        rewrite(file, doubt)?;
    }
    dirty_ranges::begin(directory)?;
    // Removed before anything can fail.
    match fs::remove_file(&mark) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    Ok(fs::fsync(File::open(directory)?)?)
}

/// The database was closed, and no sync of it has failed. An optimisation: without the mark the next start takes
/// longer.
pub fn closed_in_order(directory: &Path) {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    if let Err(e) = fs::open(&options, &mark(directory), false) {
        log::debug!("{}: no mark of a clean shutdown: {e}", directory.display());
    }
}

fn mark(directory: &Path) -> PathBuf {
    directory.join(MARK)
}

fn rewrite(path: &Path, doubt: Doubt) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // Here the system reports write-back errors that it has not reported yet.
    let untold = fs::fdatasync(&file);
    match (doubt, untold) {
        (Doubt::Ranges(ranges), Ok(())) => {
            for (first, end) in ranges {
                write_over(&file, first, end)?;
            }
            Ok(fs::fdatasync(&file)?)
        }
        _ => rewrite_all(&file, path),
    }
}

fn rewrite_all(file: &File, path: &Path) -> Result<()> {
    let length = file.metadata()?.len();
    if length >= TOLD {
        log::info!(
            "{}: no clean shutdown: {RECOVERS}: rewriting its {} MiB before it is opened",
            path.display(),
            length >> 20
        );
    }
    let mut at = 0;
    while at < length {
        let end = (at + TOLD).min(length);
        write_over(file, at, end)?;
        // Synced in parts, so that no single sync takes long without progress.
        fs::fdatasync(file)?;
        if length >= TOLD {
            log::info!(
                "{}: {RECOVERS}: {} of {} MiB are on the disk",
                path.display(),
                end >> 20,
                length >> 20
            );
        }
        at = end;
    }
    Ok(fs::fdatasync(file)?)
}

/// Rewrites the bytes from `at` to `end`, or to the end of the file, in place.
fn write_over(file: &File, mut at: u64, end: u64) -> Result<()> {
    let mut chunk = vec![0; CHUNK];
    while at < end {
        let len = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let read = retried(|| fs::pread(file.as_fd(), &mut chunk[..len], at))?;
        if read == 0 {
            break;
        }
        let mut done = 0;
        while done < read {
            let rest = &chunk[done..read];
            match retried(|| fs::pwrite(file.as_fd(), rest, at + done as u64))? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        at += read as u64;
    }
    Ok(())
}

fn retried(mut f: impl FnMut() -> std::result::Result<usize, Errno>) -> Result<usize> {
    loop {
        match f() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_as_before_and_the_mark_spares_the_work_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let bytes: Vec<u8> = (0..CHUNK + 4097).map(|i| (i % 251) as u8).collect();
        std::fs::write(&file, &bytes).unwrap();
        settle(dir.path(), &file).unwrap();
        assert!(std::fs::read(&file).unwrap() == bytes);
        rewrite(&file, Doubt::Ranges(vec![(0, 4096), (4096, u64::MAX)])).unwrap();
        assert!(std::fs::read(&file).unwrap() == bytes);
        closed_in_order(dir.path());
        assert!(mark(dir.path()).exists());
        // With the mark the file is not even opened.
        settle(dir.path(), &dir.path().join("none")).unwrap();
        assert!(!mark(dir.path()).exists());
        assert!(settle(dir.path(), &dir.path().join("none")).is_err());
    }

    /// Writing to a hole fills it, so the blocks of a file show what was written.
    #[test]
    fn only_what_is_in_doubt_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        let hole: u64 = 8 << 20;
        File::create(&file).unwrap().set_len(hole).unwrap();
        dirty_ranges::begin(dir.path()).unwrap();
        let (before, start) = (blocks(), || settle(dir.path(), &file).unwrap());
        start();
        assert_eq!(
            blocks(),
            before,
            "nothing was synced since the start before"
        );
        start();
        assert_eq!(blocks(), before, "each start begins a note");
        dirty_ranges::forget(dir.path()).unwrap();
        start();
        assert!(blocks() >= hole / 512, "without a note all is in doubt");
    }

    #[test]
    fn what_the_note_names_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        File::create(&file).unwrap().set_len(8 << 20).unwrap();
        rewrite(&file, Doubt::Ranges(vec![(4 << 20, (4 << 20) + 65536)])).unwrap();
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert!((128..4096).contains(&blocks), "{blocks}");
    }
}
