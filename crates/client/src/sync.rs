//! Bytes on stable storage.
//!
//! Problem: a sync is as slow as the devices, and they idle as long as a program still writes.
//! Idea: the servers of a file sync at the same time, and this host's devices begin before that: when a client is done
//! with its writes ([`File::begin_sync`]; ranks come to a collective sync one by one), and, once it has said so after so
//! many bytes, whenever it has written another [`BEHIND`] of as many. Who syncs after every checkpoint will do it again.
//! When it pays: from writes of tens of MB between syncs on. A program that never says so is left alone; one that changes
//! its mind has written one checkpoint's bytes earlier than the system would have.
//! Parameters: [`BEHIND`].
use crate::error::{Error, Result};
use crate::file::{File, FileInner};
use penstock_host::fs::start_writeback;
use penstock_store::Object;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, MetaReply, MetaRequest};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that one client writes before the devices begin with them.
const BEHIND: u64 = 16 << 20;

/// What a client writes to a file by descriptors between syncs.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// Since the last sync, and between the two before.
    since: AtomicU64,
    usual: AtomicU64,
}

impl Behind {
    /// Counts a write; whether the devices are to begin now.
    fn wrote(&self, bytes: u64) -> bool {
        let before = self.since.fetch_add(bytes, Relaxed);
        let now = before.saturating_add(bytes);
        before / BEHIND != now / BEHIND && now <= self.usual.load(Relaxed)
    }

    fn synced(&self) {
        let since = self.since.swap(0, Relaxed);
        // A sync after nothing says nothing: several ranks may sync one after the other.
        if since > 0 {
            self.usual.store(since, Relaxed);
        }
    }
}

impl File {
    /// The devices begin with what this client has written by descriptors since the last sync. A sync must follow: this
    /// promises nothing and waits for nothing.
    pub fn begin_sync(&self) {
        self.0.behind.synced();
        self.0.start_writeback();
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

impl FileInner {
    /// Bytes have been written by descriptors.
    pub fn wrote(&self, bytes: u64) {
        if self.behind.wrote(bytes) {
            self.start_writeback();
        }
    }

    /// The devices begin with what this client has written by descriptors.
    fn start_writeback(&self) {
        let servers = self.sites.len();
        // Clients that do this at the same time begin at different servers.
        let first = std::process::id() as usize % servers.max(1);
        for i in (first..servers).chain(0..first) {
            if self.notes[i].is_dirty()
                && let Some(grant) = self.grant_at_hand(i)
            {
                grant.operate(|object| object.mappable().map(|file| start_writeback(file.fd())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_begin_early_for_who_syncs_as_usual() {
        let behind = Behind::default();
        let mut begun = 0;
        let mut write = |pieces: u64| {
            let step = || behind.wrote(BEHIND / 4);
            begun = (0..pieces).filter(|_| step()).count();
            begun
        };
        assert_eq!(write(40), 0, "no sync is known");
        behind.synced();
        assert_eq!(write(40), 10);
        behind.synced();
        behind.synced();
        assert_eq!(
            write(400),
            10,
            "what goes on longer than usual may never be synced"
        );
        behind.synced();
        assert_eq!(write(3), 0);
        behind.synced();
        assert_eq!(write(40), 0, "small ones need no help");
    }
}
