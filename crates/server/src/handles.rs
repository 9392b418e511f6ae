//! The open files of one connection at this server, by handle.
//!
//! Attaching the same file with the same rights again renews the existing handle; other rights make another one. So a
//! client can renew a capability without affecting others, and an open for reading never takes rights from an open for
//! writing.
use crate::error::refuse;
use crate::objects::OpenObject;
use crate::owner::Owner;
use crate::usage::Grower;
use penstock_host::reservation::Reservation;
use penstock_layout::{FileId, Layout, ServerIndex};
use penstock_rpc::share::Charge;
use penstock_wire::Rights;
use penstock_wire::message::{Capability, ErrorKind, Handle, WireError};
use std::cell::Cell;
use std::sync::Arc;

/// Handles of one connection.
const MAX_HANDLES: usize = 4096;

/// One open file.
pub(crate) struct OpenFile {
    pub(crate) file: FileId,
    /// The connection, and the user for whom the file was opened.
    pub(crate) owner: Owner,
    pub(crate) rights: Rights,
    /// When the newest capability was issued and when the last one expires, by the metadata server's time,
    /// milliseconds.
    pub(crate) issued_ms: u64,
    pub(crate) expires_ms: u64,
    /// The only user, besides root, who gets descriptors of the object.
    pub(crate) lend_to: Option<u32>,
    pub(crate) layout: Layout,
    /// This server's index in the file's layout.
    pub(crate) index: ServerIndex,
    pub(crate) object: Arc<OpenObject>,
    /// Space reserved until the file uses it.
    pub(crate) reservation: Cell<Option<Reservation>>,
    /// Charges the user's share of open files.
    _charge: Charge,
}

impl OpenFile {
    /// Who extends the object, if this is written.
    pub(crate) fn grower(&self) -> Grower {
        Grower {
            file: self.file,
            owner: self.lend_to,
            issued_ms: self.issued_ms,
            root: self.owner.user == 0,
            removed: self.object.is_removed(),
        }
    }
}

/// The rights that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    Write,
    /// Either.
    Any,
    /// None: to query the file, as `stat` does.
    Ask,
}

/// The open files of a connection.
#[derive(Default)]
pub(crate) struct Handles {
    slots: Vec<Option<OpenFile>>,
}

impl Handles {
    /// Adds or renews. A new handle is charged; a renewed one stays charged to its first owner.
    pub(crate) fn attach(
        &mut self,
        capability: Capability,
        index: ServerIndex,
        owner: Owner,
        charge: impl FnOnce() -> Result<Charge, WireError>,
        open: impl FnOnce(FileId) -> Arc<OpenObject>,
    ) -> Result<Handle, WireError> {
        let rights = Rights {
            read: capability.read,
            write: capability.write,
            remove: capability.remove,
        };
        let mut free = None;
        for (at, slot) in self.slots.iter_mut().enumerate() {
            match slot {
                Some(f) if f.file == capability.file && f.rights == rights => {
                    f.expires_ms = f.expires_ms.max(capability.expires_ms);
                    if capability.issued_ms >= f.issued_ms {
                        f.issued_ms = capability.issued_ms;
                        f.lend_to = capability.lend_to;
                    }
                    return Ok(Handle(at as u32));
                }
                Some(_) => {}
                None => free = free.or(Some(at)),
            }
        }
        if free.is_none() && self.slots.len() >= MAX_HANDLES {
            return Err(refuse(
                ErrorKind::Busy,
                format!("this connection has {MAX_HANDLES} files open here, its limit; close some"),
            ));
        }
        let charge = charge()?;
        let at = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(OpenFile {
            file: capability.file,
            owner,
            rights,
            issued_ms: capability.issued_ms,
            expires_ms: capability.expires_ms,
            lend_to: capability.lend_to,
            layout: capability.layout,
            index,
            object: open(capability.file),
            reservation: Cell::default(),
            _charge: charge,
        });
        Ok(Handle(at as u32))
    }

    /// Forgets a handle. Returns the object if no other handle of this connection refers to it.
    pub(crate) fn detach(&mut self, handle: Handle) -> Result<Option<Arc<OpenObject>>, WireError> {
        let file = self
            .slots
            .get_mut(handle.0 as usize)
            .and_then(Option::take)
            .ok_or_else(|| unknown(handle))?;
        let still_open = self.slots.iter().flatten().any(|f| f.file == file.file);
        Ok((!still_open).then_some(file.object))
    }

    /// The file of a handle, without a check of rights.
    pub(crate) fn named(&self, handle: Handle) -> Option<FileId> {
        let file = self.slots.get(handle.0 as usize)?.as_ref();
        file.map(|file| file.file)
    }

    /// The file, if its rights allow `need` and have not expired at `now_ms`.
    pub(crate) fn get(
        &self,
        handle: Handle,
        need: Need,
        now_ms: u64,
    ) -> Result<&OpenFile, WireError> {
        let file = self
            .slots
            .get(handle.0 as usize)
            .and_then(Option::as_ref)
            .ok_or_else(|| unknown(handle))?;
        let allowed = match need {
            Need::Read => file.rights.read,
            Need::Write => file.rights.write,
            Need::Any => file.rights.read || file.rights.write,
            Need::Ask => true,
        };
        if !allowed {
            return Err(refuse(
                ErrorKind::Permission,
                format!(
                    "file {} was not opened for {}",
                    file.file.0,
                    if need == Need::Read {
                        "reading"
                    } else {
                        "writing"
                    }
                ),
            ));
        }
        if now_ms >= file.expires_ms {
            return Err(refuse(
                ErrorKind::ExpiredCapability,
                format!(
                    "the capability for file {} has expired; renew it at the metadata server and attach again",
                    file.file.0
                ),
            ));
        }
        Ok(file)
    }

    /// All objects this connection has open, each at least once.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<OpenObject>> {
        self.slots.iter().flatten().map(|f| &f.object)
    }
}

fn unknown(handle: Handle) -> WireError {
    refuse(
        ErrorKind::InvalidArgument,
        format!("no file is attached under handle {}", handle.0),
    )
}
