//! One record for the whole stack: a call, a request, or a piece of work of any layer, from when to when.
//!
//! A record names what caused it: another record of its stream, or a call of a process that stands in another stream.
//! Which process and program a stream belongs to stands once, in its [`StreamHead`].
use crate::operations::Operation;
use penstock_base::Nanos;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// `rank` where there is none, or it is unknown.
pub const NO_RANK: u32 = u32::MAX;
/// `server` where there is none.
pub const NO_SERVER: u32 = u32::MAX;

/// A layer of the stack, from the program down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Layer {
    /// Calls of the netCDF library.
    Netcdf,
    /// Calls of the PnetCDF library.
    Pnetcdf,
    /// Calls of the HDF5 library.
    Hdf5,
    /// Calls of MPI_File.
    MpiIo,
    /// Calls of stdio on files.
    Stdio,
    /// Calls of the system on files.
    Posix,
    /// Calls of the client library.
    Client,
    /// A request of a client to one server, from sending to the reply.
    Request,
    /// A request at its server, from arrival to the reply.
    Server,
    /// A request's slice in the queue, from arrival to dispatch.
    Queue,
    /// A decision of the scheduler; its operation is the reason.
    Decision,
    /// A call of the store. Clients have these, too, for bytes that they move by descriptors.
    Store,
    /// An access to a modelled device. Its bytes belong to the calls that its links name.
    Device,
}

impl Layer {
    /// All, from the program down.
    pub const ALL: [Layer; 13] = [
        Layer::Netcdf,
        Layer::Pnetcdf,
        Layer::Hdf5,
        Layer::MpiIo,
        Layer::Stdio,
        Layer::Posix,
        Layer::Client,
        Layer::Request,
        Layer::Server,
        Layer::Queue,
        Layer::Decision,
        Layer::Store,
        Layer::Device,
    ];

    /// The layer with this number.
    pub fn from_number(number: u8) -> Option<Layer> {
        Layer::ALL.get(number as usize).copied()
    }

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Netcdf => "netcdf",
            Layer::Pnetcdf => "pnetcdf",
            Layer::Hdf5 => "hdf5",
            Layer::MpiIo => "mpiio",
            Layer::Stdio => "stdio",
            Layer::Posix => "posix",
            Layer::Client => "client",
            Layer::Request => "request",
            Layer::Server => "server",
            Layer::Queue => "queue",
            Layer::Decision => "decision",
            Layer::Store => "store",
            Layer::Device => "device",
        }
    }

    /// The layer with this name.
    pub fn from_name(name: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|layer| layer.name() == name)
    }
}

/// A call of a process, wherever its record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Caller {
    /// The program; 0: unknown.
    pub program: u64,
    /// Its process.
    pub rank: u32,
    /// The id of its Client record; 0: unknown.
    pub call: u64,
}

/// What caused a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Parent {
    /// Nothing that is recorded.
    #[default]
    None,
    /// The record of the same stream with this id. It may stand before or behind, or be missing.
    Here(u64),
    /// A Client record of another stream.
    Caller(Caller),
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// Counts up within a stream from 1, in the order in which records begin. A process has one counter for all layers.
    /// Records stand in the order in which they end, nearly; ids have gaps where records were dropped or not chosen.
    pub id: u64,
    /// What caused it.
    pub parent: Parent,
    /// Its layer.
    pub layer: Layer,
    /// What it does.
    pub operation: Operation,
    /// A number of the stream's table of files; 0: none.
    pub file: u32,
    /// First byte, in the file (in its object on the server at Request and below; on the device at Device).
    pub offset: u64,
    /// Bytes moved, or to be moved where that is not known.
    pub bytes: u64,
    /// When it began, since the stream's `began`.
    pub begin: Nanos,
    /// How long it took.
    pub duration: Nanos,
    /// 0, or an errno, or an error class of the layer.
    pub error: i32,
    /// A small number of the thread within its process.
    pub thread: u32,
    /// Of Request and below: the data server; [`NO_SERVER`]: none.
    pub server: u32,
    /// The return address of the call, for source lines; 0: unknown.
    pub code: u64,
}

impl Record {
    /// A record of nothing but its layer and operation, to fill in by struct update.
    pub fn new(layer: Layer, operation: Operation) -> Record {
        Record {
            id: 0,
            parent: Parent::None,
            layer,
            operation,
            file: 0,
            offset: 0,
            bytes: 0,
            begin: 0,
            duration: 0,
            error: 0,
            thread: 0,
            server: NO_SERVER,
            code: 0,
        }
    }

    /// When it ended.
    pub fn end(&self) -> Nanos {
        self.begin.saturating_add(self.duration)
    }
}

/// Whose bytes a device access holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A call of a program.
    Call(Caller),
    /// Written back later, for calls that are no longer known.
    Flush,
    /// Read before anyone asked.
    ReadAhead,
    /// Moved by the device itself or between devices.
    Migration,
}

impl Owner {
    /// `call`, `flush`, `read-ahead` or `migration`.
    pub fn name(self) -> &'static str {
        match self {
            Owner::Call(_) => "call",
            Owner::Flush => "flush",
            Owner::ReadAhead => "read-ahead",
            Owner::Migration => "migration",
        }
    }
}

/// Some bytes of a Device record (or of a Store record that serves several requests), and whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// Whose.
    pub owner: Owner,
    /// How many.
    pub bytes: u64,
}

/// Code of a process in memory, for source lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// First address.
    pub base: u64,
    /// One past the last address.
    pub end: u64,
    /// Its file.
    pub path: String,
    /// The build id of the file, in hexadecimal; empty: none.
    #[serde(default)]
    pub build_id: String,
}

/// How a stream's clock stands to that of the deployment's metadata server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clock {
    /// To be added to this stream's times, nanoseconds.
    pub offset: i64,
    /// The offset is right within this many nanoseconds. `None`: it was not measured.
    pub error: Option<u64>,
}

/// Time 0 of a stream: a reading of the steady clock, and nanoseconds since 1970 at that moment. Of several readings of both it
/// is the one that was interrupted least.
pub fn time_zero(
    steady: impl Fn() -> Instant,
    since_1970: impl Fn() -> Duration,
) -> (Instant, u64) {
    let read = || {
        let before = steady();
        let wall = since_1970();
        (steady().saturating_duration_since(before), before, wall)
    };
    let mut best = read();
    for _ in 0..4 {
        let again = read();
        if again.0 < best.0 {
            best = again;
        }
    }
    (best.1, u64::try_from(best.2.as_nanos()).unwrap_or(u64::MAX))
}

/// The name of this host, for a head.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// What a stream says of itself, once. Fields that a reader does not know are skipped; missing ones have their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamHead {
    /// The host.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The program; 0: none, or unknown.
    pub program: u64,
    /// The process of the program; [`NO_RANK`]: unknown.
    pub rank: u32,
    /// The data server that wrote it, if one did.
    pub server: Option<u32>,
    /// Data servers of the deployment; 0: there is none.
    pub servers: u32,
    /// Stripe unit of the deployment, bytes; 0: there is none.
    pub unit: u64,
    /// Time 0 of the records, nanoseconds since 1970.
    pub began: u64,
    /// Repetitions that were merged into it; 1: written as it happened.
    pub repetitions: u32,
    /// How the clock stands to others.
    pub clock: Clock,
    /// What was started: the command line.
    pub command: String,
    /// The batch job.
    pub job: String,
    /// The user.
    pub user: String,
    /// The device model of the server, if it has one.
    pub device: String,
    /// Only a part was recorded: how it was chosen, in words; empty: all of it.
    pub chosen: String,
    /// Code in memory, for source lines.
    pub modules: Vec<Module>,
}

impl Default for StreamHead {
    fn default() -> StreamHead {
        StreamHead {
            host: String::new(),
            pid: 0,
            program: 0,
            rank: NO_RANK,
            server: None,
            servers: 0,
            unit: 0,
            began: 0,
            repetitions: 1,
            clock: Clock::default(),
            command: String::new(),
            job: String::new(),
            user: String::new(),
            device: String::new(),
            chosen: String::new(),
            modules: Vec::new(),
        }
    }
}
