//! Page-level mapping of one plane, with collection.
//!
//! Writes go to the open block, page by page. When it is full a free block is opened. Collection chooses a victim,
//! copies its valid pages to the open block, and erases it. Room is counted in free pages. Host writes leave enough for
//! the collection under way, or one block for the next.
//!
//! Victims: greedy takes the block with the fewest valid pages; choices takes the best of eight at random (Li, Lee, Lui
//! 2013). Random takes any; FIFO takes the one filled longest ago.

use super::Victim;
use super::blocks::{Blocks, NONE};
use super::steady;
use penstock_base::Random;
use std::collections::VecDeque;

/// Blocks that `choices` compares.
const CHOICES: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Full,
    Victim,
}

pub(crate) struct PageMap {
    pub(crate) blocks: Blocks,
    open: u32,
    /// Pages used in the open block.
    at: u32,
    state: Vec<State>,
    victim: Victim,
    random: Random,
    /// Full blocks in the order in which they became full; only FIFO needs it.
    filled: VecDeque<u32>,
    buckets: Buckets,
    /// The victim, and its next page to copy.
    job: Option<(u32, u32)>,
}

impl PageMap {
    pub(crate) fn new(blocks: u32, pages: u32, logical: u32, victim: Victim, seed: u64) -> PageMap {
        let mut map = PageMap {
            blocks: Blocks::new(blocks, pages, logical),
            open: 0,
            at: 0,
            state: vec![State::Free; blocks as usize],
            victim,
            random: Random::new(seed),
            filled: VecDeque::new(),
            buckets: Buckets::new(blocks, pages),
            job: None,
        };
        map.open = map.blocks.free.pop_front().unwrap_or(0);
        map.state[map.open as usize] = State::Open;
        map
    }

    /// Free pages: those of the open block and of free ones.
    pub(crate) fn room(&self) -> u32 {
        self.blocks.pages - self.at + self.blocks.free.len() as u32 * self.blocks.pages
    }

    /// Room that host writes may not use.
    fn reserve(&self) -> u32 {
        match self.job {
            Some((block, _)) => self.blocks.valid[block as usize],
            None => self.blocks.pages,
        }
    }

    /// Whether a host write has to wait for collection.
    pub(crate) fn blocked(&self) -> bool {
        self.room() <= self.reserve()
    }

    pub(crate) fn busy(&self) -> bool {
        self.job.is_some()
    }

    /// The page of its block that the next write gets.
    pub(crate) fn next(&self) -> u32 {
        self.at % self.blocks.pages
    }

    pub(crate) fn write(&mut self, page: u32) {
        if self.at == self.blocks.pages {
            let full = self.open;
            self.fill(full);
            // Callers checked the room; without a free block the map would be inconsistent.
            self.open = self.blocks.free.pop_front().unwrap_or(full);
            self.state[self.open as usize] = State::Open;
            self.at = 0;
        }
        let slot = self.open * self.blocks.pages + self.at;
        self.at += 1;
        let old = self.blocks.place(page, slot);
        self.lost_one(old);
    }

    pub(crate) fn trim(&mut self, page: u32) {
        let old = self.blocks.forget(page);
        self.lost_one(old);
    }

    fn lost_one(&mut self, block: Option<u32>) {
        if let Some(block) = block
            && self.state[block as usize] == State::Full
        {
            self.buckets.moved(block, self.blocks.valid[block as usize]);
        }
    }

    fn fill(&mut self, block: u32) {
        self.state[block as usize] = State::Full;
        self.buckets
            .insert(block, self.blocks.valid[block as usize]);
        if self.victim == Victim::Fifo {
            self.filled.push_back(block);
        }
    }

    /// Takes a step of collection: true for a page copied, false for the victim erased. `None` if no block is worth
    /// collecting.
    pub(crate) fn step(&mut self) -> Option<bool> {
        let (block, from) = match self.job {
            Some(job) => job,
            None => (self.choose()?, 0),
        };
        let first = block * self.blocks.pages;
        for page in from..self.blocks.pages {
            if let Some(owner) = self.blocks.owner(first + page) {
                self.job = Some((block, page + 1));
                self.write(owner);
                return Some(true);
            }
        }
        self.job = None;
        self.state[block as usize] = State::Free;
        self.blocks.erase(block);
        Some(false)
    }

    fn choose(&mut self) -> Option<u32> {
        let greedy = self.buckets.least()?;
        let pages = self.blocks.pages;
        if self.blocks.valid[greedy as usize] >= pages {
            return None;
        }
        let block = match self.victim {
            Victim::Greedy => greedy,
            Victim::Fifo => self
                .filled
                .iter()
                .position(|b| self.blocks.valid[*b as usize] < pages)
                .and_then(|i| self.filled.remove(i))
                .unwrap_or(greedy),
            Victim::Random => self.sample().unwrap_or(greedy),
            Victim::Choices => {
                let sampled: Vec<u32> = (0..CHOICES).filter_map(|_| self.sample()).collect();
                let valid = |b: &u32| self.blocks.valid[*b as usize];
                sampled.into_iter().min_by_key(valid).unwrap_or(greedy)
            }
        };
        self.buckets.remove(block);
        self.state[block as usize] = State::Victim;
        Some(block)
    }

    /// A full block that is worth collecting, at random.
    fn sample(&mut self) -> Option<u32> {
        (0..64).find_map(|_| {
            let block = self.random.index(self.state.len());
            (self.state[block] == State::Full && self.blocks.valid[block] < self.blocks.pages)
                .then_some(block as u32)
        })
    }

    /// Every page written once, in order.
    pub(crate) fn fill_all(&mut self) {
        for page in 0..self.blocks.logical() {
            self.write(page);
        }
    }

    /// The steady state of uniform random writes (steady.rs): one block is free, one open, the others full.
    pub(crate) fn settle(&mut self, seed: u64) {
        let mut random = Random::for_purpose(seed, 1);
        let (pages, logical) = (self.blocks.pages, self.blocks.logical());
        let blocks = self.state.len() as u32;
        self.blocks = Blocks::new(blocks, pages, logical);
        self.buckets = Buckets::new(blocks, pages);
        (self.job, self.at) = (None, pages);
        self.filled.clear();
        self.state.fill(State::Full);
        let free = blocks - 1;
        self.blocks.free = VecDeque::from([free]);
        self.state[free as usize] = State::Free;
        // Planes are out of step: the open block of each is filled to a different degree.
        let cycle = steady::Cycle::new(logical, (blocks - 1) * pages);
        let copied = (cycle.victim * f64::from(pages)) as u32;
        let used = copied + random.below(u64::from(pages - copied).max(1)) as u32;
        self.open = blocks - 2;
        let slots = (blocks - 2) * pages + used;
        let valid = cycle.draw(slots, pages, logical, &mut random);
        let mut order: Vec<u32> = (0..logical).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let mut next = order.into_iter();
        for (slot, _) in valid.iter().enumerate().filter(|(_, v)| **v) {
            if let Some(page) = next.next() {
                self.blocks.place(page, slot as u32);
            }
        }
        self.at = used;
        self.state[self.open as usize] = State::Open;
        for block in 0..blocks - 2 {
            self.fill(block);
        }
    }
}

/// Full blocks by their number of valid pages: doubly linked lists, so that a change takes constant time.
struct Buckets {
    head: Vec<u32>,
    next: Vec<u32>,
    before: Vec<u32>,
    /// The bucket of each block; `NONE` for blocks in none.
    bucket: Vec<u32>,
    /// No bucket below it holds a block.
    least: u32,
}

impl Buckets {
    fn new(blocks: u32, pages: u32) -> Buckets {
        let none = || vec![NONE; blocks as usize];
        Buckets {
            head: vec![NONE; pages as usize + 1],
            next: none(),
            before: none(),
            bucket: none(),
            least: 0,
        }
    }

    fn insert(&mut self, block: u32, valid: u32) {
        let head = std::mem::replace(&mut self.head[valid as usize], block);
        let b = block as usize;
        (self.next[b], self.before[b], self.bucket[b]) = (head, NONE, valid);
        if head != NONE {
            self.before[head as usize] = block;
        }
        self.least = self.least.min(valid);
    }

    fn remove(&mut self, block: u32) {
        let b = block as usize;
        let (next, before) = (self.next[b], self.before[b]);
        if next != NONE {
            self.before[next as usize] = before;
        }
        if before != NONE {
            self.next[before as usize] = next;
        } else if self.bucket[b] != NONE {
            self.head[self.bucket[b] as usize] = next;
        }
        self.bucket[b] = NONE;
    }

    fn moved(&mut self, block: u32, valid: u32) {
        self.remove(block);
        self.insert(block, valid);
    }

    fn least(&mut self) -> Option<u32> {
        let from = self.least as usize;
        let at = self.head[from..].iter().position(|h| *h != NONE);
        self.least = at.map_or(self.head.len() - 1, |i| from + i) as u32;
        Some(self.head[self.least as usize]).filter(|b| *b != NONE)
    }
}
