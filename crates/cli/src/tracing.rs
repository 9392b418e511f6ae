//! Data servers that write traces of what they serve, and what their schedulers decide.
use crate::error::{CliError, Result};
use crate::serve::Which;
use penstock_layout::ServerId;
use penstock_server::{Call, Event, EventKind, Journal, Observer, Op};
use penstock_trace::{Header, Kind, Lines, Recorder, RecorderOptions};
use penstock_wire::deployment::Deployment;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Records the events of one data server's queue. The trace is ended when this is dropped.
#[derive(Debug)]
pub struct Tracing(Recorder);

impl Tracing {
    /// Makes the trace in `dir`. Traces that are there already stay.
    pub fn start(
        which: Which,
        id: ServerId,
        deployment: &Deployment,
        dir: &Path,
    ) -> Result<Tracing> {
        let path = place(which, dir, "trace")?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH);
        let header = Header {
            server: id.0,
            servers: deployment.servers.len() as u32,
            unit: deployment.stripe_unit,
            began: began.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            repetitions: 1,
        };
        Recorder::start(&path, &header, RecorderOptions::default())
            .map(Tracing)
            .map_err(CliError::new)
    }
}

/// A new file of this server in `dir`.
fn place(which: Which, dir: &Path, suffix: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).map_err(|e| CliError::io("make", dir, e))?;
    let path = dir.join(format!("{}.{suffix}", which.name()));
    if path.exists() {
        return Err(
            CliError::new(format!("{} is there already", path.display()))
                .next("name another directory with --trace, or remove it"),
        );
    }
    Ok(path)
}

/// What files of decisions say they are.
pub const DECISIONS: &str = "decisions";

/// Writes down each call of one data server's scheduler, for `penstock sim --replay`.
#[derive(Debug)]
pub struct Decisions(Lines<Call>);

impl Decisions {
    /// Makes the file in `dir`. One that is there already stays.
    pub fn start(which: Which, dir: &Path) -> Result<Decisions> {
        let path = place(which, dir, DECISIONS)?;
        Lines::start(&path, DECISIONS)
            .map(Decisions)
            .map_err(CliError::new)
    }
}

impl Journal for Decisions {
    fn call(&self, call: Call) {
        self.0.record(call);
    }
}

impl Observer for Tracing {
    fn event(&self, event: &Event) {
        self.0.record(penstock_trace::Event {
            at: event.time,
            request: event.id,
            kind: match event.kind {
                EventKind::Arrival => Kind::Arrival,
                EventKind::Dispatch => Kind::Dispatch,
                EventKind::Completion => Kind::Completion,
            },
            op: match event.op {
                Op::Read => penstock_trace::Op::Read,
                Op::Write => penstock_trace::Op::Write,
            },
            file: event.file,
            offset: event.offset,
            bytes: event.bytes,
            program: event.trace.program,
        });
    }
}
