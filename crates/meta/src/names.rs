//! The storage interface of the name space: ordered maps of nodes and entries, and the placement of new files.
use crate::error::Result;
use crate::node::Node;
use crate::placement::Placement;
use penstock_layout::FileId;
use penstock_wire::message::NodeKind;
use std::sync::Arc;

/// What the name space needs from storage: two ordered maps and a source of ids.
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
    /// Removes a node; `node` is its stored form.
    fn remove_node(&mut self, id: FileId, node: &Node);
    fn put_entry(&mut self, parent: FileId, name: &str, id: FileId);
    fn remove_entry(&mut self, parent: FileId, name: &str);
    /// An id that was never used before, not even before a crash.
    fn new_id(&mut self, kind: NodeKind) -> Result<FileId>;
    /// Whether a user may own one more node.
    fn room(&self, uid: u32, now_ns: i64) -> Result<()>;
    /// A node that was just stored belongs to a user now, and before to another or to none.
    fn charge(&mut self, id: FileId, from: Option<u32>, to: u32, now_ns: i64);
    /// Whether a crash now could restore this node as it was before its last change.
    fn may_be_durable(&self, id: FileId) -> bool;
}

/// The name space; its rules are in [`crate::namespace`], [`crate::nodes`] and [`crate::resolve`].
pub struct Namespace<N> {
    pub(crate) names: N,
    pub(crate) placement: Placement,
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

    pub(crate) fn placement_mut(&mut self) -> &mut Placement {
        &mut self.placement
    }
}
