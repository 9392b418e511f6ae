//! Placement: where files lie on the servers' devices.
//!
//! Distances on the medium determine what an alternation between two files costs (RS 5.3.4), so the scenario sets them.
//! Each object is contiguous, and files follow one another at the same addresses of every server. `program.distance`
//! free bytes precede the files of each further instance. With `fragmentation` in the device's description, that share
//! of an object's extents is elsewhere, as the local file system of crates/device allocates them.
use crate::error::{Error, Result};
use crate::pages::Range;
use penstock_device::{Allocation, AllocationOptions};
use penstock_layout::{Layout, ServerIndex};

/// Where files lie on the devices.
pub(crate) struct Files {
    /// First byte on each device, and length of the file.
    places: Vec<(u64, u64)>,
    end: u64,
    /// The extents of fragmented objects.
    extents: Option<Allocation>,
    /// Whether there was too little space.
    full: bool,
}

/// Files begin at multiples of this.
const ALIGN: u64 = 1 << 20;

impl Files {
    /// No files yet; `capacity` is that of the smallest device.
    pub(crate) fn new(allocation: AllocationOptions, capacity: u64) -> Files {
        let fragmented = allocation.fragmentation > 0.0;
        Files {
            places: Vec::new(),
            end: 0,
            extents: fragmented.then(|| Allocation::new(allocation, capacity)),
            full: false,
        }
    }

    /// Places files after `gap` free bytes; returns the number of the first one.
    pub(crate) fn add(&mut self, count: u32, bytes: u64, gap: u64, layout: &Layout) -> u32 {
        let first = self.places.len() as u32;
        self.end = self.end.saturating_add(gap);
        let object = layout.object_len(bytes, ServerIndex(0));
        for _ in 0..count {
            if let Some(extents) = &mut self.extents {
                extents.begin_at(self.end);
                let bytes = object.next_multiple_of(ALIGN);
                self.full |= !extents.map(self.places.len() as u64, 0, bytes, |_, _| {});
            }
            self.places.push((self.end, bytes));
            self.end = self.end.saturating_add(object.next_multiple_of(ALIGN));
        }
        first
    }

    /// The server that holds part `index` of a file: files begin on different servers.
    pub(crate) fn server(&self, file: u32, index: ServerIndex, servers: u32) -> u32 {
        (index.0 + file % servers) % servers
    }

    /// Calls `piece(address, bytes)` for the pieces of a range on its device, in order.
    pub(crate) fn pieces(&mut self, range: &Range, mut piece: impl FnMut(u64, u64)) {
        match &mut self.extents {
            Some(extents) => {
                extents.map(range.object.into(), range.offset, range.bytes, piece);
            }
            None => piece(
                self.places[range.object as usize].0 + range.offset,
                range.bytes,
            ),
        }
    }

    pub(crate) fn object_bytes(&self, object: u32, layout: &Layout) -> u64 {
        // The length of the longest object; read-ahead past a shorter one's end reads what is allocated next.
        layout.object_len(self.places[object as usize].1, ServerIndex(0))
    }

    /// Refuses files that do not fit a device of this many bytes, the smallest one.
    pub(crate) fn check(&self, smallest: u64) -> Result<()> {
        if self.full || self.end > smallest {
            return Err(Error::key(
                "device",
                format!(
                    "the programs' files need {} B on each device, which has {smallest} B; make files or distances smaller, or add servers",
                    self.end
                ),
            ));
        }
        Ok(())
    }
}
