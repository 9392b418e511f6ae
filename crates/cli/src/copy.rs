//! `penstock cp`: files in, out, and inside.
//!
//! A copy is written under a temporary name beside its target, its size is checked, it is made durable, and only
//! then does it get its name. Several threads move pieces of one file at once, so that all its servers work.
use crate::args::CpArgs;
use crate::connect;
use crate::deployment;
use crate::error::{CliError, Result};
use crate::names::{PREFIX, failed, inside, join};
use crate::out;
use crate::size;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use penstock_client::{Client, CreateOptions, ErrorKind, File, Form, OpenOptions};
use penstock_datatype::{Pattern, Source, Target};
use penstock_wire::message::NodeKind;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that a thread moves at a time.
const PIECE: u64 = 4 << 20;
/// Threads that move pieces.
const THREADS: usize = 4;
/// Copies shorter than this show no progress.
const SILENT: Duration = Duration::from_secs(2);
/// Mode of a new file whose source has none.
const MODE: u32 = 0o644;

/// A file on either side, as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Inside(String),
    Outside(PathBuf),
}

impl Place {
    fn parse(text: &str) -> Place {
        if text.starts_with(PREFIX) {
            Place::Inside(inside(text))
        } else {
            Place::Outside(PathBuf::from(text))
        }
    }

    /// The last part of the name.
    fn base(&self) -> Option<String> {
        match self {
            Place::Inside(path) => path.rsplit('/').next().map(String::from),
            Place::Outside(path) => path.file_name().map(|n| n.to_string_lossy().into_owned()),
        }
        .filter(|n| !n.is_empty())
    }

    fn below(&self, name: &str) -> Place {
        match self {
            Place::Inside(dir) => Place::Inside(join(dir, name)),
            Place::Outside(dir) => Place::Outside(dir.join(name)),
        }
    }

    fn is_dir(&self, client: &Client) -> Result<bool> {
        match self {
            Place::Outside(path) => Ok(path.is_dir()),
            Place::Inside(path) => match client.stat(path) {
                Ok(stat) => Ok(stat.attributes.kind == NodeKind::Directory),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
                Err(e) => Err(failed(path, e)),
            },
        }
    }

    fn exists(&self, client: &Client) -> Result<bool> {
        match self {
            Place::Outside(path) => Ok(path.symlink_metadata().is_ok()),
            Place::Inside(path) => match client.stat(path) {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
                Err(e) => Err(failed(path, e)),
            },
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Inside(path) => write!(f, "{PREFIX}{path}"),
            Place::Outside(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Copies each source to the target.
pub fn cp(args: &CpArgs, named: Option<&Path>) -> Result<()> {
    let Some((target, sources)) = args.paths.split_last() else {
        return Err(CliError::new("nothing to copy"));
    };
    let sources: Vec<Place> = sources.iter().map(|p| Place::parse(p)).collect();
    let (into_dir, target) = (target.ends_with('/'), Place::parse(target));
    let no_inside = |p: &Place| matches!(p, Place::Outside(_));
    if no_inside(&target)
        && let Some(source) = sources.iter().find(|p| no_inside(p))
    {
        return Err(
            CliError::new(format!("neither {source} nor {target} is in Penstock"))
                .next("names in Penstock begin with `penstock:`, for example penstock:/in/big.nc"),
        );
    }
    let client = connect::client(&deployment::find(named)?)?;
    let is_dir = target.is_dir(&client)?;
    if !is_dir && (into_dir || sources.len() > 1) {
        return Err(
            CliError::new(format!("{target} is no directory")).next(match target {
                Place::Inside(ref path) => format!("`penstock mkdir {path}` makes it"),
                Place::Outside(ref path) => format!("`mkdir {}` makes it", path.display()),
            }),
        );
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    for source in &sources {
        let target = if is_dir {
            let base = source
                .base()
                .ok_or_else(|| CliError::new(format!("{source} names no file")))?;
            target.below(&base)
        } else {
            target.clone()
        };
        if target == *source {
            return Err(CliError::new(format!("{source} would be copied to itself")));
        }
        if target.is_dir(&client)? {
            return Err(CliError::new(format!("{target} is a directory")));
        }
        if !args.force && target.exists(&client)? {
            return Err(CliError::new(format!("{target} exists")).next("--force replaces it"));
        }
        let start = Instant::now();
        let bytes = copy(&client, source, &target, args.force, &stop)?;
        let seconds = start.elapsed().as_secs_f64();
        if args.json {
            out::print_json(&json!({
                "source": source.to_string(), "target": target.to_string(), "bytes": bytes,
                "seconds": seconds, "verified": true,
            }));
        } else {
            eprintln!(
                "{source} -> {target}: {} in {}, {}",
                size::bytes(bytes),
                size::duration(seconds),
                size::rate(bytes, seconds)
            );
        }
    }
    Ok(())
}

/// One open file on either side.
enum Open {
    Inside(File),
    Outside(std::fs::File, PathBuf),
}

impl Open {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Open::Outside(file, path) => file
                .read_exact_at(into, at)
                .map_err(|e| CliError::io("read", path, e)),
            Open::Inside(file) => {
                let wanted = into.len() as u64;
                let got = file
                    .read(
                        &pattern(at, wanted)?,
                        Form::Shortcut,
                        &mut Target::from_slice(into),
                    )
                    .map_err(|e| failed(file.path(), e))?;
                if got < wanted {
                    return Err(shorter(file.path()));
                }
                Ok(())
            }
        }
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        match self {
            Open::Outside(file, path) => file
                .write_all_at(from, at)
                .map_err(|e| CliError::io("write", path, e)),
            Open::Inside(file) => file
                .write(
                    &pattern(at, from.len() as u64)?,
                    Form::Shortcut,
                    &mut Source::from_slice(from),
                )
                .map(|_| ())
                .map_err(|e| failed(file.path(), e)),
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

    fn mode(&self) -> u32 {
        match self {
            Open::Outside(file, _) => file.metadata().map_or(MODE, |m| m.mode()) & 0o777,
            Open::Inside(file) => file.attributes().mode & 0o777,
        }
    }

    /// Sets the length, so that a copy that ends in a hole is as long as its source.
    fn set_len(&self, len: u64) -> Result<()> {
        match self {
            Open::Outside(file, path) => file
                .set_len(len)
                .map_err(|e| CliError::io("extend", path, e)),
            Open::Inside(file) => file.set_len(len).map_err(|e| failed(file.path(), e)),
        }
    }

    fn sync(&self) -> Result<()> {
        match self {
            Open::Outside(file, path) => file.sync_all().map_err(|e| CliError::io("sync", path, e)),
            Open::Inside(file) => file.sync().map_err(|e| failed(file.path(), e)),
        }
    }
}

fn pattern(at: u64, len: u64) -> Result<Pattern> {
    let offset = i64::try_from(at).map_err(|_| CliError::new("a file of more than 2^63 bytes"))?;
    Ok(Pattern::contiguous(offset, len))
}

fn shorter(path: &str) -> CliError {
    CliError::new(format!("{path} became shorter while it was copied"))
        .next("copy it again when nobody writes it")
}

fn open_source(client: &Client, source: &Place) -> Result<Open> {
    match source {
        Place::Outside(path) => {
            let file = std::fs::File::open(path).map_err(|e| CliError::io("open", path, e))?;
            let kind = file
                .metadata()
                .map_err(|e| CliError::io("look at", path, e))?
                .file_type();
            if !kind.is_file() {
                return Err(CliError::new(format!("{} is no file", path.display()))
                    .next("`penstock cp` copies files; name them one by one"));
            }
            Ok(Open::Outside(file, path.clone()))
        }
        Place::Inside(path) => client
            .open(path, &OpenOptions::read())
            .map(Open::Inside)
            .map_err(|e| failed(path, e)),
    }
}

/// A target under its temporary name. Dropped before [`Temporary::keep`], it is removed.
struct Temporary<'a> {
    client: &'a Client,
    open: Option<Open>,
    name: Place,
    kept: bool,
}

impl<'a> Temporary<'a> {
    fn create(client: &'a Client, target: &Place, mode: u32) -> Result<Temporary<'a>> {
        let mut random = [0u8; 6];
        getrandom::fill(&mut random)
            .map_err(|e| CliError::new(format!("no random numbers from the system: {e}")))?;
        let suffix: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let base = target
            .base()
            .ok_or_else(|| CliError::new(format!("{target} names no file")))?;
        let beside = format!(".{base}.copying-{suffix}");
        let (name, open) = match target {
            Place::Inside(path) => {
                let dir = &path[..path.rfind('/').unwrap_or(0)];
                let name = join(dir, &beside);
                let how = OpenOptions {
                    read: true,
                    write: true,
                    create: Some(CreateOptions {
                        mode,
                        ..CreateOptions::default()
                    }),
                    exclusive: true,
                };
                let file = client.open(&name, &how).map_err(|e| failed(path, e))?;
                (Place::Inside(name), Open::Inside(file))
            }
            Place::Outside(path) => {
                let name = path.with_file_name(&beside);
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&name)
                    .map_err(|e| CliError::io("make", &name, e))?;
                file.set_permissions(std::fs::Permissions::from_mode(mode & !umask()))
                    .map_err(|e| CliError::io("set the mode of", &name, e))?;
                (Place::Outside(name.clone()), Open::Outside(file, name))
            }
        };
        Ok(Temporary {
            client,
            open: Some(open),
            name,
            kept: false,
        })
    }

    fn open(&self) -> Result<&Open> {
        self.open
            .as_ref()
            .ok_or_else(|| CliError::new("the copy is closed already"))
    }

    /// Gives the copy its name.
    fn keep(mut self, target: &Place, force: bool) -> Result<()> {
        // Somebody may have made the target in the meantime. Inside, a moment between this and the rename remains.
        if !force && target.exists(self.client)? {
            return Err(
                CliError::new(format!("{target} exists by now")).next("--force replaces it")
            );
        }
        self.open = None;
        match (&self.name, target) {
            (Place::Inside(from), Place::Inside(to)) => {
                self.client.rename(from, to).map_err(|e| failed(to, e))?;
                self.client.sync_metadata().map_err(CliError::new)?;
            }
            (Place::Outside(from), Place::Outside(to)) => {
                rename(from, to, force).map_err(|e| CliError::io("name", to, e))?;
                if let Some(dir) = to.parent() {
                    let dir = if dir.as_os_str().is_empty() {
                        Path::new(".")
                    } else {
                        dir
                    };
                    std::fs::File::open(dir)
                        .and_then(|d| d.sync_all())
                        .map_err(|e| CliError::io("sync", dir, e))?;
                }
            }
            _ => return Err(CliError::new("a copy can't change sides")),
        }
        self.kept = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.open = None;
        match &self.name {
            Place::Inside(path) => {
                if let Err(e) = self.client.unlink(path) {
                    eprintln!("penstock: {path} is left over: {e}");
                }
            }
            Place::Outside(path) => {
                let _ = std::fs::remove_file(path);
            }
        }
    }
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

/// Copies one file; returns its bytes.
fn copy(
    client: &Client,
    source: &Place,
    target: &Place,
    force: bool,
    stop: &AtomicBool,
) -> Result<u64> {
    let from = open_source(client, source)?;
    let len = from.len()?;
    let temporary = Temporary::create(client, target, from.mode())?;
    let to = temporary.open()?;
    let progress = Progress::new(source, len);
    let next = AtomicU64::new(0);
    let failure: Mutex<Option<CliError>> = Mutex::new(None);
    let work = || {
        let mut buffer = vec![0u8; PIECE.min(len) as usize];
        let mut step = || -> Result<bool> {
            let at = next.fetch_add(PIECE, Ordering::Relaxed);
            if at >= len {
                return Ok(false);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(CliError::new(format!("interrupted; {target} was not made")));
            }
            let piece = &mut buffer[..PIECE.min(len - at) as usize];
            from.read(at, piece)?;
            to.write(at, piece)?;
            progress.add(piece.len() as u64);
            Ok(true)
        };
        loop {
            match step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // The others find no further piece; the first error is the one that counts.
                    next.store(u64::MAX - PIECE * THREADS as u64, Ordering::Relaxed);
                    let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(error);
                    break;
                }
            }
        }
    };
    let threads = THREADS.min(len.div_ceil(PIECE) as usize);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    drop(progress);
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    to.set_len(len)?;
    to.sync()?;
    let copied = to.len()?;
    if copied != len || from.len()? != len {
        return Err(CliError::new(format!(
            "{source} has {} B and its copy {copied} B: it changed while it was copied",
            from.len()?
        ))
        .next("copy it again when nobody writes it"));
    }
    temporary.keep(target, force)?;
    Ok(len)
}

/// A bar on standard error, from the third second on.
struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    fn new(source: &Place, len: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        let style = "{prefix} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_prefix(source.to_string());
        Progress {
            bar,
            start: Instant::now(),
        }
    }

    fn add(&self, bytes: u64) {
        if self.bar.is_hidden() && self.start.elapsed() > SILENT {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        assert_eq!(Place::parse("penstock:a"), Place::Inside("/a".into()));
        assert_eq!(Place::parse("a"), Place::Outside("a".into()));
        assert_eq!(Place::parse("penstock:/d/f.nc").base().unwrap(), "f.nc");
        assert_eq!(Place::parse("penstock:/").base(), None);
        assert_eq!(Place::parse("d/f.nc").base().unwrap(), "f.nc");
        assert_eq!(
            Place::parse("penstock:/").below("x"),
            Place::Inside("/x".into())
        );
    }
}
