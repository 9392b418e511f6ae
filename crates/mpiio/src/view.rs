//! The view of a file (MPI-4.1 section 14.3): the visible bytes, and positions among them.
//!
//! Positions count etypes. The visible bytes are the filetype tiled without end from a displacement. An access is a
//! range of that stream and stays a [`Pattern`].
use crate::datarep::DataRep;
use crate::datatype::Datatype;
use crate::error::{Error, ErrorClass, Result};
use penstock_datatype::{Loop, Pattern};

/// The view in force, as passed to `set_view`.
#[derive(Debug, Clone)]
pub struct View {
    /// Byte displacement.
    pub disp: u64,
    /// Unit of positions.
    pub etype: Datatype,
    /// Template of the accessible bytes.
    pub filetype: Datatype,
    /// Data representation.
    pub datarep: DataRep,
}

/// Whether no block of one instance begins before the preceding block. Only types whose blocks overlap or go back are
/// checked block by block.
fn never_goes_back(tile: &Loop, disp: u64) -> bool {
    if tile.ascends() {
        return true;
    }
    let Ok(one) = Pattern::new(disp as i64, tile.clone(), 0, tile.size()) else {
        return true; // The access reports what is wrong with it.
    };
    let mut blocks = one.cursor();
    let mut last = i64::MIN;
    while let Some(block) = blocks.next_run(u64::MAX) {
        if block.offset < last {
            return false;
        }
        last = block.offset;
    }
    true
}

/// A checked view, with precomputed values for positions.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub view: View,
    /// The layout of the filetype in the file.
    tile: Loop,
    /// Bytes of one etype in the file.
    etype_bytes: u64,
    /// Whether offsets never decrease and never overlap along the stream. Instances that are larger than their extent
    /// may interleave: HDF5 and PnetCDF make such filetypes with Open MPI, and use one instance.
    monotone: bool,
}

impl Seen {
    /// The view of a newly opened file: all its bytes.
    pub(crate) fn whole() -> Result<Seen> {
        let byte = Datatype::byte();
        let view = View {
            disp: 0,
            etype: byte.clone(),
            filetype: byte,
            datarep: DataRep::Native,
        };
        Seen::new(view, true)
    }

    /// Checks a view; `writes`: the file may be written. The error says what is invalid.
    pub(crate) fn new(view: View, writes: bool) -> Result<Seen> {
        let in_file = |t: &Datatype| match view.datarep {
            DataRep::External32 => t.external32.clone(),
            DataRep::Native | DataRep::Internal => t.layout.clone(),
        };
        let tile = in_file(&view.filetype);
        let etype_bytes = in_file(&view.etype).size();
        if tile.size() > 0 && (etype_bytes == 0 || tile.size() % etype_bytes != 0) {
            return Err(Error::new(
                ErrorClass::Arg,
                format!(
                    "set_view: a filetype of {} bytes is not made of whole etypes of {etype_bytes} bytes; \
                     build the filetype from the etype",
                    tile.size()
                ),
            ));
        }
        let lowest = i64::try_from(view.disp)
            .ok()
            .and_then(|disp| disp.checked_add(tile.true_lb()));
        if tile.size() > 0 && lowest.is_none_or(|lowest| lowest < 0) {
            return Err(Error::new(
                ErrorClass::Arg,
                format!(
                    "set_view: displacement {} and first byte {} of the filetype leave the file; both must be 0 \
                     or more",
                    view.disp,
                    tile.true_lb()
                ),
            ));
        }
        let monotone = tile.is_monotone();
        if !never_goes_back(&tile, view.disp) {
            return Err(Error::new(
                ErrorClass::Arg,
                "set_view: the filetype's displacements decrease, which MPI forbids (MPI 4.1, section 14.3); order its \
                 blocks",
            ));
        }
        if writes && !tile.ascends() {
            return Err(Error::new(
                ErrorClass::Arg,
                "set_view: blocks of the filetype overlap, which MPI allows only on files opened MPI_MODE_RDONLY",
            ));
        }
        Ok(Seen {
            view,
            tile,
            etype_bytes,
            monotone,
        })
    }

    /// Whether offsets ascend along an access; otherwise it must be performed region by region.
    pub(crate) fn is_monotone(&self, access: &Pattern) -> bool {
        self.monotone || access.is_monotone()
    }

    /// Whether offsets ascend along accesses of at least one instance of the filetype.
    pub(crate) fn ascends(&self) -> bool {
        self.tile.ascends()
    }

    /// Whether all accesses are contiguous.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.tile.is_contiguous()
    }

    /// Whole etypes in `bytes` of the file.
    pub(crate) fn etypes(&self, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        if self.etype_bytes == 0 || !bytes.is_multiple_of(self.etype_bytes) {
            return Err(Error::new(
                ErrorClass::Arg,
                format!(
                    "an access of {bytes} bytes is not a whole number of the view's etypes of {} bytes; change the \
                     count or the etype",
                    self.etype_bytes
                ),
            ));
        }
        Ok(bytes / self.etype_bytes)
    }

    /// The file side of an access of `bytes` bytes at `position` etypes.
    pub(crate) fn pattern(&self, position: i64, bytes: u64) -> Result<Pattern> {
        let start = self.stream(position)?;
        if bytes == 0 {
            return Ok(Pattern::contiguous(0, 0));
        }
        if self.tile.size() == 0 {
            return Err(Error::new(
                ErrorClass::Arg,
                format!(
                    "an access of {bytes} bytes through a view with an empty filetype; set another view"
                ),
            ));
        }
        Pattern::new(self.view.disp as i64, self.tile.clone(), start, bytes).map_err(|e| {
            Error::new(
                ErrorClass::Arg,
                format!("an access of {bytes} bytes at offset {position} leaves the file: {e}; use a smaller offset"),
            )
        })
    }

    /// The stream byte at which position `position` begins.
    fn stream(&self, position: i64) -> Result<u64> {
        let position = u64::try_from(position).map_err(|_| {
            Error::new(
                ErrorClass::Arg,
                format!("offset {position} is before the beginning of the view; use 0 or more"),
            )
        })?;
        position
            .checked_mul(self.etype_bytes.max(1))
            .ok_or_else(|| {
                Error::new(
                    ErrorClass::Arg,
                    format!(
                        "offset {position} etypes of {} bytes is beyond 2^63 bytes",
                        self.etype_bytes
                    ),
                )
            })
    }

    /// Absolute byte position of `position` etypes.
    pub(crate) fn byte_offset(&self, position: i64) -> Result<i64> {
        if self.tile.size() == 0 {
            self.stream(position)?;
            return Ok(self.view.disp as i64);
        }
        Ok(self.pattern(position, 1)?.bounds().0)
    }

    /// The first position at or beyond the end of a file of `len` bytes.
    pub(crate) fn end(&self, len: u64) -> Result<i64> {
        if self.etype_bytes == 0 || self.tile.size() == 0 {
            return Ok(0);
        }
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let seen = if self.monotone {
            self.whole_stream(len).stream_at(len)
        } else {
            // Without an order only whole tiles are known to be before the end.
            let tile_end =
                self.view.disp as i64 + self.tile.true_lb() + self.tile.true_extent() as i64;
            let extent = self.tile.extent().max(1);
            if len < tile_end {
                0
            } else {
                ((len - tile_end) / extent + 1) as u64 * self.tile.size()
            }
        };
        Ok(seen.div_ceil(self.etype_bytes) as i64)
    }

    /// Enough of the stream to reach `len`: the range that `stream_at` may search.
    fn whole_stream(&self, len: i64) -> Pattern {
        let disp = self.view.disp as i64;
        let tiles = if self.tile.extent() > 0 {
            let first = disp.saturating_add(self.tile.lb().min(self.tile.true_lb()));
            len.saturating_sub(first).max(0) as u64 / self.tile.extent() as u64 + 2
        } else {
            1
        };
        Pattern {
            disp,
            tile: self.tile.clone(),
            start: 0,
            len: tiles.saturating_mul(self.tile.size()),
        }
    }
}
