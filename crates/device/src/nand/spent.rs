//! What a NAND device counted: operations, where the time of pages went, wear.

use super::blocks::Blocks;
use crate::Nanos;

/// Where the time of host pages went, summed over them. A page is always in exactly one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Pages that were served.
    pub pages: u64,
    /// Looking them up.
    pub map: Nanos,
    /// Waiting for the write buffer, or for the die while that served other pages.
    pub queue: Nanos,
    /// Waiting while the die collected.
    pub collection: Nanos,
    /// Waiting for the channel, and on it.
    pub channel: Nanos,
    /// In the array, or waiting for it with the bytes in the register.
    pub array: Nanos,
}

impl Spent {
    /// The sum of all parts.
    pub fn total(&self) -> Nanos {
        self.map + self.queue + self.collection + self.channel + self.array
    }

    /// Names and times, for tables.
    pub fn parts(&self) -> [(&'static str, Nanos); 5] {
        [
            ("array", self.array),
            ("bus", self.channel),
            ("queue", self.queue),
            ("collection", self.collection),
            ("map", self.map),
        ]
    }
}

/// Operations since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages read for hosts, read-ahead included.
    pub reads: u64,
    /// Pages programmed for hosts.
    pub writes: u64,
    /// Of these, partial page writes: the page was read before.
    pub modified: u64,
    /// Pages copied by collection or merges: a read and a program each.
    pub copies: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Commands of more than one plane.
    pub multiplane: u64,
    /// Page reads answered by read-ahead.
    pub ahead: u64,
    /// Page reads of pages that were never written.
    pub unmapped: u64,
    /// Pages trimmed.
    pub trimmed: u64,
    /// Where the time of host pages went.
    pub spent: Spent,
    /// Time in which dies collected, summed over dies.
    pub collecting: Nanos,
    /// Time in which arrays worked, summed over dies.
    pub array_busy: Nanos,
    /// Time in which channels carried bytes, summed over channels.
    pub channel_busy: Nanos,
    /// Dies of the device.
    pub dies: u64,
    /// Channels of the device.
    pub channels: u64,
}

impl Counters {
    /// Page operations: reads, programs and erases.
    pub fn operations(&self) -> u64 {
        self.reads + self.writes + self.modified + 2 * self.copies + self.erases
    }

    /// Programs per page written by hosts; 1 when none was written.
    pub fn write_amplification(&self) -> f64 {
        if self.writes == 0 {
            return 1.0;
        }
        (self.writes + self.copies) as f64 / self.writes as f64
    }

    /// What happened since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        let (a, b) = (self, before);
        let spent = Spent {
            pages: a.spent.pages - b.spent.pages,
            map: a.spent.map - b.spent.map,
            queue: a.spent.queue - b.spent.queue,
            collection: a.spent.collection - b.spent.collection,
            channel: a.spent.channel - b.spent.channel,
            array: a.spent.array - b.spent.array,
        };
        Counters {
            reads: a.reads - b.reads,
            writes: a.writes - b.writes,
            modified: a.modified - b.modified,
            copies: a.copies - b.copies,
            erases: a.erases - b.erases,
            multiplane: a.multiplane - b.multiplane,
            ahead: a.ahead - b.ahead,
            unmapped: a.unmapped - b.unmapped,
            trimmed: a.trimmed - b.trimmed,
            spent,
            collecting: a.collecting - b.collecting,
            array_busy: a.array_busy - b.array_busy,
            channel_busy: a.channel_busy - b.channel_busy,
            dies: a.dies,
            channels: a.channels,
        }
    }
}

/// Wear and read disturb over all blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wear {
    /// Blocks.
    pub blocks: u64,
    /// Erases of all blocks.
    pub erases: u64,
    /// Erases of the block with most.
    pub most_erases: u32,
    /// Reads since its erase of the block with most.
    pub most_reads: u32,
    /// How often a block reached the limit of reads after which it should be rewritten.
    pub refreshes_due: u64,
}

impl Wear {
    pub(crate) fn add(&mut self, blocks: &Blocks, limit: u32) {
        self.blocks += blocks.erases.len() as u64;
        for (erases, reads) in blocks.erases.iter().zip(&blocks.reads) {
            self.erases += u64::from(*erases);
            self.most_erases = self.most_erases.max(*erases);
            self.most_reads = self.most_reads.max(*reads);
            self.refreshes_due += u64::from(reads / limit.max(1));
        }
    }
}
