//! Sync: the servers of a file sync at the same time.
use crate::error::{Error, Result};
use crate::file::{File, ended};
use penstock_trace::Operation;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, MetaReply, MetaRequest};
use std::sync::atomic::Ordering::Relaxed;

impl File {
    /// Starts write-back of everybody's writes to the objects of which this client has descriptors. Clients that divide
    /// this take every `parts`-th object each, from `part` on. A second client at an object would only find the few
    /// pages written since. It gives no guarantee, and a sync waits for the rest.
    pub fn start_writeback(&self, part: usize, parts: usize) {
        self.0.start_writeback(part, parts);
    }

    /// Whether this client has writes that no sync of its own has covered.
    pub fn is_dirty(&self) -> bool {
        self.0.notes.iter().any(|note| note.is_dirty())
    }

    /// Makes everything acknowledged so far, to whichever client, durable at all servers, and all changes of names and
    /// attributes too.
    ///
    /// A data server that ends (even by kill -9) loses nothing acknowledged as long as its host stays up and its store
    /// is a directory. The bytes are in the host's page cache already. When the host crashes, or a server with a memory
    /// store ends, unsynced data is lost. If that includes writes of this client by any handle of the file, the call
    /// fails with [`Error::LostWrites`], once for each handle that was open. Losses of another client are reported to
    /// that client. A file that the metadata server no longer knows is [`Error::LostName`].
    pub fn sync(&self) -> Result<()> {
        let file = &*self.0;
        let _permit = file.client.permit()?;
        let before: Vec<u64> = file.notes.iter().map(|note| note.before_sync()).collect();
        let call = file.begin_call(Operation::SYNC);
        let trace = file.client.trace_of(call.as_ref());
        let replies = file.call_each("sync", trace, false, |_, handle| DataRequest::Sync {
            handle,
        });
        ended(call, 0, &replies);
        let replies = replies?;
        let mut lost = Vec::new();
        for (i, reply) in replies.into_iter().enumerate() {
            let (site, note) = (&file.sites[i], &file.notes[i]);
            let DataReply::Synced { incarnation } = reply else {
                return Err(site
                    .unexpected("sync", reply)
                    .into_final(&site.peer, "sync"));
            };
            note.synced(before[i], site.incarnations.of(incarnation), &site.peer);
            let losses = note.losses();
            if file.told[i].swap(losses, Relaxed) != losses {
                lost.extend(note.last_loss());
            }
        }
        let named = self.sync_name();
        if !lost.is_empty() {
            return Err(Error::LostWrites {
                path: file.path.clone(),
                lost,
            });
        }
        named
    }

    /// Synced bytes are worthless if the file's name is lost in a crash.
    fn sync_name(&self) -> Result<()> {
        let file = &*self.0;
        match file
            .client
            .meta("sync", &MetaRequest::SyncFile { file: file.id })
        {
            Ok(MetaReply::Done) => Ok(()),
            Ok(other) => Err(file.client.meta_protocol("sync", &other)),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(Error::LostName {
                path: file.path.clone(),
            }),
            Err(e) => Err(e),
        }
    }
}
