//! Files that say whom to trust (keys and deployment files), opened with checks of their owner and mode. A user who
//! could write one could name servers of their own.
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;
/// In such a directory only a file's owner can rename or remove it.
const STICKY: u32 = 0o1000;

/// A file that was opened for reading.
pub struct TrustedFile {
    file: File,
    found: Metadata,
    directory: Metadata,
}

impl TrustedFile {
    /// Opens a regular file; the error says what is wrong.
    pub fn open(path: &Path) -> Result<TrustedFile, String> {
        let file = File::open(path).map_err(|e| format!("cannot read: {e}"))?;
        let found = file.metadata().map_err(|e| format!("cannot stat: {e}"))?;
        if !found.is_file() {
            return Err("not a regular file".into());
        }
        let directory = path
            .canonicalize()
            .and_then(|real| real.parent().unwrap_or(Path::new("/")).metadata())
            .map_err(|e| format!("cannot stat its directory: {e}"))?;
        Ok(TrustedFile {
            file,
            found,
            directory,
        })
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        self.found.mode() & 0o7777
    }

    /// User id.
    pub fn owner(&self) -> u32 {
        self.found.uid()
    }

    /// Reads its text, at most the first `most` bytes. Refused if anybody except this user, root, or the owner of its
    /// directory could have written it.
    pub fn text(self, most: u64) -> Result<String, String> {
        let me = rustix::process::geteuid().as_raw();
        refuse_others(&self.found, &self.directory, me)?;
        let mut text = String::new();
        self.file
            .take(most)
            .read_to_string(&mut text)
            .map_err(|e| format!("cannot read: {e}"))?;
        Ok(text)
    }
}

fn refuse_others(file: &Metadata, directory: &Metadata, me: u32) -> Result<(), String> {
    if file.mode() & OTHERS_WRITE != 0 {
        return Err(format!(
            "others may write it (mode {:04o}); check its contents, then run chmod go-w on it",
            file.mode() & 0o7777
        ));
    }
    if directory.mode() & OTHERS_WRITE != 0 && directory.mode() & STICKY == 0 {
        return Err(format!(
            "others may replace it: its directory has mode {:04o}; check its contents, then run chmod go-w on the directory",
            directory.mode() & 0o7777
        ));
    }
    let owners = [0, me, directory.uid()];
    if !owners.contains(&file.uid()) {
        return Err(format!(
            "it belongs to user {}, who is neither root nor user {me} nor the owner of its directory; do not use it unless you trust that user, then copy it",
            file.uid()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_could_have_written_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "text").unwrap();
        mode(&path, 0o644);
        let read = |path: &Path| TrustedFile::open(path).and_then(|f| f.text(9));
        assert_eq!(read(&path).unwrap(), "text");
        assert_eq!(TrustedFile::open(&path).unwrap().text(3).unwrap(), "tex");
        for file in [0o664, 0o646] {
            mode(&path, file);
            let why = read(&path).unwrap_err();
            assert!(why.contains("others may write it"), "{why}");
        }
        mode(&path, 0o600);
        for (directory, good) in [
            (0o770, false),
            (0o707, false),
            (0o1777, true),
            (0o755, true),
        ] {
            mode(dir.path(), directory);
            let got = read(&path);
            assert_eq!(got.is_ok(), good, "{directory:o}: {got:?}");
        }
        let why = read(dir.path()).unwrap_err();
        assert!(why.contains("not a regular file"), "{why}");
    }

    #[test]
    fn a_file_of_a_stranger_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "text").unwrap();
        let (file, directory) = (path.metadata().unwrap(), dir.path().metadata().unwrap());
        let me = file.uid();
        refuse_others(&file, &directory, me).unwrap();
        // The owner of the directory may allow others.
        refuse_others(&file, &directory, me + 1).unwrap();
        let root = Path::new("/").metadata().unwrap();
        match me {
            0 => refuse_others(&file, &root, 1).unwrap(),
            _ => assert!(
                refuse_others(&file, &root, me + 1)
                    .unwrap_err()
                    .contains("neither")
            ),
        }
        if me == 0 {
            std::os::unix::fs::chown(&path, Some(61_001), None).unwrap();
            let why = TrustedFile::open(&path)
                .and_then(|f| f.text(9))
                .unwrap_err();
            assert!(why.contains("it belongs to user 61001"), "{why}");
        }
    }
}
