//! Traces of served requests, and predictions from traces of earlier runs.
//!
//! `trace=DIR` writes each event of the queue to DIR/data-N.trace. `predict=DIR` reads DIR/data-N.trace and links
//! arriving requests to those of the trace. MLF and aIOLi then wait for predicted aggregations, and SRTF learns how
//! many bytes of a file are still to come. Both are settings of a running server. See `penstock_trace` and
//! `penstock_sched::learn`.
use crate::error::refuse;
use crate::events::{Event, EventKind};
use penstock_host::time::since_epoch;
use penstock_sched::learn::{Limits, Predictor};
use penstock_sched::{Nanos, ServerInfo, Settings};
use penstock_trace::{self as trace, Header, Kind, Recorder, RecorderOptions};
use penstock_wire::message::{ErrorKind, PredictionStatus, TraceStatus, WireError};
use std::path::{Path, PathBuf};

/// The trace of this server in a directory.
fn trace_in(dir: &Path, site: &ServerInfo) -> PathBuf {
    dir.join(format!("data-{}.trace", site.server))
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
    /// Makes the trace in `dir`. An existing one is not overwritten.
    pub(crate) fn start(site: &ServerInfo, dir: &Path, now: Nanos) -> Result<Tracing, WireError> {
        let path = trace_in(dir, site);
        std::fs::create_dir_all(dir)
            .map_err(|e| failed(format!("cannot make {}: {e}", dir.display())))?;
        if path.exists() {
            return Err(failed(format!(
                "{} is there already; name another directory, or remove it",
                path.display()
            )));
        }
        let header = Header {
            server: site.server,
            servers: site.servers,
            unit: site.unit,
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

/// The predictor of the trace in `dir`, for the device and the scheduler of these settings.
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
