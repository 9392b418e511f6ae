//! The dispatcher of a data server: which of its requests go to the store now, alone or with others, and which wait.
//!
//! *Problem*: servers and the simulator must decide alike, and a decision needs more than an algorithm. It depends on
//! how many virtual requests are served at once, who chooses the algorithm, and what a trace predicts. *Idea*: one
//! state machine combines the [`Scheduler`], the [`Chooser`] and the [`Predictor`]. Events go in with their time: a
//! request arrives ([`Dispatcher::arrive`]), a virtual request is done ([`Dispatcher::done`]), time passes
//! ([`Dispatcher::poll`]). Settings change by [`Dispatcher::set`] and [`Dispatcher::predict`]. Out come the virtual
//! requests to start, the verdict on the request that arrived ([`Verdict`]), and when to call [`Dispatcher::poll`] next
//! ([`Dispatcher::wake`]). Threads, memory, files and the clock belong to the caller.
//!
//! Requests are not copied: [`Dispatcher::parts`] lists the parts of a virtual request until it is done.
use crate::groups::Groups;
use crate::journal::Journal;
use crate::learn::Predictor;
use crate::select::{Chooser, Mode};
use crate::settings::Settings;
use crate::{Algorithm, Error, Nanos, Next, Op, Request, Scheduler, VirtualRequest};
use std::sync::Arc;

/// Bytes that are scheduled as one request: larger requests arrive slice by slice, so that they cannot block others.
pub const SLICE: u64 = 256 << 10;

/// What a data server knows about itself when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its number, from 0.
    pub server: u32,
    /// Data servers of the deployment.
    pub servers: u32,
    /// Bytes of a file's stripe unit. Requests of at least this size are large, see [`ServerInfo::large`].
    pub unit: u64,
    /// Bytes of the machine's memory; 0: unknown.
    pub memory: u64,
    /// Virtual requests that it can serve at once, whatever the algorithm; `u32::MAX`: no bound.
    pub threads: u32,
}

impl ServerInfo {
    /// Bytes from which a request is large: the stripe unit, but at most a slice.
    pub fn large(&self) -> u64 {
        self.unit.clamp(1, SLICE)
    }
}

/// A request that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// What it asks for: at most a slice. Its id must be new.
    pub request: Request,
    /// One past the last byte that it may touch; a structured request spans more than its bytes.
    pub end: u64,
}

/// The decision on a request that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is started at once and alone, as this virtual request.
    Go(u64),
    /// It waits, or is started together with others.
    Wait,
}

/// The decisions of a data server, as a plain state machine. Times must not decrease.
#[derive(Debug)]
pub struct Dispatcher {
    scheduler: Scheduler,
    settings: Settings,
    site: ServerInfo,
    /// Set unless the user has chosen the algorithm.
    chooser: Option<Chooser>,
    predictor: Option<Predictor>,
    /// Scratch space for the parts of a virtual request.
    parts: Vec<u64>,
    /// Virtual requests that are being served.
    serving: u32,
    wake: Option<Nanos>,
    journaled: bool,
}

impl Dispatcher {
    /// An empty dispatcher. `journal` receives each decision; an error names the setting that is wrong.
    pub fn new(
        now: Nanos,
        settings: &Settings,
        site: ServerInfo,
        journal: Option<Arc<dyn Journal>>,
    ) -> Result<Dispatcher, Error> {
        let mut scheduler = Scheduler::new(settings.options.clone())?;
        let journaled = journal.is_some();
        scheduler.keep(journal);
        let mut dispatcher = Dispatcher {
            scheduler,
            settings: settings.clone(),
            site,
            chooser: None,
            predictor: None,
            parts: Vec::new(),
            serving: 0,
            wake: None,
            journaled,
        };
        dispatcher.set(now, settings)?;
        Ok(dispatcher)
    }

    /// Applies new settings; queued requests are carried over. The caller must call [`Dispatcher::poll`] next. On an
    /// error nothing changes.
    pub fn set(&mut self, now: Nanos, settings: &Settings) -> Result<(), Error> {
        settings.check()?;
        let choosing = settings.choosing;
        let mut new = None;
        let keeps = |c: &Chooser| *c.choosing() == choosing;
        let kept = self.chooser.as_ref().is_some_and(keeps);
        if choosing.mode != Mode::Fixed && !kept {
            let held = self.scheduler.len();
            new = Some(Chooser::new(now, choosing, self.site, held)?);
        }
        if !kept {
            self.chooser = new;
        }
        self.note_set(now);
        let mut options = settings.options.clone();
        let groups = self.chooser.as_ref().map(|c| c.groups().clone());
        if let Some(groups) = &groups {
            options.algorithm = groups.algorithm;
        }
        let parts = options.parts_limit();
        self.scheduler.reconfigure(now, options)?;
        if let Some(predictor) = &mut self.predictor {
            predictor.joins(parts);
        }
        if let Some(groups) = groups.filter(|g| !g.files.is_empty()) {
            self.regroup(now, groups);
        }
        self.settings = settings.clone();
        Ok(())
    }

    /// Writes to the journal why the algorithm is what it is, so that a replay can choose it again.
    fn note_set(&self, now: Nanos) {
        if !self.journaled {
            return;
        }
        let fixed = || "fixed".to_owned();
        let from = self
            .chooser
            .as_ref()
            .map_or_else(fixed, |c| c.settings().join(" "));
        let (
            large,
            ServerInfo {
                memory, servers, ..
            },
        ) = (self.site.large(), self.site);
        self.scheduler
            .note(&format!("tuned {now} {large} {memory} {servers} {from}"));
    }

    /// Replaces the predictor; `None`: no prediction. Returns the one before.
    pub fn predict(&mut self, predictor: Option<Predictor>) -> Option<Predictor> {
        std::mem::replace(&mut self.predictor, predictor)
    }

    /// Adds a request that arrives and schedules. Appends to `started` the virtual requests to start, in order,
    /// including its own. An error says why the request was refused; the state is then unchanged.
    pub fn arrive(
        &mut self,
        now: Nanos,
        arrival: &Arrival,
        started: &mut Vec<VirtualRequest>,
    ) -> Result<Verdict, Error> {
        self.add(now, arrival)?;
        let alone = self.start(now, Some(arrival.request.id), started);
        Ok(alone.map_or(Verdict::Wait, Verdict::Go))
    }

    /// Adds one of several requests that arrive together. The caller must call [`Dispatcher::poll`] after the last.
    /// Errors as for [`Dispatcher::arrive`].
    pub fn add(&mut self, now: Nanos, arrival: &Arrival) -> Result<(), Error> {
        let request = arrival.request;
        self.expected(now, arrival);
        let added = self.scheduler.add_spread(now, request, arrival.end);
        if added.is_err()
            && let Some(predictor) = &mut self.predictor
        {
            predictor.dispatched(now, request.id);
        }
        added?;
        if let Some(chooser) = &mut self.chooser {
            chooser.arrived(now, &request);
            self.choose(now);
        }
        Ok(())
    }

    fn expected(&mut self, now: Nanos, arrival: &Arrival) {
        let Some(predictor) = &mut self.predictor else {
            return;
        };
        let Request {
            id,
            file,
            op,
            offset,
            bytes,
            program,
            ..
        } = arrival.request;
        predictor.arrived(now, id, op, file, offset, bytes, program);
        if let Some([reads, writes]) = predictor.begun() {
            self.scheduler.predict_more(file, Op::Read, reads);
            self.scheduler.predict_more(file, Op::Write, writes);
        }
    }

    /// Removes a started virtual request that has been served or has failed. Appends to `started` the virtual requests
    /// to start now. Error: no such virtual request was being served.
    pub fn done(
        &mut self,
        now: Nanos,
        id: u64,
        started: &mut Vec<VirtualRequest>,
    ) -> Result<(), Error> {
        self.forget(now, id)?;
        self.start(now, None, started);
        Ok(())
    }

    /// The same without scheduling, for callers that add requests next: they must call [`Dispatcher::poll`] afterwards.
    pub fn forget(&mut self, now: Nanos, id: u64) -> Result<(), Error> {
        if let Some(chooser) = &mut self.chooser {
            for (part, arrived) in self.scheduler.parts_with_arrival(id) {
                chooser.completed(now, &part, now.saturating_sub(arrived));
            }
        }
        self.scheduler.completed(now, id)?;
        self.serving -= 1;
        if let Some(predictor) = &mut self.predictor
            && self.serving == 0
        {
            predictor.serving(now, false);
        }
        self.choose(now);
        Ok(())
    }

    /// Schedules because time has passed or settings have changed. Appends to `started` the virtual requests to start
    /// now.
    pub fn poll(&mut self, now: Nanos, started: &mut Vec<VirtualRequest>) {
        self.start(now, None, started);
    }

    /// When to call [`Dispatcher::poll`] next, unless another event comes first.
    pub fn wake(&self) -> Option<Nanos> {
        self.wake
    }

    /// The requests of a started virtual request, by offset; none if it is done.
    pub fn parts(&self, id: u64) -> impl Iterator<Item = Request> + '_ {
        self.scheduler.parts(id)
    }

    /// Lets the chooser decide; queued requests are carried over.
    fn choose(&mut self, now: Nanos) {
        if let Some(groups) = self.chooser.as_mut().and_then(|c| c.decide(now)) {
            self.regroup(now, groups);
        }
    }

    /// Files run under these groups' algorithms from now on.
    fn regroup(&mut self, now: Nanos, groups: Groups) {
        // The chooser observes the limits of groups. If it fails nevertheless, nothing changes and the journal says
        // why.
        if let Err(e) = self.scheduler.regroup(now, groups) {
            debug_assert!(false, "{e}");
            self.scheduler.note(&format!("not grouped as chosen: {e}"));
        }
    }

    /// Starts virtual requests while the number served at once allows it. Returns the one that consists of request
    /// `own` only, if any.
    fn start(
        &mut self,
        now: Nanos,
        own: Option<u64>,
        started: &mut Vec<VirtualRequest>,
    ) -> Option<u64> {
        self.wake = None;
        let mut alone = None;
        loop {
            match self.next(now) {
                Next::Dispatch(v) => {
                    self.serving += 1;
                    if let Some(predictor) = &mut self.predictor {
                        let parts = self.scheduler.parts(v.id);
                        parts.for_each(|part| predictor.dispatched(now, part.id));
                        // Called for each start, also while others are being served.
                        predictor.serving(now, true);
                    }
                    let mut parts = self.scheduler.parts(v.id);
                    if v.parts == 1 && parts.next().map(|part| part.id) == own {
                        alone = Some(v.id);
                    }
                    started.push(v);
                }
                Next::WaitUntil(until) => {
                    self.wake = Some(until.max(now));
                    return alone;
                }
                Next::Idle => return alone,
            }
        }
    }

    /// The next virtual request, if the number served at once allows one.
    fn next(&mut self, now: Nanos) -> Next {
        if self.serving >= self.depth() {
            return Next::Idle;
        }
        let (predictor, parts) = (&mut self.predictor, &mut self.parts);
        match predictor {
            None => self.scheduler.next(now),
            Some(predictor) => self.scheduler.next_expecting(now, &mut |first, of| {
                parts.clear();
                parts.extend(of);
                predictor.wait(now, first, parts)
            }),
        }
    }

    /// Virtual requests that may be served at once.
    fn depth(&self) -> u32 {
        let groups = self.scheduler.groups();
        let depth = match groups.algorithm {
            Algorithm::Noop if groups.files.is_empty() => u32::MAX,
            _ => self.settings.depth,
        };
        depth.min(self.site.threads)
    }

    /// Whether requests must pass through the dispatcher, because it may delay or record them. Otherwise every request
    /// may be served at once.
    pub fn is_on(&self) -> bool {
        self.scheduler.options().algorithm != Algorithm::Noop
            || self.chooser.is_some()
            || self.predictor.is_some()
            || self.journaled
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it was told about its server.
    pub fn site(&self) -> &ServerInfo {
        &self.site
    }

    /// The chooser, if the user has not chosen the algorithm.
    pub fn chooser(&self) -> Option<&Chooser> {
        self.chooser.as_ref()
    }

    /// The predictor, if there is one.
    pub fn predictor(&self) -> Option<&Predictor> {
        self.predictor.as_ref()
    }

    /// The scheduler, with what is queued and being served, and its statistics.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}
