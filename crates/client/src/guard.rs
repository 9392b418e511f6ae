//! Locking of mutexes without regard to poisoning.
use penstock_host::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// Locks a mutex whose data no panic can leave half-changed.
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
