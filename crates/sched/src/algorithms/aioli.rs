//! aIOLi: quanta of bytes, offset order, first come first served between files.
//!
//! *Problem*: processes that share a file send requests that are contiguous together but not in order. *Idea*: at each
//! decision the factors of all requests double (0, 1, 2, 4, …). A virtual request has the sum of its parts' factors.
//! The heads of queues (lowest offset of a file and operation) with factor × quantum ≥ their bytes may go; the earliest
//! arrival among them does. After it, contiguous ones follow while they fit what is left of the quantum. One virtual
//! request is served at a time, so that the next can grow meanwhile. A queue's quantum follows its use; a queue may
//! wait for a larger aggregation (`waiting`) while others are served. *When it pays*: large requests to shared files,
//! devices with slow seeks. *Parameters*: `quantum` (64 KiB), `aggregation` (16 parts), `shift_wait`,
//! `aggregation_wait`, `starvation_bound`. *Source*: TS section 3.1.1, after Lebre et al. (2006). All quantities are
//! bytes. Nothing is scanned: heads are ordered by the scan at which they become eligible, so a decision is O(log
//! queues).
use super::{Choice, Company, Policy, Row};
use crate::ranks::Ranks;
use crate::table::Table;
use crate::waiting::Waiting;
use crate::{Nanos, Options};

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "aioli",
    next: "of the heads with factor × quantum ≥ bytes the oldest; contiguous ones follow while they fit",
    aggregation: 16,
    pays: "large requests to shared files, slow seeks",
    policy: |options| Box::new(Aioli::new(options)),
};

/// A quantum grows to so many times the one given.
const MOST: u64 = 16;

/// What remains of the quantum for the queue served last.
#[derive(Debug, Clone, Copy)]
struct Turn {
    queue: usize,
    /// Where a contiguous request begins.
    end: u64,
    /// Bytes left of the quantum.
    left: u64,
    used: u64,
}

/// The algorithm's state. A queue with requests is in one of the three orders: eligible, not yet eligible, or waiting.
pub(super) struct Aioli {
    quantum: u64,
    bound: Option<Nanos>,
    turn: Option<Turn>,
    /// Queues whose head is eligible, by its arrival.
    ripe: Ranks,
    /// Queues whose head is not eligible, by the scan at which it becomes so.
    unripe: Ranks,
    waiting: Waiting,
}

impl Aioli {
    pub(super) fn new(options: &Options) -> Aioli {
        Aioli {
            quantum: options.quantum,
            bound: options.starvation_bound,
            turn: None,
            ripe: Ranks::default(),
            unripe: Ranks::default(),
            waiting: Waiting::new([options.shift_wait, options.aggregation_wait]),
        }
    }

    fn quantum(&self, table: &Table, queue: usize) -> u64 {
        match table.queues[queue].quantum {
            0 => self.quantum,
            adapted => adapted,
        }
    }

    /// Files a queue again, after its head has changed or its wait has ended.
    fn refresh(&mut self, table: &Table, queue: usize) {
        self.waiting.end(queue);
        let Some(at) = table.head(queue) else {
            self.ripe.remove(queue);
            self.unripe.remove(queue);
            return;
        };
        let ready = table.ripe_at(at, self.quantum(table, queue));
        // Each choice follows a scan: a head that becomes eligible at the next one counts as eligible.
        if ready <= table.lane().scans + 1 {
            self.unripe.remove(queue);
            self.ripe.set(queue, table.virtuals[at].serial);
        } else {
            self.ripe.remove(queue);
            self.unripe.set(queue, ready);
        }
    }

    fn serve(&mut self, table: &mut Table, at: usize) -> Choice {
        let v = &table.virtuals[at];
        let queue = v.queue;
        table.queues[queue].history.serve(v);
        table.take(at);
        self.refresh(table, queue);
        Choice::Serve(at)
    }

    /// Begins a quantum with this request.
    fn begin(&mut self, table: &mut Table, at: usize) -> Choice {
        table.age(at);
        let v = table.virtuals[at];
        let allowed = table
            .factor(at)
            .saturating_mul(self.quantum(table, v.queue));
        self.turn = Some(Turn {
            queue: v.queue,
            end: v.end,
            left: allowed.saturating_sub(v.bytes),
            used: v.bytes,
        });
        self.serve(table, at)
    }

    /// The next contiguous request, if it fits what remains of the quantum.
    fn go_on(&mut self, table: &mut Table) -> Option<usize> {
        let turn = self.turn.as_mut()?;
        if let Some(at) = table.beginning_at(turn.queue, turn.end) {
            let v = &table.virtuals[at];
            if v.bytes <= turn.left {
                turn.left -= v.bytes;
                turn.used = turn.used.saturating_add(v.bytes);
                turn.end = v.end;
                return Some(at);
            }
        }
        let turn = self.turn.take()?;
        let quantum = self.quantum(table, turn.queue);
        let next = adapted(quantum, turn.used, self.quantum);
        table.queues[turn.queue].quantum = next;
        if next != quantum {
            self.refresh(table, turn.queue);
        }
        None
    }
}

/// The next quantum of a queue, from the bytes it used of its last one.
fn adapted(quantum: u64, used: u64, default: u64) -> u64 {
    let per_cent = u128::from(used) * 100 / u128::from(quantum.max(1));
    let next = match per_cent {
        175.. => quantum.saturating_mul(2),
        125.. => quantum.saturating_add(quantum / 2),
        75.. => quantum,
        _ => quantum / 2,
    };
    match next {
        0 => default,
        next => next.min(default.saturating_mul(MOST)),
    }
}

impl Policy for Aioli {
    fn add(&mut self, table: &mut Table, entry: usize) {
        let at = table.aggregate(entry);
        let queue = table.virtuals[at].queue;
        // A queue that waits is checked again: this may be the request that it waits for.
        if table.head(queue) == Some(at) || self.waiting.has(queue) {
            self.refresh(table, queue);
        }
    }

    fn next(&mut self, table: &mut Table, now: Nanos, company: &mut Company<'_>) -> Choice {
        if table.lane().serving > 0 {
            return Choice::Nothing;
        }
        while let Some(queue) = self.waiting.over(now) {
            self.refresh(table, queue);
        }
        if let Some(at) = table.overdue(now, self.bound) {
            self.turn = None;
            return self.begin(table, at);
        }
        if let Some(at) = self.go_on(table) {
            return self.serve(table, at);
        }
        if table.lane().queued > 0 {
            table.lane_mut().scans += 1;
        }
        loop {
            if self.ripe.is_empty()
                && let Some((scan, _)) = self.unripe.first()
            {
                // Scans that make no head eligible are skipped.
                table.lane_mut().scans = table.lane().scans.max(scan);
            }
            while let Some((scan, queue)) = self.unripe.first()
                && scan <= table.lane().scans
            {
                self.refresh(table, queue);
            }
            let Some((_, queue)) = self.ripe.first() else {
                return Choice::none_but(&self.waiting);
            };
            let Some(at) = table.head(queue) else {
                self.refresh(table, queue);
                continue;
            };
            if !self.waiting.begin(table, at, now, company) {
                return self.begin(table, at);
            }
            self.ripe.remove(queue);
        }
    }

    /// A quantum ends when its queue has no contiguous request.
    fn is_under_way(&self) -> bool {
        self.turn.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::adapted;

    #[test]
    fn the_quantum_follows_its_use_in_bytes() {
        const K: u64 = 1 << 10;
        for (quantum, used, next) in [
            (64 * K, 112 * K, 128 * K),
            (64 * K, 80 * K, 96 * K),
            (64 * K, 64 * K, 64 * K),
            (64 * K, 48 * K, 64 * K),
            (64 * K, 47 * K, 32 * K),
            // At least one byte, at most 16 times the default.
            (1, 0, 64 * K),
            (1024 * K, u64::MAX, 1024 * K),
        ] {
            assert_eq!(adapted(quantum, used, 64 * K), next, "{quantum} {used}");
        }
        assert_eq!(adapted(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    }
}
