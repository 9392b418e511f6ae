//! Requests for descriptors of objects: shortcuts, and passthrough for the kernels of mounts.
use super::{Outcome, Session};
use crate::error::Fail;
use crate::handles::{Need, OpenFile};
use crate::{passthrough, shortcut};
use penstock_rpc::Connection;
use penstock_rpc::grant::GrantPage;
use penstock_wire::Envelope;
use penstock_wire::message::{DataReply, Handle, WireError};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

impl Session<'_> {
    /// Whether the peer may hold a descriptor of the file. A holder can truncate the object and lock it with flock(2)
    /// for ever, so only the file's owner and root may hold one (docs/decisions/0021).
    fn may_hold(&self, file: &OpenFile) -> Result<(), &'static str> {
        let may = match (self.acting.process, file.lend_to) {
            (None, _) => Err("descriptors need a Unix socket"),
            (_, None) => {
                Err("the file has belonged to another user, who may hold descriptors of it")
            }
            (Some(who), Some(owner)) if who.uid == owner || who.uid == 0 => Ok(()),
            _ => Err("only the file's owner and root get descriptors of it"),
        };
        if let Err(reason) = may {
            self.watch.no_descriptor(file.file, reason);
        }
        may
    }

    pub(super) fn shortcut(
        &mut self,
        connection: &mut Connection,
        envelope: &Envelope,
        handle: Handle,
    ) -> Result<Outcome, Fail> {
        let no = |reason: &str| {
            Ok(Outcome::Reply(DataReply::NoShortcut {
                reason: reason.to_owned(),
            }))
        };
        if !self.server.options.shortcuts || self.server.queue.is_on() {
            return no("this server sees each request");
        }
        let file = self.file(handle, Need::Any)?;
        if let Err(reason) = self.may_hold(file) {
            return no(reason);
        }
        let usage = self.server.objects.usage();
        let owner = usage.believed(&file.grower());
        let limited = || usage.is_limited(file.file, owner);
        let write = file.rights.write && !self.server.options.read_only && !limited();
        let (object, page, page_fd) = match self.prepare(file, write)? {
            Ok(all) => all,
            Err(reason) => return no(&reason),
        };
        let charge = match self.server.shortcuts.take(file.owner.payer) {
            Ok(charge) => charge,
            Err(e) => {
                self.watch.beyond_limit(file.file, &e.message);
                return no(&e.message);
            }
        };
        let counted = page.clone();
        // Descriptors travel in order with all that was answered before.
        let queue = &self.server.queue;
        // Looked at with the object's mutex held: whoever switches the queue on takes back what was granted before.
        let granted = file.object.grant(|grants| {
            let seen = queue.is_on() || (write && limited());
            (!seen).then(|| grants.add(file.owner, page, charge))
        });
        match granted {
            Some(None) => return no("this server sees each request"),
            None => return no("the file is locked"),
            Some(Some(false)) => return no("this connection has shortcuts to the file already"),
            Some(Some(true)) => self.server.load.granted(self.program, counted),
        }
        let reply = DataReply::Shortcut { writable: write };
        let fds = [object.as_fd(), page_fd.as_fd()];
        connection.send_descriptors(&envelope.answer(), &reply, &fds)?;
        Ok(Outcome::Answered)
    }

    /// A descriptor that the client's kernel keeps: see [`passthrough`].
    pub(super) fn lend(
        &mut self,
        connection: &mut Connection,
        envelope: &Envelope,
        handle: Handle,
        write: bool,
    ) -> Result<Outcome, Fail> {
        let no = |reason: &str| {
            Ok(Outcome::Reply(DataReply::NoShortcut {
                reason: reason.to_owned(),
            }))
        };
        if self.acting.process.is_none_or(|who| who.uid != 0) {
            return no("passthrough is for root of the same host");
        }
        let queue = &self.server.queue;
        if !self.server.options.shortcuts || queue.is_on() {
            return no("this server sees each request");
        }
        let file = self.file(handle, Need::Any)?;
        if let Err(reason) = self.may_hold(file) {
            return no(reason);
        }
        if file.layout.servers.len() != 1 {
            return no("the file is striped over several servers");
        }
        if write && (!file.rights.write || self.server.options.read_only) {
            return no("not open for writing");
        }
        let usage = self.server.objects.usage();
        let owner = usage.believed(&file.grower());
        let limited = || usage.is_limited(file.file, owner);
        if write && limited() {
            return no("the file's owner has a limit on bytes");
        }
        let objects = &self.server.objects;
        let object = if write {
            Some(objects.created(&file.object, file.owner)?)
        } else {
            objects.existing(&file.object)?
        };
        let Some((object, fd)) = object.as_ref().and_then(|o| Some((o, o.mappable()?.fd()))) else {
            return no("the file has no bytes yet");
        };
        if let Err(e) = file.object.pin(object, file.owner) {
            return no(&e.message);
        }
        if let Err(reason) = passthrough::suits(fd) {
            return no(reason);
        }
        let made = shortcut::reopen(fd, true, false);
        let lent = match made {
            Ok(lent) => lent,
            Err(e) => return no(&format!("the system refused: {e}")),
        };
        if write {
            objects.store().share();
            // Looked at with the object's mutex held: whoever locks from now on finds the loan.
            match file.object.lend(&lent, || !queue.is_on() && !limited()) {
                Ok(true) => {}
                Ok(false) => return no("the file is locked, or each request is seen"),
                Err(e) => return no(&format!("the system refused: {e}")),
            }
        }
        connection.send_descriptors(&envelope.answer(), &DataReply::Lent, &[lent.as_fd()])?;
        Ok(Outcome::Answered)
    }

    /// What a shortcut consists of: descriptor, grant page, its descriptor. Or why there can be none.
    #[allow(clippy::type_complexity)]
    fn prepare(
        &self,
        file: &OpenFile,
        write: bool,
    ) -> Result<Result<(OwnedFd, Arc<GrantPage>, OwnedFd), String>, WireError> {
        let objects = &self.server.objects;
        let object = if write {
            Some(objects.created(&file.object, file.owner)?)
        } else {
            objects.existing(&file.object)?
        };
        let Some((object, fd)) = object.as_ref().and_then(|o| Some((o, o.mappable()?.fd()))) else {
            return Ok(Err("the object has no descriptor yet".into()));
        };
        if let Err(e) = file.object.pin(object, file.owner) {
            return Ok(Err(e.message));
        }
        let made = shortcut::reopen(fd, file.rights.read, write)
            .and_then(|fd| GrantPage::create().map(|(page, page_fd)| (fd, page, page_fd)));
        Ok(match made {
            Ok((fd, page, page_fd)) => Ok((fd, Arc::new(page), page_fd)),
            Err(e) => Err(format!("the system refused: {e}")),
        })
    }
}
