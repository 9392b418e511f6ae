//! The scheduler around an algorithm: limits, order of conflicts, statistics.
use crate::algorithms::{self, Choice, Policy};
use crate::groups::{Groups, Turns};
use crate::journal::{self, Call, Journal};
use crate::order::Order;
use crate::statistics::Recorder;
use crate::table::{Entry, Map, NONE, Table, UNKNOWN, Virtual};
use crate::waiting::Company;
use crate::{Algorithm, Error, Nanos, Next, Op, Options, Request, Statistics};
use std::sync::Arc;

/// Largest offset.
const MAX_OFFSET: u64 = i64::MAX as u64;
/// Largest request: sums over all held requests then fit 64 bits.
const MAX_BYTES: u64 = 1 << 38;

/// A request scheduler as a plain state machine, see the crate's documentation. A call with an earlier time than the
/// call before counts as made at that call's time.
pub struct Scheduler {
    options: Options,
    table: Table,
    /// One for each group of files.
    policies: Vec<Box<dyn Policy>>,
    groups: Groups,
    turns: Turns,
    /// The only request that is queued, if the only algorithm serves by arrival: it is next. It enters the table's
    /// lists only if another one arrives.
    front: Option<usize>,
    order: Option<Order>,
    recorder: Recorder,
    now: Nanos,
    serial: u64,
    /// Requests held: queued, held back and being served.
    held: usize,
    serving: usize,
    journal: Option<Arc<dyn Journal>>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("options", &self.options)
            .field("held", &self.held)
            .field("serving", &self.serving)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// An empty scheduler; an error names the option that is wrong.
    pub fn new(options: Options) -> Result<Scheduler, Error> {
        options.check()?;
        Ok(Scheduler {
            table: Table::new(
                options.file_limit,
                options.parts_limit(),
                options.aggregation_bytes,
            ),
            policies: vec![algorithms::policy(&options)],
            front: None,
            groups: Groups::all(options.algorithm),
            turns: Turns::new(1),
            order: options.order_conflicts.then(Order::default),
            recorder: Recorder::default(),
            now: 0,
            serial: 0,
            held: 0,
            serving: 0,
            journal: None,
            options,
        })
    }

    /// Sets the journal of all calls from now on, which begins with the options; `None`: no journal. The journal is
    /// incomplete if the scheduler holds requests already.
    pub fn keep(&mut self, journal: Option<Arc<dyn Journal>>) {
        self.journal = journal;
        self.tell(|s| Call::Set {
            now: s.now,
            options: Box::new(s.options.clone()),
        });
    }

    /// Adds a remark to the journal.
    pub fn note(&self, text: &str) {
        self.tell(|_| Call::Note(text.replace('\n', " ").into()));
    }

    #[inline]
    fn tell(&self, call: impl FnOnce(&Scheduler) -> Call) {
        if let Some(journal) = &self.journal {
            journal.call(call(self));
        }
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Requests held: queued and being served.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether nothing is queued or being served.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Adds a request for a contiguous run of bytes; an error says why it is refused.
    pub fn add(&mut self, now: Nanos, request: Request) -> Result<(), Error> {
        self.add_spread(now, request, request.offset.saturating_add(request.bytes))
    }

    /// Adds a structured request, whose bytes lie anywhere from its offset to before `end`. Its order depends on its
    /// offset and its cost on its bytes. Aggregation and conflicts consider its whole range.
    pub fn add_spread(&mut self, now: Nanos, request: Request, end: u64) -> Result<(), Error> {
        let done = self.admit(now, request, end);
        let taken = done.is_ok();
        self.tell(|_| Call::Add {
            now,
            request,
            end,
            taken,
        });
        done
    }

    fn admit(&mut self, now: Nanos, request: Request, end: u64) -> Result<(), Error> {
        self.step(now);
        self.acceptable(&request, end)
            .inspect_err(|_| self.recorder.counts.refused += 1)?;
        self.held += 1;
        self.serial += 1;
        let counts = &mut self.recorder.counts;
        counts.arrived += 1;
        let queued = (self.held - self.serving) as u64;
        counts.peak_queued = counts.peak_queued.max(queued);
        let entry = self
            .table
            .entries
            .insert(Entry::new(request, end, self.now, self.serial));
        if let Some(order) = &mut self.order
            && !order.admit(&mut self.table.entries, entry)
        {
            counts.conflicts += 1;
            return Ok(());
        }
        match &self.policies[..] {
            [only] if queued == 1 && only.goes_by_arrival() => self.front = Some(entry),
            _ => self.queue(entry),
        }
        Ok(())
    }

    /// Queues a request, which may be chosen from now on.
    fn queue(&mut self, entry: usize) {
        self.place_front();
        self.place(entry);
    }

    fn place_front(&mut self) {
        if let Some(front) = self.front.take() {
            self.place(front);
        }
    }

    fn place(&mut self, entry: usize) {
        let e = &self.table.entries[entry];
        let lane = self.table.lane_of(e.file, e.op);
        self.table.enter(lane);
        if self.table.lane().queued == 0 {
            self.turns.wakes(lane);
        }
        self.policies[lane].add(&mut self.table, entry);
    }

    fn acceptable(&self, request: &Request, end: u64) -> Result<(), Error> {
        let Request {
            id, offset, bytes, ..
        } = *request;
        if bytes == 0 {
            return Err(Error::Empty { id });
        }
        if bytes > MAX_BYTES {
            return Err(Error::TooLarge { id, bytes });
        }
        if end > MAX_OFFSET || end <= offset {
            return Err(Error::Range { id, offset, bytes });
        }
        if self.held >= self.options.queue_limit {
            return Err(Error::Full {
                limit: self.options.queue_limit,
            });
        }
        Ok(())
    }

    /// Chooses what to do now. Call it again after each dispatch while more can be served.
    pub fn next(&mut self, now: Nanos) -> Next {
        let answer = self.decide(now, &mut |_, _| 0);
        self.tell_answer(now, answer);
        answer
    }

    /// The same; algorithms that wait for aggregation (MLF, aIOLi) ask `company` how long to wait.
    pub fn next_expecting(&mut self, now: Nanos, company: &mut Company<'_>) -> Next {
        let journal = self.journal.clone();
        let answer = self.decide(now, &mut |first, parts| {
            let wait = company(first, parts);
            if let Some(journal) = &journal {
                journal.call(Call::Told { wait });
            }
            wait
        });
        self.tell_answer(now, answer);
        answer
    }

    #[inline]
    fn tell_answer(&self, now: Nanos, answer: Next) {
        self.tell(|s| Call::Ask {
            now,
            answer,
            parts: match answer {
                Next::Dispatch(v) => journal::digest(s.parts(v.id).map(|part| part.id)),
                _ => 0,
            },
        });
    }

    // A server with little to do mostly gets the answer that nothing is queued: this path needs no call.
    #[inline(always)]
    fn decide(&mut self, now: Nanos, company: &mut Company<'_>) -> Next {
        self.step(now);
        if self.held == self.serving && !self.policies.iter().any(|p| p.is_under_way()) {
            return Next::Idle;
        }
        self.dispatch(company)
    }

    fn dispatch(&mut self, company: &mut Company<'_>) -> Next {
        let at = match self.front.take() {
            Some(front) => self.table.serve(front),
            None => match self.choose(company) {
                Choice::Serve(at) => at,
                Choice::Wait(until) => return Next::WaitUntil(until),
                Choice::Nothing => return Next::Idle,
            },
        };
        let v = &self.table.virtuals[at];
        self.serving += v.parts as usize;
        self.recorder.dispatched(v);
        let mut part = v.first;
        for _ in 0..v.parts {
            let e = &self.table.entries[part];
            let waited = self.now - e.arrived;
            self.recorder.counts.waiting.record(waited);
            part = e.next;
        }
        Next::Dispatch(self.table.describe(at))
    }

    /// Asks the groups in turn; a group that waits does not delay others.
    fn choose(&mut self, company: &mut Company<'_>) -> Choice {
        if self.policies.len() == 1 {
            return self.policies[0].next(&mut self.table, self.now, company);
        }
        let mut asked = 0u32;
        let mut until: Option<Nanos> = None;
        loop {
            let lanes = self.table.lanes();
            let may = |lane: usize| lanes[lane].queued > 0 && asked & (1 << lane) == 0;
            let Some(lane) = self.turns.next(may) else {
                return until.map_or(Choice::Nothing, Choice::Wait);
            };
            asked |= 1 << lane;
            self.table.enter(lane);
            match self.policies[lane].next(&mut self.table, self.now, company) {
                Choice::Serve(at) => {
                    self.turns.served(lane, self.table.virtuals[at].bytes);
                    return Choice::Serve(at);
                }
                Choice::Wait(time) => until = Some(until.map_or(time, |t| t.min(time))),
                Choice::Nothing => {}
            }
        }
    }

    /// The requests of a virtual request that is being served, by offset; empty if it is not being served.
    pub fn parts(&self, id: u64) -> impl Iterator<Item = Request> + '_ {
        self.entries(id).map(Entry::request)
    }

    /// The same, each with its arrival time.
    pub(crate) fn parts_with_arrival(
        &self,
        id: u64,
    ) -> impl Iterator<Item = (Request, Nanos)> + '_ {
        self.entries(id)
            .map(|entry| (entry.request(), entry.arrived))
    }

    fn entries(&self, id: u64) -> impl Iterator<Item = &Entry> {
        let (mut part, mut left) = match self.table.serving(id) {
            Some(at) => (self.table.virtuals[at].first, self.table.virtuals[at].parts),
            None => (NONE, 0),
        };
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let entry = &self.table.entries[part];
            part = entry.next;
            Some(entry)
        })
    }

    /// Removes a dispatched virtual request that has been served or has failed.
    pub fn completed(&mut self, now: Nanos, id: u64) -> Result<(), Error> {
        let done = self.forget(now, id);
        let known = done.is_ok();
        self.tell(|_| Call::End { now, id, known });
        done
    }

    fn forget(&mut self, now: Nanos, id: u64) -> Result<(), Error> {
        self.step(now);
        let at = self.table.serving(id).ok_or(Error::NotServed(id))?;
        let Virtual {
            file, first, parts, ..
        } = self.table.virtuals[at];
        let mut part = first;
        for _ in 0..parts {
            let e = &self.table.entries[part];
            let response = self.now - e.arrived;
            self.recorder.completed(e.program, e.bytes, response);
            if let Some(order) = &mut self.order {
                order.ended(e);
            }
            part = e.next;
        }
        self.table.forget(at);
        self.held -= parts as usize;
        self.serving -= parts as usize;
        while let Some(entry) = self
            .order
            .as_mut()
            .and_then(|order| order.release(&mut self.table.entries, file))
        {
            self.queue(entry);
        }
        Ok(())
    }

    /// SRTF: predicts the bytes of a file that will have been requested in the end, by this operation.
    pub fn predict(&mut self, file: u64, op: Op, bytes: u64) {
        let queue = self.table.queue(file, op);
        self.table.queues[queue].predicted = bytes.min(UNKNOWN - 1);
        self.tell(|_| Call::Guess { file, op, bytes });
    }

    /// SRTF: predicts how many more bytes of a file will be requested, by this operation. The count begins with the
    /// next request.
    pub fn predict_more(&mut self, file: u64, op: Op, bytes: u64) {
        let queue = self.table.queue(file, op);
        let q = &mut self.table.queues[queue];
        q.predicted = q.seen.saturating_add(bytes).min(UNKNOWN - 1);
        let bytes = q.predicted;
        self.tell(|_| Call::Guess { file, op, bytes });
    }

    /// Changes the algorithm. Queued requests are carried over with their arrival times; requests being served are not
    /// affected.
    pub fn switch(&mut self, now: Nanos, algorithm: Algorithm) -> Result<(), Error> {
        let options = Options {
            algorithm,
            ..self.options.clone()
        };
        self.reconfigure(now, options)
    }

    /// Changes the options, with one algorithm for all files; the limits on requests and files stay.
    pub fn reconfigure(&mut self, now: Nanos, options: Options) -> Result<(), Error> {
        options.check()?;
        self.step(now);
        self.options = Options {
            queue_limit: self.options.queue_limit,
            file_limit: self.options.file_limit,
            ..options
        };
        self.arrange(Groups::all(self.options.algorithm));
        self.tell(|s| Call::Set {
            now,
            options: Box::new(s.options.clone()),
        });
        Ok(())
    }

    /// Puts files into groups, each under an algorithm of its own; the other options stay. Queued requests are carried
    /// over with their arrival times.
    pub fn regroup(&mut self, now: Nanos, groups: Groups) -> Result<(), Error> {
        groups.check()?;
        self.step(now);
        self.options.algorithm = groups.algorithm;
        self.arrange(groups);
        self.tell(|s| Call::Group {
            now,
            groups: Box::new(s.groups.clone()),
        });
        Ok(())
    }

    /// The groups in force.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    fn arrange(&mut self, groups: Groups) {
        let all: Vec<Options> = groups
            .algorithms()
            .into_iter()
            .map(|algorithm| Options {
                algorithm,
                ..self.options.clone()
            })
            .collect();
        let mut lane_of: [Map<u64, u8>; 2] = Default::default();
        for ((file, op), algorithm) in &groups.files {
            let lane = all.iter().position(|o| o.algorithm == *algorithm);
            lane_of[*op as usize].insert(*file, lane.unwrap_or(0) as u8);
        }
        self.place_front();
        let limits = all.iter().map(Options::parts_limit);
        let mut queued = self
            .table
            .dissolve(limits, self.options.aggregation_bytes, lane_of);
        self.policies = all.iter().map(algorithms::policy).collect();
        self.turns = Turns::new(self.policies.len());
        self.groups = groups;
        if let Some(order) = &mut self.order {
            queued.extend(order.drain(&mut self.table.entries));
            queued.sort_unstable_by_key(|entry| self.table.entries[*entry].serial);
        }
        self.order = self.options.order_conflicts.then(Order::default);
        if let Some(order) = &mut self.order {
            for entry in self.table.parts_served() {
                order.live(&self.table.entries[entry]);
            }
        }
        for entry in queued {
            if let Some(order) = &mut self.order
                && !order.admit(&mut self.table.entries, entry)
            {
                continue;
            }
            self.queue(entry);
        }
    }

    /// Statistics since the last reset.
    pub fn statistics(&self) -> Statistics {
        let mut all = self.recorder.counts.clone();
        all.algorithm = self.options.algorithm;
        all.queued = (self.held - self.serving) as u64;
        let held_back = self.order.as_ref().map_or(0, |order| order.held);
        let front = usize::from(self.front.is_some());
        all.queued_virtual = (self.table.queued() + held_back + front) as u64;
        all.serving = self.serving as u64;
        [all.shift_waits, all.aggregation_waits, all.predicted_waits] = self.table.waited;
        let total: u64 = all.programs.iter().map(|p| p.bytes).sum();
        for program in &mut all.programs {
            program.share = program.bytes as f64 / total.max(1) as f64;
        }
        all.programs.sort_by_key(|p| p.program);
        all
    }

    /// Resets the statistics.
    pub fn reset_statistics(&mut self) {
        self.recorder.reset();
        self.table.waited = Default::default();
        self.recorder.counts.peak_queued = (self.held - self.serving) as u64;
    }

    fn step(&mut self, now: Nanos) {
        if now < self.now {
            self.recorder.counts.clock_steps += 1;
        }
        self.now = self.now.max(now);
    }
}
