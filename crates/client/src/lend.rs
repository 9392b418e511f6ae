//! A descriptor of a whole file for the kernel of a mount, which then reads and writes by itself.
//!
//! Unlike a shortcut it is not revoked: the data server's `passthrough` states the conditions.
use crate::fault::Fault;
use crate::file::File;
use crate::unsynced::Taken;
use penstock_trace::{Operation, sink};
use penstock_wire::message::{DataReply, DataRequest};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;

const LEND: &str = "borrow a file";

impl File {
    /// The descriptor of the file's only object, or why it is not lent. With `write`, range locks on the file wait
    /// until every copy of the descriptor is closed, or its flock(2) is given up.
    pub fn lend(&self, write: bool) -> std::result::Result<OwnedFd, String> {
        let file = &*self.0;
        let [site] = &file.sites[..] else {
            return Err(format!("striped over {} servers", file.sites.len()));
        };
        if !site.is_local() {
            return Err("its server is on another host".into());
        }
        let call = file.begin_call(Operation::LENT);
        let trace = file.client.trace_of(call.as_ref());
        let _permit = file.client.permit().map_err(|e| e.to_string())?;
        let asked = || -> std::result::Result<_, Fault> {
            let mut link = site.connect(LEND)?;
            if !link.is_unix() {
                site.put(link);
                return Ok(Err("its server is on another host".to_owned()));
            }
            let handle = file.attach(&mut link, trace)?;
            let lent = match link.call(LEND, trace, &DataRequest::Lend { handle, write })? {
                DataReply::Lent => link.descriptors().pop(),
                DataReply::NoShortcut { reason } => {
                    site.put(link);
                    return Ok(Err(reason));
                }
                other => return Err(site.unexpected(LEND, other)),
            };
            if write && lent.is_some() {
                self.write_by_kernel(file.taken(&link));
            }
            site.put(link);
            Ok(lent.ok_or_else(|| "no descriptor came".to_owned()))
        };
        let asked = asked();
        // What the kernel does with it from now on is not recorded.
        if let (Some(call), Ok(Ok(_))) = (call, &asked) {
            call.end(sink::Outcome::default());
        }
        match asked {
            Ok(answer) => answer,
            Err(Fault::Away(reason)) => Err(reason),
            Err(Fault::Final(e)) => Err(e.to_string()),
        }
    }

    /// A kernel writes by this handle from now on, with a descriptor lent to another handle of the file in this client.
    /// It does not report writes, so a sync assumes one until the handle is closed.
    pub fn written_by_kernel(&self) {
        self.write_by_kernel(0);
    }

    fn write_by_kernel(&self, taken: Taken) {
        let file = &*self.0;
        for note in &file.notes {
            if taken != 0 {
                note.wrote(taken, 0);
            }
            if !file.written_by_kernel.swap(true, SeqCst) {
                note.lend(true);
            }
        }
    }
}
