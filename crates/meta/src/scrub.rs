//! Scrubs the stored names for damage: before they are served, or in the background.
//!
//! Problem: with ten million names it takes minutes to read all of them, during which the server would serve nobody.
//! Idea: small stores are read completely at the start ([`all`]). In larger ones a thread checks a few hundred names at
//! a time, by id and then by directory, and pauses. Each time it uses the newest snapshot. Findings go to the log and
//! to `penstock status`; `penstock check` reaches the same names independently. A request that uses a damaged record
//! earlier gets an error, because records have checksums. When it pays: at each start with more names than can be read
//! at once. Parameters: [`SLICE`], [`PAUSE`], [`TOLD`].
use crate::error::{Result, damaged};
use crate::node::{Node, REMOVED, ROOT};
use crate::pending::EntryKey;
use crate::snapshot::{Snapshot, unpanicked};
use penstock_layout::FileId;
use penstock_wire::message::{ErrorKind, NodeKind};
use std::ops::Bound;
use std::time::Duration;

/// Names checked in one go, under one snapshot.
const SLICE: usize = 256;
/// Pause between two slices, which leaves disk and cache to requests.
pub const PAUSE: Duration = Duration::from_millis(2);
/// Findings that are logged one by one.
const TOLD: usize = 4;
/// Most characters of each.
const MESSAGE: usize = 200;

/// Progress and findings of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Whether it is complete.
    pub through: bool,
    /// Records and entries checked.
    pub seen: u64,
    /// Damaged ones among them.
    pub damaged: u64,
    /// The first of them.
    pub first: Vec<String>,
}

impl Scrubbed {
    /// A scrub that was complete before the service began.
    pub fn before() -> Scrubbed {
        Scrubbed {
            through: true,
            ..Scrubbed::default()
        }
    }

    fn found(&mut self, what: &str) {
        self.damaged += 1;
        if self.first.len() < TOLD {
            log::error!("the metadata store is damaged: {what}; run `penstock check`");
            self.first.push(what.chars().take(MESSAGE).collect());
        }
    }
}

/// Where the scrub continues.
enum Cursor {
    Nodes(Bound<u64>),
    Entries(Bound<Vec<u8>>),
    End,
}

/// A scrub in progress.
pub struct Scrub {
    place: Cursor,
    pub looked: Scrubbed,
}

impl Default for Scrub {
    fn default() -> Scrub {
        Scrub {
            place: Cursor::Nodes(Bound::Unbounded),
            looked: Scrubbed::default(),
        }
    }
}

impl Scrub {
    /// Checks the next few names. An error: they cannot be read.
    pub fn go_on(&mut self, snapshot: &Snapshot) -> Result<()> {
        let place = std::mem::replace(&mut self.place, Cursor::End);
        let looked = &mut self.looked;
        // In a damaged tree the database's code may panic, and nothing behind can be reached.
        let next = unpanicked(|| match &place {
            Cursor::Nodes(start) => some_nodes(snapshot, *start, looked),
            Cursor::Entries(start) => some_entries(snapshot, start, looked),
            Cursor::End => Ok(None),
        });
        let next = next.unwrap_or_else(|why| Err(damaged(why)));
        self.place = match (next, place) {
            (Ok(Some(place)), _) => place,
            // A disk that does not answer is no damage: the same names are checked again.
            (Err(e), place) if e.kind == ErrorKind::Io => {
                self.place = place;
                return Err(e);
            }
            (Ok(None), Cursor::Nodes(_)) => Cursor::Entries(Bound::Unbounded),
            (Ok(None), _) => Cursor::End,
            (Err(e), Cursor::Nodes(_)) => {
                self.looked.found(&e.message);
                Cursor::Entries(Bound::Unbounded)
            }
            (Err(e), _) => {
                self.looked.found(&e.message);
                Cursor::End
            }
        };
        self.looked.through = matches!(self.place, Cursor::End);
        Ok(())
    }
}

fn some_nodes(
    snapshot: &Snapshot,
    start: Bound<u64>,
    looked: &mut Scrubbed,
) -> Result<Option<Cursor>> {
    let mut last = None;
    for item in snapshot.records(start)?.take(SLICE) {
        let (id, node) = item?;
        looked.seen += 1;
        match node.and_then(|node| named(snapshot, id, &node)) {
            Ok(_) => {}
            Err(e) if e.kind == ErrorKind::Io => return Err(e),
            Err(e) => looked.found(&e.message),
        }
        last = Some(id);
    }
    Ok(last.map(|id| Cursor::Nodes(Bound::Excluded(id))))
}

fn some_entries(
    snapshot: &Snapshot,
    start: &Bound<Vec<u8>>,
    looked: &mut Scrubbed,
) -> Result<Option<Cursor>> {
    let range = (start.as_ref().map(Vec::as_slice), Bound::Unbounded);
    let mut last = None;
    for item in snapshot.entries(range)?.take(SLICE) {
        let (key, id) = item?;
        looked.seen += 1;
        match leads_to(snapshot, &key, id) {
            Ok(()) => {}
            Err(e) if e.kind == ErrorKind::Io => return Err(e),
            Err(e) => looked.found(&e.message),
        }
        last = Some(key);
    }
    Ok(last.map(|key| Cursor::Entries(Bound::Excluded(key))))
}

/// Checks that an entry leads to a node with this name.
fn leads_to(snapshot: &Snapshot, key: &[u8], id: u64) -> Result<()> {
    let (parent, name) = key.split_first_chunk().unwrap_or((&[0; 8], key));
    let parent = FileId(u64::from_be_bytes(*parent));
    let name = String::from_utf8_lossy(name);
    match snapshot.node(FileId(id)) {
        Ok(Some(node)) if node.is_named(parent, &name) => Ok(()),
        Ok(_) => Err(damaged(format!(
            "the entry \"{name}\" of directory {} leads to nothing of that name",
            parent.0
        ))),
        Err(e) if e.kind == ErrorKind::Io => Err(e),
        // The node's own record reports this.
        Err(_) => Ok(()),
    }
}

/// Checks that all names of a node have their entries in directories. Returns their number.
fn named(snapshot: &Snapshot, id: u64, node: &Node) -> Result<u64> {
    if id == ROOT.0 {
        return Ok(0);
    }
    let mut names = 0;
    for (parent, name) in node.names() {
        names += 1;
        let key = EntryKey::new(parent, name);
        if snapshot.entry(key.as_slice())? != Some(id) {
            return Err(damaged(format!("\"{name}\" has lost its entry")));
        }
        if parent != REMOVED && !snapshot.node(parent)?.is_some_and(|d| d.is_directory()) {
            return Err(damaged(format!("\"{name}\" has lost its directory")));
        }
    }
    Ok(names)
}

/// Reads everything and checks that nodes, entries and totals agree.
pub fn all(snapshot: &Snapshot) -> Result<()> {
    let (mut files, mut directories, mut names) = (0, 0, 0u64);
    for item in snapshot.records(Bound::Unbounded)? {
        let (id, node) = item?;
        let node = node?;
        match node.kind {
            NodeKind::Directory => directories += 1,
            NodeKind::File | NodeKind::Symlink => files += 1,
        }
        names += named(snapshot, id, &node)?;
    }
    let totals = snapshot.totals();
    if (files, directories) != (totals.files, totals.directories) {
        return Err(damaged(format!(
            "{files} files and {directories} directories are left of {} and {}",
            totals.files, totals.directories
        )));
    }
    let mut entries = 0;
    for item in snapshot.entries((Bound::Unbounded, Bound::Unbounded))? {
        item?;
        entries += 1;
    }
    let stored = snapshot.entries_stored()?;
    if entries != names || stored != entries {
        return Err(damaged(format!(
            "{entries} entries where {files} files and {directories} directories have {names} names"
        )));
    }
    Ok(())
}
