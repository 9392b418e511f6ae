//! Where the records of this process go, if they go anywhere: one small seam for all layers above the wire.
//!
//! *Problem*: calls of HDF5 and POSIX are recorded by wrappers in C, those of MPI-IO and the client library here. A record of
//! one layer is the parent of the next one's, whoever makes them.
//! *Idea*: one table of functions ([`Table`]; `sink.h` for C). It numbers the records of a process, knows the innermost open call
//! of each thread, and takes records. A library for tracing that is loaded into the process exports one as
//! `penstock_trace_sink`. Without one, and with `PENSTOCK_TRACE=DIR` in the environment, records go to a file of this process
//! ([`crate::file_sink`]). With neither, a call costs one predictable branch.
use crate::operations::Operation;
use crate::record::{Layer, NO_SERVER};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Version of [`Table`].
pub const TABLE_VERSION: u32 = 2;

/// A record as it crosses the table: see [`crate::Record`]. A thread of `u32::MAX` is the calling one.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of Record")]
pub struct RawRecord {
    pub id: u64,
    /// 0: none.
    pub parent: u64,
    pub begin: u64,
    pub duration: u64,
    pub offset: u64,
    pub bytes: u64,
    pub code: u64,
    pub file: u32,
    pub error: i32,
    pub thread: u32,
    pub server: u32,
    pub operation: u16,
    pub layer: u8,
    pub reserved: [u8; 5],
}

/// The functions of a sink. All may be called by any thread at any time; none blocks for long.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// [`TABLE_VERSION`].
    pub version: u32,
    /// Now, in nanoseconds since the stream's `began`.
    pub now: extern "C" fn() -> u64,
    /// The id of a new record; 0: nothing is recorded (any more).
    pub next: extern "C" fn() -> u64,
    /// The innermost open call of this thread is `id` from now on; its frame stands on the stack at `frame`. Returns the
    /// parent's id, or 0; `u64::MAX`: not to be recorded, and nothing was opened.
    pub open: extern "C" fn(frame: *const c_void, layer: u8, operation: u16, id: u64) -> u64,
    /// It is over, and so is all that was opened within it.
    pub close: extern "C" fn(id: u64),
    /// The number of a file by its name (UTF-8, not ended by 0) and its number in the deployment, or 0.
    pub file: extern "C" fn(name: *const c_char, length: usize, id: u64) -> u32,
    /// Takes a record, or counts it as dropped.
    pub record: extern "C" fn(record: *const RawRecord),
    /// Which process of which program this is, and a function of the library that asks: its own I/O is no call of the program.
    pub identify: extern "C" fn(program: u64, rank: u32, code: *const c_void),
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(null_mut());

fn table() -> Option<&'static Table> {
    let table = TABLE.load(Ordering::Acquire);
    // SAFETY: only ever null or a table that lives as long as the process.
    unsafe { table.as_ref() }
}

/// Records of this process go nowhere from now on: it is another one than the sink was made for.
pub(crate) fn detach() {
    TABLE.store(null_mut(), Ordering::Release);
}

/// Looks for a sink, once in a process. `program` and `rank` are this process's, for the stream's head.
pub fn attach(program: u64, rank: u32) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let found = loaded().or_else(|| crate::file_sink::from_environment(program, rank));
        if let Some(table) = found {
            (table.identify)(program, rank, attach as fn(u64, u32) as *const c_void);
            TABLE.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
        }
    });
}

/// The table that a library in this process exports.
fn loaded() -> Option<&'static Table> {
    // SAFETY: the name is a C string; the default handle searches what is loaded.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"penstock_trace_sink".as_ptr()) };
    // SAFETY: who exports this name exports a table that begins with its version, for as long as the process lives.
    let table = unsafe { symbol.cast::<Table>().as_ref() }?;
    (table.version == TABLE_VERSION).then_some(table)
}

/// What is found out about a call when it is over.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// First byte.
    pub offset: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// An errno, or 0.
    pub error: i32,
}

/// A call that is being recorded. Dropped without [`Call::end`], it leaves no record.
#[derive(Debug)]
pub struct Call {
    table: &'static Table,
    id: u64,
    parent: u64,
    begin: u64,
    file: u32,
    server: u32,
    layer: Layer,
    operation: Operation,
    /// It is the parent of what its thread does meanwhile.
    open: bool,
}

impl Call {
    /// A call of this thread begins; what the thread does before its end is below it. `None`: it is not recorded.
    // Inlined into whoever makes the call: its frame lies above those of all that it calls.
    #[inline(always)]
    pub fn begin(layer: Layer, operation: Operation) -> Option<Call> {
        let table = table()?;
        let frame = 0u8;
        Call::open(table, layer, operation, std::ptr::from_ref(&frame).cast())
    }

    #[cold]
    fn open(
        table: &'static Table,
        layer: Layer,
        operation: Operation,
        frame: *const c_void,
    ) -> Option<Call> {
        let id = (table.next)();
        if id == 0 {
            return None;
        }
        let parent = (table.open)(frame, layer as u8, operation.0, id);
        (parent != u64::MAX).then(|| Call {
            table,
            id,
            parent,
            begin: (table.now)(),
            file: 0,
            server: NO_SERVER,
            layer,
            operation,
            open: true,
        })
    }

    /// Something of this call begins that others may overlap: a request, a store call. It is no thread's innermost call.
    pub fn below(&self, layer: Layer, operation: Operation, server: u32) -> Option<Call> {
        let id = (self.table.next)();
        (id != 0).then(|| Call {
            table: self.table,
            id,
            parent: self.id,
            begin: (self.table.now)(),
            file: self.file,
            server,
            layer,
            operation,
            open: false,
        })
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// It is about this file: its path, and its number in the deployment, or 0.
    pub fn about(&mut self, path: &str, id: u64) {
        self.file = (self.table.file)(path.as_ptr().cast(), path.len(), id);
    }

    /// The same, by the number that [`Call::file`] gave.
    pub fn about_number(&mut self, file: u32) {
        self.file = file;
    }

    /// The number of its file.
    pub fn file(&self) -> u32 {
        self.file
    }

    /// It is over.
    pub fn end(self, outcome: Outcome) {
        let duration = (self.table.now)().saturating_sub(self.begin);
        let record = RawRecord {
            id: self.id,
            parent: self.parent,
            begin: self.begin,
            duration,
            offset: outcome.offset,
            bytes: outcome.bytes,
            code: 0,
            file: self.file,
            error: outcome.error,
            thread: u32::MAX,
            server: self.server,
            operation: self.operation.0,
            layer: self.layer as u8,
            reserved: [0; 5],
        };
        (self.table.record)(&raw const record);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.open {
            (self.table.close)(self.id);
        }
    }
}

/// The id of a call that is not recorded itself but sends requests; 0: nothing is recorded.
#[inline]
pub fn next_id() -> u64 {
    table().map_or(0, |table| (table.next)())
}
