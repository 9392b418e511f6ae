//! The state machine for C: the caller passes times and gets decisions.
use crate::convert::{CRequest, CStatistics, CVirtual, code, create, options};
use libc::EINVAL;
use penstock_sched::{Next, Scheduler};
use std::ffi::{c_char, c_int};

/// # Safety
/// `words` is NULL or a C string; `error` is NULL or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_create(
    words: *const c_char,
    error: *mut c_char,
    room: usize,
) -> *mut Scheduler {
    // SAFETY: the same contract.
    match unsafe { create(words, error, room) } {
        Some(scheduler) => Box::into_raw(Box::new(scheduler)),
        None => std::ptr::null_mut(),
    }
}

/// # Safety
/// `s` comes from [`penstock_sched_create`], or is NULL; `request` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_add(
    s: *mut Scheduler,
    now: u64,
    request: *const CRequest,
) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    match unsafe { (s.as_mut(), request.as_ref()) } {
        (Some(s), Some(request)) => match request.request() {
            Ok(request) => code(s.add(now, request)),
            Err(e) => e,
        },
        _ => -EINVAL,
    }
}

/// # Safety
/// `s` comes from [`penstock_sched_create`], or is NULL; `v` and `until` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_next(
    s: *mut Scheduler,
    now: u64,
    v: *mut CVirtual,
    until: *mut u64,
) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    let (Some(s), Some(v), Some(until)) = (unsafe { (s.as_mut(), v.as_mut(), until.as_mut()) })
    else {
        return -EINVAL;
    };
    match s.next(now) {
        Next::Idle => 0,
        Next::Dispatch(dispatched) => {
            *v = dispatched.into();
            1
        }
        Next::WaitUntil(time) => {
            *until = time;
            2
        }
    }
}

/// # Safety
/// `s` comes from [`penstock_sched_create`], or is NULL; `parts` has room for `room` requests, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_parts(
    s: *const Scheduler,
    id: u64,
    parts: *mut CRequest,
    room: usize,
) -> usize {
    // SAFETY: NULL or valid, by the contract.
    let Some(s) = (unsafe { s.as_ref() }) else {
        return 0;
    };
    let mut n = 0;
    for part in s.parts(id) {
        if n < room && !parts.is_null() {
            // SAFETY: n is below `room`.
            unsafe { parts.add(n).write(part.into()) };
        }
        n += 1;
    }
    n
}

/// # Safety
/// `s` comes from [`penstock_sched_create`], or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_completed(s: *mut Scheduler, now: u64, id: u64) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    match unsafe { s.as_mut() } {
        Some(s) => code(s.completed(now, id)),
        None => -EINVAL,
    }
}

/// # Safety
/// `s` comes from [`penstock_sched_create`], or is NULL; `words` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_set(
    s: *mut Scheduler,
    now: u64,
    words: *const c_char,
) -> c_int {
    // SAFETY: NULL or valid, by the contract.
    let Some(s) = (unsafe { s.as_mut() }) else {
        return -EINVAL;
    };
    // SAFETY: a C string or NULL, by the contract.
    let new = unsafe { options(s.options().clone(), words) };
    code(new.and_then(|new| s.reconfigure(now, new)))
}

/// # Safety
/// `s` comes from [`penstock_sched_create`], or is NULL; `statistics` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_get_statistics(
    s: *const Scheduler,
    statistics: *mut CStatistics,
) {
    // SAFETY: NULL or valid, by the contract.
    if let (Some(s), Some(out)) = unsafe { (s.as_ref(), statistics.as_mut()) } {
        *out = s.statistics().into();
    }
}

/// # Safety
/// `s` comes from [`penstock_sched_create`], or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_reset_statistics(s: *mut Scheduler) {
    // SAFETY: NULL or valid, by the contract.
    if let Some(s) = unsafe { s.as_mut() } {
        s.reset_statistics();
    }
}

/// # Safety
/// `s` comes from [`penstock_sched_create`] and is not used afterwards, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sched_destroy(s: *mut Scheduler) {
    if !s.is_null() {
        // SAFETY: made by `Box::into_raw`, and passed back once.
        drop(unsafe { Box::from_raw(s) });
    }
}
