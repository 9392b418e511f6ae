//! Nodes by id, for mounts and others that act for users; and lengths and times of files.
//!
//! Only data servers know a file's length, and when its bytes were last changed: writers tell no other server. So a
//! query about a file is one request to the metadata server and one to each of the file's data servers, all at once.
//! Many files are queried together, [`TOGETHER`] at a time.
use crate::client::Client;
use crate::connection_pool::ConnectionPool;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::file::File;
use crate::link::Link;
use crate::open_file::{OpenFile, Origin};
use crate::retry::Retry;
use penstock_layout::{FileId, ServerId, ServerIndex};
use penstock_wire::message::{
    Attributes, Capability, CreateOptions, DataReply, DataRequest, ErrorKind, MetaReply,
    MetaRequest, NodeReply, NodeRequest, User,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which of the files asked about have a part on a server, and the server's turn in each.
type Parts = Vec<(usize, ServerIndex)>;

/// Files whose servers are asked in one go.
const TOGETHER: usize = 64;
/// Most capabilities for one query about a file.
const LOOKS: u32 = 3;

/// The data servers' answer about a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looked {
    /// Length in bytes.
    pub len: u64,
    /// Bytes that its objects have.
    pub allocated: u64,
    /// Newest change of its bytes or length, nanoseconds since the epoch; `None`: it never had any.
    pub modified_ns: Option<i64>,
}

impl Looked {
    /// Puts the times that data servers recorded into attributes from the metadata server.
    pub fn complete(&self, attributes: &mut Attributes) {
        let Some(modified) = self.modified_ns else {
            return;
        };
        let set = attributes.mtime_set_ns;
        if set == 0 {
            attributes.mtime_ns = attributes.mtime_ns.max(modified);
        } else if modified > set {
            attributes.mtime_ns = modified;
        }
        attributes.ctime_ns = attributes.ctime_ns.max(modified);
    }
}

impl Client {
    /// A request about nodes, made for `user`. Needs root or the owner of the deployment.
    pub fn node(&self, user: &User, request: NodeRequest) -> Result<NodeReply> {
        let operation = name_of(&request);
        let request = MetaRequest::Node {
            user: user.clone(),
            request,
        };
        match self.meta(operation, &request)? {
            MetaReply::Node(reply) => Ok(reply),
            other => Err(self.meta_protocol(operation, &other)),
        }
    }

    /// Opens a file by id. `execute`: to run it.
    pub fn open_node(
        &self,
        user: &User,
        id: FileId,
        (read, write): (bool, bool),
        execute: bool,
    ) -> Result<File> {
        let request = NodeRequest::Open {
            id,
            read,
            write,
            execute,
        };
        self.opened(user, request, read, write)
    }

    /// Makes a file in a directory, or opens the one that is there.
    pub fn create_node(
        &self,
        user: &User,
        (parent, name): (FileId, &str),
        options: CreateOptions,
        (read, write): (bool, bool),
        exclusive: bool,
    ) -> Result<File> {
        let request = NodeRequest::Create {
            parent,
            name: name.to_owned(),
            options,
            read,
            write,
            exclusive,
        };
        self.opened(user, request, read, write)
    }

    fn opened(&self, user: &User, request: NodeRequest, read: bool, write: bool) -> Result<File> {
        match self.node(user, request)? {
            NodeReply::Opened {
                attributes,
                capability,
                created,
            } => {
                let path = format!("node {}", attributes.id.0);
                let file = OpenFile::new(
                    self,
                    path,
                    (read, write),
                    attributes,
                    capability,
                    created,
                    Origin::Node(user.clone()),
                )?;
                Ok(File(Arc::new(file)))
            }
            other => Err(self.meta_protocol("open", &MetaReply::Node(other))),
        }
    }

    /// Length and last change of each file, in order. A file that cannot be looked at fails for itself.
    pub fn look(&self, files: &[&Capability]) -> Vec<Result<Looked>> {
        let mut all = Vec::with_capacity(files.len());
        for files in files.chunks(TOGETHER) {
            match self.look_together(files) {
                Ok(looked) => all.extend(looked.into_iter().map(Ok)),
                // One by one, so that one broken file does not hide the others.
                Err(_) if files.len() > 1 => {
                    all.extend(files.iter().map(|file| {
                        let mut looked = self.look_together(&[file])?;
                        Ok(looked.pop().unwrap_or_default())
                    }));
                }
                Err(e) => all.push(Err(e)),
            }
        }
        all
    }

    fn look_together(&self, files: &[&Capability]) -> Result<Vec<Looked>> {
        const LOOK: &str = "look";
        let mut servers: BTreeMap<ServerId, (Arc<ConnectionPool>, Parts)> = BTreeMap::new();
        for (k, file) in files.iter().enumerate() {
            for (i, site) in (0..).map(ServerIndex).zip(self.sites(&file.layout)?) {
                let id = file.layout.servers[i.0 as usize];
                let (_, asked) = servers.entry(id).or_insert_with(|| (site, Vec::new()));
                asked.push((k, i));
            }
        }
        let trace = self.trace();
        let _permit = self.permit()?;
        let mut all = vec![Looked::default(); files.len()];
        let mut retry = Retry::new(self.backoff());
        while !servers.is_empty() {
            // Everybody is asked before the first answer is waited for.
            let mut asked = Vec::with_capacity(servers.len());
            let mut away = None;
            for (id, (site, what)) in &servers {
                let ask = || -> std::result::Result<(Link, Vec<u64>), Fault> {
                    let mut link = site.connect(LOOK)?;
                    let mut ids = Vec::with_capacity(what.len());
                    for (k, _) in what {
                        let capability = files[*k].clone();
                        ids.push(link.ask(LOOK, trace, &DataRequest::Look { capability })?);
                    }
                    Ok((link, ids))
                };
                match ask() {
                    Ok((link, ids)) => asked.push((*id, link, ids)),
                    Err(fault) => away = Some((site.clone(), fault)),
                }
            }
            for (id, mut link, ids) in asked {
                let Some((site, what)) = servers.get(&id) else {
                    continue;
                };
                let mut answers = || -> std::result::Result<Vec<(u64, Option<i64>)>, Fault> {
                    let mut found = Vec::with_capacity(ids.len());
                    let mut refused = None;
                    for id in &ids {
                        match link.answer::<DataReply>(LOOK, *id)? {
                            DataReply::Looked { len, modified_ns } => {
                                found.push((len, modified_ns));
                            }
                            other => refused = Some(site.unexpected(LOOK, other)),
                        }
                    }
                    refused.map_or(Ok(found), Err)
                };
                match answers() {
                    Ok(found) => {
                        for (&(k, i), (len, modified_ns)) in what.iter().zip(found) {
                            let looked = &mut all[k];
                            looked.len = looked.len.max(files[k].layout.file_len(i, len));
                            looked.allocated += len;
                            looked.modified_ns = looked.modified_ns.max(modified_ns);
                        }
                        site.put(link);
                        servers.remove(&id);
                    }
                    Err(fault) => away = Some((site.clone(), fault)),
                }
            }
            if let Some((site, fault)) = away {
                self.pause(&site, LOOK, fault, &mut retry)?;
            }
        }
        Ok(all)
    }

    /// What a path leads to, with the length and times of a file. A symbolic link at its end is followed if `follow`
    /// says so.
    pub(crate) fn look_at(&self, path: String, follow: bool) -> Result<(Attributes, Looked)> {
        self.look_by(|| {
            let path = path.clone();
            match self.meta("stat", &MetaRequest::Look { path, follow })? {
                MetaReply::Node(reply) => Ok(reply),
                other => Err(self.meta_protocol("stat", &other)),
            }
        })
    }

    /// Completes the answer of `ask`, which lets data servers be asked. A server may be away for longer than that holds: then it
    /// asks again.
    pub fn look_by(&self, ask: impl Fn() -> Result<NodeReply>) -> Result<(Attributes, Looked)> {
        let mut left = LOOKS;
        loop {
            left -= 1;
            match self.looked(ask()?) {
                Err(e) if e.kind() == ErrorKind::ExpiredCapability && left > 0 => {}
                done => return done,
            }
        }
    }

    fn looked(&self, reply: NodeReply) -> Result<(Attributes, Looked)> {
        let (mut attributes, capability) = match reply {
            NodeReply::Look {
                attributes,
                capability,
            } => (attributes, capability),
            NodeReply::Node(attributes) => (attributes, None),
            other => return Err(self.meta_protocol("stat", &MetaReply::Node(other))),
        };
        let looked = match &capability {
            Some(capability) => self.look_together(&[capability])?.pop().unwrap_or_default(),
            None => Looked {
                len: attributes.target.as_ref().map_or(0, |t| t.len() as u64),
                ..Looked::default()
            },
        };
        looked.complete(&mut attributes);
        Ok((attributes, looked))
    }

    /// An answer that does not belong to its request.
    pub fn unexpected(&self, operation: &'static str, reply: &MetaReply) -> Error {
        self.meta_protocol(operation, reply)
    }

    /// Removes the objects of a file that has no name any more.
    pub fn remove_bytes(&self, capability: &Capability) {
        self.remove_objects(capability);
    }
}

pub(crate) fn name_of(request: &NodeRequest) -> &'static str {
    match request {
        NodeRequest::Lookup { .. } => "look up",
        NodeRequest::Keep { .. } => "keep open files",
        NodeRequest::Stat { .. } | NodeRequest::Look { .. } => "stat",
        NodeRequest::Open { .. } => "open",
        NodeRequest::Create { .. } => "create",
        NodeRequest::Mkdir { .. } => "mkdir",
        NodeRequest::Symlink { .. } => "symlink",
        NodeRequest::Link { .. } => "link",
        NodeRequest::Unlink { .. } => "unlink",
        NodeRequest::Rmdir { .. } => "rmdir",
        NodeRequest::Rename { .. } => "rename",
        NodeRequest::Reap { .. } => "close a removed file",
        NodeRequest::Readdir { .. } => "readdir",
        NodeRequest::SetAttr { .. } => "set attributes",
        NodeRequest::GetXattr { .. } => "get an extended attribute",
        NodeRequest::ListXattr { .. } => "list extended attributes",
        NodeRequest::SetXattr { .. } => "set an extended attribute",
        NodeRequest::RemoveXattr { .. } => "remove an extended attribute",
        NodeRequest::Lock { .. } | NodeRequest::AwaitUnlock { .. } => "lock",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_wire::message::NodeKind;

    fn attributes(mtime_ns: i64, mtime_set_ns: i64) -> Attributes {
        Attributes {
            id: FileId(2),
            kind: NodeKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            ctime_ns: 10,
            mtime_ns,
            atime_ns: 10,
            layout: None,
            mtime_set_ns,
            target: None,
            given: false,
        }
    }

    #[test]
    fn the_newest_of_a_set_time_and_a_write_counts() {
        let looked = |modified_ns| Looked {
            modified_ns,
            ..Looked::default()
        };
        for (mtime, set, modified, expected) in [
            (10, 0, None, 10),
            (10, 0, Some(30), 30),
            (10, 0, Some(9), 10),
            // Set to the past at 20, then written, or not.
            (5, 20, Some(15), 5),
            (5, 20, Some(30), 30),
            // Set to the future, then written.
            (99, 20, Some(30), 30),
        ] {
            let mut a = attributes(mtime, set);
            looked(modified).complete(&mut a);
            assert_eq!(a.mtime_ns, expected, "{mtime} {set} {modified:?}");
            assert_eq!(a.ctime_ns, 10.max(modified.unwrap_or(0)));
        }
    }
}
