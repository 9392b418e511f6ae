//! Statistics: counts for each file, direction and method, as the sources count them, with the model's predictions. One
//! JSON file for each rank at the end of the process.
use crate::access::Tally;
use crate::error::{Error, Result};
use crate::methods::Method;
use crate::model::Prediction;
use crate::spans::Spans;
use penstock_base::Op;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Version of the JSON form.
pub const FORMAT: u32 = 2;

/// One process's summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The value of [`FORMAT`].
    pub format: u32,
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: usize,
    /// Process id.
    pub pid: u32,
    /// `$PENSTOCK_PROGRAM`.
    pub program: u64,
    /// `penstock` or `direct`.
    pub file_system: String,
    /// `$PENSTOCK_METHOD`, or `auto`.
    pub method: String,
    /// Files in order of name.
    pub files: Vec<FileSummary>,
    /// Requests of this process to data servers.
    pub servers: Vec<ServerTraffic>,
    /// Whether MPI had ended; otherwise the last second may be missing.
    pub ended: bool,
}

/// Requests to one data server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerTraffic {
    /// Its number.
    pub server: u32,
    /// Reads and writes.
    pub requests: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// One file, over all its opens in this process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSummary {
    /// The name that the program used.
    pub path: String,
    /// Times opened.
    pub opens: u64,
    /// Times synced.
    pub syncs: u64,
    /// Seconds in open and close.
    pub open_seconds: f64,
    /// Seconds in sync.
    pub sync_seconds: f64,
    /// Reads.
    pub read: DirectionSummary,
    /// Writes.
    pub write: DirectionSummary,
}

/// All accesses of a file in one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionSummary {
    /// MPI calls.
    pub calls: u64,
    /// Of these, collective.
    pub collective_calls: u64,
    /// Bytes the program read or wrote.
    pub bytes: u64,
    /// Seconds in these calls.
    pub seconds: f64,
    /// The intervals of these calls.
    pub when: Spans,
    /// By method name.
    pub methods: BTreeMap<String, Counts>,
    /// Why the method of the last call was chosen.
    pub reason: String,
}

/// The accesses that one method performed, in the terms of DT table I.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Accesses.
    pub calls: u64,
    /// Bytes the program read or wrote.
    pub bytes: u64,
    /// File system operations.
    pub operations: u64,
    /// File bytes the operations covered.
    pub accessed_bytes: u64,
    /// Bytes handed to other ranks.
    pub resent_bytes: u64,
    /// Bytes read only to be written back.
    pub reread_bytes: u64,
    /// Bytes of a region accessed, in the last access.
    pub region_bytes: u64,
    /// Time of the accesses, seconds.
    pub seconds: f64,
    /// Accesses that used descriptors instead of requests.
    pub shortcut_calls: u64,
    /// The model's prediction for the same accesses.
    pub model: Prediction,
}

/// A completed access.
pub(crate) struct Record {
    pub direction: Op,
    pub collective: bool,
    pub method: Method,
    pub shortcut: bool,
    pub bytes: u64,
    pub region_bytes: u64,
    pub tally: Tally,
    pub model: Prediction,
    pub began: Instant,
    pub seconds: f64,
}

impl FileSummary {
    /// Adds an access.
    pub(crate) fn add(&mut self, record: &Record) {
        let direction = match record.direction {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
        };
        direction.calls += 1;
        direction.collective_calls += u64::from(record.collective);
        direction.bytes += record.bytes;
        direction.seconds += record.seconds;
        direction.when.add(record.began, record.seconds);
        let name = record.method.name();
        if !direction.methods.contains_key(name) {
            direction.methods.insert(name.into(), Counts::default());
        }
        let Some(counts) = direction.methods.get_mut(name) else {
            return;
        };
        counts.calls += 1;
        counts.bytes += record.bytes;
        counts.operations += record.tally.operations;
        counts.accessed_bytes += record.tally.accessed;
        counts.resent_bytes += record.tally.resent;
        counts.reread_bytes += record.tally.reread;
        counts.region_bytes = record.region_bytes;
        counts.seconds += record.seconds;
        counts.shortcut_calls += u64::from(record.shortcut);
        counts.model.operations += record.model.operations;
        counts.model.accessed_bytes += record.model.accessed_bytes;
        counts.model.resent_bytes += record.model.resent_bytes;
    }

    /// Adds another open's summary of the same file.
    pub(crate) fn merge(&mut self, other: FileSummary) {
        self.opens += other.opens;
        self.syncs += other.syncs;
        self.open_seconds += other.open_seconds;
        self.sync_seconds += other.sync_seconds;
        self.read.merge(other.read);
        self.write.merge(other.write);
    }
}

impl DirectionSummary {
    fn merge(&mut self, other: DirectionSummary) {
        self.calls += other.calls;
        self.collective_calls += other.collective_calls;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.when.merge(&other.when);
        self.when.thin();
        if other.calls > 0 {
            self.reason = other.reason;
        }
        for (name, counts) in other.methods {
            self.methods.entry(name).or_default().add(counts);
        }
    }
}

impl Counts {
    /// Adds the counts of other accesses by the same method.
    pub fn add(&mut self, other: Counts) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.accessed_bytes += other.accessed_bytes;
        self.resent_bytes += other.resent_bytes;
        self.reread_bytes += other.reread_bytes;
        self.region_bytes = other.region_bytes;
        self.seconds += other.seconds;
        self.shortcut_calls += other.shortcut_calls;
        self.model.operations += other.model.operations;
        self.model.accessed_bytes += other.model.accessed_bytes;
        self.model.resent_bytes += other.model.resent_bytes;
    }
}

impl Summary {
    /// Atomically writes `rank-<rank>-<pid>.json` into a directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let name = format!("rank-{}-{}.json", self.rank, self.pid);
        let (path, new) = (dir.join(&name), dir.join(format!(".{name}")));
        serde_json::to_vec(self)
            .map_err(std::io::Error::other)
            .and_then(|json| std::fs::write(&new, json))
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|e| Error::os(format_args!("write the summary {}", path.display()), &e))
    }
}
