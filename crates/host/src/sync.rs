//! Mutex, condition variable and read-write lock: std's; in a world a wait switches to another thread. The same for a
//! word in memory shared by processes: futex(2).
use crate::world::current;
use rustix::io::Errno;
use rustix::thread::futex;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// Like [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
}

/// Like [`std::sync::MutexGuard`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only during drop.
    inner: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            inner: std::sync::Mutex::new(value),
        }
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn guarded<'a>(
        &'a self,
        locked: LockResult<std::sync::MutexGuard<'a, T>>,
    ) -> LockResult<MutexGuard<'a, T>> {
        let guard = |inner| MutexGuard {
            mutex: self,
            inner: Some(inner),
        };
        match locked {
            Ok(inner) => Ok(guard(inner)),
            Err(poisoned) => Err(PoisonError::new(guard(poisoned.into_inner()))),
        }
    }

    /// Locks it; waits while another thread has it.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let Some(world) = current() else {
            return self.guarded(self.inner.lock());
        };
        world.pass();
        loop {
            match self.inner.try_lock() {
                Ok(inner) => return self.guarded(Ok(inner)),
                Err(TryLockError::Poisoned(poisoned)) => return self.guarded(Err(poisoned)),
                Err(TryLockError::WouldBlock) => {
                    world.wait(self.place(), None);
                }
            }
        }
    }

    /// Locks it if no other thread has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock().ok()?;
        Some(MutexGuard {
            mutex: self,
            inner: Some(inner),
        })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a guard keeps its lock until it is dropped"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("a guard keeps its lock until it is dropped"),
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.inner = None;
        if let Some(world) = current() {
            world.wake(self.mutex.place(), false);
        }
    }
}

/// Like [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Condvar {
        Condvar {
            inner: std::sync::Condvar::new(),
        }
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Releases the mutex, waits for a notification, and locks it again.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        if let Some(world) = current() {
            drop(guard);
            world.wait(self.place(), None);
            return mutex.lock();
        }
        match guard.inner.take() {
            Some(inner) => mutex.guarded(self.inner.wait(inner)),
            None => mutex.lock(),
        }
    }

    /// The same for at most `limit`; also returns whether the limit passed.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let mutex = guard.mutex;
        let (locked, late) = if let Some(world) = current() {
            drop(guard);
            let late = !world.wait(self.place(), Some(limit));
            (mutex.lock(), late)
        } else {
            match guard
                .inner
                .take()
                .map(|g| self.inner.wait_timeout(g, limit))
            {
                Some(Ok((inner, result))) => (mutex.guarded(Ok(inner)), result.timed_out()),
                Some(Err(poisoned)) => {
                    let (inner, result) = poisoned.into_inner();
                    (
                        mutex.guarded(Err(PoisonError::new(inner))),
                        result.timed_out(),
                    )
                }
                None => (mutex.lock(), false),
            }
        };
        match locked {
            Ok(guard) => Ok((guard, late)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), late))),
        }
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        match current() {
            None => self.inner.notify_one(),
            Some(world) => world.wake(self.place(), false),
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        match current() {
            None => self.inner.notify_all(),
            Some(world) => world.wake(self.place(), true),
        }
    }
}

/// Like [`std::sync::RwLock`], without a value. A panic of its holder has no effect on others.
#[derive(Debug, Default)]
pub struct RwLock {
    inner: std::sync::RwLock<()>,
}

/// A shared or exclusive lock of a [`RwLock`], released on drop.
#[derive(Debug)]
pub struct RwLockGuard<'a> {
    lock: &'a RwLock,
    /// `None` only during drop.
    inner: Option<Hold<'a>>,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held, never looked at")]
enum Hold<'a> {
    Shared(std::sync::RwLockReadGuard<'a, ()>),
    Exclusive(std::sync::RwLockWriteGuard<'a, ()>),
}

impl RwLock {
    /// An unlocked one.
    pub const fn new() -> RwLock {
        RwLock {
            inner: std::sync::RwLock::new(()),
        }
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Locks it shared; waits while a thread holds it exclusively.
    #[inline]
    pub fn read(&self) -> RwLockGuard<'_> {
        let wait = || self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let hold = self.locked(wait, || self.inner.try_read());
        self.guard(Hold::Shared(hold))
    }

    /// Locks it exclusively; waits while any thread holds it.
    #[inline]
    pub fn write(&self) -> RwLockGuard<'_> {
        let wait = || self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let hold = self.locked(wait, || self.inner.try_write());
        self.guard(Hold::Exclusive(hold))
    }

    fn guard<'a>(&'a self, hold: Hold<'a>) -> RwLockGuard<'a> {
        RwLockGuard {
            lock: self,
            inner: Some(hold),
        }
    }

    fn locked<G>(&self, wait: impl FnOnce() -> G, attempt: impl Fn() -> TryLockResult<G>) -> G {
        let Some(world) = current() else {
            return wait();
        };
        world.pass();
        loop {
            match attempt() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    world.wait(self.place(), None);
                }
            }
        }
    }
}

impl Drop for RwLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.inner = None;
        if let Some(world) = current() {
            world.wake(self.lock.place(), true);
        }
    }
}

/// Sleeps while a word in shared memory is `value`, for at most `limit`; may wake spuriously. False: the limit passed.
/// `place` names the word in a world, whose processes map it at different addresses: equal for all of them, and no
/// address of anything else.
pub fn wait_while(word: &AtomicU32, value: u32, place: usize, limit: Duration) -> bool {
    let Some(world) = current() else {
        let limit = futex::Timespec::try_from(limit).ok();
        let flags = futex::Flags::empty();
        return futex::wait(word, flags, value, limit.as_ref()) != Err(Errno::TIMEDOUT);
    };
    word.load(Ordering::Acquire) != value || world.wait(place, Some(limit))
}

/// Wakes all threads that sleep on a word: see [`wait_while`].
pub fn wake_all(word: &AtomicU32, place: usize) {
    match current() {
        None => {
            // It is no error if no thread sleeps.
            let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        }
        Some(world) => world.wake(place, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_word_that_changes_ends_a_sleep_and_so_does_the_limit() {
        let word = Arc::new(AtomicU32::new(1));
        assert!(
            wait_while(&word, 2, 0, Duration::from_secs(30)),
            "it is another"
        );
        assert!(!wait_while(&word, 1, 0, Duration::from_millis(1)));
        let other = word.clone();
        let thread = crate::thread::spawn("changes", None, move || {
            other.store(2, Ordering::Release);
            wake_all(&other, 0);
        })
        .unwrap();
        while word.load(Ordering::Acquire) == 1 {
            assert!(wait_while(&word, 1, 0, Duration::from_secs(30)));
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_notified_thread_goes_on_and_a_limit_passes() {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let other = pair.clone();
        let thread = crate::thread::spawn("waiter", None, move || {
            let mut value = other.0.lock().unwrap();
            while *value == 0 {
                value = other.1.wait(value).unwrap();
            }
            *value = 2;
        })
        .unwrap();
        *pair.0.lock().unwrap() = 1;
        pair.1.notify_all();
        thread.join().unwrap();
        let value = pair.0.lock().unwrap();
        assert_eq!(*value, 2);
        let (_, late) = pair
            .1
            .wait_timeout(value, Duration::from_millis(1))
            .unwrap();
        assert!(late);
    }

    #[test]
    fn a_shared_lock_keeps_one_who_wants_it_alone_waiting() {
        let lock = Arc::new(RwLock::new());
        let shared = (lock.read(), lock.read());
        let (other, (tell, told)) = (lock.clone(), std::sync::mpsc::channel());
        let thread = crate::thread::spawn("alone", None, move || {
            let _alone = other.write();
            tell.send(()).unwrap();
        })
        .unwrap();
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        drop(shared);
        told.recv_timeout(Duration::from_secs(30)).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn poison_is_passed_on() {
        let mutex = Arc::new(Mutex::new(7));
        let other = mutex.clone();
        let thread = crate::thread::spawn("panics", None, move || {
            let _guard = other.lock().unwrap();
            std::panic::resume_unwind(Box::new(()));
        })
        .unwrap();
        assert!(thread.join().is_err());
        let value = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*value, 7);
    }
}
