//! The names as requests see them, in three layers: collected changes, changes being committed, and the stored
//! snapshot. Reads see every acknowledged change at once, and no request waits for the disk.
use crate::error::{Result, damaged, error};
use crate::journal::Changes;
use crate::names::Names;
use crate::node::{Node, ROOT};
use crate::pending::{EntryKey, Pending, Totals, entries_of, over};
use crate::quota::{Accounts, Counted};
use crate::recent::Recent;
use crate::slots::Note;
use crate::snapshot::Snapshot;
use penstock_layout::FileId;
use penstock_wire::message::{ErrorKind, NodeKind};
use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

/// Ids reserved at a time; the next reservation is made when half of them are used.
pub const ID_BLOCK: u64 = 1 << 20;

/// Nodes, and as many entries, cached decoded in memory (about 300 B each).
const CACHED: usize = 1 << 16;

pub struct Layers {
    collecting: Pending,
    /// Keys that were changed since [`Layers::take_changes`].
    changed_nodes: Vec<u64>,
    changed_entries: Vec<Box<[u8]>>,
    notes: Vec<Note>,
    accounts: Accounts,
    /// Set while a commit is in progress, or has failed and will be retried.
    committing: Option<Arc<Pending>>,
    /// `None` only while the store is being reopened after an error.
    stored: Option<Arc<Snapshot>>,
    cache: RefCell<Cache>,
    next_id: u64,
    /// Ids below this are reserved on stable storage.
    durable_ids: u64,
}

/// Recently used nodes and entries.
struct Cache {
    nodes: Recent<u64, Arc<Node>>,
    entries: Recent<Box<[u8]>, u64>,
}

impl Layers {
    /// Layers over the state found at the start, at `now_ns` since the epoch.
    ///
    /// Ids continue after the last reservation, or at `now_ns` if that is higher. Files are never made faster than one
    /// per nanosecond, so ids stay unique even if an old copy of the store is restored. The reservation made here must
    /// be committed before the first id is used.
    pub fn new(stored: Snapshot, now_ns: i64) -> Result<Layers> {
        let durable_ids = stored.totals().ids_reserved;
        let now = u64::try_from(now_ns).unwrap_or(0);
        let next_id = durable_ids.max(now).max(ROOT.0 + 1);
        let totals = Totals {
            ids_from: next_id,
            ids_reserved: next_id + ID_BLOCK,
            ..stored.totals()
        };
        Ok(Layers {
            accounts: stored.accounts()?,
            collecting: Pending::after(totals),
            changed_nodes: Vec::new(),
            changed_entries: Vec::new(),
            notes: Vec::new(),
            committing: None,
            stored: Some(stored.into()),
            cache: RefCell::new(Cache {
                nodes: Recent::new(CACHED),
                entries: Recent::new(CACHED),
            }),
            next_id,
            durable_ids,
        })
    }

    pub fn totals(&self) -> Totals {
        self.collecting.totals
    }

    /// Changes collected since the last [`Layers::freeze`].
    pub fn collected(&self) -> usize {
        self.collecting.len() + self.accounts.changes()
    }

    /// Restores changes that were acknowledged but not committed before the server died. Call it before the first
    /// commit.
    pub fn replay(&mut self, changes: Vec<Changes>, now_ms: u64) -> Result<()> {
        for change in changes {
            let ids: Vec<u64> = change.nodes.iter().map(|(id, _)| *id).collect();
            let before = self.owners(&ids)?;
            change.apply(&mut self.collecting)?;
            let after = self.owners(&ids)?;
            for (id, (before, after)) in ids.into_iter().zip(before.into_iter().zip(after)) {
                if before == after {
                    continue;
                }
                if let Some(uid) = before {
                    self.accounts.discharge(FileId(id), uid);
                }
                if let Some(uid) = after {
                    self.accounts.charge(FileId(id), uid, now_ms);
                }
            }
        }
        Ok(())
    }

    /// Owners of existing nodes, without the cache.
    fn owners(&self, ids: &[u64]) -> Result<Vec<Option<u32>>> {
        let owner = |id: &u64| match self.collecting.nodes.get(id) {
            Some(node) => Ok(node.as_ref().map(|node| node.uid)),
            None => Ok(self.stored()?.node(FileId(*id))?.map(|node| node.uid)),
        };
        ids.iter().map(owner).collect()
    }

    /// Accounts of users: files, quotas.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub fn accounts_mut(&mut self) -> &mut Accounts {
        &mut self.accounts
    }

    /// Continues a count of all nodes by `slice` of them. `None`: it is not complete.
    pub fn count_files(
        &mut self,
        number: u64,
        slice: usize,
        repair: bool,
        now_ms: u64,
    ) -> Result<Option<Counted>> {
        let Some(passed) = self.accounts.count_passed(number) else {
            return Err(error(
                ErrorKind::Busy,
                "another count of all files has replaced this one; try again",
            ));
        };
        let page = self.nodes(Some(passed), slice)?;
        let last = page.len() < slice;
        self.accounts
            .count(page.into_iter().map(|(id, node)| (id, node.uid)));
        Ok(last.then(|| self.accounts.end_count(repair, now_ms)))
    }

    /// Whether anything was changed since [`Layers::take_changes`].
    pub fn changed(&self) -> bool {
        !self.changed_nodes.is_empty() || !self.changed_entries.is_empty()
    }

    /// Adds a change of sessions, to be stored together with its changes of names.
    pub fn note(&mut self, note: Note) {
        self.collecting.note(note.clone());
        self.notes.push(note);
    }

    /// Changes since the last call.
    pub fn take_changes(&mut self) -> Result<Changes> {
        let totals = self.collecting.totals;
        let mut changes = Changes {
            files: totals.files,
            directories: totals.directories,
            notes: std::mem::take(&mut self.notes),
            ..Changes::default()
        };
        for id in self.changed_nodes.drain(..) {
            let stored = match self.collecting.nodes.get(&id) {
                Some(Some(node)) => {
                    let mut stored = Vec::new();
                    node.encode(FileId(id), &mut stored)?;
                    Some(stored)
                }
                _ => None,
            };
            changes.nodes.push((id, stored));
        }
        for key in self.changed_entries.drain(..) {
            let id = self.collecting.entries.get(&key).copied().flatten();
            changes.entries.push((key, id));
        }
        Ok(changes)
    }

    /// All changes collected since the last [`Layers::freeze`], as one.
    pub fn all_collected(&self) -> Result<Changes> {
        let Pending {
            nodes,
            entries,
            sessions,
            slots,
            totals,
            users: _,
        } = &self.collecting;
        let mut changes = Changes {
            entries: entries.iter().map(|(key, id)| (key.clone(), *id)).collect(),
            files: totals.files,
            directories: totals.directories,
            ..Changes::default()
        };
        for (id, node) in nodes {
            let mut stored = None;
            if let Some(node) = node {
                node.encode(FileId(*id), stored.insert(Vec::new()))?;
            }
            changes.nodes.push((*id, stored));
        }
        changes
            .notes
            .extend(sessions.iter().map(|(id, owner)| match owner {
                Some(owner) => Note::Opened(*id, *owner),
                None => Note::Dropped(*id),
            }));
        let answered = slots.iter();
        changes.notes.extend(
            answered.map(|(&(id, slot), answered)| Note::Answered(id, slot, answered.clone())),
        );
        Ok(changes)
    }

    /// What to commit next; the same result until [`Layers::committed`].
    pub fn freeze(&mut self) -> Arc<Pending> {
        if let Some(committing) = &self.committing {
            return committing.clone();
        }
        let next = Pending::after(self.collecting.totals);
        self.collecting.users = self.accounts.take_changed();
        let frozen = Arc::new(std::mem::replace(&mut self.collecting, next));
        self.committing = Some(frozen.clone());
        frozen
    }

    /// The frozen changes are in `stored` now.
    pub fn committed(&mut self, stored: Snapshot) {
        self.durable_ids = stored.totals().ids_reserved;
        self.stored = Some(stored.into());
        self.committing = None;
    }

    /// Drops the snapshot, so that the store can be reopened.
    pub fn release(&mut self) {
        self.stored = None;
    }

    /// The store was reopened; changes that could not be committed stay pending.
    pub fn reopened(&mut self, stored: Snapshot) {
        self.stored = Some(stored.into());
    }

    /// The names as of the last commit; drop it before the store is reopened.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.stored.clone()
    }

    fn stored(&self) -> Result<&Snapshot> {
        self.stored.as_deref().ok_or_else(|| {
            error(
                ErrorKind::Io,
                "the metadata store is being opened again after an error; try again",
            )
        })
    }

    /// Greater than all ids used so far.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Makes all future ids greater; returns whether that changes anything. The change must be committed before the
    /// next id is used.
    pub fn skip_ids(&mut self, highest: u64) -> bool {
        let skips = self.next_id <= highest;
        if skips {
            // A separate range: the ids in between were not used.
            self.next_id = highest + 1;
            self.collecting.totals.ids_from = self.next_id;
            self.collecting.totals.ids_reserved = self.next_id + ID_BLOCK;
        }
        skips
    }

    /// Commits so far, over all incarnations.
    pub fn commits(&self) -> Result<u64> {
        Ok(self.stored()?.commits())
    }

    /// All ranges of ids ever used, ascending.
    pub fn given_ids(&self) -> Result<Vec<(FileId, FileId)>> {
        let totals = self.collecting.totals;
        let now = (totals.ids_from, totals.ids_reserved);
        let past = self.stored()?.past_ids().iter().copied();
        Ok(past
            .chain(std::iter::once(now))
            .map(|(first, end)| (FileId(first), FileId(end)))
            .collect())
    }

    /// Changes not yet stored, newest first.
    fn pending(&self) -> impl Iterator<Item = &Pending> {
        std::iter::once(&self.collecting).chain(self.committing.as_deref())
    }

    fn total_of(&mut self, kind: NodeKind) -> &mut u64 {
        match kind {
            NodeKind::Directory => &mut self.collecting.totals.directories,
            NodeKind::File | NodeKind::Symlink => &mut self.collecting.totals.files,
        }
    }
}

impl Names for Layers {
    fn node(&self, id: FileId) -> Result<Option<Arc<Node>>> {
        let mut cache = self.cache.borrow_mut();
        if let Some(node) = cache.nodes.get(&id.0) {
            return Ok(Some(node));
        }
        if let Some(node) = self.pending().find_map(|p| p.nodes.get(&id.0)) {
            return Ok(node.clone());
        }
        let node = self.stored()?.node(id)?.map(Arc::new);
        if let Some(node) = &node {
            cache.nodes.insert(id.0, node.clone());
        }
        Ok(node)
    }

    fn entry(&self, parent: FileId, name: &str) -> Result<Option<FileId>> {
        let key = EntryKey::new(parent, name);
        let key = key.as_slice();
        let mut cache = self.cache.borrow_mut();
        if let Some(id) = cache.entries.get(key) {
            return Ok(Some(FileId(id)));
        }
        if let Some(id) = self.pending().find_map(|p| p.entries.get(key)) {
            return Ok(id.map(FileId));
        }
        let id = self.stored()?.entry(key)?;
        if let Some(id) = id {
            cache.entries.insert(key.into(), id);
        }
        Ok(id.map(FileId))
    }

    fn entries(
        &self,
        parent: FileId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, FileId)>> {
        let (start, end) = entries_of(parent, after);
        let range = (
            start.as_ref().map(|k| k.as_slice()),
            end.as_ref().map(|k| k.as_slice()),
        );
        let none = Pending::default();
        let committing = self.committing.as_deref().unwrap_or(&none);
        let mut failure = None;
        let stored = until_error(self.stored()?.entries(range)?, &mut failure);
        let merged = over(
            self.collecting.entries(range),
            over(committing.entries(range), stored),
        );
        let page = merged
            .filter_map(|(key, id)| Some((key, FileId(id?))))
            .map(|(key, id)| match std::str::from_utf8(&key[8..]) {
                Ok(name) => Ok((name.to_owned(), id)),
                Err(_) => Err(damaged(format!(
                    "a name in directory {} is not text",
                    parent.0
                ))),
            })
            .take(limit)
            .collect();
        failure.map_or(page, Err)
    }

    fn nodes(&self, after: Option<FileId>, limit: usize) -> Result<Vec<(FileId, Arc<Node>)>> {
        let start = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.0));
        let none = Pending::default();
        let committing = self.committing.as_deref().unwrap_or(&none);
        let mut failure = None;
        let stored = until_error(self.stored()?.nodes(start)?, &mut failure);
        let merged = over(
            self.collecting.nodes(start),
            over(committing.nodes(start), stored),
        );
        let page = merged
            .filter_map(|(id, node)| Some((FileId(id), node?)))
            .take(limit)
            .collect();
        failure.map_or(Ok(page), Err)
    }

    fn put_node(&mut self, id: FileId, node: Node) {
        let node = Arc::new(node);
        self.cache.get_mut().nodes.insert(id.0, node.clone());
        self.collecting.nodes.insert(id.0, Some(node));
        self.changed_nodes.push(id.0);
    }

    fn remove_node(&mut self, id: FileId, node: &Node) {
        self.cache.get_mut().nodes.remove(&id.0);
        self.collecting.nodes.insert(id.0, None);
        self.changed_nodes.push(id.0);
        let total = self.total_of(node.kind);
        *total = total.saturating_sub(1);
        self.accounts.discharge(id, node.uid);
    }

    fn put_entry(&mut self, parent: FileId, name: &str, id: FileId) {
        let key = EntryKey::new(parent, name);
        let key: Box<[u8]> = key.as_slice().into();
        self.cache.get_mut().entries.insert(key.clone(), id.0);
        self.changed_entries.push(key.clone());
        self.collecting.entries.insert(key, Some(id.0));
    }

    fn remove_entry(&mut self, parent: FileId, name: &str) {
        let key = EntryKey::new(parent, name);
        self.cache.get_mut().entries.remove(key.as_slice());
        self.collecting.entries.insert(key.as_slice().into(), None);
        self.changed_entries.push(key.as_slice().into());
    }

    fn new_id(&mut self, kind: NodeKind) -> Result<FileId> {
        let totals = &mut self.collecting.totals;
        if self.next_id + ID_BLOCK / 2 >= totals.ids_reserved {
            totals.ids_reserved += ID_BLOCK;
        }
        if self.next_id >= self.durable_ids {
            return Err(error(
                ErrorKind::Busy,
                "the next block of file ids is not on stable storage yet; try again",
            ));
        }
        let id = FileId(self.next_id);
        self.next_id += 1;
        *self.total_of(kind) += 1;
        Ok(id)
    }

    fn room(&self, uid: u32, now_ns: i64) -> Result<()> {
        self.accounts.room(uid, milliseconds(now_ns))
    }

    fn charge(&mut self, id: FileId, from: Option<u32>, to: u32, now_ns: i64) {
        if let Some(uid) = from {
            self.accounts.discharge(id, uid);
            if uid != to {
                self.accounts.bytes_mut().given(id, uid, to);
            }
        }
        self.accounts.charge(id, to, milliseconds(now_ns));
    }

    fn may_be_durable(&self, id: FileId) -> bool {
        self.committing
            .as_ref()
            .is_some_and(|p| p.nodes.contains_key(&id.0))
            || !matches!(self.stored().and_then(|s| s.node(id)), Ok(None))
    }
}

/// A time since the epoch.
pub fn milliseconds(ns: i64) -> u64 {
    u64::try_from(ns / 1_000_000).unwrap_or(0)
}

/// Iterates over the stored layer until an error, which goes to `failure`.
fn until_error<'a, K: 'a, V: 'a>(
    mut stored: impl Iterator<Item = Result<(K, V)>> + 'a,
    failure: &'a mut Option<penstock_wire::message::WireError>,
) -> impl Iterator<Item = (K, Option<V>)> + 'a {
    std::iter::from_fn(move || match stored.next()? {
        Ok((key, value)) => Some((key, Some(value))),
        Err(e) => {
            *failure = Some(e);
            None
        }
    })
    .fuse()
}
