//! Prefetches under way at a simulated server: reads of what one has not reached yet come behind it, as in a real server
//! (crates/server/src/fetches.rs).
use crate::cluster::{Cluster, Left};
use penstock_base::Op;

/// A prefetch under way.
pub(crate) struct Fetching {
    pub request: u32,
    pub file: u32,
    /// Object bytes that it has not reached.
    pub from: u64,
    pub end: u64,
    /// Its parts in flight, with the offset at which each begins.
    pub parts: Vec<(u32, u64)>,
    /// Parts of reads that wait, and how far each has to be reached.
    pub waiting: Vec<(u32, u64)>,
}

impl Cluster<'_> {
    /// A prefetch begins.
    pub(crate) fn fetch_begins(&mut self, request: u32) {
        let r = &self.requests[request];
        let bounds = match &r.left {
            Left::Extent(offset) => *offset..*offset + r.bytes,
            Left::Pieces(pieces) => pieces.bounds(),
        };
        let fetching = Fetching {
            request,
            file: r.file,
            from: bounds.start,
            end: bounds.end,
            parts: Vec::new(),
            waiting: Vec::new(),
        };
        self.servers[r.server as usize].fetching.push(fetching);
    }

    /// A part of a prefetch begins.
    pub(crate) fn fetch_goes_on(&mut self, part: u32) {
        let request = self.parts[part].request;
        let server = self.requests[request].server as usize;
        let Some((start, _)) = self.parts[part].runs.first() else {
            return;
        };
        let all = &mut self.servers[server].fetching;
        if let Some(fetching) = all.iter_mut().find(|f| f.request == request) {
            fetching.parts.push((part, *start));
        }
    }

    /// Lets a part of a read wait for a prefetch of its bytes; false if there is none.
    pub(crate) fn comes_behind(&mut self, part: u32) -> bool {
        let p = &self.parts[part];
        let r = &self.requests[p.request];
        let all = &mut self.servers[r.server as usize].fetching;
        if all.is_empty() || r.op == Op::Write || r.fetch {
            return false;
        }
        let start = p.runs.iter().map(|(at, _)| *at).min().unwrap_or(0);
        let end = p.runs.iter().map(|(at, len)| at + len).max().unwrap_or(0);
        let ahead = all
            .iter_mut()
            .find(|f| f.file == r.file && f.from < end && start < f.end);
        if let Some(fetching) = ahead {
            fetching.waiting.push((part, end));
            return true;
        }
        false
    }

    /// A part of a prefetch is done: reads that waited for it go on.
    pub(crate) fn fetch_reaches(&mut self, part: u32, request: u32) {
        let server = self.requests[request].server as usize;
        let all = &mut self.servers[server].fetching;
        let Some(at) = all.iter().position(|f| f.request == request) else {
            return;
        };
        let fetching = &mut all[at];
        fetching.parts.retain(|(other, _)| *other != part);
        let next = fetching.parts.iter().map(|(_, start)| *start).min();
        fetching.from = next.unwrap_or(fetching.end);
        let reached = fetching.from;
        let (go, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut fetching.waiting)
            .into_iter()
            .partition(|(_, end)| *end <= reached || next.is_none());
        fetching.waiting = stay;
        if next.is_none() {
            all.swap_remove(at);
        }
        go.into_iter().for_each(|(part, _)| self.part_ready(part));
    }
}
