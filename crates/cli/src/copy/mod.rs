//! `penstock cp`, `penstock stage-in` and `penstock stage-out`: bytes in, out, and inside.
//!
//! | file | idea |
//! | --- | --- |
//! | `file` | one file: under a temporary name, compared piece by piece, verified, then named |
//! | `tree` | directories, many files at once |
//! | `stage` | lists of paths for a job |
//! | `hash` | a file's checksum from pieces in any order |
//! | `location` | names on either side |
//! | `progress` | what people see meanwhile |
mod file;
mod hash;
mod location;
mod progress;
mod stage;
mod tree;

pub use stage::{StageArgs, Way, stage, stage_quietly};

use crate::connect;
use crate::deployment;
use crate::error::{CliError, Result};
use crate::out;
use crate::size;
use clap::Args;
use file::Outcome;
use location::{EntryKind, Location};
use penstock_client::Client;
use progress::Progress;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tree::Job;

/// Copy files and directories in, out, or inside.
///
/// A copy appears under its name when it is complete, synced, and equal to its source by checksum (BLAKE3, what b3sum
/// prints). Until then it is `.NAME.copying` beside it. After an interruption of any kind, the same command continues
/// that copy.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock cp big.nc penstock:/in/big.nc             in
  penstock cp penstock:/out/field.h5 .               out
  penstock cp a.nc b.nc penstock:/in/                several, into a directory
  penstock cp -r case7 penstock:/case7               a directory, as penstock:/case7
  penstock cp -r case7 penstock:/in/                 a directory, into another, as penstock:/in/case7

With -r, existing files with the same bytes are left alone, and files that can't
be copied are named while the others go on; the exit code is then 1, and a directory that was not
there before stays under its temporary name. Mode bits (on this machine under the umask) and times
of the last change are kept; owners, hard links and extended attributes are not. Sparse files stay
sparse, symbolic links stay links with the same path in them.")]
pub struct CpArgs {
    /// Sources, then the target. Names in Penstock begin with `penstock:`.
    #[arg(value_name = "PATH", num_args = 2.., required = true)]
    pub paths: Vec<OsString>,
    /// Directories with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
    /// Replace a target that exists.
    #[arg(short, long)]
    pub force: bool,
    /// Symbolic links below a directory: copied as links, followed, left out, or an error.
    #[arg(long, value_enum, default_value_t = OnLink::Copy, value_name = "WHAT")]
    pub links: OnLink,
    /// For programs: one object per file, with its checksum; with -r a last one with totals.
    #[arg(long)]
    pub json: bool,
}

/// What becomes of symbolic links below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnLink {
    /// The copy is a link with the same path in it.
    Copy,
    /// They are errors.
    Fail,
    /// The file or directory that they lead to is copied.
    Follow,
    /// They are left out.
    Skip,
}

/// What becomes of symbolic links inside of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    Copy,
    Fail,
    Follow,
    Skip,
}

impl From<OnLink> for Links {
    fn from(wanted: OnLink) -> Links {
        match wanted {
            OnLink::Copy => Links::Copy,
            OnLink::Fail => Links::Fail,
            OnLink::Follow => Links::Follow,
            OnLink::Skip => Links::Skip,
        }
    }
}

/// What all copies of one command share.
struct Context<'a> {
    client: &'a Client,
    /// Set when a signal has arrived.
    stop: &'a AtomicBool,
    /// A target that differs is replaced.
    replace: bool,
    /// A target that has the same bytes is left alone, and parts stay for the next time.
    resume: bool,
    links: Links,
    progress: &'a Progress,
    report: &'a Report,
    /// One large file at a time is moved by many threads.
    large: Mutex<()>,
}

impl<'a> Context<'a> {
    fn new(
        client: &'a Client,
        stop: &'a AtomicBool,
        resume: bool,
        links: Links,
        report: &'a Report,
    ) -> Context<'a> {
        Context {
            client,
            stop,
            replace: false,
            resume,
            links,
            progress: &report.progress,
            report,
            large: Mutex::new(()),
        }
    }

    fn interrupted(&self) -> Result<()> {
        if !self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error = CliError::new("interrupted; incomplete files have not got their names");
        Err(if self.resume {
            error.next("the same command continues from here")
        } else {
            error
        })
    }

    fn done(&self, source: &Location, target: &Location, outcome: Outcome) {
        self.report.file(source, target, outcome);
    }
}

/// Tells people and programs what was done.
struct Report {
    json: bool,
    quiet: bool,
    progress: Progress,
    start: Instant,
}

impl Report {
    fn new(json: bool, quiet: bool) -> Report {
        Report {
            json,
            quiet,
            progress: Progress::new(!json && !quiet),
            start: Instant::now(),
        }
    }

    fn file(&self, source: &Location, target: &Location, outcome: Outcome) {
        if !self.json {
            return;
        }
        let (bytes, digest, copied) = match outcome {
            Outcome::Copied { bytes, digest } => (bytes, digest, true),
            Outcome::Same { bytes, digest } => (bytes, digest, false),
        };
        out::print_json(&json!({
            "source": source.text(), "target": target.text(), "bytes": bytes, "copied": copied,
            "blake3": digest.to_hex().as_str(), "verified": true,
        }));
    }

    /// Copies all jobs, makes them durable, and prints the totals. Returns an error if any file is missing.
    fn finish(&self, cx: &Context<'_>, jobs: &[Job]) -> Result<()> {
        let totals = tree::copy(cx, jobs)?;
        // Names are synced too: after exit code 0 a crash of any host loses nothing.
        let mut synced = std::collections::BTreeSet::new();
        for job in jobs {
            let parent = job.target.parent();
            if (job.target.is_inside() && synced.is_empty()) || synced.insert(parent.text()) {
                synced.insert(parent.text());
                parent.sync_dir(cx.client)?;
            }
        }
        let seconds = self.start.elapsed().as_secs_f64();
        if self.json {
            out::print_json(&json!({
                "files": totals.copied + totals.same, "copied": totals.copied, "same": totals.same,
                "links": totals.links, "bytes": totals.bytes, "moved": totals.moved, "failed": totals.failed,
                "seconds": seconds,
            }));
        } else if !self.quiet {
            let same = match totals.same {
                0 => String::new(),
                n => format!(", {} there already and verified", size::count(n)),
            };
            let links = match totals.links {
                0 => String::new(),
                n => format!(", {} symbolic links", size::count(n)),
            };
            self.progress.say(&format!(
                "{} files copied{same}{links}: {} in {}, {}",
                size::count(totals.copied),
                size::bytes(totals.moved),
                size::duration(seconds),
                size::rate(totals.moved, seconds)
            ));
        }
        match totals.failed {
            0 => Ok(()),
            n => Err(
                CliError::new(format!("{} were not copied; they are named above", size::count(n)))
                    .next("run the same command again when the causes are gone; complete files are not copied twice"),
            ),
        }
    }
}

/// A client, and a flag that signals set.
fn prepare(named: Option<&Path>) -> Result<(Client, Arc<AtomicBool>)> {
    let client = connect::copier(&deployment::find(named)?)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    Ok((client, stop))
}

/// Copies each source to the target.
pub fn cp(args: &CpArgs, named: Option<&Path>) -> Result<()> {
    let Some((target, sources)) = args.paths.split_last() else {
        return Err(CliError::new("nothing to copy"));
    };
    let into_dir = {
        use std::os::unix::ffi::OsStrExt;
        let text = target.as_bytes();
        text.ends_with(b"/") || matches!(text, b"." | b"..") || text.ends_with(b"/..")
    };
    let target = Location::parse(target)?;
    let sources = sources
        .iter()
        .map(|p| Location::parse(p))
        .collect::<Result<Vec<_>>>()?;
    if !target.is_inside()
        && let Some(source) = sources.iter().find(|p| !p.is_inside())
    {
        return Err(
            CliError::new(format!("neither {source} nor {target} is in Penstock"))
                .next("names in Penstock begin with `penstock:`, for example penstock:/in/big.nc"),
        );
    }
    let (client, stop) = prepare(named)?;
    let is_dir = target.kind_behind(&client)? == EntryKind::Directory;
    if !is_dir && (into_dir || sources.len() > 1) {
        return Err(
            CliError::new(format!("{target} is no directory")).next(match target {
                Location::Inside(ref path) => format!("`penstock mkdir {path}` makes it"),
                Location::Outside(ref path) => format!("`mkdir {}` makes it", path.display()),
            }),
        );
    }
    let report = Report::new(args.json, false);
    let cx = Context {
        replace: args.force,
        ..Context::new(&client, &stop, args.recursive, args.links.into(), &report)
    };
    let mut jobs = Vec::new();
    for source in sources {
        // A directory's copy has the target's name, unless the target says that it goes into it. So the same command
        // given again means the same.
        let tree = args.recursive && source.kind_behind(&client)? == EntryKind::Directory;
        let into = into_dir || jobs_go_into(args) || (is_dir && !tree);
        let target = if into {
            let base = source.base().ok_or_else(|| {
                CliError::new(format!("{source} has no name of its own"))
                    .next("give the copy a name, without a slash at the end")
            })?;
            target.below(&base)?
        } else {
            target.clone()
        };
        if target == source {
            return Err(CliError::new(format!("{source} would be copied to itself")));
        }
        if let (Location::Inside(source), Location::Inside(target)) = (&source, &target)
            && Path::new(target).starts_with(source)
        {
            return Err(CliError::new(format!("{target} is inside of {source}")));
        }
        jobs.push(Job { source, target });
    }
    for job in &jobs {
        let parent = job.target.parent();
        if parent.kind_behind(&client)? == EntryKind::Nothing {
            let error = CliError::new(format!(
                "{} would be in {parent}, which does not exist",
                job.target
            ));
            return Err(error.next(match parent {
                Location::Inside(path) => format!("`penstock mkdir -p {path}` makes it"),
                Location::Outside(path) => format!("`mkdir -p {}` makes it", path.display()),
            }));
        }
    }
    if args.recursive {
        return report.finish(&cx, &jobs);
    }
    for Job { source, target } in &jobs {
        if target.kind_behind(&client)? == EntryKind::Directory {
            return Err(CliError::new(format!("{target} is a directory")));
        }
        let start = Instant::now();
        if let Location::Outside(path) = source {
            report
                .progress
                .found(path.metadata().map_or(0, |m| m.len()));
        }
        let outcome = file::copy(&cx, source, target)?;
        target.parent().sync_dir(&client)?;
        cx.done(source, target, outcome);
        if let (false, Outcome::Copied { bytes, .. }) = (args.json, outcome) {
            let seconds = start.elapsed().as_secs_f64();
            report.progress.say(&format!(
                "{source} -> {target}: {} in {}, {}",
                size::bytes(bytes),
                size::duration(seconds),
                size::rate(bytes, seconds)
            ));
        }
    }
    Ok(())
}

/// Several sources go into the target.
fn jobs_go_into(args: &CpArgs) -> bool {
    args.paths.len() > 2
}
