//! A thread that takes decisions and calls back, as in AGIOS.
//!
//! The thread sleeps until the time of the next decision, an arrival or a completion; callbacks run without any lock.
use crate::convert::{CRequest, CStatistics, code, create, options};
use libc::{EDEADLK, EINVAL, ENOENT};
use penstock_sched::{Next, Scheduler};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `penstock_sched_callback`.
pub type Callback = unsafe extern "C" fn(*mut c_void, u64, *const CRequest, usize) -> c_int;

/// `penstock_service`.
pub struct Service {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    scheduler: Scheduler,
    /// For each virtual request, how many callbacks have not ended yet.
    open: HashMap<u64, usize>,
    failed: u64,
    stopping: bool,
}

/// The functions that the thread calls.
struct Callbacks {
    one: Callback,
    list: Option<Callback>,
    context: *mut c_void,
}

// SAFETY: the context belongs to the caller, who lets the service's thread use it (penstock_sched.h).
unsafe impl Send for Callbacks {}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No change of the state can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// One callback of a virtual request has ended.
    fn ended(&self, state: &mut State, served: u64) -> c_int {
        let Some(open) = state.open.get_mut(&served) else {
            return -ENOENT;
        };
        *open -= 1;
        if *open > 0 {
            return 0;
        }
        state.open.remove(&served);
        self.changed.notify_all();
        code(state.scheduler.completed(self.now(), served))
    }

    fn run(&self, callbacks: &Callbacks) {
        let mut parts: Vec<CRequest> = Vec::new();
        let mut state = self.state();
        loop {
            let now = self.now();
            let wait = match state.scheduler.next(now) {
                Next::Dispatch(v) => {
                    parts.clear();
                    parts.extend(state.scheduler.parts(v.id).map(CRequest::from));
                    let calls = match callbacks.list {
                        Some(_) => 1,
                        None => parts.len(),
                    };
                    state.open.insert(v.id, calls);
                    drop(state);
                    self.call(callbacks, v.id, &parts);
                    state = self.state();
                    continue;
                }
                Next::WaitUntil(until) => Some(Duration::from_nanos(until.saturating_sub(now))),
                Next::Idle if state.stopping && state.scheduler.is_empty() => return,
                Next::Idle => None,
            };
            state = match wait {
                // Waits for a duration, not until a time of day; after an early wake-up the loop computes it anew.
                Some(wait) => {
                    self.changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn call(&self, callbacks: &Callbacks, served: u64, parts: &[CRequest]) {
        let (callback, step) = match callbacks.list {
            Some(list) => (list, parts.len()),
            None => (callbacks.one, 1),
        };
        for some in parts.chunks(step.max(1)) {
            // SAFETY: the caller's function, with requests that outlive the call.
            let result = unsafe { callback(callbacks.context, served, some.as_ptr(), some.len()) };
            if result == 1 {
                continue;
            }
            let mut state = self.state();
            if result != 0 {
                state.failed += 1;
            }
            self.ended(&mut state, served);
        }
    }
}

/// # Safety
/// `words` is NULL or a C string; `error` is NULL or has `room` bytes. The callbacks may be called from another thread
/// with `context` until the service has been stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_service_start(
    words: *const c_char,
    one: Option<Callback>,
    list: Option<Callback>,
    context: *mut c_void,
    error: *mut c_char,
    room: usize,
) -> *mut Service {
    // SAFETY: the same contract.
    let scheduler = unsafe { create(words, error, room) };
    let (Some(scheduler), Some(one)) = (scheduler, one.or(list)) else {
        return std::ptr::null_mut();
    };
    let shared = Arc::new(Shared {
        began: Instant::now(),
        state: Mutex::new(State {
            scheduler,
            open: HashMap::new(),
            failed: 0,
            stopping: false,
        }),
        changed: Condvar::new(),
    });
    let callbacks = Callbacks { one, list, context };
    let of_thread = shared.clone();
    let started = std::thread::Builder::new()
        .name("penstock-sched".into())
        .spawn(move || {
            let callbacks = callbacks;
            of_thread.run(&callbacks);
        });
    match started {
        Ok(thread) => Box::into_raw(Box::new(Service { shared, thread })),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// `s` comes from [`penstock_service_start`], or is NULL; `request` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_service_add(
    s: *const Service,
    request: *const CRequest,
) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    let (Some(s), Some(request)) = (unsafe { (s.as_ref(), request.as_ref()) }) else {
        return -EINVAL;
    };
    let request = match request.request() {
        Ok(request) => request,
        Err(e) => return e,
    };
    let mut state = s.shared.state();
    if state.stopping {
        return -EINVAL;
    }
    let result = code(state.scheduler.add(s.shared.now(), request));
    s.shared.changed.notify_all();
    result
}

/// # Safety
/// `s` comes from [`penstock_service_start`], or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_service_completed(s: *const Service, served: u64) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    match unsafe { s.as_ref() } {
        Some(s) => s.shared.ended(&mut s.shared.state(), served),
        None => -EINVAL,
    }
}

/// # Safety
/// `s` comes from [`penstock_service_start`], or is NULL; `words` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_service_set(s: *const Service, words: *const c_char) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    let Some(s) = (unsafe { s.as_ref() }) else {
        return -EINVAL;
    };
    let mut state = s.shared.state();
    // SAFETY: a C string or NULL, by the contract.
    let new = unsafe { options(state.scheduler.options().clone(), words) };
    let now = s.shared.now();
    let result = code(new.and_then(|new| state.scheduler.reconfigure(now, new)));
    s.shared.changed.notify_all();
    result
}

/// # Safety
/// `s` comes from [`penstock_service_start`], or is NULL; `statistics` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_service_get_statistics(
    s: *const Service,
    statistics: *mut CStatistics,
) {
    // SAFETY: NULL or valid, by the contract.
    if let (Some(s), Some(out)) = unsafe { (s.as_ref(), statistics.as_mut()) } {
        let state = s.shared.state();
        *out = state.scheduler.statistics().into();
        out.failed = state.failed;
    }
}

/// # Safety
/// `s` comes from [`penstock_service_start`], or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_service_reset_statistics(s: *const Service) {
    // SAFETY: NULL or valid, by the contract.
    if let Some(s) = unsafe { s.as_ref() } {
        let mut state = s.shared.state();
        state.scheduler.reset_statistics();
        state.failed = 0;
    }
}

/// # Safety
/// `s` comes from [`penstock_service_start`] and is not used afterwards unless -EDEADLK comes back, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_service_stop(s: *mut Service) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    let Some(service) = (unsafe { s.as_ref() }) else {
        return -EINVAL;
    };
    if service.thread.thread().id() == std::thread::current().id() {
        return -EDEADLK;
    }
    service.shared.state().stopping = true;
    service.shared.changed.notify_all();
    // SAFETY: made by `Box::into_raw`, and passed back once.
    let service = unsafe { Box::from_raw(s) };
    match service.thread.join() {
        Ok(()) => 0,
        Err(_) => -EINVAL,
    }
}
