//! Form::Shortcut: a client on the server's host reads and writes an object through its own descriptor.
//!
//! Problem: a request through a socket costs two wake-ups and two copies; on the server's own host the bytes are a
//! single `pread` away. Idea: the server passes the object's descriptor and a page of shared memory (the *grant*). Each
//! operation enters the grant, does its I/O and leaves. The server can forbid new operations and wait for those in
//! progress, for example before it grants a range lock (protocol: `penstock_rpc::grant`). When it pays: always when it
//! is granted, which is while no policy must see each request. After a revocation or refusal requests are used at once,
//! without the caller noticing. A new grant is requested after a delay, which doubles after each refusal.
//!
//! Parameters: those of [`crate::grant`], and [`PACKED_STEP`].
use crate::connection_pool::ConnectionPool;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::grant::{Grant, STEP};
use crate::guard::guard;
use crate::memory::{Memory, Stretch};
use crate::open_file::OpenFile;
use crate::plan::FileRegions;
use crate::unsynced::Taken;
use penstock_datatype::Pattern;
use penstock_host::time::now;
use penstock_layout::{ObjectOffset, ServerIndex};
use penstock_rpc::grant::GrantPage;
use penstock_store::{Execution, Mapped, Maps, Object, StoreError};
use penstock_wire::message::{DataReply, DataRequest, TraceContext};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of one step where memory is packed ([`STEP`] elsewhere).
const PACKED_STEP: u64 = 256 << 10;
/// Separate memory ranges of one operation.
const MAX_RANGES: usize = 512;
impl OpenFile {
    /// The grant at `server`, asked for if it is time; `None` = use requests.
    pub fn grant(&self, server: ServerIndex, trace: TraceContext) -> Option<Arc<Grant>> {
        let i = server.0 as usize;
        let site = &self.sites[i];
        if !self.client.options().shortcuts || !site.is_local() {
            return None;
        }
        let mut shortcut = guard(&self.shortcuts[i]);
        if let Some(grant) = &shortcut.grant {
            if grant.is_good() {
                return Some(grant.clone());
            }
            shortcut.grant = None;
            // After a revocation there is no hurry either: something required it.
            shortcut.again = None;
            shortcut.refused();
        }
        if shortcut.again.is_some_and(|(at, _)| now() < at) {
            return None;
        }
        match self.ask_for_grant(site, trace) {
            Ok(Ok(grant)) => {
                shortcut.again = None;
                shortcut.grant = Some(Arc::new(grant));
            }
            Ok(Err(reason)) => {
                log::debug!("{}: no shortcut to {}: {reason}", self.path, site.peer);
                shortcut.refused();
            }
            // Requests will meet the same problem and handle it.
            Err(Fault::Away(reason)) => {
                log::debug!("{}: no shortcut to {}: {reason}", self.path, site.peer);
                shortcut.refused();
            }
            Err(Fault::Final(e)) => {
                log::debug!("{}: no shortcut: {e}", self.path);
                shortcut.refused();
            }
        }
        shortcut.grant.clone()
    }

    /// Only the owner can truncate an object behind the server's back (docs/decisions/0021): nobody else maps it.
    fn maps(&self) -> Maps {
        let own = self.lend_to() == Some(rustix::process::geteuid().as_raw());
        if own && self.client.options().mappings {
            Maps::default()
        } else {
            Maps::calls_only()
        }
    }

    fn ask_for_grant(
        &self,
        site: &Arc<ConnectionPool>,
        trace: TraceContext,
    ) -> std::result::Result<std::result::Result<Grant, String>, Fault> {
        let Some(place) = self.client.descriptor() else {
            return Ok(Err(
                "a quarter of the limit of open files is in use".to_owned()
            ));
        };
        let holder = site.grant_link()?;
        let mut link = guard(&holder.link);
        let asked = (|| {
            if !link.is_unix() {
                return Ok(Err("not on this host".to_owned()));
            }
            site.close_left(&mut link)?;
            let handle = self.attach(&mut link, trace)?;
            let request = DataRequest::Shortcut { handle };
            let writable = match link.call("ask for a shortcut", trace, &request)? {
                DataReply::Shortcut { writable } => writable,
                DataReply::NoShortcut { reason } => return Ok(Err(reason)),
                other => return Err(site.unexpected("ask for a shortcut", other)),
            };
            let [object, page] = <[OwnedFd; 2]>::try_from(link.descriptors())
                .map_err(|got| Fault::Away(format!("{} descriptors instead of two", got.len())))?;
            let page = GrantPage::open(page).map_err(|e| Fault::Away(e.to_string()))?;
            Ok(Ok((object, page, writable, self.taken(&link))))
        })();
        if matches!(asked, Err(Fault::Away(_))) {
            holder.dead.store(true, Relaxed);
        }
        drop(link);
        Ok(asked?.map(|(object, page, writable, taken)| {
            Grant::new(object, page, writable, taken, holder, self.maps(), place)
        }))
    }

    /// Moves the bytes of `shape` on `server` through the grant; `None` if there is none.
    pub fn direct(
        &self,
        server: ServerIndex,
        shape: &FileRegions,
        at: u64,
        memory: &mut Memory<'_, '_>,
        scratch: &mut Scratch,
        trace: TraceContext,
    ) -> Result<Option<Done>> {
        let write = matches!(memory, Memory::From(_));
        let grant = self
            .grant(server, trace)
            .filter(|grant| grant.is_writable() || !write);
        let Some(grant) = grant else {
            for counters in self.counters() {
                counters.shortcut_refused();
            }
            return Ok(None);
        };
        if let FileRegions::Loop { pattern, .. } = shape
            && let Some(outcome) = self.execute(&grant, server, pattern, at, memory, scratch)
        {
            if let Concluded::Done(done) = &outcome {
                grant.count(write, done.bytes);
            }
            return self.concluded(server, write.then_some(grant.taken()), outcome);
        }
        let coarse = memory.is_coarse();
        let mut direct = Direct {
            grant: &grant,
            write,
            step: if coarse { STEP } else { PACKED_STEP },
            coarse,
            ranges: std::mem::take(&mut scratch.ranges),
            from: 0,
            bytes: 0,
            stream: 0,
            scratch,
            done: Done {
                bytes: 0,
                short: None,
            },
            outcome: Outcome::Going,
        };
        shape.pieces(&self.layout, server, 0, |object, stream, len| {
            direct.add(object, at, stream, len, memory)
        });
        direct.flush(at, memory);
        let Direct {
            mut ranges,
            done,
            outcome,
            ..
        } = direct;
        ranges.clear();
        scratch.ranges = ranges;
        if matches!(outcome, Outcome::Going | Outcome::Short) {
            grant.count(write, done.bytes);
        }
        self.concluded(
            server,
            write.then_some(grant.taken()),
            outcome.map_done(done),
        )
    }

    fn concluded(
        &self,
        server: ServerIndex,
        written: Option<Taken>,
        outcome: Concluded,
    ) -> Result<Option<Done>> {
        match outcome {
            Concluded::Done(done) => {
                if let Some(taken) = written {
                    self.notes[server.0 as usize].wrote(taken, done.bytes);
                }
                Ok(Some(done))
            }
            // What has been done so far may be repeated by requests.
            Concluded::Revoked => Ok(None),
            Concluded::Failed(e) => Err(Error::Local {
                what: format!(
                    "{} {} by shortcut at {}",
                    if written.is_some() { "write" } else { "read" },
                    self.path,
                    self.sites[server.0 as usize].peer
                ),
                kind: crate::error::kind_of(&e),
                detail: e.to_string(),
            }),
        }
    }

    /// A loop, executed the way the server would. `None` near the end of the object: an execution would zero memory for
    /// bytes beyond the end of the file.
    fn execute(
        &self,
        grant: &Grant,
        server: ServerIndex,
        pattern: &Pattern,
        at: u64,
        memory: &mut Memory<'_, '_>,
        scratch: &mut Scratch,
    ) -> Option<Concluded> {
        let (_, end) = pattern.bounds();
        let end = self.layout.object_len(end.unsigned_abs(), server);
        let mut execution = Execution::new(&self.layout, server, pattern);
        let mut done = Done {
            bytes: 0,
            short: None,
        };
        loop {
            let work = &mut scratch.execution;
            let moved = grant.operate(|object| match memory {
                Memory::From(source) => execution
                    .write_from(object, source, at, STEP, work)
                    .map(Some),
                Memory::Into(target) if object.reaches(end)? => execution
                    .read_into(object, target, at, STEP, work)
                    .map(Some),
                Memory::Into(_) => Ok(None),
            });
            match moved {
                None => return Some(Concluded::Revoked),
                Some(Ok(None)) => return None,
                Some(Ok(Some(0))) => return Some(Concluded::Done(done)),
                Some(Ok(Some(n))) => done.bytes += n,
                Some(Err(e)) => return Some(Concluded::Failed(e)),
            }
        }
    }
}

/// What a direct access did.
pub(crate) struct Done {
    pub bytes: u64,
    /// The object ended: bytes are missing from this stream position on.
    pub short: Option<u64>,
}

/// How an access to one server ended.
enum Concluded {
    Done(Done),
    Revoked,
    Failed(StoreError),
}

enum Outcome {
    Going,
    Short,
    Revoked,
    Failed(StoreError),
}

impl Outcome {
    fn map_done(self, done: Done) -> Concluded {
        match self {
            Outcome::Going | Outcome::Short => Concluded::Done(done),
            Outcome::Revoked => Concluded::Revoked,
            Outcome::Failed(e) => Concluded::Failed(e),
        }
    }
}

/// Collects pieces that are adjacent in the object into one system call.
struct Direct<'g> {
    grant: &'g Grant,
    write: bool,
    /// Bytes of one step, and whether they go straight between object and memory.
    step: u64,
    coarse: bool,
    /// Memory stream positions and lengths of the step.
    ranges: Vec<(u64, u64)>,
    /// Object offset where the step begins, its bytes, and its first stream position.
    from: u64,
    bytes: u64,
    stream: u64,
    scratch: &'g mut Scratch,
    done: Done,
    outcome: Outcome,
}

/// Buffers kept from one operation to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    ranges: Vec<(u64, u64)>,
    stretches: Vec<Stretch>,
    packed: Vec<u8>,
    execution: penstock_store::Scratch,
}

impl Direct<'_> {
    /// A piece of the object; `at` = where the operation begins in memory. False when there is no
    /// point in going on.
    fn add(
        &mut self,
        mut object: u64,
        at: u64,
        mut stream: u64,
        mut len: u64,
        memory: &mut Memory<'_, '_>,
    ) -> bool {
        while len > 0 {
            let full = self.bytes >= self.step || self.ranges.len() >= MAX_RANGES;
            if self.bytes > 0 && (full || self.from + self.bytes != object) {
                self.flush(at, memory);
            }
            if !matches!(self.outcome, Outcome::Going) {
                return false;
            }
            if self.bytes == 0 {
                (self.from, self.stream) = (object, stream);
            }
            let take = len.min(self.step - self.bytes);
            match self.ranges.last_mut() {
                Some((start, n)) if *start + *n == at + stream => *n += take,
                _ => self.ranges.push((at + stream, take)),
            }
            self.bytes += take;
            (object, stream, len) = (object + take, stream + take, len - take);
        }
        true
    }

    /// Does the I/O of the step under the grant.
    fn flush(&mut self, at: u64, memory: &mut Memory<'_, '_>) {
        if self.bytes == 0 || !matches!(self.outcome, Outcome::Going) {
            return;
        }
        let grant = self.grant;
        let moved = grant.operate(|object| {
            if self.coarse {
                self.straight(object, memory)
            } else {
                self.packed(object, memory)
            }
        });
        match moved {
            None => {
                self.outcome = Outcome::Revoked;
                return;
            }
            Some(Ok(n)) => {
                self.done.bytes += n;
                if n < self.bytes {
                    let mut rest = n;
                    let mut short = self.stream;
                    for &(start, len) in &self.ranges {
                        short = start - at + rest.min(len);
                        if rest < len {
                            break;
                        }
                        rest -= len;
                    }
                    self.done.short = Some(short);
                    self.outcome = Outcome::Short;
                }
            }
            Some(Err(e)) => self.outcome = Outcome::Failed(e),
        }
        self.bytes = 0;
        self.ranges.clear();
    }

    /// Directly between object and the caller's memory.
    fn straight(
        &mut self,
        object: &Mapped<'_>,
        memory: &mut Memory<'_, '_>,
    ) -> std::result::Result<u64, StoreError> {
        let stretches = &mut self.scratch.stretches;
        stretches.clear();
        for &(start, len) in &self.ranges {
            memory.stretches(start, len, stretches);
        }
        let from = ObjectOffset(self.from);
        if self.write {
            let slices: Vec<IoSlice<'_>> = stretches
                .iter()
                // SAFETY: stretches of a source lie in the buffer that `memory` borrows, which nobody
                // writes to as long as it does.
                .map(|s| IoSlice::new(unsafe { std::slice::from_raw_parts(s.base, s.len) }))
                .collect();
            object.write_vectored_at(from, &slices)?;
            Ok(self.bytes)
        } else {
            let mut slices: Vec<IoSliceMut<'_>> = stretches
                .iter()
                // SAFETY: stretches of a target lie in the buffer that `memory` borrows exclusively. They overlap only
                // if the caller's memory pattern does. They are filled one after the other, by the kernel or by a copy,
                // and no reference is read through.
                .map(|s| IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(s.base, s.len) }))
                .collect();
            Ok(object.read_vectored_at(from, &mut slices)? as u64)
        }
    }

    /// Through a buffer, because the memory's pieces are small.
    fn packed(
        &mut self,
        object: &Mapped<'_>,
        memory: &mut Memory<'_, '_>,
    ) -> std::result::Result<u64, StoreError> {
        let packed = &mut self.scratch.packed;
        if packed.len() < self.bytes as usize {
            packed.resize(self.bytes as usize, 0);
        }
        let packed = &mut packed[..self.bytes as usize];
        let from = ObjectOffset(self.from);
        let n = if self.write {
            let mut fill = 0;
            for &(start, len) in &self.ranges {
                memory.gather(start, &mut packed[fill..fill + len as usize]);
                fill += len as usize;
            }
            object.write_at(from, packed)?;
            packed.len()
        } else {
            let n = object.read_at(from, packed)?;
            let mut used = 0;
            for &(start, len) in &self.ranges {
                let len = (len as usize).min(n - used);
                memory.scatter(start, &packed[used..used + len]);
                used += len;
            }
            n
        };
        Ok(n as u64)
    }
}
