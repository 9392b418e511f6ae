//! MPI-IO semantics and methods over a Comm trait (SYSTEMS 2; DT sections II and III).
//!
//! Agreed surface (the owner fills it in; keep these names):
//!
//! ```ignore
//! /// The communicator of one open file. Threads in tests, MPI through the shim.
//! pub trait Comm: Send + Sync {
//!     fn rank(&self) -> usize;  fn size(&self) -> usize;
//!     fn barrier(&self) -> Result<()>;
//!     fn bcast(&self, root: usize, data: &mut Vec<u8>) -> Result<()>;
//!     fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;          // any lengths
//!     fn alltoallv(&self, send: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;   // any lengths
//!     fn duplicate(&self) -> Result<Box<dyn Comm>>;                      // own context, for the background thread
//! }
//! /// Below the methods: Penstock's client, or an ordinary mounted file system (direct mode).
//! pub trait FileSystem / pub trait FileHandle { read_each, write_each, len, set_len, allocate, sync, lock, layout, counter, ... }
//! pub struct File;   // one rank's MPI_File
//! pub enum Where { At(u64), Individual, Shared, Ordered }   // offsets in etypes
//! impl File {
//!     pub fn open(comm: Box<dyn Comm>, path: &str, amode: Amode, info: &Info) -> Result<File>;
//!     pub fn set_view(&self, disp: u64, etype: &Datatype, filetype: &Datatype, datarep: DataRep, info: &Info) -> Result<()>;
//!     pub fn read(&self, at: Where, collective: bool, into: &mut Target, memtype: &Datatype) -> Result<u64>;   // bytes
//!     pub fn write(&self, at: Where, collective: bool, from: &mut Source, memtype: &Datatype) -> Result<u64>;
//!     pub fn start_read / start_write (nonblocking: runs on the file's background thread, calls back when complete)
//!     pub fn seek, seek_shared, position, position_shared, byte_offset, size, set_size, preallocate, sync, atomicity, info, close ...
//! }
//! pub struct Datatype { pub layout: Loop, pub signature: Signature }
//! ```
#![allow(missing_docs)]
