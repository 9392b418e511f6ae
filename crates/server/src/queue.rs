//! The queue between arrival and store: which slice of which request is next, alone or with others.
//!
//! *Problem*: each connection has a thread of its own, and the store sees their requests in an order that is
//! nobody's choice. *Idea*: a thread with bytes to move asks the [`Dispatcher`], which decides; if another goes first, it
//! lends its buffer and sleeps. Here is the shell around those decisions: the mutex, the threads that wait and their
//! memory, the clock. Whoever arrives or has finished passes that on and wakes whom the dispatcher starts. Where it wants to
//! look again at a time, the server's timer does ([`Timer`]). The thread of a virtual request's first part serves all of its
//! parts, contiguous ones in one call. A large request comes slice by slice, so it cannot block others. A write holds its
//! range before it queues, so nobody waits for a lock while others wait for it here.
//! *When*: any algorithm but NOOP, a chooser of algorithms, a journal or an observer. Otherwise requests go straight to the
//! store: nothing here is touched but one flag. A trace changes nothing of that.
//!
//! Everything is decided under one mutex ([`State`]), and observers are called under it, in that order.
use crate::access::Access;
use crate::borrowed_buffer::{BorrowedBuffer, serve};
use crate::choice;
use crate::error::refuse;
use crate::events::{EventKind, Observer};
use crate::jobs::{Job, JobState, Slice, State, Times, event};
use crate::load::Cost;
use crate::settings::Settings;
use crate::timer::Timer;
use crate::trace_tap::TraceTap;
use crate::tracing::{Scheduled, Traced, Tracing, prediction_status, predictor};
use penstock_base::Numbered;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::thread;
use penstock_host::time::now;
use penstock_rpc::Background;
use penstock_sched::journal::Journal;
use penstock_sched::{
    Algorithm, Arrival, Dispatcher, Error, Nanos, Op, Request, Scheduler, ServerInfo, Verdict,
};
use penstock_store::{Object, Scratch};
use penstock_wire::message::{ErrorKind, ProgramStatus, SchedulerStatus, TraceContext, WireError};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Longest sleep without a check: nothing depends on it.
const LOOK: Duration = Duration::from_secs(1);

/// Whose bytes, and where they belong.
pub(crate) struct Origin<'a> {
    pub(crate) trace: TraceContext,
    pub(crate) file: u64,
    pub(crate) object: &'a Arc<dyn Object>,
    /// What its slices cost so far.
    pub(crate) cost: &'a Cell<Cost>,
}

impl Origin<'_> {
    fn charge(&self, cost: Cost) {
        self.cost.set(self.cost.get().plus(cost));
    }
}

/// The queue of a data server.
pub(crate) struct RequestQueue {
    /// Each request has to come here.
    on: AtomicBool,
    traced: Traced,
    tap: Arc<TraceTap>,
    began: Instant,
    site: ServerInfo,
    wakeup: Arc<Timer>,
    /// Started when requests are scheduled for the first time.
    timer: Background,
    /// Held while settings change: files are created and read then, which must not delay requests.
    tuning: Mutex<()>,
    state: Mutex<State>,
}

impl RequestQueue {
    /// The queue of this data server. With a journal all decisions are recorded.
    pub(crate) fn new(
        settings: Settings,
        site: ServerInfo,
        journal: Option<Arc<dyn Journal>>,
    ) -> Result<Arc<RequestQueue>, WireError> {
        let dispatcher = Dispatcher::new(0, &settings.sched, site, journal).map_err(refused)?;
        let tap = Arc::new(TraceTap::default());
        let began = now();
        let wakeup = Arc::new(Timer::new(began));
        let queue = Arc::new(RequestQueue {
            on: AtomicBool::new(false),
            traced: Traced::default(),
            tap: tap.clone(),
            began,
            site,
            wakeup: wakeup.clone(),
            timer: Background::default(),
            tuning: Mutex::new(()),
            state: Mutex::new(State {
                dispatcher,
                started: Vec::new(),
                settings: Settings::default(),
                tap,
                hears: false,
                jobs: Numbered::default(),
                wakeup,
                armed: None,
            }),
        });
        queue.apply(settings, true)?;
        Ok(queue)
    }

    /// Whether each request must pass through here, and none may bypass the server.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// The trace that is written, if there is one.
    pub(crate) fn tracing(&self) -> Option<Arc<Tracing>> {
        self.traced.get()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves no decision incomplete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self) -> Nanos {
        now().saturating_duration_since(self.began).as_nanos() as Nanos
    }

    /// Applies new settings. The caller must revoke shortcuts if the queue is on afterwards.
    pub(crate) fn tune(self: &Arc<Self>, changes: &[String]) -> Result<(), WireError> {
        let _tuning = self.tuning.lock().unwrap_or_else(PoisonError::into_inner);
        if self.wakeup.is_stopped() {
            return Err(refuse(ErrorKind::Busy, "this data server is stopping"));
        }
        self.change(changes)
    }

    fn change(self: &Arc<Self>, changes: &[String]) -> Result<(), WireError> {
        let settings = self.state().settings.with(changes)?;
        // Also with the same directory: another run may have been traced there since.
        let names = ["predict=", "times="];
        let anew = changes
            .iter()
            .any(|word| names.iter().any(|name| word.starts_with(name)));
        self.apply(settings, anew)
    }

    /// `predict`: loads or drops the trace that predicts.
    fn apply(self: &Arc<Self>, settings: Settings, predict: bool) -> Result<(), WireError> {
        let trace = self.state().settings.trace.clone();
        let tracing = match &settings.trace {
            Some(dir) if settings.trace != trace => Some(Tracing::start(&self.site, dir)?),
            _ => None,
        };
        let mut expected = match &settings.predict {
            Some(dir) if predict => Some(predictor(&self.site, dir, &settings.sched)?),
            _ => None,
        };
        let mut state = self.state();
        let time = self.time();
        state
            .dispatcher
            .set(time, &settings.sched)
            .map_err(refused)?;
        let ended = if settings.trace == trace {
            None
        } else {
            self.traced.set(tracing)
        };
        if predict {
            expected = state.dispatcher.predict(expected);
        }
        state.settings = settings;
        let refreshed = self.refresh(&mut state);
        drop(state);
        // Ends a trace: its last events are written while others go on.
        drop((ended, expected));
        refreshed
    }

    /// Sets the observer of events; `None`: no observer.
    pub(crate) fn observe(
        self: &Arc<Self>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<(), WireError> {
        let mut state = self.state();
        self.tap.observe(observer);
        self.refresh(&mut state)
    }

    fn refresh(self: &Arc<Self>, state: &mut State) -> Result<(), WireError> {
        state.hears = self.tap.is_observed();
        let on = state.hears || state.dispatcher.is_on();
        if on {
            let queue = Arc::downgrade(self);
            let ring = move || queue.upgrade().map(|queue| queue.poll()).is_some();
            self.wakeup.start(&self.timer, ring)?;
        }
        self.on.store(on, Ordering::SeqCst);
        state.poll(self.time());
        Ok(())
    }

    /// Called by the timer.
    fn poll(&self) {
        let mut state = self.state();
        state.armed = None;
        let time = self.time();
        if state.dispatcher.wake().is_some_and(|at| at <= time) {
            state.poll(time);
        } else {
            state.begin(time, None);
        }
    }

    /// The server stops: requests wait no more for aggregation, and settings are fixed.
    pub(crate) fn stop(self: &Arc<Self>) {
        let tuning = self.tuning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = self.change(&["sched=noop".into()]) {
            log::error!("cannot empty the queue: {e}");
        }
        self.wakeup.stop();
        drop(tuning);
        self.timer.join("wakes the queue");
    }

    /// Reads the next `len` bytes of the access into `buffer`, when it is scheduled.
    pub(crate) fn read(
        &self,
        origin: &Origin<'_>,
        access: &mut Access,
        buffer: &mut Vec<u8>,
        len: usize,
        scratch: &mut Scratch,
    ) -> Result<(usize, Scheduled), WireError> {
        let arrived = self.time();
        let (id, mut state) = match self.arrive(origin, Op::Read, access, len)? {
            Arrived::Goes(turn) => {
                let began = now();
                let result = access.read(Some(&**origin.object), &mut buffer[..len], scratch);
                let completed = turn.finish();
                origin.charge(Cost::of_store(began));
                return Ok((result?, self.scheduled(arrived, arrived, completed, None)));
            }
            Arrived::Waits(id, state) => (id, state),
        };
        state.lend(id, origin.object, access, std::mem::take(buffer), len);
        let (result, borrowed, times) = self.wait(state, id, scratch);
        origin.charge(times.cost(arrived));
        if let Some(borrowed) = borrowed {
            (*access, *buffer) = (borrowed.access, borrowed.buffer);
        }
        let scheduled = self.scheduled(arrived, times.dispatched, times.completed, times.joined);
        Ok((result?, scheduled))
    }

    /// Writes bytes to the next runs of the access, when it is scheduled: those given, or the first `len` of `buffer`.
    pub(crate) fn write(
        &self,
        origin: &Origin<'_>,
        access: &mut Access,
        bytes: Option<&[u8]>,
        buffer: &mut Vec<u8>,
        len: usize,
        scratch: &mut Scratch,
    ) -> Result<(usize, Scheduled), WireError> {
        let arrived = self.time();
        let (id, mut state) = match self.arrive(origin, Op::Write, access, len)? {
            Arrived::Goes(turn) => {
                let bytes = bytes.unwrap_or_else(|| &buffer[..len]);
                let began = now();
                let result = access.write(&**origin.object, bytes, scratch);
                let completed = turn.finish();
                origin.charge(Cost::of_store(began));
                return Ok((result?, self.scheduled(arrived, arrived, completed, None)));
            }
            Arrived::Waits(id, state) => (id, state),
        };
        if let Some(bytes) = bytes {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            buffer[..len].copy_from_slice(bytes);
        }
        state.lend(id, origin.object, access, std::mem::take(buffer), len);
        let (result, borrowed, times) = self.wait(state, id, scratch);
        origin.charge(times.cost(arrived));
        if let Some(borrowed) = borrowed {
            (*access, *buffer) = (borrowed.access, borrowed.buffer);
        }
        let scheduled = self.scheduled(arrived, times.dispatched, times.completed, times.joined);
        Ok((result?, scheduled))
    }

    /// Times of this queue's clock, for a trace.
    fn scheduled(
        &self,
        arrived: Nanos,
        dispatched: Nanos,
        completed: Nanos,
        joined: Option<(u64, u64)>,
    ) -> Scheduled {
        let at = |time| self.began + Duration::from_nanos(time);
        Scheduled {
            arrived: at(arrived),
            dispatched: at(dispatched),
            completed: at(completed),
            joined,
        }
    }

    /// A slice arrives.
    fn arrive(
        &self,
        origin: &Origin<'_>,
        op: Op,
        access: &mut Access,
        len: usize,
    ) -> Result<Arrived<'_>, WireError> {
        let span = access.span(len as u64);
        if len == 0 || span.is_empty() {
            return Ok(Arrived::Goes(AccessGuard::Nothing));
        }
        let mut state = self.state();
        let time = self.time();
        let id = self.tap.number();
        let request = Request {
            id,
            file: origin.file,
            op,
            offset: span.start,
            bytes: len as u64,
            program: origin.trace.program,
            process: origin.trace.rank,
        };
        let arrival = Arrival {
            request,
            end: span.end,
        };
        let known = &mut *state;
        let verdict = known
            .dispatcher
            .arrive(time, &arrival, &mut known.started)
            .map_err(refused)?;
        let slice = Slice {
            trace: origin.trace,
            end: span.end,
        };
        if known.hears {
            let event = event(EventKind::Arrival, time, &request, &slice, 0);
            known.tap.hear(&event);
        }
        Ok(match verdict {
            Verdict::Go(v) => {
                known.begin(time, Some((v, &slice)));
                Arrived::Goes(AccessGuard::Serves(Ends::new(self, v, id, Some(slice))))
            }
            Verdict::Wait => {
                let job = Job {
                    thread: thread::current(),
                    slice,
                    place: JobState::Queued,
                    borrowed: None,
                    times: Times::default(),
                };
                known.jobs.insert(id, job);
                known.begin(time, None);
                Arrived::Waits(id, state)
            }
        })
    }

    /// Sleeps until the slice has been served, and serves virtual requests assigned to this thread meanwhile.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: u64,
        scratch: &mut Scratch,
    ) -> (Result<usize, WireError>, Option<Box<BorrowedBuffer>>, Times) {
        loop {
            let place = state.jobs.get(&id).map(|job| &job.place);
            match place {
                Some(JobState::Leads(v)) => {
                    let v = *v;
                    let mut borrowed = state.borrow(v.id);
                    drop(state);
                    let ends = Ends::new(self, v.id, id, None);
                    let results = serve(v.op, &mut borrowed, scratch);
                    state = ends.give_back(borrowed, results);
                }
                Some(JobState::Queued | JobState::Follows) => {
                    drop(state);
                    thread::park_timeout(LOOK);
                    state = self.state();
                }
                Some(JobState::Done(_)) | None => {
                    return match state.jobs.remove(&id) {
                        Some(Job {
                            place: JobState::Done(result),
                            borrowed,
                            times,
                            ..
                        }) => (result, borrowed, times),
                        _ => (Err(lost()), None, Times::default()),
                    };
                }
            }
        }
    }

    /// The state and counts of the queue.
    pub(crate) fn status(&self) -> SchedulerStatus {
        let state = self.state();
        let dispatcher = &state.dispatcher;
        let s = dispatcher.scheduler().statistics();
        let programs = s.programs.iter().map(|p| ProgramStatus {
            program: p.program,
            requests: p.requests,
            bytes: p.bytes,
            share_ppm: (p.share * 1e6).round() as u32,
            p50_ns: p.response.percentile(50.0),
            p99_ns: p.response.percentile(99.0),
        });
        SchedulerStatus {
            algorithm: in_use(dispatcher.scheduler()),
            choice: dispatcher.chooser().map(|c| choice::status(c, self.time())),
            depth: state.settings.sched.depth,
            quantum: state.settings.sched.options.quantum,
            order_conflicts: state.settings.sched.options.order_conflicts,
            observed: state.hears,
            predicted_waits: s.predicted_waits,
            trace: self.tracing().map(|tracing| tracing.status()),
            prediction: dispatcher
                .predictor()
                .zip(state.settings.predict.as_deref())
                .map(|(predictor, dir)| prediction_status(&self.site, dir, predictor)),
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

impl Drop for RequestQueue {
    fn drop(&mut self) {
        self.wakeup.stop();
    }
}

/// The algorithms in use, beginning with that of the most requests.
fn in_use(scheduler: &Scheduler) -> String {
    let all = scheduler.groups().algorithms();
    let names: Vec<&str> = all.into_iter().map(Algorithm::name).collect();
    names.join(", ")
}

/// The error of an invalid setting or request.
fn refused(e: Error) -> WireError {
    match e {
        Error::Full { .. } => refuse(ErrorKind::Busy, format!("{e}; try again later")),
        e => refuse(ErrorKind::InvalidArgument, e.to_string()),
    }
}

/// Bytes of this machine's memory; 0 where that cannot be read.
pub(crate) fn memory() -> u64 {
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

/// What becomes of a slice that arrives.
enum Arrived<'a> {
    /// It is served at once, alone.
    Goes(AccessGuard<'a>),
    Waits(u64, MutexGuard<'a, State>),
}

/// Who is told of the completion of a slice that was served at once.
enum AccessGuard<'a> {
    /// Nobody: nothing was scheduled.
    Nothing,
    Serves(Ends<'a>),
}

impl AccessGuard<'_> {
    /// When that was, if there was something to schedule.
    fn finish(self) -> Nanos {
        match self {
            AccessGuard::Nothing => 0,
            AccessGuard::Serves(ends) => ends.finish(),
        }
    }
}

/// A virtual request that this thread serves. However serving ends, its parts are answered and the next one begins.
struct Ends<'a> {
    queue: &'a RequestQueue,
    v: u64,
    id: u64,
    /// The whole of it, if it was served at once.
    alone: Option<Slice>,
    done: bool,
}

impl<'a> Ends<'a> {
    fn new(queue: &'a RequestQueue, v: u64, id: u64, alone: Option<Slice>) -> Ends<'a> {
        Ends {
            queue,
            v,
            id,
            alone,
            done: false,
        }
    }

    /// The only part was served by its own thread.
    fn finish(mut self) -> Nanos {
        self.done = true;
        let mut state = self.queue.state();
        let time = self.queue.time();
        state.complete(time, self.v, self.alone.as_ref(), |_| {});
        time
    }

    fn give_back(
        mut self,
        borrowed: Vec<BorrowedBuffer>,
        results: Vec<Result<usize, WireError>>,
    ) -> MutexGuard<'a, State> {
        self.done = true;
        let mut state = self.queue.state();
        let mut served = borrowed.into_iter().zip(results);
        state.complete(self.queue.time(), self.v, None, |job| {
            let (borrowed, result) = match served.next() {
                Some((borrowed, result)) => (Some(borrowed), result),
                None => (None, Err(lost())),
            };
            job.borrowed = borrowed.map(Box::new);
            job.place = JobState::Done(result);
        });
        state
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        // The store has panicked; the borrowed buffers are gone with the stack.
        let mut state = self.queue.state();
        state.complete(self.queue.time(), self.v, self.alone.as_ref(), |job| {
            job.place = JobState::Done(Err(lost()));
        });
        state.jobs.remove(&self.id);
    }
}
