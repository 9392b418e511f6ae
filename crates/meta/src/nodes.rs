//! Requests about nodes by id, and what POSIX has beyond names: hard and symbolic links, extended attributes, files
//! without a name that are still open.
//!
//! *Open files that were removed.* A caller with open files removes a name with `keep`. A file that so loses its last
//! name is kept in a directory that no path leads to ([`REMOVED`]), until the caller says that it is closed. Who holds
//! which, and what becomes of it when holders or this server are lost, is told by `kept`.
use crate::access::{Caller, Want};
use crate::error::{Result, error, shown};
use crate::namespace::{How, Names, Namespace, Page, Removed, exists, not_directory};
use crate::node::{Node, REMOVED};
use crate::placement::{self, Striping};
use crate::resolve::Place;
use penstock_layout::{FileId, Layout};
use penstock_wire::message::{
    Attributes, ErrorKind, LAYOUT_XATTR, MAX_LINKS, MAX_TARGET, MAX_XATTR_VALUE, MAX_XATTRS,
    NodeKind, NodeRequest, WireError, XattrMode,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a request leads to; the connection's session adds capabilities.
#[derive(Debug)]
pub enum Outcome {
    Node(Attributes),
    Look(Attributes),
    Opened(Attributes, bool),
    /// And what had to be kept.
    Unlinked(Gone),
    Entries(Page<(String, Attributes)>),
    Xattr(Vec<u8>),
    Xattrs(Vec<String>),
    /// A counter's value before.
    Counter(i64),
    Done,
}

impl Outcome {
    /// Of a request that leads to a node.
    pub fn attributes(self) -> Result<Attributes> {
        match self {
            Outcome::Node(a) | Outcome::Look(a) | Outcome::Opened(a, _) => Ok(a),
            other => Err(other.unexpected()),
        }
    }

    /// Of a request that may remove a file.
    pub fn removed(self) -> Result<Option<Removed>> {
        match self {
            Outcome::Unlinked(gone) => Ok(gone.removed()),
            other => Err(other.unexpected()),
        }
    }

    /// The request has another kind of outcome: a kept one was changed.
    pub fn unexpected(&self) -> WireError {
        crate::error::damaged(format!(
            "{self:?} is kept for a request that has no such outcome"
        ))
    }
}

impl From<Option<Removed>> for Outcome {
    fn from(removed: Option<Removed>) -> Outcome {
        Outcome::Unlinked(removed.map_or(Gone::Nothing, Gone::Removed))
    }
}

/// What became of a file that lost a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gone {
    /// It has others, or was no file.
    Nothing,
    /// It was the last one.
    Removed(Removed),
    /// It was the last one; the file is kept.
    Kept(FileId),
}

impl Gone {
    /// For callers who keep nothing.
    pub fn removed(self) -> Option<Removed> {
        match self {
            Gone::Removed(removed) => Some(removed),
            Gone::Nothing | Gone::Kept(_) => None,
        }
    }
}

impl<N: Names> Namespace<N> {
    /// Carries out a request of `caller`. `room` bounds a page in bytes of reply.
    pub fn node_request(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        request: &NodeRequest,
        room: usize,
    ) -> Result<Outcome> {
        Ok(match request {
            NodeRequest::Create {
                parent,
                name,
                options,
                read,
                write,
                exclusive,
            } => {
                let place = self.place_in(caller, *parent, name)?;
                let how = How {
                    read: *read,
                    write: *write,
                    create: Some(options),
                    exclusive: *exclusive,
                };
                let (attributes, created) = self.open_at(now_ns, caller, &place, name, &how)?;
                Outcome::Opened(attributes, created)
            }
            NodeRequest::Mkdir { parent, name, mode } => {
                let place = self.free_place(caller, *parent, name)?;
                Outcome::Node(self.add(
                    now_ns,
                    caller,
                    &place,
                    NodeKind::Directory,
                    *mode,
                    |_| {},
                )?)
            }
            NodeRequest::Symlink {
                parent,
                name,
                target,
            } => {
                check_target(target)?;
                let place = self.free_place(caller, *parent, name)?;
                let set = |node: &mut Node| node.target = Some(target.clone());
                Outcome::Node(self.add(now_ns, caller, &place, NodeKind::Symlink, 0o777, set)?)
            }
            NodeRequest::Link { id, parent, name } => {
                let place = self.free_place(caller, *parent, name)?;
                Outcome::Look(self.link_at(now_ns, *id, &place)?)
            }
            NodeRequest::Unlink { parent, name, keep } => {
                let place = self.place_in(caller, *parent, name)?;
                Outcome::Unlinked(self.unlink_at(now_ns, caller, &place, name, *keep)?)
            }
            NodeRequest::Rmdir { parent, name } => {
                let place = self.place_in(caller, *parent, name)?;
                self.rmdir_at(now_ns, caller, &place, name)?;
                Outcome::Done
            }
            NodeRequest::Rename {
                parent,
                name,
                new_parent,
                new_name,
                exclusive,
                keep,
            } => {
                let source = self.place_in(caller, *parent, name)?;
                let target = self.place_in(caller, *new_parent, new_name)?;
                if *exclusive && target.child.is_some() {
                    return Err(exists(new_name));
                }
                if let Some((id, node)) = &source.child
                    && node.is_directory()
                {
                    self.require_outside(*id, *new_parent, new_name)?;
                }
                let paths = (name.as_str(), new_name.as_str());
                Outcome::Unlinked(self.rename_at(now_ns, caller, &source, &target, paths, *keep)?)
            }
            NodeRequest::SetAttr { id, change } => {
                let node = self.by_id(*id)?;
                Outcome::Look(self.change(now_ns, caller, (*id, &node), &label(*id), change)?)
            }
            NodeRequest::SetXattr {
                id,
                name,
                value,
                mode,
            } => {
                let before = self.by_id(*id)?;
                self.set_xattr(now_ns, caller, *id, name, Some(value), *mode)?;
                match self.left_behind(*id, &before)? {
                    Some(removed) => Outcome::Unlinked(Gone::Removed(removed)),
                    None => Outcome::Done,
                }
            }
            NodeRequest::RemoveXattr { id, name } => {
                self.set_xattr(now_ns, caller, *id, name, None, XattrMode::Replace)?;
                Outcome::Done
            }
            reading => self.node_read(caller, reading, room)?,
        })
    }

    /// Those that change nothing.
    pub fn node_read(
        &self,
        caller: &Caller,
        request: &NodeRequest,
        room: usize,
    ) -> Result<Outcome> {
        Ok(match request {
            NodeRequest::Lookup { parent, name } => {
                let place = self.place_in(caller, *parent, name)?;
                let (id, node) = place
                    .child
                    .ok_or_else(|| crate::namespace::not_found(name))?;
                Outcome::Look(node.attributes(id))
            }
            NodeRequest::Stat { id } => Outcome::Node(self.by_id(*id)?.attributes(*id)),
            NodeRequest::Look { id } => Outcome::Look(self.by_id(*id)?.attributes(*id)),
            NodeRequest::Open {
                id,
                read,
                write,
                execute,
            } => {
                let node = self.by_id(*id)?;
                let label = label(*id);
                if node.is_directory() {
                    return Err(crate::namespace::is_directory(&label));
                }
                if *read && !(*execute && caller.may(&node, Want::Execute)) {
                    caller.require(&node, Want::Read, &label)?;
                }
                if *write {
                    caller.require(&node, Want::Write, &label)?;
                }
                Outcome::Opened(node.attributes(*id), false)
            }
            NodeRequest::Readdir { id, after, limit } => {
                let node = self.by_id(*id)?;
                Outcome::Entries(self.page(
                    caller,
                    (*id, &node),
                    &label(*id),
                    after.as_deref(),
                    *limit,
                    room,
                )?)
            }
            NodeRequest::GetXattr { id, name } => Outcome::Xattr(self.xattr(caller, *id, name)?),
            NodeRequest::ListXattr { id } => {
                let node = self.by_id(*id)?;
                let hidden = |name: &&String| !name.starts_with("trusted.") || caller.privileged;
                let mut names: Vec<String> = node.xattrs.keys().filter(hidden).cloned().collect();
                if node.layout.is_some() || node.striping.is_some() {
                    names.push(LAYOUT_XATTR.into());
                }
                Outcome::Xattrs(names)
            }
            changing => {
                return Err(error(
                    ErrorKind::Unsupported,
                    format!("{changing:?} is no request that only reads"),
                ));
            }
        })
    }

    /// A place in a directory where nothing is yet.
    fn free_place<'a>(&self, caller: &Caller, parent: FileId, name: &'a str) -> Result<Place<'a>> {
        let place = self.place_in(caller, parent, name)?;
        if place.child.is_some() {
            return Err(exists(name));
        }
        caller.require_addition(&place.directory_node, name)?;
        if place.directory_node.nlink == 0 {
            return Err(not_directory(name));
        }
        Ok(place)
    }

    fn link_at(&mut self, now_ns: i64, id: FileId, place: &Place) -> Result<Attributes> {
        let node = self.by_id(id)?;
        let name = &*place.name;
        if node.is_directory() {
            return Err(error(
                ErrorKind::NotOwner,
                format!(
                    "\"{}\": directories have one name; make a symbolic link",
                    shown(name)
                ),
            ));
        }
        if node.nlink == 0 {
            return Err(crate::namespace::not_found(name));
        }
        if node.links.len() + 1 >= MAX_LINKS {
            return Err(error(
                ErrorKind::TooManyLinks,
                format!(
                    "\"{}\": the file has {MAX_LINKS} names already",
                    shown(name)
                ),
            ));
        }
        let mut node = (*node).clone();
        node.links.push((place.directory, name.to_owned()));
        node.nlink += 1;
        node.ctime_ns = now_ns;
        let attributes = node.attributes(id);
        self.names_mut().put_node(id, node);
        self.names_mut().put_entry(place.directory, name, id);
        self.touch(now_ns, place.directory, &place.directory_node, 0);
        Ok(attributes)
    }

    /// Takes one name away from a file or symbolic link, whose entry the caller removes or overwrites.
    pub(crate) fn drop_name(
        &mut self,
        now_ns: i64,
        (id, node): (FileId, &Arc<Node>),
        directory: FileId,
        name: &str,
        keep: bool,
    ) -> Gone {
        let mut node = (**node).clone();
        if !node.links.is_empty() {
            if node.parent == directory && node.name == name {
                (node.parent, node.name) = node.links.swap_remove(0);
            } else {
                node.links.retain(|(p, n)| *p != directory || n != name);
            }
            node.nlink -= 1;
            node.ctime_ns = now_ns;
            self.names_mut().put_node(id, node);
            return Gone::Nothing;
        }
        if keep && node.layout.is_some() {
            node.nlink = 0;
            node.ctime_ns = now_ns;
            node.parent = REMOVED;
            node.name = id.0.to_string();
            self.names_mut().put_entry(REMOVED, &node.name.clone(), id);
            self.names_mut().put_node(id, node);
            return Gone::Kept(id);
        }
        let removed = self.removed(id, &node);
        self.names_mut().remove_node(id, &node);
        removed.map_or(Gone::Nothing, Gone::Removed)
    }

    /// A kept file is closed; `None` if it is no such file.
    pub fn reap(&mut self, id: FileId) -> Result<Option<Removed>> {
        let Some(node) = self.names().node(id)?.filter(|n| n.parent == REMOVED) else {
            return Ok(None);
        };
        let removed = self.removed(id, &node);
        self.names_mut().remove_entry(REMOVED, &node.name);
        self.names_mut().remove_node(id, &node);
        Ok(removed)
    }

    /// Calls `keep` with each file that is kept, and forgets those that it refuses; `penstock check` finds their objects.
    pub fn each_kept(&mut self, mut keep: impl FnMut(FileId) -> bool) -> Result<()> {
        let mut after: Option<String> = None;
        loop {
            let page = self.names().entries(REMOVED, after.as_deref(), 1024)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (name, id) in page {
                if !self.is_kept(id)? {
                    self.names_mut().remove_entry(REMOVED, &name);
                } else if !keep(id) {
                    self.reap(id)?;
                }
            }
        }
    }

    /// Whether this is a file without a name that is kept.
    pub fn is_kept(&self, id: FileId) -> Result<bool> {
        Ok(self.names().node(id)?.is_some_and(|n| n.parent == REMOVED))
    }

    // ---- extended attributes ----

    fn xattr(&self, caller: &Caller, id: FileId, name: &str) -> Result<Vec<u8>> {
        let node = self.by_id(id)?;
        let missing = || {
            error(
                ErrorKind::NoAttribute,
                format!("node {} has no attribute \"{}\"", id.0, shown(name)),
            )
        };
        require_readable(caller, &node, id, name)?;
        if name == LAYOUT_XATTR {
            return match (&node.layout, &node.striping) {
                (Some(layout), _) => Ok(placement::describe(layout).into_bytes()),
                (None, Some(striping)) => Ok(striping.text().into_bytes()),
                (None, None) => Err(missing()),
            };
        }
        node.xattrs.get(name).cloned().ok_or_else(missing)
    }

    fn set_xattr(
        &mut self,
        now_ns: i64,
        caller: &Caller,
        id: FileId,
        name: &str,
        value: Option<&Vec<u8>>,
        mode: XattrMode,
    ) -> Result<()> {
        let node = self.by_id(id)?;
        require_writable(caller, &node, id, name)?;
        let mut node = (*node).clone();
        if name == LAYOUT_XATTR {
            self.set_layout(caller, id, &mut node, value)?;
        } else {
            let there = node.xattrs.contains_key(name);
            match (there, mode) {
                (true, XattrMode::Create) => return Err(exists(name)),
                (false, XattrMode::Replace) => {
                    return Err(error(
                        ErrorKind::NoAttribute,
                        format!("node {} has no attribute \"{}\"", id.0, shown(name)),
                    ));
                }
                _ => {}
            }
            node.xattrs.remove(name);
            if let Some(value) = value {
                let used: usize = node.xattrs.iter().map(|(n, v)| n.len() + v.len()).sum();
                if value.len() > MAX_XATTR_VALUE || used + name.len() + value.len() > MAX_XATTRS {
                    return Err(error(
                        ErrorKind::NoSpace,
                        format!(
                            "attribute \"{}\" of {} bytes: a value may have {MAX_XATTR_VALUE}, all of a node {MAX_XATTRS}",
                            shown(name),
                            value.len()
                        ),
                    ));
                }
                node.xattrs.insert(name.to_owned(), value.clone());
            }
        }
        node.ctime_ns = now_ns;
        self.names_mut().put_node(id, node);
        Ok(())
    }

    /// Objects without bytes of a file whose layout has just changed, on servers that it has left.
    fn left_behind(&self, id: FileId, before: &Node) -> Result<Option<Removed>> {
        let after = self.by_id(id)?;
        let (Some(old), Some(new)) = (&before.layout, &after.layout) else {
            return Ok(None);
        };
        let mut left = old.servers.clone();
        left.retain(|server| !new.servers.contains(server));
        if left.is_empty() {
            return Ok(None);
        }
        let layout = Layout::new(old.stripe_unit, left)
            .map_err(|e| error(ErrorKind::InvalidArgument, e.to_string()))?;
        Ok(self.removed(id, before).map(|r| Removed { layout, ..r }))
    }

    /// Striping of a file that has no bytes yet (its caller has looked), or for new files of a directory.
    fn set_layout(
        &mut self,
        caller: &Caller,
        id: FileId,
        node: &mut Node,
        value: Option<&Vec<u8>>,
    ) -> Result<()> {
        caller.require_owner(node, &label(id))?;
        let invalid =
            |why: &str| error(ErrorKind::InvalidArgument, format!("{LAYOUT_XATTR}: {why}"));
        let striping = match value {
            None => None,
            Some(value) => {
                let text = std::str::from_utf8(value).map_err(|_| invalid("not text"))?;
                Some(Striping::parse(text.trim_end_matches('\0'))?)
            }
        };
        match (node.kind, striping) {
            (NodeKind::Symlink, _) => Err(invalid("a symbolic link has no bytes")),
            (NodeKind::File, None) => Err(invalid("a file always has a layout")),
            (NodeKind::File, Some(striping)) => {
                let wanted = striping.fill(&Default::default());
                node.layout = Some(self.placement_mut().layout(&wanted)?);
                Ok(())
            }
            (NodeKind::Directory, striping) => {
                if let Some(striping) = &striping {
                    // Tried now, so that it is not the next new file that fails.
                    let wanted = striping.fill(&Default::default());
                    self.placement().clone().layout(&wanted)?;
                }
                node.striping = striping;
                Ok(())
            }
        }
    }
}

/// A node as errors name it where no path is known.
fn label(id: FileId) -> String {
    format!("node {}", id.0)
}

pub(crate) fn check_target(target: &str) -> Result<()> {
    if target.is_empty() {
        return Err(error(
            ErrorKind::NotFound,
            "a symbolic link to nothing; name a path",
        ));
    }
    if target.len() > MAX_TARGET {
        return Err(error(
            ErrorKind::NameTooLong,
            format!(
                "a symbolic link of {} bytes; at most {MAX_TARGET} are allowed",
                target.len()
            ),
        ));
    }
    Ok(())
}

fn unsupported(name: &str) -> WireError {
    error(
        ErrorKind::Unsupported,
        format!(
            "attribute \"{}\": only user. and, for root, trusted. attributes are kept",
            shown(name)
        ),
    )
}

fn require_readable(caller: &Caller, node: &Node, id: FileId, name: &str) -> Result<()> {
    if name.starts_with("trusted.") {
        return if caller.privileged {
            Ok(())
        } else {
            Err(error(
                ErrorKind::NoAttribute,
                "trusted attributes are root's",
            ))
        };
    }
    if !name.starts_with("user.") {
        return Err(unsupported(name));
    }
    caller.require(node, Want::Read, &label(id))
}

fn require_writable(caller: &Caller, node: &Node, id: FileId, name: &str) -> Result<()> {
    if name.len() > crate::path::MAX_NAME {
        return Err(error(
            ErrorKind::InvalidArgument,
            "the name of the attribute is too long",
        ));
    }
    let root_only = name.starts_with("trusted.") || node.kind == NodeKind::Symlink;
    if root_only && !caller.privileged {
        return Err(error(
            ErrorKind::NotOwner,
            "only root sets trusted attributes, and attributes of symbolic links",
        ));
    }
    if name.starts_with("trusted.") {
        return Ok(());
    }
    if !name.starts_with("user.") {
        return Err(unsupported(name));
    }
    caller.require(node, Want::Write, &label(id))
}
