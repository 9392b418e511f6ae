//! Objects on a modelled device: their bytes are in another store, and every access takes the time that the device
//! would take (docs/administer/devices.md).
//!
//! An access is mapped to device addresses and submitted to the model. The caller sleeps until the model completes it,
//! on the real clock (times a scale). Accesses of concurrent callers are in the model together and overlap, merge and
//! are reordered there as on a real device. There is no separate thread: each waiting thread sleeps until the model's
//! next event and advances it. Sleeps end late, by 50 to 150 µs on common machines. A program that writes one block
//! after the other would miss its turn of the platter each time. So threads request exact timers, shorten their sleeps
//! by the recent mean delay, and treat an event as due when it is nearer than [`NEAR`]. Answers are then right on
//! average. An access that is late nevertheless is completed at the modelled time, so errors do not accumulate inside
//! the device. `sync` also waits for the model's caches. Descriptors are not passed to clients: a shortcut would be
//! faster than the device.

use crate::{Finding, Identity, Note, Object, Store, StoreError};
use penstock_device::{Allocation, Completion, Device, Model, Nanos, Op, Request};
use penstock_host::reservation::Reservation;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time;
use penstock_layout::{FileId, ObjectOffset};
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Shortest sleep: the system's timers are no finer.
const TICK: Duration = Duration::from_micros(20);

/// An event this near is due: such a short sleep would end later than that.
const NEAR: Duration = Duration::from_micros(25);
/// Sleeps are shortened by at most this: longer delays are caused by the machine's load.
const MOST_LATE: Duration = Duration::from_micros(200);

struct State {
    device: Box<dyn Device>,
    allocation: Allocation,
    /// Requests submitted and not yet completed.
    under_way: HashSet<u64>,
    next: u64,
    scratch: Vec<Completion>,
    /// Modelled time up to which the device has been advanced.
    reached: Nanos,
    /// Moving mean of the delay of sleeps.
    late: Duration,
}

struct Modelled {
    state: Mutex<State>,
    event: Condvar,
    begun: Instant,
    scale: f64,
    capacity: u64,
    name: String,
}

impl Modelled {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A model that panicked is still used: at worst its times are wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current modelled time.
    fn now(&self) -> Nanos {
        (time::since(self.begun).as_nanos() as f64 * self.scale) as Nanos
    }

    /// Carries out `requests` on the device.
    fn serve(&self, op: Op, file: FileId, at: u64, bytes: u64) -> Result<(), StoreError> {
        if bytes == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        let now = self.advance(&mut state);
        let mut ranges = Vec::new();
        let whole = state.allocation.map(file.0, at, bytes, |address, len| {
            ranges.push((address, len))
        });
        if !whole {
            return Err(StoreError::Full(self.name.clone()));
        }
        let process = process();
        let first = state.next;
        for (address, bytes) in ranges {
            let id = state.next;
            state.next += 1;
            state.under_way.insert(id);
            let request = Request {
                id,
                op,
                address,
                bytes,
                process,
            };
            state.device.submit(now, request);
        }
        let last = state.next;
        self.wait(state, first..last);
        Ok(())
    }

    /// Waits until the contents of the device's caches are on the medium.
    fn flush(&self) {
        let mut state = self.lock();
        let now = self.advance(&mut state);
        let id = state.next;
        state.next += 1;
        state.under_way.insert(id);
        state.device.flush(now, id);
        self.wait(state, id..id + 1);
    }

    /// Advances the device to the present, or to its next event if that is near; returns the time reached.
    fn advance(&self, state: &mut State) -> Nanos {
        let present = self.now();
        let mut now = present.max(state.reached);
        if let Some(wake) = state.device.wake()
            && wake > now
            && self.real(wake - present) <= NEAR
        {
            now = wake;
        }
        state.reached = now;
        let mut done = std::mem::take(&mut state.scratch);
        done.clear();
        state.device.advance(now, &mut done);
        for completion in &done {
            state.under_way.remove(&completion.id);
        }
        if !done.is_empty() {
            self.event.notify_all();
        }
        state.scratch = done;
        now
    }

    /// Real time for an interval of modelled time.
    fn real(&self, span: Nanos) -> Duration {
        Duration::from_nanos((span as f64 / self.scale).min(1e12) as u64)
    }

    /// Sleeps until none of `ids` is in progress.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, ids: std::ops::Range<u64>) {
        exact_timers();
        loop {
            let now = self.advance(&mut state);
            if !ids.clone().any(|id| state.under_way.contains(&id)) {
                return;
            }
            // A busy device has a next event; one without would be checked again soon.
            let wake = state.device.wake().unwrap_or(now + 1_000_000);
            let ahead = self.real(wake.saturating_sub(self.now()));
            let sleep = ahead.saturating_sub(state.late).max(TICK);
            let slept = time::now();
            let (woken, timed_out) = match self.event.wait_timeout(state, sleep) {
                Ok(woken) => woken,
                Err(poisoned) => poisoned.into_inner(),
            };
            state = woken;
            if timed_out {
                let late = time::since(slept).saturating_sub(sleep).min(MOST_LATE);
                state.late = (state.late * 15 + late) / 16;
            }
        }
    }
}

/// Gives this thread exact timers; by default the system delays them by up to 50 µs.
fn exact_timers() {
    thread_local! {
        static DONE: Cell<bool> = const { Cell::new(false) };
    }
    if !DONE.replace(true)
        && let Err(e) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
    {
        log::debug!("a modelled device answers a little late: timer slack stays as it is: {e}");
    }
}

/// The process for the kernel's block queue: the thread that does the I/O.
fn process() -> u32 {
    let mut hasher = DefaultHasher::new();
    std::thread::current().id().hash(&mut hasher);
    hasher.finish() as u32
}

/// The modelled backend around the store with the bytes.
pub(crate) struct ModelStore {
    inner: Box<dyn Store>,
    modelled: Arc<Modelled>,
}

impl ModelStore {
    pub(crate) fn new(model: &Model, inner: Box<dyn Store>) -> ModelStore {
        let device = model.build();
        let capacity = device.capacity();
        let scale = if model.scale == 1.0 {
            String::new()
        } else {
            format!(", {} times as fast", model.scale)
        };
        let modelled = Modelled {
            state: Mutex::new(State {
                allocation: Allocation::new(model.allocation, capacity),
                device,
                under_way: HashSet::new(),
                next: 0,
                scratch: Vec::new(),
                reached: 0,
                late: Duration::ZERO,
            }),
            event: Condvar::new(),
            begun: time::now(),
            scale: model.scale,
            capacity,
            name: format!("modelled {}{scale} over {}", model.name, inner.describe()),
        };
        ModelStore {
            inner,
            modelled: Arc::new(modelled),
        }
    }
}

impl Store for ModelStore {
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError> {
        Ok(Arc::new(ModelObject {
            id,
            inner: self.inner.open(id, create)?,
            modelled: self.modelled.clone(),
        }))
    }

    fn remove(&self, id: FileId) -> Result<(), StoreError> {
        self.inner.remove(id)?;
        let mut state = self.modelled.lock();
        let now = self.modelled.advance(&mut state);
        let ranges: Vec<(u64, u64)> = state.allocation.ranges(id.0).collect();
        for (address, bytes) in ranges {
            state.device.trim(now, address, bytes);
        }
        state.allocation.free(id.0);
        Ok(())
    }

    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError> {
        self.inner.list_after(after, limit)
    }

    fn relieve(&self) -> bool {
        self.inner.relieve()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()?;
        self.modelled.flush();
        Ok(())
    }

    fn kept(&self, note: Note) -> Option<String> {
        self.inner.kept(note)
    }

    fn keep(&self, note: Note, text: &str) -> Result<(), StoreError> {
        self.inner.keep(note, text)
    }

    fn incarnation(&self) -> [u8; 16] {
        self.inner.incarnation()
    }

    fn share(&self) {
        self.inner.share();
    }

    fn stop(&self) {
        self.inner.stop();
    }

    fn space(&self) -> Result<(u64, u64), StoreError> {
        let (_, free) = self.inner.space()?;
        let room = self.modelled.lock().allocation.room();
        Ok((self.modelled.capacity, room.min(free)))
    }

    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        self.inner.verify(report)
    }

    fn accept(&self, id: FileId) -> Result<(), StoreError> {
        self.inner.accept(id)
    }

    fn renew(&self, id: FileId) -> Result<Arc<dyn Object>, StoreError> {
        Ok(Arc::new(ModelObject {
            id,
            inner: self.inner.renew(id)?,
            modelled: self.modelled.clone(),
        }))
    }

    fn identity(&self) -> Option<Identity> {
        self.inner.identity()
    }

    fn note_heard(&self) -> Result<(), StoreError> {
        self.inner.note_heard()
    }

    fn highest(&self, look: bool) -> Result<u64, StoreError> {
        self.inner.highest(look)
    }

    fn next_generation(&self) -> Result<Option<Identity>, StoreError> {
        self.inner.next_generation()
    }

    fn sync_unsynced(&self, go_on: &mut dyn FnMut(Duration) -> bool) -> Result<bool, StoreError> {
        self.inner.sync_unsynced(go_on)
    }

    fn lost_below(&self) -> u64 {
        self.inner.lost_below()
    }

    fn describe(&self) -> String {
        self.modelled.name.clone()
    }
}

struct ModelObject {
    id: FileId,
    inner: Arc<dyn Object>,
    modelled: Arc<Modelled>,
}

impl ModelObject {
    /// Reads move existing bytes; a hole at the end costs nothing.
    fn read(&self, at: ObjectOffset, wanted: usize) -> Result<(), StoreError> {
        let there = self.inner.len()?.saturating_sub(at.0);
        self.modelled
            .serve(Op::Read, self.id, at.0, there.min(wanted as u64))
    }
}

impl Object for ModelObject {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        self.read(at, buf.len())?;
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        self.modelled
            .serve(Op::Write, self.id, at.0, buf.len() as u64)?;
        self.inner.write_at(at, buf)
    }

    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        self.read(at, bufs.iter().map(|b| b.len()).sum())?;
        self.inner.read_vectored_at(at, bufs)
    }

    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        let bytes: usize = bufs.iter().map(|b| b.len()).sum();
        self.modelled
            .serve(Op::Write, self.id, at.0, bytes as u64)?;
        self.inner.write_vectored_at(at, bufs)
    }

    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }

    fn stored_len(&self) -> Result<u64, StoreError> {
        self.inner.stored_len()
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.inner.set_len(len)
    }

    fn cut(&self, len: u64, end: u64) -> Result<bool, StoreError> {
        self.inner.cut(len, end)
    }

    fn extend(&self, len: u64) -> Result<bool, StoreError> {
        self.inner.extend(len)
    }

    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        let mut state = self.modelled.lock();
        if !state.allocation.map(self.id.0, at.0, len, |_, _| {}) {
            return Err(StoreError::Full(self.modelled.name.clone()));
        }
        drop(state);
        self.inner.allocate(at, len)
    }

    fn hold(&self, len: u64) -> Result<Option<Reservation>, StoreError> {
        self.inner.hold(len)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()?;
        self.modelled.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::open;
    use penstock_layout::{FileId, ObjectOffset};
    use std::time::Instant;

    /// Random reads through the store take the modelled time, and concurrent ones overlap.
    #[test]
    fn accesses_take_the_modelled_time_and_overlap() {
        let store = open("model:hdd,queue=none,read-ahead=0,scale=10", "d", 0).unwrap();
        let object = store.open(FileId(1), true).unwrap();
        object.set_len(8 << 30).unwrap();
        assert!(object.mappable().is_none());
        let read = |i: u64| {
            let mut buf = [1; 4096];
            let at = ObjectOffset(i * 7919 % 2000 * 4_000_000);
            assert_eq!(object.read_at(at, &mut buf).unwrap(), 4096);
        };
        let begun = Instant::now();
        (0..40).for_each(read);
        let one_by_one = begun.elapsed();
        // 40 accesses of more than 2 ms each (half a turn, less by luck), ten times as fast.
        assert!(one_by_one.as_micros() > 8_000, "{one_by_one:?}");
        let begun = Instant::now();
        std::thread::scope(|s| {
            for t in 0..20 {
                let read = &read;
                s.spawn(move || (0..2).for_each(|i| read(t * 2 + i)));
            }
        });
        // The native queue orders them: never much slower, whatever the machine's load.
        let together = begun.elapsed();
        assert!(together < one_by_one * 4, "{one_by_one:?} {together:?}");
    }

    #[test]
    fn bytes_and_space() {
        let store = open("model:ssd,scale=1000", "d", 0).unwrap();
        let object = store.open(FileId(3), true).unwrap();
        object.write_at(ObjectOffset(100), b"penstock").unwrap();
        let mut buf = [0; 16];
        assert_eq!(object.read_at(ObjectOffset(100), &mut buf).unwrap(), 8);
        assert_eq!(&buf[..8], b"penstock");
        object.sync().unwrap();
        store.sync().unwrap();
        let (total, free) = store.space().unwrap();
        assert!(free < total && total == 120_000_000_000);
        assert!(store.describe().contains("ssd"));
        store.remove(FileId(3)).unwrap();
        for wrong in ["model:", "model:floppy", "model:hdd,scale=x"] {
            let error = open(wrong, "d", 0).err().unwrap().to_string();
            assert!(error.contains("model"), "{error}");
        }
    }
}
