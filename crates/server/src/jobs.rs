//! What the queue holds and decides, under its mutex: slices that wait or are served, the scheduler, and who chose it.
use crate::access::Access;
use crate::error::refuse;
use crate::events::{Event, EventKind};
use crate::loan::Loan;
use crate::queue::Origin;
use crate::settings::Settings;
use crate::tracing::Prediction;
use crate::watch::Watch;
use penstock_host::thread::{self, Thread};
use penstock_sched::{
    Algorithm, Chooser, Choosing, Groups, Nanos, Next, Request, Scheduler, Site, VirtualRequest,
};
use penstock_wire::message::{ErrorKind, TraceContext, WireError};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// See the module's text.
pub(crate) struct State {
    pub(crate) scheduler: Scheduler,
    pub(crate) settings: Settings,
    /// Unless the user has chosen the algorithm.
    pub(crate) chooser: Option<Chooser>,
    pub(crate) site: Site,
    pub(crate) watch: Arc<Watch>,
    /// Somebody listens there.
    pub(crate) hears: bool,
    /// The scheduler's decisions are written down.
    pub(crate) journaled: bool,
    pub(crate) prediction: Option<Prediction>,
    pub(crate) jobs: Numbered<u64, Job>,
    /// Virtual requests being served.
    pub(crate) serving: u32,
}

/// By numbers that nobody outside can choose, or of which few are kept: a product spreads them well enough.
pub(crate) type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Product>>;

#[derive(Default)]
pub(crate) struct Product(u64);

impl Hasher for Product {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// What is known of a slice beside its request.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) trace: TraceContext,
    pub(crate) arrived: Nanos,
    pub(crate) end: u64,
}

/// A slice that waits, or is served with others. One that may go on at once is none: its thread keeps what is known of it.
pub(crate) struct Job {
    pub(crate) thread: Thread,
    pub(crate) slice: Slice,
    pub(crate) place: Place,
    /// Lent by the thread when it does not go on at once.
    pub(crate) loan: Option<Box<Loan>>,
}

pub(crate) enum Place {
    Queued,
    /// Its thread serves this.
    Leads(VirtualRequest),
    /// Another thread serves it.
    Follows,
    Done(Result<usize, WireError>),
}

impl State {
    pub(crate) fn new_chooser(
        &self,
        time: Nanos,
        choosing: Choosing,
    ) -> Result<Chooser, WireError> {
        let held = self.scheduler.len();
        Chooser::new(time, choosing, self.site, held)
            .map_err(|e| refuse(ErrorKind::Io, format!("cannot choose an algorithm: {e}")))
    }

    /// Tells the journal what the algorithm comes from, so that it can be chosen again.
    pub(crate) fn note_tuned(&self, time: Nanos, chooser: Option<&Chooser>) {
        if self.journaled {
            let from = chooser.map_or_else(|| "fixed".to_owned(), |c| c.settings().join(" "));
            let Site {
                unit,
                memory,
                servers,
            } = self.site;
            let note = format!("tuned {time} {unit} {memory} {servers} {from}");
            self.scheduler.note(&note);
        }
    }

    /// Lets the chooser choose; what is queued is carried over.
    pub(crate) fn choose(&mut self, time: Nanos) {
        if let Some(groups) = self.chooser.as_mut().and_then(|c| c.decide(time)) {
            self.regroup(time, groups);
        }
    }

    /// Files run under these algorithms from now on.
    pub(crate) fn regroup(&mut self, time: Nanos, groups: Groups) {
        if let Err(e) = self.scheduler.regroup(time, groups) {
            log::error!("cannot schedule as chosen: {e}");
        }
    }

    /// Takes decisions while there is something to serve with. Until when there is none, if that is known.
    pub(crate) fn decide(&mut self, time: Nanos) -> Option<Nanos> {
        loop {
            match self.next(time) {
                Next::Dispatch(v) => self.dispatch(time, &v, None),
                Next::WaitUntil(until) => return Some(until.max(time)),
                Next::Idle => return None,
            }
        }
    }

    /// The same, when this slice of the calling thread has been added: the virtual request that it is all of, if it may go
    /// on at once.
    pub(crate) fn begin(&mut self, time: Nanos, id: u64, slice: Slice) -> Option<u64> {
        let mut alone = None;
        let job = || Job {
            thread: thread::current(),
            slice,
            place: Place::Queued,
            loan: None,
        };
        while let Next::Dispatch(v) = self.next(time) {
            let own = self.scheduler.parts(v.id).any(|part| part.id == id);
            if own && v.parts == 1 {
                self.dispatch(time, &v, Some(&slice));
                alone = Some(v.id);
                continue;
            }
            if own {
                self.jobs.insert(id, job());
            }
            self.dispatch(time, &v, None);
        }
        if alone.is_none() {
            self.jobs.entry(id).or_insert_with(job);
        }
        alone
    }

    /// What goes next, if there is something to serve it with.
    fn next(&mut self, time: Nanos) -> Next {
        let groups = self.scheduler.groups();
        let depth = match groups.algorithm {
            Algorithm::Noop if groups.files.is_empty() => u32::MAX,
            _ => self.settings.sched.depth,
        };
        if self.serving >= depth {
            return Next::Idle;
        }
        let next = match &mut self.prediction {
            None => self.scheduler.next(time),
            Some(prediction) => self.scheduler.next_expecting(time, &mut |first, parts| {
                prediction.wait(time, first, parts)
            }),
        };
        if let Next::Dispatch(_) = next {
            self.serving += 1;
        }
        next
    }

    /// Tells the threads of the parts, unless the only part is this slice, whose thread knows.
    fn dispatch(&mut self, time: Nanos, v: &VirtualRequest, alone: Option<&Slice>) {
        if alone.is_some() && !self.hears && self.prediction.is_none() {
            return;
        }
        let mut leads = true;
        for part in self.scheduler.parts(v.id) {
            let Some((slice, job)) = known(&mut self.jobs, part.id, alone) else {
                continue;
            };
            if let Some(job) = job {
                job.place = match leads {
                    true => Place::Leads(*v),
                    false => Place::Follows,
                };
                if leads {
                    job.thread.unpark();
                }
            }
            leads = false;
            if let Some(prediction) = &mut self.prediction {
                prediction.dispatched(part.id);
            }
            if self.hears {
                let event = event(EventKind::Dispatch, time, &part, &slice, v.id);
                self.watch.hear(&event);
            }
        }
    }

    pub(crate) fn lend(
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
    pub(crate) fn borrow(&mut self, id: u64) -> Vec<Loan> {
        let jobs = &mut self.jobs;
        self.scheduler
            .parts(id)
            .filter_map(|part| Some(*jobs.get_mut(&part.id)?.loan.take()?))
            .collect()
    }

    /// A virtual request has been served: this slice by its own thread, or those of which each job is told.
    pub(crate) fn complete(
        &mut self,
        time: Nanos,
        v: u64,
        alone: Option<&Slice>,
        mut each: impl FnMut(&mut Job),
    ) -> Option<Nanos> {
        if alone.is_none() || self.hears || self.chooser.is_some() {
            for part in self.scheduler.parts(v) {
                let Some((slice, job)) = known(&mut self.jobs, part.id, alone) else {
                    continue;
                };
                if self.hears {
                    let event = event(EventKind::Completion, time, &part, &slice, v);
                    self.watch.hear(&event);
                }
                if let Some(chooser) = &mut self.chooser {
                    chooser.completed(time, &part, time.saturating_sub(slice.arrived));
                }
                if let Some(job) = job {
                    each(job);
                    job.thread.unpark();
                }
            }
        }
        self.serving -= 1;
        if let Err(e) = self.scheduler.completed(time, v) {
            log::error!("{e}");
        }
        self.choose(time);
        self.decide(time)
    }

    pub(crate) fn wake_one(&self) {
        let queued = |job: &&Job| matches!(job.place, Place::Queued);
        if let Some(job) = self.jobs.values().find(queued) {
            job.thread.unpark();
        }
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
