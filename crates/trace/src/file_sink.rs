//! A sink that is a file of this process: `HOST-PID-START.trace` in the directory that `PENSTOCK_TRACE` names.
//!
//! Records go through a [`Recorder`]; the file's end is written at `exit`. A process that ends otherwise (`_exit`, exec, a
//! signal) loses what it recorded within the last second, and its stream has no end. The child of a fork records nothing.
use crate::operations::Operation;
use crate::record::{Layer, Parent, Record, StreamHead, host_name, time_zero};
use crate::recorder::{Recorder, RecorderOptions};
use crate::sink::{RawRecord, TABLE_VERSION, Table, detach};
use crate::stream::FileName;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Instant, UNIX_EPOCH};

/// Calls of one thread within each other.
const NESTED: usize = 16;

struct Sink {
    recorder: Mutex<Option<Recorder>>,
    from: Instant,
    over: AtomicBool,
    pid: u32,
    last_id: AtomicU64,
    threads: AtomicU32,
    files: Mutex<HashMap<FileName, u32>>,
}

static SINK: OnceLock<Sink> = OnceLock::new();

thread_local! {
    static OPEN: RefCell<Vec<(u64, u8)>> = const { RefCell::new(Vec::new()) };
    static THREAD: Cell<u32> = const { Cell::new(u32::MAX) };
}

static FUNCTIONS: Table = Table {
    version: TABLE_VERSION,
    now,
    next,
    open,
    close,
    file,
    record,
    identify,
};

/// A sink where the environment asks for one. What is wrong is said in one line, and the program goes on.
pub(crate) fn from_environment(program: u64, rank: u32) -> Option<&'static Table> {
    let dir = std::env::var_os("PENSTOCK_TRACE").filter(|dir| !dir.is_empty())?;
    match start(Path::new(&dir), program, rank) {
        Ok(sink) => {
            SINK.set(sink).ok()?;
            // SAFETY: both are functions of this library, which is never unloaded.
            unsafe {
                libc::atexit(finish);
                libc::pthread_atfork(None, None, Some(forked));
            }
            Some(&FUNCTIONS)
        }
        Err(e) => {
            eprintln!("penstock: this process is not traced: {e}");
            None
        }
    }
}

fn start(dir: &Path, program: u64, rank: u32) -> crate::Result<Sink> {
    crate::make_directory(dir)?;
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let since_1970 = || UNIX_EPOCH.elapsed().unwrap_or_default();
    let (from, began) = time_zero(Instant::now, since_1970);
    let head = StreamHead {
        host: host_name(),
        pid: std::process::id(),
        program,
        rank,
        began,
        command: command.trim().chars().take(4096).collect(),
        job: std::env::var("SLURM_JOB_ID").unwrap_or_default(),
        user: std::env::var("USER").unwrap_or_default(),
        ..StreamHead::default()
    };
    let recorder = Recorder::start(&part(dir, &head), &head, RecorderOptions::default())?;
    Ok(Sink {
        recorder: Mutex::new(Some(recorder)),
        from,
        over: AtomicBool::new(false),
        pid: head.pid,
        last_id: AtomicU64::new(0),
        threads: AtomicU32::new(0),
        files: Mutex::default(),
    })
}

/// `HOST-PID-START.trace`; START: when the process began, in clock ticks since the host's.
fn part(dir: &Path, head: &StreamHead) -> PathBuf {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let started = fields.split_whitespace().nth(19).unwrap_or("0");
    let host = head.host.replace('/', "_");
    dir.join(format!("{host}-{}-{started}.trace", head.pid))
}

/// Without a lock: the sink is there before its functions can be called.
fn sink() -> Option<&'static Sink> {
    SINK.get().filter(|sink| !sink.over.load(Relaxed))
}

extern "C" fn now() -> u64 {
    sink().map_or(0, |sink| sink.from.elapsed().as_nanos() as u64)
}

extern "C" fn next() -> u64 {
    sink().map_or(0, |sink| sink.last_id.fetch_add(1, Relaxed) + 1)
}

extern "C" fn open(_frame: *const c_void, layer: u8, _operation: u16, id: u64) -> u64 {
    let opened = OPEN.try_with(|calls| {
        let mut calls = calls.borrow_mut();
        if calls.len() >= NESTED || calls.iter().any(|(_, open)| *open == layer) {
            return u64::MAX;
        }
        let parent = calls.last().map_or(0, |(id, _)| *id);
        calls.push((id, layer));
        parent
    });
    opened.unwrap_or(u64::MAX)
}

extern "C" fn close(id: u64) {
    let _ = OPEN.try_with(|calls| {
        let mut calls = calls.borrow_mut();
        if let Some(place) = calls.iter().rposition(|(open, _)| *open == id) {
            calls.truncate(place);
        }
    });
}

extern "C" fn file(name: *const c_char, length: usize, id: u64) -> u32 {
    let Some(sink) = sink() else {
        return 0;
    };
    // SAFETY: the caller vouches for `length` bytes at `name`.
    let name = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) };
    let name = FileName {
        path: String::from_utf8_lossy(name).into_owned(),
        id,
    };
    let mut files = sink.files.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = files.get(&name) {
        return *number;
    }
    let recorder = sink.recorder.lock().unwrap_or_else(PoisonError::into_inner);
    let number = recorder.as_ref().map_or(0, |recorder| recorder.name(&name));
    if number != 0 {
        files.insert(name, number);
    }
    number
}

extern "C" fn record(raw: *const RawRecord) {
    // SAFETY: the caller vouches for a record there.
    let raw = unsafe { &*raw };
    let (Some(sink), Some(layer)) = (sink(), Layer::from_number(raw.layer)) else {
        return;
    };
    let thread = THREAD.try_with(|thread| {
        if thread.get() == u32::MAX {
            thread.set(sink.threads.fetch_add(1, Relaxed));
        }
        thread.get()
    });
    let record = Record {
        id: raw.id,
        parent: match raw.parent {
            0 => Parent::None,
            id => Parent::Here(id),
        },
        layer,
        operation: Operation(raw.operation),
        file: raw.file,
        offset: raw.offset,
        bytes: raw.bytes,
        begin: raw.begin,
        duration: raw.duration,
        error: raw.error,
        thread: match raw.thread {
            u32::MAX => thread.unwrap_or(u32::MAX),
            given => given,
        },
        server: raw.server,
        code: raw.code,
    };
    let recorder = sink.recorder.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(recorder) = &*recorder {
        recorder.record(record.thread as usize, record.end(), 0, &[record], &[]);
    }
}

/// Its stream's head has it already, and it records nobody's own I/O.
extern "C" fn identify(_program: u64, _rank: u32, _code: *const c_void) {}

extern "C" fn finish() {
    // A child of a fork has no thread that writes.
    let Some(sink) = SINK.get().filter(|sink| sink.pid == std::process::id()) else {
        return;
    };
    sink.over.store(true, Relaxed);
    let recorder = sink
        .recorder
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(Err(e)) = recorder.map(Recorder::finish) {
        eprintln!("penstock: the trace of this process is incomplete: {e}");
    }
}

/// In the child of a fork: the thread that writes is not here.
extern "C" fn forked() {
    detach();
    if let Some(sink) = SINK.get() {
        sink.over.store(true, Relaxed);
    }
}
