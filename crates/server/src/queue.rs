//! The queue between arrival and store: which slice of which request next, alone or with others.
//!
//! *Problem*: each connection has a thread of its own, and the store sees their requests in an order that is
//! nobody's choice. *Idea*: a thread with bytes to move asks the [`Scheduler`]; if another goes first, it lends its
//! buffer and sleeps. There is no thread for scheduling: whoever arrives or has finished takes the next decisions, and the
//! thread of a virtual request's first part serves all of its parts, contiguous ones in one call. At most `depth`
//! virtual requests are served at once. A large request comes slice by slice ([`crate::transfer::CHUNK`]), so it cannot block
//! others. A write holds its range before it queues, so nobody waits for a lock while others wait for it here.
//! *When*: any algorithm but NOOP, a [`Chooser`] of algorithms, or an observer. Otherwise requests go straight to the store and nothing here is
//! touched but one flag.
//!
//! Everything that is decided is decided under one mutex, and observers hear of it there, in that order.
use crate::access::Access;
use crate::choose::{Chooser, Choosing, Mode};
use crate::error::refuse;
use crate::events::{Event, EventKind, Observer};
use crate::loan::{Loan, serve};
use crate::settings::Settings;
use crate::tracing::{Member, Prediction, Tracing};
use crate::transfer::CHUNK;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::thread::{self, Thread};
use penstock_host::time::now;
use penstock_sched::journal::Journal;
use penstock_sched::{Algorithm, Error, Nanos, Next, Op, Request, Scheduler, VirtualRequest};
use penstock_store::{Object, Scratch};
use penstock_wire::message::{ErrorKind, ProgramStatus, SchedulerStatus, TraceContext, WireError};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Longest sleep without looking again: nothing depends on it.
const LOOK: Duration = Duration::from_secs(1);
/// Programs whose full number is remembered.
const MAX_PROGRAMS: usize = 1024;

/// Whose bytes, and where they belong.
pub(crate) struct Origin<'a> {
    pub(crate) trace: TraceContext,
    pub(crate) file: u64,
    pub(crate) object: &'a Arc<dyn Object>,
}

/// See the module's text.
pub(crate) struct Queue {
    /// Something has to see each request.
    on: AtomicBool,
    began: Instant,
    member: Member,
    /// Held while settings change: files are made and read then, which must not keep requests waiting.
    tuning: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    scheduler: Scheduler,
    settings: Settings,
    /// Unless the user has chosen the algorithm.
    chooser: Option<Chooser>,
    /// Stripe unit, as far as one slice can show it, and memory: what the chooser has to know.
    unit: u64,
    memory: u64,
    observer: Option<Arc<dyn Observer>>,
    /// The scheduler's decisions are written down.
    journaled: bool,
    tracing: Option<Tracing>,
    prediction: Option<Prediction>,
    jobs: Numbered<u64, Job>,
    arrivals: u64,
    /// Virtual requests being served.
    serving: u32,
    /// Full numbers of programs, by the short ones.
    programs: Numbered<u32, u64>,
}

/// By numbers that nobody outside can choose, or of which few are kept: a product spreads them well enough.
type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Product>>;

#[derive(Default)]
struct Product(u64);

impl Hasher for Product {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A slice that is queued or being served.
struct Job {
    thread: Thread,
    trace: TraceContext,
    arrived: Nanos,
    end: u64,
    place: Place,
    /// Lent by the thread when it does not go on at once.
    loan: Option<Box<Loan>>,
}

enum Place {
    Queued,
    /// Its thread serves this.
    Leads(VirtualRequest),
    /// Another thread serves it.
    Follows,
    Done(Result<usize, WireError>),
}

impl Queue {
    /// For this data server. With a journal all decisions are written down.
    pub(crate) fn new(
        settings: Settings,
        member: Member,
        journal: Option<Arc<dyn Journal>>,
    ) -> Result<Queue, WireError> {
        let mut scheduler = Scheduler::new(settings.options.clone())
            .map_err(|e| refuse(ErrorKind::InvalidArgument, e.to_string()))?;
        let journaled = journal.is_some();
        scheduler.keep(journal);
        let queue = Queue {
            on: AtomicBool::new(false),
            began: now(),
            member,
            tuning: Mutex::new(()),
            state: Mutex::new(State {
                scheduler,
                settings: Settings::default(),
                chooser: None,
                unit: member.unit.clamp(1, CHUNK as u64),
                memory: memory(),
                observer: None,
                journaled,
                tracing: None,
                prediction: None,
                jobs: Numbered::default(),
                arrivals: 0,
                serving: 0,
                programs: Numbered::default(),
            }),
        };
        queue.apply(settings)?;
        Ok(queue)
    }

    /// Each request has to come here, and none may go past the server.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No decision is left half-way by a panic: what it decided on was complete before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self) -> Nanos {
        now().saturating_duration_since(self.began).as_nanos() as Nanos
    }

    /// Schedules in another way from now on. The caller takes shortcuts back if the queue is on then.
    pub(crate) fn tune(&self, changes: &[String]) -> Result<(), WireError> {
        let _tuning = self.tuning.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = self.state().settings.with(changes)?;
        self.apply(settings)
    }

    fn apply(&self, settings: Settings) -> Result<(), WireError> {
        let (trace, predict) = {
            let old = &self.state().settings;
            (old.trace.clone(), old.predict.clone())
        };
        let mut tracing = match &settings.trace {
            Some(dir) if settings.trace != trace => {
                Some(Tracing::start(self.member, dir, self.time())?)
            }
            _ => None,
        };
        let mut prediction = match &settings.predict {
            Some(dir) if settings.predict != predict => Some(Prediction::load(self.member, dir)?),
            _ => None,
        };
        let mut state = self.state();
        let time = self.time();
        let choosing = &settings.choosing;
        let chooser = match &state.chooser {
            _ if choosing.mode == Mode::Fixed => None,
            Some(chooser) if chooser.choosing() == choosing => state.chooser.take(),
            _ => Some(state.new_chooser(time, *choosing)?),
        };
        let mut options = settings.options.clone();
        if let Some(chooser) = &chooser {
            options.algorithm = chooser.algorithm();
        }
        state.note_tuned(time, chooser.as_ref());
        let done = state.scheduler.reconfigure(time, options);
        state.chooser = chooser;
        done.map_err(|e| refuse(ErrorKind::InvalidArgument, e.to_string()))?;
        if settings.trace != trace {
            std::mem::swap(&mut state.tracing, &mut tracing);
        }
        if settings.predict != predict {
            std::mem::swap(&mut state.prediction, &mut prediction);
        }
        state.settings = settings;
        self.refresh(&mut state);
        drop(state);
        // Ends a trace: its last events are written while others go on.
        drop((tracing, prediction));
        Ok(())
    }

    /// From now on this one hears of each event; `None`: nobody.
    pub(crate) fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        let mut state = self.state();
        state.observer = observer;
        self.refresh(&mut state);
    }

    fn refresh(&self, state: &mut State) {
        let on = state.scheduler.options().algorithm != Algorithm::Noop
            || state.chooser.is_some()
            || state.journaled
            || state.hears()
            || state.prediction.is_some();
        self.on.store(on, Ordering::SeqCst);
        state.decide(self.time());
        // Everyone looks again: waits may have changed.
        for job in state.jobs.values() {
            job.thread.unpark();
        }
    }

    /// The server stops: nobody waits for company any more.
    pub(crate) fn stop(&self) {
        if let Err(e) = self.tune(&["sched=noop".into()]) {
            log::error!("cannot empty the queue: {e}");
        }
    }

    /// Reads the next `len` bytes of the access into `buffer`, when it is their turn.
    pub(crate) fn read(
        &self,
        origin: &Origin<'_>,
        access: &mut Access,
        buffer: &mut Vec<u8>,
        len: usize,
        scratch: &mut Scratch,
    ) -> Result<usize, WireError> {
        let Some((id, mut state)) = self.arrive(origin, Op::Read, access, len)? else {
            return access.read(Some(&**origin.object), &mut buffer[..len], scratch);
        };
        if let Some(v) = state.alone(id) {
            drop(state);
            let ends = Ends::new(self, v, id);
            let result = access.read(Some(&**origin.object), &mut buffer[..len], scratch);
            ends.finish();
            return result;
        }
        state.lend(id, origin, access, std::mem::take(buffer), len);
        let (result, loan) = self.wait(state, id, scratch);
        if let Some(loan) = loan {
            (*access, *buffer) = (loan.access, loan.buffer);
        }
        result
    }

    /// Writes bytes to the next runs of the access, when it is their turn: those given, or the first `len` of `buffer`.
    pub(crate) fn write(
        &self,
        origin: &Origin<'_>,
        access: &mut Access,
        bytes: Option<&[u8]>,
        buffer: &mut Vec<u8>,
        len: usize,
        scratch: &mut Scratch,
    ) -> Result<usize, WireError> {
        let at_once = |access: &mut Access, buffer: &[u8], scratch: &mut Scratch| {
            let bytes = bytes.unwrap_or_else(|| &buffer[..len]);
            access.write(&**origin.object, bytes, scratch)
        };
        let Some((id, mut state)) = self.arrive(origin, Op::Write, access, len)? else {
            return at_once(access, buffer, scratch);
        };
        if let Some(v) = state.alone(id) {
            drop(state);
            let ends = Ends::new(self, v, id);
            let result = at_once(access, buffer, scratch);
            ends.finish();
            return result;
        }
        if let Some(bytes) = bytes {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            buffer[..len].copy_from_slice(bytes);
        }
        state.lend(id, origin, access, std::mem::take(buffer), len);
        let (result, loan) = self.wait(state, id, scratch);
        if let Some(loan) = loan {
            (*access, *buffer) = (loan.access, loan.buffer);
        }
        result
    }

    /// A slice arrives. `None` if there is nothing to schedule.
    fn arrive(
        &self,
        origin: &Origin<'_>,
        op: Op,
        access: &mut Access,
        len: usize,
    ) -> Result<Option<(u64, MutexGuard<'_, State>)>, WireError> {
        let span = access.span(len as u64);
        if len == 0 || span.is_empty() {
            return Ok(None);
        }
        let mut state = self.state();
        let time = self.time();
        let id = state.arrivals;
        state.arrivals += 1;
        let wide = origin.trace.program;
        let program = (wide ^ (wide >> 32)) as u32;
        if state.programs.len() < MAX_PROGRAMS {
            state.programs.entry(program).or_insert(wide);
        }
        let request = Request {
            id,
            file: origin.file,
            op,
            offset: span.start,
            bytes: len as u64,
            program,
        };
        let known = &mut *state;
        if let Some(prediction) = &mut known.prediction {
            prediction.arrived(time, &request, wide, &mut known.scheduler);
        }
        let added = known.scheduler.add_spread(time, request, span.end);
        if added.is_err()
            && let Some(prediction) = &mut known.prediction
        {
            prediction.dispatched(id);
        }
        added.map_err(|e| match e {
            Error::Full { .. } => refuse(ErrorKind::Busy, format!("{e}; try again later")),
            e => refuse(ErrorKind::InvalidArgument, e.to_string()),
        })?;
        let job = Job {
            thread: thread::current(),
            trace: origin.trace,
            arrived: time,
            end: span.end,
            place: Place::Queued,
            loan: None,
        };
        if state.hears() {
            state.hear(&event(EventKind::Arrival, time, &request, &job, 0));
        }
        state.jobs.insert(id, job);
        if let Some(chooser) = &mut state.chooser {
            chooser.arrived(time, &request);
            state.choose(time);
        }
        state.decide(time);
        Ok(Some((id, state)))
    }

    /// Sleeps until the slice has been served, and serves what falls to this thread meanwhile.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: u64,
        scratch: &mut Scratch,
    ) -> (Result<usize, WireError>, Option<Box<Loan>>) {
        loop {
            let place = state.jobs.get(&id).map(|job| &job.place);
            match place {
                Some(Place::Leads(v)) => {
                    let v = *v;
                    let mut loans = state.borrow(v.id);
                    drop(state);
                    let ends = Ends::new(self, v, id);
                    let results = serve(v.op, &mut loans, scratch);
                    state = ends.give_back(loans, results);
                }
                Some(Place::Queued | Place::Follows) => {
                    let time = self.time();
                    let until = match state.decide(time) {
                        Some(until) => Duration::from_nanos(until - time).min(LOOK),
                        None => LOOK,
                    };
                    let job = state.jobs.get(&id).map(|job| &job.place);
                    if matches!(job, Some(Place::Queued | Place::Follows)) {
                        drop(state);
                        thread::park_timeout(until);
                        state = self.state();
                    }
                }
                Some(Place::Done(_)) | None => {
                    let job = state.jobs.remove(&id);
                    // Somebody has to wake at the time of the next decision.
                    if state.decide(self.time()).is_some() {
                        state.wake_one();
                    }
                    return match job {
                        Some(Job {
                            place: Place::Done(result),
                            loan,
                            ..
                        }) => (result, loan),
                        _ => (Err(lost()), None),
                    };
                }
            }
        }
    }

    /// What the queue is and did.
    pub(crate) fn status(&self) -> SchedulerStatus {
        let state = self.state();
        let s = state.scheduler.statistics();
        let programs = s.programs.iter().map(|p| ProgramStatus {
            program: match state.programs.get(&p.program) {
                Some(wide) => *wide,
                None => p.program.into(),
            },
            requests: p.requests,
            bytes: p.bytes,
            share_ppm: (p.share * 1e6).round() as u32,
            p50_ns: p.response.percentile(50.0),
            p99_ns: p.response.percentile(99.0),
        });
        SchedulerStatus {
            algorithm: s.algorithm.name().into(),
            choice: state.chooser.as_ref().map(|c| c.status(self.time())),
            depth: state.settings.depth,
            quantum: state.settings.options.quantum,
            order_conflicts: state.settings.options.order_conflicts,
            observed: state.hears(),
            predicted_waits: s.predicted_waits,
            trace: state.tracing.as_ref().map(Tracing::status),
            prediction: state.prediction.as_ref().map(Prediction::status),
            queued: s.queued,
            serving: s.serving,
            peak_queued: s.peak_queued,
            arrived: s.arrived,
            completed: s.completed,
            refused: s.refused,
            decisions: s.decisions,
            dispatched: s.waiting.count(),
            bytes: s.bytes,
            aggregations: s.aggregations.to_vec(),
            largest_aggregation: s.largest_aggregation,
            shift_waits: s.shift_waits,
            aggregation_waits: s.aggregation_waits,
            conflicts: s.conflicts,
            waiting_p50_ns: s.waiting.percentile(50.0),
            waiting_p99_ns: s.waiting.percentile(99.0),
            programs: programs.collect(),
        }
    }
}

impl State {
    fn new_chooser(&self, time: Nanos, choosing: Choosing) -> Result<Chooser, WireError> {
        let held = self.scheduler.len();
        Chooser::new(time, choosing, self.unit, self.memory, held)
            .map_err(|e| refuse(ErrorKind::Io, format!("cannot choose an algorithm: {e}")))
    }

    /// Tells the journal what the algorithm comes from, so that it can be chosen again.
    fn note_tuned(&self, time: Nanos, chooser: Option<&Chooser>) {
        if self.journaled {
            let from = chooser.map_or_else(|| "fixed".to_owned(), |c| c.settings().join(" "));
            let (unit, memory) = (self.unit, self.memory);
            let note = format!("tuned {time} {unit} {memory} {from}");
            self.scheduler.note(&note);
        }
    }

    /// Lets the chooser choose; what is queued is carried over.
    fn choose(&mut self, time: Nanos) {
        let Some(algorithm) = self.chooser.as_mut().and_then(|c| c.decide(time)) else {
            return;
        };
        if let Err(e) = self.scheduler.switch(time, algorithm) {
            log::error!("cannot schedule by {algorithm}: {e}");
        }
    }

    /// Takes decisions while there is something to serve with. Until when there is none, if that is known.
    fn decide(&mut self, time: Nanos) -> Option<Nanos> {
        let depth = match self.scheduler.options().algorithm {
            Algorithm::Noop => u32::MAX,
            _ => self.settings.depth,
        };
        while self.serving < depth {
            let next = match &mut self.prediction {
                None => self.scheduler.next(time),
                Some(prediction) => self.scheduler.next_expecting(time, &mut |first, parts| {
                    prediction.wait(time, first, parts)
                }),
            };
            let v = match next {
                Next::Dispatch(v) => v,
                Next::WaitUntil(until) => return Some(until.max(time)),
                Next::Idle => return None,
            };
            self.serving += 1;
            let mut leads = true;
            for part in self.scheduler.parts(v.id) {
                let Some(job) = self.jobs.get_mut(&part.id) else {
                    continue;
                };
                job.place = match leads {
                    true => Place::Leads(v),
                    false => Place::Follows,
                };
                if leads {
                    job.thread.unpark();
                }
                leads = false;
                if let Some(prediction) = &mut self.prediction {
                    prediction.dispatched(part.id);
                }
                let listeners = [listener(&self.observer), tracer(&self.tracing)];
                for listener in listeners.into_iter().flatten() {
                    listener.event(&event(EventKind::Dispatch, time, &part, job, v.id));
                }
            }
        }
        None
    }

    /// The slice may go on at once, alone: its thread keeps what it has.
    fn alone(&self, id: u64) -> Option<VirtualRequest> {
        match self.jobs.get(&id)?.place {
            Place::Leads(v) if v.parts == 1 => Some(v),
            _ => None,
        }
    }

    fn lend(
        &mut self,
        id: u64,
        origin: &Origin<'_>,
        access: &mut Access,
        buffer: Vec<u8>,
        len: usize,
    ) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.loan = Some(Box::new(Loan {
                object: origin.object.clone(),
                access: std::mem::take(access),
                buffer,
                len,
            }));
        }
    }

    /// What the parts of a virtual request lent, by offset.
    fn borrow(&mut self, id: u64) -> Vec<Loan> {
        let jobs = &mut self.jobs;
        self.scheduler
            .parts(id)
            .filter_map(|part| Some(*jobs.get_mut(&part.id)?.loan.take()?))
            .collect()
    }

    /// A virtual request has been served.
    fn complete(
        &mut self,
        time: Nanos,
        v: &VirtualRequest,
        mut each: impl FnMut(&mut Job),
    ) -> Option<Nanos> {
        for part in self.scheduler.parts(v.id) {
            let Some(job) = self.jobs.get_mut(&part.id) else {
                continue;
            };
            let listeners = [listener(&self.observer), tracer(&self.tracing)];
            for listener in listeners.into_iter().flatten() {
                listener.event(&event(EventKind::Completion, time, &part, job, v.id));
            }
            if let Some(chooser) = &mut self.chooser {
                chooser.completed(time, &part, time.saturating_sub(job.arrived));
            }
            each(job);
            job.thread.unpark();
        }
        self.serving -= 1;
        if let Err(e) = self.scheduler.completed(time, v.id) {
            log::error!("{e}");
        }
        self.choose(time);
        self.decide(time)
    }

    fn wake_one(&self) {
        let queued = |job: &&Job| matches!(job.place, Place::Queued);
        if let Some(job) = self.jobs.values().find(queued) {
            job.thread.unpark();
        }
    }

    fn hears(&self) -> bool {
        self.observer.is_some() || self.tracing.is_some()
    }

    fn hear(&self, event: &Event) {
        let listeners = [listener(&self.observer), tracer(&self.tracing)];
        for listener in listeners.into_iter().flatten() {
            listener.event(event);
        }
    }
}

fn listener(observer: &Option<Arc<dyn Observer>>) -> Option<&dyn Observer> {
    observer.as_deref()
}

fn tracer(tracing: &Option<Tracing>) -> Option<&dyn Observer> {
    tracing.as_ref().map(|t| t as &dyn Observer)
}

fn event(kind: EventKind, time: Nanos, request: &Request, job: &Job, served_in: u64) -> Event {
    Event {
        time,
        kind,
        id: request.id,
        served_in,
        file: request.file,
        op: request.op,
        offset: request.offset,
        end: job.end,
        bytes: request.bytes,
        trace: job.trace,
    }
}

/// Bytes of this machine's memory; 0 where that cannot be read.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

fn lost() -> WireError {
    refuse(
        ErrorKind::Io,
        "the thread that served this request has failed; see the server's log",
    )
}

/// A virtual request that this thread serves. However serving ends, its parts are answered and the next one begins.
struct Ends<'a> {
    queue: &'a Queue,
    v: VirtualRequest,
    id: u64,
    done: bool,
}

impl<'a> Ends<'a> {
    fn new(queue: &'a Queue, v: VirtualRequest, id: u64) -> Ends<'a> {
        Ends {
            queue,
            v,
            id,
            done: false,
        }
    }

    /// The only part was served by its own thread.
    fn finish(mut self) {
        self.done = true;
        let mut state = self.queue.state();
        let until = state.complete(self.queue.time(), &self.v, |_| {});
        state.jobs.remove(&self.id);
        if until.is_some() {
            state.wake_one();
        }
    }

    fn give_back(
        mut self,
        loans: Vec<Loan>,
        results: Vec<Result<usize, WireError>>,
    ) -> MutexGuard<'a, State> {
        self.done = true;
        let mut state = self.queue.state();
        let mut served = loans.into_iter().zip(results);
        state.complete(self.queue.time(), &self.v, |job| {
            let (loan, result) = match served.next() {
                Some((loan, result)) => (Some(loan), result),
                None => (None, Err(lost())),
            };
            job.loan = loan.map(Box::new);
            job.place = Place::Done(result);
        });
        state
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        // The store has panicked; what was lent is gone with the stack.
        let mut state = self.queue.state();
        state.complete(self.queue.time(), &self.v, |job| {
            job.place = Place::Done(Err(lost()));
        });
        state.jobs.remove(&self.id);
    }
}
