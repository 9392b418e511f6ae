//! `penstock stage-in` and `penstock stage-out`: copy a job's input in before it, and its output out after it.
//!
//! A list of paths below one directory is copied to the same paths below another. Exit code 0 says that every byte of
//! every path is on the target's side, synced, read back and equal by checksum. The same command given again goes on.
use super::location::{EntryKind, Location};
use super::tree::Job;
use super::{Context, Links, OnLink, Report, prepare};
use crate::error::{CliError, Result};
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::BufRead;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// What is staged, and between which directories.
#[derive(Debug, Args)]
pub struct StageArgs {
    /// What to stage: files, or directories with all they hold, below --from; `.` is everything.
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Paths are below this directory [default: for stage-in ., for stage-out penstock:/].
    #[arg(long, value_name = "DIR")]
    pub from: Option<OsString>,
    /// They get the same names below this directory, which is made [default: for stage-in penstock:/, for stage-out .].
    #[arg(long, value_name = "DIR")]
    pub to: Option<OsString>,
    /// More paths, one a line, from a file or (`-`) from standard input.
    #[arg(short, long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Paths of the list end with a zero byte, as `find -print0` writes them.
    #[arg(short = '0', long, requires = "list")]
    pub null: bool,
    /// Symbolic links below a directory: copied as links, followed, left out, or an error.
    #[arg(long, value_enum, default_value_t = OnLink::Copy, value_name = "WHAT")]
    pub links: OnLink,
    /// For programs: one object per file, with its checksum; a last one with totals.
    #[arg(long)]
    pub json: bool,
}

/// Longest path of a list, in bytes.
const PATH_MAX: usize = 16 << 10;
/// Most paths of a list.
const PATHS_MAX: usize = 16 << 20;

/// The direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    In,
    Out,
}

/// Copies paths in or out.
pub fn stage(way: Way, args: &StageArgs, named: Option<&Path>) -> Result<()> {
    stage_quietly(way, args, named, false)
}

/// The same; with `quiet`, successful copies print nothing.
pub fn stage_quietly(way: Way, args: &StageArgs, named: Option<&Path>, quiet: bool) -> Result<()> {
    let (from, to) = match way {
        Way::In => (".", "penstock:/"),
        Way::Out => ("penstock:/", "."),
    };
    let place = |given: &Option<OsString>, default: &str| {
        Location::parse(given.as_deref().unwrap_or(OsStr::new(default)))
    };
    let (from, to) = (place(&args.from, from)?, place(&args.to, to)?);
    if from.is_inside() == to.is_inside() || to.is_inside() != (way == Way::In) {
        let (command, from_is, to_is) = match way {
            Way::In => ("stage-in", "a directory of this machine", "penstock:/DIR"),
            Way::Out => ("stage-out", "penstock:/DIR", "a directory of this machine"),
        };
        return Err(CliError::new(format!(
            "`penstock {command}` goes from {from_is} to {to_is}, not from {from} to {to}"
        ))
        .next("the other command goes the other way"));
    }
    let mut paths = BTreeSet::new();
    for path in &args.paths {
        paths.insert(relative(&from, path)?);
    }
    if let Some(list) = &args.list {
        read_list(list, if args.null { 0 } else { b'\n' }, |path| {
            if paths.len() >= PATHS_MAX {
                return Err(
                    CliError::new(format!("a list of more than {PATHS_MAX} paths"))
                        .next("name directories, or split the list"),
                );
            }
            paths.insert(relative(&from, path)?);
            Ok(())
        })?;
    }
    if paths.is_empty() {
        if args.list.is_none() {
            return Err(CliError::new("nothing to stage")
                .next("name paths, or a list of them with --list; `.` is everything"));
        }
        return Ok(());
    }
    let client = prepare(named)?;
    let (client, stop) = (&client.0, &client.1);
    let report = Report::new(args.json, quiet);
    let cx = Context {
        replace: true,
        ..Context::new(client, stop, true, Links::from(args.links), &report)
    };
    let mut jobs = Vec::new();
    let mut parents = BTreeSet::new();
    for path in outermost(&paths) {
        let at = |root: &Location| {
            path.components()
                .try_fold(root.clone(), |place, name| place.below(name.as_os_str()))
        };
        let job = Job {
            source: at(&from)?,
            target: at(&to)?,
        };
        if job.source.kind_behind(client)? == EntryKind::Nothing {
            return Err(CliError::new(format!("{} does not exist", job.source))
                .next("nothing was staged; correct the list"));
        }
        jobs.push(job);
    }
    // Nothing is made if any path of the list is refused.
    for (job, path) in jobs.iter().zip(outermost(&paths)) {
        if path.as_os_str().is_empty() {
            job.target.make_dirs(client)?;
        } else if parents.insert(job.target.parent().text()) {
            job.target.parent().make_dirs(client)?;
        }
    }
    report.finish(&cx, &jobs)
}

/// A path below `from`, without a prefix of it.
fn relative(from: &Location, path: &OsStr) -> Result<PathBuf> {
    let shown = || Location::Outside(PathBuf::from(path)).to_string();
    let outside = || {
        CliError::new(format!("{} is not below {from}", shown()))
            .next("--from names the directory that all paths are below")
    };
    let below = match (from, Location::parse(path)?) {
        (Location::Inside(from), Location::Inside(path)) => {
            Path::new(&path).strip_prefix(from).map(Path::to_path_buf)
        }
        (Location::Inside(from), Location::Outside(path)) if path.is_absolute() => {
            path.strip_prefix(from).map(Path::to_path_buf)
        }
        (Location::Outside(_), Location::Inside(_)) => return Err(outside()),
        (Location::Outside(from), Location::Outside(path)) if path.is_absolute() => {
            let from = std::path::absolute(from).map_err(|e| CliError::io("find", from, e))?;
            path.strip_prefix(from).map(Path::to_path_buf)
        }
        (_, Location::Outside(path)) => Ok(path),
    }
    .map_err(|_| outside())?;
    let mut clean = PathBuf::new();
    for part in below.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => clean.push(name),
            _ => return Err(outside()),
        }
    }
    Ok(clean)
}

/// Paths that are not below another one of them.
fn outermost(paths: &BTreeSet<PathBuf>) -> Vec<&Path> {
    let mut kept: Vec<&Path> = Vec::new();
    // Sorted by components, a directory stands right before everything below it.
    for path in paths {
        if !kept.last().is_some_and(|above| path.starts_with(above)) {
            kept.push(path);
        }
    }
    kept
}

fn read_list(list: &Path, separator: u8, mut each: impl FnMut(&OsStr) -> Result<()>) -> Result<()> {
    let failed = |e| CliError::io("read the list", list, e);
    let mut input: Box<dyn BufRead> = if list == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::io::BufReader::new(
            std::fs::File::open(list).map_err(failed)?,
        ))
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = std::io::Read::take(&mut input, PATH_MAX as u64 + 1);
        if limited.read_until(separator, &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        if line.last() == Some(&separator) {
            line.pop();
        }
        if line.len() > PATH_MAX {
            return Err(CliError::new(format!(
                "{} has a path of more than {PATH_MAX} bytes",
                list.display()
            ))
            .next("paths are separated by newlines, or by zero bytes with -0"));
        }
        if !line.is_empty() {
            each(&OsString::from_vec(line.clone()))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn paths_stay_below() {
        let inside = Location::Inside("/out".into());
        let outside = Location::Outside("/data".into());
        let of = |from: &Location, path: &str| relative(from, OsStr::new(path)).ok();
        assert_eq!(of(&inside, "a/b"), Some("a/b".into()));
        assert_eq!(of(&inside, "penstock:/out/a"), Some("a".into()));
        assert_eq!(of(&inside, "/out/a"), Some("a".into()));
        assert_eq!(of(&inside, "penstock:/other"), None);
        assert_eq!(of(&outside, "./a//b/"), Some("a/b".into()));
        assert_eq!(of(&outside, "/data"), Some("".into()));
        assert_eq!(of(&outside, "/etc/passwd"), None);
        assert_eq!(of(&outside, "../x"), None);
        assert_eq!(of(&outside, "a/../../x"), None);
        assert_eq!(of(&outside, "penstock:/x"), None);
    }

    #[test]
    fn what_is_below_another_path_goes_with_it() {
        let set = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let paths = set(&["a/b", "a", "a.b", "c/d", "c/d/e/f", "c/dd"]);
        let kept: Vec<_> = outermost(&paths)
            .into_iter()
            .map(Path::to_path_buf)
            .collect();
        assert_eq!(BTreeSet::from_iter(kept), set(&["a", "a.b", "c/d", "c/dd"]));
        assert_eq!(outermost(&set(&["", "a"])), [Path::new("")]);
    }

    #[test]
    fn names_of_any_bytes_are_read() {
        let list = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(list.path(), b"a b\0new\nline\0\0\xff\0last").unwrap();
        let mut found = Vec::new();
        read_list(list.path(), 0, |path| {
            found.push(path.as_bytes().to_vec());
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [&b"a b"[..], b"new\nline", b"\xff", b"last"]);
        std::fs::write(list.path(), vec![b'x'; PATH_MAX + 1]).unwrap();
        assert!(read_list(list.path(), b'\n', |_| Ok(())).is_err());
    }
}
