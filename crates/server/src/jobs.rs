//! The queue's state under its mutex: the dispatcher, and the threads and buffers of waiting slices.
use crate::access::Access;
use crate::borrowed_buffer::BorrowedBuffer;
use crate::events::{Event, EventKind};
use crate::load::Cost;
use crate::settings::Settings;
use crate::timer::Timer;
use crate::trace_tap::TraceTap;
use penstock_base::Numbered;
use penstock_host::thread::Thread;
use penstock_sched::{Dispatcher, Nanos, Request, VirtualRequest};
use penstock_store::Object;
use penstock_wire::message::{TraceContext, WireError};
use std::sync::Arc;

/// What is behind the queue's mutex.
pub(crate) struct State {
    pub(crate) dispatcher: Dispatcher,
    /// Started virtual requests that nobody was told of; empty whenever the mutex is free.
    pub(crate) started: Vec<VirtualRequest>,
    pub(crate) settings: Settings,
    pub(crate) tap: Arc<TraceTap>,
    /// Whether a trace or an observer exists.
    pub(crate) hears: bool,
    /// Slices whose threads wait, or serve others.
    pub(crate) jobs: Numbered<u64, Job>,
    pub(crate) wakeup: Arc<Timer>,
    /// When the timer will call again.
    pub(crate) armed: Option<Nanos>,
}

/// Data of a slice besides its request.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) trace: TraceContext,
    pub(crate) end: u64,
}

/// A slice that waits, or is served with others. A slice that is served at once has none: its thread has its data.
pub(crate) struct Job {
    pub(crate) thread: Thread,
    pub(crate) slice: Slice,
    pub(crate) place: JobState,
    /// Buffer borrowed from its thread, if the slice is not served at once.
    pub(crate) borrowed: Option<Box<BorrowedBuffer>>,
    pub(crate) times: Times,
}

/// When a slice that waited was served, and with how many others.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) dispatched: Nanos,
    pub(crate) completed: Nanos,
    /// Its share by bytes of the time that the store took for its virtual request.
    pub(crate) device: Nanos,
    /// Offset and bytes of its virtual request, if others were in it.
    pub(crate) joined: Option<(u64, u64)>,
}

impl Times {
    /// What a slice that arrived then cost.
    pub(crate) fn cost(&self, arrived: Nanos) -> Cost {
        Cost {
            queue: self.dispatched.saturating_sub(arrived),
            device: self.device,
        }
    }
}

pub(crate) enum JobState {
    Queued,
    /// Its thread serves this virtual request.
    Leads(VirtualRequest),
    /// Another thread serves it.
    Follows,
    Done(Result<usize, WireError>),
}

impl State {
    /// Tells the threads what was started, and the timer when to call again. `alone`: a virtual request that consists
    /// of this slice, whose thread knows.
    pub(crate) fn begin(&mut self, time: Nanos, alone: Option<(u64, &Slice)>) {
        let mut started = std::mem::take(&mut self.started);
        for v in started.drain(..) {
            let alone = alone.filter(|(id, _)| *id == v.id).map(|(_, slice)| slice);
            self.start(time, &v, alone);
        }
        self.started = started;
        if let Some(at) = self.dispatcher.wake()
            && self.armed.is_none_or(|armed| at < armed)
        {
            self.armed = Some(at);
            self.wakeup.set(at);
        }
    }

    fn start(&mut self, time: Nanos, v: &VirtualRequest, alone: Option<&Slice>) {
        if alone.is_some() && !self.hears {
            return;
        }
        let mut leads = true;
        for part in self.dispatcher.parts(v.id) {
            let Some((slice, job)) = known(&mut self.jobs, part.id, alone) else {
                continue;
            };
            if let Some(job) = job {
                job.times.dispatched = time;
                job.times.joined = (v.parts > 1).then_some((v.offset, v.bytes));
                if leads {
                    job.place = JobState::Leads(*v);
                    job.thread.unpark();
                } else {
                    job.place = JobState::Follows;
                }
            }
            leads = false;
            if self.hears {
                let event = event(EventKind::Dispatch, time, &part, &slice, v.id);
                self.tap.hear(&event);
            }
        }
    }

    /// Time has passed, or settings have changed.
    pub(crate) fn poll(&mut self, time: Nanos) {
        self.dispatcher.poll(time, &mut self.started);
        self.begin(time, None);
    }

    pub(crate) fn lend(
        &mut self,
        id: u64,
        object: &Arc<dyn Object>,
        access: &mut Access,
        buffer: Vec<u8>,
        len: usize,
    ) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.borrowed = Some(Box::new(BorrowedBuffer {
                object: object.clone(),
                access: std::mem::take(access),
                buffer,
                len,
            }));
        }
    }

    /// The borrowed buffers of a virtual request's parts, by offset.
    pub(crate) fn borrow(&mut self, id: u64) -> Vec<BorrowedBuffer> {
        let jobs = &mut self.jobs;
        self.dispatcher
            .parts(id)
            .filter_map(|part| Some(*jobs.get_mut(&part.id)?.borrowed.take()?))
            .collect()
    }

    /// A virtual request has been served: this slice by its own thread, or several whose jobs are told.
    pub(crate) fn complete(
        &mut self,
        time: Nanos,
        v: u64,
        alone: Option<&Slice>,
        mut each: impl FnMut(&mut Job),
    ) {
        if alone.is_none() || self.hears {
            let whole: u64 = self.dispatcher.parts(v).map(|part| part.bytes).sum();
            for part in self.dispatcher.parts(v) {
                let Some((slice, job)) = known(&mut self.jobs, part.id, alone) else {
                    continue;
                };
                if self.hears {
                    let event = event(EventKind::Completion, time, &part, &slice, v);
                    self.tap.hear(&event);
                }
                if let Some(job) = job {
                    let took = u128::from(time.saturating_sub(job.times.dispatched));
                    let own = took * u128::from(part.bytes) / u128::from(whole.max(1));
                    job.times.device = u64::try_from(own).unwrap_or(u64::MAX);
                    job.times.completed = time;
                    each(job);
                    job.thread.unpark();
                }
            }
        }
        if let Err(e) = self.dispatcher.done(time, v, &mut self.started) {
            log::error!("{e}");
        }
        self.begin(time, None);
    }
}

/// Data of a part: from its job, unless it is this slice that is served alone.
fn known<'a>(
    jobs: &'a mut Numbered<u64, Job>,
    id: u64,
    alone: Option<&Slice>,
) -> Option<(Slice, Option<&'a mut Job>)> {
    match alone {
        Some(slice) => Some((*slice, None)),
        None => jobs.get_mut(&id).map(|job| (job.slice, Some(job))),
    }
}

pub(crate) fn event(
    kind: EventKind,
    time: Nanos,
    request: &Request,
    slice: &Slice,
    served_in: u64,
) -> Event {
    Event {
        time,
        kind,
        id: request.id,
        served_in,
        file: request.file,
        op: request.op,
        offset: request.offset,
        end: slice.end,
        bytes: request.bytes,
        trace: slice.trace,
    }
}
