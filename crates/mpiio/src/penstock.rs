//! Files on Penstock's servers, through the client library.
use crate::error::{Error, Result};
use crate::filesystem::{
    Counter, FileHandle, FileSystem, Form, Guard, LockMode, OpenHow, Operations,
};
use crate::stats::ServerTraffic;
use crate::task::Task;
use penstock_client::{Client, ClientOptions, CreateOptions, ErrorKind, Identity, OpenOptions};
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::Layout;
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl From<penstock_client::Error> for Error {
    fn from(e: penstock_client::Error) -> Error {
        Error::new(Error::class_of(e.kind()), e.to_string())
    }
}

/// The name space of a deployment.
pub(crate) struct Penstock {
    client: Client,
    /// Number of MPI calls, for traces.
    calls: AtomicU64,
}

impl Penstock {
    pub(crate) fn connect(
        deployment: &Deployment,
        who: Identity,
        options: ClientOptions,
    ) -> Result<Penstock> {
        Ok(Penstock {
            client: Client::connect_with(deployment, who, Role::Client, options)?,
            calls: AtomicU64::new(0),
        })
    }

    /// The requested striping, adapted to this deployment: it is a hint, often written for another file system. More
    /// servers than exist mean all of them, a server that does not exist means any.
    fn fitting(&self, how: &OpenHow) -> CreateOptions {
        let servers = &self.client.deployment().servers;
        let all = u32::try_from(servers.len()).unwrap_or(u32::MAX);
        CreateOptions {
            stripe_unit: how.stripe_unit.map(|n| n.min(Layout::MAX_STRIPE_UNIT)),
            stripe_count: how.stripe_count.map(|n| n.min(all)),
            start_server: how
                .start_server
                .filter(|id| servers.iter().any(|s| s.id == *id)),
            ..CreateOptions::default()
        }
    }
}

impl FileSystem for Penstock {
    fn name(&self) -> &'static str {
        "penstock"
    }

    fn open(&self, path: &str, how: &OpenHow) -> Result<Arc<dyn FileHandle>> {
        if let Some(task) = &how.task {
            self.claim(path, task)?;
        }
        let options = OpenOptions {
            read: how.read,
            // A read-modify-write needs both; whether it may write was checked at open.
            write: how.write,
            create: how.create.map(|mode| CreateOptions {
                mode: mode & !umask(),
                ..self.fitting(how)
            }),
            exclusive: how.exclusive,
        };
        // Data sieving reads before it writes, so a file for writing is opened for both where its permissions allow it.
        let both = OpenOptions {
            read: true,
            ..options.clone()
        };
        let file = match self.client.open(path, &both) {
            Err(e) if !how.read && e.kind() == ErrorKind::Permission => {
                self.client.open(path, &options)?
            }
            other => other?,
        };
        Ok(Arc::new(PenstockFile { file }))
    }

    fn claim(&self, path: &str, task: &Task) -> Result<()> {
        match self.client.writer(path, task.step, task.number)? {
            first if first == task.number => Ok(()),
            other => Err(task.refuse(Some(other))),
        }
    }

    fn unlink(&self, path: &str) -> Result<()> {
        Ok(self.client.unlink(path)?)
    }

    fn counter(
        &self,
        _path: &str,
        token: u128,
        initial: i64,
        _one_node: bool,
    ) -> Result<Box<dyn Counter>> {
        let counter = self.client.counter(token);
        // The first rank makes it, and keeps it until all have closed the file.
        match counter.create(initial) {
            Err(e) if e.kind() != ErrorKind::Exists => Err(e.into()),
            _ => Ok(Box::new(PenstockCounter { counter })),
        }
    }

    fn traffic(&self) -> Vec<ServerTraffic> {
        let counted = self.client.stats().servers;
        let servers = self.client.deployment().servers.iter();
        servers
            .map(|server| {
                let counts = counted.get(&server.id).copied().unwrap_or_default();
                ServerTraffic {
                    server: server.id.0,
                    requests: counts.requests,
                    bytes_read: counts.bytes_read,
                    bytes_written: counts.bytes_written,
                }
            })
            .collect()
    }

    fn begin_call(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.client.set_mpi_call(call);
    }
}

/// The permission bits that this process's new files do not get.
fn umask() -> u32 {
    // umask(2) would change it for a moment, also for other threads.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o022)
}

struct PenstockFile {
    file: penstock_client::File,
}

impl FileHandle for PenstockFile {
    fn identity(&self, _one_node: bool) -> (u64, u64) {
        (0, self.file.id().0)
    }

    fn layout(&self) -> Option<&Layout> {
        Some(self.file.layout())
    }

    fn has_shortcut(&self) -> bool {
        self.file.has_shortcut()
    }

    fn read_each(
        &self,
        operations: &mut Operations<'_>,
        how: Form,
        into: &mut Target<'_>,
    ) -> Result<u64> {
        Ok(self.file.read_each(operations, how, into)?)
    }

    fn write_each(
        &self,
        operations: &mut Operations<'_>,
        how: Form,
        from: &mut Source<'_>,
    ) -> Result<u64> {
        Ok(self.file.write_each(operations, how, from)?)
    }

    fn prefetch(&self, patterns: &[Pattern]) -> Result<()> {
        Ok(self.file.prefetch(patterns)?)
    }

    fn read_fast_path(&self, offset: u64, into: &mut [u8]) -> bool {
        self.file.read_fast_path(offset, into)
    }

    fn write_fast_path(&self, offset: u64, from: &[u8]) -> bool {
        self.file.write_fast_path(offset, from)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.len()?)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        Ok(self.file.set_len(len)?)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        Ok(self.file.allocate(len)?)
    }

    fn start_writeback(&self, part: usize, parts: usize) {
        self.file.start_writeback(part, parts);
    }

    fn sync(&self, leads: bool) -> Result<()> {
        // A rank that has written checks that its servers still have the data.
        if leads || self.file.is_dirty() {
            self.file.sync()?;
        }
        Ok(())
    }

    fn lock(&self, range: Range<u64>, mode: LockMode) -> Result<Box<dyn Guard>> {
        let lock = self.file.lock(range, mode)?;
        Ok(Box::new(Locked { lock }))
    }

    fn writing(&self, _range: Range<u64>) -> Result<Option<Box<dyn Guard>>> {
        // Servers keep every write out of the range of others' exclusive locks.
        Ok(None)
    }
}

struct Locked {
    lock: penstock_client::RangeLock,
}
impl Guard for Locked {
    fn is_lost(&self) -> bool {
        self.lock.is_lost()
    }
}

/// A counter lives as long as its maker's connection, which ends with this value.
struct PenstockCounter {
    counter: penstock_client::Counter,
}

impl Counter for PenstockCounter {
    fn add(&self, n: i64) -> Result<i64> {
        Ok(self.counter.add(n)?)
    }
    fn set(&self, value: i64) -> Result<()> {
        Ok(self.counter.set(value)?)
    }
    fn get(&self) -> Result<i64> {
        Ok(self.counter.get()?)
    }
    fn free(&self) -> Result<()> {
        Ok(())
    }
}
