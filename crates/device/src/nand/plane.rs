//! The map of one plane, whatever the translation layer.
use super::log_map::LogMap;
use super::page_map::PageMap;

/// The map of one plane.
pub(super) enum Plane {
    Page(PageMap),
    Log(LogMap),
    /// Written in place: a slot is a page.
    InPlace {
        pages: u32,
    },
}

impl Plane {
    /// The page of its block where a logical page lies.
    pub(super) fn find(&self, page: u32) -> Option<u32> {
        let blocks = match self {
            Plane::Page(map) => &map.blocks,
            Plane::Log(map) => &map.blocks,
            Plane::InPlace { pages } => return Some(page % pages),
        };
        Some(blocks.find(page)? % blocks.pages)
    }

    /// Counts a read of the page: reads disturb its block.
    pub(super) fn disturb(&mut self, page: u32) {
        let blocks = match self {
            Plane::Page(map) => &mut map.blocks,
            Plane::Log(map) => &mut map.blocks,
            Plane::InPlace { .. } => return,
        };
        if let Some(slot) = blocks.find(page) {
            let reads = &mut blocks.reads[(slot / blocks.pages) as usize];
            *reads = reads.saturating_add(1);
        }
    }

    pub(super) fn written(&self, page: u32) -> bool {
        match self {
            Plane::Page(map) => map.blocks.find(page).is_some(),
            Plane::Log(map) => map.blocks.find(page).is_some(),
            Plane::InPlace { .. } => true,
        }
    }

    /// The page within its block that a write gets; `None` if it must wait for collection.
    pub(super) fn next(&self, page: u32) -> Option<u32> {
        match self {
            Plane::Page(map) => (!map.blocked()).then(|| map.next()),
            Plane::Log(map) => map.next(page),
            Plane::InPlace { pages } => Some(page % pages),
        }
    }

    pub(super) fn write(&mut self, page: u32) {
        match self {
            Plane::Page(map) => map.write(page),
            Plane::Log(map) => map.write(page),
            Plane::InPlace { .. } => {}
        }
    }

    pub(super) fn trim(&mut self, page: u32) {
        match self {
            Plane::Page(map) => map.trim(page),
            Plane::Log(map) => map.trim(page),
            Plane::InPlace { .. } => {}
        }
    }

    pub(super) fn busy(&self) -> bool {
        match self {
            Plane::Page(map) => map.busy(),
            Plane::Log(map) => map.busy(),
            Plane::InPlace { .. } => false,
        }
    }
}
