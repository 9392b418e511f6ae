//! Client library: names through the metadata server, bytes straight to the data servers.
//!
//! A [`Client`] belongs to one deployment and opens [`File`]s. An access is a file pattern and a memory pattern, and
//! its [`Form`] says how it becomes requests. These are one per region, lists of 64 regions, or one per data server
//! that carries the loop. There are none where a server on the same host passes its descriptor. Reads and writes of one
//! access run on all servers at once, and any number of accesses ([`File::read_each`], [`File::write_each`]) are in
//! flight. All of that takes one thread: the caller's.
//!
//! | file | idea |
//! | --- | --- |
//! | `client`, `names`, `counter` | a deployment, its name space, shared file pointers |
//! | `path` | normal form of paths |
//! | `quota` | limits on the files of users |
//! | `nodes` | nodes by id for mounts; lengths and times from data servers |
//! | `leases` | what ends with a connection: removed files that are open, advisory locks, claimed again after a restart |
//! | `file`, `lock` | open files, range locks |
//! | `open_file`, `held_lock` | what the clones of an open file share, and a lock that is held |
//! | `sync` | bytes on stable storage, and devices that begin before that |
//! | `plan` | access → operations → regions and runs; nothing is flattened |
//! | `operations`, `lane` | requests of one connection in flight, as a state machine without a socket |
//! | `exchange` | the shell: lanes, sockets, poll, reconnection |
//! | `fast_path` | one contiguous range by descriptors, without all of that |
//! | `end_of_file` | counts and zeros where objects end early |
//! | `memory` | gathering from and scattering into the caller's memory |
//! | `descriptors` | the share of the program's open files |
//! | `shortcut`, `grant`, `grant_link` | same-host descriptors, the revocable right to use them, the connection whose end ends it |
//! | `lend` | a whole file for the kernel of a mount |
//! | `connection_pool`, `link`, `admission` | connections to a server, one of them, how many operations run at once |
//! | `announce`, `job` | what a program says of itself, and its number |
//! | `slots` | changes of names that take effect once |
//! | `unsynced` | what was written and not synced, and whether it is still there |
//! | `fault`, `retry` | which failures are worth another try, and when |
//! | `guard` | locking of mutexes without regard to poisoning |
//! | `check` | consistency of names, layouts and objects |
//! | `stats`, `error` | counters; what, where, and what to do |
//! | `capi` | the C interface, `include/penstock.h` |

mod admission;
pub mod announce;
pub mod capi;
mod check;
mod client;
mod connection_pool;
mod counter;
mod descriptors;
mod end_of_file;
mod error;
mod exchange;
mod fast_path;
mod fault;
mod file;
mod grant;
mod grant_link;
mod guard;
mod held_lock;
pub mod job;
mod keys;
mod lane;
mod leases;
mod lend;
mod link;
mod lock;
mod memory;
mod names;
mod nodes;
mod open_file;
mod operations;
mod path;
mod plan;
mod quota;
mod reserve;
mod retry;
mod revocation;
mod shortcut;
mod slots;
mod stats;
mod sync;
mod unsynced;

pub use check::{CheckFinding, CheckOptions, CheckReport, FindingKind, accept_lost, check};
pub use client::{Client, ClientOptions, Identity};
pub use counter::Counter;
pub use error::{Error, Loss, Peer, Result};
pub use file::{File, OpenOptions};
pub use leases::{FileLeases, Locked, OpenFiles};
pub use lock::RangeLock;
pub use names::{SetAttributes, Stat};
pub use nodes::Looked;
pub use penstock_wire::message::{CreateOptions, ErrorKind, LockMode};
pub use quota::Quotas;
pub use stats::{Form, FormCounts, ServerCounts, Stats};
