//! Traces of what a data server serves, and what is predicted from traces of earlier runs.
//!
//! `trace=DIR` writes each event of the queue to DIR/data-N.trace; `predict=DIR` reads DIR/data-N.trace, links arriving
//! requests to those of the trace, lets MLF and aIOLi wait for an aggregation that is known to come, and tells SRTF how
//! many bytes of a file are still to come. Both are settings of a running server. See `penstock_trace` and `penstock_sched::learn`.
use crate::error::refuse;
use crate::events::{Event, EventKind};
use penstock_host::time::since_epoch;
use penstock_sched::learn::{Cost, Limits, Predictor};
use penstock_sched::{Nanos, Op, Request, Scheduler};
use penstock_trace::{self as trace, Header, Kind, Recorder, RecorderOptions};
use penstock_wire::message::{ErrorKind, PredictionStatus, TraceStatus, WireError};
use std::path::{Path, PathBuf};

/// Which of how many servers this is, and its files' stripe unit: what a trace says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) server: u32,
    pub(crate) servers: u32,
    pub(crate) unit: u64,
}

impl Member {
    fn trace_in(self, dir: &Path) -> PathBuf {
        dir.join(format!("data-{}.trace", self.server))
    }
}

fn failed(e: impl std::fmt::Display) -> WireError {
    refuse(ErrorKind::InvalidArgument, e.to_string())
}

/// A trace that is being written. It is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Tracing {
    recorder: Recorder,
    path: PathBuf,
    /// Its time 0, on the server's clock.
    from: Nanos,
}

impl Tracing {
    /// Makes the trace in `dir`. One that is there already stays.
    pub(crate) fn start(member: Member, dir: &Path, now: Nanos) -> Result<Tracing, WireError> {
        let path = member.trace_in(dir);
        std::fs::create_dir_all(dir)
            .map_err(|e| failed(format!("cannot make {}: {e}", dir.display())))?;
        if path.exists() {
            return Err(failed(format!(
                "{} is there already; name another directory, or remove it",
                path.display()
            )));
        }
        let header = Header {
            server: member.server,
            servers: member.servers,
            unit: member.unit,
            began: u64::try_from(since_epoch().as_nanos()).unwrap_or(u64::MAX),
            repetitions: 1,
        };
        let recorder =
            Recorder::start(&path, &header, RecorderOptions::default()).map_err(failed)?;
        Ok(Tracing {
            recorder,
            path,
            from: now,
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

    /// Events of one request.
    pub(crate) fn record(&self, events: &[Event]) {
        let Some(first) = events.first() else {
            return;
        };
        let traced = |event: &Event| trace::Event {
            at: event.time.saturating_sub(self.from),
            request: event.id,
            kind: match event.kind {
                EventKind::Arrival => Kind::Arrival,
                EventKind::Dispatch => Kind::Dispatch,
                EventKind::Completion => Kind::Completion,
            },
            op: event.op,
            file: event.file,
            offset: event.offset,
            bytes: event.bytes,
            program: event.trace.program,
            rank: event.trace.rank,
            mpi_call: event.trace.mpi_call,
            client_call: event.trace.client_call,
        };
        let who = first.trace.rank as usize;
        match events {
            [one, two] => self.recorder.record(who, &[traced(one), traced(two)]),
            _ => events
                .iter()
                .for_each(|event| self.recorder.record(who, &[traced(event)])),
        }
    }
}

/// What a trace says of the requests that come.
#[derive(Debug)]
pub(crate) struct Prediction {
    predictor: Predictor,
    path: PathBuf,
    /// Parts of the virtual request in question, used again.
    parts: Vec<u64>,
}

impl Prediction {
    /// Reads the trace in `dir`.
    pub(crate) fn load(member: Member, dir: &Path) -> Result<Prediction, WireError> {
        let path = member.trace_in(dir);
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
        let predictor =
            Predictor::new(&events, Cost::default(), Limits::default()).map_err(|e| wrong(&e))?;
        Ok(Prediction {
            predictor,
            path,
            parts: Vec::new(),
        })
    }

    /// A request comes to the queue.
    pub(crate) fn arrived(&mut self, now: Nanos, request: &Request, scheduler: &mut Scheduler) {
        let Request {
            id,
            file,
            op,
            offset,
            bytes,
            program,
            ..
        } = *request;
        self.predictor
            .arrived(now, id, op, file, offset, bytes, program);
        if let Some([reads, writes]) = self.predictor.begun() {
            scheduler.predict_more(file, Op::Read, reads);
            scheduler.predict_more(file, Op::Write, writes);
        }
    }

    /// How long a virtual request should wait for company.
    pub(crate) fn wait(
        &mut self,
        now: Nanos,
        first: Nanos,
        parts: &mut dyn Iterator<Item = u64>,
    ) -> Nanos {
        self.parts.clear();
        self.parts.extend(parts);
        self.predictor.wait(now, first, &self.parts)
    }

    /// A request goes to the store, or was refused.
    pub(crate) fn dispatched(&mut self, id: u64) {
        self.predictor.dispatched(id);
    }

    pub(crate) fn status(&self) -> PredictionStatus {
        let s = self.predictor.statistics();
        PredictionStatus {
            path: self.path.display().to_string(),
            predicted: s.predicted,
            aggregations: s.aggregations,
            matched: s.matched,
            unmatched: s.unmatched,
            waits: s.waits,
            waited_ns: s.waited,
        }
    }
}
