//! The protocol logic of the name space: what each request does to names, nodes and permissions.
//!
//! A plain state machine over [`Names`], a narrow storage trait, with the time passed in: no clock, lock,
//! thread or I/O of its own. A request first reads all it needs and checks it, then changes; storage takes
//! changes without failing, so that a request happens as a whole or not at all.
//!
//! Rules: directories hold entries (name → id), ids name nodes for ever. There are no hard links, and
//! symbolic links are not followed. Paths are resolved from the root with the search permission of each
//! directory on the way.
use crate::access::{Caller, Want};
use crate::error::{Result, damaged, error, shown};
use crate::node::{Node, ROOT};
use crate::path;
use crate::placement::Placement;
use penstock_layout::{FileId, Layout};
use penstock_wire::message::{Attributes, CreateOptions, ErrorKind, NodeKind};
use std::sync::Arc;

const MODE: u32 = 0o7777;
/// Most entries or files of one page, whatever the caller asks for.
pub const MAX_PAGE: usize = 4096;
/// Directories from a file to the root; paths are at most 2048 names long when made, renaming adds.
const MAX_DEPTH: usize = 1 << 16;

/// What the name space needs from below: two ordered maps and a source of ids.
pub trait Names {
    fn node(&self, id: FileId) -> Result<Option<Arc<Node>>>;
    fn entry(&self, parent: FileId, name: &str) -> Result<Option<FileId>>;
    /// Entries of a directory by name, those after `after`, at most `limit`.
    fn entries(
        &self,
        parent: FileId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, FileId)>>;
    /// Nodes by id, those after `after`, at most `limit`.
    fn nodes(&self, after: Option<FileId>, limit: usize) -> Result<Vec<(FileId, Arc<Node>)>>;
    fn put_node(&mut self, id: FileId, node: Node);
    fn remove_node(&mut self, id: FileId, kind: NodeKind);
    fn put_entry(&mut self, parent: FileId, name: &str, id: FileId);
    fn remove_entry(&mut self, parent: FileId, name: &str);
    /// An id never handed out before, not even before a crash.
    fn new_id(&mut self, kind: NodeKind) -> Result<FileId>;
    /// Might a crash now bring this node back as it was before its last change?
    fn may_be_durable(&self, id: FileId) -> bool;
}

/// How to open.
#[derive(Debug, Clone)]
pub struct How<'a> {
    pub read: bool,
    pub write: bool,
    pub create: Option<&'a CreateOptions>,
    pub exclusive: bool,
}

/// A file taken out of the name space: its objects can go once that is durable, never before, for a
/// crash could otherwise bring back a name whose bytes are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    pub file: FileId,
    pub layout: Layout,
    /// The removal must be on stable storage before anybody frees the objects.
    pub wait: bool,
}

/// What SetAttr changes; `None` leaves a field.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mtime_ns: Option<i64>,
    pub atime_ns: Option<i64>,
}

/// One page of an ordered listing; `more` follow its last item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub more: bool,
}

pub struct Namespace<N> {
    names: N,
    placement: Placement,
}

/// Where a path leads: the directory, the name in it, and what is there now.
struct Place<'a> {
    directory: FileId,
    directory_node: Arc<Node>,
    name: &'a str,
    child: Option<(FileId, Arc<Node>)>,
}

impl<N: Names> Namespace<N> {
    pub fn new(names: N, placement: Placement) -> Namespace<N> {
        Namespace { names, placement }
    }

    pub fn names(&self) -> &N {
        &self.names
    }

    pub fn names_mut(&mut self) -> &mut N {
        &mut self.names
    }

    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    pub fn stat(&self, caller: &Caller, path: &str) -> Result<Attributes> {
        let (id, node) = self.find(caller, path)?;
        Ok(node.attributes(id))
    }

    /// Opens or creates a file; true when it is new. An open for neither reading nor writing is for asking about the
    /// file (its length), as `stat` does, and needs no permission on the file itself.
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
        let Some(place) = self.place(caller, path, None)? else {
            return Err(is_directory(path));
        };
        match (&place.child, how.create) {
            (Some(_), Some(_)) if how.exclusive => Err(exists(path)),
            (Some((id, node)), _) => {
                match node.kind {
                    NodeKind::File => {}
                    NodeKind::Directory => return Err(is_directory(path)),
                    NodeKind::Symlink => {
                        return Err(error(
                            ErrorKind::Unsupported,
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
                let layout = self.placement.layout(options)?;
                let attributes = self.add(
                    now_ns,
                    caller,
                    &place,
                    NodeKind::File,
                    options.mode,
                    Some(layout),
                )?;
                Ok((attributes, true))
            }
        }
    }

    pub fn mkdir(&mut self, now_ns: i64, caller: &Caller, path: &str, mode: u32) -> Result<()> {
        let place = self.place(caller, path, None)?;
        let Some(place) = place.filter(|p| p.child.is_none()) else {
            return Err(exists(path));
        };
        caller.require_addition(&place.directory_node, path)?;
        self.add(now_ns, caller, &place, NodeKind::Directory, mode, None)?;
        Ok(())
    }

    pub fn unlink(&mut self, now_ns: i64, caller: &Caller, path: &str) -> Result<Option<Removed>> {
        let Some(place) = self.place(caller, path, None)? else {
            return Err(is_directory(path));
        };
        let Some((id, node)) = &place.child else {
            return Err(not_found(path));
        };
        if node.is_directory() {
            return Err(is_directory(path));
        }
        caller.require_removal(&place.directory_node, node, path)?;
        let removed = self.removed(*id, node);
        self.names.remove_entry(place.directory, place.name);
        self.names.remove_node(*id, node.kind);
        self.touch(now_ns, place.directory, &place.directory_node, 0);
        Ok(removed)
    }

    pub fn rmdir(&mut self, now_ns: i64, caller: &Caller, path: &str) -> Result<()> {
        let Some(place) = self.place(caller, path, None)? else {
            return Err(error(
                ErrorKind::InvalidArgument,
                "the root directory cannot be removed; use `penstock down` and delete the stores",
            ));
        };
        let Some((id, node)) = &place.child else {
            return Err(not_found(path));
        };
        if !node.is_directory() {
            return Err(not_directory(path));
        }
        caller.require_removal(&place.directory_node, node, path)?;
        self.require_empty(*id, path)?;
        self.names.remove_entry(place.directory, place.name);
        self.names.remove_node(*id, node.kind);
        self.touch(now_ns, place.directory, &place.directory_node, -1);
        Ok(())
    }

    /// Moves a name; over an existing file or empty directory, which is then gone. A file replaced that
    /// way is returned.
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
        let source = self.place(caller, from, None)?.ok_or_else(root)?;
        let Some((id, node)) = &source.child else {
            return Err(not_found(from));
        };
        let id = *id;
        let inside = node.is_directory().then_some(id);
        let target = self.place(caller, to, inside)?.ok_or_else(root)?;
        if let Some((there, _)) = target.child
            && there == id
        {
            return Ok(None);
        }
        caller.require_removal(&source.directory_node, node, from)?;
        caller.require_addition(&target.directory_node, to)?;
        let moved_directory = node.is_directory() && source.directory != target.directory;
        if moved_directory {
            // Its "..", so to say, changes.
            caller.require(node, Want::Write, from)?;
        }
        let mut removed = None;
        let mut lost_directory = false;
        if let Some((old, old_node)) = &target.child {
            caller.require_removal(&target.directory_node, old_node, to)?;
            match (node.is_directory(), old_node.is_directory()) {
                (true, true) => self.require_empty(*old, to)?,
                (true, false) => return Err(not_directory(to)),
                (false, true) => return Err(is_directory(to)),
                (false, false) => removed = self.removed(*old, old_node),
            }
            lost_directory = old_node.is_directory();
            self.names.remove_node(*old, old_node.kind);
        }
        self.names.remove_entry(source.directory, source.name);
        self.names.put_entry(target.directory, target.name, id);
        self.names.put_node(
            id,
            Node {
                parent: target.directory,
                name: target.name.into(),
                ctime_ns: now_ns,
                ..(**node).clone()
            },
        );
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
        Ok(removed)
    }

    /// A page of a directory by name. `room` bounds the page in bytes of reply.
    pub fn readdir(
        &self,
        caller: &Caller,
        path: &str,
        after: Option<&str>,
        limit: u32,
        room: usize,
    ) -> Result<Page<(String, Attributes)>> {
        let (id, node) = self.find(caller, path)?;
        if !node.is_directory() {
            return Err(not_directory(path));
        }
        caller.require(&node, Want::Read, path)?;
        let limit = (limit as usize).clamp(1, MAX_PAGE);
        let entries = self.names.entries(id, after, limit + 1)?;
        let mut page = Page {
            more: entries.len() > limit,
            items: Vec::with_capacity(entries.len().min(limit)),
        };
        let mut used = 0;
        for (name, child) in entries.into_iter().take(limit) {
            let attributes = self.child(id, &name, child)?.attributes(child);
            used += name.len() + attributes_size(attributes.layout.as_ref());
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
        let (id, node) = self.find(caller, path)?;
        caller.require_owner(&node, path)?;
        let foreign_uid = change.uid.is_some_and(|uid| uid != node.uid);
        let foreign_gid = change
            .gid
            .is_some_and(|gid| gid != node.gid && gid != caller.gid);
        if (foreign_uid || foreign_gid) && !caller.privileged {
            return Err(error(
                ErrorKind::Permission,
                format!(
                    "user {} may not give \"{}\" away; ask root or the owner of the deployment",
                    caller.uid,
                    shown(path)
                ),
            ));
        }
        let node = Node {
            mode: change.mode.map_or(node.mode, |mode| mode & MODE),
            uid: change.uid.unwrap_or(node.uid),
            gid: change.gid.unwrap_or(node.gid),
            mtime_ns: change.mtime_ns.unwrap_or(node.mtime_ns),
            atime_ns: change.atime_ns.unwrap_or(node.atime_ns),
            ctime_ns: now_ns,
            ..(*node).clone()
        };
        let attributes = node.attributes(id);
        self.names.put_node(id, node);
        Ok(attributes)
    }

    /// The layout of a file by id, for a fresh capability.
    pub fn layout(&self, id: FileId) -> Result<Layout> {
        match self.names.node(id)?.and_then(|n| n.layout.clone()) {
            Some(layout) => Ok(layout),
            None => Err(error(
                ErrorKind::NotFound,
                format!(
                    "file {} is no longer in the name space; it was removed",
                    id.0
                ),
            )),
        }
    }

    /// A page of all files by id, with their paths. `room` bounds the page in bytes of reply.
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
            kind: NodeKind::Directory,
            // Whoever has the client key may make files; nobody takes away those of others.
            mode: 0o1777,
            uid,
            gid,
            nlink: 2,
            ctime_ns: now_ns,
            mtime_ns: now_ns,
            atime_ns: now_ns,
            parent: ROOT,
            name: String::new(),
            layout: None,
        }
    }

    fn path_of(&self, node: &Node) -> Result<String> {
        let mut names = vec![node.name.clone()];
        let mut at = node.parent;
        while at != ROOT {
            let directory = self
                .names
                .node(at)?
                .filter(|d| d.is_directory())
                .ok_or_else(|| {
                    damaged(format!(
                        "\"{}\" lies in {at:?}, which is missing",
                        node.name
                    ))
                })?;
            names.push(directory.name.clone());
            at = directory.parent;
            if names.len() > MAX_DEPTH {
                return Err(damaged(format!(
                    "the directories of \"{}\" form a ring",
                    node.name
                )));
            }
        }
        let mut path = String::new();
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        Ok(path)
    }

    /// The node that an entry names; they must agree about each other.
    fn child(&self, parent: FileId, name: &str, id: FileId) -> Result<Arc<Node>> {
        self.names
            .node(id)?
            .filter(|node| node.parent == parent && node.name == name)
            .ok_or_else(|| {
                damaged(format!(
                    "the entry \"{}\" of directory {} names {id:?}, which is missing or elsewhere",
                    shown(name),
                    parent.0
                ))
            })
    }

    /// The directory `names` leads to. Passing through `forbidden` is refused.
    fn walk(
        &self,
        caller: &Caller,
        names: &[&str],
        path: &str,
        forbidden: Option<FileId>,
    ) -> Result<(FileId, Arc<Node>)> {
        let mut id = ROOT;
        let mut node = self
            .names
            .node(ROOT)?
            .ok_or_else(|| damaged("the root directory is missing"))?;
        for name in names {
            caller.require(&node, Want::Execute, path)?;
            let next = self.names.entry(id, name)?.ok_or_else(|| not_found(path))?;
            if forbidden == Some(next) {
                return Err(error(
                    ErrorKind::InvalidArgument,
                    format!(
                        "a directory cannot be moved into itself (\"{}\"); choose another place",
                        shown(path)
                    ),
                ));
            }
            node = self.child(id, name, next)?;
            id = next;
            if !node.is_directory() {
                return Err(not_directory(path));
            }
        }
        Ok((id, node))
    }

    /// Where `path` leads, whether or not something is there; `None` for the root itself.
    fn place<'a>(
        &self,
        caller: &Caller,
        path: &'a str,
        forbidden: Option<FileId>,
    ) -> Result<Option<Place<'a>>> {
        let names = path::parse(path)?;
        let Some((name, above)) = names.split_last() else {
            return Ok(None);
        };
        let (directory, directory_node) = self.walk(caller, above, path, forbidden)?;
        caller.require(&directory_node, Want::Execute, path)?;
        let child = match self.names.entry(directory, name)? {
            Some(id) => Some((id, self.child(directory, name, id)?)),
            None => None,
        };
        Ok(Some(Place {
            directory,
            directory_node,
            name,
            child,
        }))
    }

    fn find(&self, caller: &Caller, path: &str) -> Result<(FileId, Arc<Node>)> {
        match self.place(caller, path, None)? {
            Some(place) => place.child.ok_or_else(|| not_found(path)),
            None => self.walk(caller, &[], path, None),
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

    fn add(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        place: &Place,
        kind: NodeKind,
        mode: u32,
        layout: Option<Layout>,
    ) -> Result<Attributes> {
        let directory = kind == NodeKind::Directory;
        let (gid, inherited) = caller.group_in(&place.directory_node, directory);
        let id = self.names.new_id(kind)?;
        let node = Node {
            kind,
            mode: mode & MODE | inherited,
            uid: caller.uid,
            gid,
            nlink: if directory { 2 } else { 1 },
            ctime_ns: now_ns,
            mtime_ns: now_ns,
            atime_ns: now_ns,
            parent: place.directory,
            name: place.name.into(),
            layout,
        };
        let attributes = node.attributes(id);
        self.names.put_node(id, node);
        self.names.put_entry(place.directory, place.name, id);
        self.touch(
            now_ns,
            place.directory,
            &place.directory_node,
            i64::from(directory),
        );
        Ok(attributes)
    }

    /// Notes a change of a directory's entries; `links` directories more are in it.
    fn touch(&mut self, now_ns: i64, id: FileId, directory: &Node, links: i64) {
        self.names.put_node(
            id,
            Node {
                mtime_ns: now_ns,
                ctime_ns: now_ns,
                nlink: (i64::from(directory.nlink) + links).clamp(2, i64::from(u32::MAX)) as u32,
                ..directory.clone()
            },
        );
    }

    fn removed(&self, id: FileId, node: &Node) -> Option<Removed> {
        node.layout.clone().map(|layout| Removed {
            file: id,
            layout,
            wait: self.names.may_be_durable(id),
        })
    }
}

/// Upper bound of encoded attributes, and of a capability, with this layout.
pub fn attributes_size(layout: Option<&Layout>) -> usize {
    128 + layout.map_or(0, |l| 5 * l.servers.len())
}

fn not_found(path: &str) -> penstock_wire::message::WireError {
    error(
        ErrorKind::NotFound,
        format!(
            "no file or directory \"{}\"; check the path or create it first",
            shown(path)
        ),
    )
}

fn exists(path: &str) -> penstock_wire::message::WireError {
    error(
        ErrorKind::Exists,
        format!(
            "\"{}\" exists already; remove it, choose another name or open it without exclusive creation",
            shown(path)
        ),
    )
}

fn is_directory(path: &str) -> penstock_wire::message::WireError {
    error(
        ErrorKind::IsDirectory,
        format!("\"{}\" is a directory; name a file", shown(path)),
    )
}

fn not_directory(path: &str) -> penstock_wire::message::WireError {
    error(
        ErrorKind::NotDirectory,
        format!(
            "\"{}\", or a name on the way to it, is not a directory; correct the path",
            shown(path)
        ),
    )
}

#[cfg(test)]
#[path = "namespace_tests.rs"]
mod tests;
