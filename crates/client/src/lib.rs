//! Client library: names through the metadata server, bytes straight to the data servers.
//!
//! Agreed surface (the owner fills it in; keep these names):
//!
//! ```ignore
//! pub struct Client;                        // Clone + Send + Sync; connections pooled inside
//! pub struct Identity { pub program: u64, pub rank: u32 }
//! impl Client {
//!     pub fn connect(deployment: &Deployment, who: Identity) -> Result<Client>;
//!     pub fn open(&self, path: &str, how: &OpenOptions) -> Result<File>;   // read, write, create, exclusive, CreateOptions
//!     pub fn stat(&self, path: &str) -> Result<Stat>;                      // Attributes + size (asks the data servers)
//!     pub fn unlink / rename / mkdir / rmdir / readdir / set_attributes / sync_metadata / status ...
//!     pub fn counter(&self, token: u128) -> Counter;                       // create/add/set/get/free
//! }
//! /// How an access is put into requests.
//! pub enum Form { Contiguous, List, Structured, Shortcut }
//! impl File {                               // Clone + Send + Sync
//!     pub fn layout(&self) -> &Layout;
//!     pub fn has_shortcut(&self) -> bool;   // would Form::Shortcut use descriptors now?
//!     /// One file system operation. Returns stream bytes before end of file. Bytes in holes are zero.
//!     pub fn read(&self, access: &Pattern, form: Form, into: &mut Target) -> Result<u64>;
//!     pub fn write(&self, access: &Pattern, form: Form, from: &mut Source) -> Result<u64>;
//!     /// Many operations kept in flight (bounded window), each taking its bytes at a stream position of the memory side.
//!     pub fn read_each(&self, accesses: &mut dyn Iterator<Item = (u64, Pattern)>, form: Form, into: &mut Target) -> Result<u64>;
//!     pub fn write_each(&self, accesses: &mut dyn Iterator<Item = (u64, Pattern)>, form: Form, from: &mut Source) -> Result<u64>;
//!     pub fn len / set_len / allocate / sync;
//!     pub fn lock(&self, range: Range<u64>, mode: LockMode) -> Result<RangeLock>;  // file range; released on drop;
//!                                           // reads and writes of this File made while it is held carry it
//! }
//! ```
#![allow(missing_docs)]
