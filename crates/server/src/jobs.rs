//! What the queue holds under its mutex: the dispatcher, which decides, and the threads and memory of slices that wait.
use crate::access::Access;
use crate::borrowed_buffer::BorrowedBuffer;
use crate::events::{Event, EventKind};
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
    /// What it has started and nobody has been told of; empty whenever the mutex is free.
    pub(crate) started: Vec<VirtualRequest>,
    pub(crate) settings: Settings,
    pub(crate) tap: Arc<TraceTap>,
    /// Somebody listens there.
    pub(crate) hears: bool,
    /// Slices whose threads wait, or lead others.
    pub(crate) jobs: Numbered<u64, Job>,
    pub(crate) wakeup: Arc<Timer>,
    /// When the timer will look again.
    pub(crate) armed: Option<Nanos>,
}

/// What is known of a slice beside its request.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) trace: TraceContext,
    pub(crate) end: u64,
}

/// A slice that waits, or is served with others. One that may go on at once is none: its thread keeps what is known of it.
pub(crate) struct Job {
    pub(crate) thread: Thread,
    pub(crate) slice: Slice,
    pub(crate) place: JobState,
    /// Lent by the thread when it does not go on at once.
    pub(crate) borrowed: Option<Box<BorrowedBuffer>>,
}

pub(crate) enum JobState {
    Queued,
    /// Its thread serves this.
    Leads(VirtualRequest),
    /// Another thread serves it.
    Follows,
    Done(Result<usize, WireError>),
}

impl State {
    /// Tells the threads of what has been started, and the timer when to look again. `alone`: a virtual request that is
    /// this slice, whose thread knows.
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

    /// What the parts of a virtual request lent, by offset.
    pub(crate) fn borrow(&mut self, id: u64) -> Vec<BorrowedBuffer> {
        let jobs = &mut self.jobs;
        self.dispatcher
            .parts(id)
            .filter_map(|part| Some(*jobs.get_mut(&part.id)?.borrowed.take()?))
            .collect()
    }

    /// A virtual request has been served: this slice by its own thread, or those of which each job is told.
    pub(crate) fn complete(
        &mut self,
        time: Nanos,
        v: u64,
        alone: Option<&Slice>,
        mut each: impl FnMut(&mut Job),
    ) {
        if alone.is_none() || self.hears {
            for part in self.dispatcher.parts(v) {
                let Some((slice, job)) = known(&mut self.jobs, part.id, alone) else {
                    continue;
                };
                if self.hears {
                    let event = event(EventKind::Completion, time, &part, &slice, v);
                    self.tap.hear(&event);
                }
                if let Some(job) = job {
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

/// What is known of a part: by its job, unless it is this slice that went on alone.
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
