//! Conversions between C and Rust.
use libc::{EAGAIN, EINVAL, ENOENT};
use penstock_sched::{Error, Op, Options, Request, Scheduler, Statistics, VirtualRequest};
use std::ffi::{CStr, c_char, c_int};

/// `penstock_sched_request`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CRequest {
    /// The caller's number for the request.
    pub id: u64,
    /// The file.
    pub file: u64,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// 0 read, 1 write.
    pub op: u32,
    /// The program that sends it.
    pub program: u32,
}

/// `penstock_sched_virtual`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CVirtual {
    id: u64,
    file: u64,
    offset: u64,
    end: u64,
    bytes: u64,
    arrived: u64,
    op: u32,
    parts: u32,
}

/// `penstock_sched_statistics`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CStatistics {
    queued: u64,
    serving: u64,
    peak_queued: u64,
    arrived: u64,
    completed: u64,
    refused: u64,
    decisions: u64,
    bytes: u64,
    largest_aggregation: u64,
    shift_waits: u64,
    aggregation_waits: u64,
    conflicts: u64,
    waiting_p50_ns: u64,
    waiting_p99_ns: u64,
    pub(crate) failed: u64,
}

impl CRequest {
    pub(crate) fn request(&self) -> Result<Request, c_int> {
        let op = match self.op {
            0 => Op::Read,
            1 => Op::Write,
            _ => return Err(-EINVAL),
        };
        Ok(Request {
            id: self.id,
            file: self.file,
            op,
            offset: self.offset,
            bytes: self.bytes,
            program: self.program.into(),
            process: 0,
        })
    }
}

impl From<Request> for CRequest {
    fn from(r: Request) -> CRequest {
        CRequest {
            id: r.id,
            file: r.file,
            offset: r.offset,
            bytes: r.bytes,
            op: r.op as u32,
            // The number that C passed.
            program: r.program as u32,
        }
    }
}

impl From<VirtualRequest> for CVirtual {
    fn from(v: VirtualRequest) -> CVirtual {
        CVirtual {
            id: v.id,
            file: v.file,
            offset: v.offset,
            end: v.end,
            bytes: v.bytes,
            arrived: v.arrived,
            op: v.op as u32,
            parts: v.parts,
        }
    }
}

impl From<Statistics> for CStatistics {
    fn from(s: Statistics) -> CStatistics {
        CStatistics {
            queued: s.queued,
            serving: s.serving,
            peak_queued: s.peak_queued,
            arrived: s.arrived,
            completed: s.completed,
            refused: s.refused,
            decisions: s.decisions,
            bytes: s.bytes,
            largest_aggregation: s.largest_aggregation.into(),
            shift_waits: s.shift_waits,
            aggregation_waits: s.aggregation_waits,
            conflicts: s.conflicts,
            waiting_p50_ns: s.waiting.percentile(50.0),
            waiting_p99_ns: s.waiting.percentile(99.0),
            failed: 0,
        }
    }
}

/// The negative errno of an error.
pub(crate) fn code(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Error::Full { .. }) => -EAGAIN,
        Err(Error::NotServed(_)) => -ENOENT,
        Err(_) => -EINVAL,
    }
}

/// `options` with the words of a C string applied.
///
/// # Safety
/// `words` is NULL or a C string.
pub(crate) unsafe fn options(mut options: Options, words: *const c_char) -> Result<Options, Error> {
    if words.is_null() {
        return Ok(options);
    }
    // SAFETY: a C string, by the caller's contract.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
    for word in words.split_whitespace() {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| Error::UnknownSetting(word.to_owned()))?;
        options.set(name, value)?;
    }
    options.check()?;
    Ok(options)
}

/// Creates a scheduler; on failure returns `None` and writes the reason to `error`.
///
/// # Safety
/// As for [`options`]; `error` is NULL or has `room` bytes.
pub(crate) unsafe fn create(
    words: *const c_char,
    error: *mut c_char,
    room: usize,
) -> Option<Scheduler> {
    // SAFETY: by the caller's contract.
    let made = unsafe { options(Options::default(), words) }.and_then(Scheduler::new);
    let e = match made {
        Ok(scheduler) => return Some(scheduler),
        Err(e) => e.to_string(),
    };
    if !error.is_null() && room > 0 {
        let n = e.len().min(room - 1);
        // SAFETY: `error` has `room` bytes, of which n + 1 are written.
        unsafe {
            std::ptr::copy_nonoverlapping(e.as_ptr().cast(), error, n);
            *error.add(n) = 0;
        }
    }
    None
}
