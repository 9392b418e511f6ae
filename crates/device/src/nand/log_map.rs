//! Block-level mapping of one plane with log blocks: the baselines L-FTL and H-FTL.
//!
//! A logical block lies in one data block, page for page. Its pages are written there in order; overwrites go to a log
//! block, which is mapped by pages. L-FTL shares its log blocks among all logical blocks (FAST: Lee et al., TECS 2007).
//! It reclaims them in the order in which they were opened. Every logical block with pages in a reclaimed log block is
//! merged. H-FTL gives a log block to one logical block (BAST: Kim et al., IEEE TCE 2002); when none is left, the
//! oldest is merged.
//!
//! Merges: *switch* when the log block holds a logical block whole and in order; it becomes the data block. *Partial*
//! when it holds the beginning; the rest is copied behind (H-FTL). *Full*: the newest of each page is copied to a free
//! block. Merges are done on demand and are not interrupted.

use super::blocks::{Blocks, NONE};
use penstock_base::Random;
use std::collections::VecDeque;

enum Work {
    /// Pages of a logical block, from `next` on, are copied to `dest`; `None` before it is chosen.
    Merge {
        logical: u32,
        dest: Option<u32>,
        next: u32,
    },
    Erase(u32),
}

/// Where a write of a page goes.
enum Target {
    Data(u32),
    NewData,
    Log(u32),
    NewLog,
    /// Nowhere until this log block is merged.
    Merge(u32),
}

pub(crate) struct LogMap {
    pub(crate) blocks: Blocks,
    /// Log blocks are shared (L-FTL), or belong to a logical block each (H-FTL).
    shared: bool,
    /// Logical block → data block.
    data: Vec<u32>,
    /// Logical block → its own log block (H-FTL).
    own: Vec<u32>,
    /// Block → first page not programmed.
    filled: Vec<u32>,
    /// Log blocks, the oldest first, with the logical block of each.
    logs: VecDeque<(u32, u32)>,
    most: usize,
    work: VecDeque<Work>,
}

impl LogMap {
    /// A map of `logical` blocks with at most `logs` log blocks; one block more is reserved for merges.
    pub(crate) fn new(blocks: u32, pages: u32, logical: u32, logs: u32, shared: bool) -> LogMap {
        LogMap {
            blocks: Blocks::new(blocks, pages, logical * pages),
            shared,
            data: vec![NONE; logical as usize],
            own: vec![NONE; logical as usize],
            filled: vec![0; blocks as usize],
            logs: VecDeque::new(),
            most: logs as usize,
            work: VecDeque::new(),
        }
    }

    fn target(&self, page: u32) -> Target {
        let pages = self.blocks.pages;
        let (logical, offset) = (page / pages, page % pages);
        let data = self.data[logical as usize];
        if data == NONE && offset == 0 && self.own[logical as usize] == NONE {
            return Target::NewData;
        }
        if data != NONE && self.filled[data as usize] == offset {
            return Target::Data(data);
        }
        let log = if self.shared {
            self.logs.back().map_or(NONE, |l| l.0)
        } else {
            self.own[logical as usize]
        };
        if log != NONE && self.filled[log as usize] < pages {
            return Target::Log(log);
        }
        if !self.shared && log != NONE {
            return Target::Merge(log);
        }
        match self.logs.front() {
            Some(oldest) if self.logs.len() >= self.most => Target::Merge(oldest.0),
            _ => Target::NewLog,
        }
    }

    /// The page within its block that a write of `page` gets; `None` if log blocks must be merged first.
    pub(crate) fn next(&self, page: u32) -> Option<u32> {
        match self.target(page) {
            _ if self.busy() => None,
            Target::Data(block) | Target::Log(block) => Some(self.filled[block as usize]),
            Target::NewData | Target::NewLog => Some(0),
            Target::Merge(_) => None,
        }
    }

    pub(crate) fn write(&mut self, page: u32) {
        let logical = page / self.blocks.pages;
        let block = match self.target(page) {
            Target::Data(block) | Target::Log(block) => block,
            Target::NewData => {
                let block = self.take();
                self.data[logical as usize] = block;
                block
            }
            Target::NewLog => {
                let block = self.take();
                let whose = if self.shared { NONE } else { logical };
                if !self.shared {
                    self.own[logical as usize] = block;
                }
                self.logs.push_back((block, whose));
                block
            }
            // `next` answered `None`: a caller that writes nevertheless loses this page only.
            Target::Merge(_) => return,
        };
        let at = &mut self.filled[block as usize];
        let slot = block * self.blocks.pages + *at;
        *at += 1;
        self.blocks.place(page, slot);
    }

    fn take(&mut self) -> u32 {
        let block = self.blocks.free.pop_front().unwrap_or(0);
        self.filled[block as usize] = 0;
        block
    }

    /// Begins the merge that `next` requires.
    pub(crate) fn begin(&mut self, page: u32) {
        if self.busy() {
            return;
        }
        let Target::Merge(log) = self.target(page) else {
            return;
        };
        let pages = self.blocks.pages;
        let Some(place) = self.logs.iter().position(|l| l.0 == log) else {
            return;
        };
        let Some((_, whose)) = self.logs.remove(place) else {
            return;
        };
        if whose != NONE {
            self.own[whose as usize] = NONE;
        }
        let owners = |blocks: &Blocks, n: u32| {
            (0..n)
                .map_while(|i| blocks.owner(log * pages + i))
                .collect::<Vec<u32>>()
        };
        // Switch or partial merge: is this the beginning of one logical block, in order and all valid?
        let filled = self.filled[log as usize];
        let held = owners(&self.blocks, filled);
        let logical = held.first().map_or(NONE, |p| p / pages);
        let in_order = held.len() as u32 == filled
            && filled > 0
            && (0..filled).all(|i| held[i as usize] == logical * pages + i);
        if in_order && (filled == pages || !self.shared) {
            self.work.push_back(Work::Merge {
                logical,
                dest: Some(log),
                next: filled,
            });
            return;
        }
        let mut merged: Vec<u32> = (0..pages)
            .filter_map(|i| self.blocks.owner(log * pages + i))
            .map(|p| p / pages)
            .collect();
        merged.sort_unstable();
        merged.dedup();
        self.work
            .extend(merged.into_iter().map(|logical| Work::Merge {
                logical,
                dest: None,
                next: 0,
            }));
        self.work.push_back(Work::Erase(log));
    }

    pub(crate) fn busy(&self) -> bool {
        !self.work.is_empty()
    }

    /// Takes the next step of a merge: true for a page copied, false for a block erased.
    pub(crate) fn step(&mut self) -> Option<bool> {
        let pages = self.blocks.pages;
        loop {
            match self.work.pop_front()? {
                Work::Erase(block) => {
                    self.blocks.erase(block);
                    return Some(false);
                }
                Work::Merge {
                    logical,
                    dest,
                    next,
                } => {
                    let dest = dest.unwrap_or_else(|| self.take());
                    let first = logical * pages;
                    for offset in next..pages {
                        let Some(slot) = self.blocks.find(first + offset) else {
                            continue;
                        };
                        if slot / pages == dest {
                            continue;
                        }
                        self.blocks.place(first + offset, dest * pages + offset);
                        self.filled[dest as usize] = offset + 1;
                        self.work.push_front(Work::Merge {
                            logical,
                            dest: Some(dest),
                            next: offset + 1,
                        });
                        return Some(true);
                    }
                    let old = std::mem::replace(&mut self.data[logical as usize], dest);
                    if old != NONE {
                        self.work.push_front(Work::Erase(old));
                    }
                }
            }
        }
    }

    pub(crate) fn trim(&mut self, page: u32) {
        self.blocks.forget(page);
    }

    pub(crate) fn fill_all(&mut self) {
        for page in 0..self.blocks.logical() {
            self.write(page);
        }
    }

    /// The steady state: all data blocks full, and all log blocks full of random pages. H-FTL's hold one page each.
    pub(crate) fn settle(&mut self, seed: u64) {
        self.fill_all();
        let mut random = Random::for_purpose(seed, 1);
        let logical = u64::from(self.blocks.logical());
        for _ in 0..self.most * self.blocks.pages as usize {
            let page = random.below(logical) as u32;
            if self.next(page).is_none() {
                break;
            }
            self.write(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(map: &mut LogMap) -> (u32, u32) {
        let (mut copies, mut erases) = (0, 0);
        while map.busy() {
            match map.step() {
                Some(true) => copies += 1,
                Some(false) => erases += 1,
                None => {}
            }
        }
        (copies, erases)
    }

    fn write(map: &mut LogMap, page: u32) -> (u32, u32) {
        let mut done = (0, 0);
        while map.next(page).is_none() {
            map.begin(page);
            let more = finish(map);
            done = (done.0 + more.0, done.1 + more.1);
        }
        map.write(page);
        done
    }

    /// A block written again in order costs one erase and no copy.
    #[test]
    fn switch_merges_copy_nothing() {
        for shared in [true, false] {
            let mut map = LogMap::new(8, 4, 4, 1, shared);
            map.fill_all();
            for page in 0..4 {
                assert_eq!(write(&mut map, page), (0, 0));
            }
            assert_eq!(write(&mut map, 4), (0, 1), "shared {shared}");
        }
    }

    #[test]
    fn partial_and_full_merges_copy_the_rest() {
        let mut own = LogMap::new(8, 4, 4, 1, false);
        own.fill_all();
        write(&mut own, 0);
        write(&mut own, 1);
        // The log block keeps pages 0 and 1; 2 and 3 are copied behind; the old data block goes.
        assert_eq!(write(&mut own, 4), (2, 1));
        let mut shared = LogMap::new(8, 4, 4, 1, true);
        shared.fill_all();
        for page in [0, 5, 10, 15] {
            write(&mut shared, page);
        }
        // Four logical blocks of four pages; four data blocks and the log block go.
        assert_eq!(write(&mut shared, 0), (16, 5));
    }

    /// Property: after any writes, every page is found where it was written last, and no block is lost or used twice.
    #[test]
    fn pages_and_blocks_are_conserved() {
        for (shared, seed) in [(true, 1), (false, 2), (true, 3), (false, 4)] {
            let mut map = LogMap::new(20, 8, 12, 6, shared);
            let mut random = Random::new(seed);
            let mut written = [false; 96];
            for i in 0..5_000u32 {
                let page = if i % 3 == 0 {
                    i % 96
                } else {
                    random.below(96) as u32
                };
                if i % 11 == 0 {
                    map.trim(page);
                    written[page as usize] = false;
                } else {
                    write(&mut map, page);
                    written[page as usize] = true;
                }
                for (p, there) in written.iter().enumerate() {
                    assert_eq!(map.blocks.find(p as u32).is_some(), *there);
                }
            }
            let data = map.data.iter().filter(|d| **d != NONE).count();
            assert_eq!(data + map.logs.len() + map.blocks.free.len(), 20);
        }
    }
}
