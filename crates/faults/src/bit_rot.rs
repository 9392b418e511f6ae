//! Bit rot: one bit of a stopped server's data flips.
use crate::cluster::FAST;
use penstock_base::Random;
use penstock_layout::FileId;
use rustix::fs::XattrFlags;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The metadata server's database: the flip must be reported as damage or be harmless.
    Database,
    /// Its journal: the flip must be reported as damage or be harmless; after a power loss the journal may end
    /// there.
    Journal,
    /// A data server's superblock: the flip must be reported as damage.
    Superblock,
    /// The record of an object: the flip must be reported as damage.
    Record,
    /// Bytes of an object, which have no checksum: that bit reads flipped and nothing else changes.
    Object,
    /// A header in the log of a fast tier: there are two of each record, so the flip must be harmless.
    LogHeader,
}

/// A flip that was made.
#[derive(Debug, Clone)]
pub(crate) struct BitRot {
    pub target: Target,
    pub path: PathBuf,
    pub at: u64,
    pub mask: u8,
    /// The whole file before the flip. A server that finds damage may have changed other bytes.
    before: Vec<u8>,
    /// The object whose bytes or record it is in.
    pub object: Option<FileId>,
}

const ATTRIBUTE: &str = "user.penstock";

/// Flips one bit below `root`; `files` are the candidates for objects. `None`: there is nothing to flip.
pub(crate) fn flip(
    root: &Path,
    target: Target,
    files: &[FileId],
    random: &mut Random,
) -> Result<Option<BitRot>> {
    let mut candidates = Vec::new();
    match target {
        Target::Database => candidates.push((root.join("namespace.redb"), None)),
        Target::Superblock => candidates.push((root.join("superblock"), None)),
        Target::Journal => {
            for entry in std::fs::read_dir(root)? {
                let path = entry?.path();
                if name(&path).starts_with("journal-") {
                    candidates.push((path, None));
                }
            }
        }
        Target::LogHeader => {
            for entry in std::fs::read_dir(root.join(FAST)).into_iter().flatten() {
                let path = entry?.path();
                if name(&path).starts_with("segment-") {
                    candidates.push((path, None));
                }
            }
        }
        Target::Record | Target::Object => {
            for id in files {
                let object = object(root, *id);
                let record = object.with_file_name(format!("{}.record", name(&object)));
                let path = match target {
                    Target::Record if record.exists() => record,
                    _ => object,
                };
                candidates.push((path, Some(*id)));
            }
        }
    }
    // If the journal could not be written, nothing would show that commits are missing.
    let journal = std::fs::read_dir(root)?
        .flatten()
        .any(|entry| name(&entry.path()).starts_with("journal-"));
    candidates.retain(|_| target != Target::Database || journal);
    // Files without bytes.
    candidates.retain(|(path, _)| path.metadata().is_ok_and(|m| m.len() > 0));
    candidates.sort();
    if candidates.is_empty() {
        return Ok(None);
    }
    let (path, object) = candidates.swap_remove(random.index(candidates.len()));
    let mask = 1 << random.below(8);
    let mut flip = BitRot {
        target,
        path,
        at: 0,
        mask,
        before: Vec::new(),
        object,
    };
    if target == Target::Record && name(&flip.path).len() == 16 {
        let mut value = [0; 64];
        let Ok(n) = rustix::fs::getxattr(&flip.path, ATTRIBUTE, &mut value[..]) else {
            return Ok(None);
        };
        flip.at = random.below(n as u64);
        value[flip.at as usize] ^= mask;
        rustix::fs::setxattr(&flip.path, ATTRIBUTE, &value[..n], XattrFlags::empty())?;
        return Ok(Some(flip));
    }
    let bytes = std::fs::read(&flip.path)?;
    // The bit is in a non-zero byte; otherwise it would hardly ever be in use.
    let mut used: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i] != 0).collect();
    if target == Target::LogHeader {
        let heads = bytes.windows(4).enumerate();
        let heads: Vec<usize> = heads
            .filter(|(_, w)| *w == b"PsFh" || *w == b"PsFt")
            .map(|(at, _)| at)
            .collect();
        if heads.is_empty() {
            return Ok(None);
        }
        let head = heads[random.index(heads.len())];
        used.retain(|at| (head..head + 64).contains(at));
    }
    if used.is_empty() {
        return Ok(None);
    }
    let at = used[random.index(used.len())];
    flip.at = at as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&flip.path)?;
    file.write_all_at(&[bytes[at] ^ mask], flip.at)?;
    flip.before = bytes;
    Ok(Some(flip))
}

/// The path of an object in a store below `root`.
pub(crate) fn object(root: &Path, id: FileId) -> PathBuf {
    root.join(format!("objects/{:02x}/{:016x}", id.0 % 16, id.0))
}

/// Restores the file as an administrator would.
pub(crate) fn undo(flip: &BitRot) -> Result<()> {
    std::fs::write(&flip.path, &flip.before)
}

fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}
