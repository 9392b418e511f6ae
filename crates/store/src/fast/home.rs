//! What is in the log comes home: to the slow store, in ascending order, when nobody else uses that.
//!
//! A piece is at most [`PIECE`] bytes, so whoever comes meanwhile waits for no more than that. After some pieces the slow
//! store syncs the object, and then the log hears that these bytes count no longer.
use super::object::address;
use super::{Busy, Control, Fast};
use crate::{Object, StoreError};
use penstock_host::thread::{self, JoinHandle};
use penstock_layout::{FileId, ObjectOffset};
use penstock_tier::Extent;
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most bytes of a piece.
const PIECE: u64 = 256 << 10;
/// Most extents of a piece.
const EXTENTS: usize = 512;
/// Bytes between two syncs of an object.
const ROUND: u64 = 16 << 20;
/// The slow store is idle when nobody has used it for so long.
const IDLE: Duration = Duration::from_millis(20);
/// Pause after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// Above this share of its limit the log is emptied whoever waits.
const HIGH: f64 = 0.75;

/// The thread, and how it is ended.
pub(crate) struct HomeThread {
    fast: Arc<Fast>,
    thread: Mutex<Option<JoinHandle>>,
}

impl HomeThread {
    pub(crate) fn start(fast: &Arc<Fast>) -> Result<HomeThread, StoreError> {
        let own = fast.clone();
        let thread = thread::spawn("fast tier", None, move || own.bring()).map_err(|source| {
            StoreError::Io {
                what: "start a thread for",
                path: fast.device.path.clone(),
                source,
            }
        })?;
        Ok(HomeThread {
            fast: fast.clone(),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends it and waits for it, at most for a round.
    pub(crate) fn stop(&self) {
        self.fast.control().stop = true;
        self.fast.changed.notify_all();
        let thread = self.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!("the thread of a fast tier panicked");
        }
    }
}

impl Drop for HomeThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Bytes that are in the slow store now and need a sync there: the range, and up to which record.
type Moved = (Range<u64>, u64);

impl Fast {
    /// Whether nobody used the slow store in the time before `at` (ns since the start).
    pub(crate) fn is_idle_at(&self, at: u64) -> bool {
        at.saturating_sub(self.last.load(SeqCst)) >= IDLE.as_nanos() as u64
    }

    fn is_idle(&self) -> bool {
        self.busy.load(SeqCst) == 0 && self.is_idle_at(self.now())
    }

    fn is_urgent(&self, control: &Control) -> bool {
        control.drain || self.state().log.fill() > HIGH
    }

    /// Sleeps until there is something to do, for at most so long; false: it is time to stop.
    fn rest(&self, most: Duration) -> bool {
        let mut control = self.control();
        if !control.stop && !control.work {
            let waited = self.changed.wait_timeout(control, most);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        control.work = false;
        !control.stop
    }

    /// Waits until the slow store is idle, unless the log has to be emptied; false: it is time to stop.
    fn await_idle(&self) -> bool {
        loop {
            let control = self.control();
            if control.stop {
                return false;
            }
            if self.is_urgent(&control) || self.is_idle() {
                return true;
            }
            let waited = self.changed.wait_timeout(control, IDLE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The thread's work.
    fn bring(&self) {
        // Where the next round begins.
        let mut next: Option<(FileId, u64)> = None;
        loop {
            let failed = self.failed.get().is_some();
            let ahead = if failed { None } else { self.ahead(next) };
            let Some((id, from)) = ahead else {
                if !failed {
                    self.control().drain = false;
                    self.note_stuck(self.reclaim().err());
                }
                if !self.rest(AGAIN) {
                    return;
                }
                continue;
            };
            if !self.await_idle() {
                return;
            }
            let round = self.round(id, from);
            match round {
                Ok(Some(at)) => {
                    next = Some((id, at));
                    self.note_stuck(self.reclaim().err());
                }
                Ok(None) => return,
                Err(e) => {
                    // Others may come home.
                    next = Some((FileId(id.0.saturating_add(1)), 0));
                    self.note_stuck(Some(e));
                    if !self.rest(AGAIN) {
                        return;
                    }
                }
            }
        }
    }

    fn note_stuck(&self, why: Option<StoreError>) {
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        let why = why.map(|e| format!("bytes do not come home: {e}"));
        if why.is_some() && *stuck != why {
            log::warn!(
                "fast tier {}: {}",
                self.device.path,
                why.as_deref().unwrap_or_default()
            );
        }
        *stuck = why;
    }

    /// The next extent in ascending order from `next` on that is not known to be damaged, from the beginning again at the end.
    fn ahead(&self, next: Option<(FileId, u64)>) -> Option<(FileId, u64)> {
        let state = self.state();
        let first = |id: &FileId, from: u64| {
            let mut at = from;
            let map = state.map(*id)?;
            while let Some(extent) = map.next(at) {
                if !state.damaged.contains(&(extent.segment, extent.at)) {
                    return Some((*id, extent.offset));
                }
                at = extent.end();
            }
            None
        };
        if let Some((id, from)) = next {
            let here = first(&id, from);
            let mut behind = state.maps.range((Bound::Excluded(id), Bound::Unbounded));
            if let Some(found) = here.or_else(|| behind.find_map(|(id, _)| first(id, 0))) {
                return Some(found);
            }
        }
        state.maps.keys().find_map(|id| first(id, 0))
    }

    /// Brings some pieces of an object home. Where the next round begins; `None`: it is time to stop.
    fn round(&self, id: FileId, from: u64) -> Result<Option<u64>, StoreError> {
        let front = self.front(&mut self.state(), id, false);
        let upto = self.state().log.last();
        let inner = {
            let _gate = front.gate.read();
            match self.inner.open(id, false) {
                Err(StoreError::NotFound(..)) => {
                    // Removed since.
                    self.forget_upto(id, 0..u64::MAX, upto)?;
                    return Ok(Some(u64::MAX));
                }
                opened => opened?,
            }
        };
        let (mut at, mut bytes, mut moved) = (from, 0, Vec::new());
        while bytes < ROUND && moved.len() < EXTENTS {
            if !self.await_idle() {
                return Ok(None);
            }
            let gate = front.gate.read();
            if front.removed.load(SeqCst) {
                return Ok(Some(u64::MAX));
            }
            let piece = self.piece(id, &*inner, at..u64::MAX, &mut moved)?;
            drop(gate);
            let Some((end, len)) = piece else {
                at = u64::MAX;
                break;
            };
            at = end;
            bytes += len;
        }
        // Nobody removes it between the sync and the note of it.
        let _gate = front.gate.read();
        if front.removed.load(SeqCst) {
            return Ok(Some(u64::MAX));
        }
        self.settled(id, &*inner, &moved)?;
        front.made.store(false, SeqCst);
        Ok(Some(at))
    }

    /// Brings one piece of a range to the slow store. Where it ended, and its bytes; `None`: there is none.
    fn piece(
        &self,
        id: FileId,
        inner: &dyn Object,
        range: Range<u64>,
        moved: &mut Vec<Moved>,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let upto = self.state().log.last();
        let (extents, files) = self.extents(id, range, EXTENTS);
        let Some(last) = extents.last() else {
            return Ok(None);
        };
        let mut end = last.end();
        let (mut start, mut run, mut bytes) = (0, Vec::new(), 0);
        let mut apart = true;
        for (extent, file) in extents.iter().zip(&files) {
            if bytes + extent.len > PIECE && bytes > 0 {
                end = extent.offset;
                break;
            }
            if start + run.len() as u64 != extent.offset {
                self.put(id, inner, start, &run)?;
                run.clear();
            }
            match self.read_extent(id, file, extent) {
                Ok(own) => {
                    if run.is_empty() {
                        start = extent.offset;
                    }
                    run.extend(own);
                    bytes += extent.len;
                    note(moved, extent, upto, apart);
                    apart = false;
                }
                // It stays, and is reported by a check.
                Err(e @ StoreError::Damaged { .. }) => {
                    log::error!("{e}");
                    apart = true;
                }
                Err(e) => return Err(e),
            }
        }
        self.put(id, inner, start, &run)?;
        Ok(Some((end, bytes)))
    }

    fn put(&self, id: FileId, inner: &dyn Object, at: u64, run: &[u8]) -> Result<(), StoreError> {
        if run.is_empty() {
            return Ok(());
        }
        inner.write_at(ObjectOffset(at), run)?;
        let alone = self.is_idle();
        let mut state = self.state();
        let len = run.len() as u64;
        state.policy.came_home(address(id, at), len, alone);
        Ok(())
    }

    /// The slow store syncs what was moved; then it counts no longer in the log.
    fn settled(&self, id: FileId, inner: &dyn Object, moved: &[Moved]) -> Result<(), StoreError> {
        if moved.is_empty() {
            return Ok(());
        }
        inner.sync()?;
        let mut state = self.state();
        for (range, upto) in moved {
            let before = state.log.live();
            state
                .append_home(&self.device, id, range.clone(), *upto)
                .map_err(|refused| self.refused(refused))?;
            state.counts.home += before - state.log.live();
        }
        Ok(())
    }

    fn refused(&self, refused: super::state::Refused) -> StoreError {
        match refused {
            super::state::Refused::Full => StoreError::Full(self.device.path.clone()),
            super::state::Refused::Device(e) => {
                StoreError::from_errno("write the log in", self.device.path.clone(), e)
            }
        }
    }

    /// Brings a range of an object home at once. The caller keeps cuts away.
    pub(crate) fn move_home(
        &self,
        id: FileId,
        inner: &dyn Object,
        range: Range<u64>,
    ) -> Result<(), StoreError> {
        let (_busy, _) = Busy::begin(self);
        let (mut at, mut moved) = (range.start, Vec::new());
        while at < range.end {
            match self.piece(id, inner, at..range.end, &mut moved)? {
                Some((end, _)) => at = end,
                None => break,
            }
        }
        self.settled(id, inner, &moved)
    }

    /// The same for everything, before anybody uses the store. What an object cannot take that is damaged itself goes to the
    /// end of the log.
    pub(crate) fn bring_all_home(&self) -> Result<(), StoreError> {
        let ids: Vec<FileId> = self.state().maps.keys().copied().collect();
        for id in ids {
            let opened = self.inner.open(id, true);
            let moved = opened.and_then(|inner| self.move_home(id, &*inner, 0..u64::MAX));
            match moved {
                Err(StoreError::Damaged { .. } | StoreError::Lost { .. }) => {
                    self.append_again(id)?
                }
                moved => moved?,
            }
        }
        Ok(())
    }

    /// Writes an object's records once more, behind all others.
    fn append_again(&self, id: FileId) -> Result<(), StoreError> {
        let last = self.state().log.last();
        let mut from = 0;
        loop {
            let (extents, files) = self.extents(id, from..u64::MAX, EXTENTS);
            let Some(end) = extents.last().map(Extent::end) else {
                return Ok(());
            };
            from = end;
            for (extent, file) in extents.iter().zip(&files) {
                if extent.seq > last {
                    continue;
                }
                let bytes = match self.read_extent(id, file, extent) {
                    Err(StoreError::Damaged { .. }) => continue,
                    read => read?,
                };
                self.state()
                    .append(&self.device, id, extent.offset, &bytes, 0, true)
                    .map_err(|refused| self.refused(refused))?;
            }
        }
    }

    /// An object's bytes within a range count no longer in the log.
    pub(crate) fn forget(&self, id: FileId, range: Range<u64>) -> Result<(), StoreError> {
        let upto = self.state().log.last();
        self.forget_upto(id, range, upto)
    }

    fn forget_upto(&self, id: FileId, range: Range<u64>, upto: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        state
            .append_home(&self.device, id, range, upto)
            .map_err(|refused| self.refused(refused))
    }

    /// Damaged bytes of an object count no longer: what the slow store has takes their place.
    pub(crate) fn drop_damaged(&self, id: FileId) -> Result<(), StoreError> {
        let mut from = 0;
        loop {
            let (extents, files) = self.extents(id, from..u64::MAX, EXTENTS);
            let Some(last) = extents.last() else {
                return Ok(());
            };
            from = last.end();
            for (extent, file) in extents.iter().zip(&files) {
                if self.read_extent(id, file, extent).is_ok() {
                    continue;
                }
                let mut state = self.state();
                state
                    .append_home(&self.device, id, extent.offset..extent.end(), extent.seq)
                    .map_err(|refused| self.refused(refused))?;
                state.damaged.remove(&(extent.segment, extent.at));
            }
        }
    }
}

/// Notes that an extent was moved. Those of one look at the log are one range, since there was nothing else between them;
/// `apart`: there was.
fn note(moved: &mut Vec<Moved>, extent: &Extent, upto: u64, apart: bool) {
    match moved.last_mut() {
        Some((range, last)) if !apart && *last == upto => {
            range.end = extent.end();
        }
        _ => moved.push((extent.offset..extent.end(), upto)),
    }
}
