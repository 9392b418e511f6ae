//! What the queue holds and decides, under its mutex: slices that wait or are served, the scheduler, and who chose it.
use crate::access::Access;
use crate::choose::{Chooser, Choosing};
use crate::error::refuse;
use crate::events::{Event, EventKind};
use crate::loan::Loan;
use crate::look::Site;
use crate::queue::Origin;
use crate::settings::Settings;
use crate::tracing::Prediction;
use crate::watch::Watch;
use penstock_host::thread::Thread;
use penstock_sched::{Algorithm, Groups, Nanos, Next, Request, Scheduler, VirtualRequest};
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
    /// Full numbers of programs, by the short ones.
    pub(crate) programs: Numbered<u32, u64>,
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

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A slice that is queued or being served.
pub(crate) struct Job {
    pub(crate) thread: Thread,
    pub(crate) trace: TraceContext,
    pub(crate) arrived: Nanos,
    pub(crate) end: u64,
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
        let groups = self.scheduler.groups();
        let depth = match groups.algorithm {
            Algorithm::Noop if groups.files.is_empty() => u32::MAX,
            _ => self.settings.depth,
        };
        let hears = self.hears;
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
                if hears {
                    let event = event(EventKind::Dispatch, time, &part, job, v.id);
                    self.watch.hear(&event);
                }
            }
        }
        None
    }

    /// The slice may go on at once, alone: its thread keeps what it has.
    pub(crate) fn alone(&self, id: u64) -> Option<VirtualRequest> {
        match self.jobs.get(&id)?.place {
            Place::Leads(v) if v.parts == 1 => Some(v),
            _ => None,
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

    /// A virtual request has been served.
    pub(crate) fn complete(
        &mut self,
        time: Nanos,
        v: &VirtualRequest,
        mut each: impl FnMut(&mut Job),
    ) -> Option<Nanos> {
        for part in self.scheduler.parts(v.id) {
            let Some(job) = self.jobs.get_mut(&part.id) else {
                continue;
            };
            if self.hears {
                let event = event(EventKind::Completion, time, &part, job, v.id);
                self.watch.hear(&event);
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

    pub(crate) fn wake_one(&self) {
        let queued = |job: &&Job| matches!(job.place, Place::Queued);
        if let Some(job) = self.jobs.values().find(queued) {
            job.thread.unpark();
        }
    }
}

pub(crate) fn event(
    kind: EventKind,
    time: Nanos,
    request: &Request,
    job: &Job,
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
        end: job.end,
        bytes: request.bytes,
        trace: job.trace,
    }
}
