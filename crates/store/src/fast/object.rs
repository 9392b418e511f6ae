//! One object behind a fast tier.
use super::device::File;
use super::front::Front;
use super::state::Refused;
use super::{Busy, Fast, recover};
use crate::{Object, StoreError};
use penstock_host::reservation::Reservation;
use penstock_host::time;
use penstock_layout::{FileId, ObjectOffset};
use penstock_tier::{Extent, MAX_PAYLOAD, Write};
use rustix::io::Errno;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Writes in several parts up to this size are put together first.
const GATHER: usize = 1 << 20;
/// Longer writes cannot be fragments or parts of pages: their place in the object is not asked for.
const SMALL: usize = 32 << 10;

/// See the module's text.
pub(crate) struct FastObject {
    fast: Arc<Fast>,
    id: FileId,
    inner: Arc<dyn Object>,
    front: Arc<Front>,
}

/// Where an object's byte is for the policy: objects are far apart.
pub(crate) fn address(id: FileId, offset: u64) -> u64 {
    ((id.0 & 0xff_ffff) << 40).saturating_add(offset)
}

impl Fast {
    /// What of an object's range is in the log, with the files that it is in.
    pub(crate) fn extents(
        &self,
        id: FileId,
        range: Range<u64>,
        most: usize,
    ) -> (Vec<Extent>, Vec<File>) {
        let state = self.state();
        let Some(map) = state.map(id) else {
            return (Vec::new(), Vec::new());
        };
        let extents = map.overlay(&range, most);
        // A segment with bytes that count is open.
        let files = extents.iter().filter_map(|e| state.files.get(&e.segment));
        let files = files.cloned().collect();
        (extents, files)
    }

    /// The bytes of an extent; an error if they are not those that were written.
    pub(crate) fn read_extent(
        &self,
        id: FileId,
        file: &File,
        extent: &Extent,
    ) -> Result<Vec<u8>, StoreError> {
        let error = |e| StoreError::from_errno("read the log in", self.device.path.clone(), e);
        match recover::bytes_of(&self.tier, id, file, extent).map_err(error)? {
            Some(bytes) => Ok(bytes),
            None => {
                self.state().damaged.insert((extent.segment, extent.at));
                Err(StoreError::Damaged {
                    path: self.device.path.clone(),
                    what: format!("log record of object {:016x}", id.0),
                    detail: format!(
                        "bytes {}..{} are not those that were written",
                        extent.offset,
                        extent.end()
                    ),
                })
            }
        }
    }
}

impl FastObject {
    pub(crate) fn open(
        fast: &Arc<Fast>,
        id: FileId,
        inner: Arc<dyn Object>,
        front: Arc<Front>,
    ) -> Arc<dyn Object> {
        Arc::new(FastObject {
            fast: fast.clone(),
            id,
            inner,
            front,
        })
    }

    /// Where its bytes in the log end.
    fn end(&self) -> u64 {
        if self.front.removed.load(SeqCst) {
            return 0;
        }
        self.fast.state().map(self.id).map_or(0, |map| map.end())
    }

    /// Writes past the log.
    fn write_past(&self, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let began = self.fast.now();
        let (busy, alone) = Busy::begin(&self.fast);
        let done = self.inner.write_at(ObjectOffset(at), bytes);
        // Now, and not before: a sync that began meanwhile need not have covered it.
        self.front.unsynced.store(true, SeqCst);
        drop(busy);
        done?;
        let took = self.fast.now() - began;
        let mut state = self.fast.state();
        let address = address(self.id, at);
        state.policy.dispatched(
            address,
            bytes.len() as u64,
            alone && self.fast.is_idle_at(began),
        );
        state.policy.timed(false, took);
        Ok(())
    }

    /// Whether the log takes this write; whether it must, since it holds some of the bytes.
    fn takes(&self, at: u64, bytes: usize, whole: u64) -> Result<(bool, bool), StoreError> {
        let range = at..at.saturating_add(bytes as u64);
        let ends_object = bytes < SMALL && range.end >= self.len()?;
        let mut state = self.fast.state();
        let holds = state.map(self.id).is_some_and(|map| map.touches(&range));
        if self.fast.failed.get().is_some() {
            return Ok((false, holds));
        }
        let write = Write {
            address: address(self.id, at),
            bytes: bytes as u64,
            parent: whole.max(bytes as u64),
            ends_object,
        };
        Ok((holds || state.policy.takes(&write), holds))
    }

    /// Writes to the log what it takes. How many bytes.
    fn write_log(&self, at: u64, bytes: &[u8]) -> usize {
        let began = self.fast.now();
        let time_ns = time::since_epoch().as_nanos() as u64;
        let mut state = self.fast.state();
        let first = state.maps.is_empty();
        let mut done = 0;
        for part in bytes.chunks(MAX_PAYLOAD as usize) {
            let device = &self.fast.device;
            match state.append(device, self.id, at + done as u64, part, time_ns, false) {
                Ok(()) => done += part.len(),
                Err(refused) => {
                    state.counts.refused += 1;
                    if let Refused::Device(e) = refused {
                        log::warn!("fast tier {}: {e}", device.path);
                    }
                    break;
                }
            }
        }
        if done > 0 {
            state.counts.writes += 1;
            state.counts.bytes += done as u64;
            state.policy.took(address(self.id, at), done as u64);
            state.policy.timed(true, self.fast.now() - began);
            self.front.modified.store(time_ns as i64, SeqCst);
        }
        drop(state);
        if first || done < bytes.len() {
            self.fast.wake();
        }
        done
    }

    fn set_len_alone(&self, len: u64) -> Result<(), StoreError> {
        let waits = self.end() > len;
        if waits {
            self.fast.sound()?;
        }
        self.inner.set_len(len)?;
        self.front.unsynced.store(true, SeqCst);
        if waits {
            // Before the log forgets: what is behind the cut must not come back, nor older bytes in its place.
            self.inner.sync()?;
            self.fast.forget(self.id, len..u64::MAX)?;
        }
        Ok(())
    }
}

impl Object for FastObject {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        let _gate = self.front.gate.read();
        let range = at.0..at.0.saturating_add(buf.len() as u64);
        let removed = self.front.removed.load(SeqCst);
        let (extents, files) = if removed {
            Default::default()
        } else {
            self.fast.extents(self.id, range, usize::MAX)
        };
        let end = if removed { 0 } else { self.end() };
        let covered: u64 = extents.iter().map(|e| e.len).sum();
        let mut n = 0;
        if covered < buf.len() as u64 {
            let (_busy, _) = Busy::begin(&self.fast);
            n = self.inner.read_at(at, buf)?;
        }
        // What has come home meanwhile was there all the same.
        let end = extents.last().map_or(end, |last| last.end().max(end));
        let there = end.saturating_sub(at.0).min(buf.len() as u64) as usize;
        if there > n {
            buf[n..there].fill(0);
            n = there;
        }
        for (extent, file) in extents.iter().zip(&files) {
            let bytes = self.fast.read_extent(self.id, file, extent)?;
            let from = (extent.offset - at.0) as usize;
            buf[from..from + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(n)
    }

    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        self.write_part_at(at, buf, 0)
    }

    fn write_part_at(&self, at: ObjectOffset, buf: &[u8], whole: u64) -> Result<(), StoreError> {
        if buf.is_empty() {
            return Ok(());
        }
        if at.0.checked_add(buf.len() as u64).is_none() {
            return Err(StoreError::from_errno(
                "write",
                self.fast.inner.describe(),
                Errno::FBIG,
            ));
        }
        let _gate = self.front.gate.read();
        if self.front.removed.load(SeqCst) {
            return self.write_past(at.0, buf);
        }
        let (takes, holds) = self.takes(at.0, buf.len(), whole)?;
        if !takes && holds {
            self.fast.sound()?;
        }
        let done = if takes { self.write_log(at.0, buf) } else { 0 };
        if done == buf.len() {
            return Ok(());
        }
        let rest = at.0 + done as u64;
        if holds {
            // The log has no room, and the newest bytes are there.
            let range = rest..at.0 + buf.len() as u64;
            self.fast.move_home(self.id, &*self.inner, range)?;
        }
        self.write_past(rest, &buf[done..])
    }

    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        if total <= GATHER {
            let all: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
            return self.write_at(at, &all);
        }
        let mut at = at.0;
        for buf in bufs {
            self.write_at(ObjectOffset(at), buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.inner.len()?.max(self.end()))
    }

    fn stored_len(&self) -> Result<u64, StoreError> {
        Ok(self.inner.stored_len()?.max(self.end()))
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        let _gate = self.front.gate.write();
        self.set_len_alone(len)
    }

    fn cut(&self, len: u64, end: u64) -> Result<bool, StoreError> {
        let _gate = self.front.gate.write();
        let short = self.len()? <= end;
        if short {
            self.set_len_alone(len)?;
        }
        Ok(short)
    }

    fn extend(&self, len: u64) -> Result<bool, StoreError> {
        let _gate = self.front.gate.read();
        let extended = self.inner.extend(len);
        self.front.unsynced.store(true, SeqCst);
        extended
    }

    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        self.inner.allocate(at, len)
    }

    fn hold(&self, len: u64) -> Result<Option<Reservation>, StoreError> {
        self.inner.hold(len)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let written = self.front.unsynced.swap(false, SeqCst);
        // Its records make it again, if there are any.
        let alone = self.fast.state().map(self.id).is_none();
        if written || self.front.made.load(SeqCst) && alone {
            if let Err(e) = self.inner.sync() {
                self.front.unsynced.store(true, SeqCst);
                return Err(e);
            }
            self.front.made.store(false, SeqCst);
        }
        self.fast.sync_log()
    }

    fn modified_ns(&self) -> Result<i64, StoreError> {
        let own = self.front.modified.load(SeqCst);
        Ok(self.inner.modified_ns()?.max(own))
    }
}
