//! The name space: everything that has a path. The metadata server decides; objects are removed at the data servers
//! with the capability that it issues.
use crate::client::Client;
use crate::connection_pool::ConnectionPool;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::path::normalise;
use penstock_wire::message::{
    Attributes, Capability, DataReply, DataRequest, DataStatus, ErrorKind, LedgerStatus, MetaReply,
    MetaRequest, MetaStatus, Programs, SLOTS,
};
use std::sync::Arc;

/// Entries of one page of a directory.
const PAGE: u32 = 1024;

/// The question of a server about itself, in messages.
const STATUS: &str = "status";

fn said(site: &ConnectionPool, reply: DataReply) -> Result<DataStatus> {
    match reply {
        DataReply::Status(status) => Ok(*status),
        other => Err(site
            .unexpected(STATUS, other)
            .into_final(&site.peer, STATUS)),
    }
}

/// Attributes and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// What the metadata server knows.
    pub attributes: Attributes,
    /// Bytes of a file or of the path in a symbolic link; 0 for a directory.
    pub size: u64,
}

/// Which attributes to change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last change of content, nanoseconds since the epoch.
    pub mtime_ns: Option<i64>,
    /// Last access, nanoseconds since the epoch.
    pub atime_ns: Option<i64>,
}

impl Client {
    /// Several metadata requests in one message, answered in order. Paths must be normalised. A message has at most as many
    /// changes as there are slots, so longer ones are divided.
    pub fn batch(&self, requests: Vec<MetaRequest>) -> Result<Vec<MetaReply>> {
        /// Half of the slots: other threads of the client go on.
        const CHANGES: usize = SLOTS as usize / 2;
        let mut replies = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let (mut part, mut changes) = (Vec::new(), 0);
            while let Some(request) = requests.next_if(|r| changes < CHANGES || !r.changes()) {
                changes += usize::from(request.changes());
                part.push(request);
            }
            let count = part.len();
            match self.meta("batch", &MetaRequest::Batch(part))? {
                MetaReply::Batch(part) if part.len() == count => replies.extend(part),
                other => return Err(self.meta_protocol("batch", &other)),
            }
        }
        Ok(replies)
    }

    fn expect<T>(
        &self,
        operation: &'static str,
        request: &MetaRequest,
        take: impl FnOnce(MetaReply) -> std::result::Result<T, Box<MetaReply>>,
    ) -> Result<T> {
        take(self.meta(operation, request)?).map_err(|reply| self.meta_protocol(operation, &reply))
    }

    fn done(&self, operation: &'static str, request: &MetaRequest) -> Result<()> {
        self.expect(operation, request, |reply| match reply {
            MetaReply::Done => Ok(()),
            other => Err(other.into()),
        })
    }

    pub(crate) fn attributes(&self, path: &str) -> Result<Attributes> {
        let path = normalise(path)?;
        self.expect("stat", &MetaRequest::Stat { path }, |reply| match reply {
            MetaReply::Attributes(a) => Ok(a),
            other => Err(other.into()),
        })
    }

    /// Attributes of a path, and the size and times of a file, for which its data servers are asked.
    pub fn stat(&self, path: &str) -> Result<Stat> {
        let (attributes, looked) = self.look_at(normalise(path)?, false)?;
        Ok(Stat {
            attributes,
            size: looked.len,
        })
    }

    /// Removes a file: first its name, then its objects. Objects that cannot be removed now (a server
    /// is down) are left without a name; `penstock check` frees them.
    pub fn unlink(&self, path: &str) -> Result<()> {
        let path = normalise(path)?;
        let capability = match self.meta("unlink", &MetaRequest::Unlink { path })? {
            MetaReply::Unlinked { capability } => capability,
            other => return Err(self.meta_protocol("unlink", &other)),
        };
        if let Some(capability) = capability {
            self.remove_objects(&capability);
        }
        Ok(())
    }

    /// Task `task` of a launcher's step is about to write or remove a file. Returns the task of the step that said so
    /// first ([`MetaRequest::Writes`]).
    pub fn writer(&self, path: &str, step: u64, task: u32) -> Result<u32> {
        let path = normalise(path)?;
        let request = MetaRequest::Writes { path, step, task };
        self.expect("see who writes", &request, |reply| match reply {
            MetaReply::Writer(task) => Ok(task),
            other => Err(other.into()),
        })
    }

    pub(crate) fn remove_objects(&self, capability: &Capability) {
        let Ok(sites) = self.sites(&capability.layout) else {
            log::warn!(
                "objects of file {} stay: the deployment file lacks their servers",
                capability.file.0
            );
            return;
        };
        let trace = self.trace();
        let Ok(_permit) = self.permit() else {
            return;
        };
        // All servers at once, each tried once: a missing server must not delay an unlink.
        let mut asked = Vec::new();
        let left = |site: &crate::connection_pool::ConnectionPool, fault: Fault| {
            log::warn!(
                "an object of file {} stays at {} until `penstock check`: {}",
                capability.file.0,
                site.peer,
                fault.into_final(&site.peer, "remove")
            );
        };
        for site in &sites {
            let request = DataRequest::Remove {
                capability: capability.clone(),
            };
            let ask = || {
                let mut link = site.connect("remove")?;
                let id = link.ask("remove", trace, &request)?;
                Ok((link, id))
            };
            match ask() {
                Ok((link, id)) => asked.push((site, link, id)),
                Err(fault) => left(site, fault),
            }
        }
        for (site, mut link, id) in asked {
            match link.answer("remove", id) {
                Ok(DataReply::Done) => site.put(link),
                Ok(DataReply::Error(e)) if e.kind == ErrorKind::NotFound => site.put(link),
                Ok(other) => left(site, site.unexpected("remove", other)),
                Err(fault) => left(site, fault),
            }
        }
    }

    /// Renames a file or directory; an existing file at `to` is replaced and its objects removed.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (normalise(from)?, normalise(to)?);
        match self.meta("rename", &MetaRequest::Rename { from, to })? {
            MetaReply::Done => Ok(()),
            MetaReply::Unlinked { capability } => {
                if let Some(capability) = capability {
                    self.remove_objects(&capability);
                }
                Ok(())
            }
            other => Err(self.meta_protocol("rename", &other)),
        }
    }

    /// Creates a directory.
    pub fn mkdir(&self, path: &str, mode: u32) -> Result<()> {
        let path = normalise(path)?;
        self.done("mkdir", &MetaRequest::Mkdir { path, mode })
    }

    /// Makes a symbolic link with `target` in it.
    pub fn symlink(&self, path: &str, target: &str) -> Result<()> {
        let path = normalise(path)?;
        let target = target.to_owned();
        self.done("symlink", &MetaRequest::Symlink { path, target })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: &str) -> Result<()> {
        let path = normalise(path)?;
        self.done("rmdir", &MetaRequest::Rmdir { path })
    }

    /// Calls `f` for each entry of a directory, in name order, page by page.
    pub fn readdir_each(&self, path: &str, mut f: impl FnMut(String, Attributes)) -> Result<()> {
        let path = normalise(path)?;
        let mut after = None;
        loop {
            let request = MetaRequest::Readdir {
                path: path.clone(),
                after: after.take(),
                limit: PAGE,
            };
            let (entries, more) = self.expect("readdir", &request, |reply| match reply {
                MetaReply::Entries { entries, more } => Ok((entries, more)),
                other => Err(other.into()),
            })?;
            after = entries.last().map(|(name, _)| name.clone());
            for (name, attributes) in entries {
                f(name, attributes);
            }
            if !more || after.is_none() {
                return Ok(());
            }
        }
    }

    /// All entries of a directory, in name order.
    pub fn readdir(&self, path: &str) -> Result<Vec<(String, Attributes)>> {
        let mut all = Vec::new();
        self.readdir_each(path, |name, attributes| all.push((name, attributes)))?;
        Ok(all)
    }

    /// Changes attributes.
    pub fn set_attributes(&self, path: &str, change: &SetAttributes) -> Result<()> {
        let path = normalise(path)?;
        let SetAttributes {
            mode,
            uid,
            gid,
            mtime_ns,
            atime_ns,
        } = *change;
        let request = MetaRequest::SetAttr {
            path,
            mode,
            uid,
            gid,
            mtime_ns,
            atime_ns,
        };
        match self.meta("set attributes", &request)? {
            MetaReply::Done | MetaReply::Attributes(_) => Ok(()),
            other => Err(self.meta_protocol("set attributes", &other)),
        }
    }

    /// All names acknowledged so far are on stable storage when this returns.
    pub fn sync_metadata(&self) -> Result<()> {
        self.done("sync metadata", &MetaRequest::Sync)
    }

    /// The metadata server's status.
    pub fn meta_status(&self) -> Result<MetaStatus> {
        self.expect("status", &MetaRequest::Status, |reply| match reply {
            MetaReply::Status(s) => Ok(s),
            other => Err(other.into()),
        })
    }

    /// The programs that the metadata server lists: the caller's, or all ([`MetaRequest::Programs`]).
    pub fn programs(&self) -> Result<Programs> {
        self.expect(
            "list programs",
            &MetaRequest::Programs,
            |reply| match reply {
                MetaReply::Programs(programs) => Ok(programs),
                other => Err(other.into()),
            },
        )
    }

    /// Each data server's status, or the error of its query.
    pub fn data_status(&self) -> Vec<(penstock_layout::ServerId, Result<DataStatus>)> {
        self.data_sites()
            .map(|(id, site)| (id, self.status_of(site)))
            .collect()
    }

    /// What one data server says of itself, asked once. Threads may ask several at once.
    pub fn data_status_of(&self, server: penstock_layout::ServerId) -> Result<DataStatus> {
        match self.data_sites().find(|(id, _)| *id == server) {
            Some((_, site)) => said(site, self.ask(site, STATUS, &DataRequest::Status)?),
            None => Err(Error::Invalid(format!("no data server {}", server.0))),
        }
    }

    /// Who loads one data server: all programs for administrators, else one's own.
    pub fn ledger_of(&self, server: penstock_layout::ServerId) -> Result<LedgerStatus> {
        const OPERATION: &str = "ask for the ledger";
        let Some((_, site)) = self.data_sites().find(|(id, _)| *id == server) else {
            return Err(Error::Invalid(format!("no data server {}", server.0)));
        };
        match self.ask(site, OPERATION, &DataRequest::Ledger)? {
            DataReply::Ledger(ledger) => Ok(*ledger),
            other => Err(site
                .unexpected(OPERATION, other)
                .into_final(&site.peer, OPERATION)),
        }
    }

    fn status_of(&self, site: &Arc<ConnectionPool>) -> Result<DataStatus> {
        said(site, self.data(site, STATUS, &DataRequest::Status)?)
    }

    /// Asks the metadata server to end (administrators).
    pub fn shut_down_meta(&self) -> Result<()> {
        self.done("shut down", &MetaRequest::Shutdown)
    }

    /// Changes settings of one data server, each `name=value` (administrators).
    pub fn tune(&self, server: penstock_layout::ServerId, settings: &[String]) -> Result<()> {
        let Some((_, site)) = self.data_sites().find(|(id, _)| *id == server) else {
            return Err(Error::Invalid(format!("no data server {}", server.0)));
        };
        let settings = settings.to_vec();
        match self.data(site, "change settings", &DataRequest::Tune { settings })? {
            DataReply::Done => Ok(()),
            other => Err(site
                .unexpected("change settings", other)
                .into_final(&site.peer, "change settings")),
        }
    }

    /// Has the bytes of a data server's fast tier come home (administrators); its status says how many wait.
    pub fn drain(&self, server: penstock_layout::ServerId) -> Result<()> {
        let Some((_, site)) = self.data_sites().find(|(id, _)| *id == server) else {
            return Err(Error::Invalid(format!("no data server {}", server.0)));
        };
        match self.data(site, "drain", &DataRequest::Drain)? {
            DataReply::Done => Ok(()),
            other => Err(site
                .unexpected("drain", other)
                .into_final(&site.peer, "drain")),
        }
    }

    /// Asks one data server to end (administrators).
    pub fn shut_down_data(&self, server: penstock_layout::ServerId) -> Result<()> {
        let Some((_, site)) = self.data_sites().find(|(id, _)| *id == server) else {
            return Err(Error::Invalid(format!("no data server {}", server.0)));
        };
        match self.data(site, "shut down", &DataRequest::Shutdown)? {
            DataReply::Done => Ok(()),
            other => Err(site
                .unexpected("shut down", other)
                .into_final(&site.peer, "shut down")),
        }
    }
}
