//! Devices begin with written bytes before a sync asks for them.
//!
//! Problem: a sync is as slow as the devices, and they idle as long as a program still writes.
//! Idea: this host's devices begin when a client is done with its writes ([`crate::File::begin_sync`]; ranks come to a
//! collective sync one by one), and, once it has said so after so many bytes, whenever it has written another
//! [`BEHIND`] of as many. Who syncs after every checkpoint will do it again.
//! When it pays: from writes of tens of MB between syncs on. A program that never says so is left alone; one that changes
//! its mind has written one checkpoint's bytes earlier than the system would have.
//! Parameters: [`BEHIND`].
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
    pub fn wrote(&self, bytes: u64) -> bool {
        let before = self.since.fetch_add(bytes, Relaxed);
        let now = before.saturating_add(bytes);
        before / BEHIND != now / BEHIND && now <= self.usual.load(Relaxed)
    }

    /// A sync begins: what was written before it is the measure for what comes.
    pub fn synced(&self) {
        let since = self.since.swap(0, Relaxed);
        // A sync after nothing says nothing: several ranks may sync one after the other.
        if since > 0 {
            self.usual.store(since, Relaxed);
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
