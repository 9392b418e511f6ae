//! Traces of what a data server does, and what is predicted from traces of earlier runs.
//!
//! *Problem*: a trace must neither change what it shows nor cost much.
//! *Idea*: a request goes where it would go without a trace. While one is written, its session keeps a [`Trail`]: a Server
//! record, and below it a Store record for each slice that goes to the store. Times are taken before and after. A slice
//! that the scheduler decides on has a Queue record and a Decision record besides, from the times that the queue noted.
//! All of a request goes to the recorder at once when it is over ([`penstock_trace::Recorder`]).
//!
//! `trace=DIR` writes DIR/data-N.trace. `predict=DIR` reads DIR/data-N.trace and links arriving requests to those of the
//! trace. MLF and aIOLi then wait for an aggregation that is known to come, and SRTF knows how many bytes of a file are
//! still to come. Both are settings of a running server. See `penstock_trace` and `penstock_sched::learn`.
use crate::error::refuse;
use penstock_host::time::{now, since_epoch};
use penstock_sched::learn::{Limits, Predictor};
use penstock_sched::{Nanos, Op, ServerInfo, Settings};
use penstock_trace::{
    self as trace, Caller, Layer, Operation, Parent, Record, Recorder, RecorderOptions, StreamHead,
};
use penstock_wire::message::{
    DataRequest, ErrorKind, Handle, PredictionStatus, TraceContext, TraceStatus, WireError,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// Records of one request; more are dropped.
const RECORDS: usize = 4096;

/// The trace of this server in a directory.
fn trace_in(dir: &Path, site: &ServerInfo) -> PathBuf {
    dir.join(format!("data-{}.trace", site.server))
}

fn failed(e: impl std::fmt::Display) -> WireError {
    refuse(ErrorKind::InvalidArgument, e.to_string())
}

/// The trace that is being written, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Traced {
    on: AtomicBool,
    tracing: RwLock<Option<Arc<Tracing>>>,
}

impl Traced {
    /// From now on, this trace is written. The one before, which ends when the last request that began in it is over.
    #[must_use]
    pub(crate) fn set(&self, tracing: Option<Tracing>) -> Option<Arc<Tracing>> {
        let mut place = self.tracing.write().unwrap_or_else(PoisonError::into_inner);
        self.on.store(tracing.is_some(), Relaxed);
        std::mem::replace(&mut place, tracing.map(Arc::new))
    }

    /// One predictable branch where nothing is traced.
    pub(crate) fn get(&self) -> Option<Arc<Tracing>> {
        if !self.on.load(Relaxed) {
            return None;
        }
        let place = self.tracing.read().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }
}

/// A trace that is being written. It is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Tracing {
    recorder: Recorder,
    path: PathBuf,
    server: u32,
    /// Its time 0.
    from: Instant,
    last_id: AtomicU64,
}

impl Tracing {
    /// Makes the trace in `dir`. One that is there already stays.
    pub(crate) fn start(site: &ServerInfo, dir: &Path) -> Result<Tracing, WireError> {
        let path = trace_in(dir, site);
        trace::make_directory(dir).map_err(failed)?;
        if path.exists() {
            return Err(failed(format!(
                "{} is there already; name another directory, or remove it",
                path.display()
            )));
        }
        let (from, began) = trace::time_zero(now, since_epoch);
        let head = StreamHead {
            host: trace::host_name(),
            pid: std::process::id(),
            server: Some(site.server),
            servers: site.servers,
            unit: site.unit,
            began,
            ..StreamHead::default()
        };
        let recorder = Recorder::start(&path, &head, RecorderOptions::default()).map_err(failed)?;
        Ok(Tracing {
            recorder,
            path,
            server: site.server,
            from,
            last_id: AtomicU64::new(0),
        })
    }

    pub(crate) fn status(&self) -> TraceStatus {
        let (events, dropped) = self.recorder.counts();
        TraceStatus {
            path: self.path.display().to_string(),
            events,
            dropped,
        }
    }

    fn time(&self, at: Instant) -> Nanos {
        at.saturating_duration_since(self.from).as_nanos() as Nanos
    }

    /// A request has come.
    pub(crate) fn begin(
        self: Arc<Self>,
        began: Instant,
        context: TraceContext,
        operation: Operation,
    ) -> Trail {
        let server = Record {
            parent: match context.program {
                0 => Parent::None,
                program => Parent::Caller(Caller {
                    program,
                    rank: context.rank,
                    call: context.client_call,
                }),
            },
            begin: self.time(began),
            server: self.server,
            ..Record::new(Layer::Server, operation)
        };
        Trail {
            tracing: self,
            rank: context.rank,
            file: 0,
            lost: 0,
            records: vec![server],
        }
    }
}

/// What the queue noted of a slice that it decided on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scheduled {
    pub(crate) arrived: Instant,
    pub(crate) dispatched: Instant,
    pub(crate) completed: Instant,
    /// Offset and bytes of the virtual request that it was served in, if others were in it.
    pub(crate) joined: Option<(u64, u64)>,
}

/// What one request leaves in the trace.
#[derive(Debug)]
pub(crate) struct Trail {
    tracing: Arc<Tracing>,
    rank: u32,
    file: u64,
    /// Records that were too many.
    lost: u64,
    /// The Server record, then those below it. They get their ids at the end.
    records: Vec<Record>,
}

impl Trail {
    /// The request is about this file.
    pub(crate) fn about(&mut self, file: u64) {
        self.file = file;
    }

    /// A slice went straight to the store.
    pub(crate) fn stored(&mut self, op: Op, offset: u64, bytes: u64, began: Instant) {
        self.add(
            Layer::Store,
            operation_of(op),
            (offset, bytes),
            began..now(),
        );
        self.moved(offset, bytes);
    }

    /// A slice went to the store when it was its turn.
    pub(crate) fn scheduled(&mut self, op: Op, offset: u64, bytes: u64, times: &Scheduled) {
        if times.completed < times.arrived {
            // There was nothing to schedule.
            return;
        }
        let (operation, what) = (operation_of(op), (offset, bytes));
        let dispatched = times.dispatched;
        self.add(Layer::Queue, operation, what, times.arrived..dispatched);
        let (reason, together) = match times.joined {
            Some(together) => (Operation::JOINED, together),
            None => (Operation::ALONE, what),
        };
        self.add(Layer::Decision, reason, together, dispatched..dispatched);
        self.add(Layer::Store, operation, what, dispatched..times.completed);
        self.moved(offset, bytes);
    }

    fn add(
        &mut self,
        layer: Layer,
        operation: Operation,
        (offset, bytes): (u64, u64),
        times: Range<Instant>,
    ) {
        if self.records.len() >= RECORDS {
            self.lost += 1;
            return;
        }
        let begin = self.tracing.time(times.start);
        self.records.push(Record {
            offset,
            bytes,
            begin,
            duration: self.tracing.time(times.end).saturating_sub(begin),
            server: self.tracing.server,
            ..Record::new(layer, operation)
        });
    }

    fn moved(&mut self, offset: u64, bytes: u64) {
        let server = &mut self.records[0];
        if server.bytes == 0 || offset < server.offset {
            server.offset = offset;
        }
        server.bytes = server.bytes.saturating_add(bytes);
    }

    /// The request is over.
    pub(crate) fn end(mut self, error: Option<&WireError>) {
        let end = self.tracing.time(now());
        let count = self.records.len() as u64;
        let first = 1 + self.tracing.last_id.fetch_add(count, Relaxed);
        for (id, record) in (first..).zip(&mut self.records) {
            record.id = id;
            if id > first {
                record.parent = Parent::Here(first);
            }
        }
        let server = &mut self.records[0];
        server.duration = end.saturating_sub(server.begin);
        server.error = error.map_or(0, |e| e.kind.errno());
        let who = self.rank as usize;
        let recorder = &self.tracing.recorder;
        recorder.record(who, end, self.file, &self.records, &[]);
        recorder.lost(who, self.lost);
    }
}

fn operation_of(op: Op) -> Operation {
    match op {
        Op::Read => Operation::READ,
        Op::Write => Operation::WRITE,
    }
}

/// What a request does, and to what.
pub(crate) fn operation(request: Option<&DataRequest>) -> (Operation, Option<Handle>) {
    use DataRequest as R;
    let (operation, handle) = match request {
        Some(R::Read { handle, .. }) => (Operation::READ, handle),
        Some(R::Write { handle, .. }) => (Operation::WRITE, handle),
        Some(R::Detach { handle }) => (Operation::CLOSE, handle),
        Some(R::Len { handle }) => (Operation::STAT, handle),
        Some(R::SetLen { handle, .. } | R::Extend { handle, .. }) => (Operation::RESIZE, handle),
        Some(R::Hold { handle, .. } | R::Allocate { handle, .. }) => (Operation::RESERVE, handle),
        Some(R::Sync { handle }) => (Operation::SYNC, handle),
        Some(R::Lock { handle, .. }) => (Operation::LOCK, handle),
        Some(R::Unlock { handle, .. }) => (Operation::UNLOCK, handle),
        Some(R::Shortcut { handle }) => (Operation::DESCRIPTOR, handle),
        Some(R::Lend { handle, .. }) => (Operation::LENT, handle),
        Some(R::Attach { .. }) => return (Operation::OPEN, None),
        Some(R::Look { .. }) => return (Operation::STAT, None),
        Some(R::Remove { .. } | R::RemoveObject { .. }) => return (Operation::REMOVE, None),
        _ => return (Operation::CONTROL, None),
    };
    (operation, Some(*handle))
}

/// What the trace in `dir` says of the requests that come, on the device and for the scheduler of these settings.
pub(crate) fn predictor(
    site: &ServerInfo,
    dir: &Path,
    settings: &Settings,
) -> Result<Predictor, WireError> {
    let path = trace_in(dir, site);
    let wrong = |e: &dyn std::fmt::Display| {
        failed(format!(
            "cannot predict from {}: {e}; `penstock trace show` looks at it",
            path.display()
        ))
    };
    let (_, events, damage) = trace::read_all(&path).map_err(|e| wrong(&e))?;
    if let Some(e) = damage {
        return Err(wrong(&e));
    }
    let cost = settings.times.clone().unwrap_or_default();
    let limits = Limits {
        parts: settings.options.parts_limit(),
        ..Limits::default()
    };
    Predictor::new(&events, cost, limits).map_err(|e| wrong(&e))
}

/// The counts of prediction from the trace in `dir`.
pub(crate) fn prediction_status(
    site: &ServerInfo,
    dir: &Path,
    predictor: &Predictor,
) -> PredictionStatus {
    let s = predictor.statistics();
    PredictionStatus {
        path: trace_in(dir, site).display().to_string(),
        predicted: s.predicted,
        aggregations: s.aggregations,
        matched: s.matched,
        unmatched: s.unmatched,
        waits: s.waits,
        waited_ns: s.waited,
        alpha_ppm: (s.alpha * 1e6).round() as u32,
        seen: s.seen,
        regrouped: s.regrouped,
    }
}
