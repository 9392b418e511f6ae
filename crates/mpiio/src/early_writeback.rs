//! Early write-back: devices begin to write before a sync asks for it.
//!
//! Problem: a sync is as slow as the devices, and they are idle while a program still writes. But devices handle a few
//! long requests faster than many short ones. Ranks that do not wait for each other drift apart. If each writes every
//! fourth MiB, the bytes that one of them has written are a strided quarter of the file. Idea: a program that syncs
//! after a checkpoint will do so again. At a sync the ranks exchange how much they have written by collective calls
//! since the last one. In the next interval they meet before the collective write at which each has written another
//! [`LIMIT`] bytes on average. The devices then begin to write what is complete. All ranks count the same calls, so
//! all find the same call. The ranks of a node divide the objects among them: a second rank at an object would only
//! find the few pages written since. Independent writes have no other rank to wait for: each rank's own bytes count.
//! When it pays: from tens of MB between syncs on. A program that never syncs never meets for this. One that stops
//! syncing has written one checkpoint's bytes earlier than the system would have. Parameters: [`LIMIT`].

/// Bytes that one rank writes, on average, before early write-back begins.
const LIMIT: u64 = 16 << 20;
/// The same in a simulated world, whose files are small.
const LIMIT_SIMULATED: u64 = 8 << 10;

fn limit() -> u64 {
    if penstock_host::simulated() {
        LIMIT_SIMULATED
    } else {
        LIMIT
    }
}

/// What a rank has written to a file by descriptors since the last sync, and what was usual between the two before.
#[derive(Debug, Default)]
pub(crate) struct EarlyWriteback {
    /// Number of collective writes, equal on all ranks.
    calls: u64,
    usual_calls: u64,
    /// Collective writes from one early write-back to the next, equal on all ranks; 0: none.
    period: u64,
    /// This rank's part of the early write-back of its node's writing ranks, as in the last interval.
    share: Option<(usize, usize)>,
    /// Bytes that this rank wrote by collective calls.
    collective: u64,
    /// Bytes that this rank wrote independently.
    independent: u64,
    usual_independent: u64,
}

impl EarlyWriteback {
    /// A collective write begins; returns whether the ranks are to meet and write-back of earlier writes is to begin.
    pub(crate) fn is_due(&mut self) -> bool {
        let before = self.calls;
        self.calls = before.saturating_add(1);
        let due = before.checked_rem(self.period) == Some(0);
        due && before > 0 && before < self.usual_calls
    }

    /// Counts the bytes of a write; returns whether write-back is to begin now.
    pub(crate) fn wrote(&mut self, collective: bool, bytes: u64) -> bool {
        if collective {
            self.collective = self.collective.saturating_add(bytes);
            return false;
        }
        let before = self.independent;
        self.independent = before.saturating_add(bytes);
        let step = limit();
        before / step != self.independent / step && self.independent <= self.usual_independent
    }

    /// Bytes that this rank wrote by collective calls since the last sync, which it sends to the others at the next
    /// one.
    pub(crate) fn collective(&self) -> u64 {
        self.collective
    }

    /// Whether this rank's writes since the last sync were independent. Then it need not wait for the writes of others.
    pub(crate) fn is_independent(&self) -> bool {
        self.calls == 0 && self.independent > 0
    }

    /// This rank's part of an early write-back: its number, and the number of ranks of its node that divide it.
    pub(crate) fn share(&self) -> Option<(usize, usize)> {
        self.share
    }

    /// The ranks have met for a sync: `told` is what each has written by collective calls, `share` follows from it.
    pub(crate) fn synced(&mut self, told: &[u64], share: Option<(usize, usize)>) {
        let now = std::mem::take(self);
        (self.usual_calls, self.period, self.share) = (now.usual_calls, now.period, now.share);
        self.usual_independent = now.usual_independent;
        // A sync without writes before it does not count: programs sync twice.
        if now.calls > 0 {
            let total: u128 = told.iter().map(|bytes| u128::from(*bytes)).sum();
            let calls = u128::from(now.calls) * u128::from(limit()) * told.len() as u128;
            let period = calls.div_ceil(total.max(1));
            self.usual_calls = now.calls;
            self.share = share;
            self.period = u64::try_from(period).unwrap_or(u64::MAX);
        }
        if now.independent > 0 {
            self.usual_independent = now.independent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `calls` collective writes of `bytes`, those before which early write-back begins.
    fn begun(behind: &mut EarlyWriteback, calls: u64, bytes: u64) -> Vec<u64> {
        (0..calls)
            .filter(|_| {
                let due = behind.is_due();
                assert!(!behind.wrote(true, bytes), "others are not asked");
                due
            })
            .collect()
    }

    #[test]
    fn ranks_that_write_unequal_shares_find_the_same_calls() {
        let mut ranks = [EarlyWriteback::default(), EarlyWriteback::default()];
        let mut round = |calls: u64| {
            let each = ranks.each_mut();
            let shares = [LIMIT / 2, 0];
            let due: Vec<_> = each
                .into_iter()
                .zip(shares)
                .map(|(rank, bytes)| begun(rank, calls, bytes))
                .collect();
            assert_eq!(due[0], due[1]);
            let told = ranks.each_ref().map(EarlyWriteback::collective);
            for rank in &mut ranks {
                rank.synced(&told, None);
            }
            due[0].clone()
        };
        assert!(round(10).is_empty(), "no sync is known");
        assert_eq!(round(10), [4, 8]);
        assert!(round(0).is_empty());
        assert_eq!(
            round(100),
            [4, 8],
            "what goes on longer than usual may never be synced"
        );
        assert!(round(3).is_empty(), "short ones need no help");
        assert!(round(100).is_empty());
    }

    #[test]
    fn writes_of_no_bytes_never_begin() {
        let mut behind = EarlyWriteback::default();
        for _ in 0..3 {
            assert!(begun(&mut behind, 1000, 0).is_empty());
            behind.synced(&[0, 0], None);
        }
        behind.synced(&[], None);
        begun(&mut behind, 3, u64::MAX);
        behind.synced(&[u64::MAX; 4], None);
        assert_eq!(begun(&mut behind, 3, 1), [1, 2]);
    }

    #[test]
    fn independent_writes_count_by_themselves() {
        let mut behind = EarlyWriteback::default();
        let write = |behind: &mut EarlyWriteback, pieces: u64| {
            let begun = (0..pieces).filter(|_| behind.wrote(false, LIMIT / 4));
            begun.count()
        };
        assert_eq!(write(&mut behind, 40), 0, "no sync is known");
        assert!(behind.is_independent());
        behind.synced(&[0], None);
        assert!(!behind.is_independent());
        assert_eq!(write(&mut behind, 40), 10);
        behind.synced(&[0], None);
        behind.synced(&[0], None);
        assert_eq!(write(&mut behind, 400), 10);
        behind.synced(&[0], None);
        assert_eq!(write(&mut behind, 3), 0);
        behind.synced(&[0], None);
        assert_eq!(write(&mut behind, 40), 0, "small ones need no help");
    }
}
