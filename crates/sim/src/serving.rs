//! The path of a request through a data server: processor, dispatcher, page cache and device.
//!
//! *Problem*: the value of a policy depends on its surroundings. These are when a request reaches it, what its decision
//! costs, and what the device makes of the order. *Idea*: a request takes the same path as in Penstock's server, or
//! with other settings as in the sources' servers. The processor handles its next part (`part_begins`), which goes to
//! the dispatcher of crates/sched as one slice (`queue_slice`). The dispatcher decides how many are served at a time
//! (`pump`). What it starts goes to the page cache, or to the block queue and the device (`serve`, `access`), and
//! returns as a reply (`part_done`). Dirty pages are written back by a timer, by their amount, or for a sync
//! (`write_back`, `drain`).
use crate::cluster::{Cluster, Event, Fetch, Left, Service};
use crate::connection::Ends;
use crate::error::Error;
use crate::pages::{Pages, Range};
use crate::random::delay;
use crate::scenario::{Processes, Runs};
use crate::server::Server;
use penstock_base::{Nanos, Op};
use penstock_device::Request as Access;
use penstock_sched as sched;
use penstock_sched::learn::Limits;
use penstock_trace::{Event as Seen, Kind};

/// Who made a device request of a server, in the low bits of its identifier.
const DIRECT: u64 = 0;
const FETCH: u64 = 1;
const WRITE_BACK: u64 = 2;
const EMPTY: u64 = 3;
const KINDS: u64 = 4;
/// The process number of write-back.
const FLUSHER: u32 = u32::MAX;
/// Write-backs in flight at a time, and the bytes of each.
const WRITE_BACKS: u32 = 32;
const WRITE_BACK_BYTES: u64 = 512 << 10;

impl Cluster<'_> {
    fn at(&mut self, server: u32) -> &mut Server {
        &mut self.servers[server as usize]
    }

    /// A read has arrived: its first parts begin once its connection allows it.
    pub(crate) fn request_arrives(&mut self, request: u32) {
        let r = &self.requests[request];
        let ends = (r.rank, r.server);
        if self.connections.comes(ends, request, None) {
            self.take_up(request);
        }
    }

    fn take_up(&mut self, request: u32) {
        let r = &self.requests[request];
        if r.fetch {
            // Its rank waits for no more than that.
            let (rank, from) = (
                self.ranks[r.rank as usize].node,
                self.servers[r.server as usize].node,
            );
            let header = self.scenario.network.header.0 * u64::from(r.weight);
            let seen = self.now + self.scenario.server.request.0;
            let at = self.network.send(seen, from, rank, header);
            self.events.push(at, Event::Taken(r.flight));
            self.fetch_begins(request);
        }
        for _ in 0..self.scenario.server.window {
            if self.requests[request].bytes == 0 {
                break;
            }
            self.begin_part(request);
        }
    }

    /// Begins the next part of a read.
    pub(crate) fn begin_part(&mut self, request: u32) {
        let part = self.next_part(request);
        if self.requests[request].fetch {
            self.fetch_goes_on(part);
        }
        self.part_begins(part);
    }

    /// A part of a write has arrived.
    pub(crate) fn part_arrives(&mut self, part: u32) {
        let request = self.parts[part].request;
        let r = &self.requests[request];
        let ends = (r.rank, r.server);
        if self.connections.comes(ends, request, Some(part)) {
            self.part_begins(part);
        }
    }

    /// The processor handles a part that has arrived.
    fn part_begins(&mut self, part: u32) {
        let costs = &self.scenario.server;
        let (first, each) = (costs.request.0, costs.region.0);
        let memory = self.scenario.network.memory.0;
        let p = &self.parts[part];
        let r = &mut self.requests[p.request];
        r.serving += 1;
        let mut time = (u128::from(p.bytes) * 1_000_000_000 / u128::from(memory)) as Nanos;
        if !r.seen {
            r.seen = true;
            time += first * u64::from(r.weight);
        }
        if r.structured {
            time += each * u64::from(p.regions);
        }
        let server = r.server;
        let now = self.now;
        let at = self.at(server).work(now, time);
        self.events.push(at, Event::Ready(part));
    }

    /// A part is passed to the scheduler.
    pub(crate) fn part_ready(&mut self, part: u32) {
        if self.parts[part].runs.is_empty() {
            self.part_done(part);
            return;
        }
        if self.is_held(part) || self.comes_behind(part) {
            return;
        }
        self.queue_slice(part);
        let server = self.requests[self.parts[part].request].server;
        self.pump(server);
    }

    /// One request to the scheduler, as the data server makes it (crates/server/src/queue.rs): the bytes of the part,
    /// and the object's range that contains them. They differ unless the request is an extent: a server does not walk a
    /// pattern to find where its next bytes end.
    fn queue_slice(&mut self, part: u32) {
        let p = &self.parts[part];
        let r = &self.requests[p.request];
        let span = match &r.left {
            Left::Extent(_) => p.runs[0].0..p.runs[0].0 + p.runs[0].1,
            Left::Pieces(pieces) if pieces.is_monotone() => p.runs[0].0..pieces.bounds().end,
            Left::Pieces(pieces) => pieces.bounds(),
        };
        let request = sched::Request {
            id: part.into(),
            file: r.file.into(),
            op: r.op,
            offset: span.start,
            bytes: p.bytes,
            program: self.ranks[r.rank as usize].program.into(),
            process: r.rank,
        };
        let server = &mut self.servers[r.server as usize];
        let arrival = sched::Arrival {
            request,
            end: span.end,
        };
        if let Some(seen) = &mut server.seen
            && seen.len() <= Limits::default().requests
        {
            seen.push(Seen {
                at: self.now,
                request: request.id,
                kind: Kind::Arrival,
                op: request.op,
                file: request.file,
                offset: request.offset,
                bytes: request.bytes,
                program: request.program,
                rank: request.process,
                mpi_call: 0,
                client_call: 0,
            });
        }
        if let Err(error) = server.dispatcher.add(self.now, &arrival) {
            self.failed
                .get_or_insert(Error::key("server.scheduler", error.to_string()));
        }
    }

    pub(crate) fn scheduler_wakes(&mut self, server: u32) {
        if self.at(server).asked <= self.now {
            self.at(server).asked = Nanos::MAX;
        }
        self.pump(server);
    }

    /// Starts what the dispatcher returns, and sets when to call it again.
    fn pump(&mut self, server: u32) {
        let now = self.now;
        let s = &mut self.servers[server as usize];
        let mut started = std::mem::take(&mut s.started);
        s.dispatcher.poll(now, &mut started);
        if let Some(at) = s.dispatcher.wake()
            && at < s.asked
        {
            s.asked = at;
            self.events.push(at, Event::Schedule(server));
        }
        for chosen in started.drain(..) {
            self.begin_service(server, &chosen);
        }
        self.servers[server as usize].started = started;
    }

    /// The processor is busy with the decision; then the virtual request is served.
    fn begin_service(&mut self, server: u32, chosen: &sched::VirtualRequest) {
        self.totals.decisions += 1;
        let op = chosen.op;
        let service = self.services.put(|old| match old {
            Some(old) => {
                old.server = server;
                old.virtual_id = chosen.id;
                old.slices.clear();
                old.ranges.clear();
                old.begun = 0;
                old.op = op;
                old.pending = 0;
                None
            }
            None => Some(Service {
                server,
                virtual_id: chosen.id,
                slices: Vec::new(),
                ranges: Vec::new(),
                begun: 0,
                op,
                rank: 0,
                pending: 0,
            }),
        });
        let s = &self.servers[server as usize];
        let Service {
            slices,
            ranges,
            rank,
            ..
        } = &mut self.services[service];
        slices.extend(s.dispatcher.parts(chosen.id).map(|slice| slice.id as u32));
        let mut before = false;
        for slice in &*slices {
            let part = &self.parts[*slice];
            let request = &self.requests[part.request];
            if ranges.is_empty() {
                *rank = request.rank;
            }
            // Adjacent extents are one access; the others are separate.
            let extent = matches!(request.left, Left::Extent(_));
            for (offset, bytes) in &part.runs {
                match ranges.last_mut() {
                    Some(last) if before && extent && last.offset + last.bytes == *offset => {
                        last.bytes += bytes;
                    }
                    _ => ranges.push(Range {
                        object: chosen.file as u32,
                        offset: *offset,
                        bytes: *bytes,
                    }),
                }
            }
            before = extent;
        }
        let s = &mut self.servers[server as usize];
        let at = s.work(self.now, self.scenario.server.decision.0);
        self.events.push(at, Event::Serve(service));
    }

    /// Continues a virtual request: starts all of its accesses, or the next one if each is waited for.
    pub(crate) fn serve(&mut self, service: u32) {
        let in_turn = self.scenario.server.runs == Runs::InTurn;
        loop {
            let s = &self.services[service];
            let Some(range) = s.ranges.get(s.begun).copied() else {
                break;
            };
            let (server, op) = (s.server, s.op);
            let cached = self.servers[server as usize].pages.is_some();
            match (op, cached) {
                (_, false) => {
                    let process = self.process(service);
                    let id = u64::from(service) * KINDS + DIRECT;
                    let pieces = self.access(server, op, range, id, process);
                    self.services[service].pending += pieces;
                }
                (Op::Read, true) => self.read_pages(service, range),
                (Op::Write, true) if self.write_pages(service, range) => {}
                // It continues when there is memory.
                (Op::Write, true) => return,
            }
            self.services[service].begun += 1;
            if in_turn && self.services[service].pending > 0 {
                return;
            }
        }
        if self.services[service].pending == 0 {
            self.served(service);
        }
    }

    fn process(&self, service: u32) -> u32 {
        match self.scenario.server.processes {
            Processes::Server => 0,
            Processes::Rank => self.services[service].rank,
        }
    }

    fn read_pages(&mut self, service: u32, range: Range) {
        let server = self.services[service].server;
        let process = self.process(service);
        let len = self.files.object_bytes(range.object, &self.layout);
        let mut needs = std::mem::take(&mut self.needs);
        if let Some(pages) = &mut self.servers[server as usize].pages {
            pages.read(range, len, &mut needs);
        }
        let mut pending = 0;
        for fetch in &needs.wait {
            self.fetches[*fetch].waiting.push(service);
            pending += 1;
        }
        // The bytes of the read and its read-ahead behind them are one request.
        let joined = match (needs.fetch.last_mut(), needs.ahead.first()) {
            (Some(last), Some(ahead)) if last.offset + last.bytes == ahead.offset => {
                last.bytes += ahead.bytes;
                1
            }
            _ => 0,
        };
        for (range, wanted) in needs
            .fetch
            .iter()
            .map(|r| (r, true))
            .chain(needs.ahead.iter().skip(joined).map(|r| (r, false)))
        {
            let fetch = self.fetches.insert(Fetch {
                server,
                range: *range,
                pieces: 0,
                waiting: if wanted { vec![service] } else { Vec::new() },
            });
            pending += u32::from(wanted);
            if let Some(pages) = &mut self.servers[server as usize].pages {
                pages.comes(*range, fetch);
            }
            let id = u64::from(fetch) * KINDS + FETCH;
            self.fetches[fetch].pieces = self.access(server, Op::Read, *range, id, process);
        }
        self.needs = needs;
        self.services[service].pending += pending;
    }

    /// Returns whether there was memory. If not, the virtual request continues when there is.
    fn write_pages(&mut self, service: u32, range: Range) -> bool {
        let server = self.services[service].server;
        let limit = self.scenario.server.dirty.0;
        let flush = self.scenario.server.flush.0;
        let background = self.scenario.server.background.map(|bytes| bytes.0);
        let now = self.now;
        let s = &mut self.servers[server as usize];
        let Some(pages) = &mut s.pages else {
            return true;
        };
        if pages.dirty() >= limit {
            s.blocked.push_back(service);
            s.goal = s.goal.max(limit / 2);
            self.write_back(server);
            return false;
        }
        pages.write(range);
        if !s.timer {
            s.timer = true;
            self.events.push(now + flush, Event::Flush(server));
        }
        let over = background.map_or(0, |from| pages.dirty().saturating_sub(from));
        if over > 0 {
            s.goal = s.goal.max(over);
            self.write_back(server);
        }
        true
    }

    /// The timer of write-back: what is dirty now is to be written back.
    pub(crate) fn flush_time(&mut self, server: u32) {
        let s = self.at(server);
        s.timer = false;
        let dirty = s.pages.as_ref().map_or(0, Pages::dirty);
        s.goal = s.goal.max(dirty);
        self.write_back(server);
    }

    fn write_back(&mut self, server: u32) {
        loop {
            let s = &mut self.servers[server as usize];
            if s.writing_back >= WRITE_BACKS || (s.goal == 0 && !s.urgent) {
                return;
            }
            let Some(range) = s
                .pages
                .as_mut()
                .and_then(|p| p.write_back(WRITE_BACK_BYTES))
            else {
                s.goal = 0;
                return;
            };
            s.goal = s.goal.saturating_sub(range.bytes);
            let pieces = self.access(server, Op::Write, range, WRITE_BACK, FLUSHER);
            self.servers[server as usize].writing_back += pieces;
        }
    }

    /// Syncs a program's writes before it ends.
    pub(crate) fn drain(&mut self, program: u32) {
        self.draining.push(program);
        for server in 0..self.servers.len() as u32 {
            self.at(server).urgent = true;
            self.write_back(server);
        }
        self.drained();
    }

    fn drained(&mut self) {
        if self.draining.is_empty() || !self.servers.iter().all(Server::is_clean) {
            return;
        }
        // The devices' own caches must be written to the media too.
        if self.servers.iter().any(|s| s.urgent) {
            let now = self.now;
            for server in 0..self.servers.len() as u32 {
                let s = self.at(server);
                s.urgent = false;
                s.emptying = true;
                s.device.flush(now, EMPTY);
                self.look_at(server);
            }
            return;
        }
        if self.servers.iter().any(|s| s.emptying) {
            return;
        }
        for program in std::mem::take(&mut self.draining) {
            self.programs[program as usize].end = self.now;
        }
    }

    /// Sends a range to a server's device, one request per piece there.
    fn access(&mut self, server: u32, op: Op, range: Range, id: u64, process: u32) -> u32 {
        let now = self.now;
        let s = &mut self.servers[server as usize];
        let mut pieces = 0;
        let locates = self.orchestration.is_some();
        let program = self.file_programs[range.object as usize];
        self.files.pieces(&range, |address, bytes| {
            pieces += 1;
            if locates {
                s.gated.locality.served(now, program.into(), address, bytes);
            }
            s.device_requests += 1;
            s.device_bytes += bytes;
            s.seeks += u128::from(address.abs_diff(s.last));
            s.last = address + bytes;
            s.device.submit(
                now,
                Access {
                    id,
                    op,
                    address,
                    bytes,
                    process,
                },
            );
            if server == 0 {
                self.head.add(now, address);
            }
        });
        self.look_at(server);
        pieces
    }

    /// Sets when the device is called next.
    fn look_at(&mut self, server: u32) {
        let now = self.now;
        let s = self.at(server);
        let Some(wake) = s.device.wake() else {
            return;
        };
        let wake = wake.max(now);
        if wake < s.looked {
            s.looked = wake;
            self.events.push(wake, Event::Device(server));
        }
    }

    pub(crate) fn device_wakes(&mut self, server: u32) {
        let now = self.now;
        let s = self.at(server);
        if s.looked <= now {
            s.looked = Nanos::MAX;
        }
        let mut done = std::mem::take(&mut s.completions);
        s.device.advance(now, &mut done);
        for completion in &done {
            let place = (completion.id / KINDS) as u32;
            match completion.id % KINDS {
                DIRECT => {
                    self.services[place].pending -= 1;
                    if self.services[place].pending == 0 {
                        self.wake_service(place);
                    }
                }
                FETCH => self.fetched(place),
                EMPTY => {
                    self.at(server).emptying = false;
                    self.drained();
                }
                _ => self.written_back(server),
            }
        }
        done.clear();
        self.at(server).completions = done;
        self.look_at(server);
    }

    fn fetched(&mut self, fetch: u32) {
        self.fetches[fetch].pieces -= 1;
        let Fetch {
            server,
            range,
            pieces,
            ..
        } = self.fetches[fetch];
        if pieces > 0 {
            return;
        }
        let waiting = std::mem::take(&mut self.fetches[fetch].waiting);
        if let Some(pages) = &mut self.servers[server as usize].pages {
            pages.came(range, fetch);
        }
        self.fetches.free(fetch);
        for service in waiting {
            self.services[service].pending -= 1;
            if self.services[service].pending == 0 {
                self.wake_service(service);
            }
        }
    }

    /// The device has completed what a virtual request waits for; its thread runs again soon.
    fn wake_service(&mut self, service: u32) {
        match delay(&mut self.random, self.scenario.server.wake.0) {
            0 => self.serve(service),
            late => self.events.push(self.now + late, Event::Woken(service)),
        }
    }

    fn written_back(&mut self, server: u32) {
        let limit = self.scenario.server.dirty.0;
        self.at(server).writing_back -= 1;
        self.write_back(server);
        while self.servers[server as usize]
            .pages
            .as_ref()
            .is_some_and(|p| p.dirty() < limit)
        {
            let Some(service) = self.at(server).blocked.pop_front() else {
                break;
            };
            self.serve(service);
        }
        if !self.draining.is_empty() {
            self.drained();
        }
    }

    /// Completes a virtual request with all of its slices.
    fn served(&mut self, service: u32) {
        let now = self.now;
        let Service {
            server, virtual_id, ..
        } = self.services[service];
        let s = &mut self.servers[server as usize];
        if let Err(error) = s.dispatcher.forget(now, virtual_id) {
            self.failed
                .get_or_insert(Error::key("server.scheduler", error.to_string()));
            return;
        }
        let slices = std::mem::take(&mut self.services[service].slices);
        slices.iter().for_each(|part| self.part_done(*part));
        self.services[service].slices = slices;
        self.services.free(service);
        self.pump(server);
    }

    /// A part of a request has been read or written.
    fn part_done(&mut self, part: u32) {
        let (request, bytes) = (self.parts[part].request, self.parts[part].bytes);
        let r = &mut self.requests[request];
        r.serving -= 1;
        let (server, op) = (r.server, r.op);
        let (ends, over) = ((r.rank, server), r.serving == 0 && r.bytes == 0);
        let fetch = r.fetch;
        let header = self.scenario.network.header.0 * u64::from(r.weight);
        let to = self.ranks[r.rank as usize].node;
        let (now, node) = (self.now, self.servers[server as usize].node);
        if fetch {
            self.requests[request].parts -= 1;
            if self.requests[request].bytes > 0 {
                self.begin_part(request);
            }
            self.fetch_reaches(part, request);
            self.parts.free(part);
            if over {
                self.request_over(ends, request);
                self.requests.free(request);
            }
            return;
        }
        self.at(server).moved += bytes;
        self.at(server).gated.locality.moved(bytes);
        match op {
            Op::Read => {
                let at = self.network.send(now, node, to, bytes + header);
                self.events.push(at, Event::Reply(part));
                if over {
                    self.request_over(ends, request);
                }
            }
            Op::Write if self.requests[request].bytes > 0 => {
                self.parts.free(part);
                self.requests[request].parts -= 1;
                let credit = now + self.network.latency();
                self.send_part(request, credit, 0);
            }
            Op::Write => {
                self.requests[request].parts -= 1;
                if self.requests[request].parts > 0 {
                    self.parts.free(part);
                    return;
                }
                let at = self.network.send(now, node, to, header);
                self.events.push(at, Event::Reply(part));
                self.request_over(ends, request);
            }
        }
    }

    /// Completes a request and starts the next one of the same connection.
    fn request_over(&mut self, ends: Ends, request: u32) {
        if let Some((next, parts)) = self.connections.ends(ends, request) {
            if self.requests[next].op == Op::Read {
                self.take_up(next);
            }
            parts.into_iter().for_each(|part| self.part_begins(part));
        }
    }
}
