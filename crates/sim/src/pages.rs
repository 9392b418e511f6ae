//! The page cache of a data server: which pages of each object are cached, being read, or dirty; read-ahead;
//! write-back.
//!
//! Pages of 4 KiB in blocks of 128. When memory is full, clean blocks are dropped first in, first out. Dirty pages are
//! written back in ascending order, as the kernel's flusher does. A page that is partly written is not read first: the
//! programs here write new files.
//!
//! Read-ahead follows the sources' kernels (Linux 2.6 before 2.6.23, mm/readahead.c). A sequential reader has a window
//! that it reads from, and one ahead that is being read. When it crosses into the second, that becomes the first, and
//! the next one is requested as a whole. So read-ahead makes requests of a window's size, not of the reader's.
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Pages of a block, one bit each.
const PAGES: u64 = 128;
const BLOCK: u64 = PAGE * PAGES;

/// An object on its server.
pub(crate) type Object = u32;

#[derive(Default)]
struct Block {
    present: u128,
    dirty: u128,
    /// Pages being read, by their fetch.
    coming: Vec<(u128, u32)>,
}

impl Block {
    fn coming(&self) -> u128 {
        self.coming.iter().fold(0, |all, (mask, _)| all | mask)
    }
}

/// The kernel's state of sequential reading of an object.
#[derive(Default, Clone, Copy)]
struct Stream {
    /// Where a sequential read would begin.
    next: u64,
    /// Bytes of the newest window; 0: not sequential.
    size: u64,
    /// End of the window that is read from.
    window: u64,
    /// End of the window ahead; the same if there is none.
    ahead: u64,
    /// End of the pages that were requested.
    asked: u64,
}

impl Stream {
    /// The first window for a read of `bytes`.
    fn first(bytes: u64, most: u64) -> u64 {
        let bytes = bytes.next_multiple_of(PAGE).next_power_of_two();
        match bytes {
            small if small <= most / 32 => small * 4,
            medium if medium <= most / 4 => medium * 2,
            _ => most,
        }
    }

    /// Requests a window behind the last one: four times its size while that is small, then twice.
    fn go_ahead(&mut self, most: u64) {
        let factor = if self.size < most / 16 { 4 } else { 2 };
        self.size = (self.size * factor).min(most);
        self.ahead = self.window + self.size;
    }

    /// Reads `from..upto` and `more` bytes in one request, at most the largest window.
    fn read(&mut self, from: u64, upto: u64, more: u64, most: u64) {
        // Sequential: begins where the last read ended, or within the page in which it ended.
        let sequential =
            from == self.next || self.next > 0 && from / PAGE == (self.next - 1) / PAGE;
        self.next = upto;
        if !sequential {
            self.size = 0;
            self.asked = 0;
            return;
        }
        if self.size == 0 {
            self.size = Stream::first(upto - from, most);
            self.window = from / PAGE * PAGE + self.size;
            self.ahead = self.window;
            if upto - from + more >= most {
                self.go_ahead(most);
            }
            return;
        }
        if self.ahead == self.window {
            self.go_ahead(most);
        }
        while upto > self.window {
            self.window = self.ahead;
            self.go_ahead(most);
        }
    }
}

/// A byte range of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub object: Object,
    pub offset: u64,
    pub bytes: u64,
}

/// What a read needs.
#[derive(Default)]
pub(crate) struct Needs {
    /// Ranges to fetch for it, whole pages.
    pub fetch: Vec<Range>,
    /// Fetches in progress that it waits for.
    pub wait: Vec<u32>,
    /// Ranges to fetch ahead, which nobody waits for.
    pub ahead: Vec<Range>,
}

impl Needs {
    pub(crate) fn clear(&mut self) {
        self.fetch.clear();
        self.wait.clear();
        self.ahead.clear();
    }
}

/// The cache of one server.
pub(crate) struct Pages {
    blocks: BTreeMap<(Object, u64), Block>,
    streams: BTreeMap<Object, Stream>,
    /// Blocks in order of insertion.
    order: VecDeque<(Object, u64)>,
    most_blocks: usize,
    read_ahead: u64,
    /// Bytes written and not yet sent to the device.
    dirty: u64,
    /// Where write-back continues.
    hand: (Object, u64),
}

fn mask(first: u64, last: u64) -> u128 {
    (u128::MAX << first) & (u128::MAX >> (PAGES - 1 - last))
}

/// Calls `f(block, mask)` for the pages that `range` touches.
fn blocks_of(range: Range, mut f: impl FnMut(u64, u128)) {
    if range.bytes == 0 {
        return;
    }
    let (first, last) = (range.offset / PAGE, (range.offset + range.bytes - 1) / PAGE);
    for block in first / PAGES..=last / PAGES {
        let start = block * PAGES;
        let low = first.max(start) - start;
        let high = last.min(start + PAGES - 1) - start;
        f(block, mask(low, high));
    }
}

/// Calls `f(first page, pages)` for the runs of ones.
fn runs(mut bits: u128, mut f: impl FnMut(u64, u64)) {
    while bits != 0 {
        let first = bits.trailing_zeros();
        let len = (!(bits >> first)).trailing_zeros().min(128 - first);
        f(first.into(), len.into());
        let upto = first + len;
        bits &= if upto == 128 { 0 } else { u128::MAX << upto };
    }
}

fn push(ranges: &mut Vec<Range>, object: Object, block: u64, first: u64, pages: u64) {
    let offset = block * BLOCK + first * PAGE;
    let bytes = pages * PAGE;
    match ranges.last_mut() {
        Some(last) if last.object == object && last.offset + last.bytes == offset => {
            last.bytes += bytes;
        }
        _ => ranges.push(Range {
            object,
            offset,
            bytes,
        }),
    }
}

impl Pages {
    pub(crate) fn new(bytes: u64, read_ahead: u64) -> Pages {
        Pages {
            blocks: BTreeMap::new(),
            streams: BTreeMap::new(),
            order: VecDeque::new(),
            most_blocks: bytes.div_ceil(BLOCK).max(1) as usize,
            read_ahead: read_ahead.next_multiple_of(PAGE),
            dirty: 0,
            hand: (0, 0),
        }
    }

    fn block(&mut self, object: Object, block: u64) -> &mut Block {
        let order = &mut self.order;
        self.blocks.entry((object, block)).or_insert_with(|| {
            order.push_back((object, block));
            Block::default()
        })
    }

    /// Drops clean blocks, the oldest first, while there are too many; checks each at most once.
    fn shrink(&mut self) {
        let mut looks = self.order.len();
        while self.blocks.len() > self.most_blocks && looks > 0 {
            looks -= 1;
            let Some(at) = self.order.pop_front() else {
                return;
            };
            match self.blocks.get(&at) {
                Some(block) if block.dirty != 0 || !block.coming.is_empty() => {
                    self.order.push_back(at);
                }
                _ => {
                    self.blocks.remove(&at);
                }
            }
        }
    }

    /// What must be fetched for a read of `range` of an object of `len` bytes.
    pub(crate) fn read(&mut self, range: Range, len: u64, needs: &mut Needs) {
        needs.clear();
        self.missing(range, &mut needs.fetch, Some(&mut needs.wait));
        if self.read_ahead > 0 {
            self.look_ahead(range, len, needs);
        }
    }

    fn missing(&mut self, range: Range, fetch: &mut Vec<Range>, mut wait: Option<&mut Vec<u32>>) {
        blocks_of(range, |number, wanted| {
            let block = self.block(range.object, number);
            let coming = block.coming();
            if let Some(wait) = &mut wait {
                for (mask, fetch) in &block.coming {
                    if mask & wanted != 0 && !wait.contains(fetch) {
                        wait.push(*fetch);
                    }
                }
            }
            runs(wanted & !block.present & !coming, |first, pages| {
                push(fetch, range.object, number, first, pages);
            });
        });
    }

    fn look_ahead(&mut self, range: Range, len: u64, needs: &mut Needs) {
        let end = range.offset + range.bytes;
        let most = self.read_ahead;
        let stream = self.streams.entry(range.object).or_default();
        // The kernel handles a long read window by window.
        let mut at = range.offset;
        while at < end {
            let upto = end.min(at + most);
            stream.read(at, upto, end - upto, most);
            at = upto;
        }
        let (from, target) = (end.max(stream.asked), stream.ahead.min(len));
        if stream.size == 0 || target <= from {
            return;
        }
        stream.asked = target;
        let ahead = Range {
            object: range.object,
            offset: from,
            bytes: target - from,
        };
        let mut fetch = std::mem::take(&mut needs.ahead);
        self.missing(ahead, &mut fetch, None);
        // Drops ranges that the read itself brings.
        fetch.retain(|r| {
            !needs.fetch.iter().any(|f| {
                f.object == r.object && f.offset <= r.offset && r.offset < f.offset + f.bytes
            })
        });
        needs.ahead = fetch;
    }

    /// `fetch` is reading `range`.
    pub(crate) fn comes(&mut self, range: Range, fetch: u32) {
        blocks_of(range, |number, mask| {
            self.block(range.object, number).coming.push((mask, fetch));
        });
    }

    /// The fetch is complete.
    pub(crate) fn came(&mut self, range: Range, fetch: u32) {
        blocks_of(range, |number, mask| {
            let block = self.block(range.object, number);
            block.coming.retain(|(_, f)| *f != fetch);
            block.present |= mask;
        });
        self.shrink();
    }

    /// Marks bytes as written.
    pub(crate) fn write(&mut self, range: Range) {
        let mut fresh = 0;
        blocks_of(range, |number, mask| {
            let block = self.block(range.object, number);
            fresh += (mask & !block.dirty).count_ones();
            block.present |= mask;
            block.dirty |= mask;
        });
        self.dirty += u64::from(fresh) * PAGE;
        self.shrink();
    }

    /// Dirty bytes.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }

    /// The next range to write back, at most `most` bytes, in ascending order from where the last one ended.
    pub(crate) fn write_back(&mut self, most: u64) -> Option<Range> {
        if self.dirty == 0 {
            return None;
        }
        let found = self
            .blocks
            .range(self.hand..)
            .chain(self.blocks.range(..self.hand))
            .find(|(_, block)| block.dirty != 0)
            .map(|(at, _)| *at)?;
        let mut range: Option<Range> = None;
        let (object, mut number) = found;
        // Dirty pages that follow each other, across blocks.
        while let Some(block) = self.blocks.get_mut(&(object, number)) {
            let mut bits = block.dirty;
            if let Some(range) = range {
                let page = range.offset / PAGE + range.bytes / PAGE;
                if page != number * PAGES || bits & 1 == 0 {
                    break;
                }
            }
            let first = u64::from(bits.trailing_zeros());
            if bits == 0 {
                break;
            }
            bits >>= first;
            let room = (most - range.map_or(0, |r| r.bytes)) / PAGE;
            let pages = u64::from((!bits).trailing_zeros())
                .min(PAGES - first)
                .min(room);
            if pages == 0 {
                break;
            }
            block.dirty &= !mask(first, first + pages - 1);
            self.dirty -= pages * PAGE;
            match &mut range {
                Some(range) => range.bytes += pages * PAGE,
                None => {
                    range = Some(Range {
                        object,
                        offset: number * BLOCK + first * PAGE,
                        bytes: pages * PAGE,
                    });
                }
            }
            self.hand = (object, number);
            if first + pages < PAGES {
                break;
            }
            number += 1;
        }
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, bytes: u64) -> Range {
        Range {
            object: 0,
            offset,
            bytes,
        }
    }

    fn fetch(pages: &mut Pages, at: Range) -> Vec<Range> {
        let mut needs = Needs::default();
        pages.read(at, 1 << 30, &mut needs);
        let all: Vec<Range> = needs.fetch.iter().chain(&needs.ahead).copied().collect();
        for (i, r) in all.iter().enumerate() {
            pages.comes(*r, i as u32);
            pages.came(*r, i as u32);
        }
        all
    }

    #[test]
    fn what_was_read_or_written_is_there() {
        let mut pages = Pages::new(1 << 30, 0);
        assert_eq!(fetch(&mut pages, range(100, 5000)), [range(0, 8192)]);
        assert_eq!(fetch(&mut pages, range(0, 8192)), []);
        pages.write(range(8192, 4096));
        assert_eq!(fetch(&mut pages, range(0, 16384)), [range(12288, 4096)]);
    }

    #[test]
    fn a_read_waits_for_what_is_on_its_way() {
        let mut pages = Pages::new(1 << 30, 0);
        pages.comes(range(0, 65536), 7);
        let mut needs = Needs::default();
        pages.read(range(4096, 131072), 1 << 30, &mut needs);
        assert_eq!(needs.wait, [7]);
        assert_eq!(needs.fetch, [range(65536, 69632)]);
    }

    #[test]
    fn sequential_reads_run_ahead_and_others_do_not() {
        let mut pages = Pages::new(1 << 30, 128 << 10);
        let first = fetch(&mut pages, range(0, 65536));
        let bytes: u64 = first.iter().map(|r| r.bytes).sum();
        assert_eq!(bytes, 65536 + 65536);
        fetch(&mut pages, range(65536, 65536));
        // The next window has been read; its first byte triggers the request for the following window as a whole.
        assert_eq!(
            fetch(&mut pages, range(131072, 65536)),
            [range(262144, 131072)]
        );
        assert_eq!(fetch(&mut pages, range(196608, 65536)), []);
        let mut needs = Needs::default();
        pages.read(range(10 << 20, 65536), 1 << 30, &mut needs);
        assert!(needs.ahead.is_empty() && needs.fetch.len() == 1);
        // Windows of a long read follow each other as if read by a sequential reader.
        let long = fetch(&mut pages, range(100 << 20, 262144));
        assert_eq!(
            long,
            [
                range(100 << 20, 262144),
                range((100 << 20) + 262144, 131072)
            ]
        );
    }

    #[test]
    fn small_reads_begin_with_a_small_window() {
        let mut pages = Pages::new(1 << 30, 128 << 10);
        let ends: Vec<u64> = (0..5)
            .map(|i| {
                let came = fetch(&mut pages, range(i * PAGE, PAGE));
                came.last().map_or(0, |r| (r.offset + r.bytes) / PAGE)
            })
            .collect();
        // Four pages, eight, and from the fifth page on sixteen.
        assert_eq!(ends, [4, 12, 0, 0, 28]);
    }

    #[test]
    fn write_back_ascends_and_joins() {
        let mut pages = Pages::new(1 << 30, 0);
        for at in [3u64, 1, 2, 200, 0] {
            pages.write(range(at * PAGE, PAGE));
        }
        pages.write(range(100 * PAGE, 100 * PAGE));
        assert_eq!(pages.dirty(), 105 * PAGE);
        let mut seen = Vec::new();
        while let Some(r) = pages.write_back(1 << 20) {
            seen.push((r.offset / PAGE, r.bytes / PAGE));
        }
        assert_eq!(seen, [(0, 4), (100, 101)]);
        assert_eq!(pages.dirty(), 0);
        pages.write(range(0, 64 * PAGE));
        assert_eq!(pages.write_back(16 * PAGE), Some(range(0, 16 * PAGE)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut pages = Pages::new(4 * BLOCK, 0);
        for at in 0..100 {
            fetch(&mut pages, range(at * BLOCK, BLOCK));
        }
        assert!(pages.blocks.len() <= 5 && pages.order.len() <= 5);
    }
}
