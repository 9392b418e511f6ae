//! The model of what clients may read: the contract of docs/understand/semantics.md as data, and the history it is
//! checked against.
//!
//! *Bytes*. A file is divided into blocks; each write gives every block that it covers a unique content. A read may
//! return, byte by byte, any write that began before the read ended, unless a later write hides it. A write hides
//! another if it began after that one was acknowledged, and was itself acknowledged before the read began. A write lost
//! with the power hides nothing, unless it is firm. A successful sync makes firm all writes acknowledged before it
//! began. Against later power losses that holds for the writes of any client. Against losses between write and sync,
//! which the sync should have reported, it holds for its own client's writes. If a server was told of a failed sync at
//! its start, that counts as a power loss at that moment.
//!
//! *Names*: see [`crate::directory`].
use crate::world::Nanos;
use penstock_base::Random;

/// One write to one block.
#[derive(Debug, Clone)]
struct Write {
    id: u64,
    /// The client process.
    writer: u64,
    begun: Nanos,
    /// When it was acknowledged.
    done: Option<Nanos>,
    /// When it was reported as failed; its bytes may still be written as long as its server runs.
    failed: Option<Nanos>,
    /// End of a sync that covers it.
    synced: Option<Nanos>,
    /// A sync of its own writer covers it: no power loss, earlier or later, may have taken it.
    promised: bool,
    /// Its writer was told that it may be lost.
    told: bool,
}

/// A block of a file, on one server.
#[derive(Debug)]
pub(crate) struct Block {
    /// The data server's machine.
    pub machine: usize,
    writes: Vec<Write>,
    /// Bits that have flipped in the store: offset in the file, and the mask.
    flips: Vec<(u64, u8)>,
}

/// The content of a block that was never written.
const NOTHING: u64 = 0;

/// Marks a truncation before the block instead of a write: it reads as zeros.
pub(crate) const CUT: u64 = 1 << 63;

/// The byte at `at` of write `id`.
fn byte(id: u64, at: u64) -> u8 {
    match id {
        NOTHING => 0,
        id if id & CUT != 0 => 0,
        id => (Random::mix((id << 24) ^ (at / 8)) >> (at % 8 * 8)) as u8,
    }
}

/// Fills a buffer with what write `id` puts at offset `at`.
pub(crate) fn fill(id: u64, at: u64, into: &mut [u8]) {
    for (i, b) in into.iter_mut().enumerate() {
        *b = byte(id, at + i as u64);
    }
}

/// Which write, up to `last`, has bytes like these anywhere in the first `len` bytes of a file, and at which offset.
pub(crate) fn origin(found: &[u8], last: u64, len: u64) -> Option<(u64, u64)> {
    let wanted = found.get(..16)?;
    (1..=last)
        .flat_map(|id| (0..len).step_by(8).map(move |at| (id, at)))
        .find(|&(id, at)| (0..16).all(|i| byte(id, at + i) == wanted[i as usize]))
}

impl Block {
    pub fn new(machine: usize) -> Block {
        Block {
            machine,
            writes: vec![Write {
                id: NOTHING,
                writer: 0,
                begun: 0,
                done: Some(0),
                failed: None,
                synced: Some(0),
                promised: true,
                told: false,
            }],
            flips: Vec::new(),
        }
    }

    /// A bit at this offset of the file has flipped in the store: until it is overwritten it may read flipped.
    pub fn flip(&mut self, at: u64, mask: u8) {
        self.flips.push((at, mask));
    }

    pub fn begin(&mut self, id: u64, writer: u64, now: Nanos) {
        self.writes.push(Write {
            id,
            writer,
            begun: now,
            done: None,
            failed: None,
            synced: None,
            promised: false,
            told: false,
        });
    }

    pub fn end(&mut self, id: u64, now: Nanos, good: bool) {
        if let Some(w) = self.writes.iter_mut().find(|w| w.id == id) {
            if good {
                w.done = Some(now);
            } else {
                w.failed = Some(now);
            }
        }
    }

    /// A sync by a client process that began at `begun` has succeeded.
    pub fn synced(&mut self, by: u64, begun: Nanos, now: Nanos) {
        for w in &mut self.writes {
            // A failed write that can no longer be carried out counts as done; no sync promises it.
            if w.done.is_some_and(|d| d <= begun) {
                w.synced.get_or_insert(now);
                w.promised |= w.writer == by && w.failed.is_none() && !w.told;
            }
        }
    }

    /// A client process has learned from a sync that its writes may be lost.
    pub fn told_lost(&mut self, writer: u64, now: Nanos) {
        for w in &mut self.writes {
            w.told |= w.writer == writer && w.begun <= now && !w.promised;
        }
    }

    /// The server has ended: pending writes will not be carried out.
    pub fn server_ended(&mut self, now: Nanos) {
        for w in &mut self.writes {
            if w.done.is_none() && w.failed.is_some_and(|f| f < now) {
                w.done = w.failed;
            }
        }
    }

    /// Whether the write survives all power losses until `now`.
    fn firm(w: &Write, now: Nanos, losses: &[Nanos]) -> bool {
        w.promised
            || losses
                .iter()
                .filter(|l| **l > w.begun && **l <= now)
                .all(|l| w.synced.is_some_and(|s| s <= *l))
    }

    /// The writes that a read between `begun` and `ended` may return.
    fn visible(&self, begun: Nanos, ended: Nanos, losses: &[Nanos]) -> Vec<u64> {
        let hides = |later: &Write, earlier: &Write| {
            later.failed.is_none()
                && later.done.is_some_and(|d| d <= begun)
                && earlier.done.is_some_and(|d| d <= later.begun)
                && later.id != earlier.id
                // A read may be sent again after its server has restarted.
                && Block::firm(later, ended, losses)
        };
        self.writes
            .iter()
            .filter(|w| w.begun <= ended)
            .filter(|w| !self.writes.iter().any(|later| hides(later, w)))
            .map(|w| w.id)
            .collect()
    }

    /// Forgets writes that can never be read again. This is safe only between operations of all clients on the block,
    /// or for writes hidden before `horizon` when no read is older.
    pub fn forget(&mut self, horizon: Nanos, losses: &[Nanos]) {
        if self.writes.len() < 24 {
            return;
        }
        // Hidden by a synced write: no power loss makes it visible again.
        let hidden = |w: &Write| {
            self.writes.iter().any(|later| {
                later.failed.is_none()
                    && later.synced.is_some_and(|s| s <= horizon)
                    && w.done.is_some_and(|d| d <= later.begun)
                    && later.id != w.id
                    && Block::firm(later, horizon, losses)
            })
        };
        let keep: Vec<bool> = self.writes.iter().map(|w| !hidden(w)).collect();
        let mut keep = keep.into_iter();
        self.writes.retain(|_| keep.next().unwrap_or(true));
    }

    /// Checks what a read found at `at` (absent bytes read as zeros) against what it may return.
    pub fn check(
        &self,
        at: u64,
        found: &[u8],
        begun: Nanos,
        ended: Nanos,
        losses: &[Nanos],
    ) -> Result<(), String> {
        let visible = self.visible(begun, ended, losses);
        let written = |i: usize, b: u8| visible.iter().any(|id| byte(*id, at + i as u64) == b);
        let allowed = |i: usize, b: u8| {
            let flipped = |(o, mask): &(u64, u8)| *o == at + i as u64 && written(i, b ^ mask);
            written(i, b) || self.flips.iter().any(flipped)
        };
        let Some(wrong) = found.iter().enumerate().position(|(i, b)| !allowed(i, *b)) else {
            return Ok(());
        };
        let whose = self
            .writes
            .iter()
            .rev()
            .find(|w| {
                let n = found.len().min(wrong + 16);
                (wrong..n).all(|i| byte(w.id, at + i as u64) == found[i])
            })
            .map_or("of no write".to_owned(), |w| format!("of write {}", w.id));
        Err(format!(
            "offset {}: byte {} is {} ({whose}), but only writes {visible:?} may be seen; history {:?}",
            at + wrong as u64,
            wrong,
            found[wrong],
            self.writes.iter().rev().take(8).rev().collect::<Vec<_>>()
        ))
    }

    #[cfg(test)]
    fn remembered(&self) -> usize {
        self.writes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(id: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        fill(id, 0, &mut bytes);
        bytes
    }

    #[test]
    fn an_acknowledged_write_hides_what_was_before() {
        let mut b = Block::new(1);
        b.begin(1, 1, 10);
        assert!(b.check(0, &content(0), 5, 12, &[]).is_ok());
        assert!(b.check(0, &content(1), 5, 12, &[]).is_ok(), "under way");
        b.end(1, 20, true);
        assert!(b.check(0, &content(1), 21, 22, &[]).is_ok());
        assert!(b.check(0, &content(0), 21, 22, &[]).is_err());
        assert!(b.check(0, &content(0), 19, 22, &[]).is_ok(), "overlaps");
    }

    #[test]
    fn what_was_not_synced_may_be_lost_and_nothing_else() {
        let mut b = Block::new(1);
        b.begin(1, 1, 10);
        b.end(1, 20, true);
        assert!(b.check(0, &content(0), 40, 50, &[30]).is_ok());
        b.synced(1, 21, 25);
        assert!(b.check(0, &content(0), 40, 50, &[30]).is_err());
        b.begin(2, 1, 26);
        b.end(2, 27, true);
        assert!(b.check(0, &content(1), 40, 50, &[30]).is_ok());
        assert!(b.check(0, &content(2), 40, 50, &[30]).is_ok());
        let mut torn = content(1);
        torn[..32].copy_from_slice(&content(2)[..32]);
        assert!(b.check(0, &torn, 40, 50, &[30]).is_ok());
    }

    #[test]
    fn a_sync_answers_for_what_its_client_wrote_before_a_loss() {
        let written = |by| {
            let mut b = Block::new(1);
            b.begin(1, by, 10);
            b.end(1, 20, true);
            b
        };
        // The power failed at 30.
        let sees_old = |b: &Block| b.check(0, &content(0), 60, 70, &[30]).is_ok();
        let mut own = written(1);
        own.synced(1, 40, 50);
        assert!(!sees_old(&own), "the sync should have failed");
        let mut anothers = written(2);
        anothers.synced(1, 40, 50);
        assert!(sees_old(&anothers), "its own client is told");
        let mut told = written(1);
        told.told_lost(1, 45);
        told.synced(1, 46, 50);
        assert!(sees_old(&told), "told once");
    }

    #[test]
    fn a_failed_write_may_come_until_its_server_ends() {
        let mut b = Block::new(1);
        b.begin(1, 1, 10);
        b.end(1, 20, false);
        b.begin(2, 1, 30);
        b.end(2, 40, true);
        assert!(b.check(0, &content(1), 50, 60, &[]).is_ok());
        b.server_ended(25);
        assert!(b.check(0, &content(1), 50, 60, &[]).is_err());
    }

    #[test]
    fn forgetting_changes_no_verdict() {
        let mut b = Block::new(1);
        for id in 1..=60 {
            b.begin(id, 1, id * 10);
            b.end(id, id * 10 + 5, true);
            b.synced(1, id * 10 + 6, id * 10 + 7);
            b.forget(id * 10 + 8, &[]);
        }
        assert!(b.remembered() < 30);
        assert!(b.check(0, &content(60), 700, 701, &[]).is_ok());
        assert!(b.check(0, &content(59), 700, 701, &[]).is_err());
    }
}
