//! The data server: accepts requests, schedules them, replies; it has no policy of its own.
//!
//! Decisions are plain state machines (`locks`, `handles`, `loops`, `access`, and the scheduler behind `queue`). Around
//! them `objects` lets threads wait, `transfer` moves bytes and `session` speaks the protocol. Sockets and threads are
//! those of [`penstock_rpc::serve`].
mod abuse_limit;
mod access;
mod audited;
mod background_sync;
mod borrowed_buffer;
mod bytes;
mod channel;
mod choice;
mod clock;
mod control;
mod error;
mod events;
mod fetches;
mod handles;
mod jobs;
mod keys;
mod load;
mod locks;
mod loops;
mod objects;
mod owner;
mod passthrough;
mod queue;
mod register;
mod revoked;
mod searches;
mod server;
mod service;
mod session;
mod settings;
mod shortcut;
mod sync;
mod tier;
mod timer;
mod trace_tap;
mod tracing;
mod transfer;
mod usage;

pub use error::Error;
pub use events::{Event, EventKind, Observer, Op};
pub use penstock_sched::journal::{Call, Journal};
pub use register::Registration;
pub use server::{Options, check_settings, start, start_on};
