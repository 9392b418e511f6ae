//! A hard disk: service = command overhead + seek + rotation + transfer by zone, in the order of its queue.
//!
//! Beside the arm, the model has a buffer and a controller. *Read-ahead*: after a read the head stays and reads on into
//! the buffer until a request that the buffer cannot answer needs the arm. An adaptive drive does so only while each
//! read begins where the last one ended. Sequential reads therefore run at the media rate although each command has an
//! overhead. *Write cache*: a write is done when the buffer has it. The arm writes joined runs in the order of the
//! native queue when no read waits, when the cache fills up, or for a flush. The controller handles one command at a
//! time.

use crate::geometry::{DiskAddress, Geometry};
use crate::pending::Pending;
use crate::queueing::{Candidate, Queueing};
use crate::segments::Segments;
use crate::{Completion, Device, Nanos, Op, Request, SeekCurve, span};
use std::collections::VecDeque;

/// Parameters of a disk.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// Zones, tracks and turn.
    pub geometry: Geometry,
    /// Seeks before reads.
    pub read_seek: SeekCurve,
    /// Seeks before writes: the head has to settle better.
    pub write_seek: SeekCurve,
    /// Controller time of each command.
    pub overhead: Nanos,
    /// Order of service.
    pub queueing: Queueing,
    /// Commands that the drive accepts at once; more wait outside in order of arrival.
    pub depth: usize,
    /// A command older than this goes first.
    pub patience: Nanos,
    /// Bytes per second between buffer and host.
    pub bus: u64,
    /// Bytes that the head reads on after a read; 0 for no read-ahead.
    pub read_ahead: u64,
    /// Read ahead only after a read that begins where the one before it ended, and only while reads continue so.
    /// Otherwise after each read, until the arm is needed.
    pub adaptive: bool,
    /// Runs that the buffer remembers besides the one under the head.
    pub segments: usize,
    /// Bytes of writes held in the buffer; 0 for no write cache.
    pub write_cache: u64,
    /// Separate runs in the write cache.
    pub write_runs: usize,
    /// Rotation angle at time 0, as time; different phases keep the disks of an array out of step.
    pub phase: Nanos,
}

struct Waiting {
    request: Request,
    arrived: Nanos,
    /// Where its first byte lies.
    place: DiskAddress,
}

/// A run of bytes that the write cache holds.
struct Run {
    address: u64,
    bytes: u64,
    since: Nanos,
    /// Where its first byte lies.
    place: DiskAddress,
}

enum Work {
    Host(Request),
    Destage,
}

struct Serving {
    work: Work,
    address: u64,
    bytes: u64,
    /// For a run of the write cache: when it was cached.
    since: Nanos,
    end: Nanos,
}

/// The head reads on: `from` passes it at `began`, and so on to `limit`.
struct Stream {
    /// Start of what the buffer holds of this run.
    start: u64,
    from: u64,
    began: Nanos,
    limit: u64,
    /// Until then, requests may rely on the arm staying.
    promised: Nanos,
}

impl Stream {
    /// Drops whole tracks that have passed, so that a step costs the same however long the stream is.
    fn go_on(&mut self, now: Nanos, geometry: &Geometry) {
        loop {
            let (bytes, time) = geometry.rest_of_track(self.from);
            if bytes >= self.limit || self.began + time > now {
                return;
            }
            self.from += bytes;
            self.began += time;
            self.limit -= bytes;
        }
    }
}

/// One disk.
pub struct Disk {
    options: DiskOptions,
    waiting: VecDeque<Waiting>,
    runs: Vec<Run>,
    cached: u64,
    serving: Option<Serving>,
    stream: Option<Stream>,
    segments: Segments,
    /// Where the last read ended.
    read_end: u64,
    pending: Pending,
    flushes: VecDeque<(u64, Nanos)>,
    controller: Nanos,
    head: u64,
    /// Services since the last one that was chosen for its age.
    in_order: u32,
}

/// Only one service in so many goes to the oldest request. In an overloaded queue every request is overdue, and the
/// order would degrade to FIFO.
const BETWEEN_OLD: u32 = 8;

/// A rotational wait that is within this of a whole turn is a rounding error: the sector is just under the head.
const GRACE: Nanos = 2_000;

impl Disk {
    /// A disk at rest with its head at address 0.
    pub fn new(options: DiskOptions) -> Disk {
        Disk {
            segments: Segments::new(options.segments),
            read_end: 0,
            options,
            waiting: VecDeque::new(),
            runs: Vec::new(),
            cached: 0,
            serving: None,
            stream: None,
            pending: Pending::default(),
            flushes: VecDeque::new(),
            controller: 0,
            head: 0,
            in_order: BETWEEN_OLD,
        }
    }

    fn rotation(&self, now: Nanos, place: &DiskAddress) -> Nanos {
        let geometry = &self.options.geometry;
        let wait = geometry.rotation(now + self.options.phase, place);
        if geometry.turn() - wait < GRACE {
            0
        } else {
            wait
        }
    }

    /// How long the arm takes from `from`, where the head stands, to `address` at `to`. `best` is the shortest time
    /// found so far: once the seek alone takes as long, the rotation is not computed.
    fn positioning(
        &self,
        now: Nanos,
        op: Op,
        from: &DiskAddress,
        (address, to): (u64, &DiskAddress),
        best: Nanos,
    ) -> Nanos {
        let geometry = &self.options.geometry;
        let curve = match op {
            Op::Read => &self.options.read_seek,
            Op::Write => &self.options.write_seek,
        };
        let seek = match from.cylinder.abs_diff(to.cylinder) {
            // The head is where its last transfer ended: continuing costs the skew, which the rotation includes.
            _ if address == self.head => 0,
            0 if from.head == to.head => 0,
            // Another head settles as after a step to the next track; the skew allows for more.
            0 => geometry.head_switch().min(curve.time(1, geometry.stroke())),
            distance => curve.time(distance, geometry.stroke()),
        };
        if seek >= best {
            return seek;
        }
        seek + self.rotation(now + seek, to)
    }

    /// When the controller is done with a command that needs no arm.
    fn controlled(&mut self, now: Nanos, bytes: u64) -> Nanos {
        self.controller =
            now.max(self.controller) + self.options.overhead + span(bytes, self.options.bus);
        self.controller
    }

    /// Answers a read from the buffer, or from what the head is about to read.
    fn hit(&mut self, now: Nanos, request: &Request) -> bool {
        let (start, end) = (request.address, request.address + request.bytes);
        if self.options.adaptive && start != self.read_end {
            // Nothing reads on here, so the head stops too.
            self.stop_reading(now);
        }
        let cached = self.segments.holds(start, end)
            || self
                .runs
                .iter()
                .any(|r| r.address <= start && end <= r.address + r.bytes);
        if cached {
            self.read_end = end;
            let at = self.controlled(now, request.bytes);
            self.pending.push(at, request.id);
            return true;
        }
        let Some(stream) = &mut self.stream else {
            return false;
        };
        stream.go_on(now, &self.options.geometry);
        let reach = stream.from + stream.limit;
        let ahead = self.options.read_ahead;
        if ahead == 0 || start < stream.start || start > reach {
            return false;
        }
        let stopped = stream.began + self.options.geometry.transfer(stream.from, stream.limit);
        self.read_end = end;
        let ready = self.controlled(now, request.bytes);
        // A full buffer lets the head idle. Read-ahead resumes, after part of a turn, once half of the buffer is used
        // up.
        let resume = stopped <= now && reach < end + ahead / 2;
        let wait = self.rotation(now, &self.options.geometry.place(reach));
        let Some(stream) = &mut self.stream else {
            return false;
        };
        if resume {
            self.head = reach.min(self.options.geometry.capacity());
            stream.from = reach;
            stream.began = now + wait;
            stream.limit = (end + ahead).saturating_sub(reach);
        } else if stopped > now {
            stream.limit = stream.limit.max((end + ahead).saturating_sub(stream.from));
        }
        let passes = match end.checked_sub(stream.from) {
            Some(bytes) if bytes > 0 => {
                stream.began + self.options.geometry.transfer(stream.from, bytes)
            }
            _ => now,
        };
        stream.start = stream.start.max(end.saturating_sub(4 * ahead));
        let at = ready.max(passes + span(4096, self.options.bus));
        stream.promised = stream.promised.max(passes);
        self.pending.push(at, request.id);
        true
    }

    /// Takes a write into the cache, if it has room.
    fn cache(&mut self, now: Nanos, request: &Request) -> bool {
        if self.options.write_cache == 0 {
            return false;
        }
        let room = self.cached + request.bytes <= self.options.write_cache || self.runs.is_empty();
        let (start, end) = (request.address, request.address + request.bytes);
        let touching = self
            .runs
            .iter()
            .position(|r| start <= r.address + r.bytes && r.address <= end);
        if !room || (touching.is_none() && self.runs.len() >= self.options.write_runs.max(1)) {
            return false;
        }
        self.forget(start, end);
        match touching {
            Some(i) => {
                let run = &mut self.runs[i];
                self.cached -= run.bytes;
                let low = run.address.min(start);
                run.bytes = (run.address + run.bytes).max(end) - low;
                if low < run.address {
                    run.address = low;
                    run.place = self.options.geometry.place(low);
                }
                self.cached += run.bytes;
            }
            None => {
                self.runs.push(Run {
                    address: start,
                    bytes: request.bytes,
                    since: now,
                    place: self.options.geometry.place(start),
                });
                self.cached += request.bytes;
            }
        }
        let at = self.controlled(now, request.bytes);
        self.pending.push(at, request.id);
        true
    }

    /// The buffer's copies of overwritten bytes are stale.
    fn forget(&mut self, start: u64, end: u64) {
        self.segments.forget(start, end);
        if let Some(s) = &self.stream
            && start < s.from + s.limit
            && s.start < end
        {
            self.stop_reading(s.promised.max(s.began));
        }
    }

    /// Ends the read-ahead; what it has read by `now` becomes a segment.
    fn stop_reading(&mut self, now: Nanos) {
        if let Some(s) = self.stream.take() {
            let time = now.saturating_sub(s.began);
            let end = s.from + self.options.geometry.passed(s.from, time, s.limit);
            self.segments.add(s.start, end);
            self.head = end.min(self.capacity());
        }
    }

    /// The age from which the next choice prefers the oldest request.
    fn patience(&mut self, oldest: Option<Nanos>, now: Nanos) -> Nanos {
        let old = oldest.is_some_and(|since| now.saturating_sub(since) > self.options.patience);
        if old && self.in_order >= BETWEEN_OLD {
            self.in_order = 0;
            return self.options.patience;
        }
        self.in_order = self.in_order.saturating_add(1);
        Nanos::MAX
    }

    /// Whether the write cache should have the arm before waiting reads.
    fn must_destage(&self, now: Nanos) -> bool {
        let old = |r: &Run| now.saturating_sub(r.since) > self.options.patience;
        !self.runs.is_empty()
            && (!self.flushes.is_empty()
                || self.cached * 4 > self.options.write_cache * 3
                || self.runs.len() * 4 > self.options.write_runs * 3
                || self.runs.iter().any(old))
    }

    /// Gives the arm its next work, if there is any.
    fn begin(&mut self, now: Nanos) {
        if self.serving.is_some() {
            return;
        }
        let host = self.waiting.iter().any(|w| self.needs_arm(&w.request));
        if !host && self.runs.is_empty() {
            return;
        }
        let now = match &self.stream {
            Some(s) => now.max(s.promised),
            None => now,
        };
        self.stop_reading(now);
        if !self.runs.is_empty() && (!host || self.must_destage(now)) {
            self.destage(now);
        } else {
            self.serve(now);
        }
    }

    fn needs_arm(&self, request: &Request) -> bool {
        request.op == Op::Read || self.options.write_cache == 0
    }

    fn serve(&mut self, now: Nanos) {
        let at = now + self.options.overhead;
        let known: Vec<usize> = (0..self.waiting.len())
            .filter(|&i| self.needs_arm(&self.waiting[i].request))
            .take(self.options.depth.max(1))
            .collect();
        let oldest = known.first().map(|&i| self.waiting[i].arrived);
        let patience = self.patience(oldest, now);
        let from = self.options.geometry.place(self.head);
        let mut best = Nanos::MAX;
        let chosen = self.options.queueing.choose(
            now,
            self.head,
            patience,
            known.iter().map(|&i| Candidate {
                arrived: self.waiting[i].arrived,
                address: self.waiting[i].request.address,
            }),
            |i| {
                let Waiting { request, place, .. } = &self.waiting[known[i]];
                let to = (request.address, place);
                let time = self.positioning(at, request.op, &from, to, best);
                best = best.min(time);
                time
            },
        );
        let Some(Waiting { request, place, .. }) =
            chosen.and_then(|i| self.waiting.remove(known[i]))
        else {
            return;
        };
        if request.op == Op::Write {
            self.segments
                .forget(request.address, request.address + request.bytes);
        }
        let to = (request.address, &place);
        let begin = at + self.positioning(at, request.op, &from, to, Nanos::MAX);
        let geometry = &self.options.geometry;
        self.serving = Some(Serving {
            address: request.address,
            bytes: request.bytes,
            since: 0,
            end: begin + geometry.transfer(request.address, request.bytes),
            work: Work::Host(request),
        });
    }

    fn destage(&mut self, now: Nanos) {
        let known = self.runs.len().min(self.options.depth.max(1));
        let patience = self.patience(self.runs.first().map(|r| r.since), now);
        let from = self.options.geometry.place(self.head);
        let mut best = Nanos::MAX;
        let chosen = self.options.queueing.choose(
            now,
            self.head,
            patience,
            self.runs[..known].iter().map(|r| Candidate {
                arrived: r.since,
                address: r.address,
            }),
            |i| {
                let to = (self.runs[i].address, &self.runs[i].place);
                let time = self.positioning(now, Op::Write, &from, to, best);
                best = best.min(time);
                time
            },
        );
        let Some(run) = chosen.map(|i| self.runs.remove(i)) else {
            return;
        };
        let to = (run.address, &run.place);
        let begin = now + self.positioning(now, Op::Write, &from, to, Nanos::MAX);
        self.serving = Some(Serving {
            work: Work::Destage,
            address: run.address,
            bytes: run.bytes,
            since: run.since,
            end: begin + self.options.geometry.transfer(run.address, run.bytes),
        });
    }

    fn finish(&mut self, serving: Serving) {
        let end = serving.end;
        self.head = (serving.address + serving.bytes).min(self.capacity());
        match serving.work {
            Work::Host(request) => {
                self.pending.push(end, request.id);
                self.controller = self.controller.max(end);
                if request.op == Op::Write {
                    self.flushed(end);
                    return;
                }
                let (start, stop) = (request.address, request.address + request.bytes);
                let goes_on = start == self.read_end || !self.options.adaptive;
                self.read_end = stop;
                if self.options.read_ahead > 0 && goes_on {
                    self.stream = Some(Stream {
                        start,
                        from: self.head,
                        began: end,
                        limit: self.options.read_ahead,
                        promised: end,
                    });
                    self.answer(end);
                } else if self.options.read_ahead > 0 {
                    self.segments.add(start, stop);
                }
            }
            Work::Destage => {
                self.cached -= serving.bytes;
                self.admit(end);
            }
        }
        self.flushed(end);
    }

    /// Answers waiting reads that the head is about to pass without ending the stream, unless a request is overdue.
    fn answer(&mut self, now: Nanos) {
        let mut i = 0;
        while i < self.waiting.len() {
            let impatient = self
                .waiting
                .front()
                .is_some_and(|w| now.saturating_sub(w.arrived) > self.options.patience);
            let request = self.waiting[i].request;
            let room = i < self.options.depth && !impatient && !self.must_destage(now);
            if room && request.op == Op::Read && self.hit(now, &request) {
                self.waiting.remove(i);
                // A read that lies before this one may follow it now.
                i = 0;
            } else {
                i += 1;
            }
        }
    }

    /// Admits writes that found the cache full.
    fn admit(&mut self, now: Nanos) {
        if self.options.write_cache == 0 {
            return;
        }
        let mut i = 0;
        while i < self.waiting.len() {
            let request = self.waiting[i].request;
            if request.op == Op::Write {
                if !self.cache(now, &request) {
                    break;
                }
                self.waiting.remove(i);
            } else {
                i += 1;
            }
        }
    }

    fn flushed(&mut self, now: Nanos) {
        while let Some(&(id, asked)) = self.flushes.front() {
            let older = |since: Nanos| since <= asked;
            let serving = matches!(&self.serving, Some(s) if matches!(s.work, Work::Destage) && older(s.since));
            if serving || self.runs.iter().any(|r| older(r.since)) {
                return;
            }
            self.flushes.pop_front();
            let at = now.max(asked) + self.options.overhead;
            self.pending.push(at, id);
        }
    }
}

impl Device for Disk {
    fn submit(&mut self, now: Nanos, request: Request) {
        let served = match request.op {
            Op::Read => self.hit(now, &request),
            Op::Write => {
                !self.waiting.iter().any(|w| w.request.op == Op::Write) && self.cache(now, &request)
            }
        };
        if !served {
            self.waiting.push_back(Waiting {
                request,
                arrived: now,
                place: self.options.geometry.place(request.address),
            });
        }
        self.begin(now);
    }

    fn flush(&mut self, now: Nanos, id: u64) {
        self.flushes.push_back((id, now));
        self.flushed(now);
        self.begin(now);
    }

    fn wake(&self) -> Option<Nanos> {
        let serving = self.serving.as_ref().map(|s| s.end);
        [serving, self.pending.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(serving) = self.serving.take_if(|s| s.end <= now) {
            let end = serving.end;
            self.finish(serving);
            self.begin(end);
        }
        self.pending.drain(now, done);
    }

    fn capacity(&self) -> u64 {
        self.options.geometry.capacity()
    }

    fn head(&self) -> Option<u64> {
        Some(self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HardDisk, hard_disk};

    #[test]
    fn a_long_stream_costs_no_more_than_a_short_one() {
        let mut disk = Disk::new(hard_disk(HardDisk::St9500430ss));
        let (mut now, mut done) = (0, Vec::new());
        for i in 0..8192u64 {
            disk.submit(
                now,
                Request {
                    id: i,
                    op: Op::Read,
                    address: i * 65_536,
                    bytes: 65_536,
                    process: 0,
                },
            );
            while done.is_empty() {
                now = disk.wake().unwrap();
                disk.advance(now, &mut done);
            }
            done.clear();
            // The cost of a read does not grow with the length of the stream: it holds few tracks even after half a
            // gigabyte.
            assert!(disk.stream.as_ref().is_some_and(|s| s.limit < 3 << 20));
        }
    }
}
