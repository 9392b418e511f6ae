//! Range locks over all servers of a file.
//!
//! A lock on a file range is a lock on the object range of each touched server. They are taken one server after the
//! other, in the file's own order. Everybody takes them in that order and each server serves waiters in order of
//! arrival, so no deadlock can occur.
//!
//! A server identifies a lock by its connection and releases it when that connection ends. So a held lock keeps its
//! connections to itself, and reads and writes under it use them.
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::file::File;
use crate::guard::guard;
use crate::held_lock::HeldLock;
use crate::link::Link;
use crate::open_file::OpenFile;
use crate::retry::{Next, Retry};
use penstock_host::thread::sleep;
use penstock_host::time::now;
use penstock_layout::ServerIndex;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, LockId, LockMode, TraceContext};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time beyond the server's limit of a lock wait for the answer to arrive.
const GRACE: Duration = Duration::from_secs(5);

/// A held lock on a file range; released when dropped.
///
/// Reads and writes of the [`File`] (and its clones) made while it is held carry it. Where several
/// locks are held, a call carries the one that its first access overlaps.
#[derive(Debug)]
pub struct RangeLock {
    file: Arc<OpenFile>,
    held: Arc<HeldLock>,
}

impl RangeLock {
    /// The locked file range.
    pub fn range(&self) -> Range<u64> {
        self.held.range.clone()
    }

    /// Whether a server was lost since the lock was taken, and the lock with it. What was read under it may have
    /// changed since, and calls within its range fail until it is dropped.
    pub fn is_lost(&self) -> bool {
        self.held.is_lost()
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        guard(&self.file.locks).retain(|h| !Arc::ptr_eq(h, &self.held));
        self.held.released();
        release(&self.file, &self.held);
    }
}

/// Unlocks at all servers at once. A connection on which that fails is closed, which unlocks too.
fn release(file: &OpenFile, held: &HeldLock) {
    let trace = file.client.trace();
    let mut asked = Vec::new();
    for (i, site) in file.sites.iter().enumerate() {
        if let Some((mut link, lock)) = held.take_idle(i)
            && let Some(at) = link.attached.get(&file.open_as())
        {
            let request = DataRequest::Unlock {
                handle: at.handle,
                lock,
            };
            if let Ok(id) = link.ask("unlock", trace, &request) {
                asked.push((site, link, id));
            }
        }
    }
    for (site, mut link, id) in asked {
        if let Ok(DataReply::Done) = link.answer("unlock", id) {
            site.put(link);
        }
    }
}

impl File {
    /// Locks file bytes `range`. [`LockMode::Exclusive`] excludes all other writes and locks, [`LockMode::Shared`] all
    /// other writes and exclusive locks. Reads without a lock are not excluded. Waits in order of arrival, at most
    /// [`crate::ClientOptions::lock_timeout`]. An exclusive lock needs a file open for writing. An empty range locks
    /// nothing. A server may revoke a lock that has been unused for a while when others wait for it; the next use
    /// reports that.
    pub fn lock(&self, range: Range<u64>, mode: LockMode) -> Result<RangeLock> {
        let file = &self.0;
        let trace = file.client.trace();
        let end = now() + file.client.options().lock_timeout;
        let peers = file.sites.iter().map(|s| s.peer.clone()).collect();
        let held = Arc::new(HeldLock::new(range.clone(), file.path.clone(), peers));
        // Dropped on an error below, which releases what has been taken.
        let lock = RangeLock {
            file: file.clone(),
            held: held.clone(),
        };
        let mut servers = 0;
        for i in 0..file.sites.len() {
            let server = ServerIndex(i as u32);
            let from = file.layout.object_len(range.start, server);
            let to = file.layout.object_len(range.end, server);
            if from < to {
                let (link, part) = lock_object(file, i, from..to, mode, end, trace)?;
                held.granted(i, link, part);
                servers += 1;
            }
        }
        for counters in file.counters() {
            counters.locked(servers);
        }
        guard(&file.locks).push(held);
        Ok(lock)
    }
}

/// Waits for one object range on a connection of its own.
fn lock_object(
    file: &OpenFile,
    i: usize,
    range: Range<u64>,
    mode: LockMode,
    end: Instant,
    trace: TraceContext,
) -> Result<(Link, LockId)> {
    let site = &file.sites[i];
    let mut retry = Retry::new(file.client.backoff());
    let try_once = || -> std::result::Result<(Link, LockId), Fault> {
        let mut link = site.connect("lock")?;
        let mut fresh = false;
        loop {
            let handle = if fresh {
                file.attach_again(&mut link, trace)?
            } else {
                file.attach(&mut link, trace)?
            };
            let left = end.saturating_duration_since(now());
            link.set_patience(Some(left + GRACE))?;
            let reply = link.call(
                "lock",
                trace,
                &DataRequest::Lock {
                    handle,
                    start: range.start,
                    end: range.end,
                    mode,
                    timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                },
            )?;
            link.set_patience(None)?;
            match reply {
                DataReply::Locked { lock } => return Ok((link, lock)),
                DataReply::Error(e) if e.kind == ErrorKind::ExpiredCapability && !fresh => {
                    fresh = true;
                }
                other => return Err(site.unexpected("lock", other)),
            }
        }
    };
    loop {
        match try_once() {
            Ok(got) => return Ok(got),
            Err(Fault::Final(e)) => return Err(e),
            Err(Fault::Away(detail)) => {
                site.lost();
                match retry.failed(now()) {
                    Next::TryAt(at) => {
                        sleep(at.saturating_duration_since(now()));
                    }
                    Next::GiveUp { tried } => {
                        return Err(Error::Unreachable {
                            peer: site.peer.clone(),
                            operation: "lock",
                            detail,
                            tried,
                        });
                    }
                }
            }
        }
    }
}
