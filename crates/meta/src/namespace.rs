//! The rules of the name space: what each request does to names, nodes and permissions.
//!
//! A plain state machine over [`Names`], a narrow storage trait, with the time passed in. It has no clock, lock, thread
//! or I/O of its own. A request first reads and checks everything, then changes. Storage accepts changes without
//! failing, so that a request is carried out completely or not at all.
//!
//! Directories contain entries (name → id); an id identifies a node for ever. This file has the requests by path.
//! `resolve` resolves paths and names, `nodes` has the requests by id and the links.
use crate::access::{Caller, Want};
use crate::error::{Result, error, exists, is_directory, not_directory, not_found, shown};
use crate::names::{Names, Namespace};
use crate::node::Node;
use crate::path;
use crate::removal::{Gone, Removed};
use crate::resolve::Resolved;
use penstock_layout::{FileId, Layout};
use penstock_wire::message::{Attributes, CreateOptions, ErrorKind, NodeKind};

pub use penstock_wire::message::{Change, When};

const MODE: u32 = 0o7777;
/// Most entries or files of one page, whatever the caller asks for.
pub const MAX_PAGE: usize = 4096;
/// Mode bits that let others act as the owner or group.
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Options of an open.
#[derive(Debug, Clone)]
pub struct How<'a> {
    pub read: bool,
    pub write: bool,
    pub create: Option<&'a CreateOptions>,
    pub exclusive: bool,
}

/// One page of an ordered listing; `more`: items follow its last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub more: bool,
}

impl<N: Names> Namespace<N> {
    /// Attributes of the node that a path leads to; `follow`: a symbolic link at the end is followed.
    pub fn stat(&self, caller: &Caller, path: &str, follow: bool) -> Result<Attributes> {
        let (id, node) = self.find(caller, path, follow)?;
        Ok(node.attributes(id))
    }

    /// Opens or creates a file; returns true if it is new. An open for neither reading nor writing is a query (the
    /// file's length), like `stat`, and needs no permission on the file itself.
    pub fn open(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        path: &str,
        how: &How,
    ) -> Result<(Attributes, bool)> {
        if !how.read && !how.write && how.create.is_some() {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!(
                    "\"{}\" created for neither reading nor writing; ask for one of them",
                    shown(path)
                ),
            ));
        }
        // With O_EXCL, a symbolic link at the end is not followed.
        let follow = how.create.is_none() || !how.exclusive;
        let Some(place) = self.place(caller, path, follow, None)? else {
            return Err(is_directory(path));
        };
        self.open_at(now_ns, caller, &place, path, how)
    }

    pub(crate) fn open_at(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        place: &Resolved,
        path: &str,
        how: &How,
    ) -> Result<(Attributes, bool)> {
        match (&place.child, how.create) {
            (Some(_), Some(_)) if how.exclusive => Err(exists(path)),
            (Some((id, node)), _) => {
                match node.kind {
                    NodeKind::File => {}
                    NodeKind::Directory => return Err(is_directory(path)),
                    NodeKind::Symlink => {
                        return Err(error(
                            ErrorKind::Loop,
                            format!("\"{}\" is a symbolic link; open its target", shown(path)),
                        ));
                    }
                }
                if how.read {
                    caller.require(node, Want::Read, path)?;
                }
                if how.write {
                    caller.require(node, Want::Write, path)?;
                }
                Ok((node.attributes(*id), false))
            }
            (None, None) => Err(not_found(path)),
            (None, Some(options)) => {
                caller.require_addition(&place.directory_node, path)?;
                let layout = match &place.directory_node.striping {
                    Some(striping) => self.placement.layout(&striping.fill(options))?,
                    None => self.placement.layout(options)?,
                };
                let set = |node: &mut Node| node.layout = Some(layout);
                let attributes =
                    self.add(now_ns, caller, place, NodeKind::File, options.mode, set)?;
                Ok((attributes, true))
            }
        }
    }

    pub fn mkdir(&mut self, now_ns: i64, caller: &Caller, path: &str, mode: u32) -> Result<()> {
        let place = self.place(caller, path, false, None)?;
        let Some(place) = place.filter(|p| p.child.is_none()) else {
            return Err(exists(path));
        };
        caller.require_addition(&place.directory_node, path)?;
        self.add(now_ns, caller, &place, NodeKind::Directory, mode, |_| {})?;
        Ok(())
    }

    pub fn symlink(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        path: &str,
        target: &str,
    ) -> Result<()> {
        path::check_target(target)?;
        let place = self.place(caller, path, false, None)?;
        let Some(place) = place.filter(|p| p.child.is_none()) else {
            return Err(exists(path));
        };
        caller.require_addition(&place.directory_node, path)?;
        let set = |node: &mut Node| node.target = Some(target.to_owned());
        self.add(now_ns, caller, &place, NodeKind::Symlink, 0o777, set)?;
        Ok(())
    }

    pub fn unlink(&mut self, now_ns: i64, caller: &Caller, path: &str) -> Result<Option<Removed>> {
        let Some(place) = self.place(caller, path, false, None)? else {
            return Err(is_directory(path));
        };
        Ok(self
            .unlink_at(now_ns, caller, &place, path, false)?
            .removed())
    }

    pub(crate) fn unlink_at(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        place: &Resolved,
        path: &str,
        keep: bool,
    ) -> Result<Gone> {
        let (id, node) = place.file(path)?;
        caller.require_removal(&place.directory_node, node, path)?;
        self.names.remove_entry(place.directory, &place.name);
        let gone = self.drop_name(now_ns, (id, node), place.directory, &place.name, keep);
        self.touch(now_ns, place.directory, &place.directory_node, 0);
        Ok(gone)
    }

    pub fn rmdir(&mut self, now_ns: i64, caller: &Caller, path: &str) -> Result<()> {
        let Some(place) = self.place(caller, path, false, None)? else {
            return Err(error(
                ErrorKind::InvalidArgument,
                "the root directory cannot be removed; use `penstock down` and delete the stores",
            ));
        };
        self.rmdir_at(now_ns, caller, &place, path)
    }

    pub(crate) fn rmdir_at(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        place: &Resolved,
        path: &str,
    ) -> Result<()> {
        let Some((id, node)) = &place.child else {
            return Err(not_found(path));
        };
        if !node.is_directory() {
            return Err(not_directory(path));
        }
        caller.require_removal(&place.directory_node, node, path)?;
        self.require_empty(*id, path)?;
        self.names.remove_entry(place.directory, &place.name);
        self.names.remove_node(*id, node);
        self.touch(now_ns, place.directory, &place.directory_node, -1);
        Ok(())
    }

    /// Renames; an existing target file or empty directory is replaced. Returns a file that was replaced.
    pub fn rename(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        from: &str,
        to: &str,
    ) -> Result<Option<Removed>> {
        let root = || {
            error(
                ErrorKind::InvalidArgument,
                "the root directory cannot be renamed or replaced; name something in it",
            )
        };
        let source = self.place(caller, from, false, None)?.ok_or_else(root)?;
        let inside = match &source.child {
            None => return Err(not_found(from)),
            Some((id, node)) => node.is_directory().then_some(*id),
        };
        let target = self.place(caller, to, false, inside)?.ok_or_else(root)?;
        let gone = self.rename_at(now_ns, caller, &source, &target, (from, to), false)?;
        Ok(gone.removed())
    }

    pub(crate) fn rename_at(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        source: &Resolved,
        target: &Resolved,
        (from, to): (&str, &str),
        keep: bool,
    ) -> Result<Gone> {
        let Some((id, node)) = &source.child else {
            return Err(not_found(from));
        };
        let id = *id;
        if let Some((there, _)) = target.child
            && there == id
        {
            return Ok(Gone::Nothing);
        }
        caller.require_removal(&source.directory_node, node, from)?;
        caller.require_addition(&target.directory_node, to)?;
        let moved_directory = node.is_directory() && source.directory != target.directory;
        if moved_directory {
            // Its ".." entry changes.
            caller.require(node, Want::Write, from)?;
        }
        let mut gone = Gone::Nothing;
        let mut lost_directory = false;
        if let Some((old, old_node)) = &target.child {
            caller.require_removal(&target.directory_node, old_node, to)?;
            match (node.is_directory(), old_node.is_directory()) {
                (true, true) => self.require_empty(*old, to)?,
                (true, false) => return Err(not_directory(to)),
                (false, true) => return Err(is_directory(to)),
                (false, false) => {}
            }
            lost_directory = old_node.is_directory();
            if lost_directory {
                self.names.remove_node(*old, old_node);
            } else {
                let old = (*old, old_node);
                gone = self.drop_name(now_ns, old, target.directory, &target.name, keep);
            }
        }
        self.names.remove_entry(source.directory, &source.name);
        self.names.put_entry(target.directory, &target.name, id);
        let mut moved = (**node).clone();
        moved.ctime_ns = now_ns;
        if moved.parent == source.directory && moved.name == source.name {
            moved.parent = target.directory;
            moved.name = target.name.to_string();
        } else {
            for (parent, name) in &mut moved.links {
                if *parent == source.directory && *name == source.name {
                    *parent = target.directory;
                    *name = target.name.to_string();
                }
            }
        }
        self.names.put_node(id, moved);
        let lost = -i64::from(lost_directory);
        let moved = i64::from(moved_directory);
        if source.directory == target.directory {
            self.touch(now_ns, source.directory, &source.directory_node, lost);
        } else {
            self.touch(now_ns, source.directory, &source.directory_node, -moved);
            self.touch(
                now_ns,
                target.directory,
                &target.directory_node,
                moved + lost,
            );
        }
        Ok(gone)
    }

    /// A page of a directory by name. `room` bounds the encoded page in bytes.
    pub fn readdir(
        &self,
        caller: &Caller,
        path: &str,
        after: Option<&str>,
        limit: u32,
        room: usize,
    ) -> Result<Page<(String, Attributes)>> {
        let (id, node) = self.find(caller, path, true)?;
        self.page(caller, (id, &node), path, after, limit, room)
    }

    pub(crate) fn page(
        &self,
        caller: &Caller,
        (id, node): (FileId, &Node),
        path: &str,
        after: Option<&str>,
        limit: u32,
        room: usize,
    ) -> Result<Page<(String, Attributes)>> {
        if !node.is_directory() {
            return Err(not_directory(path));
        }
        caller.require(node, Want::Read, path)?;
        let limit = (limit as usize).clamp(1, MAX_PAGE);
        let entries = self.names.entries(id, after, limit + 1)?;
        let mut page = Page {
            more: entries.len() > limit,
            items: Vec::with_capacity(entries.len().min(limit)),
        };
        let mut used = 0;
        for (name, child) in entries.into_iter().take(limit) {
            let attributes = self.child(id, &name, child)?.attributes(child);
            used += name.len()
                + attributes.target.as_ref().map_or(0, String::len)
                + attributes_size(attributes.layout.as_ref());
            if used > room && !page.items.is_empty() {
                page.more = true;
                break;
            }
            page.items.push((name, attributes));
        }
        Ok(page)
    }

    pub fn set_attributes(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        path: &str,
        change: &Change,
    ) -> Result<Attributes> {
        let (id, node) = self.find(caller, path, true)?;
        self.change(now_ns, caller, (id, &node), path, change)
    }

    pub(crate) fn change(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        (id, node): (FileId, &Node),
        path: &str,
        change: &Change,
    ) -> Result<Attributes> {
        let times = [change.mtime, change.atime];
        let only_now = change.mode.is_none() && change.uid.is_none() && change.gid.is_none();
        if only_now && times.iter().flatten().all(|t| *t == When::Now) {
            // A user who may write may set the time to now.
            if *change != Change::default() && !caller.owns(node) {
                caller.require(node, Want::Write, path)?;
            }
        } else {
            caller.require_owner(node, path)?;
        }
        let foreign_uid = change.uid.is_some_and(|uid| uid != node.uid);
        let foreign_gid = change
            .gid
            .is_some_and(|gid| gid != node.gid && !caller.is_in(gid));
        if (foreign_uid || foreign_gid) && !caller.privileged {
            return Err(error(
                ErrorKind::NotOwner,
                format!(
                    "user {} may not change the owner of \"{}\"; ask root",
                    caller.uid,
                    shown(path)
                ),
            ));
        }
        if let Some(uid) = change.uid.filter(|_| foreign_uid) {
            self.names.room(uid, now_ns)?;
        }
        let mut new = node.clone();
        new.ctime_ns = now_ns;
        new.uid = change.uid.unwrap_or(node.uid);
        new.given = node.given || (new.uid != node.uid && node.uid != 0);
        new.gid = change.gid.unwrap_or(node.gid);
        if let Some(mode) = change.mode {
            new.mode = mode & MODE;
            if !caller.privileged && !caller.is_in(new.gid) && !node.is_directory() {
                new.mode &= !SET_GID;
            }
        } else if (change.uid.is_some() || change.gid.is_some()) && !node.is_directory() {
            // Set-user-ID is cleared when the owner changes.
            new.mode &= !SET_UID;
            if new.mode & GROUP_EXECUTE != 0 {
                new.mode &= !SET_GID;
            }
        }
        let at = |when: Option<When>, before: i64| match when {
            None => before,
            Some(When::Now) => now_ns,
            Some(When::At(ns)) => ns,
        };
        new.mtime_ns = at(change.mtime, node.mtime_ns);
        new.atime_ns = at(change.atime, node.atime_ns);
        if change.mtime.is_some() {
            new.mtime_set_ns = now_ns;
        }
        let attributes = new.attributes(id);
        self.names.put_node(id, new);
        if foreign_uid {
            self.names
                .charge(id, Some(node.uid), attributes.uid, now_ns);
        }
        Ok(attributes)
    }

    /// Attributes of a file by id, for a new capability.
    pub fn file(&self, id: FileId) -> Result<Attributes> {
        match self.names.node(id)? {
            Some(node) if node.layout.is_some() => Ok(node.attributes(id)),
            _ => Err(error(
                ErrorKind::NotFound,
                format!(
                    "file {} is no longer in the name space; it was removed",
                    id.0
                ),
            )),
        }
    }

    /// A page of all files by id, with their paths. `room` bounds the encoded page in bytes.
    pub fn files(
        &self,
        after: Option<FileId>,
        limit: u32,
        room: usize,
    ) -> Result<Page<(FileId, String, Layout)>> {
        let limit = (limit as usize).clamp(1, MAX_PAGE);
        let mut page = Page {
            items: Vec::new(),
            more: false,
        };
        let mut used = 0;
        let mut after = after;
        loop {
            let nodes = self.names.nodes(after, limit)?;
            let last = nodes.len() < limit;
            for (id, node) in nodes {
                after = Some(id);
                let Some(layout) = &node.layout else { continue };
                let path = self.path_of(&node)?;
                used += path.len() + attributes_size(Some(layout));
                if page.items.len() == limit || (used > room && !page.items.is_empty()) {
                    page.more = true;
                    return Ok(page);
                }
                page.items.push((id, path, layout.clone()));
            }
            if last {
                return Ok(page);
            }
        }
    }

    /// The root directory of a new store.
    pub fn root(now_ns: i64, uid: u32, gid: u32) -> Node {
        Node {
            // Anybody with the client key may make files; nobody may remove those of others.
            mode: 0o1777,
            uid,
            gid,
            ctime_ns: now_ns,
            mtime_ns: now_ns,
            atime_ns: now_ns,
            ..Node::new(NodeKind::Directory)
        }
    }

    fn require_empty(&self, id: FileId, path: &str) -> Result<()> {
        if self.names.entries(id, None, 1)?.is_empty() {
            return Ok(());
        }
        Err(error(
            ErrorKind::NotEmpty,
            format!(
                "directory \"{}\" is not empty; remove what is in it first",
                shown(path)
            ),
        ))
    }

    /// Adds a new node at a place; `set` completes it.
    pub(crate) fn add(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        place: &Resolved,
        kind: NodeKind,
        mode: u32,
        set: impl FnOnce(&mut Node),
    ) -> Result<Attributes> {
        let directory = kind == NodeKind::Directory;
        let (gid, inherited) = caller.group_in(&place.directory_node, directory);
        let mut mode = mode & MODE | inherited;
        if !directory && !caller.privileged && !caller.is_in(gid) && mode & GROUP_EXECUTE != 0 {
            mode &= !SET_GID;
        }
        self.names.room(caller.uid, now_ns)?;
        let id = self.names.new_id(kind)?;
        let mut node = Node {
            mode,
            uid: caller.uid,
            gid,
            ctime_ns: now_ns,
            mtime_ns: now_ns,
            atime_ns: now_ns,
            parent: place.directory,
            name: place.name.to_string(),
            ..Node::new(kind)
        };
        if directory {
            node.striping.clone_from(&place.directory_node.striping);
        }
        set(&mut node);
        let attributes = node.attributes(id);
        self.names.put_node(id, node);
        self.names.charge(id, None, caller.uid, now_ns);
        self.names.put_entry(place.directory, &place.name, id);
        self.touch(
            now_ns,
            place.directory,
            &place.directory_node,
            i64::from(directory),
        );
        Ok(attributes)
    }

    /// Updates a directory after a change of its entries; `links` is the change in its number of subdirectories.
    pub(crate) fn touch(&mut self, now_ns: i64, id: FileId, directory: &Node, links: i64) {
        self.names.put_node(
            id,
            Node {
                mtime_ns: now_ns,
                mtime_set_ns: now_ns,
                ctime_ns: now_ns,
                nlink: (i64::from(directory.nlink) + links).clamp(2, i64::from(u32::MAX)) as u32,
                ..directory.clone()
            },
        );
    }
}

/// Upper bound of the encoded size of attributes, and of a capability, with this layout.
pub fn attributes_size(layout: Option<&Layout>) -> usize {
    128 + layout.map_or(0, |l| 5 * l.servers.len())
}

#[cfg(test)]
#[path = "namespace_tests.rs"]
mod tests;
