//! Prediction of aggregations, and how long a scheduler should wait for one.
//!
//! Problem: a scheduler joins contiguous requests only if they wait in its queue together. The next part of a large
//! aggregation often comes slightly too late. Idea: traces of earlier runs show which requests will come. Contiguous
//! predicted requests S1, S2 form an aggregation if
//!
//! ```text
//! TTP(S1) + TTP(S2) > TTP(S1+S2) + |AT2 - AT1| (1 - alpha)
//! ```
//!
//! and the scheduler may join that many ([`Limits::parts`]). TTP is the device's time to process ([`Cost`]), AT the
//! arrival times, and alpha the share of waiting time that is spent on other requests. The aggregation is treated as
//! one request and tried with the next. Arriving requests are linked to predicted ones of the same file, operation,
//! offset and bytes that arrive within ±10% of the predicted time. A virtual request that is smaller than its
//! prediction waits once: for W = predicted span - time since its first part arrived, at most [`Limits::wait`].
//!
//! When it pays: repeating programs, small contiguous requests, devices on which order matters. Requests that differ
//! from the trace have no prediction and are scheduled without one.
//!
//! For an aggregation of more than two, |AT2 - AT1| is what the next part adds to the span of arrivals. Alpha is first
//! estimated from the trace: a gap is overlapped as far as requests between its two ends keep the device busy. Later it
//! is measured: the share of each wait in which other requests were served ([`Predictor::serving`]). A file's
//! aggregations are predicted again when a pass through it begins and alpha has moved by [`MOVED`]. Source: Boito 2015,
//! section 4.1.
use super::cost::Cost;
use super::merge::{same_time, tolerance};
use crate::Error;
use penstock_base::{Nanos, Op};
use penstock_trace::{Event, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bounds of a [`Predictor`].
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Predicted requests; each takes about 60 bytes.
    pub requests: usize,
    /// Requests that arrived and are not yet dispatched.
    pub live: usize,
    /// Programs that are tracked.
    pub programs: usize,
    /// Longest wait.
    pub wait: Nanos,
    /// A file that was idle for this time and is then used as at its beginning starts its prediction again.
    pub rest: Nanos,
    /// Most requests that the scheduler joins. On a busy device alpha is 1, and nothing else bounds an aggregation.
    pub parts: u32,
    /// Aggregations of files with more requests are not predicted again, because that would delay a decision.
    pub regroup: usize,
}

impl Default for Limits {
    /// 4 Mi requests, 64 Ki live ones, 1024 programs, 500 µs, 1 s, 16 parts, 16 Ki requests.
    fn default() -> Limits {
        Limits {
            requests: 4 << 20,
            live: 64 << 10,
            programs: 1024,
            wait: 500_000,
            rest: 1_000_000_000,
            parts: 16,
            regroup: 16 << 10,
        }
    }
}

/// Counts of a predictor.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statistics {
    /// Predicted requests.
    pub predicted: u64,
    /// Aggregations predicted from them, without those of one request.
    pub aggregations: u64,
    /// Mean requests of an aggregation, including those of one request.
    pub mean_aggregation: f64,
    /// Arrivals that were linked to a prediction.
    pub matched: u64,
    /// Arrivals that were not.
    pub unmatched: u64,
    /// Waits that were asked for.
    pub waits: u64,
    /// Their sum.
    pub waited: Nanos,
    /// Alpha: share of waiting time in which other requests are served.
    pub alpha: f64,
    /// Waits whose end was observed; alpha follows them.
    pub seen: u64,
    /// Files whose aggregations were predicted again.
    pub regrouped: u64,
}

/// One predicted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Predicted {
    // The order of the fields is the search order.
    slot: u32,
    op: Op,
    offset: u64,
    bytes: u64,
    /// Since the file's first arrival.
    at: Nanos,
}

/// A predicted file, and the running file that it is bound to.
#[derive(Debug, Clone)]
struct File {
    /// Arrival of its first request in the trace.
    start: Nanos,
    program: u64,
    /// Bytes read and written.
    bytes: [u64; 2],
    running: Option<Running>,
    /// Counts its passes; predictions of earlier passes are invalid.
    pass: u32,
    /// Its requests, and its aggregations as predicted with this alpha.
    requests: Range<usize>,
    groups: Vec<Group>,
    aggregations: u64,
    alpha: f64,
    parts: u32,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    number: u64,
    first: Nanos,
    last: Nanos,
}

#[derive(Debug, Clone, Copy, Default)]
struct Group {
    bytes: u64,
    parts: u32,
    /// Arrivals, since the file's first.
    first: Nanos,
    last: Nanos,
    /// In this pass: bytes that were dispatched, and whether there was a wait.
    pass: u32,
    dispatched: u64,
    waited: bool,
    /// A wait that has not ended: when it began, and the busy time then.
    wait: Option<(Nanos, Nanos)>,
}

#[derive(Debug, Clone, Copy)]
struct Program {
    traced: u64,
    seen: u64,
}

/// Predicts requests and aggregations from a trace. A plain state machine: time is passed in.
#[derive(Debug)]
pub struct Predictor {
    cost: Cost,
    limits: Limits,
    requests: Vec<Predicted>,
    /// For each request its aggregation, by number in its file, and the pass in which it was linked.
    group_of: Vec<u32>,
    linked: Vec<u32>,
    files: Vec<File>,
    slots: BTreeMap<u64, u32>,
    /// Files by the requests with which they begin, in the order of first arrival.
    openings: BTreeMap<(Op, u64, u64), Vec<u32>>,
    live: BTreeMap<u64, u32>,
    /// The file that began a pass with the last arrival.
    begun: Option<u32>,
    program_bytes: BTreeMap<u64, u64>,
    programs: BTreeMap<u64, Program>,
    /// Averages per wait, nanoseconds.
    overlapped: f64,
    waiting: f64,
    /// Time in which requests were served; if some are being served now, since when.
    busy: Nanos,
    busy_since: Option<Nanos>,
    statistics: Statistics,
}

/// Alpha must change by this much before a file's aggregations are predicted again.
pub const MOVED: f64 = 0.05;

/// Requests of a file that count as its beginning: the first request of any of so many ranks may arrive first.
const OPENINGS: usize = 64;
/// Predictions that an arrival is compared with, at most.
const CANDIDATES: usize = 32;

impl Predictor {
    /// Predicts from a (merged) trace. Only arrivals are used.
    pub fn new(trace: &[Event], cost: Cost, limits: Limits) -> Result<Predictor, Error> {
        let mut arrivals: Vec<&Event> = trace.iter().filter(|e| e.kind == Kind::Arrival).collect();
        if arrivals.len() > limits.requests.min(u32::MAX as usize) {
            return Err(Error::Invalid(format!(
                "the trace has {} requests, at most {} are kept for prediction; trace fewer steps of the program",
                arrivals.len(),
                limits.requests
            )));
        }
        arrivals.sort_by_key(|e| (e.at, e.request));
        let mut predictor = Predictor {
            cost,
            limits,
            requests: Vec::with_capacity(arrivals.len()),
            group_of: Vec::new(),
            linked: vec![0; arrivals.len()],
            files: Vec::new(),
            slots: BTreeMap::new(),
            openings: BTreeMap::new(),
            live: BTreeMap::new(),
            begun: None,
            program_bytes: BTreeMap::new(),
            programs: BTreeMap::new(),
            overlapped: 0.0,
            waiting: 0.0,
            busy: 0,
            busy_since: None,
            statistics: Statistics::default(),
        };
        let mut opened: Vec<usize> = Vec::new();
        for event in arrivals {
            let files = &mut predictor.files;
            let slot = *predictor.slots.entry(event.file).or_insert_with(|| {
                files.push(File {
                    start: event.at,
                    program: event.program,
                    bytes: [0; 2],
                    running: None,
                    pass: 1,
                    requests: 0..0,
                    groups: Vec::new(),
                    aggregations: 0,
                    alpha: 0.0,
                    parts: 0,
                });
                opened.push(0);
                (files.len() - 1) as u32
            });
            let file = &mut files[slot as usize];
            let sum = &mut file.bytes[event.op as usize];
            *sum = sum.saturating_add(event.bytes);
            let at = event.at - file.start;
            let opening = &mut opened[slot as usize];
            if *opening < OPENINGS && same_time(0, at) {
                *opening += 1;
                let like = predictor
                    .openings
                    .entry((event.op, event.offset, event.bytes))
                    .or_default();
                if like.last() != Some(&slot) {
                    like.push(slot);
                }
            }
            let total = predictor.program_bytes.entry(event.program).or_default();
            *total = total.saturating_add(event.bytes);
            predictor.requests.push(Predicted {
                slot,
                op: event.op,
                offset: event.offset,
                bytes: event.bytes,
                at,
            });
        }
        predictor.requests.sort_unstable();
        predictor.statistics.predicted = predictor.requests.len() as u64;
        let mut begin = 0;
        for (slot, file) in predictor.files.iter_mut().enumerate() {
            let end = predictor
                .requests
                .partition_point(|r| r.slot as usize <= slot);
            file.requests = begin..end;
            begin = end;
        }
        predictor.group_of = vec![0; begin];
        predictor.estimate_alpha();
        (0..predictor.files.len()).for_each(|slot| predictor.regroup(slot));
        Ok(predictor)
    }

    /// Counts so far.
    pub fn statistics(&self) -> Statistics {
        let groups: usize = self.files.iter().map(|f| f.groups.len()).sum();
        Statistics {
            alpha: self.alpha(),
            aggregations: self.files.iter().map(|f| f.aggregations).sum(),
            mean_aggregation: match groups {
                0 => 0.0,
                n => self.requests.len() as f64 / n as f64,
            },
            ..self.statistics
        }
    }

    /// Share of waiting time in which other requests are served.
    pub fn alpha(&self) -> f64 {
        if self.waiting > 0.0 {
            (self.overlapped / self.waiting).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Sets how many requests the scheduler joins at most; files are grouped by it when their next pass begins.
    pub fn joins(&mut self, parts: u32) {
        self.limits.parts = parts;
    }

    /// Says whether requests are being served from now on. Waits are useful only while some are.
    pub fn serving(&mut self, now: Nanos, any: bool) {
        self.busy = self.busy_until(now);
        self.busy_since = any.then_some(now);
    }

    fn busy_until(&self, now: Nanos) -> Nanos {
        let since = self.busy_since.map_or(0, |since| now.saturating_sub(since));
        self.busy.saturating_add(since)
    }

    /// A wait of `total` has ended; other requests were served for `overlapped` of it.
    fn waited(&mut self, total: Nanos, overlapped: Nanos) {
        self.statistics.seen += 1;
        // An exponential average over about 16 waits; the estimate is its first value.
        const WEIGHT: f64 = 1.0 / 16.0;
        self.waiting += WEIGHT * (total as f64 - self.waiting);
        self.overlapped += WEIGHT * (overlapped.min(total) as f64 - self.overlapped);
    }

    /// Predicts the aggregations of a file with the current alpha. Takes one pass over its requests.
    fn regroup(&mut self, slot: usize) {
        let alpha = self.alpha();
        let range = self.files[slot].requests.clone();
        let mut groups: Vec<Group> = Vec::new();
        // Open aggregations of one file and operation: (end, last arrival, group).
        let mut open: BTreeSet<(u64, Nanos, u32)> = BTreeSet::new();
        let mut current = None;
        for i in range {
            let r = self.requests[i];
            if current != Some(r.op) {
                open.clear();
                current = Some(r.op);
            }
            // Offsets ascend: aggregations that end before this one are complete.
            while open.first().is_some_and(|o| o.0 < r.offset) {
                open.pop_first();
            }
            let before = open.range(..=(r.offset, r.at, u32::MAX)).next_back();
            let after = open
                .range((r.offset, r.at, u32::MAX)..=(r.offset, Nanos::MAX, u32::MAX))
                .next();
            let nearest = [before, after]
                .into_iter()
                .flatten()
                .filter(|o| o.0 == r.offset)
                .min_by_key(|o| o.1.abs_diff(r.at))
                .copied();
            let joined = nearest.filter(|o| self.pays(&groups[o.2 as usize], &r, alpha));
            let number = match joined {
                Some(o) => {
                    open.remove(&o);
                    let group = &mut groups[o.2 as usize];
                    group.bytes += r.bytes;
                    group.first = group.first.min(r.at);
                    group.last = group.last.max(r.at);
                    group.parts += 1;
                    o.2
                }
                None => {
                    groups.push(Group {
                        bytes: r.bytes,
                        parts: 1,
                        first: r.at,
                        last: r.at,
                        ..Group::default()
                    });
                    (groups.len() - 1) as u32
                }
            };
            self.group_of[i] = number;
            open.insert((
                r.offset.saturating_add(r.bytes),
                groups[number as usize].last,
                number,
            ));
        }
        let file = &mut self.files[slot];
        file.aggregations = groups.iter().filter(|g| g.parts > 1).count() as u64;
        file.groups = groups;
        file.alpha = alpha;
        file.parts = self.limits.parts;
    }

    /// A pass begins: no aggregation of the file is under way.
    fn refresh_groups(&mut self, slot: usize) {
        let file = &self.files[slot];
        let moved = (self.alpha() - file.alpha).abs() >= MOVED;
        let others = file.parts != self.limits.parts;
        if (moved || others) && file.requests.len() <= self.limits.regroup {
            self.regroup(slot);
            self.statistics.regrouped += 1;
        }
    }

    fn pays(&self, group: &Group, next: &Predicted, alpha: f64) -> bool {
        let time = |bytes| self.cost.time(next.op, bytes) as f64;
        let Some(joint) = group.bytes.checked_add(next.bytes) else {
            return false;
        };
        if group.parts >= self.limits.parts {
            return false;
        }
        let added = group.first.saturating_sub(next.at) + next.at.saturating_sub(group.last);
        time(group.bytes) + time(next.bytes) > time(joint) + added as f64 * (1.0 - alpha)
    }

    /// Estimates alpha from the trace: for each prediction in order of time, the contiguous one that is nearest in
    /// time.
    fn estimate_alpha(&mut self) {
        let absolute = |r: &Predicted| self.files[r.slot as usize].start.saturating_add(r.at);
        let mut order: Vec<u32> = (0..self.requests.len() as u32).collect();
        order.sort_by_key(|i| absolute(&self.requests[*i as usize]));
        // Device time of all requests that arrive earlier.
        let mut busy_before = vec![0u64; order.len()];
        let mut sum = 0u64;
        for &i in &order {
            let r = &self.requests[i as usize];
            busy_before[i as usize] = sum;
            sum = sum.saturating_add(self.cost.time(r.op, r.bytes));
        }
        let (mut overlapped, mut waiting, mut pairs) = (0.0, 0.0, 0u64);
        for (i, r) in self.requests.iter().enumerate() {
            let Some(next) = self.nearest(r, r.offset.saturating_add(r.bytes)) else {
                continue;
            };
            let (a, b) = if absolute(r) <= absolute(&self.requests[next]) {
                (i, next)
            } else {
                (next, i)
            };
            let gap = r.at.abs_diff(self.requests[next].at);
            let own = self.cost.time(self.requests[a].op, self.requests[a].bytes);
            let busy = busy_before[b]
                .saturating_sub(busy_before[a])
                .saturating_sub(own);
            waiting += gap as f64;
            overlapped += busy.min(gap) as f64;
            pairs += 1;
        }
        self.overlapped = overlapped / pairs.max(1) as f64;
        self.waiting = waiting / pairs.max(1) as f64;
    }

    /// Of the requests at `offset` in the same file with the same operation, the one nearest in time.
    fn nearest(&self, r: &Predicted, offset: u64) -> Option<usize> {
        let key = |p: &Predicted| (p.slot, p.op, p.offset, p.bytes, p.at);
        let low = self
            .requests
            .partition_point(|p| key(p) < (r.slot, r.op, offset, r.bytes, r.at));
        let there = |i: &usize| {
            self.requests
                .get(*i)
                .is_some_and(|p| (p.slot, p.op, p.offset) == (r.slot, r.op, offset))
        };
        [Some(low), low.checked_sub(1)]
            .into_iter()
            .flatten()
            .filter(there)
            .min_by_key(|i| self.requests[*i].at.abs_diff(r.at))
    }

    /// A request arrives. Returns true if it was predicted.
    #[allow(clippy::too_many_arguments)]
    pub fn arrived(
        &mut self,
        now: Nanos,
        id: u64,
        op: Op,
        file: u64,
        offset: u64,
        bytes: u64,
        program: u64,
    ) -> bool {
        let found = self.find(now, op, file, offset, bytes);
        self.follow_program(program, bytes, found);
        let Some(i) = found else {
            self.statistics.unmatched += 1;
            return false;
        };
        self.statistics.matched += 1;
        self.linked[i] = self.files[self.requests[i].slot as usize].pass;
        if self.live.len() < self.limits.live {
            self.live.insert(id, i as u32);
        }
        true
    }

    fn find(&mut self, now: Nanos, op: Op, file: u64, offset: u64, bytes: u64) -> Option<usize> {
        let slot = match self.slots.get(&file) {
            Some(slot) => *slot,
            None => self.bind(now, op, file, offset, bytes)?,
        };
        let opens = self
            .openings
            .get(&(op, offset, bytes))
            .is_some_and(|like| like.contains(&slot));
        let state = &mut self.files[slot as usize];
        let resting = |r: &Running| now.saturating_sub(r.last) >= self.limits.rest && opens;
        let running = match &mut state.running {
            Some(running) if !resting(running) => running,
            other => {
                // A new pass through the prediction begins.
                state.pass = state.pass.wrapping_add(1).max(1);
                self.begun = Some(slot);
                other.insert(Running {
                    number: file,
                    first: now,
                    last: now,
                })
            }
        };
        running.last = now;
        let at = now.saturating_sub(running.first);
        let pass = state.pass;
        if self.begun == Some(slot) && at == 0 {
            self.refresh_groups(slot as usize);
        }
        let same = |p: &Predicted| (p.slot, p.op, p.offset, p.bytes) == (slot, op, offset, bytes);
        // Tolerances grow with the predicted time: candidates begin where at + tolerance reaches this arrival.
        let low = self.requests.partition_point(|p| {
            (p.slot, p.op, p.offset, p.bytes) < (slot, op, offset, bytes)
                || same(p) && p.at.saturating_add(tolerance(p.at)) < at
        });
        (low..self.requests.len().min(low + CANDIDATES))
            .take_while(|i| same(&self.requests[*i]))
            .find(|i| self.linked[*i] != pass && same_time(self.requests[*i].at, at))
    }

    /// Binds a file that the trace does not know to a predicted one that begins like it and is not bound.
    fn bind(&mut self, now: Nanos, op: Op, file: u64, offset: u64, bytes: u64) -> Option<u32> {
        let rest = self.limits.rest;
        let free = |f: &File| match &f.running {
            None => true,
            Some(r) => now.saturating_sub(r.last) >= rest,
        };
        let like = self.openings.get(&(op, offset, bytes))?;
        let slot = *like.iter().find(|s| free(&self.files[**s as usize]))?;
        if let Some(old) = self.files[slot as usize].running.take() {
            self.slots.remove(&old.number);
        }
        self.slots.insert(file, slot);
        Some(slot)
    }

    fn follow_program(&mut self, program: u64, bytes: u64, found: Option<usize>) {
        if let Some(known) = self.programs.get_mut(&program) {
            known.seen = known.seen.saturating_add(bytes);
            return;
        }
        let Some(i) = found else { return };
        if self.programs.len() >= self.limits.programs {
            let totals = &self.program_bytes;
            self.programs
                .retain(|_, p| totals.get(&p.traced).is_some_and(|total| p.seen < *total));
            if self.programs.len() >= self.limits.programs {
                return;
            }
        }
        let traced = self.files[self.requests[i].slot as usize].program;
        self.programs.insert(
            program,
            Program {
                traced,
                seen: bytes,
            },
        );
    }

    /// The bytes that will be read and written in a pass, if the last arrival began one.
    pub fn begun(&mut self) -> Option<[u64; 2]> {
        let slot = self.begun.take()?;
        Some(self.files[slot as usize].bytes)
    }

    /// Bytes that a running program will still request, if it was traced; for SRTF.
    pub fn remaining(&self, program: u64) -> Option<u64> {
        let known = self.programs.get(&program)?;
        let total = self.program_bytes.get(&known.traced)?;
        Some(total.saturating_sub(known.seen))
    }

    /// A virtual request of these parts could be served now; its first part arrived at `first`. Returns how long it
    /// should wait for the rest of its predicted aggregation. 0 if the aggregation is complete, late, or has had its
    /// wait.
    pub fn wait(&mut self, now: Nanos, first: Nanos, parts: &[u64]) -> Nanos {
        let Some((slot, number)) = self.group_of_parts(parts) else {
            return 0;
        };
        let here: u64 = parts
            .iter()
            .filter_map(|id| self.live.get(id))
            .map(|i| (self.requests[*i as usize], self.group_of[*i as usize]))
            .filter(|(r, group)| (r.slot, *group) == (slot, number))
            .map(|(r, _)| r.bytes)
            .sum();
        let busy = self.busy_until(now);
        let file = &mut self.files[slot as usize];
        let group = &mut file.groups[number as usize];
        refresh(group, file.pass);
        if group.waited || group.dispatched.saturating_add(here) >= group.bytes {
            return 0;
        }
        let span = group.last - group.first;
        let wait = span
            .saturating_sub(now.saturating_sub(first))
            .min(self.limits.wait);
        if wait > 0 {
            group.waited = true;
            group.wait = Some((now, busy));
            self.statistics.waits += 1;
            self.statistics.waited += wait;
        }
        wait
    }

    /// The file of these parts, and their aggregation in it.
    fn group_of_parts(&self, parts: &[u64]) -> Option<(u32, u32)> {
        let i = *parts.iter().find_map(|id| self.live.get(id))? as usize;
        Some((self.requests[i].slot, self.group_of[i]))
    }

    /// A request was dispatched, or was removed otherwise.
    pub fn dispatched(&mut self, now: Nanos, id: u64) {
        let Some(i) = self.live.remove(&id) else {
            return;
        };
        let request = self.requests[i as usize];
        let busy = self.busy_until(now);
        let file = &mut self.files[request.slot as usize];
        let group = &mut file.groups[self.group_of[i as usize] as usize];
        refresh(group, file.pass);
        group.dispatched = group.dispatched.saturating_add(request.bytes);
        if let Some((began, then)) = group.wait.take() {
            self.waited(now.saturating_sub(began), busy.saturating_sub(then));
        }
    }
}

/// Resets an aggregation that belongs to an earlier pass.
fn refresh(group: &mut Group, pass: u32) {
    if group.pass != pass {
        group.pass = pass;
        group.dispatched = 0;
        group.waited = false;
        group.wait = None;
    }
}

#[cfg(test)]
#[path = "predict_tests.rs"]
mod tests;
