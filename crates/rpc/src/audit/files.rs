//! The files of an audit log: the current one and older ones.
//!
//! The file is opened for each batch of records, so that one that somebody moved or removed is made again. A crash can
//! truncate the last line, or interrupt a rotation between two renames. The next record begins on a new line, and files
//! may be missing but are never out of order.
use penstock_host::fs;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest size of a file in bytes.
pub const FILE_LIMIT: u64 = 8 << 20;
/// Number of older files; `.1` is the most recent.
pub const OLD_FILES: u32 = 4;

/// The files of one server's log.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
}

impl Files {
    /// Those of the server of this name.
    pub(super) fn new(directory: &Path, name: &str) -> Files {
        Files {
            path: path_of(directory, name, 0),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends complete lines. After an error some of them may have been written.
    pub(super) fn append(&self, lines: &[u8]) -> Result<()> {
        let (mut file, length) = self.open()?;
        if length > 0 && length + lines.len() as u64 > FILE_LIMIT {
            drop(file);
            self.rotate()?;
            (file, _) = self.open()?;
        }
        let length = file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            file.read_exact_at(&mut last, length - 1)?;
        }
        if last != *b"\n" {
            fs::write_all(&mut file, b"\n")?;
        }
        fs::write_all(&mut file, lines)
    }

    /// The current file, made if needed, and its length. Others cannot read it; it has its directory's owner.
    fn open(&self) -> Result<(File, u64)> {
        let new = !self.path.exists();
        let mut options = OpenOptions::new();
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        options.read(true).append(true).create(true).mode(0o600);
        options.custom_flags(no_link);
        let file = fs::open(&options, &self.path, false)?;
        let found = file.metadata()?;
        if !found.is_file() {
            let what = format!("{} is no plain file", self.path.display());
            return Err(Error::other(what));
        }
        if let (true, Some(directory)) = (new, self.path.parent()) {
            let owner = directory.metadata()?;
            if owner.uid() != found.uid() {
                std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
            }
        }
        Ok((file, found.len()))
    }

    fn rotate(&self) -> Result<()> {
        for n in (0..OLD_FILES).rev() {
            match fs::rename(&older(&self.path, n), &older(&self.path, n + 1)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        Ok(())
    }
}

/// Path of a file of a server's audit log; 0 is the current one.
pub fn path_of(directory: &Path, name: &str, n: u32) -> PathBuf {
    older(&directory.join(format!("audit-{name}.jsonl")), n)
}

fn older(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if n > 0 {
        name.push(format!(".{n}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_bounded_in_size_and_number_closed_to_others_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new(dir.path(), "meta");
        for n in 0..14 {
            let mut block = vec![b'x'; FILE_LIMIT as usize / 2 - 8];
            block.extend(format!("{n:07}\n").bytes());
            files.append(&block).unwrap();
        }
        let mut found: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        found.sort();
        let expected: Vec<_> = (0..=OLD_FILES)
            .map(|n| path_of(dir.path(), "meta", n))
            .collect();
        assert_eq!(found, expected);
        for (n, path) in expected.iter().enumerate() {
            let bytes = std::fs::read(path).unwrap();
            assert!(bytes.len() as u64 <= FILE_LIMIT);
            let last = 13 - 2 * n;
            assert!(bytes.ends_with(format!("{last:07}\n").as_bytes()), "{n}");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_line_that_was_cut_spoils_no_other_and_a_removed_file_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new(dir.path(), "data-0");
        std::fs::write(files.path(), "{\"cut").unwrap();
        files.append(b"one\n").unwrap();
        assert_eq!(std::fs::read(files.path()).unwrap(), b"{\"cut\none\n");
        std::fs::remove_file(files.path()).unwrap();
        files.append(b"two\n").unwrap();
        assert_eq!(std::fs::read(files.path()).unwrap(), b"two\n");
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new(dir.path(), "meta");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), files.path()).unwrap();
        assert!(files.append(b"one\n").is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }
}
