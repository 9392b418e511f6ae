//! A hard disk: service = command overhead + seek + rotation + transfer by zone, in the order of its queue.

use crate::geometry::Geometry;
use crate::queueing::{Candidate, Queueing};
use crate::{Completion, Device, Nanos, Op, Request, SeekCurve};
use std::collections::VecDeque;

/// What makes a disk.
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
    /// Commands that the drive knows at once; more wait outside in order of arrival.
    pub depth: usize,
    /// A command older than this goes first.
    pub patience: Nanos,
}

struct Waiting {
    request: Request,
    arrived: Nanos,
}

/// One disk.
pub struct Disk {
    options: DiskOptions,
    waiting: VecDeque<Waiting>,
    serving: Option<(Request, Nanos)>,
    head: u64,
}

impl Disk {
    /// A disk at rest with its head at address 0.
    pub fn new(options: DiskOptions) -> Disk {
        Disk {
            options,
            waiting: VecDeque::new(),
            serving: None,
            head: 0,
        }
    }

    fn positioning(&self, now: Nanos, request: &Request) -> Nanos {
        let geometry = &self.options.geometry;
        let from = geometry.place(self.head);
        let to = geometry.place(request.address);
        let curve = match request.op {
            Op::Read => &self.options.read_seek,
            Op::Write => &self.options.write_seek,
        };
        let seek = match from.cylinder.abs_diff(to.cylinder) {
            0 if from.head == to.head => 0,
            0 => geometry.head_switch(),
            distance => curve.time(distance, geometry.stroke()),
        };
        seek + geometry.rotation(now + seek, &to)
    }

    fn begin(&mut self, now: Nanos) {
        let at = now + self.options.overhead;
        let known = self.waiting.len().min(self.options.depth.max(1));
        let chosen = self.options.queueing.choose(
            now,
            self.head,
            self.options.patience,
            self.waiting.range(..known).map(|w| Candidate {
                arrived: w.arrived,
                address: w.request.address,
            }),
            |i| self.positioning(at, &self.waiting[i].request),
        );
        let Some(Waiting { request, .. }) = chosen.and_then(|i| self.waiting.remove(i)) else {
            return;
        };
        let arrive = at + self.positioning(at, &request);
        let transfer = self
            .options
            .geometry
            .transfer(request.address, request.bytes);
        self.serving = Some((request, arrive + transfer));
    }
}

impl Device for Disk {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.waiting.push_back(Waiting {
            request,
            arrived: now,
        });
        if self.serving.is_none() {
            self.begin(now);
        }
    }

    fn wake(&self) -> Option<Nanos> {
        self.serving.map(|(_, at)| at)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some((request, at)) = self.serving
            && at <= now
        {
            self.serving = None;
            self.head = (request.address + request.bytes).min(self.capacity());
            done.push(Completion { id: request.id, at });
            self.begin(at);
        }
    }

    fn capacity(&self) -> u64 {
        self.options.geometry.capacity()
    }

    fn head(&self) -> Option<u64> {
        Some(self.head)
    }
}
