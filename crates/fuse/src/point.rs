//! Mount points: lists them, and removes one, dead or alive.
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// The type in mount tables is `fuse` or `fuse.penstock`, depending on who has mounted.
pub const SUBTYPE: &str = "penstock";
/// Prefix of the source in mount tables.
pub const PREFIX: &str = "penstock:";
const TABLE: &str = "/proc/self/mountinfo";

/// A mounted deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The mount point.
    pub directory: PathBuf,
    /// The deployment file.
    pub source: String,
}

impl Found {
    /// Whether its daemon does not answer. A daemon that waits for servers is alive; the check can take a second.
    pub fn is_dead(&self) -> bool {
        is_dead(&self.directory)
    }
}

/// Mounted deployments, the newest last.
fn table() -> Vec<(PathBuf, String)> {
    parse(&std::fs::read_to_string(TABLE).unwrap_or_default())
}

fn parse(table: &str) -> Vec<(PathBuf, String)> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let directory = before.split(' ').nth(4)?;
        let mut after = after.split(' ');
        if !after.next()?.starts_with("fuse") {
            return None;
        }
        let source = plain(after.next()?);
        let source = source.strip_prefix(PREFIX)?.to_owned();
        Some((PathBuf::from(plain(directory)), source))
    };
    table.lines().filter_map(line).collect()
}

/// Resolves the octal escapes of mount tables.
fn plain(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let escaped = bytes.get(i + 1..i + 4).filter(|_| bytes[i] == b'\\');
        let code = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Time limit of a daemon's answer.
const ANSWER: Duration = Duration::from_secs(1);

fn is_dead(directory: &Path) -> bool {
    let directory = directory.to_owned();
    let (say, heard) = sync_channel(1);
    let ask = move || {
        // Bypasses the kernel's cache, so that the daemon itself answers.
        let fresh = AtFlags::STATX_FORCE_SYNC;
        let dead = rustix::fs::statx(rustix::fs::CWD, &directory, fresh, StatxFlags::BASIC_STATS)
            .is_err_and(|e| e == Errno::NOTCONN || e == Errno::CONNABORTED);
        let _ = say.send(dead);
    };
    let asked = std::thread::Builder::new().name("ask".into()).spawn(ask);
    asked.is_ok() && heard.recv_timeout(ANSWER).unwrap_or(false)
}

/// The directory as in mount tables, even if nothing answers behind it.
fn absolute(directory: &Path) -> PathBuf {
    if let Ok(path) = directory.canonicalize() {
        return path;
    }
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    match (
        absolute.parent().map(Path::canonicalize),
        absolute.file_name(),
    ) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// The deployment mounted on exactly this directory. Its daemon is not asked.
pub fn find(directory: &Path) -> Option<Found> {
    let directory = absolute(directory);
    let (directory, source) = table().into_iter().rev().find(|(d, _)| *d == directory)?;
    Some(Found { directory, source })
}

/// Whether a deployment is mounted on this directory and answers.
pub fn is_mounted(directory: &Path) -> bool {
    find(directory).is_some_and(|found| !found.is_dead())
}

/// Mount points of the deployment with this file that answer.
pub fn mounts_of(source: &str) -> Vec<PathBuf> {
    let of_source = table().into_iter().filter(|(_, s)| s == source);
    of_source
        .map(|(directory, _)| directory)
        .filter(|directory| !is_dead(directory))
        .collect()
}

/// Unmounts. `lazy`: detaches at once, and ends when nobody uses it any more.
pub fn unmount(directory: &Path, lazy: bool) -> io::Result<()> {
    let directory = absolute(directory);
    let flags = if lazy {
        UnmountFlags::DETACH | UnmountFlags::NOFOLLOW
    } else {
        UnmountFlags::NOFOLLOW
    };
    match rustix::mount::unmount(&directory, flags) {
        Ok(()) => Ok(()),
        // Only root may; the setuid helper does it for the user who has mounted.
        Err(Errno::PERM) => {
            let mut command = Command::new("fusermount3");
            command.arg("-u").arg("-q");
            if lazy {
                command.arg("-z");
            }
            let done = command.arg("--").arg(&directory).status()?;
            if done.success() {
                Ok(())
            } else {
                Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "fusermount3 could not unmount it",
                ))
            }
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_are_understood() {
        let table = "22 1 0:20 / /proc rw,nosuid - proc proc rw\n\
            90 22 0:55 / /mnt/my\\040fs rw,nosuid shared:7 - fuse penstock:/data/fs/deployment.toml rw,user_id=0\n\
            91 22 0:56 / /mnt/other rw - fuse.sshfs host:/ rw\n";
        let expected = (
            PathBuf::from("/mnt/my fs"),
            "/data/fs/deployment.toml".to_owned(),
        );
        assert_eq!(parse(table), [expected]);
        assert_eq!(plain("a\\b\\0407"), "a\\b 7");
    }
}
