//! Counters of a file and of a client, for run summaries.
use penstock_layout::ServerId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How an access is put into requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// One request per contiguous region (and touched server).
    Contiguous,
    /// Lists of at most 64 regions (DT II.D).
    List,
    /// One request per access and touched server, carrying the loop (DT III).
    Structured,
    /// Same-host descriptors where they are granted, [`Form::Structured`] elsewhere.
    Shortcut,
}

/// What went over one form of access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FormCounts {
    /// File system operations: what the analytic model of the methods counts (DT table I).
    pub operations: u64,
    /// Requests sent, over all servers; for [`Form::Shortcut`] direct accesses to one object.
    pub requests: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// What one server was asked for by requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Reads and writes sent.
    pub requests: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// A reading of the counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// One request per region.
    pub contiguous: FormCounts,
    /// Lists of regions.
    pub list: FormCounts,
    /// Loops.
    pub structured: FormCounts,
    /// Same-host descriptors. Accesses that were refused one count under `structured` instead.
    pub shortcut: FormCounts,
    /// Accesses to one server for which a shortcut was wanted and not granted.
    pub shortcut_refused: u64,
    /// Loops sent in full (all others went as a hash).
    pub loops_sent: u64,
    /// Connections that were lost and made again.
    pub reconnections: u64,
    /// Range locks taken (per server).
    pub locks: u64,
    /// Time during which a call waited for this server and nothing else could be done.
    pub waiting: BTreeMap<ServerId, Duration>,
    /// Reads and writes by requests, for each server that had any.
    pub servers: BTreeMap<ServerId, ServerCounts>,
}

impl Stats {
    /// The counts of one form.
    pub fn form(&self, form: Form) -> FormCounts {
        match form {
            Form::Contiguous => self.contiguous,
            Form::List => self.list,
            Form::Structured => self.structured,
            Form::Shortcut => self.shortcut,
        }
    }
}

#[derive(Debug, Default)]
struct FormCell {
    operations: AtomicU64,
    requests: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl FormCell {
    fn read(&self) -> FormCounts {
        FormCounts {
            operations: self.operations.load(Relaxed),
            requests: self.requests.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
        }
    }
}

/// The live counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    forms: [FormCell; 4],
    shortcut_refused: AtomicU64,
    loops_sent: AtomicU64,
    reconnections: AtomicU64,
    locks: AtomicU64,
    waiting: Mutex<BTreeMap<ServerId, Duration>>,
    servers: Mutex<BTreeMap<ServerId, ServerCounts>>,
}

impl Counters {
    pub fn add(&self, form: Form, counts: FormCounts) {
        let cell = &self.forms[form as usize];
        cell.operations.fetch_add(counts.operations, Relaxed);
        cell.requests.fetch_add(counts.requests, Relaxed);
        cell.bytes_read.fetch_add(counts.bytes_read, Relaxed);
        cell.bytes_written.fetch_add(counts.bytes_written, Relaxed);
    }

    /// One operation of the fast path: `requests` objects were accessed.
    pub fn fast_path(&self, write: bool, requests: u64, bytes: u64) {
        let cell = &self.forms[Form::Shortcut as usize];
        cell.operations.fetch_add(1, Relaxed);
        cell.requests.fetch_add(requests, Relaxed);
        let moved = if write {
            &cell.bytes_written
        } else {
            &cell.bytes_read
        };
        moved.fetch_add(bytes, Relaxed);
    }

    pub fn loops_sent(&self, n: u64) {
        self.loops_sent.fetch_add(n, Relaxed);
    }

    pub fn reconnected(&self) {
        self.reconnections.fetch_add(1, Relaxed);
    }

    pub fn shortcut_refused(&self) {
        self.shortcut_refused.fetch_add(1, Relaxed);
    }

    pub fn locked(&self, servers: u64) {
        self.locks.fetch_add(servers, Relaxed);
    }

    pub fn waited(&self, server: ServerId, time: Duration) {
        *self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(server)
            .or_default() += time;
    }

    pub fn served(&self, server: ServerId, requests: u64, bytes: u64, write: bool) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = servers.entry(server).or_default();
        counts.requests += requests;
        if write {
            counts.bytes_written += bytes
        } else {
            counts.bytes_read += bytes
        }
    }

    pub fn read(&self) -> Stats {
        Stats {
            servers: self
                .servers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            contiguous: self.forms[Form::Contiguous as usize].read(),
            list: self.forms[Form::List as usize].read(),
            structured: self.forms[Form::Structured as usize].read(),
            shortcut: self.forms[Form::Shortcut as usize].read(),
            shortcut_refused: self.shortcut_refused.load(Relaxed),
            loops_sent: self.loops_sent.load(Relaxed),
            reconnections: self.reconnections.load(Relaxed),
            locks: self.locks.load(Relaxed),
            waiting: self
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}
