//! The blocks of one plane: which logical page lies where, what is valid, and how worn each block is.

use std::collections::VecDeque;

/// Marks a page without a slot, or a slot without a page.
pub(crate) const NONE: u32 = u32::MAX;

/// Pages are numbered within the plane; a slot is block · pages + page of the block.
pub(crate) struct Blocks {
    /// Pages of a block.
    pub pages: u32,
    /// Logical page → slot.
    map: Vec<u32>,
    /// Slot → logical page, while that lies there.
    owner: Vec<u32>,
    /// Valid pages of each block.
    pub valid: Vec<u32>,
    /// Erases of each block: its wear.
    pub erases: Vec<u32>,
    /// Reads of each block since it was erased: its read disturb.
    pub reads: Vec<u32>,
    /// Erased blocks, the one erased longest ago first: that spreads wear.
    pub free: VecDeque<u32>,
}

impl Blocks {
    pub(crate) fn new(blocks: u32, pages: u32, logical: u32) -> Blocks {
        Blocks {
            pages,
            map: vec![NONE; logical as usize],
            owner: vec![NONE; blocks as usize * pages as usize],
            valid: vec![0; blocks as usize],
            erases: vec![0; blocks as usize],
            reads: vec![0; blocks as usize],
            free: (0..blocks).collect(),
        }
    }

    pub(crate) fn logical(&self) -> u32 {
        self.map.len() as u32
    }

    pub(crate) fn find(&self, page: u32) -> Option<u32> {
        Some(self.map[page as usize]).filter(|s| *s != NONE)
    }

    pub(crate) fn owner(&self, slot: u32) -> Option<u32> {
        Some(self.owner[slot as usize]).filter(|p| *p != NONE)
    }

    /// Maps the page to `slot`; returns the block of its former slot.
    pub(crate) fn place(&mut self, page: u32, slot: u32) -> Option<u32> {
        let old = self.forget(page);
        self.map[page as usize] = slot;
        self.owner[slot as usize] = page;
        self.valid[(slot / self.pages) as usize] += 1;
        old
    }

    /// Unmaps the page; returns the block of its former slot.
    pub(crate) fn forget(&mut self, page: u32) -> Option<u32> {
        let slot = std::mem::replace(&mut self.map[page as usize], NONE);
        if slot == NONE {
            return None;
        }
        self.owner[slot as usize] = NONE;
        let block = slot / self.pages;
        self.valid[block as usize] -= 1;
        Some(block)
    }

    /// Frees the block, which must hold no valid page.
    pub(crate) fn erase(&mut self, block: u32) {
        debug_assert_eq!(self.valid[block as usize], 0);
        self.erases[block as usize] += 1;
        self.reads[block as usize] = 0;
        self.free.push_back(block);
    }
}
