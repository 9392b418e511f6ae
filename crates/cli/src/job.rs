//! The deployment of one job: its directory on each host, and `penstock clean`.
//!
//! Problem: a job may end in any way, and its nodes' disks belong to the next job. But output that was not staged out
//! yet exists nowhere else. Idea: `BASE/penstock-job-ID` is a directory of each host's own, named after the job. As
//! long as output is to be staged out, the file `unsaved` in it names the target. Cleaning leaves such a directory, and
//! reports it (docs/decisions/0051).
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::hosts::{self, ReachArgs};
use crate::launch;
use crate::which::Which;
use crate::{out, service, users};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The prefix of the name of a job's directory.
const PREFIX: &str = "penstock-job-";
/// The file that names the directory to stage output out to.
pub const UNSAVED: &str = "unsaved";
/// The credential by which the job's ranks on other hosts prove their user.
pub const CREDENTIAL: &str = "job.credential";
/// Where a job's output and its input are in its deployment.
pub const OUTPUT: &str = "penstock:/out";
pub const INPUT: &str = "penstock:/in";
/// Longest id; credentials carry it too.
const ID_MAX: usize = 64;
/// The most bytes of a mark that are read.
const MARK_MAX: u64 = 8192;
/// The most directories that one command cleans; a job has one for each run.
const MOST: usize = 1024;

/// A job's name, a part of a directory's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(String);

impl std::str::FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Id, String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-[]".contains(&b);
        let good = (1..=ID_MAX).contains(&text.len()) && text.bytes().all(plain);
        if good && text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            Ok(Id(text.to_owned()))
        } else {
            Err(format!(
                "{text:?} names no job: letters, digits and . _ - [ ] are allowed, {ID_MAX} at most, a letter or digit first"
            ))
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Id {
    /// The id of this job, as its scheduler names it, and of this run of it. Without a scheduler it is a unique name.
    pub fn own() -> Result<Id> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let run = get("SLURM_RESTART_COUNT").filter(|n| n != "0");
        let id = match (get("SLURM_JOB_ID"), run, get("PBS_JOBID")) {
            (Some(job), None, _) => job,
            // The former run may have left output that was not staged out.
            (Some(job), Some(run), _) => format!("{job}.{run}"),
            (None, _, Some(job)) => job,
            (None, _, None) => {
                let random =
                    penstock_rpc::deployment::Deployment::new_id().map_err(CliError::new)?;
                format!("local-{}", &random[..8])
            }
        };
        id.parse()
            .map_err(|e: String| CliError::new(e).next("name it with --job=ID"))
    }

    /// Its directory on each host.
    pub fn directory(&self, base: &Path) -> PathBuf {
        base.join(format!("{PREFIX}{self}"))
    }
}

/// The directory that holds the jobs' directories.
pub fn base(store: Option<&Path>) -> Result<PathBuf> {
    let base = store.map_or_else(std::env::temp_dir, Path::to_path_buf);
    std::path::absolute(&base).map_err(|e| CliError::io("find", &base, e))
}

/// Remove what a job's deployment has left on this host, or on all of its hosts. For epilogs; may be repeated.
///
/// Servers that still run are ended. On the job's first host the command acts on all hosts, elsewhere on this one.
/// Output that `penstock run --job` did not stage out stays where it is; the command says where, and succeeds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock clean --job 4711                     what job 4711 has left in $TMPDIR (/tmp)
  penstock clean --job 4711 --store /local      in /local
  penstock clean --job 4711 --discard           and output that was not staged out
  penstock clean --job 4711 --here --user 1003  in an epilog, as root: this host, with the rights of the job's user")]
pub struct CleanArgs {
    /// The job, as `penstock run --job` names it: in Slurm $SLURM_JOB_ID. All its runs are meant.
    #[arg(long, value_name = "ID")]
    pub job: Id,
    /// Where the job's directory is on each host, as given to `penstock run --store` [default: $TMPDIR, else /tmp].
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Remove output that was not staged out, too.
    #[arg(long)]
    pub discard: bool,
    /// Root only: act with the rights of this user, and on this user's files only [default: the directory's owner].
    #[arg(long, value_name = "NAME|UID")]
    pub user: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// The result of cleaning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaned {
    /// Servers that were ended.
    pub ended: usize,
    /// The directory is still there, because its output was to be staged out to this directory.
    pub unsaved: Option<String>,
}

/// `penstock clean`.
pub fn clean(args: &CleanArgs) -> Result<()> {
    let base = base(args.store.as_deref())?;
    let mut found = directories(&base, &args.job)?;
    let me = rustix::process::geteuid();
    let uid = match (&args.user, found.first()) {
        (Some(_), _) if !me.is_root() => {
            return Err(CliError::new("only root acts for another user").next("leave --user out"));
        }
        (Some(name), _) => users::named(name)?.uid,
        (None, Some((_, owner))) if me.is_root() => *owner,
        (None, _) => me.as_raw(),
    };
    if me.is_root() && uid != 0 {
        // Links that this user has made then lead only to what this user may access.
        service::become_user(&users::named(&uid.to_string())?)?;
    }
    if let Some((dir, owner)) = found.iter().find(|(_, owner)| *owner != uid) {
        let error = CliError::new(format!(
            "{} belongs to user {owner}, and this is user {uid}",
            dir.display()
        ));
        if me.is_root() {
            out::note(error);
        } else {
            return Err(error.next("its owner or root removes it"));
        }
    }
    // Other users may have made directories with such names.
    found.retain(|(_, owner)| *owner == uid);
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    if found.is_empty() {
        out::line(format_args!(
            "job {}: nothing is left in {}",
            args.job,
            base.display()
        ));
    }
    for (dir, _) in found {
        let cleaned = match located(&dir) {
            Some(located) if !args.reach.here && is_first(&located) => {
                hosts::clean(&located, &args.reach, args.discard)?
            }
            _ => clean_here(&dir, args.discard)?,
        };
        let ended = match cleaned.ended {
            0 => String::new(),
            n => format!(", {n} servers ended"),
        };
        match cleaned.unsaved {
            None => out::line(format_args!("{}: removed{ended}", dir.display())),
            Some(to) => out::note(kept(&dir, &to, &ended)),
        }
    }
    if more > 0 {
        out::note(format_args!(
            "{more} runs are left; run `penstock clean` again"
        ));
    }
    Ok(())
}

/// The message about output that is still in a job's directory.
pub fn kept(dir: &Path, to: &str, ended: &str) -> CliError {
    let hosts: Vec<String> = match located(dir) {
        Some(located) => located
            .deployment
            .hosts()
            .iter()
            .map(|&h| h.to_owned())
            .collect(),
        None => Vec::new(),
    };
    let on = match &hosts[..] {
        [] => String::new(),
        [only] => format!(" of {only}"),
        all => format!(" of {}", hosts::some(all)),
    };
    let shown = dir.display();
    let id = dir.file_name().unwrap_or_default().to_string_lossy();
    let id = id.strip_prefix(PREFIX).unwrap_or_default();
    let base = dir.parent().unwrap_or(Path::new("/")).display();
    let first = hosts.first().map_or("there", String::as_str);
    let how = if hosts.len() > 1 {
        " (in a job on these nodes: export PENSTOCK_VIA=srun)"
    } else {
        ""
    };
    CliError::new(format!(
        "output for {to} was not staged out, and stays in {shown}{on}{ended}"
    ))
    .next(format!(
        "on {first}{how}: penstock up {shown} && penstock stage-out -d {shown} --from {OUTPUT} --to {to} . && penstock clean --job {id} --store {base} --discard"
    ))
}

fn located(dir: &Path) -> Option<Located> {
    deployment::is_in(dir).then(|| deployment::load(dir).ok())?
}

/// Whether this is the host from which all hosts of the deployment are reached, and there are others.
fn is_first(located: &Located) -> bool {
    let all = located.deployment.hosts();
    let here = hosts::here(&located.deployment).ok().flatten();
    all.len() > 1 && all.first().copied() == here
}

/// The job's directories, one for each run, with their owners. Symbolic links are left out.
fn directories(base: &Path, job: &Id) -> Result<Vec<(PathBuf, u32)>> {
    let entries = match std::fs::read_dir(base) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(CliError::io("look into", base, e)),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let is_run = |rest: &str| rest.is_empty() || rest.starts_with('.');
        if id.strip_prefix(&job.0).is_some_and(is_run)
            && let Ok(metadata) = entry.path().symlink_metadata()
            && metadata.is_dir()
        {
            found.push((entry.path(), metadata.uid()));
        }
    }
    found.sort();
    Ok(found)
}

/// Ends this host's servers of a job's deployment, and removes its directory unless output was to be staged out.
pub fn clean_here(dir: &Path, discard: bool) -> Result<Cleaned> {
    let is_jobs = dir.file_name().and_then(|name| name.to_str());
    if !is_jobs.is_some_and(|name| name.starts_with(PREFIX)) {
        return Err(CliError::new(format!(
            "{} is no directory of a job",
            dir.display()
        )));
    }
    let mut cleaned = Cleaned::default();
    if let Some(located) = located(dir) {
        for some in launch::data_first(Which::all(&located.deployment)) {
            cleaned.ended += launch::end(&located, &some).count;
        }
    }
    let mark = dir.join(UNSAVED);
    if discard {
        // Removed first, so that a directory that is removed in part is removed the next time.
        let _ = std::fs::remove_file(&mark);
    } else if mark.symlink_metadata().is_ok() {
        cleaned.unsaved = Some(read(&mark));
        return Ok(cleaned);
    }
    // An agent that undoes what it did may remove it at the same time.
    for last in [false, false, true] {
        match std::fs::remove_dir_all(dir) {
            Ok(()) => break,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !dir.exists() => break,
            Err(e) if last => return Err(CliError::io("remove", dir, e)),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
        }
    }
    Ok(cleaned)
}

/// The text of a mark, for messages.
fn read(mark: &Path) -> String {
    let mut text = Vec::new();
    // The job's user may have made a named pipe there, for which an epilog would wait forever.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    if let Ok(file) = options.open(mark) {
        let _ = file.take(MARK_MAX).read_to_end(&mut text);
    }
    penstock_rpc::printable(String::from_utf8_lossy(&text).trim_end())
}

/// Writes a file of a job's directory; only the owner can access it.
pub fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(|e| CliError::io("write", &path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_name_leads_nowhere_else() {
        for good in ["4711", "4711.1", "12[3].server", "local-a0b1"] {
            assert!(good.parse::<Id>().is_ok(), "{good}");
        }
        let long = "1".repeat(65);
        for bad in [
            "", ".", "..", "../x", "a/b", "a b", "a\n", "-x", "$(x)", "é", &long,
        ] {
            assert!(bad.parse::<Id>().is_err(), "{bad}");
        }
    }

    #[test]
    fn all_runs_of_a_job_are_found_and_no_other_job() {
        let base = tempfile::tempdir().unwrap();
        for name in ["17", "17.1", "171", "7"] {
            std::fs::create_dir(base.path().join(format!("{PREFIX}{name}"))).unwrap();
        }
        let link = base.path().join(format!("{PREFIX}17.2"));
        std::os::unix::fs::symlink(base.path(), link).unwrap();
        let found = directories(base.path(), &"17".parse().unwrap()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(dir, _)| dir.file_name().unwrap())
            .collect();
        assert_eq!(found, ["penstock-job-17", "penstock-job-17.1"]);
    }

    #[test]
    fn what_was_not_saved_stays_until_it_is_discarded() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("penstock-job-1");
        std::fs::create_dir(&dir).unwrap();
        write(&dir, UNSAVED, "/home/me/out").unwrap();
        let cleaned = clean_here(&dir, false).unwrap();
        assert_eq!(cleaned.unsaved.as_deref(), Some("/home/me/out"));
        assert!(dir.exists());
        assert_eq!(clean_here(&dir, true).unwrap(), Cleaned::default());
        assert!(!dir.exists());
        assert_eq!(clean_here(&dir, true).unwrap(), Cleaned::default());
        assert!(clean_here(base.path(), true).is_err());
    }

    #[test]
    fn a_pipe_in_place_of_the_mark_holds_nobody_up() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("penstock-job-1");
        std::fs::create_dir(&dir).unwrap();
        let pipe = dir.join(UNSAVED);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(
            clean_here(&dir, false).unwrap().unsaved.as_deref(),
            Some("")
        );
        assert!(dir.exists());
    }
}
