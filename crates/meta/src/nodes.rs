//! Requests by node id, and hard links, symbolic links and extended attributes.
use crate::access::{Caller, Want};
use crate::error::{Result, error, exists, is_directory, not_directory, not_found, shown};
use crate::names::{Names, Namespace};
use crate::namespace::{How, Page};
use crate::node::Node;
use crate::placement::{self, Striping};
use crate::removal::{Gone, Removed};
use crate::resolve::Resolved;
use penstock_layout::{FileId, Layout};
use penstock_wire::message::{
    Attributes, ErrorKind, LAYOUT_XATTR, MAX_LINKS, MAX_XATTR_VALUE, MAX_XATTRS, NodeKind,
    NodeRequest, WireError, XattrMode,
};

/// The outcome of a request; the session adds capabilities.
#[derive(Debug)]
pub enum Outcome {
    Node(Attributes),
    Look(Attributes),
    Opened(Attributes, bool),
    /// A name was removed, with what happened to its file.
    Unlinked(Gone),
    Entries(Page<(String, Attributes)>),
    Xattr(Vec<u8>),
    Xattrs(Vec<String>),
    /// A counter's value before the change.
    Counter(i64),
    Done,
}

impl Outcome {
    /// The attributes, for a request that leads to a node.
    pub fn attributes(self) -> Result<Attributes> {
        match self {
            Outcome::Node(a) | Outcome::Look(a) | Outcome::Opened(a, _) => Ok(a),
            other => Err(other.unexpected()),
        }
    }

    /// The removed file, for a request that may remove one.
    pub fn removed(self) -> Result<Option<Removed>> {
        match self {
            Outcome::Unlinked(gone) => Ok(gone.removed()),
            other => Err(other.unexpected()),
        }
    }

    /// An error: the stored outcome is not of this request's kind.
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

impl<N: Names> Namespace<N> {
    /// Carries out a request of `caller`. `room` bounds the encoded page in bytes.
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
                crate::path::check_target(target)?;
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

    /// Requests that change nothing.
    pub fn node_read(
        &self,
        caller: &Caller,
        request: &NodeRequest,
        room: usize,
    ) -> Result<Outcome> {
        Ok(match request {
            NodeRequest::Lookup { parent, name } => {
                let place = self.place_in(caller, *parent, name)?;
                let (id, node) = place.child.ok_or_else(|| not_found(name))?;
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
                    return Err(is_directory(&label));
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

    /// A free name in a directory.
    fn free_place<'a>(
        &self,
        caller: &Caller,
        parent: FileId,
        name: &'a str,
    ) -> Result<Resolved<'a>> {
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

    fn link_at(&mut self, now_ns: i64, id: FileId, place: &Resolved) -> Result<Attributes> {
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
            return Err(not_found(name));
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

    /// Empty objects on servers that are not in the new layout of a file.
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

    /// Sets the striping of a file without bytes (the caller has checked that), or of new files in a directory.
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
                    // Checked now, rather than at the next new file.
                    let wanted = striping.fill(&Default::default());
                    self.placement().clone().layout(&wanted)?;
                }
                node.striping = striping;
                Ok(())
            }
        }
    }
}

/// The name of a node in errors if no path is known.
fn label(id: FileId) -> String {
    format!("node {}", id.0)
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
