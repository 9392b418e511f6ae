//! What happens to a file that loses a name.
//!
//! *Open-unlinked files.* A client with open files removes a name with `keep`. A file that loses its last name this way
//! is kept in a directory without a path ([`REMOVED`]), until the client closes it. `open_unlinked` tracks the holders,
//! and of files whose holders are lost.
use crate::error::Result;
use crate::names::{Names, Namespace};
use crate::node::{Node, REMOVED};
use penstock_layout::{FileId, Layout};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A file removed from the name space. Its objects may be removed only when that is durable: a crash could otherwise
/// restore a name whose bytes are gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    pub file: FileId,
    pub layout: Layout,
    /// Whether the removal must be on stable storage before the objects are removed.
    pub wait: bool,
}

/// What happened to a file that lost a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gone {
    /// It has other names, or was no file.
    Nothing,
    /// The name was the last one.
    Removed(Removed),
    /// The name was the last one; the file is open-unlinked.
    Kept(FileId),
}

impl Gone {
    /// For callers that keep no files open.
    pub fn removed(self) -> Option<Removed> {
        match self {
            Gone::Removed(removed) => Some(removed),
            Gone::Nothing | Gone::Kept(_) => None,
        }
    }
}

impl<N: Names> Namespace<N> {
    pub(crate) fn removed(&self, id: FileId, node: &Node) -> Option<Removed> {
        node.layout.clone().map(|layout| Removed {
            file: id,
            layout,
            wait: self.names.may_be_durable(id),
        })
    }

    /// Removes one name of a file or symbolic link, whose entry the caller removes or overwrites.
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

    /// An open-unlinked file is closed; `None` if it is none.
    pub fn reap(&mut self, id: FileId) -> Result<Option<Removed>> {
        let Some(node) = self.names().node(id)?.filter(|n| n.parent == REMOVED) else {
            return Ok(None);
        };
        let removed = self.removed(id, &node);
        self.names_mut().remove_entry(REMOVED, &node.name);
        self.names_mut().remove_node(id, &node);
        Ok(removed)
    }

    /// Calls `keep` with each open-unlinked file, and removes those that it refuses; `penstock check` finds their
    /// objects.
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

    /// Whether this is an open-unlinked file.
    pub fn is_kept(&self, id: FileId) -> Result<bool> {
        Ok(self.names().node(id)?.is_some_and(|n| n.parent == REMOVED))
    }
}
