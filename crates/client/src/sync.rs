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
use penstock_wire::message::{DataRequest, MetaReply, MetaRequest};
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

    /// Everything acknowledged so far, by whichever client, is on stable storage at all servers when
    /// this returns.
    ///
    /// A data server that ends (even by kill -9) loses nothing acknowledged as long as its host stays
    /// up and its store is a directory: the bytes are in the host's page cache already. After a crash
    /// of the host, bytes not covered by a successful sync may be gone. A memory store loses
    /// everything with its server: if one was restarted since this file's last sync, the call fails
    /// with [`Error::LostWrites`] instead of reporting success.
    pub fn sync(&self) -> Result<()> {
        let file = &*self.0;
        let _permit = file.client.permit()?;
        let noted: Vec<u64> = file.unsynced.iter().map(|u| u.load(Relaxed)).collect();
        let replies = file.call_each("sync", file.client.trace(), |_, handle| {
            DataRequest::Sync { handle }
        })?;
        file.all_done("sync", replies)?;
        for (i, noted) in noted.into_iter().enumerate() {
            let site = &file.sites[i];
            let lost = noted != 0 && noted - 1 != site.epoch() && site.is_volatile();
            // Writes acknowledged meanwhile stay noted.
            let _ = file.unsynced[i].compare_exchange(noted, 0, Relaxed, Relaxed);
            if lost {
                return Err(Error::LostWrites {
                    peer: site.peer.clone(),
                    path: file.path.clone(),
                    store: "memory".into(),
                });
            }
        }
        self.sync_name()
    }

    /// Synced bytes are worth nothing if the file's name is lost in a crash. Once it is durable it stays so.
    fn sync_name(&self) -> Result<()> {
        let file = &*self.0;
        if file.named.load(Relaxed) {
            return Ok(());
        }
        match file
            .client
            .meta("sync", &MetaRequest::SyncFile { file: file.id })?
        {
            MetaReply::Done => {
                file.named.store(true, Relaxed);
                Ok(())
            }
            other => Err(file.client.meta_protocol("sync", &other)),
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
            let grant = match self.unsynced[i].load(Relaxed) {
                0 => None,
                _ => self.grant_at_hand(i),
            };
            if let Some(grant) = grant {
                grant.operate(|object| object.fd().map(start_writeback));
            }
        }
    }

    /// Writes to server `i` begin, to be acknowledged on the connections of now or later.
    pub fn note_write(&self, i: usize) {
        if self.unsynced[i].load(Relaxed) != 0 {
            return;
        }
        let epoch = self.sites[i].epoch() + 1;
        // An older epoch stays: its writes may be lost.
        let _ = self.unsynced[i].compare_exchange(0, epoch, Relaxed, Relaxed);
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
