//! Copies many files at once: directories are walked while files are copied.
//!
//! One thread walks and makes directories; a few others take files from a bounded queue and copy them. A directory that
//! the target does not have yet is filled under its temporary name. It is renamed when everything below it is complete,
//! so that a tree appears as a whole. Modes and times of directories are set last, from the leaves up, because filling
//! a directory changes them.
use super::file::{self, Outcome};
use super::location::{EntryKind, Location};
use super::{Context, Links};
use crate::error::{CliError, Result};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Files copied at once.
const FILES: usize = 4;
/// Files found and not begun.
const QUEUE: usize = 256;
/// A source and the name of its copy.
#[derive(Debug, Clone)]
pub struct Job {
    pub source: Location,
    pub target: Location,
}

/// The results of all jobs.
#[derive(Debug, Default, Clone, Copy)]
pub struct Totals {
    /// Files whose bytes were copied.
    pub copied: u64,
    /// Files that were there already with the same bytes.
    pub same: u64,
    /// Symbolic links that are on the target's side.
    pub links: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Bytes of the files that were copied.
    pub moved: u64,
    /// Files and directories that were not copied; each has been named.
    pub failed: u64,
}

/// A directory under the name it has while it is filled.
struct Directory {
    source: Location,
    working: Location,
    /// Its final name, if that differs.
    target: Option<Location>,
}

/// The directories that the walk is in, innermost first. A link that leads back to one of them would never end.
struct Within {
    id: (u64, u64),
    outer: Option<Rc<Within>>,
}

/// Enters a directory.
fn enter(place: &Location, outer: Option<Rc<Within>>) -> Result<Option<Rc<Within>>> {
    // In Penstock, links are not followed.
    let Location::Outside(path) = place else {
        return Ok(None);
    };
    let id = path
        .metadata()
        .map(|m| (m.dev(), m.ino()))
        .map_err(|e| CliError::io("look at", path, e))?;
    let mut at = &outer;
    while let Some(within) = at {
        if within.id == id {
            return Err(
                CliError::new(format!("{place} is a link to a directory that it lies in"))
                    .next("remove that link, or use `--links skip`"),
            );
        }
        at = &within.outer;
    }
    Ok(Some(Rc::new(Within { id, outer })))
}

/// Shared by the walker and the copiers.
struct Run<'a> {
    cx: &'a Context<'a>,
    totals: Mutex<Totals>,
}

impl Run<'_> {
    fn totals(&self) -> std::sync::MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports what was not copied; the other files go on. After a signal only the signal is reported.
    fn failed(&self, error: &CliError) {
        self.totals().failed += 1;
        if self.cx.interrupted().is_ok() {
            self.cx.progress.say(&format!("penstock: {error}"));
        }
    }

    fn copy(&self, job: &Job) {
        self.cx.progress.at(&job.source.to_string());
        match file::copy(self.cx, &job.source, &job.target) {
            Ok(outcome) => {
                let mut totals = self.totals();
                match outcome {
                    Outcome::Copied { bytes, .. } => {
                        totals.copied += 1;
                        totals.bytes += bytes;
                        totals.moved += bytes;
                    }
                    Outcome::Same { bytes, .. } => {
                        totals.same += 1;
                        totals.bytes += bytes;
                    }
                }
                drop(totals);
                self.cx.done(&job.source, &job.target, outcome);
            }
            Err(error) => self.failed(&error),
        }
    }
}

/// Copies files and whole directories. Fails at once only if nothing can go on; a file that could not be copied is
/// counted.
pub fn copy(cx: &Context<'_>, jobs: &[Job]) -> Result<Totals> {
    let run = Run {
        cx,
        totals: Mutex::default(),
    };
    let (send, receive) = sync_channel::<Job>(QUEUE);
    let receive = Mutex::new(receive);
    let mut directories: Vec<Directory> = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..FILES {
            scope.spawn(|| {
                while let Some(job) = next(&receive) {
                    if cx.interrupted().is_ok() {
                        run.copy(&job);
                    } else {
                        run.totals().failed += 1;
                    }
                }
            });
        }
        for job in jobs {
            let walked = walk(&run, job, &mut directories, &mut |job| {
                // The receiver lives as long as this scope.
                let _ = send.send(job);
            });
            if let Err(error) = walked {
                run.failed(&error);
            }
        }
        drop(send);
    });
    cx.interrupted()?;
    finish(&run, directories);
    let totals = *run.totals();
    Ok(totals)
}

fn next(receive: &Mutex<Receiver<Job>>) -> Option<Job> {
    let receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
    receive.recv().ok()
}

/// The kind of a name, with links treated as the user wants it. `None`: left out.
fn meant(cx: &Context<'_>, place: &Location, kind: EntryKind) -> Result<Option<EntryKind>> {
    if kind != EntryKind::Link {
        return Ok(Some(kind));
    }
    match cx.links {
        Links::Copy => Ok(Some(EntryKind::Link)),
        Links::Skip => Ok(None),
        Links::Follow => place.kind_behind(cx.client).map(Some),
        Links::Fail => Err(CliError::new(format!("{place} is a symbolic link"))
            .next("`--links copy` copies the link, `--links follow` copies what it points to, `--links skip` leaves it out")),
    }
}

fn walk(
    run: &Run<'_>,
    job: &Job,
    directories: &mut Vec<Directory>,
    send: &mut dyn FnMut(Job),
) -> Result<()> {
    let cx = run.cx;
    let mut stack = vec![(job.clone(), None::<EntryKind>, None::<Rc<Within>>)];
    while let Some((job, known, within)) = stack.pop() {
        cx.interrupted()?;
        let mut step = || -> Result<()> {
            // A name that the user gave is followed, even if it is a link.
            let kind = match known {
                None => Some(job.source.kind_behind(cx.client)?),
                Some(kind) => meant(cx, &job.source, kind)?,
            };
            match kind {
                None => Ok(()),
                Some(EntryKind::File) => {
                    if let Location::Outside(path) = &job.source {
                        cx.progress.found(path.metadata().map_or(0, |m| m.len()));
                    }
                    send(job.clone());
                    Ok(())
                }
                Some(EntryKind::Directory) => {
                    let within = enter(&job.source, within.clone())?;
                    let entries = job.source.entries(cx.client)?;
                    let there = job.target.kind_behind(cx.client)?;
                    // Below a directory that has a temporary name, files and directories need none.
                    let (working, target) = if known.is_none() && there == EntryKind::Nothing {
                        (job.target.part()?, Some(job.target.clone()))
                    } else {
                        (job.target.clone(), None)
                    };
                    working.make_dir(cx.client)?;
                    directories.push(Directory {
                        source: job.source.clone(),
                        working: working.clone(),
                        target,
                    });
                    for (name, kind) in entries.into_iter().rev() {
                        let below = |place: &Location| place.below(&name);
                        match (below(&job.source), below(&working)) {
                            (Ok(source), Ok(target)) => {
                                stack.push((Job { source, target }, Some(kind), within.clone()));
                            }
                            (Err(error), _) | (_, Err(error)) => run
                                .failed(&error.next(format!("it is in {}; rename it", job.source))),
                        }
                    }
                    Ok(())
                }
                Some(EntryKind::Nothing) => Err(CliError::new(format!(
                    "{} does not exist, or is a dangling link",
                    job.source
                ))),
                Some(EntryKind::Link) => {
                    copy_link(cx, &job)?;
                    run.totals().links += 1;
                    Ok(())
                }
                Some(EntryKind::Other) => Err(CliError::new(format!(
                    "{} is no file, directory or link",
                    job.source
                ))
                .next("sockets, pipes and devices are not copied")),
            }
        };
        if let Err(error) = step() {
            run.failed(&error);
        }
    }
    Ok(())
}

/// Makes a link anew, with the same path in it. A link is complete from the beginning. One that replaces another is
/// made under a temporary name, so that there is always one of both.
fn copy_link(cx: &Context<'_>, job: &Job) -> Result<()> {
    let path = job.source.link(cx.client)?;
    match job.target.kind(cx.client)? {
        EntryKind::Nothing => return job.target.make_link(cx.client, &path),
        EntryKind::Link if job.target.link(cx.client)? == path => return Ok(()),
        EntryKind::Directory => {
            return Err(CliError::new(format!("{} is a directory", job.target))
                .next(format!("{} is a symbolic link", job.source)));
        }
        _ if !cx.replace => {
            return Err(
                CliError::new(format!("{} exists and differs", job.target)).next(format!(
                    "{} is a symbolic link; --force replaces what is there",
                    job.source
                )),
            );
        }
        _ => {}
    }
    let part = job.target.part()?;
    if part.kind(cx.client)? == EntryKind::Link {
        part.remove(cx.client)?;
    }
    part.make_link(cx.client, &path)?;
    part.rename(&job.target, cx.client, true)
}

/// Sets modes and times of directories from the leaves up. Then complete trees get their final names.
fn finish(run: &Run<'_>, directories: Vec<Directory>) {
    let cx = run.cx;
    let whole = run.totals().failed == 0;
    for directory in directories.into_iter().rev() {
        let done = || -> Result<()> {
            let marks = directory.source.marks(cx.client)?;
            // Outside of Penstock, each directory is synced by itself. In Penstock, all names are synced at the end.
            if !directory.working.is_inside() {
                directory.working.sync_dir(cx.client)?;
            }
            directory.working.set_marks(cx.client, marks)?;
            match &directory.target {
                Some(target) if whole => directory.working.rename(target, cx.client, false),
                Some(target) => {
                    cx.progress.say(&format!(
                        "penstock: {target} was not made: what was copied of it is in {}",
                        directory.working
                    ));
                    Ok(())
                }
                None => Ok(()),
            }
        };
        if let Err(error) = done() {
            run.failed(&error);
        }
    }
}
