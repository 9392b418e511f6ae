//! Names on either side of a copy, and the operations on them.
use crate::error::{CliError, Result};
use crate::names::{PREFIX, failed, inside, join};
use penstock_client::{Client, ErrorKind, SetAttributes};
use penstock_wire::message::NodeKind;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Longest name of a directory entry.
const NAME_MAX: usize = 255;
/// Mode of a directory while it is filled.
const FILLING: u32 = 0o700;

/// A name on either side, as the command line gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path in Penstock.
    Inside(String),
    /// A path of this machine.
    Outside(PathBuf),
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Nothing,
    File,
    Directory,
    Link,
    /// A socket, a pipe, a device.
    Other,
}

/// Mode bits and the time of the last change, which a copy takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    pub mode: u32,
    pub mtime_ns: i64,
}

impl Marks {
    pub fn of(metadata: &std::fs::Metadata) -> Marks {
        let seconds = metadata.mtime().saturating_mul(1_000_000_000);
        Marks {
            mode: metadata.mode() & 0o777,
            mtime_ns: seconds.saturating_add(metadata.mtime_nsec()),
        }
    }
}

impl Location {
    pub fn parse(text: &OsStr) -> Result<Location> {
        match text.to_str() {
            Some(text) if text.starts_with(PREFIX) => Ok(Location::Inside(inside(text))),
            None if text.as_bytes().starts_with(PREFIX.as_bytes()) => Err(not_utf8(text)),
            _ => Ok(Location::Outside(PathBuf::from(text))),
        }
    }

    pub fn is_inside(&self) -> bool {
        matches!(self, Location::Inside(_))
    }

    /// The last part of the name; none of `/`, `.` and `..`.
    pub fn base(&self) -> Option<OsString> {
        match self {
            Location::Inside(path) => path.rsplit('/').next().map(OsString::from),
            Location::Outside(path) => path.file_name().map(OsString::from),
        }
        .filter(|name| !name.is_empty())
    }

    /// The directory it is in.
    pub fn parent(&self) -> Location {
        match self {
            Location::Inside(path) => {
                let dir = &path[..path.rfind('/').unwrap_or(0)];
                Location::Inside(if dir.is_empty() { "/" } else { dir }.into())
            }
            Location::Outside(path) => {
                let dir = path.parent().unwrap_or(Path::new("/"));
                let dir = if dir.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    dir
                };
                Location::Outside(dir.to_path_buf())
            }
        }
    }

    /// A name in this directory. Names in Penstock are UTF-8.
    pub fn below(&self, name: &OsStr) -> Result<Location> {
        Ok(match self {
            Location::Inside(dir) => {
                Location::Inside(join(dir, name.to_str().ok_or_else(|| not_utf8(name))?))
            }
            Location::Outside(dir) => Location::Outside(dir.join(name)),
        })
    }

    /// The temporary name beside it, under which it is made. It depends on the name alone, so that a copy that was
    /// interrupted is found again.
    pub fn part(&self) -> Result<Location> {
        let base = self
            .base()
            .ok_or_else(|| CliError::new(format!("{self} names no file")))?;
        let mut name = OsString::from(".");
        name.push(&base);
        name.push(".copying");
        if name.len() > NAME_MAX {
            let hash = blake3::hash(base.as_bytes()).to_hex();
            name = OsString::from(format!(".{}.copying", &hash[..32]));
        }
        self.parent().below(&name)
    }

    /// What is there.
    pub fn kind(&self, client: &Client) -> Result<EntryKind> {
        match self {
            Location::Outside(path) => match path.symlink_metadata() {
                Ok(metadata) => Ok(kind_of(metadata.file_type())),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(EntryKind::Nothing),
                Err(e) => Err(CliError::io("look at", path, e)),
            },
            Location::Inside(path) => match client.stat(path) {
                Ok(stat) => Ok(match stat.attributes.kind {
                    NodeKind::File => EntryKind::File,
                    NodeKind::Directory => EntryKind::Directory,
                    NodeKind::Symlink => EntryKind::Link,
                }),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(EntryKind::Nothing),
                Err(e) => Err(failed(path, e)),
            },
        }
    }

    /// The same; symbolic links are followed.
    pub fn kind_behind(&self, client: &Client) -> Result<EntryKind> {
        match self {
            Location::Outside(path) => match path.metadata() {
                Ok(metadata) => Ok(kind_of(metadata.file_type())),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(EntryKind::Nothing),
                Err(e) => Err(CliError::io("look at", path, e)),
            },
            Location::Inside(_) => self.kind(client),
        }
    }

    /// Mode and time of the file; symbolic links are followed.
    pub fn marks(&self, client: &Client) -> Result<Marks> {
        match self {
            Location::Outside(path) => path
                .metadata()
                .map(|m| Marks::of(&m))
                .map_err(|e| CliError::io("look at", path, e)),
            Location::Inside(path) => client
                .stat(path)
                .map(|s| Marks {
                    mode: s.attributes.mode & 0o777,
                    mtime_ns: s.attributes.mtime_ns,
                })
                .map_err(|e| failed(path, e)),
        }
    }

    /// Sets mode and time. Outside, the file creation mask applies.
    pub fn set_marks(&self, client: &Client, marks: Marks) -> Result<()> {
        match self {
            Location::Outside(path) => {
                let file = std::fs::File::open(path).map_err(|e| CliError::io("open", path, e))?;
                set_marks(&file, path, marks)
            }
            Location::Inside(path) => {
                let change = SetAttributes {
                    mode: Some(marks.mode),
                    mtime_ns: Some(marks.mtime_ns),
                    ..SetAttributes::default()
                };
                client
                    .set_attributes(path, &change)
                    .map_err(|e| failed(path, e))
            }
        }
    }

    /// The path in a symbolic link.
    pub fn link(&self, client: &Client) -> Result<PathBuf> {
        match self {
            Location::Outside(path) => path
                .read_link()
                .map_err(|e| CliError::io("read the link", path, e)),
            Location::Inside(path) => match client.stat(path).map(|s| s.attributes.target) {
                Ok(Some(target)) => Ok(PathBuf::from(target)),
                Ok(None) => Err(CliError::new(format!(
                    "{self} is no symbolic link any more"
                ))),
                Err(e) => Err(failed(path, e)),
            },
        }
    }

    /// Makes a symbolic link with this path in it.
    pub fn make_link(&self, client: &Client, to: &Path) -> Result<()> {
        match self {
            Location::Outside(path) => std::os::unix::fs::symlink(to, path)
                .map_err(|e| CliError::io("make the link", path, e)),
            Location::Inside(path) => {
                let text = to.to_str().ok_or_else(|| {
                    CliError::new(format!("{self} would point to {to:?}, which is not UTF-8"))
                        .next("names in Penstock must be; `--links skip` leaves links out")
                })?;
                client.symlink(path, text).map_err(|e| failed(path, e))
            }
        }
    }

    /// Removes a file or link.
    pub fn remove(&self, client: &Client) -> Result<()> {
        match self {
            Location::Outside(path) => {
                std::fs::remove_file(path).map_err(|e| CliError::io("remove", path, e))
            }
            Location::Inside(path) => client.unlink(path).map_err(|e| failed(path, e)),
        }
    }

    /// The entries of a directory.
    pub fn entries(&self, client: &Client) -> Result<Vec<(OsString, EntryKind)>> {
        match self {
            Location::Outside(path) => {
                let read = |e| CliError::io("list", path, e);
                let mut entries = Vec::new();
                for entry in std::fs::read_dir(path).map_err(read)? {
                    let entry = entry.map_err(read)?;
                    entries.push((entry.file_name(), kind_of(entry.file_type().map_err(read)?)));
                }
                Ok(entries)
            }
            Location::Inside(path) => {
                let entries = client.readdir(path).map_err(|e| failed(path, e))?;
                let kind = |kind| match kind {
                    NodeKind::File => EntryKind::File,
                    NodeKind::Directory => EntryKind::Directory,
                    NodeKind::Symlink => EntryKind::Link,
                };
                Ok(entries
                    .into_iter()
                    .map(|(name, a)| (OsString::from(name), kind(a.kind)))
                    .collect())
            }
        }
    }

    /// Makes a directory to be filled; an existing one is made writable.
    pub fn make_dir(&self, client: &Client) -> Result<()> {
        match self {
            Location::Outside(path) => {
                match std::fs::DirBuilder::new().mode(FILLING).create(path) {
                    Ok(()) => Ok(()),
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {
                        let looked = path
                            .metadata()
                            .map_err(|e| CliError::io("look at", path, e))?;
                        let mode = looked.permissions().mode();
                        if mode & FILLING != FILLING {
                            let open = std::fs::Permissions::from_mode(mode | FILLING);
                            std::fs::set_permissions(path, open)
                                .map_err(|e| CliError::io("open up", path, e))?;
                        }
                        Ok(())
                    }
                    Err(e) => Err(CliError::io("make directory", path, e)),
                }
            }
            Location::Inside(path) => match client.mkdir(path, FILLING) {
                Ok(()) => Ok(()),
                Err(e) if e.kind() == ErrorKind::Exists => match self.kind(client)? {
                    EntryKind::Directory => Ok(()),
                    _ => Err(CliError::new(format!("{self} exists and is no directory"))),
                },
                Err(e) => Err(failed(path, e)),
            },
        }
    }

    /// Makes a directory and those above it, where they are missing.
    pub fn make_dirs(&self, client: &Client) -> Result<()> {
        if self.kind_behind(client)? == EntryKind::Directory {
            return Ok(());
        }
        match self {
            Location::Outside(path) => {
                std::fs::create_dir_all(path).map_err(|e| CliError::io("make directory", path, e))
            }
            Location::Inside(path) => {
                let mut at = String::new();
                for name in path.split('/').filter(|n| !n.is_empty()) {
                    at = join(&at, name);
                    match client.mkdir(&at, 0o755) {
                        Ok(()) => {}
                        Err(e) if e.kind() == ErrorKind::Exists => {}
                        Err(e) => return Err(failed(&at, e)),
                    }
                }
                Ok(())
            }
        }
    }

    /// Gives a complete file its final name. An existing file of that name is replaced only if `replace`.
    pub fn rename(&self, to: &Location, client: &Client, replace: bool) -> Result<()> {
        // Another process may have made the target in the meantime. In Penstock, there is a short time between this
        // check and the rename.
        if !replace && to.kind(client)? != EntryKind::Nothing {
            return Err(CliError::new(format!("{to} exists by now")).next("--force replaces it"));
        }
        match (self, to) {
            (Location::Inside(from), Location::Inside(to)) => {
                client.rename(from, to).map_err(|e| failed(to, e))
            }
            (Location::Outside(from), Location::Outside(to)) => {
                rename(from, to, replace).map_err(|e| CliError::io("name", to, e))
            }
            _ => Err(CliError::new("a copy can't change sides")),
        }
    }

    /// Syncs a directory: its entries are on stable storage afterwards.
    pub fn sync_dir(&self, client: &Client) -> Result<()> {
        match self {
            Location::Inside(_) => client.sync_metadata().map_err(CliError::new),
            Location::Outside(path) => std::fs::File::open(path)
                .and_then(|dir| dir.sync_all())
                .map_err(|e| CliError::io("sync", path, e)),
        }
    }

    /// The name as programs take it, with any characters.
    pub fn text(&self) -> String {
        match self {
            Location::Inside(path) => format!("{PREFIX}{path}"),
            Location::Outside(path) => path.to_string_lossy().into_owned(),
        }
    }
}

/// For people: control characters are escaped.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.text().chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

fn not_utf8(name: &OsStr) -> CliError {
    CliError::new(format!("the name {name:?} is not UTF-8"))
        .next("names in Penstock must be; rename it, or pack it in an archive")
}

fn kind_of(kind: std::fs::FileType) -> EntryKind {
    if kind.is_file() {
        EntryKind::File
    } else if kind.is_dir() {
        EntryKind::Directory
    } else if kind.is_symlink() {
        EntryKind::Link
    } else {
        EntryKind::Other
    }
}

/// Mode under the creation mask, and time, of an open file.
pub fn set_marks(file: &std::fs::File, path: &Path, marks: Marks) -> Result<()> {
    let since = Duration::from_nanos(marks.mtime_ns.unsigned_abs());
    let time = if marks.mtime_ns < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    file.set_permissions(std::fs::Permissions::from_mode(marks.mode & !umask()))
        .map_err(|e| CliError::io("set the mode of", path, e))?;
    if let Some(time) = time {
        file.set_modified(time)
            .map_err(|e| CliError::io("set the time of", path, e))?;
    }
    Ok(())
}

/// Renames; an existing target is replaced only if `replace`, where the file system can tell.
fn rename(from: &Path, to: &Path, replace: bool) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    if !replace {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {}
            done => return done.map_err(std::io::Error::from),
        }
    }
    std::fs::rename(from, to)
}

/// The process's file creation mask, as the system tells it.
fn umask() -> u32 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("Umask:"))?;
            u32::from_str_radix(line.trim(), 8).ok()
        })
        .unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Location {
        Location::parse(OsStr::new(text)).unwrap()
    }

    #[test]
    fn sides_are_told_apart() {
        assert_eq!(parse("penstock:a"), Location::Inside("/a".into()));
        assert_eq!(parse("a"), Location::Outside("a".into()));
        assert_eq!(parse("penstock:/d/f.nc").base().unwrap(), "f.nc");
        assert_eq!(parse("penstock:/").base(), None);
        assert_eq!(parse("d/f.nc").base().unwrap(), "f.nc");
        let below = parse("penstock:/").below(OsStr::new("x")).unwrap();
        assert_eq!(below, Location::Inside("/x".into()));
        let bad = OsStr::from_bytes(b"\xff");
        assert!(parse("penstock:/").below(bad).is_err());
        assert!(parse("/").below(bad).is_ok());
    }

    #[test]
    fn a_part_lies_beside_its_target_and_fits() {
        assert_eq!(
            parse("penstock:/d/f").part().unwrap(),
            parse("penstock:/d/.f.copying")
        );
        assert_eq!(
            parse("penstock:/f").part().unwrap(),
            parse("penstock:/.f.copying")
        );
        assert_eq!(parse("f").part().unwrap(), parse("./.f.copying"));
        let long = parse(&format!("d/{}", "x".repeat(255))).part().unwrap();
        assert!(long.base().unwrap().len() <= 255);
        assert!(parse("/").part().is_err());
    }

    #[test]
    fn people_see_names_on_one_line() {
        assert_eq!(parse("penstock:/a\nb").to_string(), "penstock:/a\\nb");
    }
}
