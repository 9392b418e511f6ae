//! Path resolution: paths from the root, and names in a directory given by its id.
//!
//! Resolution needs the search permission of each directory on the way. Symbolic links on the way are followed, at most
//! [`MAX_SYMLINKS`]; one at the end only on request. A link whose target begins with "/" continues at the root of the
//! name space.
use crate::access::{Caller, Want};
use crate::error::{Result, damaged, error, is_directory, not_directory, not_found, shown};
use crate::names::{Names, Namespace};
use crate::node::{Node, REMOVED, ROOT};
use crate::path;
use penstock_layout::FileId;
use penstock_wire::message::{ErrorKind, NodeKind, REMOVED_PATH, WireError};
use std::borrow::Cow;
use std::sync::Arc;

/// Most symbolic links followed in one path, as in Linux.
const MAX_SYMLINKS: usize = 40;
/// Most directories from a file to the root; paths have at most 2048 names when made, and renaming adds more.
const MAX_DEPTH: usize = 1 << 16;

/// A directory, a name in it, and the present node.
pub struct Resolved<'a> {
    pub directory: FileId,
    pub directory_node: Arc<Node>,
    pub name: Cow<'a, str>,
    pub child: Option<(FileId, Arc<Node>)>,
}

impl<N: Names> Namespace<N> {
    /// Resolves `path`, whether or not the node exists; `None` for the root itself. A path through `forbidden` is
    /// refused.
    pub(crate) fn place<'a>(
        &self,
        caller: &Caller,
        path: &'a str,
        follow: bool,
        forbidden: Option<FileId>,
    ) -> Result<Option<Resolved<'a>>> {
        // Names still to resolve, the next one last.
        let mut pending: Vec<Cow<'a, str>> = path::parse(path)?
            .into_iter()
            .rev()
            .map(Cow::Borrowed)
            .collect();
        let mut links = 0;
        let mut id = ROOT;
        let mut node = self.directory(ROOT, path)?;
        while let Some(name) = pending.pop() {
            match &*name {
                "." => continue,
                ".." => {
                    id = node.parent;
                    node = self.directory(id, path)?;
                    continue;
                }
                _ => {}
            }
            caller.require(&node, Want::Execute, path)?;
            let last = pending.is_empty();
            let child = match self.names().entry(id, &name)? {
                Some(child) => Some((child, self.child(id, &name, child)?)),
                None => None,
            };
            if let Some((_, link)) = &child
                && link.kind == NodeKind::Symlink
                && (follow || !last)
            {
                links += 1;
                let target = link.target.as_deref().unwrap_or_default();
                if links > MAX_SYMLINKS || target.is_empty() {
                    return Err(circle(path));
                }
                if target.starts_with('/') {
                    id = ROOT;
                    node = self.directory(ROOT, path)?;
                }
                let names = target.split('/').filter(|n| !n.is_empty());
                pending.extend(names.rev().map(|n| Cow::Owned(n.to_owned())));
                continue;
            }
            if last {
                return Ok(Some(Resolved {
                    directory: id,
                    directory_node: node,
                    name,
                    child,
                }));
            }
            let (next, there) = child.ok_or_else(|| not_found(path))?;
            if forbidden == Some(next) {
                return Err(into_itself(path));
            }
            if !there.is_directory() {
                return Err(not_directory(path));
            }
            (id, node) = (next, there);
        }
        // The path, or the symbolic link at its end, ends in a directory without naming it.
        if id == ROOT {
            return Ok(None);
        }
        let above = self.directory(node.parent, path)?;
        Ok(Some(Resolved {
            directory: node.parent,
            directory_node: above,
            name: Cow::Owned(node.name.clone()),
            child: Some((id, node)),
        }))
    }

    /// The same for a name in a directory.
    pub(crate) fn place_in<'a>(
        &self,
        caller: &Caller,
        directory: FileId,
        name: &'a str,
    ) -> Result<Resolved<'a>> {
        path::check_name(name)?;
        let node = self.directory(directory, name)?;
        caller.require(&node, Want::Execute, name)?;
        let child = match self.names().entry(directory, name)? {
            Some(id) => Some((id, self.child(directory, name, id)?)),
            None => None,
        };
        Ok(Resolved {
            directory,
            directory_node: node,
            name: Cow::Borrowed(name),
            child,
        })
    }

    pub(crate) fn find(
        &self,
        caller: &Caller,
        path: &str,
        follow: bool,
    ) -> Result<(FileId, Arc<Node>)> {
        match self.place(caller, path, follow, None)? {
            Some(place) => place.child.ok_or_else(|| not_found(path)),
            None => Ok((ROOT, self.directory(ROOT, path)?)),
        }
    }

    /// A node by id.
    pub(crate) fn by_id(&self, id: FileId) -> Result<Arc<Node>> {
        self.names().node(id)?.ok_or_else(|| {
            error(
                ErrorKind::NotFound,
                format!(
                    "node {} is no longer in the name space; it was removed",
                    id.0
                ),
            )
        })
    }

    /// A directory by id, found while resolving `path`.
    fn directory(&self, id: FileId, path: &str) -> Result<Arc<Node>> {
        let node = self.names().node(id)?;
        if id == ROOT && node.is_none() {
            return Err(damaged("the root directory is missing"));
        }
        let node = node.ok_or_else(|| not_found(path))?;
        if !node.is_directory() {
            return Err(not_directory(path));
        }
        Ok(node)
    }

    /// The node of an entry; the two must be consistent.
    pub(crate) fn child(&self, parent: FileId, name: &str, id: FileId) -> Result<Arc<Node>> {
        self.names()
            .node(id)?
            .filter(|node| node.is_named(parent, name))
            .ok_or_else(|| {
                damaged(format!(
                    "the entry \"{}\" of directory {} names {id:?}, which is missing or elsewhere",
                    shown(name),
                    parent.0
                ))
            })
    }

    /// Refuses to move directory `id` into `into`, which is the same or inside it.
    pub(crate) fn require_outside(&self, id: FileId, into: FileId, path: &str) -> Result<()> {
        let mut at = into;
        for _ in 0..MAX_DEPTH {
            if at == id {
                return Err(into_itself(path));
            }
            if at == ROOT {
                return Ok(());
            }
            at = self.by_id(at)?.parent;
        }
        Err(damaged(format!(
            "the directories above {into:?} form a ring"
        )))
    }

    /// A path to a node.
    pub(crate) fn path_of(&self, node: &Node) -> Result<String> {
        let mut names = vec![node.name.clone()];
        let mut at = node.parent;
        if at == REMOVED {
            return Ok(format!("{REMOVED_PATH}{}", node.name));
        }
        while at != ROOT {
            let directory = self
                .names()
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
}

impl Resolved<'_> {
    /// The node at a path, which must be a file.
    pub(crate) fn file(&self, path: &str) -> Result<(FileId, &Arc<Node>)> {
        match &self.child {
            None => Err(not_found(path)),
            Some((_, node)) if node.is_directory() => Err(is_directory(path)),
            Some((id, node)) => Ok((*id, node)),
        }
    }
}

fn into_itself(path: &str) -> WireError {
    error(
        ErrorKind::InvalidArgument,
        format!(
            "a directory cannot be moved into itself (\"{}\"); choose another place",
            shown(path)
        ),
    )
}

fn circle(path: &str) -> WireError {
    error(
        ErrorKind::Loop,
        format!(
            "more than {MAX_SYMLINKS} symbolic links on the path to \"{}\"; they may form a cycle",
            shown(path)
        ),
    )
}
