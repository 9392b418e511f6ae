//! Ranks: the steps of their programs, and their operations as requests to servers.
use crate::cluster::{Cluster, Event, Flight, Left, Part, Rank, Request, Stage};
use crate::operation::Operation;
use crate::pages::PAGE;
use crate::random::delay;
use penstock_base::{Nanos, Op};
use penstock_datatype::Pattern;
use penstock_layout::{ObjectOffset, ServerIndex};
use penstock_mpiio::planning::{self, Alone, Cut, Memory, Operate, Outcome, Room, Step, Window};
use penstock_mpiio::{Form, Method};

/// Ranks of a cohort of `weight` that have bytes on a given server that it touches.
fn share_of_ranks(operation: &Operation, weight: u32, unit: u64, touched: u64) -> u32 {
    if weight == 1 {
        return 1;
    }
    let ranks = u64::from(weight);
    let bytes = operation.pattern.len / ranks;
    let regions = operation.pattern.regions() / ranks;
    let each = bytes.div_ceil(unit).max(regions).clamp(1, touched.max(1));
    (ranks * each).div_ceil(touched.max(1)).min(ranks) as u32
}

impl Cluster<'_> {
    fn rank(&mut self, rank: u32) -> &mut Rank {
        &mut self.ranks[rank as usize]
    }

    /// Continues a rank's program until it has to wait.
    pub(crate) fn step(&mut self, rank: u32) {
        loop {
            let program = self.program_of(rank);
            let exchanges = program.collective && program.method.is_collective() && !program.atomic;
            let barrier = program.barrier;
            let r = &self.ranks[rank as usize];
            match r.stage {
                Stage::Done => return,
                Stage::Compute => {
                    if r.call >= program.benchmark.calls() {
                        self.finish(rank);
                        return;
                    }
                    let time = program.compute + program.benchmark.compute(r.number, r.call);
                    self.rank(rank).stage = Stage::Access;
                    if time > 0 {
                        self.events.push(self.now + time, Event::Step(rank));
                        return;
                    }
                }
                Stage::Access => {
                    self.rank(rank).began = self.now;
                    if exchanges {
                        self.join_collective(rank);
                        return;
                    }
                    if self.load(rank).is_none() {
                        return;
                    }
                    self.go_on(rank, Outcome::Done(0));
                    return;
                }
                Stage::Barrier => {
                    self.rank(rank).stage = Stage::Compute;
                    self.rank(rank).call += 1;
                    if barrier {
                        self.meet(rank);
                        return;
                    }
                }
            }
        }
    }

    /// Waits at a barrier; the last one releases all.
    fn meet(&mut self, rank: u32) {
        let id = self.ranks[rank as usize].program;
        let program = &mut self.programs[id as usize];
        program.waiting += 1;
        if program.waiting < program.ranks {
            return;
        }
        program.waiting = 0;
        let (first, count) = (program.first_rank, program.ranks);
        let at = self.now + self.barrier_time(id);
        for rank in first..first + count {
            self.events.push(at, Event::Step(rank));
        }
    }

    /// Time of a program's barrier: two messages up and down a tree.
    pub(crate) fn barrier_time(&self, program: u32) -> Nanos {
        2 * self.network.latency() * self.levels(program)
    }

    /// Depth of a tree over a program's ranks.
    pub(crate) fn levels(&self, program: u32) -> u64 {
        let p = &self.programs[program as usize];
        let ranks = u64::from(p.ranks) * u64::from(p.cohort);
        ranks.next_power_of_two().ilog2().into()
    }

    /// Makes the plan of a rank's next call.
    fn load(&mut self, rank: u32) -> Option<()> {
        let (program, r) = (self.program_of(rank), &self.ranks[rank as usize]);
        let call = program.benchmark.call(r.number, r.call);
        let call = self.ok(call)?;
        let program = self.program_of(rank);
        let buffer = self.scenario.client.sieve_buffer.0;
        let atomic = program.atomic && call.pattern.len > 0;
        let method = match program.method {
            // As in the library, which locks the whole access instead.
            Method::SIEVE if atomic => Method::DATATYPE,
            // Without holes there is nothing to sieve, and unordered accesses cannot be sieved.
            Method::SIEVE if call.pattern.is_contiguous() || !call.pattern.is_monotone() => {
                Method::DATATYPE
            }
            method if method.is_collective() => Method::DATATYPE,
            method => method,
        };
        let op = program.op;
        let file = program.first_file + call.file;
        self.wanted(rank, call.pattern.len);
        let r = self.rank(rank);
        r.file = file;
        r.seated = false;
        r.guard = atomic.then(|| call.pattern.bounds());
        r.memory_regions = call.memory.as_ref().map_or(1, Pattern::regions);
        r.operate = None;
        r.plan = None;
        if call.pattern.len > 0 {
            let memory = match call.memory {
                Some(memory) => memory,
                None => Pattern::contiguous(0, call.pattern.len),
            };
            let access = Alone {
                op,
                file: call.pattern,
                memory,
                buffer,
            };
            r.plan = method.plan_alone(&access);
        }
        Some(())
    }

    /// Continues a rank's plan until it has operations for the servers, waits for others, or is done.
    pub(crate) fn go_on(&mut self, rank: u32, mut last: Outcome) {
        if self.advance(rank, &mut last) {
            self.prepare(rank);
        }
    }

    /// Takes a plan's steps up to its next operations; returns false if it waits for others.
    fn advance(&mut self, rank: u32, last: &mut Outcome) -> bool {
        while let Some(plan) = &mut self.rank(rank).plan {
            let step = plan.next(std::mem::replace(last, Outcome::Done(0)));
            match step {
                Step::Operate(operate) => {
                    self.rank(rank).fetches = false;
                    self.rank(rank).operate = Some(operate);
                    return true;
                }
                Step::Finish { .. } => {
                    self.rank(rank).plan = None;
                    if self.rank(rank).seated {
                        let times = self.agreements(rank);
                        self.meet_others(rank, Step::Confer { times });
                        return false;
                    }
                }
                Step::Exchange { .. } | Step::Barrier { .. } | Step::Confer { .. } => {
                    self.meet_others(rank, step);
                    return false;
                }
                Step::Prefetch { patterns } => {
                    let parts = patterns
                        .into_iter()
                        .map(|pattern| planning::Part { at: 0, pattern });
                    let parts: Vec<_> = parts.collect();
                    let bounds = parts.iter().map(|part| part.pattern.bounds());
                    let extent = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
                    self.rank(rank).fetches = true;
                    self.rank(rank).operate = Some(Operate {
                        op: Op::Read,
                        form: Form::Structured,
                        memory: Memory::Packed,
                        cut: Cut::Parts(parts.into_iter()),
                        extent: extent.unwrap_or((0, 0)),
                    });
                    return true;
                }
                Step::Wait { time } => {
                    self.events.push(self.now + time, Event::Waited(rank));
                    return false;
                }
                Step::Tell { peer, words } => self.tell(rank, peer, words),
                Step::Hear { peer } => match self.hear(rank, peer) {
                    Some(words) => *last = Outcome::Heard(words),
                    None => return false,
                },
                Step::Share { parts, .. } => {
                    *last = Outcome::Done(parts.iter().map(|(_, part)| part.pattern.len).sum());
                    if self.share(rank, &parts) {
                        return false;
                    }
                }
                // The lock is requested with the next operation.
                Step::Lock { range } => self.rank(rank).lock = Some((range.start, range.end)),
                Step::Unlock { .. } => {
                    self.rank(rank).lock = None;
                    self.unlock(rank);
                }
            }
        }
        true
    }

    /// Copies parts into or out of shared windows, which takes time; returns false if there are none. Copying in a
    /// rank's own windows is part of its operations and exchanges.
    fn share(&mut self, rank: u32, parts: &[(Window, planning::Part)]) -> bool {
        let r = &self.ranks[rank as usize];
        let (mut bytes, mut regions, mut resent) = (0, 0, 0);
        for (window, part) in parts {
            let Room::Half { owner, .. } = window.room else {
                continue;
            };
            let len = part.pattern.len;
            if owner != r.number as usize {
                resent += len;
            }
            let pieces =
                u128::from(r.memory_regions) * u128::from(len) / u128::from(r.wanted.max(1));
            bytes += len;
            regions += part.pattern.regions().max(pieces as u64);
        }
        if bytes == 0 {
            return false;
        }
        self.totals.resent += resent;
        let r = &self.ranks[rank as usize];
        let (node, packed) = (r.node, self.now + self.scenario.client.region.0 * regions);
        let at = self.network.send(packed, node, node, bytes);
        self.events.push(at, Event::Shared(rank));
        true
    }

    /// Counts bytes that a program requests.
    pub(crate) fn wanted(&mut self, rank: u32, bytes: u64) {
        let r = self.rank(rank);
        r.wanted = bytes;
        let program = r.program;
        self.programs[program as usize].bytes += bytes;
        self.totals.bytes += bytes;
    }

    /// Prepares a rank's next operation, if it may have one more in flight.
    pub(crate) fn prepare(&mut self, rank: u32) {
        loop {
            let program = self.program_of(rank);
            let (most, asynchronous) = (
                program.in_flight.max(program.pipeline),
                program.in_flight > 1 && !program.collective && program.method != Method::SIEVE,
            );
            let calls = program.benchmark.calls();
            let r = self.rank(rank);
            if r.prepared.is_some() || r.flying >= most {
                return;
            }
            let next = r.operate.as_mut().and_then(|o| {
                // Data of an exchange or a window is contiguous in memory.
                let regions = if o.memory == Memory::User {
                    r.memory_regions
                } else {
                    1
                };
                let operation = o.cut.next()?;
                let fetches = r.fetches;
                let operation = Operation::new(o.op, o.form, operation, regions);
                Some(if fetches {
                    operation.fetch()
                } else {
                    operation
                })
            });
            match next {
                Some(operation) => {
                    let client = &self.scenario.client;
                    let work = client.operation.0 + client.region.0 * operation.regions;
                    let late = work + delay(&mut self.random, self.scenario.client.jitter.0);
                    self.rank(rank).prepared = Some(operation);
                    self.events.push(self.now + late, Event::Issue(rank));
                    return;
                }
                None if r.flying == 0 => {
                    // The step moved all of its bytes: simulated files have no end.
                    let mut last = Outcome::Done(match r.operate.take() {
                        Some(operate) => (operate.extent.1 - operate.extent.0) as u64,
                        None => 0,
                    });
                    if !self.advance(rank, &mut last) {
                        return;
                    }
                    if self.rank(rank).operate.is_none() {
                        self.call_done(rank);
                        return;
                    }
                }
                // Without a barrier or computation in between, the next asynchronous call begins at once.
                None if asynchronous && r.call + 1 < calls => {
                    let program = self.program_of(rank);
                    if program.barrier || program.compute > 0 {
                        return;
                    }
                    self.rank(rank).call += 1;
                    if self.load(rank).is_none() {
                        return;
                    }
                    self.advance(rank, &mut Outcome::Done(0));
                }
                None => return,
            }
        }
    }

    /// Completes a call.
    fn call_done(&mut self, rank: u32) {
        let now = self.now;
        let r = self.rank(rank);
        r.io_time += now - r.began;
        r.stage = Stage::Barrier;
        let seated = r.seated;
        if r.guard.take().is_some() {
            self.unlock(rank);
        }
        if seated {
            self.events.push(now, Event::Step(rank));
        } else {
            self.step(rank);
        }
    }

    fn finish(&mut self, rank: u32) {
        let now = self.now;
        let r = self.rank(rank);
        r.stage = Stage::Done;
        let id = r.program;
        self.done += 1;
        let program = &mut self.programs[id as usize];
        program.done += 1;
        if program.done == program.ranks {
            program.end = now;
            if program.sync && program.op == Op::Write {
                self.drain(id);
            }
        }
    }

    /// Sends a prepared operation to the servers that it touches.
    pub(crate) fn issue(&mut self, rank: u32) {
        if !self.may_issue(rank) {
            return;
        }
        let Some(operation) = self.rank(rank).prepared.take() else {
            return;
        };
        let weight = self.program_of(rank).cohort;
        self.totals.operations += u64::from(weight);
        if !operation.fetch {
            self.totals.accessed += operation.pattern.len;
        }
        self.rank(rank).flying += 1;
        let flight = self.flights.insert(Flight {
            rank,
            requests: 0,
            began: self.now,
            bytes: operation.pattern.len,
            op: operation.op,
        });
        let (low, high) = operation.pattern.bounds();
        let unit = self.layout.stripe_unit;
        let (low, high) = (low.max(0) as u64, high.max(0) as u64);
        if low / unit == high.saturating_sub(1) / unit && operation.pattern.is_contiguous() {
            // The common case of an access within one stripe unit.
            let (server, ObjectOffset(at)) = self.layout.locate(penstock_layout::FileOffset(low));
            self.send_request(
                flight,
                &operation,
                server,
                Left::Extent(at),
                high - low,
                weight,
            );
        } else {
            let touched = self.layout.touched(&operation.pattern);
            let weight = share_of_ranks(&operation, weight, unit, touched.len() as u64);
            for server in touched {
                let bytes = self.layout.share(&operation.pattern, server);
                let left = if operation.pattern.is_contiguous() {
                    Left::Extent(self.layout.object_len(low, server))
                } else {
                    Left::Pieces(Box::new(self.layout.walk(&operation.pattern, server)))
                };
                self.send_request(flight, &operation, server, left, bytes, weight);
            }
        }
        self.prepare(rank);
    }

    /// Whether a rank has the lock that its next operation needs. If not, the operation is issued again once it has:
    /// the client asks one server after the other.
    fn may_issue(&mut self, rank: u32) -> bool {
        let r = &self.ranks[rank as usize];
        let Some(operation) = r.prepared.as_ref().filter(|_| !r.locked) else {
            return true;
        };
        let Some(span) = r.guard.or(r.lock) else {
            return true;
        };
        let file = r.file;
        // A sieved write begins with a read, but its lock is exclusive.
        let shared = r.guard.is_some() && operation.op == Op::Read;
        if self.locks.lock(file, rank, span, shared) {
            let range = Pattern::contiguous(span.0, (span.1 - span.0) as u64);
            let servers = self.layout.touched(&range).len() as u64;
            self.locked(rank, servers);
        }
        false
    }

    fn locked(&mut self, rank: u32, servers: u64) {
        let each = 2 * self.network.latency() + self.scenario.server.request.0;
        self.rank(rank).locked = true;
        self.events
            .push(self.now + servers * each, Event::Issue(rank));
    }

    /// Releases a rank's lock; ranks that wait for it may continue.
    fn unlock(&mut self, rank: u32) {
        if !std::mem::take(&mut self.rank(rank).locked) {
            return;
        }
        let file = self.ranks[rank as usize].file;
        for next in self.locks.unlock(file, rank) {
            self.locked(next, 1);
        }
    }

    fn send_request(
        &mut self,
        flight: u32,
        operation: &Operation,
        server: ServerIndex,
        left: Left,
        bytes: u64,
        weight: u32,
    ) {
        if bytes == 0 {
            return;
        }
        let rank = self.flights[flight].rank;
        self.flights[flight].requests += 1;
        self.totals.requests += u64::from(weight);
        let (node, file) = (
            self.ranks[rank as usize].node,
            self.ranks[rank as usize].file,
        );
        let server = self.files.server(file, server, self.servers.len() as u32);
        let request = self.requests.insert(Request {
            flight,
            rank,
            server,
            file,
            op: operation.op,
            fetch: operation.fetch,
            left,
            bytes,
            parts: 0,
            structured: operation.structured,
            seen: false,
            serving: 0,
            weight,
        });
        let head = (self.scenario.network.header.0 + operation.description) * u64::from(weight);
        let to = self.servers[server as usize].node;
        let late = delay(&mut self.random, self.scenario.server.jitter.0);
        match operation.op {
            Op::Read => {
                let at = self.network.send(self.now, node, to, head);
                self.events.push(at + late, Event::Request(request));
            }
            Op::Write => {
                let mut head = head;
                for _ in 0..self.scenario.server.window {
                    if self.requests[request].bytes == 0 {
                        break;
                    }
                    // The bytes wait for the server's answer to the header.
                    self.send_part(request, self.now + late, head);
                    head = 0;
                }
            }
        }
    }

    /// Sends the next part of a write.
    pub(crate) fn send_part(&mut self, request: u32, from: Nanos, extra: u64) {
        let part = self.next_part(request);
        let r = &self.requests[request];
        let node = self.ranks[r.rank as usize].node;
        let to = self.servers[r.server as usize].node;
        let at = self
            .network
            .send(from, node, to, self.parts[part].bytes + extra);
        self.events.push(at, Event::Part(part));
    }

    /// Takes the next part of a request: at most a buffer of bytes, in a bounded number of runs. With a page cache,
    /// runs within a page of each other are joined; reads without one bridge gaps as the scenario says.
    pub(crate) fn next_part(&mut self, request: u32) -> u32 {
        let most = self.scenario.server.buffer.0;
        let most_runs = self.scenario.server.most_runs.unwrap_or(usize::MAX);
        let hole = match (self.scenario.server.cache.0, self.requests[request].op) {
            (0, Op::Read) => self.scenario.server.gap.0,
            (0, Op::Write) => 0,
            _ => PAGE,
        };
        let part = self.parts.put(|old| match old {
            Some(part) => {
                part.request = request;
                part.bytes = 0;
                part.runs.clear();
                part.regions = 0;
                None
            }
            None => Some(Part {
                request,
                bytes: 0,
                runs: Vec::new(),
                regions: 0,
            }),
        });
        let r = &mut self.requests[request];
        let p = &mut self.parts[part];
        r.parts += 1;
        match &mut r.left {
            Left::Extent(offset) => {
                let bytes = r.bytes.min(most);
                p.runs.push((*offset, bytes));
                *offset += bytes;
                p.bytes = bytes;
                p.regions = 1;
            }
            Left::Pieces(pieces) => {
                while p.bytes < most.min(r.bytes) && p.runs.len() < most_runs {
                    let Some(piece) = pieces.next_piece(most - p.bytes) else {
                        break;
                    };
                    p.bytes += piece.len;
                    p.regions += 1;
                    let at = piece.object.0;
                    match p.runs.last_mut() {
                        Some((start, len)) if at >= *start && at <= *start + *len + hole => {
                            *len = (at + piece.len - *start).max(*len);
                        }
                        _ => p.runs.push((at, piece.len)),
                    }
                }
            }
        }
        r.bytes = r.bytes.saturating_sub(p.bytes);
        if p.runs.is_empty() {
            // The pattern ended early: nothing is left.
            r.bytes = 0;
        }
        part
    }

    /// A part has arrived at its rank, or the acknowledgement of a write.
    pub(crate) fn reply_arrives(&mut self, part: u32) {
        let request = self.parts[part].request;
        let bytes = self.parts[part].bytes;
        self.parts.free(part);
        let r = &mut self.requests[request];
        if r.op == Op::Read {
            r.parts -= 1;
            self.timeline.add(self.now, bytes);
            if self.requests[request].bytes > 0 {
                self.begin_part(request);
                return;
            }
            if self.requests[request].parts > 0 {
                return;
            }
        }
        let flight = self.requests[request].flight;
        self.requests.free(request);
        self.answered(flight);
    }

    /// A server has answered an operation; the last answer completes it.
    pub(crate) fn answered(&mut self, flight: u32) {
        self.flights[flight].requests -= 1;
        if self.flights[flight].requests > 0 {
            return;
        }
        let Flight {
            rank,
            began,
            bytes,
            op,
            ..
        } = self.flights[flight];
        self.flights.free(flight);
        self.latencies.add(self.now - began);
        if op == Op::Write {
            self.timeline.add(self.now, bytes);
        }
        self.rank(rank).flying -= 1;
        self.prepare(rank);
    }
}
