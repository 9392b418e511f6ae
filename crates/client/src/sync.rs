//! Bytes on stable storage: the servers of a file sync at the same time.
use crate::error::{Error, Result};
use crate::file::File;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, MetaReply, MetaRequest};
use std::sync::atomic::Ordering::Relaxed;

impl File {
    /// The devices begin with what is written, by anybody, of the objects to which this client has descriptors. Of clients
    /// that share this out, each takes every `parts`-th object from `part` on: who comes to an object after another would
    /// begin with the few pages written since. This promises nothing, and a sync waits for what is left.
    pub fn start_writeback(&self, part: usize, parts: usize) {
        self.0.start_writeback(part, parts);
    }

    /// Whether this client has written what no sync of its own has covered.
    pub fn is_dirty(&self) -> bool {
        self.0.notes.iter().any(|note| note.is_dirty())
    }

    /// Everything acknowledged so far, by whichever client, is on stable storage at all servers when
    /// this returns, and so are all changes of names and attributes.
    ///
    /// A data server that ends (even by kill -9) loses nothing acknowledged as long as its host stays
    /// up and its store is a directory: the bytes are in the host's page cache already. When the host crashes, or a
    /// server with a memory store ends, what was not synced is gone. If that took anything which this client wrote by any
    /// handle of the file, the call fails with [`Error::LostWrites`], once for each handle that was open. What another
    /// client lost, that client is told. A file that the metadata server does not know any more is [`Error::LostName`].
    pub fn sync(&self) -> Result<()> {
        let file = &*self.0;
        let _permit = file.client.permit()?;
        let before: Vec<u64> = file.notes.iter().map(|note| note.before_sync()).collect();
        let trace = file.client.trace();
        let replies = file.call_each("sync", trace, false, |_, handle| DataRequest::Sync {
            handle,
        })?;
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

    /// Synced bytes are worth nothing if the file's name is lost in a crash.
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
