//! Reserves space for a file on all its servers, or on none.
//!
//! Each server first reserves the space outside the object, on a connection that is kept until all have answered. If
//! one refuses, the others release theirs, and no object has been touched. A server that cannot be asked now, or does
//! not support this, reserves directly.
use crate::error::Result;
use crate::file::File;
use crate::link::Link;
use crate::open_file::OpenFile;
use penstock_layout::ServerIndex;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Handle, TraceContext};

const ALLOCATE: &str = "allocate";

/// A server, asked on this connection.
struct Asked {
    at: usize,
    link: Link,
    handle: Handle,
}

impl File {
    /// Reserves space for the first `len` bytes; the file is at least that long afterwards. Where there is not enough
    /// space nothing is reserved, and nothing that others wrote is touched.
    pub fn allocate(&self, len: u64) -> Result<()> {
        let file = &*self.0;
        file.may(ALLOCATE, file.write)?;
        if len == 0 {
            return Ok(());
        }
        {
            let _permit = file.client.permit()?;
            let trace = file.client.trace();
            let take = |i, handle| DataRequest::Allocate {
                handle,
                len: file.layout.object_len(len, i),
            };
            let holders = file.hold(len, trace)?;
            let mut taken = 0;
            for (asked, reply) in file.ask_all(holders, trace, take) {
                taken += usize::from(reply == DataReply::Done);
                file.sites[asked.at].put(asked.link);
            }
            if taken < file.sites.len() {
                // Those that hold nothing, or failed: reserving what is reserved already changes nothing.
                let replies = file.call_each(ALLOCATE, trace, true, take)?;
                file.all_done(ALLOCATE, replies)?;
            }
        }
        self.extend(len)
    }
}

impl OpenFile {
    /// The servers that have reserved their part; on an error no server has, because one has no space.
    fn hold(&self, len: u64, trace: TraceContext) -> Result<Vec<Asked>> {
        let connected = (0..self.sites.len()).filter_map(|at| {
            let mut link = self.sites[at].connect(ALLOCATE).ok()?;
            let handle = self.attach(&mut link, trace).ok()?;
            Some(Asked { at, link, handle })
        });
        let connected = connected.collect();
        let hold = |i, handle| DataRequest::Hold {
            handle,
            len: self.layout.object_len(len, i),
        };
        let mut holders = Vec::new();
        let mut full = None;
        for (asked, reply) in self.ask_all(connected, trace, hold) {
            let site = &self.sites[asked.at];
            match reply {
                DataReply::Done => holders.push(asked),
                DataReply::Error(e) if e.kind == ErrorKind::NoSpace => {
                    let why = site.unexpected(ALLOCATE, DataReply::Error(e));
                    full = Some(why.into_final(&site.peer, ALLOCATE));
                    site.put(asked.link);
                }
                _ => site.put(asked.link),
            }
        }
        let Some(full) = full else {
            return Ok(holders);
        };
        let give_back = |_, handle| DataRequest::Hold { handle, len: 0 };
        for (asked, _) in self.ask_all(holders, trace, give_back) {
            self.sites[asked.at].put(asked.link);
        }
        Err(full)
    }

    /// One request to each of these servers, all at once. A server whose connection breaks is left out.
    fn ask_all(
        &self,
        servers: Vec<Asked>,
        trace: TraceContext,
        make: impl Fn(ServerIndex, Handle) -> DataRequest,
    ) -> Vec<(Asked, DataReply)> {
        let sent = servers.into_iter().filter_map(|mut to| {
            let request = make(ServerIndex(to.at as u32), to.handle);
            let id = to.link.ask(ALLOCATE, trace, &request).ok()?;
            Some((to, id))
        });
        let sent: Vec<_> = sent.collect();
        let answered = sent.into_iter().filter_map(|(mut from, id)| {
            let reply = from.link.answer(ALLOCATE, id).ok()?;
            Some((from, reply))
        });
        answered.collect()
    }
}
