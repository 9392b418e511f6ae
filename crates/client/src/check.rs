//! Consistency check and repair of a whole deployment.
//!
//! Problem: crashes and partial failures can leave objects without a file (lost space), files whose objects are damaged
//! or misplaced, and inconsistent metadata. Idea: list files and objects by id, page by page, and merge. Ask each data
//! server to verify its store. Walk the name space both by id and by path, which must agree. Memory is bounded by the
//! pages, whatever the size.
//!
//! It runs beside normal work. Ids are never reused and a file is always known before its objects, so an object without
//! a file has lost it for good. Those found are checked again after a grace period, because their removal may be in
//! progress. Repair removes such orphans, corrects the counts of users' files and bytes, and does nothing else. It does
//! not touch objects that may be newer than the metadata. These are ids that the metadata never issued, and ids issued
//! since the metadata and a store last agreed. They are also all objects on a store that is newer than the metadata
//! know. In these cases the metadata are an older copy or new, and the objects may be all that is left of their files.
//! Nor does it remove more orphans than [`HANDFUL`] and one in [`MANY`] objects without an explicit option. So many
//! indicate lost names rather than a crash.
mod asking;
mod bytes;
mod counts;
mod orphans;

use crate::client::Client;
use crate::error::{Error, Result};
use asking::Asking;
use orphans::Knowledge;
use penstock_layout::{FileId, Layout, ServerId};
use penstock_wire::message::{
    CountedBytes, ErrorKind, KnownStore, MAX_BATCH, ObjectFinding, ObjectProblem, REMOVED_PATH,
    StoreState, WrongCount,
};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Files or objects of one page.
const PAGE: u32 = 2048;
/// Entries of one page of a directory during the walk; one page is kept for each directory on the way down.
const WALK_PAGE: u32 = 256;
/// Most objects without a file that one run checks again; others wait for the next run.
const MAX_CANDIDATES: usize = 1 << 20;
/// A directory tree deeper than this is not walked further.
const MAX_DEPTH: usize = 4096;

/// This many orphans are removed without asking, however few objects there are.
pub const HANDFUL: u64 = 16;
/// More than one orphan in so many objects is more than a crash leaves.
pub const MANY: u64 = 100;

/// How to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// Remove orphans.
    pub repair: bool,
    /// With `repair`: also remove objects whose ids the metadata store never issued. Only for a store that is known to
    /// be the right one.
    pub free_unknown: bool,
    /// With `repair`: also remove more orphans than [`HANDFUL`] and one in [`MANY`] objects.
    pub free_many: bool,
    /// Accept truncated objects and those with damaged records as they are, so that their files can be used
    /// again. The missing bytes are lost for good.
    pub accept_damaged: bool,
    /// Time between finding an orphan and checking again.
    pub grace: Duration,
    /// Findings listed one by one; further ones are counted.
    pub max_findings: usize,
}

impl Default for CheckOptions {
    /// Report only, 1 s of grace, 1000 findings.
    fn default() -> CheckOptions {
        CheckOptions {
            repair: false,
            free_unknown: false,
            free_many: false,
            accept_damaged: false,
            grace: Duration::from_secs(1),
            max_findings: 1000,
        }
    }
}

/// What kind of thing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// An object without a file. Repair frees it.
    Orphan,
    /// An object without a file that may be newer than the metadata.
    UnknownObject,
    /// A store that is newer than the metadata, or another one than they know.
    OlderMetadata,
    /// An object on a server that its file's layout does not name.
    MisplacedObject,
    /// An object shorter than what was synced.
    TruncatedObject,
    /// An object whose record is damaged; its bytes may be whole.
    DamagedRecord,
    /// An object that cannot be opened.
    UnreadableObject,
    /// An object that its store held and that is gone, or that may have been in a store that was replaced.
    LostObject,
    /// A file in a data store that no store makes.
    ForeignFile,
    /// A file whose layout names a server that the deployment lacks.
    MissingServer,
    /// Metadata that does not agree with itself or cannot be read.
    DamagedMetadata,
    /// The metadata have a wrong count of files for a user. Repair corrects it.
    WrongCount,
    /// A data server, or the metadata server, has a wrong count of bytes for a user. Repair makes the data server count
    /// again.
    WrongBytes,
    /// A data server that cannot be asked.
    SilentServer,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// Its kind.
    pub kind: FindingKind,
    /// The data server concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerId>,
    /// The file or object concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<FileId>,
    /// The file's path, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The object's length in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether repair has fixed it.
    pub mended: bool,
    /// What, where, and what to do.
    pub message: String,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Nothing was found, or everything found was mended.
    pub clean: bool,
    /// All servers could be asked about everything.
    pub complete: bool,
    /// Files listed.
    pub files: u64,
    /// Directories walked.
    pub directories: u64,
    /// Objects listed, over all data servers.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Objects without a file.
    pub orphans: u64,
    /// Their bytes.
    pub orphan_bytes: u64,
    /// Users with limits on bytes.
    pub limited_users: u64,
    /// Of these on one data server each, those that were not compared because their bytes changed or were being
    /// counted.
    pub uncompared: u64,
    /// Orphans that were not removed because they are too many.
    pub held_back: u64,
    /// Orphans freed by this run.
    pub freed: u64,
    /// Their bytes.
    pub freed_bytes: u64,
    /// What was found, at most [`CheckOptions::max_findings`].
    pub findings: Vec<CheckFinding>,
    /// Findings beyond those listed.
    pub more_findings: u64,
}

/// Checks the deployment of `client`, who must be an administrator. `progress` is called after each page.
///
/// Errors are those that prevent a check: no right to it, or no metadata server. A data server that does not answer is
/// a finding.
pub fn check(
    client: &Client,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckReport),
) -> Result<CheckReport> {
    Checker::new(&Asking { client }, *options, progress).run()
}

/// Accepts lost and damaged objects of a file as they are; missing ones are made empty.
pub fn accept_lost(client: &Client, path: &str) -> Result<()> {
    let asking = Asking { client };
    let id = match asking.ids(vec![path.to_owned()])?.pop() {
        Some(id) => id?,
        None => return Err(Error::Invalid(format!("{path}: no answer"))),
    };
    for server in asking.servers() {
        match asking.accept_object(server, id) {
            // It never had any of the file.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

// ---- queries of the check ----

/// Ranges of ids given out so far, and the stores as the metadata know them.
type Given = (Vec<(FileId, FileId)>, Vec<KnownStore>);
type FilePage = (Vec<(FileId, String, Layout)>, bool);

/// The queries of the check to the servers.
trait Inventory {
    fn servers(&self) -> Vec<ServerId>;
    fn given_ids(&self) -> Result<Given>;
    fn files(&self, after: Option<FileId>, limit: u32) -> Result<FilePage>;
    fn objects(
        &self,
        server: ServerId,
        after: Option<FileId>,
        limit: u32,
    ) -> Result<(Vec<(FileId, u64)>, bool)>;
    fn verify(&self, server: ServerId) -> Result<(Vec<ObjectFinding>, bool)>;
    /// Files with lower ids may have lost bytes on that server. Its store, if the metadata should know it.
    fn store(&self, server: ServerId) -> Result<(u64, Option<StoreState>)>;
    /// The ids at these paths.
    fn ids(&self, paths: Vec<String>) -> Result<Vec<Result<FileId>>>;
    /// Names of a directory's entries, and which are directories.
    fn entries(
        &self,
        path: &str,
        after: Option<String>,
        limit: u32,
    ) -> Result<(Vec<(String, bool)>, bool)>;
    fn remove_object(&self, server: ServerId, object: FileId) -> Result<()>;
    fn accept_object(&self, server: ServerId, object: FileId) -> Result<()>;
    /// Counts the files of all users: numbers that were wrong, and are right from now on if `repair` says so.
    fn count_files(&self, repair: bool) -> Result<Vec<WrongCount>>;
    /// Users with limits on bytes, and how many bytes the metadata server has heard of.
    fn limited_users(&self) -> Result<BTreeMap<u32, u64>>;
    /// Who owns files, in turn; `None`: a file is not there. At most MAX_OWNERS of them.
    fn owners(&self, files: Vec<FileId>) -> Result<Vec<Option<u32>>>;
    /// The bytes of these users as a data server counts them, or begins to count `anew`.
    fn counted_bytes(&self, server: ServerId, anew: bool) -> Result<Vec<CountedBytes>>;
    fn pause(&self, time: Duration);
}

// ---- the check itself ----

/// The objects of one server, in order, page by page.
struct Objects {
    server: ServerId,
    page: std::vec::IntoIter<(FileId, u64)>,
    last: Option<FileId>,
    more: bool,
    /// Objects with lower ids that are not there may have been in a store that was replaced.
    lost_below: u64,
}

/// A directory on the way down the tree.
#[derive(Default)]
struct Level {
    path: String,
    /// Directories in it still to be walked, of the page read last; the next one at the end.
    below: Vec<String>,
    /// Last name of that page.
    after: Option<String>,
    /// There is no further page.
    read: bool,
}

/// An object that seems to have no file.
struct Candidate {
    server: ServerId,
    object: FileId,
}

struct Checker<'a, I> {
    inventory: &'a I,
    options: CheckOptions,
    progress: &'a mut dyn FnMut(&CheckReport),
    report: CheckReport,
    knowledge: Knowledge,
    candidates: Vec<Candidate>,
    /// Lost objects found so far by what their stores say.
    named_lost: HashSet<(ServerId, FileId)>,
    /// Findings not mended.
    open: u64,
}

impl<'a, I: Inventory> Checker<'a, I> {
    fn new(
        inventory: &'a I,
        options: CheckOptions,
        progress: &'a mut dyn FnMut(&CheckReport),
    ) -> Self {
        Checker {
            inventory,
            options,
            progress,
            report: CheckReport {
                complete: true,
                ..CheckReport::default()
            },
            knowledge: Knowledge::default(),
            candidates: Vec::new(),
            named_lost: HashSet::new(),
            open: 0,
        }
    }

    fn run(mut self) -> Result<CheckReport> {
        self.compare_stores()?;
        self.verify_stores()?;
        let whole = self.merge()?;
        self.walk()?;
        self.compare_counts()?;
        if whole {
            self.settle()?;
        } else if !self.candidates.is_empty() {
            log::warn!(
                "{} objects have no file among those that can be listed; none is called an orphan while metadata is damaged",
                self.candidates.len()
            );
        }
        // The space of orphans is free by now.
        self.compare_bytes()?;
        self.report.clean = self.open == 0 && self.report.complete;
        Ok(self.report)
    }

    fn find(&mut self, finding: CheckFinding) {
        self.open += u64::from(!finding.mended);
        if self.report.findings.len() < self.options.max_findings {
            self.report.findings.push(finding);
        } else {
            self.report.more_findings += 1;
        }
    }

    /// A data server failed: a finding, and the check goes on without it.
    fn silent(&mut self, server: ServerId, e: &Error) {
        self.report.complete = false;
        let known =
            |f: &CheckFinding| f.kind == FindingKind::SilentServer && f.server == Some(server);
        if self.report.findings.iter().any(known) {
            return;
        }
        self.find(CheckFinding {
            kind: FindingKind::SilentServer,
            server: Some(server),
            file: None,
            path: None,
            bytes: None,
            mended: false,
            message: format!("data server {} was left out: {e}", server.0),
        });
    }

    /// Metadata that cannot be read is a finding; anything else ends the check.
    fn damaged(&mut self, e: Error, path: Option<String>) -> Result<()> {
        if e.kind() != ErrorKind::Damaged {
            return Err(e);
        }
        self.report.complete = false;
        self.find(CheckFinding {
            kind: FindingKind::DamagedMetadata,
            server: None,
            file: None,
            path,
            bytes: None,
            mended: false,
            message: e.to_string(),
        });
        Ok(())
    }

    // -- objects, as their stores report them --

    fn verify_stores(&mut self) -> Result<()> {
        for server in self.inventory.servers() {
            let (findings, more) = match self.inventory.verify(server) {
                Ok(found) => found,
                Err(e) => {
                    self.silent(server, &e);
                    continue;
                }
            };
            if more {
                self.report.more_findings += 1;
                self.open += 1;
            }
            for found in findings {
                let path = match found.object {
                    Some(id) => self.path_of(id)?,
                    None => None,
                };
                let (kind, bytes) = match found.problem {
                    ObjectProblem::Truncated { actual, .. } => {
                        (FindingKind::TruncatedObject, Some(actual))
                    }
                    ObjectProblem::BadRecord => (FindingKind::DamagedRecord, None),
                    ObjectProblem::Missing => (FindingKind::LostObject, None),
                    ObjectProblem::Foreign => (FindingKind::ForeignFile, None),
                    ObjectProblem::Unreadable => (FindingKind::UnreadableObject, None),
                };
                if found.problem == ObjectProblem::Missing {
                    self.missing(server, &found, path)?;
                    continue;
                }
                let (mended, message) = self.accept(server, &found);
                self.find(CheckFinding {
                    kind,
                    server: Some(server),
                    file: found.object,
                    path,
                    bytes,
                    mended,
                    message,
                });
            }
            (self.progress)(&self.report);
        }
        Ok(())
    }

    /// An object that its store should have. Without a file nobody misses it: a crash took the note of its removal.
    fn missing(
        &mut self,
        server: ServerId,
        found: &ObjectFinding,
        path: Option<String>,
    ) -> Result<()> {
        let Some(id) = found.object else {
            return Ok(());
        };
        if path.is_none() && self.file(id).is_ok_and(|file| file.is_none()) {
            if self.options.repair
                && let Err(e) = self.inventory.remove_object(server, id)
            {
                self.silent(server, &e);
            }
            return Ok(());
        }
        self.named_lost.insert((server, id));
        let of = path.as_deref().unwrap_or("a file that cannot be listed");
        let message = format!(
            "{of} has lost bytes on data server {}: {}",
            server.0, found.message
        );
        self.lost(server, id, path, message);
        Ok(())
    }

    fn lost(&mut self, server: ServerId, file: FileId, path: Option<String>, message: String) {
        self.find(CheckFinding {
            kind: FindingKind::LostObject,
            server: Some(server),
            file: Some(file),
            path,
            bytes: None,
            mended: false,
            message,
        });
    }

    /// Accepts a damaged object if that is wanted; returns whether it did, and what to say.
    fn accept(&self, server: ServerId, found: &ObjectFinding) -> (bool, String) {
        let can = matches!(
            found.problem,
            ObjectProblem::Truncated { .. } | ObjectProblem::BadRecord
        );
        let message = &found.message;
        match found.object {
            Some(id) if can && self.options.accept_damaged => {
                match self.inventory.accept_object(server, id) {
                    Ok(()) => (true, format!("accepted as it is: {message}")),
                    Err(e) => (false, format!("{message}; it cannot be accepted: {e}")),
                }
            }
            _ => (false, message.clone()),
        }
    }

    fn file(&self, id: FileId) -> Result<Option<(String, Layout)>> {
        let after = id.0.checked_sub(1).map(FileId);
        let (page, _) = self.inventory.files(after, 1)?;
        let found = page.into_iter().find(|(found, ..)| *found == id);
        Ok(found.map(|(_, path, layout)| (path, layout)))
    }

    fn path_of(&self, id: FileId) -> Result<Option<String>> {
        match self.file(id) {
            Ok(found) => Ok(found.map(|(path, _)| path)),
            Err(e) if e.kind() == ErrorKind::Damaged => Ok(None),
            Err(e) => Err(e),
        }
    }

    // -- files against objects, by id --

    /// True when all files could be listed.
    fn merge(&mut self) -> Result<bool> {
        let mut servers = Vec::new();
        for server in self.inventory.servers() {
            let lost_below = match self.inventory.store(server) {
                Ok((lost_below, _)) => lost_below,
                Err(e) => {
                    self.silent(server, &e);
                    0
                }
            };
            servers.push(Objects {
                server,
                page: Vec::new().into_iter(),
                last: None,
                more: true,
                lost_below,
            });
        }
        let mut after = None;
        loop {
            let (files, more) = match self.inventory.files(after, PAGE) {
                Ok(page) => page,
                Err(e) => {
                    self.damaged(e, None)?;
                    return Ok(false);
                }
            };
            after = files.last().map(|(id, ..)| *id).or(after);
            let up_to = if more { after } else { None };
            self.check_files(&files)?;
            for objects in &mut servers {
                self.compare(objects, &files, up_to);
            }
            (self.progress)(&self.report);
            if !more || files.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Layouts name servers that exist; paths lead to the files.
    fn check_files(&mut self, files: &[(FileId, String, Layout)]) -> Result<()> {
        self.report.files += files.len() as u64;
        let servers = self.inventory.servers();
        for (id, path, layout) in files {
            for server in layout.servers.iter().filter(|s| !servers.contains(s)) {
                self.find(CheckFinding {
                    kind: FindingKind::MissingServer,
                    server: Some(*server),
                    file: Some(*id),
                    path: Some(path.clone()),
                    bytes: None,
                    mended: false,
                    message: format!(
                        "{path} has bytes on data server {}, which is not in the deployment file; put the server back or remove the file",
                        server.0
                    ),
                });
            }
        }
        for chunk in files.chunks(MAX_BATCH / 4) {
            let paths = chunk.iter().map(|(_, path, _)| path.clone()).collect();
            let found = self.inventory.ids(paths)?;
            for ((id, path, _), found) in chunk.iter().zip(found) {
                if !matches!(found, Ok(found) if found == *id) {
                    self.look_again(*id, path)?;
                }
            }
        }
        Ok(())
    }

    /// The path did not lead to the file. It may have been renamed or removed since it was listed.
    fn look_again(&mut self, id: FileId, listed: &str) -> Result<()> {
        const TRIES: usize = 3;
        if listed.starts_with(REMOVED_PATH) {
            return Ok(());
        }
        let mut why = String::new();
        for _ in 0..TRIES {
            let path = match self.file(id) {
                Ok(Some((path, _))) => path,
                Ok(None) => return Ok(()),
                Err(e) => return self.damaged(e, Some(listed.to_owned())),
            };
            match self.inventory.ids(vec![path])?.pop() {
                Some(Ok(found)) if found == id => return Ok(()),
                // Renaming can make paths that are too long to be named; the file is only hard to reach.
                Some(Err(e)) if e.kind() == ErrorKind::NameTooLong => return Ok(()),
                Some(Err(e)) => why = e.to_string(),
                Some(Ok(found)) => why = format!("file {} is there", found.0),
                None => why = "no answer".into(),
            }
        }
        self.find(CheckFinding {
            kind: FindingKind::DamagedMetadata,
            server: None,
            file: Some(id),
            path: Some(listed.to_owned()),
            bytes: None,
            mended: false,
            message: format!(
                "file {} is listed as {listed}, which does not lead to it ({why}); copy what can be read and restore the metadata store",
                id.0
            ),
        });
        Ok(())
    }

    /// The objects of one server up to and with `up_to` (all if `None`) against the files in that range.
    fn compare(
        &mut self,
        objects: &mut Objects,
        files: &[(FileId, String, Layout)],
        up_to: Option<FileId>,
    ) {
        let mut expected = files
            .iter()
            .take_while(|(id, ..)| id.0 < objects.lost_below)
            .filter(|(.., layout)| layout.servers.contains(&objects.server))
            .peekable();
        loop {
            let Some((object, bytes)) = objects.page.as_slice().first().copied() else {
                if !objects.more {
                    for (id, path, _) in expected {
                        self.replaced(objects.server, *id, path);
                    }
                    return;
                }
                match self.inventory.objects(objects.server, objects.last, PAGE) {
                    Ok((page, more)) => {
                        objects.more = more && !page.is_empty();
                        objects.last = page.last().map(|(id, _)| *id).or(objects.last);
                        objects.page = page.into_iter();
                    }
                    Err(e) => {
                        objects.more = false;
                        objects.lost_below = 0;
                        self.silent(objects.server, &e);
                        return;
                    }
                }
                continue;
            };
            while let Some((id, path, _)) = expected.next_if(|(id, ..)| *id < object) {
                self.replaced(objects.server, *id, path);
            }
            expected.next_if(|(id, ..)| *id == object);
            if up_to.is_some_and(|end| object > end) {
                return;
            }
            objects.page.next();
            self.report.objects += 1;
            self.report.object_bytes += bytes;
            match files.binary_search_by_key(&object, |(id, ..)| *id) {
                Ok(at) => {
                    let (_, path, layout) = &files[at];
                    if !layout.servers.contains(&objects.server) {
                        self.misplaced(objects.server, object, bytes, path);
                    }
                }
                Err(_) if self.candidates.len() < MAX_CANDIDATES => {
                    self.candidates.push(Candidate {
                        server: objects.server,
                        object,
                    });
                }
                Err(_) => {
                    self.report.complete = false;
                }
            }
        }
    }

    /// A file that may have had bytes in a store that was replaced.
    fn replaced(&mut self, server: ServerId, file: FileId, path: &str) {
        if self.named_lost.contains(&(server, file)) || path.starts_with(REMOVED_PATH) {
            return;
        }
        let message = format!(
            "{path} may have lost bytes with the earlier store of data server {}: rewrite it, remove it, or accept it as it is with `penstock check --accept-lost {path}`",
            server.0
        );
        self.lost(server, file, Some(path.to_owned()), message);
    }

    fn misplaced(&mut self, server: ServerId, object: FileId, bytes: u64, path: &str) {
        self.find(CheckFinding {
            kind: FindingKind::MisplacedObject,
            server: Some(server),
            file: Some(object),
            path: Some(path.to_owned()),
            bytes: Some(bytes),
            mended: false,
            message: format!(
                "data server {} has {bytes} bytes of {path}, whose layout does not name it; were stores or addresses of servers swapped?",
                server.0
            ),
        });
    }

    // -- names, by path --

    /// Reads all directories: each entry must name a node that agrees with it.
    fn walk(&mut self) -> Result<()> {
        let mut way = vec![Level::default()];
        self.report.directories += 1;
        while let Some(level) = way.last_mut() {
            if let Some(name) = level.below.pop() {
                let path = format!("{}/{name}", level.path);
                self.report.directories += 1;
                if way.len() < MAX_DEPTH {
                    way.push(Level {
                        path,
                        ..Level::default()
                    });
                } else {
                    self.report.complete = false;
                }
                continue;
            }
            if level.read {
                way.pop();
                continue;
            }
            let path = if level.path.is_empty() {
                "/"
            } else {
                &level.path
            };
            match self.inventory.entries(path, level.after.take(), WALK_PAGE) {
                Ok((entries, more)) => {
                    level.after = entries.last().map(|(name, _)| name.clone());
                    level.read = !more || level.after.is_none();
                    let below = entries
                        .into_iter()
                        .rev()
                        .filter(|(_, directory)| *directory);
                    level.below = below.map(|(name, _)| name).collect();
                }
                Err(e) => {
                    let path = path.to_owned();
                    way.pop();
                    match e.kind() {
                        // Removed, renamed or replaced since; or too deep to be named.
                        ErrorKind::NotFound | ErrorKind::NotDirectory | ErrorKind::NameTooLong => {}
                        _ => self.damaged(e, Some(path))?,
                    }
                }
            }
            (self.progress)(&self.report);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
